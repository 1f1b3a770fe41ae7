//! One delete command in flight, sent again where that can help.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bson::Document;
use tokio::sync::watch;
use tracing::{info, warn};

use super::budget::Turn;
use super::lag_gate::LagGate;
use crate::pace;
use crate::plan::Selection;
use crate::policy::namespace::Namespace;
use crate::server::Deployment;
use crate::server::delete::{self, Reply, Restriction, Trouble};
use crate::server::grant::DeleteGrant;
use crate::server::meter::Charges;
use crate::server::overload::Overload;
use crate::server::retries::{MOST_REFUSALS, RETRY_WAITS};

/// Wait before a majority is asked again; the server itself has waited for it before.
const CONFIRM_AGAIN: Duration = Duration::from_millis(200);

/// What every delete command of one rule is sent with.
pub struct Aim {
    pub deployment: Deployment,
    pub namespace: Namespace,
    pub selection: Selection,
    pub write_concern: Document,
    pub grant: Arc<DeleteGrant>,
    pub lag: Option<Arc<LagGate>>,
    pub charges: Charges,
    /// Closed when the sweep of the rule ends: nothing is sent again then.
    pub ended: watch::Receiver<()>,
}

/// A delete command that has come back.
pub struct Landed {
    pub asked: u64,
    pub latency: Duration,
    pub reply: Reply,
    /// Whether a reply was lost.
    pub uncertain: bool,
    /// Documents that were done before the service first said that it was too much.
    pub overloaded: Option<u64>,
    /// How long the service was left alone for that.
    pub throttled: Duration,
}

/// Sends one delete command until it is done, has failed for good, or the sweep ends.
pub async fn run(aim: Arc<Aim>, mut restriction: Box<Restriction>, asked: u64, turn: Turn) -> Landed {
    let begun = Instant::now();
    let mut landed = Landed {
        asked,
        latency: Duration::ZERO,
        reply: Reply { deleted: 0, trouble: None },
        uncertain: false,
        overloaded: None,
        throttled: Duration::ZERO,
    };
    let mut waits = RETRY_WAITS.iter();
    let mut refusals = 0;
    let mut ended = aim.ended.clone();
    let mut unconfirmed = None;
    // Parts of a batch that was too large as a whole.
    let mut parts = Vec::new();
    loop {
        let Aim { deployment, selection, write_concern, charges, grant, .. } = &*aim;
        let reply = delete::delete(deployment, selection, &restriction, write_concern, charges, grant).await;
        landed.reply.deleted += reply.deleted;
        landed.uncertain |= reply.trouble.as_ref().is_some_and(|trouble| trouble.reply_lost);
        if reply.deleted > 0 || reply.trouble.is_none() {
            (refusals, waits) = (0, RETRY_WAITS.iter());
        } else {
            refusals += 1;
        }
        landed.reply.trouble = reply.trouble;
        let Some(trouble) = &landed.reply.trouble else {
            match parts.pop() {
                Some(part) => restriction = part,
                None => break,
            }
            continue;
        };
        if let Some(overload) = trouble.overload {
            landed.overloaded.get_or_insert(landed.reply.deleted);
            // What was too much at once may pass in parts; where a service does all or nothing, nothing else would.
            if matches!(overload, Overload::TooLarge | Overload::TimedOut)
                && let Some((first, second)) = restriction.halves()
            {
                *restriction = first;
                parts.push(Box::new(second));
                if overload == Overload::TooLarge {
                    continue;
                }
            }
        }
        let wait = match (trouble, &aim.lag) {
            // The documents are gone already: the same command again only asks whether a majority knows by now.
            (Trouble { unconfirmed: true, .. }, Some(lag)) => {
                unconfirmed.get_or_insert_with(|| lag.unconfirmed());
                CONFIRM_AGAIN
            }
            (Trouble { why, overload: Some(Overload::Throttled { retry_after }), .. }, _) => {
                if refusals > MOST_REFUSALS {
                    break;
                }
                let wait = retry_after.unwrap_or_else(|| pace::back_off(refusals, fastrand::f64()));
                info!("{}: {why}; going on in {} ms", aim.namespace, wait.as_millis());
                landed.throttled += wait;
                wait
            }
            (Trouble { why, retryable: true, .. }, _) => {
                let Some(wait) = waits.next() else { break };
                warn!("{}: {why}; trying again in {} ms", aim.namespace, wait.as_millis());
                *wait
            }
            _ => break,
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = ended.changed() => break,
        }
    }
    landed.latency = begun.elapsed().saturating_sub(landed.throttled);
    drop(turn);
    landed
}
