//! The sources of batches. Each finds every expired document once; the index and the limits decide which source is used.

use super::billed_stretches::BilledStretches;
use super::candidates::Candidates;
use super::child_pages::ChildPages;
use super::date_slices::DateSlices;
use super::date_stretches::DateStretches;
use super::id_pages::IdPages;
use super::id_slices::IdSlices;
use super::{NextBatch, RuleSweep};

/// The batches of one rule, one after another.
pub(super) enum Source<'a> {
    /// `_id`s of documents that were found, never more than were asked for.
    Ids(Box<Candidates<'a>>),
    /// Pages of `_id`s of documents that were found.
    Pages(Box<IdPages<'a>>),
    /// Stretches of the date or of the `_id`, on a service that bills what a command loads.
    Billed(Box<BilledStretches<'a>>),
    /// Ranges of the index on the date.
    Dates(Box<DateSlices<'a>>),
    /// Stretches of the dates, on a server that does not sort along an index.
    Stretches(Box<DateStretches<'a>>),
    /// Ranges of the `_id`.
    Scan(Box<IdSlices<'a>>),
    /// Pages of the children of parents that are gone.
    Children(Box<ChildPages<'a>>),
}

impl<'a> Source<'a> {
    /// Opens the fastest source that the collection allows. `rate` is the lowest limit, in documents per second, that applies to
    /// the rule. With `by_ids`, no batch may hold more documents than were asked for, even if others insert some.
    ///
    /// Errors: the reason why documents could not be read.
    pub(super) async fn open(sweep: &'a RuleSweep, rate: Option<u32>, by_ids: bool) -> Result<Self, String> {
        let ids = || Ok(Self::Ids(Box::new(Candidates::new(sweep, rate, None))));
        let capabilities = &sweep.deployment.facts.capabilities;
        if !capabilities.cursors {
            let stretches = match capabilities.request_charge {
                true => {
                    BilledStretches::open(sweep, by_ids || rate.is_some()).await.map_err(|cause| sweep.explain_read(&cause))?
                }
                false => None,
            };
            return Ok(match stretches {
                Some(stretches) => Self::Billed(Box::new(stretches)),
                None => Self::Pages(Box::new(IdPages::new(sweep))),
            });
        }
        let selection = &sweep.rule.selection;
        let scans = selection.index.is_none() && !selection.is_buckets();
        if capabilities.deletes_along_range && !by_ids && rate.is_none() && sweep.archive.is_none() {
            match DateStretches::open(sweep).await {
                Ok(Some(stretches)) => return Ok(Self::Stretches(Box::new(stretches))),
                Ok(None) => {}
                Err(cause) => return Err(sweep.explain_read(&cause)),
            }
        }
        // Under a rate batches are small, and a scan in such small ranges would take very many commands.
        if by_ids || (rate.is_some() && scans) || !capabilities.sorts {
            return ids();
        }
        let opened = match &selection.index {
            Some(_) => DateSlices::open(sweep, rate).await.map(|slices| slices.map(|slices| Self::Dates(Box::new(slices)))),
            None => IdSlices::open(sweep).await.map(|slices| slices.map(|slices| Self::Scan(Box::new(slices)))),
        };
        match opened {
            Ok(Some(source)) => Ok(source),
            Ok(None) => ids(),
            Err(cause) => Err(sweep.explain_read(&cause)),
        }
    }

    /// Returns the next batch, of at most `max` documents.
    ///
    /// Errors: the reason why the pass cannot go on.
    pub(super) async fn take(&mut self, max: u64) -> Result<NextBatch, String> {
        match self {
            Self::Ids(candidates) => candidates.take(max).await,
            Self::Pages(pages) => pages.take(max).await,
            Self::Billed(stretches) => stretches.take(max).await,
            Self::Dates(slices) => slices.take(max).await,
            Self::Stretches(stretches) => stretches.take(max).await,
            Self::Scan(slices) => slices.take(max).await,
            Self::Children(pages) => pages.take(max).await,
        }
    }
}
