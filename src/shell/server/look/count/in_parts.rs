//! Counts on a service that bills every document that a count loads, and gives up a command that costs more than a minute of
//! the throughput. The counts go stretch by stretch, or page by page where stretches cannot be guessed.

use bson::doc;

use crate::base::values::count_in;
use crate::core::plan::{Selection, SweepRule};
use crate::shell::server::Deployment;
use crate::shell::server::pass::id_pages::{PagedIds, spent};
use crate::shell::server::pass::stretches::Stretches;
use crate::shell::server::wire::error::Result;
use crate::shell::server::wire::find::Query;
use crate::shell::server::wire::overload::Overload;
use crate::shell::server::wire::retry::Retries;

/// Documents of one page.
const PAGE: u64 = 1000;

/// Counts the documents of a selection of a rule, which is the rule's own or differs in its predicate; no further than to
/// `enough`.
pub(super) async fn count(deployment: &Deployment, rule: &SweepRule, selection: &Selection, enough: Option<u64>) -> Result<u64> {
    let is_enough = |count| enough.is_some_and(|enough| count >= enough);
    let mut count = 0;
    let Some(mut stretches) = Stretches::of(deployment, selection, &rule.expiry).await? else {
        let most = deployment.account().and_then(super::Account::find_limit).and_then(|most| u64::try_from(most).ok());
        let most = most.unwrap_or(PAGE).clamp(1, PAGE);
        let mut pages = PagedIds::new(deployment, selection, &rule.namespace, false);
        while !is_enough(count) {
            match pages.next(most).await?.len() as u64 {
                0 => break,
                documents => count += documents,
            }
        }
        return Ok(count);
    };
    let mut retries = Retries::patient();
    while !stretches.is_exhausted() && !is_enough(count) {
        let before = spent(deployment);
        let matching = doc! { "$match": { "$and": [stretches.condition(), selection.predicate.clone()] } };
        let stages = vec![matching, doc! { "$group": { "_id": null, "count": { "$sum": 1 } } }];
        let query = Query::aggregate(&selection.namespace, stages).only(selection.unheld()?);
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
        count += found.first().and_then(|found| count_in(found, "count")).unwrap_or(0);
        let units = spent(deployment) - before;
        let share = units / stretches.target();
        stretches.next(deployment, selection, units, share).await?;
    }
    Ok(count)
}
