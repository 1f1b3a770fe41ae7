//! Sends the delete commands of a batch, as its attempts decide.

#[cfg(test)]
mod tests;

use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use tracing::{info, warn};

use super::attempts::{Attempts, BatchResult, Step};
use super::fresh::fresh;
use crate::base::instant::millis;
use crate::shell::lock::fence::Fence;
use crate::shell::lock::lease::{LAST_REPLY, Lease};
use crate::shell::server::delete::restriction::{Parents, Restriction};
use crate::shell::server::delete::{self, DeleteError, Reply};
use crate::shell::sweep::RuleSweep;

/// Maximum time to wait for the reply to a delete after the sweep has ended.
const MAX_LAST_WAIT: Duration = Duration::from_secs(6);

/// The delete commands that were sent for a restriction.
pub(crate) struct Sent {
    /// False if the lease was over, or the sweep had ended, before the first of them.
    pub is_sent: bool,
    /// Whether a part was not sent, because the sweep had ended.
    pub is_cut_short: bool,
    /// Whether the lease ended before all of them were sent and answered. It may have been renewed since.
    pub out_of_lease: bool,
    /// The time that the server took; `None` if the batch was tried again after an error.
    pub latency: Option<Duration>,
    pub result: BatchResult,
}

/// Sends delete commands until everything that the restriction names is done or has failed for good, the sweep ends, or the
/// lease is over. A reply that is outstanding when the sweep ends is waited for a little longer, and then counts as lost. A
/// reply that is outstanding when the lease ends counts as lost soon after. `parents` are the parents of the children that the
/// restriction names.
pub(crate) async fn send(sweep: &RuleSweep, restriction: Box<Restriction>, parents: Option<&Parents>) -> Sent {
    let RuleSweep { deployment, rule, grant, .. } = sweep;
    let write_concern = sweep.write_concern();
    let namespace = &rule.namespace;
    let begun = Instant::now();
    let mut attempts = Attempts::new(restriction, sweep.lag.is_bound());
    let mut unconfirmed = None;
    let (mut is_sent, mut is_cut_short, mut out_of_lease) = (false, false, false);
    let (mut held_back, mut paused) = (Duration::ZERO, Duration::ZERO);
    loop {
        // Once the sweep has ended, nothing is sent, even if it could be.
        tokio::select! {
            biased;
            () = sweep.ended() => {
                is_cut_short = true;
                break;
            }
            waited = deployment.ready_to_delete(&rule.selection.namespace, attempts.target().extent()) => held_back += waited,
        }
        // Last of all waits, so that what the delete relies on is of this moment.
        let fresh = tokio::select! {
            biased;
            () = sweep.ended() => {
                is_cut_short = true;
                break;
            }
            fresh = fresh(sweep, parents) => match fresh {
                Ok(fresh) => fresh,
                Err(why) => {
                    attempts.next_step(Reply::not_sent(why), 0.0);
                    break;
                }
            },
        };
        // The process may be suspended between any two steps, and the command may wait for a server or a connection. What goes
        // out under the lease ends with the lease on the server as well.
        if let Some(gone) = sweep.pause.gone() {
            // All that was waited for, and read, is asked again after it.
            let begun = Instant::now();
            tokio::select! {
                biased;
                () = sweep.ended() => is_cut_short = true,
                () = gone => {}
            }
            paused += begun.elapsed();
            if is_cut_short {
                break;
            }
            continue;
        }
        let fence = match &sweep.lease {
            Some(lease) => match lease.fence() {
                Some(fence) => Some(fence),
                None => {
                    out_of_lease = true;
                    break;
                }
            },
            None => None,
        };
        let fence = match &fresh {
            Some(fresh) => Some(Fence::before(fence, fresh.too_late)),
            None => fence,
        };
        let selection = fresh.as_ref().map_or(&rule.selection, |fresh| &fresh.selection);
        is_sent = true;
        // A reply that has come is counted, however late.
        let reply = tokio::select! {
            biased;
            reply = delete::delete(deployment, selection, attempts.target(), &write_concern, fence.as_ref(), grant) => reply,
            () = lease_over(sweep) => {
                out_of_lease = true;
                Reply::out_of_lease()
            }
            () = ended_for(sweep, MAX_LAST_WAIT) => Reply::given_up(MAX_LAST_WAIT),
        };
        if let (Some(lease), Some(DeleteError { unanswered: true, .. })) = (&sweep.lease, &reply.error) {
            lease.note_unanswered();
        }
        let is_too_late = reply.error.as_ref().is_some_and(|error| error.too_late);
        let step = attempts.next_step(reply, fastrand::f64());
        let why = attempts.message();
        let wait = match step {
            Step::Next => continue,
            Step::Confirm(wait) => {
                unconfirmed = unconfirmed.or_else(|| sweep.lag.is_bound().then(|| sweep.lag.unconfirmed()));
                wait
            }
            Step::Yield(wait) => {
                info!(%namespace, waitMs = millis(wait), "{namespace}: {why}; going on in {} ms", millis(wait));
                wait
            }
            Step::Retry(wait) => {
                warn!(%namespace, waitMs = millis(wait), "{namespace}: {why}; trying again in {} ms", millis(wait));
                wait
            }
            Step::End => {
                if attempts.gave_up() {
                    warn!(%namespace, "{namespace}: {why}; no longer waiting for the reply; more may be deleted than is counted");
                }
                break;
            }
        };
        tokio::select! {
            biased;
            () = sweep.ended() => break,
            () = async {
                if is_too_late {
                    read_again(sweep).await;
                }
                tokio::time::sleep(wait).await;
            } => {}
        }
    }
    let mut result = attempts.end();
    // A sweep that ends with its lease ends its batches too, before they see the lease themselves.
    out_of_lease |= result.error.is_some() && sweep.lease.as_ref().is_some_and(Lease::is_over);
    result.throttled += held_back;
    sweep.last_deleted.store(result.deleted, Ordering::Relaxed);
    result.paused = paused;
    let latency = (!result.retried).then(|| begun.elapsed().saturating_sub(result.throttled + paused));
    Sent { is_sent, is_cut_short, out_of_lease, latency, result }
}

/// Has the lease renewed and the holds read at once, after the server found a delete late. The clock of the server may have
/// been set forward. Then the server finds every delete late that relies on an earlier reading. A look at parents is repeated
/// before each command in any case.
async fn read_again(sweep: &RuleSweep) {
    let lease = async {
        if let Some(lease) = &sweep.lease {
            lease.renew().await;
        }
    };
    let keys = async {
        for keys in sweep.keys.iter() {
            keys.read_again().await;
        }
    };
    tokio::join!(lease, keys);
}

/// Resolves this long after the sweep has ended.
async fn ended_for(sweep: &RuleSweep, time: Duration) {
    sweep.ended().await;
    tokio::time::sleep(time).await;
}

/// Resolves when the lease is over, and so is the time for a last reply; never without one.
async fn lease_over(sweep: &RuleSweep) {
    match &sweep.lease {
        Some(lease) => {
            lease.over().await;
            tokio::time::sleep(*LAST_REPLY).await;
        }
        None => std::future::pending().await,
    }
}
