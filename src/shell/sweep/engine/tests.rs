//! Tests of what the engine of a rule does beside its batches, by a server that answers from a list.

pub(super) mod limits;

use bson::{Uuid, doc};
use tokio::sync::watch;

use super::*;
use crate::base::progress::{Progress, Show};
use crate::base::stop::Stop;
use crate::base::values::raw::RawValue;
use crate::core::facts::Topology;
use crate::core::plan::SweepRule;
use crate::core::plan::findings::Counts;
use crate::shell::lock::lease::Leases;
use crate::shell::server::Deployment;
use crate::shell::server::delete::grant::{Consent, DeleteGrant};
use crate::shell::server::watch::Watches;
use crate::shell::sweep::batch::send::send;
use crate::shell::sweep::{Limits, RunBudget};
use crate::testing::made_up::planned;
use crate::testing::scripted::Script;
use crate::testing::scripted::ScriptedReply::{self, Batch, End as Last};

pub(super) fn sweep_of(deployment: &Deployment, rule: &SweepRule, watches: &Watches) -> Arc<RuleSweep> {
    let grant = Arc::new(DeleteGrant::new(false, Consent::NotAsked).unwrap());
    Arc::new(RuleSweep::new(deployment, rule, &Counts::default(), &grant, watches, &Leases::default(), None))
}

/// Does something with the engine of a sweep.
pub(super) async fn with_engine<T>(sweep: &Arc<RuleSweep>, act: impl AsyncFnOnce(&mut Engine<'_>) -> T) -> T {
    let limits = Limits { max_deletes: None, rate: None, concurrency: None, leases: Leases::default() };
    let budget = RunBudget::new(Instant::now(), &limits);
    let progress = Progress::new(Show::Nothing, 1, None);
    let progress = progress.begin("app.c", None);
    let (_signals, receiver) = watch::channel(None);
    let stop = Stop::by(receiver);
    let run = RunContext { run_id: "r", budget: &budget, progress: &progress, stop: &stop };
    act(&mut Engine::new(sweep.clone(), run, Family::of(sweep, run))).await
}

/// Returns the sweep of a rule on a service that knows no `collectionUUID`, whose catalog shows a collection with these bytes in its UUID. The rule was planned
/// for that of sevens.
fn of_collection(byte: u8, after: Option<ScriptedReply>) -> (Arc<Script>, Arc<RuleSweep>) {
    let info = doc! { "uuid": Uuid::from_bytes([byte; 16]) };
    let listed = [Batch(vec![doc! { "name": "c", "type": "collection", "info": info }]), Last];
    let script = Script::new(listed.into_iter().chain(after));
    let mut deployment = script.deployment();
    deployment.facts.topology = Topology::Sharded;
    let rule = planned("", 4).decision.countable().unwrap().clone();
    let sweep = sweep_of(&deployment, &rule, &Watches::none());
    (script, sweep)
}

#[tokio::test(start_paused = true)]
async fn a_rule_is_complete_only_if_its_collection_is_still_the_same() {
    for (byte, is_same) in [(7, true), (8, false)] {
        let (script, sweep) = of_collection(byte, None);
        let outcome = with_engine(&sweep, async |engine| {
            engine.look_at_collections().await;
            engine.outcome.clone()
        });
        let outcome = outcome.await;
        assert_eq!((outcome.is_collection_gone, outcome.end == End::Complete), (!is_same, is_same), "{:?}", script.sent());
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_deleted_from_a_collection_that_took_the_name_of_the_one_that_was_planned() {
    for (byte, is_same) in [(7, true), (8, false)] {
        let deleted = is_same.then(|| ScriptedReply::Reply(doc! { "n": 1, "ok": 1.0 }));
        let (script, sweep) = of_collection(byte, deleted);
        let batch = Restriction::Ids(vec![RawValue::of(1).unwrap()]);
        let sent = send(&sweep, Box::new(batch), None).await;
        let deletes = script.sent().iter().filter(|command| command.contains_key("delete")).count();
        assert_eq!((sent.is_sent, deletes, sent.result.error.is_none()), (is_same, usize::from(is_same), is_same));
    }
}
