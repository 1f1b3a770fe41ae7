//! Tests of the waits before a batch: their log lines, their time, and the looks that they ask for.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bson::doc;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};

use super::gates::{MS, admitted, seen, sweep, sweep_from, waited, watched};
use super::{sweep_of, with_engine};
use crate::base::values::raw::RawValue;
use crate::base::watch;
use crate::core::plan::waits::Wait;
use crate::shell::server::delete::restriction::Restriction;
use crate::shell::server::watch::Watches;
use crate::shell::server::watch::lag::LagSource;
use crate::shell::server::watch::load::LoadView;
use crate::shell::server::wire::codes;
use crate::shell::server::wire::error::ServerError;
use crate::shell::sweep::RuleSweep;
use crate::shell::sweep::batch::send::send;
use crate::shell::sweep::engine::Engine;
use crate::shell::sweep::gates::lag::LagGate;
use crate::shell::sweep::gates::pressure::PressureGate;
use crate::testing::made_up::planned;
use crate::testing::scripted::ScriptedReply::{self, Reply};
use crate::testing::scripted::{Script, cost};

#[tokio::test(start_paused = true)]
async fn a_rule_waits_for_its_request_units_before_a_batch_and_before_a_delete() {
    let mut rule = planned("", 4).decision.countable().unwrap().clone();
    rule.limits.max_request_units = Some(100);
    for is_found_first in [true, false] {
        let deleted = || Reply(doc! { "n": 1, "ok": 1.0 });
        let script = Script::new([deleted(), cost(250.0), deleted(), cost(1.0)]);
        let sweep = sweep_of(&script.billed(), &rule, &Watches::none());
        let batch = || Box::new(Restriction::one(RawValue::of(1).unwrap()));
        let sent = send(&sweep, batch(), None).await;
        assert_eq!((sent.result.deleted, sent.result.throttled), (1, MS(0)));
        // A command of two and a half seconds' units.
        if is_found_first {
            assert_eq!(with_engine(&sweep, admitted).await, (MS(2500), waited(Wait::Throttle, 2500)));
        }
        let sent = send(&sweep, batch(), None).await;
        let expected = if is_found_first { MS(0) } else { MS(2500) };
        assert_eq!((sent.result.deleted, sent.result.throttled, sent.latency), (1, expected, Some(MS(0))));
    }
}

/// The number of warnings that were logged.
#[derive(Clone, Default)]
struct Warnings(Arc<AtomicUsize>);

impl<S: tracing::Subscriber> Layer<S> for Warnings {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        self.0.fetch_add(usize::from(*event.metadata().level() == tracing::Level::WARN), Ordering::Relaxed);
    }
}

/// Waits until a batch may go, once the engine was changed, and returns the number of warnings.
async fn warnings_of(sweep: &Arc<RuleSweep>, set: impl FnOnce(&mut Engine<'_>), meanwhile: impl Future<Output = ()>) -> usize {
    let warnings = Warnings::default();
    let _logs = tracing::subscriber::set_default(tracing_subscriber::registry().with(warnings.clone()));
    // A thread without a subscriber may just have registered the same line of the log, which would then stay silent: between its
    // look at the subscribers and the entry in its list, tracing-core misses a new one.
    std::thread::sleep(MS(5));
    tracing::callsite::rebuild_interest_cache();
    tokio::join!(
        with_engine(sweep, async |engine| {
            set(engine);
            admitted(engine).await
        }),
        meanwhile
    );
    warnings.0.load(Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn a_wait_is_told_once_however_long_it_is() {
    let mut lagging = sweep();
    lagging.rule.limits.max_lag = Some(MS(5000));
    lagging.lag = LagGate::new(Some(MS(5000)), Some(&LagSource::Majority("mongos".into())));
    let lagging = Arc::new(lagging);
    let unconfirmed = lagging.lag.unconfirmed();
    let confirms = async {
        tokio::time::sleep(MS(7000)).await;
        drop(unconfirmed);
    };
    assert_eq!(warnings_of(&lagging, |_| {}, confirms).await, 1);
    // The oldest document takes too long, and too long once more.
    let too_slow =
        || ScriptedReply::Error(ServerError::reported(codes::MAX_TIME_MS_EXPIRED, "operation exceeded time limit", ""));
    let script = Script::new([too_slow(), too_slow(), ScriptedReply::Batch(vec![doc! { "at": 1 }])]);
    let mut slow = sweep_from(&script);
    (slow.rule.limits.max_head, slow.rule.head_index) = (Some(MS(20)), Some("at_1".into()));
    assert_eq!(warnings_of(&Arc::new(slow), |_| {}, async {}).await, 1);
    let pressed = Arc::new(sweep());
    for (better_after, told) in [(25_000, 1), (9000, 0)] {
        let (sender, gate) = watched(Some(20.0), seen(1, 300, 250));
        let gets_better = async {
            tokio::time::sleep(MS(better_after)).await;
            sender.send_replace(seen(2, 300, 10));
        };
        // A short wait is none to be told of.
        assert_eq!(warnings_of(&pressed, |engine| engine.gates.pressure = gate, gets_better).await, told, "{better_after}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_is_asked_for_as_soon_as_the_deletes_since_the_last_one_may_have_used_up_the_room() {
    let (sender, receiver) = watch::channel(seen(1, 300, 90));
    let view = LoadView::new(receiver);
    let is_asked = || async { tokio::time::timeout(MS(1), view.asked()).await.is_ok() };
    with_engine(&Arc::new(sweep()), async |engine| {
        engine.gates.pressure = Some(PressureGate::on(Some(20.0), view.clone()));
        assert!(engine.gates.ask(engine.room(false)).is_ok() && !is_asked().await);
        engine.gates.sent(5000);
        assert!(engine.gates.ask(engine.room(false)).is_err() && is_asked().await);
        sender.send_replace(seen(2, 300, 250));
        assert!(engine.gates.ask(engine.room(false)).is_err() && is_asked().await);
    })
    .await;
}
