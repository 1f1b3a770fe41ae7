//! The time that a deployment takes to find the oldest document of a collection.

use std::time::Duration;

use bson::doc;
use tokio::time::Instant;

use crate::core::pace::head::Took;
use crate::core::plan::SweepRule;
use crate::shell::server::Deployment;
use crate::shell::server::wire::codes;
use crate::shell::server::wire::error::Result;
use crate::shell::server::wire::find::Query;

/// Time for which the server may look at least, so that a wait has a figure.
const LEAST_LIMIT: Duration = Duration::from_secs(1);

/// Time on the way after which the reply counts as lost.
const ON_THE_WAY: Duration = Duration::from_secs(1);

/// Looks for the oldest document of a rule's collection, expired or not, as a queue does. Returns the time that it took: the time
/// of the server, and the time on the way. `max` is the time that it may take by the policy.
///
/// Errors: the query was refused or the connection broke.
pub(crate) async fn time_to_find(deployment: &Deployment, rule: &SweepRule, max: Duration) -> Result<Took> {
    let field = rule.expiry.field.as_str();
    let limit = max.max(LEAST_LIMIT);
    let query = Query::find(&rule.selection.namespace, doc! {})
        .sort(doc! { field: 1 })
        .limit(1)
        .covered(field)
        .hint(rule.head_index.as_deref())
        .max_time(Some(limit))
        .time_limit(limit + ON_THE_WAY);
    let begun = Instant::now();
    let found = async { query.cursor(deployment).await?.next().await };
    match found.await {
        Ok(_) => Ok(Took::Known(begun.elapsed())),
        Err(cause) if cause.is_timeout() || cause.has_code(codes::MAX_TIME_MS_EXPIRED) => Ok(Took::MoreThan(limit)),
        Err(cause) => Err(cause),
    }
}
