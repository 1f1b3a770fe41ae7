//! Counts and other figures on a service that bills every document that is loaded for them, and gives up a command that costs
//! more than a minute of the throughput. They go stretch by stretch. Where stretches cannot be guessed, counts go page by page.

use bson::{Document, doc};

use crate::base::values::count_in;
use crate::core::expiry::Expiry;
use crate::core::plan::Selection;
use crate::core::plan::holds::KeyCondition;
use crate::core::policy::namespace::Namespace;
use crate::shell::server::Deployment;
use crate::shell::server::pass::id_pages::{PagedIds, spent};
use crate::shell::server::pass::stretches::Stretches;
use crate::shell::server::wire::error::Result;
use crate::shell::server::wire::find::Query;
use crate::shell::server::wire::meter::Account;
use crate::shell::server::wire::overload::Overload;
use crate::shell::server::wire::retry::Retries;

/// Documents of one page.
const PAGE: u64 = 1000;

/// Counts the documents of a selection by the dates of an expiry; no further than to `enough`. Retries are logged under
/// `reported_as`.
pub(crate) async fn count(
    deployment: &Deployment,
    reported_as: &Namespace,
    expiry: &Expiry,
    selection: &Selection,
    enough: Option<u64>,
) -> Result<u64> {
    let is_enough = |count| enough.is_some_and(|enough| count >= enough);
    let mut count = 0;
    let group = vec![doc! { "$group": { "_id": null, "count": { "$sum": 1 } } }];
    let add = |found: &Document| {
        count += count_in(found, "count").unwrap_or(0);
        is_enough(count)
    };
    if aggregate(deployment, expiry, selection, &selection.predicate, group, selection.unheld()?, add).await?.is_some() {
        return Ok(count);
    }
    let most = deployment.account().and_then(Account::find_limit).and_then(|most| u64::try_from(most).ok());
    let most = most.unwrap_or(PAGE).clamp(1, PAGE);
    let mut pages = PagedIds::new(deployment, selection, reported_as, false);
    while !is_enough(count) {
        match pages.next(most).await?.len() as u64 {
            0 => break,
            documents => count += documents,
        }
    }
    Ok(count)
}

/// Aggregates the documents that match, part by part, and returns what it found, until all are done or `is_enough` says so of one
/// that was found. Returns `None`, and has asked for nothing, if no parts can be guessed.
pub(crate) async fn aggregate(
    deployment: &Deployment,
    expiry: &Expiry,
    selection: &Selection,
    matching: &Document,
    then: Vec<Document>,
    only: Option<KeyCondition>,
    mut is_enough: impl FnMut(&Document) -> bool,
) -> Result<Option<Vec<Document>>> {
    let Some(mut stretches) = Stretches::of(deployment, selection, expiry).await? else { return Ok(None) };
    let mut all = Vec::new();
    let mut retries = Retries::patient();
    while !stretches.is_exhausted() {
        let before = spent(deployment);
        let of_stretch = doc! { "$match": { "$and": [stretches.condition(), matching] } };
        let stages = [of_stretch].into_iter().chain(then.iter().cloned()).collect();
        let query = Query::aggregate(&selection.namespace, stages).only(only.clone());
        let found = match query.costing(stretches.target()).shrunk_by_caller().all(deployment).await {
            Ok(found) => found,
            Err(cause) => match retries.again().filter(|_| cause.overload() == Some(Overload::TimedOut)) {
                Some(wait) => {
                    tokio::time::sleep(wait).await;
                    stretches.shrink();
                    continue;
                }
                None => return Err(cause),
            },
        };
        retries = Retries::patient();
        let is_last = found.first().is_some_and(&mut is_enough);
        all.extend(found);
        if is_last {
            break;
        }
        let units = spent(deployment) - before;
        let share = units / stretches.target();
        stretches.next(deployment, selection, units, share).await?;
    }
    Ok(Some(all))
}
