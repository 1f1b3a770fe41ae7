//! Tests of what the engine of a rule does next to its batches, by a server that answers from a list.

pub(super) mod gates;
pub(super) mod limits;
mod recorded;
mod replaced;
mod waits;

use std::path::Path;

use bson::oid::ObjectId;
use bson::{DateTime, Document, Uuid, doc};
use tokio::time::Instant;

use super::*;
use crate::base::progress::{Progress, Show};
use crate::base::stop::Stop;
use crate::base::watch;
use crate::core::facts::Topology;
use crate::core::pace::rate::RateLimit;
use crate::core::plan::SweepRule;
use crate::core::plan::findings::GoesBy;
use crate::core::policy::Compression;
use crate::core::policy::RunLimits;
use crate::shell::archive::writer::Archive;
use crate::shell::lock::lease::Leases;
use crate::shell::server::Deployment;
use crate::shell::server::delete::grant::{Consent, DeleteGrant};
use crate::shell::server::watch::Watches;
use crate::shell::sweep::batch::send::send;
use crate::shell::sweep::{RuleArchive, RunBudget};
use crate::testing::disk::SimulatedDisk;
use crate::testing::made_up::sweep::{self, ids_of};
use crate::testing::made_up::{closed_window, planned};
use crate::testing::scripted::Script;
use crate::testing::scripted::ScriptedReply::{self, Batch, End as Last};

pub(in crate::shell::sweep) fn sweep_of(deployment: &Deployment, rule: &SweepRule, watches: &Watches) -> Arc<RuleSweep> {
    let grant = Arc::new(DeleteGrant::new(false, Consent::NotAsked).unwrap());
    Arc::new(RuleSweep::new(deployment, rule, &GoesBy::default(), &grant, watches, &Leases::default(), None))
}

/// Does something with the engine of a sweep.
pub(super) async fn with_engine<T>(sweep: &Arc<RuleSweep>, act: impl AsyncFnOnce(&mut Engine<'_>) -> T) -> T {
    with_engine_of(sweep, &RunLimits::default(), act).await
}

/// Does something with the engine of a sweep, in a run with limits.
pub(super) async fn with_engine_of<T>(
    sweep: &Arc<RuleSweep>,
    limits: &RunLimits,
    act: impl AsyncFnOnce(&mut Engine<'_>) -> T,
) -> T {
    with_run(limits, async |run| act(&mut Engine::new(sweep.clone(), run)).await).await
}

/// Does something in a run with limits.
pub(in crate::shell::sweep) async fn with_run<T>(limits: &RunLimits, act: impl AsyncFnOnce(RunContext<'_>) -> T) -> T {
    let budget = RunBudget::new(Instant::now(), *limits, Leases::default());
    let progress = Progress::new(Show::Nothing, 1, None);
    let progress = progress.begin("app.c", None);
    let (_signals, receiver) = watch::channel(None);
    let stop = Stop::by(receiver);
    act(RunContext { run_id: "r", budget: &budget, progress: &progress, stop: &stop, watches: &Watches::none() }).await
}

/// Returns the sweep of a rule on a service that knows no `collectionUUID`, whose catalog shows a collection with these bytes in
/// its UUID. The rule was planned for the UUID of sevens.
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
            engine.sweep.outcome_by_now()
        });
        let outcome = outcome.await;
        assert_eq!((outcome.is_collection_gone, outcome.end == End::Complete), (!is_same, is_same), "{:?}", script.sent());
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_without_an_expired_document_is_complete_once_its_collection_was_looked_at() {
    for (byte, is_same) in [(7, true), (8, false)] {
        let (script, mut sweep) = of_collection(byte, None);
        Arc::get_mut(&mut sweep).expect("one sweep").nothing_expired = true;
        let limits = RunLimits::default();
        let outcome = with_run(&limits, async |run| {
            let permit = run.budget.acquire().await;
            Engine::new(sweep.clone(), run).run(permit).await
        });
        let outcome = outcome.await;
        assert_eq!((outcome.batches, outcome.end == End::Complete), (0, is_same), "{:?}", outcome.end);
        assert!(script.sent().iter().all(|sent| sent.contains_key("listCollections")), "{:?}", script.sent());
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_without_an_expired_document_is_not_complete_outside_of_its_window() {
    let (script, mut sweep) = of_collection(7, None);
    let shut = Arc::get_mut(&mut sweep).expect("one sweep");
    shut.nothing_expired = true;
    shut.rule.limits.window = planned(&closed_window(), 4).decision.countable().unwrap().limits.window.clone();
    let limits = RunLimits::default();
    let outcome = with_run(&limits, async |run| {
        let permit = run.budget.acquire().await;
        Engine::new(sweep.clone(), run).run(permit).await
    });
    assert_eq!((outcome.await.end, script.sent().len()), (End::Partial(StopReason::Window), 0));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_deleted_from_a_collection_that_took_the_name_of_the_one_that_was_planned() {
    for (byte, is_same) in [(7, true), (8, false)] {
        let deleted = is_same.then(|| ScriptedReply::Reply(doc! { "n": 1, "ok": 1.0 }));
        let (script, sweep) = of_collection(byte, deleted);
        let sent = send(&sweep, Box::new(ids_of([1])), None).await;
        let deletes = script.sent().iter().filter(|command| command.contains_key("delete")).count();
        assert_eq!((sent.is_sent, deletes, sent.result.error.is_none()), (is_same, usize::from(is_same), is_same));
    }
}

#[tokio::test(start_paused = true)]
async fn the_reason_that_the_collection_is_gone_is_said_once() {
    let listed = [Batch(vec![doc! { "name": "c", "type": "collection", "info": { "uuid": Uuid::from_bytes([8; 16]) } }]), Last];
    let (script, sweep) = of_collection(8, None);
    // Each look is followed by one for the collection that had the name, which is nowhere.
    script.then([Last].into_iter().chain(listed).chain([Last]));
    let ends = with_engine(&sweep, async |engine| {
        engine.look_at_collections().await;
        let first = engine.outcome().end.clone();
        engine.outcome().is_collection_gone = false;
        engine.look_at_collections().await;
        let second = engine.sweep.outcome_by_now();
        (first, second.end, second.is_collection_gone)
    });
    let (first, second, is_gone) = ends.await;
    assert!(matches!(first, End::Failed(_)) && first == second && is_gone, "{first:?} {second:?}: {:?}", script.sent());
}

#[tokio::test]
async fn the_next_batch_is_found_early_only_without_a_limit_or_a_rate_where_a_server_with_cursors_has_proved_fast() {
    type Change = fn(&mut Engine<'_>);
    let changes: [(Change, bool); 5] = [
        (|_| {}, true),
        (|engine| engine.outcome().batches = 0, false),
        (|engine| engine.allowance = Some(9), false),
        (|engine| engine.pace.record(&slow()), false),
        (|engine| engine.concurrency = 1, true),
    ];
    let deployment = Script::new([]).deployment();
    let rule = planned("", 4).decision.countable().unwrap().clone();
    let sweep = sweep_of(&deployment, &rule, &Watches::none());
    for (number, (change, is_early)) in changes.into_iter().enumerate() {
        let found = with_engine(&sweep, async |engine| {
            engine.outcome().batches = 1;
            change(engine);
            engine.room(false).reads_ahead
        });
        assert_eq!(found.await, is_early, "case {number}");
    }
    let mut without_cursors = deployment.clone();
    without_cursors.facts.capabilities.cursors = false;
    let sweep_without = sweep_of(&without_cursors, &rule, &Watches::none());
    let of_run = RunLimits { max_deletes: Some(9), ..RunLimits::default() };
    for (sweep, limits, rate) in
        [(&sweep_without, RunLimits::default(), None), (&sweep, of_run, None), (&sweep, RunLimits::default(), Some(5))]
    {
        let found = with_engine_of(sweep, &limits, async |engine| {
            engine.outcome().batches = 1;
            engine.gates.rate = rate.map(RateLimit::new);
            engine.gates.ask(engine.room(false)).unwrap().reads_ahead
        });
        assert!(!found.await, "{limits:?} {rate:?}");
    }
}

/// Returns the timing of a batch that took far longer than it should.
fn slow() -> BatchTiming {
    BatchTiming { documents: 1, latency: Some(Duration::from_secs(5)), overloaded_after: None }
}

#[tokio::test]
async fn documents_are_found_before_they_go_where_they_are_archived_and_only_a_shard_key_leads_to_them() {
    for (has_archive, shard_key, is_found) in
        [(false, &[][..], false), (true, &[], false), (false, &["k"], false), (true, &["k"], true)]
    {
        let script = Script::new([]);
        let archive = || {
            let disk = Arc::new(SimulatedDisk::with_directory(Path::new("/")));
            let archive = Arc::new(Archive::on(disk, Path::new("/"), "run", DateTime::from_millis(0)));
            RuleArchive { archive, compression: Compression::Zstd, rule: "rule".into() }
        };
        let mut sweep = sweep::sweep(&script, 100, &Leases::default(), has_archive.then(archive));
        sweep.rule.selection.shard_key = shard_key.iter().map(|field| (*field).to_owned()).collect();
        let sweep = Arc::new(sweep);
        with_engine(&sweep, async |engine| {
            let permit = engine.run.budget.acquire().await;
            let _ = engine.start_batches(permit).await;
        })
        .await;
        // For ranges of the `_id` the first one is looked for, whatever has expired.
        let filter = script.sent()[0].get_document("filter").unwrap().clone();
        assert_eq!(filter == sweep.rule.selection.predicate, is_found, "{has_archive} {shard_key:?}: {filter}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_has_proved_fast_is_asked_for_the_next_range_while_a_delete_is_in_flight() {
    let found = |id: u8| Batch(vec![doc! { "_id": ObjectId::from_bytes([id; 12]) }]);
    let ends = |id: u8| Batch([id, id + 1].map(|id| doc! { "_id": ObjectId::from_bytes([id; 12]) }).into());
    let deleted = || doc! { "n": 1, "ok": 1.0 };
    let late = ScriptedReply::Late(Duration::from_secs(10), deleted());
    let script = Script::new([
        found(1),
        found(9),
        ends(2),
        ScriptedReply::Reply(deleted()),
        ends(3),
        ends(4),
        late,
        ScriptedReply::Silence,
    ]);
    let mut sweep = sweep::sweep(&script, 100, &Leases::default(), None);
    sweep.rule.selection.index = None;
    sweep.rule.limits.concurrency = Some(1);
    let sweep = Arc::new(sweep);
    let sweeps = with_engine(&sweep, async |engine| {
        let permit = engine.run.budget.acquire().await;
        let _ = tokio::time::timeout(Duration::from_secs(20), engine.start_batches(permit)).await;
    });
    let looks = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        let letter = |command: &Document| if command.contains_key("delete") { 'd' } else { 'f' };
        script.sent().iter().map(letter).collect::<String>()
    };
    // The first delete has to show how fast the server is.
    assert_eq!(tokio::join!(sweeps, looks).1, "fffdffd");
}
