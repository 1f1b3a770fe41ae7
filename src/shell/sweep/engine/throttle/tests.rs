//! What holds a rule back before a batch, each for itself, in virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bson::doc;
use tokio::sync::watch;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use super::*;
use crate::base::pause_file::PauseFile;
use crate::base::values::raw::RawValue;
use crate::core::pace::pressure::{Load, Looks};
use crate::core::pace::rate::RateLimit;
use crate::core::plan::MaxHead;
use crate::shell::lock::lease::Leases;
use crate::shell::server::delete::restriction::Restriction;
use crate::shell::server::watch::Watches;
use crate::shell::server::watch::lag::LagSource;
use crate::shell::server::watch::load::{LoadView, Seen};
use crate::shell::server::wire::codes;
use crate::shell::server::wire::error::ServerError;
use crate::shell::sweep::batch::send::send;
use crate::shell::sweep::engine::tests::{sweep_of, with_engine, with_engine_of};
use crate::shell::sweep::gates::head::HeadGate;
use crate::shell::sweep::gates::lag::LagGate;
use crate::shell::sweep::{Limits, RuleSweep};
use crate::testing::made_up::planned;
use crate::testing::made_up::sweep;
use crate::testing::scripted::ScriptedReply::Reply;
use crate::testing::scripted::{Script, ScriptedReply, cost};

const MS: fn(u64) -> Duration = Duration::from_millis;

const MIB: u64 = 1 << 20;

fn sweep() -> RuleSweep {
    sweep::sweep(&Script::new([]), 100, &Leases::default(), None)
}

/// Acquires a permit. Returns the time that it took, and the pauses.
async fn acquired(engine: &mut Engine<'_>) -> (Duration, Paused) {
    let begun = Instant::now();
    let Ok(_permit) = engine.acquire().await else { panic!("the sweep may go on") };
    (begun.elapsed(), engine.outcome.paused)
}

#[tokio::test(start_paused = true)]
async fn nothing_holds_back_a_rule_that_nothing_is_known_against() {
    assert_eq!(with_engine(&Arc::new(sweep()), acquired).await, (MS(0), Paused::default()));
}

#[tokio::test(start_paused = true)]
async fn a_rule_rests_after_a_slow_batch_and_waits_for_its_rate() {
    let sweep = Arc::new(sweep());
    let rested = with_engine(&sweep, async |engine| {
        engine.rests_until = Instant::now() + MS(3000);
        acquired(engine).await
    });
    assert_eq!(rested.await, (MS(3000), Paused { latency: MS(3000), ..Paused::default() }));
    let waited = with_engine(&sweep, async |engine| {
        let mut rate = RateLimit::new(10);
        rate.take(20, engine.run.budget.elapsed());
        engine.rate = Some(rate);
        acquired(engine).await
    });
    assert_eq!(waited.await, (MS(2000), Paused { rate: MS(2000), ..Paused::default() }));
}

#[tokio::test(start_paused = true)]
async fn a_rule_waits_for_its_request_units_before_a_batch_and_before_a_delete() {
    let mut rule = planned("", 4).decision.countable().unwrap().clone();
    rule.limits.max_request_units = Some(100);
    for is_found_first in [true, false] {
        let deleted = || Reply(doc! { "n": 1, "ok": 1.0 });
        let script = Script::new([deleted(), cost(250.0), deleted(), cost(1.0)]);
        let sweep = sweep_of(&script.billed(), &rule, &Watches::none());
        let batch = || Box::new(Restriction::One(RawValue::of(1).unwrap()));
        let sent = send(&sweep, batch(), None).await;
        assert_eq!((sent.result.deleted, sent.result.throttled), (1, MS(0)));
        // A command of two and a half seconds' units.
        if is_found_first {
            assert_eq!(with_engine(&sweep, acquired).await, (MS(2500), Paused { throttle: MS(2500), ..Paused::default() }));
        }
        let sent = send(&sweep, batch(), None).await;
        let expected = if is_found_first { MS(0) } else { MS(2500) };
        assert_eq!((sent.result.deleted, sent.result.throttled, sent.latency), (1, expected, Some(MS(0))));
    }
}

#[tokio::test(start_paused = true)]
async fn a_rule_waits_while_the_members_lag_behind() {
    let mut rule = planned("", 4).decision.countable().unwrap().clone();
    rule.limits.max_lag = Some(MS(5000));
    let watches = Watches { lag: LagSource::Majority("mongos".into()), ..Watches::none() };
    let sweep = sweep_of(&Script::new([]).deployment(), &rule, &watches);
    let unconfirmed = sweep.lag.as_ref().map(|lag| lag.unconfirmed());
    let confirms = async {
        tokio::time::sleep(MS(7100)).await;
        drop(unconfirmed);
    };
    let ((time, paused), ()) = tokio::join!(with_engine(&sweep, acquired), confirms);
    // The gate is looked at five times a second.
    assert_eq!((time, paused), (MS(7200), Paused { lag: MS(7200), ..Paused::default() }));
}

#[tokio::test(start_paused = true)]
async fn what_came_up_while_a_permit_was_waited_for_is_heeded() {
    let limits = Limits { concurrency: Some(1), ..Limits::default() };
    let (sender, receiver) = watch::channel(None);
    let sweep = Arc::new(RuleSweep { pause: PauseFile::by(receiver), ..sweep() });
    let paused = with_engine_of(&sweep, &limits, async |engine| {
        let of_another_rule = engine.run.budget.acquire().await;
        let others = async {
            tokio::time::sleep(MS(1000)).await;
            sender.send_replace(Some("the pause file `p` exists".to_owned()));
            drop(of_another_rule);
            tokio::time::sleep(MS(5000)).await;
            sender.send_replace(None);
        };
        tokio::join!(acquired(engine), others).0
    });
    assert_eq!(paused.await, (MS(6000), Paused { pause_file: MS(5000), ..Paused::default() }));
}

/// The number of warnings that were logged.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicUsize>);

impl<S: tracing::Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        self.0.fetch_add(usize::from(*event.metadata().level() == tracing::Level::WARN), Ordering::Relaxed);
    }
}

/// Acquires a permit, and returns the number of warnings.
async fn warnings_of(sweep: &Arc<RuleSweep>, meanwhile: impl Future<Output = ()>) -> usize {
    let warnings = Warnings::default();
    let _logs = tracing::subscriber::set_default(tracing_subscriber::registry().with(warnings.clone()));
    tokio::join!(with_engine(sweep, acquired), meanwhile);
    warnings.0.load(Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_told_once_however_long_it_is() {
    let mut lagging = sweep();
    lagging.lag = LagGate::new(MS(5000), &LagSource::Majority("mongos".into()));
    let lagging = Arc::new(lagging);
    let unconfirmed = lagging.lag.as_ref().map(|lag| lag.unconfirmed());
    let confirms = async {
        tokio::time::sleep(MS(7000)).await;
        drop(unconfirmed);
    };
    assert_eq!(warnings_of(&lagging, confirms).await, 1);
    // The oldest document takes too long, and too long once more.
    let too_slow =
        || ScriptedReply::Error(ServerError::reported(codes::MAX_TIME_MS_EXPIRED, "operation exceeded time limit", ""));
    let script = Script::new([too_slow(), too_slow(), ScriptedReply::Batch(vec![doc! { "at": 1 }])]);
    let mut slow = sweep::sweep(&script, 100, &Leases::default(), None);
    slow.head = Some(HeadGate::new(MaxHead { time: MS(20), index: "at_1".into() }));
    assert_eq!(warnings_of(&Arc::new(slow), async {}).await, 1);
    let (sender, _view, pressed) = watched(Some(20.0), seen(1, 300, 250));
    let gets_better = |time: u64| {
        let sender = sender.clone();
        async move {
            tokio::time::sleep(MS(time)).await;
            sender.send_replace(seen(2, 300, 10));
        }
    };
    assert_eq!(warnings_of(&pressed, gets_better(25_000)).await, 1);
    // A short wait is none to be told of.
    sender.send_replace(seen(3, 300, 250));
    assert_eq!(warnings_of(&pressed, gets_better(9000)).await, 0);
}

/// Returns what is seen of a server that others use, with a cache of 1000 MiB: so many of them hold data, and so many wait to be written.
fn seen(look: u64, cached: u64, dirty: u64) -> Seen {
    let last = Load { cache_size: Some(1000 * MIB), cached: Some(cached * MIB), dirty: Some(dirty * MIB), ..Load::default() };
    Seen::made_up(look, Some(Looks { last, before: None, is_unshared: false }))
}

/// Returns a sweep of a server that is watched.
fn watched(max_dirty: Option<f64>, now: Seen) -> (watch::Sender<Seen>, LoadView, Arc<RuleSweep>) {
    let (sender, receiver) = watch::channel(now);
    let view = LoadView::new(receiver);
    let mut sweep = sweep();
    sweep.pressure = Some(PressureGate::on(max_dirty, view.clone()));
    (sender, view, Arc::new(sweep))
}

#[tokio::test(start_paused = true)]
async fn a_server_at_its_limits_is_left_alone_until_it_is_better_or_for_ten_seconds_where_the_policy_sets_no_limit() {
    for (max_dirty, expected) in [(Some(20.0), MS(25_000)), (None, MS(10_000))] {
        let (sender, _view, sweep) = watched(max_dirty, seen(1, 300, 250));
        let gets_better = async {
            tokio::time::sleep(MS(24_990)).await;
            sender.send_replace(seen(2, 300, 10));
        };
        let acquires = with_engine(&sweep, async |engine| {
            let (time, paused) = acquired(engine).await;
            // One batch may pass, however bad it is.
            assert_eq!(engine.passes, max_dirty.is_none());
            assert_eq!(engine.time_to_spare(), MS(0));
            engine.passes = false;
            let spared = engine.time_to_spare();
            assert_eq!(spared.is_zero(), max_dirty.is_some());
            (time, paused)
        });
        let (acquired, ()) = tokio::join!(acquires, gets_better);
        assert_eq!(acquired, (expected, Paused { pressure: expected, ..Paused::default() }), "{max_dirty:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_is_asked_for_as_soon_as_the_deletes_since_the_last_one_may_have_used_up_the_room() {
    let (sender, view, sweep) = watched(Some(20.0), seen(1, 300, 90));
    let gate = sweep.pressure.as_ref().unwrap();
    with_engine(&sweep, async |engine| {
        let is_asked = || async { tokio::time::timeout(MS(1), view.asked()).await.is_ok() };
        assert_eq!((engine.time_to_spare(), is_asked().await), (MS(0), false));
        gate.sent(5000);
        assert_eq!((engine.time_to_spare(), is_asked().await), (NEXT_LOOK, true));
        sender.send_replace(seen(2, 300, 250));
        assert_eq!((engine.time_to_spare(), is_asked().await), (PRESSURE_CHECK_INTERVAL, true));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn below_its_limits_a_server_gets_the_rest_that_the_last_batch_makes_due() {
    let (_sender, _view, sweep) = watched(Some(20.0), seen(1, 300, 180));
    with_engine(&sweep, async |engine| {
        let pressure = engine.pressure().expect("more than half of what may wait to be written");
        assert_eq!(engine.time_to_spare(), MS(0));
        engine.last_timed = Some((Instant::now(), MS(1)));
        let rest = pressure.rest(MS(1));
        assert!(rest < PRESSURE_CHECK_INTERVAL && !rest.is_zero(), "{rest:?}");
        assert_eq!(engine.time_to_spare(), rest);
        engine.last_timed = Some((Instant::now(), MS(1000)));
        assert_eq!(engine.time_to_spare(), PRESSURE_CHECK_INTERVAL);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn batches_go_one_at_a_time_under_pressure_or_where_others_use_a_full_cache() {
    let at_once = async |now: Seen| {
        let (_sender, _view, sweep) = watched(Some(20.0), now);
        with_engine(&sweep, async |engine| {
            engine.concurrency = 3;
            (engine.concurrency_now(), engine.pressure().is_some(), engine.is_cramped())
        })
        .await
    };
    assert_eq!(at_once(seen(1, 300, 10)).await, (3, false, false));
    assert_eq!(at_once(seen(1, 300, 180)).await, (1, true, false));
    assert_eq!(at_once(seen(1, 800, 10)).await, (1, false, true));
}
