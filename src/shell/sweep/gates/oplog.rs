//! Holds a rule back while its deletes would leave the oplog with too short a window.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::base::text::duration;
use crate::base::watch;
use crate::core::plan::SweepRule;
use crate::core::policy::limits::Limits;
use crate::shell::server::Deployment;
use crate::shell::server::watch::oplog::{LastLook, OplogWatch};
use crate::shell::sweep::RuleSweep;

/// Bytes that a delete is taken to add to the oplog where no `_id` is known.
const UNKNOWN_ID_BYTES: f64 = 250.0;

/// The part of a rule in the run's oplog, and the gate in front of it.
pub(crate) struct OplogGate {
    /// `None` if the rule does not guard the window; its deletes count for those that do.
    least: Option<Duration>,
    bytes_per_document: f64,
    /// Bytes of the batches that may be on their way at the same time.
    in_flight: u64,
    seen: watch::Receiver<LastLook>,
    written: Arc<AtomicU64>,
}

impl OplogGate {
    /// Creates the gate of a rule under these limits, whose batches have at most `batch` documents.
    pub(crate) fn new(sweep: &RuleSweep, limits: &Limits, batch: u32, watch: &OplogWatch) -> Self {
        let concurrency = sweep.rule.concurrency(limits, &sweep.deployment.facts.capabilities);
        Self {
            least: limits.min_oplog_window,
            bytes_per_document: sweep.oplog_bytes_per_document.unwrap_or(UNKNOWN_ID_BYTES),
            in_flight: bytes_in_flight(batch, concurrency, sweep.oplog_bytes_per_document),
            seen: watch.subscribe(),
            written: watch.written(),
        }
    }

    /// Records that documents were deleted.
    pub(crate) fn deleted(&self, documents: u64) {
        let bytes = (documents as f64 * self.bytes_per_document) as u64;
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Returns the reason why the rule has to wait; `None` if it need not.
    pub(crate) fn too_short(&self) -> Option<String> {
        let least = self.least?;
        let seen = self.seen.borrow();
        let seen = match &*seen {
            Ok(seen) => seen,
            Err(why) => return Some(format!("the oplog's window is unknown: {why}")),
        };
        let since = self.written.load(Ordering::Relaxed).saturating_sub(seen.written);
        let Some(left) = seen.oplog.window_left(seen.own, since + self.in_flight) else {
            return Some(
                "the oplog's window is unknown: its size needs `collStats` of `local.oplog.rs` (role `clusterMonitor`)".into(),
            );
        };
        (left < least.as_secs_f64()).then(|| {
            let of = |seconds: f64| duration((seconds * 1000.0) as u64);
            format!(
                "the next batches would leave the oplog a window of {}, {} have to be kept",
                of(left),
                of(least.as_secs_f64())
            )
        })
    }
}

/// Returns the bytes that the batches of a rule that may be in flight at the same time add to the oplog at most.
pub(crate) fn oplog_in_flight(deployment: &Deployment, rule: &SweepRule, bytes_per_document: Option<f64>) -> u64 {
    let concurrency = rule.concurrency(&rule.limits, &deployment.facts.capabilities);
    bytes_in_flight(rule.sizes.batch, concurrency, bytes_per_document)
}

fn bytes_in_flight(batch: u32, concurrency: u32, bytes_per_document: Option<f64>) -> u64 {
    let documents = f64::from(batch) * f64::from(concurrency);
    (documents * bytes_per_document.unwrap_or(UNKNOWN_ID_BYTES)).ceil() as u64
}
