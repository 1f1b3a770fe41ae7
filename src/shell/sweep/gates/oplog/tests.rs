use bson::doc;
use tokio::time::{Instant, sleep};

use super::*;
use crate::base::progress::{Progress, Show};
use crate::base::stop::Stop;
use crate::core::facts::{Oplog, OplogSize};
use crate::core::plan::StopReason;
use crate::core::plan::outcome::{End, Outcome};
use crate::core::plan::waits::Wait;
use crate::core::policy::RunLimits;
use crate::shell::lock::lease::Leases;
use crate::shell::server::watch::Watches;
use crate::shell::server::watch::oplog::SeenOplog;
use crate::shell::sweep::engine::Engine;
use crate::shell::sweep::{RunBudget, RunContext};
use crate::testing::made_up::sweep;
use crate::testing::scripted::{Script, ScriptedReply};

const MIB: u64 = 1 << 20;

/// A look at an oplog of 1000 MiB whose entries cover so many seconds and one; `own` bytes of it are the run's.
fn seen(seconds: u32, own: u64, written: u64) -> LastLook {
    let size = Some(OplogSize { used: 1000 * MIB, max: 1000 * MIB });
    Ok(SeenOplog { oplog: Oplog { first: 0, last: seconds + 1, size, min_retention: None }, own, written })
}

/// A gate for a window of 900 seconds, at which each document adds a tenth of a MiB.
fn gate(look: LastLook) -> (OplogGate, watch::Sender<LastLook>) {
    let (sender, seen) = watch::channel(look);
    let least = Some(Duration::from_secs(900));
    let gate = OplogGate { least, bytes_per_document: MIB as f64 / 10.0, in_flight: 10 * MIB, seen, written: Arc::default() };
    (gate, sender)
}

fn show(sender: &watch::Sender<LastLook>, look: LastLook) {
    drop(sender.send_replace(look));
}

#[test]
fn the_gate_closes_before_the_batches_on_their_way_can_shorten_the_window() {
    // A MiB a second, of which three parts of 62 are left out.
    let left = 1000.0 - 3000.0 / 62.0 - 10.0;
    let (gate, sender) = gate(seen(1000, 0, 0));
    assert_eq!(gate.too_short(), None);
    gate.deleted(((left - 900.0) * 10.0) as u64);
    assert_eq!(gate.too_short(), None);
    gate.deleted(2);
    let why = gate.too_short().unwrap();
    assert_eq!(why, "the next batches would leave the oplog a window of 14m 59s, 15m 00s have to be kept");
    // What the look has seen counts once, and not as written by others.
    let written = gate.written.load(Ordering::Relaxed);
    show(&sender, seen(956, written, written));
    assert!(gate.too_short().is_some());
    show(&sender, seen(961, written, written));
    assert_eq!(gate.too_short(), None);
}

#[test]
fn what_is_unknown_closes_the_gate_and_a_rule_without_a_guard_only_counts() {
    let (mut gate, sender) = gate(Err("no answer".into()));
    assert_eq!(gate.too_short().as_deref(), Some("the oplog's window is unknown: no answer"));
    let unsized_oplog = Oplog { first: 0, last: 9999, size: None, min_retention: None };
    show(&sender, Ok(SeenOplog { oplog: unsized_oplog, own: 0, written: 0 }));
    assert!(gate.too_short().unwrap().contains("its size needs `collStats` of `local.oplog.rs`"));
    gate.least = None;
    assert_eq!(gate.too_short(), None);
    gate.deleted(5);
    assert_eq!(gate.written.load(Ordering::Relaxed), MIB / 2);
}

/// Sweeps two documents behind a gate, while something else happens.
async fn sweep(gate: OplogGate, stop: &Stop, meanwhile: impl AsyncFnOnce(&Arc<Script>)) -> (Outcome, Arc<Script>) {
    let script = Script::new([
        ScriptedReply::Batch(vec![doc! { "_id": 1 }, doc! { "_id": 2 }]),
        ScriptedReply::End,
        ScriptedReply::Reply(doc! { "n": 2, "ok": 1.0 }),
    ]);
    let mut sweep = sweep::sweep(&script, 100, &Leases::default(), None);
    sweep.rule.limits.max_deletes = Some(100);
    let budget = RunBudget::new(Instant::now(), RunLimits::default(), Leases::default());
    let progress = Progress::new(Show::Nothing, 1, None);
    let progress = progress.begin("app.c", None);
    let permit = budget.acquire().await;
    let run = RunContext { run_id: "r", budget: &budget, progress: &progress, stop, watches: &Watches::none() };
    let mut engine = Engine::new(Arc::new(sweep), run);
    engine.gates.oplog = Some(gate);
    let (outcome, ()) = tokio::join!(engine.run(permit), meanwhile(&script));
    (outcome, script)
}

fn deletes(script: &Script) -> usize {
    script.sent().iter().filter(|command| command.contains_key("delete")).count()
}

fn unstopped() -> (watch::Sender<Option<u8>>, Stop) {
    let (signals, receiver) = watch::channel(None);
    (signals, Stop::by(receiver))
}

#[tokio::test(start_paused = true)]
async fn no_delete_goes_out_while_the_gate_is_closed() {
    let (gate, sender) = gate(Err("no answer".into()));
    let (written, (_signals, stop)) = (gate.written.clone(), unstopped());
    let (outcome, script) = sweep(gate, &stop, async |script| {
        for look in [seen(900, 0, 0), Err("no answer".into()), seen(2000, 0, 0)] {
            sleep(Duration::from_secs(20)).await;
            assert_eq!(deletes(script), 0, "{look:?}");
            show(&sender, look);
        }
    })
    .await;
    assert_eq!((deletes(&script), outcome.deleted, outcome.end), (1, 2, End::Complete));
    assert_eq!(written.load(Ordering::Relaxed), MIB / 5, "two documents");
    assert!(outcome.paused[Wait::Oplog] >= Duration::from_secs(60), "{:?}", outcome.paused);
}

#[tokio::test(start_paused = true)]
async fn a_sweep_that_waits_for_the_oplog_ends_by_its_other_limits() {
    let (gate, _sender) = gate(seen(900, 0, 0));
    let begun = Instant::now();
    let (_signals, stop) = unstopped();
    let stop = stop.with_end(Some(begun + Duration::from_secs(30)));
    let (outcome, script) = sweep(gate, &stop, async |_| {}).await;
    assert_eq!((deletes(&script), outcome.deleted, outcome.end), (0, 0, End::Partial(StopReason::MaxDuration)));
    assert!(begun.elapsed() < Duration::from_secs(35), "{:?}", begun.elapsed());
}

#[test]
fn every_batch_in_flight_adds_its_documents_to_the_oplog() {
    let deployment = Script::new([]).deployment();
    let mut rule = crate::testing::made_up::planned("", 4).decision.countable().unwrap().clone();
    assert_eq!(oplog_in_flight(&deployment, &rule, Some(119.5)), 2000 * 2 * 119 + 2000);
    rule.limits.concurrency = Some(3);
    assert_eq!(oplog_in_flight(&deployment, &rule, Some(0.0001)), 1, "a part of a byte is one");
    assert_eq!(oplog_in_flight(&deployment, &rule, None), (6000.0 * UNKNOWN_ID_BYTES).ceil() as u64);
}
