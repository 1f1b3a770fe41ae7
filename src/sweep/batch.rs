//! One batch in flight: carries out what its attempts decide.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bson::Document;
use tokio::sync::watch;
use tracing::{info, warn};

use super::archived::{self, RuleArchive};
use super::attempts::{Attempts, Step, Tally};
use super::budget::Turn;
use super::lag_gate::LagGate;
use crate::instant::millis;
use crate::lock::lease::Lease;
use crate::plan::Selection;
use crate::policy::namespace::Namespace;
use crate::report::outcome::Archived;
use crate::server::Deployment;
use crate::server::delete::{self, Restriction};
use crate::server::grant::DeleteGrant;
use crate::server::meter::Charges;

/// What every delete command of one rule is sent with.
pub struct Aim {
    pub deployment: Deployment,
    pub namespace: Namespace,
    pub selection: Selection,
    pub write_concern: Document,
    pub grant: Arc<DeleteGrant>,
    pub lag: Option<Arc<LagGate>>,
    pub charges: Charges,
    pub lease: Option<Lease>,
    /// Where documents are written before they are deleted.
    pub archive: Option<Arc<RuleArchive>>,
    /// Closed when the sweep of the rule ends: nothing is sent again then.
    pub ended: watch::Receiver<()>,
}

/// A batch that has come back.
pub struct Landed {
    pub asked: u64,
    pub archived: Archived,
    pub sent: Sent,
}

/// What became of delete commands.
pub struct Sent {
    /// False where the lease was over before the first of them.
    pub is_sent: bool,
    /// `None` where it was not the server that took the time.
    pub latency: Option<Duration>,
    pub tally: Tally,
}

/// Sends one batch until it is done, has failed for good, or the sweep ends.
pub async fn run(aim: Arc<Aim>, restriction: Box<Restriction>, asked: u64, turn: Turn) -> Landed {
    let (archived, sent) = match aim.archive.clone() {
        Some(archive) => archived::run(&aim, &archive, *restriction, asked).await,
        None => (Archived::default(), send(&aim, restriction).await),
    };
    drop(turn);
    Landed { asked, archived, sent }
}

/// Sends delete commands until all that the restriction names is done, or the lease is over.
pub async fn send(aim: &Aim, restriction: Box<Restriction>) -> Sent {
    let begun = Instant::now();
    let mut attempts = Attempts::new(restriction, aim.lag.is_some());
    let mut ended = aim.ended.clone();
    let mut unconfirmed = None;
    let mut is_sent = false;
    loop {
        // The last moment to see it: a process may be stopped between any two steps, and go on when another run has the lease.
        if aim.lease.as_ref().is_some_and(Lease::is_over) {
            break;
        }
        is_sent = true;
        let Aim { deployment, namespace, selection, write_concern, charges, grant, .. } = aim;
        let reply = delete::delete(deployment, selection, attempts.aim(), write_concern, charges, grant).await;
        let step = attempts.take(reply, fastrand::f64());
        let why = attempts.why();
        let wait = match step {
            Step::Next => continue,
            Step::Confirm(wait) => {
                unconfirmed = unconfirmed.or_else(|| aim.lag.as_ref().map(|lag| lag.unconfirmed()));
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
            Step::End => break,
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            _ = ended.changed() => break,
        }
    }
    let tally = attempts.end();
    let latency = (!tally.retried).then(|| begun.elapsed().saturating_sub(tally.throttled));
    Sent { is_sent, latency, tally }
}
