//! One batch in flight.

pub(super) mod archived;
pub(super) mod attempts;
pub(super) mod binding;
pub(super) mod fresh;
pub(super) mod reading;
pub(super) mod send;

use std::sync::Arc;
use std::time::Duration;

use super::RuleSweep;
use super::budget::Permit;
use crate::core::plan::outcome::Archived;
use crate::shell::server::delete::restriction::Restriction;
use send::Sent;

/// A batch that is done, has failed for good, or was ended with the sweep.
pub(super) struct FinishedBatch {
    /// Documents that the batch asked for.
    pub asked: u64,
    /// Time that the rule had waited for the pause file when the batch began.
    pub paused_before: Duration,
    pub archived: Archived,
    pub sent: Sent,
}

/// Archives a batch, if the rule asks for it, and sends it. Holds the permit until the batch has finished.
pub(super) async fn run(
    sweep: Arc<RuleSweep>,
    restriction: Box<Restriction>,
    asked: u64,
    permit: Permit,
    paused_before: Duration,
) -> FinishedBatch {
    let (archived, sent) = match sweep.archive.clone() {
        Some(archive) => archived::run(&sweep, &archive, *restriction, asked).await,
        None => {
            let parents = restriction.parents();
            (Archived::default(), send::send(&sweep, restriction, parents.as_deref()).await)
        }
    };
    drop(permit);
    FinishedBatch { asked, paused_before, archived, sent }
}
