//! The sources of batches. Each finds every expired document once; the index and the limits decide which source is used.

pub(super) mod billed_stretches;
pub(super) mod candidates;
pub(super) mod child_pages;
pub(super) mod date_stretches;
pub(super) mod id_pages;
mod pass;
pub(super) mod ranges;

use super::{NextBatch, RuleSweep};
use billed_stretches::BilledStretches;
use candidates::Candidates;
use child_pages::ChildPages;
use date_stretches::DateStretches;
use id_pages::IdPages;
use ranges::Ranges;

/// The batches of one rule, one after another.
pub(super) enum Source<'a> {
    /// `_id`s of documents that were found, never more than were asked for.
    Ids(Box<Candidates<'a>>),
    /// Pages of `_id`s of documents that were found.
    Pages(Box<IdPages<'a>>),
    /// Stretches of the date or of the `_id`, on a service that bills what a command loads.
    Billed(Box<BilledStretches<'a>>),
    /// Ranges of the index on the date, or of the `_id`.
    Ranges(Box<Ranges<'a>>),
    /// Stretches of the dates, on a server that does not sort along an index.
    Stretches(Box<DateStretches<'a>>),
    /// Pages of the children of parents that are gone.
    Children(Box<ChildPages<'a>>),
}

impl<'a> Source<'a> {
    /// Opens the fastest source that the collection allows. `rate` is the lowest limit, in documents per second, that applies to
    /// the rule. With `by_ids`, no batch may hold more documents than were asked for, even if others insert some.
    /// `max_deletes` is the lowest limit, in documents, of the rule and of the run.
    ///
    /// Errors: the reason why documents could not be read.
    pub(super) async fn open(
        sweep: &'a RuleSweep,
        rate: Option<u32>,
        by_ids: bool,
        max_deletes: Option<u64>,
    ) -> Result<Self, String> {
        let ids = || Ok(Self::Ids(Box::new(Candidates::new(sweep, rate, None).limited(max_deletes))));
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
        if capabilities.deletes_along_range && !by_ids && rate.is_none() {
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
            Some(_) => Ranges::of_dates(sweep, rate).await,
            None => Ranges::of_ids(sweep, rate).await,
        };
        match opened {
            Ok(Some(ranges)) => Ok(Self::Ranges(Box::new(ranges))),
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
            Self::Ranges(ranges) => ranges.take(max).await,
            Self::Stretches(stretches) => stretches.take(max).await,
            Self::Children(pages) => pages.take(max).await,
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, doc};

    use super::*;
    use crate::core::plan::Storage;
    use crate::core::plan::index::IndexChoice;
    use crate::shell::lock::lease::Leases;
    use crate::testing::made_up::sweep;
    use crate::testing::scripted::Script;
    use crate::testing::scripted::ScriptedReply::{self, Batch, End, Reply};

    /// The service, as far as it decides how documents are found.
    #[derive(Debug, Clone, Copy)]
    enum Service {
        MongoDb,
        DocumentDb,
        CosmosRu,
        /// One without cursors that bills nothing.
        Other,
    }

    /// Returns the name of the source for a collection of ObjectIds, with an index on the date or without.
    async fn opened(service: Service, has_index: bool, rate: Option<u32>, by_ids: bool, storage: Storage) -> &'static str {
        let ids: Vec<ScriptedReply> = [1, 9]
            .map(|n| Batch(vec![doc! { "_id": bson::oid::ObjectId::from_bytes([n; 12]), "at": DateTime::from_millis(0) }]))
            .into();
        let replies: Vec<ScriptedReply> = match (service, has_index) {
            (Service::MongoDb, true) => vec![Reply(doc! { "stage": "IXSCAN", "isMultiKey": false })],
            (Service::DocumentDb, _) => vec![Batch(vec![doc! { "at": DateTime::from_millis(0) }]), End],
            _ => ids,
        };
        let mut sweep = sweep::sweep(&Script::new(replies), 100, &Leases::default(), None);
        sweep.rule.selection.storage = storage;
        sweep.rule.selection.index = has_index.then(|| IndexChoice { name: "at_1".into(), oldest_first: true, bounded: true });
        let capabilities = &mut sweep.deployment.facts.capabilities;
        match service {
            Service::MongoDb => {}
            Service::DocumentDb => (capabilities.deletes_along_range, capabilities.sorts) = (true, false),
            Service::CosmosRu => (capabilities.cursors, capabilities.request_charge) = (false, true),
            Service::Other => capabilities.cursors = false,
        }
        match Source::open(&sweep, rate, by_ids, None).await.unwrap() {
            Source::Ids(_) => "ids",
            Source::Pages(_) => "pages",
            Source::Billed(_) => "billed",
            Source::Ranges(ranges) if ranges.field == "_id" => "scan",
            Source::Ranges(_) => "dates",
            Source::Stretches(_) => "stretches",
            Source::Children(_) => "children",
        }
    }

    #[tokio::test]
    async fn the_collection_the_service_and_the_limits_decide_how_documents_are_found() {
        let buckets = || Storage::Buckets { measurements: "t".into() };
        use Service::{CosmosRu, DocumentDb, MongoDb, Other};
        for (service, has_index, rate, by_ids, storage, expected) in [
            (MongoDb, true, None, false, Storage::Plain, "dates"),
            (MongoDb, true, Some(5), false, Storage::Plain, "dates"),
            (MongoDb, true, None, true, Storage::Plain, "ids"),
            (MongoDb, false, None, false, Storage::Plain, "scan"),
            (MongoDb, false, Some(5), false, Storage::Plain, "ids"),
            (MongoDb, false, None, true, Storage::Plain, "ids"),
            (MongoDb, false, Some(5), false, buckets(), "scan"),
            (DocumentDb, true, None, false, Storage::Plain, "stretches"),
            (DocumentDb, true, Some(5), false, Storage::Plain, "ids"),
            (DocumentDb, true, None, true, Storage::Plain, "ids"),
            (DocumentDb, false, None, false, Storage::Plain, "stretches"),
            (CosmosRu, false, None, false, Storage::Plain, "billed"),
            (CosmosRu, false, Some(5), false, Storage::Plain, "pages"),
            (CosmosRu, false, None, true, Storage::Plain, "pages"),
            (Other, false, None, false, Storage::Plain, "pages"),
        ] {
            let found = opened(service, has_index, rate, by_ids, storage.clone()).await;
            assert_eq!(found, expected, "{service:?} {has_index} {rate:?} {by_ids} {storage:?}");
        }
    }
}
