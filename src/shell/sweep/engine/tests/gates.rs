//! Tests of the gates before a batch, each by itself and all together, in virtual time.

use std::sync::Arc;
use std::time::Duration;

use bson::doc;
use tokio::time::Instant;

use super::{sweep_of, with_engine, with_engine_of};
use crate::base::pause_file::PauseFile;
use crate::base::watch;
use crate::core::pace::pressure::{Load, Looks};
use crate::core::pace::rate::RateLimit;
use crate::core::plan::outcome::End;
use crate::core::plan::waits::{Wait, Waited};
use crate::core::policy::RunLimits;
use crate::shell::lock::lease::Leases;
use crate::shell::server::watch::Watches;
use crate::shell::server::watch::lag::LagSource;
use crate::shell::server::watch::load::{LoadFindings, LoadView};
use crate::shell::server::wire::codes;
use crate::shell::server::wire::error::ServerError;
use crate::shell::sweep::RuleSweep;
use crate::shell::sweep::engine::Engine;
use crate::shell::sweep::gates::EndedBatch;
use crate::shell::sweep::gates::pressure::PressureGate;
use crate::testing::made_up::{self, planned};
use crate::testing::scripted::Script;
use crate::testing::scripted::ScriptedReply::{self, Batch, End as Last, Error, Reply};

pub(super) const MS: fn(u64) -> Duration = Duration::from_millis;

const MIB: u64 = 1 << 20;

pub(super) fn sweep_from(script: &Arc<Script>) -> RuleSweep {
    made_up::sweep::sweep(script, 100, &Leases::default(), None)
}

pub(super) fn sweep() -> RuleSweep {
    sweep_from(&Script::new([]))
}

/// Waits until a batch may go. Returns the time that it took, and the pauses.
pub(super) async fn admitted(engine: &mut Engine<'_>) -> (Duration, Waited) {
    let begun = Instant::now();
    let Ok(_admitted) = engine.admit(None).await else { panic!("the sweep may go on") };
    (begun.elapsed(), engine.outcome().paused)
}

pub(super) fn waited(wait: Wait, millis: u64) -> Waited {
    let mut waited = Waited::default();
    waited[wait] = MS(millis);
    waited
}

#[tokio::test(start_paused = true)]
async fn nothing_holds_back_a_rule_that_nothing_is_known_against() {
    assert_eq!(with_engine(&Arc::new(sweep()), admitted).await, (MS(0), Waited::default()));
}

fn rate(rate: u32, taken: u64) -> Option<RateLimit> {
    let mut rate = RateLimit::new(rate);
    rate.take(taken, Duration::ZERO);
    Some(rate)
}

#[tokio::test(start_paused = true)]
async fn a_rule_rests_after_a_slow_batch_and_waits_for_its_rate() {
    let (first, second) = (Arc::new(sweep()), Arc::new(sweep()));
    let rested = with_engine(&first, async |engine| {
        engine.gates.rests_until = Instant::now() + MS(3000);
        admitted(engine).await
    });
    assert_eq!(rested.await, (MS(3000), waited(Wait::Latency, 3000)));
    let held_back = with_engine(&second, async |engine| {
        engine.gates.rate = rate(10, 20);
        admitted(engine).await
    });
    assert_eq!(held_back.await, (MS(2000), waited(Wait::Rate, 2000)));
}

/// Returns a sweep behind a gate for the lag of members, which is closed as long as a batch is unconfirmed.
fn lagging(script: &Arc<Script>) -> Arc<RuleSweep> {
    let mut rule = planned("", 4).decision.countable().unwrap().clone();
    rule.limits.max_lag = Some(MS(5000));
    let watches = Watches { lag: LagSource::Majority("mongos".into()).into(), ..Watches::none() };
    sweep_of(&script.deployment(), &rule, &watches)
}

#[tokio::test(start_paused = true)]
async fn a_rule_waits_while_the_members_lag_behind() {
    let sweep = lagging(&Script::new([]));
    let unconfirmed = sweep.lag.unconfirmed();
    let confirms = async {
        tokio::time::sleep(MS(7100)).await;
        drop(unconfirmed);
    };
    let (held_back, ()) = tokio::join!(with_engine(&sweep, admitted), confirms);
    // The gate is asked five times a second.
    assert_eq!(held_back, (MS(7200), waited(Wait::Lag, 7200)));
}

#[tokio::test(start_paused = true)]
async fn each_time_is_counted_under_the_first_gate_that_is_closed() {
    let (file, seen) = watch::channel(Some("the pause file exists".to_owned()));
    let mut sweep = Arc::into_inner(lagging(&Script::new([]))).unwrap();
    sweep.pause = PauseFile::by(seen);
    let sweep = Arc::new(sweep);
    let unconfirmed = sweep.lag.unconfirmed();
    let opens = async {
        tokio::time::sleep(MS(1000)).await;
        file.send_replace(None);
        tokio::time::sleep(MS(4000)).await;
        drop(unconfirmed);
    };
    let held_back = with_engine(&sweep, async |engine| {
        engine.gates.rests_until = Instant::now() + MS(3000);
        engine.gates.rate = rate(10, 80);
        admitted(engine).await
    });
    let ((time, paused), ()) = tokio::join!(held_back, opens);
    let by_wait = [Wait::PauseFile, Wait::Latency, Wait::Lag, Wait::Rate].map(|wait| paused[wait].as_millis());
    assert_eq!((time, by_wait), (MS(8000), [1000, 2000, 2000, 3000]));
}

#[tokio::test(start_paused = true)]
async fn what_came_up_while_a_permit_was_waited_for_is_heeded() {
    let (file, seen) = watch::channel(None);
    let mut sweep = sweep();
    sweep.pause = PauseFile::by(seen);
    let limits = RunLimits { concurrency: Some(1), ..RunLimits::default() };
    let sweep = Arc::new(sweep);
    let held_back = with_engine_of(&sweep, &limits, async |engine| {
        let budget = engine.run.budget;
        let of_another_rule = budget.acquire().await;
        let others = async {
            tokio::time::sleep(MS(1000)).await;
            file.send_replace(Some("the pause file exists".to_owned()));
            drop(of_another_rule);
            tokio::time::sleep(MS(1000)).await;
            let turn = tokio::time::timeout(MS(1), budget.acquire()).await;
            drop(turn.expect("the turn is that of others meanwhile"));
            tokio::time::sleep(MS(4000)).await;
            file.send_replace(None);
        };
        tokio::join!(admitted(engine), others).0
    });
    assert_eq!(held_back.await, (MS(6000), waited(Wait::PauseFile, 5000)));
}

#[tokio::test(start_paused = true)]
async fn the_rate_of_the_run_is_waited_for_in_turn_and_that_of_the_rule_is_not() {
    let limits = RunLimits { concurrency: Some(1), rate: Some(10), ..RunLimits::default() };
    for (of_rule, of_run, others_wait) in [(20, 0, 0), (0, 20, 2000)] {
        let sweep = Arc::new(sweep());
        let found = with_engine_of(&sweep, &limits, async |engine| {
            let (begun, budget) = (Instant::now(), engine.run.budget);
            engine.gates.rate = rate(10, of_rule);
            budget.take_rate(of_run);
            let other = async {
                tokio::time::sleep(MS(1)).await;
                drop(budget.acquire().await);
                begun.elapsed()
            };
            tokio::join!(admitted(engine), other)
        });
        let (held_back, other) = found.await;
        assert_eq!((held_back, other), ((MS(2000), waited(Wait::Rate, 2000)), MS(others_wait.max(1))));
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_was_charged_does_not_wait_for_its_own_charge() {
    let limits = RunLimits { rate: Some(10), ..RunLimits::default() };
    with_engine_of(&Arc::new(sweep()), &limits, async |engine| {
        engine.gates.rate = rate(10, 0);
        engine.gates.taken(50);
        assert_eq!(admitted(engine).await, (MS(0), Waited::default()));
        engine.gates.sent(50);
        assert_eq!(admitted(engine).await, (MS(5000), waited(Wait::Rate, 5000)));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn documents_that_were_not_deleted_do_not_count_for_the_rates() {
    let limits = RunLimits { rate: Some(10), ..RunLimits::default() };
    for of_rule in [None, rate(10, 0)] {
        let sweep = Arc::new(sweep());
        let held_back = with_engine_of(&sweep, &limits, async |engine| {
            engine.gates.rate = of_rule;
            engine.gates.taken(50);
            engine.gates.sent(50);
            engine.gates.ended(&EndedBatch { asked: 50, gone: 20, latency: None, rest: MS(0) });
            admitted(engine).await
        });
        assert_eq!(held_back.await, (MS(2000), waited(Wait::Rate, 2000)));
    }
}

/// Returns the answer to a read that is tried again a little later.
fn trouble() -> ScriptedReply {
    Error(ServerError::reported(codes::PRIMARY_STEPPED_DOWN, "trouble", ""))
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_closes_while_a_batch_is_found_holds_it_back() {
    let script = Script::new([trouble(), Batch(vec![doc! { "_id": 1 }]), Last, Reply(doc! { "n": 1, "ok": 1.0 })]);
    let deletes = || script.sent().iter().filter(|command| command.contains_key("delete")).count();
    let sweep = lagging(&script);
    let sweeps = with_engine(&sweep, async |engine| {
        engine.allowance = Some(100);
        let permit = engine.run.budget.acquire().await;
        let ended = engine.start_batches(permit).await.is_ok() && engine.finish_batches().await.is_ok();
        let outcome = engine.sweep.outcome_by_now();
        (ended, outcome.deleted, outcome.paused)
    });
    let lags = async {
        tokio::time::sleep(MS(1)).await;
        let unconfirmed = sweep.lag.unconfirmed();
        tokio::time::sleep(MS(60_000)).await;
        assert_eq!(deletes(), 0);
        drop(unconfirmed);
    };
    let ((ended, deleted, paused), ()) = tokio::join!(sweeps, lags);
    assert_eq!((ended, deleted, deletes()), (true, 1, 1));
    assert!((59_000..60_200).contains(&paused[Wait::Lag].as_millis()), "{paused:?}");
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_is_found_and_not_sent_leaves_its_part_of_the_limit_to_other_rules() {
    let refused = Error(ServerError::reported(codes::UNAUTHORIZED, "trouble", ""));
    // The look for the oldest document is due again once the batch is found.
    let script =
        Script::new([Batch(vec![doc! { "at": 1 }]), trouble(), trouble(), Batch(vec![doc! { "_id": 1 }]), Last, refused]);
    let mut sweep = sweep_from(&script);
    (sweep.rule.limits.max_head, sweep.rule.head_index) = (Some(MS(20)), Some("at_1".into()));
    let limits = RunLimits { max_deletes: Some(5), ..RunLimits::default() };
    with_engine_of(&Arc::new(sweep), &limits, async |engine| {
        let budget = engine.run.budget;
        let permit = budget.acquire().await;
        let Err(End::Failed(why)) = engine.start_batches(permit).await else { panic!("{:?}", script.sent()) };
        assert!(why.starts_with("looking for the oldest document"), "{why}");
        assert_eq!(budget.reserve(9), 5);
    })
    .await;
}

/// Returns what is seen of a server that others use, with a cache of 1000 MiB: so many of them hold data, and so many wait to be
/// written.
pub(super) fn seen(look: u64, cached: u64, dirty: u64) -> LoadFindings {
    let last = Load { cache_size: Some(1000 * MIB), cached: Some(cached * MIB), dirty: Some(dirty * MIB), ..Load::default() };
    LoadFindings::made_up(look, Some(Looks { last, before: None, is_unshared: false }))
}

/// Returns the gate of a server that is watched.
pub(super) fn watched(max_dirty: Option<f64>, now: LoadFindings) -> (watch::Sender<LoadFindings>, Option<PressureGate>) {
    let (sender, receiver) = watch::channel(now);
    (sender, Some(PressureGate::on(max_dirty, LoadView::new(receiver))))
}

#[tokio::test(start_paused = true)]
async fn a_server_at_its_limits_is_left_alone_until_it_is_better_or_for_ten_seconds_where_the_policy_sets_no_limit() {
    for (max_dirty, expected) in [(Some(20.0), 25_000), (None, 10_000)] {
        let (sender, gate) = watched(max_dirty, seen(1, 300, 250));
        let gets_better = async {
            tokio::time::sleep(MS(24_990)).await;
            sender.send_replace(seen(2, 300, 10));
        };
        let sweep = Arc::new(sweep());
        let held_back = with_engine(&sweep, async |engine| {
            engine.gates.pressure = gate;
            let first = admitted(engine).await;
            // The batch that was let through is found and asked for again, and is the only one.
            engine.gates.taken(1);
            let again = admitted(engine).await;
            engine.gates.sent(1);
            (first, again.0, admitted(engine).await.0)
        });
        let ((first, again, next), ()) = tokio::join!(held_back, gets_better);
        assert_eq!((first, again), ((MS(expected), waited(Wait::Pressure, expected)), MS(0)), "{max_dirty:?}");
        assert_eq!(next, if max_dirty.is_some() { MS(0) } else { MS(10_000) });
    }
}

#[tokio::test(start_paused = true)]
async fn the_ten_seconds_begin_anew_after_a_wait_for_something_else() {
    let (file, is_there) = watch::channel(None);
    let (_sender, gate) = watched(None, seen(1, 300, 250));
    let mut sweep = sweep();
    sweep.pause = PauseFile::by(is_there);
    let sweep = Arc::new(sweep);
    let held_back = with_engine(&sweep, async |engine| {
        engine.gates.pressure = gate;
        admitted(engine).await
    });
    let pauses = async {
        tokio::time::sleep(MS(8990)).await;
        file.send_replace(Some("the pause file exists".to_owned()));
        tokio::time::sleep(MS(2000)).await;
        file.send_replace(None);
    };
    let ((time, paused), ()) = tokio::join!(held_back, pauses);
    assert_eq!((time, paused[Wait::PauseFile], paused[Wait::Pressure]), (MS(21_000), MS(2000), MS(19_000)));
}

#[tokio::test(start_paused = true)]
async fn below_its_limits_a_server_gets_the_rest_that_the_last_batch_makes_due() {
    for latency in [MS(1), MS(1000)] {
        let (_sender, gate) = watched(Some(20.0), seen(1, 300, 180));
        let gate = gate.unwrap();
        let pressure = gate.pressure().expect("more than half of what may wait to be written");
        let rest = pressure.rest(latency);
        let sweep = Arc::new(sweep());
        let held_back = with_engine(&sweep, async |engine| {
            engine.gates.pressure = Some(gate);
            assert_eq!(admitted(engine).await.0, MS(0));
            engine.gates.sent(1);
            engine.gates.ended(&EndedBatch { asked: 1, gone: 1, latency: Some(latency), rest: MS(0) });
            admitted(engine).await.0
        });
        let held_back = held_back.await;
        assert!(held_back >= rest && held_back <= rest + MS(1) && !rest.is_zero(), "{held_back:?} {rest:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn batches_go_one_at_a_time_and_none_is_read_ahead_under_pressure() {
    for (now, batches, reads_ahead) in [(seen(1, 300, 10), 3, true), (seen(1, 300, 180), 1, false), (seen(1, 800, 10), 1, true)] {
        let (_sender, gate) = watched(Some(20.0), now);
        let sweep = Arc::new(sweep());
        let room = with_engine(&sweep, async |engine| {
            engine.gates.pressure = gate;
            (engine.concurrency, engine.outcome().batches) = (3, 1);
            engine.gates.ask(engine.room(false)).unwrap()
        });
        let room = room.await;
        assert_eq!((room.batches, room.reads_ahead), (batches, reads_ahead));
    }
}

#[tokio::test(start_paused = true)]
async fn the_room_is_what_the_narrowest_gate_leaves() {
    for (of_rule, of_run, allowance, documents, reads_ahead) in [
        (None, None, None, 500, true),
        (Some(3000), None, None, 100, false),
        (Some(3000), Some(300), None, 30, false),
        (None, Some(300), None, 30, false),
        (Some(3000), None, Some(7), 7, false),
    ] {
        let sweep = Arc::new(sweep());
        let limits = RunLimits { rate: of_run, ..RunLimits::default() };
        let room = with_engine_of(&sweep, &limits, async |engine| {
            engine.outcome().batches = 1;
            engine.allowance = allowance;
            engine.gates.rate = of_rule.map(RateLimit::new);
            engine.gates.ask(engine.room(false)).unwrap()
        });
        let room = room.await;
        assert_eq!((room.documents(), room.reads_ahead), (documents, reads_ahead), "{of_rule:?} {of_run:?} {allowance:?}");
    }
}
