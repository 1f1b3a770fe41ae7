//! One delete command in flight, sent again where that can help.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bson::Document;
use tokio::sync::watch;
use tracing::warn;

use super::RETRY_WAITS;
use super::budget::Turn;
use super::lag_gate::LagGate;
use crate::plan::Selection;
use crate::policy::namespace::Namespace;
use crate::server::Deployment;
use crate::server::delete::{self, Reply, Restriction, Trouble};
use crate::server::grant::DeleteGrant;

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
}

/// Sends one delete command until it is done, has failed for good, or the sweep ends.
pub async fn run(aim: Arc<Aim>, restriction: Box<Restriction>, asked: u64, turn: Turn) -> Landed {
    let begun = Instant::now();
    let mut landed = Landed { asked, latency: Duration::ZERO, reply: Reply { deleted: 0, trouble: None }, uncertain: false };
    let mut waits = RETRY_WAITS.iter();
    let mut ended = aim.ended.clone();
    let mut unconfirmed = None;
    loop {
        let reply = delete::delete(&aim.deployment, &aim.selection, &restriction, &aim.write_concern, &aim.grant).await;
        landed.reply.deleted += reply.deleted;
        landed.uncertain |= reply.trouble.as_ref().is_some_and(|trouble| trouble.reply_lost);
        landed.reply.trouble = reply.trouble;
        let wait = match (&landed.reply.trouble, &aim.lag) {
            // The documents are gone already: the same command again only asks whether a majority knows by now.
            (Some(Trouble { unconfirmed: true, .. }), Some(lag)) => {
                unconfirmed.get_or_insert_with(|| lag.unconfirmed());
                CONFIRM_AGAIN
            }
            (Some(Trouble { why, retryable: true, .. }), _) => {
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
    landed.latency = begun.elapsed();
    drop(turn);
    landed
}
