//! Tests of limits that are replaced while a rule is swept, in virtual time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::gates::{MS, admitted, sweep};
use super::{sweep_of, with_engine};
use crate::core::pace::rate::RateLimit;
use crate::core::pace::{BatchTiming, pressure};
use crate::core::plan::outcome::End;
use crate::core::plan::waits::Wait;
use crate::core::plan::{StopReason, SweepRule};
use crate::core::policy::limits::Limits;
use crate::core::policy::reread::Pacing;
use crate::shell::server::watch::Watches;
use crate::shell::server::watch::lag::LagSource;
use crate::shell::sweep::RunBudget;
use crate::testing::made_up::{closed_window, planned, with_children};
use crate::testing::scripted::Script;

fn rule(keys: &str) -> SweepRule {
    planned(keys, 4).decision.countable().unwrap().clone()
}

/// Replaces the limits of the rule by those of another one.
fn replace(budget: &RunBudget, by: &SweepRule) {
    let rules = BTreeMap::from([(by.name.clone(), by.limits.clone())]);
    budget.set_pacing(&Pacing { rate: None, concurrency: None, rules }, None);
}

#[tokio::test(start_paused = true)]
async fn the_next_batch_has_the_size_and_the_company_that_limits_allow_from_now_on() {
    let sweep = sweep_of(&Script::new([]).deployment(), &rule(""), &Watches::none());
    with_engine(&sweep, async |engine| {
        let full = || BatchTiming { documents: 2000, latency: Some(MS(1)), overloaded_after: None };
        engine.pace.record(&BatchTiming { documents: 1000, ..full() });
        engine.pace.record(&full());
        assert_eq!((engine.room(true).size, engine.room(true).batches), (2000, 2));
        replace(engine.run.budget, &rule("    batchSize: 7\n    concurrency: 3\n"));
        assert_eq!(engine.room(true).size, 2000, "nothing changes within a step");
        let (_, room) = engine.admit(None).await.map_err(|_| "stopped").unwrap();
        assert_eq!((room.size, room.batches), (7, 3));
        replace(engine.run.budget, &rule(""));
        let (_, room) = engine.admit(None).await.map_err(|_| "stopped").unwrap();
        assert_eq!((room.size, room.batches), (7, 2));
        engine.pace.record(&BatchTiming { documents: 7, ..full() });
        assert_eq!(engine.room(true).size, 14, "it grows again");
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_a_range_along_the_storage_keeps_to_its_own_size() {
    let mut sweep = Arc::into_inner(sweep_of(&Script::new([]).deployment(), &rule(""), &Watches::none())).unwrap();
    let max = |sweep: &crate::shell::sweep::RuleSweep, keys: &str| sweep.max_batch(&rule(keys).limits);
    assert_eq!([max(&sweep, ""), max(&sweep, "    batchSize: 7\n")], [2000, 7]);
    sweep.is_along_storage = true;
    assert_eq!([max(&sweep, ""), max(&sweep, "    batchSize: 7\n")], [8000, 7]);
}

/// Returns the time for which a closed gate holds the rule back when its limits are replaced after three seconds.
async fn held_back(before: &str, after: &str, watches: Watches, close: impl Fn(&mut super::Engine<'_>)) -> (Duration, Wait) {
    let sweep = sweep_of(&Script::new([]).deployment(), &rule(before), &watches);
    let _unconfirmed = sweep.lag.unconfirmed();
    with_engine(&sweep, async |engine| {
        close(engine);
        let budget = engine.run.budget;
        let replaces = async {
            tokio::time::sleep(MS(3000)).await;
            replace(budget, &rule(after));
        };
        let ((time, paused), ()) = tokio::join!(admitted(engine), replaces);
        let wait = Wait::ALL.into_iter().find(|wait| !paused[*wait].is_zero()).unwrap();
        (time, wait)
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_gate_whose_limit_is_taken_away_opens_at_once() {
    let lag = || Watches { lag: LagSource::Majority("mongos".into()).into(), ..Watches::none() };
    let nothing = |_: &mut super::Engine<'_>| {};
    assert_eq!(held_back("    maxLag: 5s\n", "", lag(), nothing).await, (MS(3000), Wait::Lag));
    let charged = |engine: &mut super::Engine<'_>| {
        let mut limit = RateLimit::new(1);
        limit.take(60, Duration::ZERO);
        engine.gates.rate = Some(limit);
    };
    assert_eq!(held_back("    rate: 1\n", "", Watches::none(), charged).await, (MS(3000), Wait::Rate));
    // Another rate is waited for as long as the batch before is worth.
    assert_eq!(held_back("    rate: 1\n", "    rate: 2\n", Watches::none(), charged).await, (MS(60_000), Wait::Rate));
}

#[tokio::test(start_paused = true)]
async fn a_gate_whose_limit_is_new_closes_before_the_next_batch() {
    let watches = Watches { lag: LagSource::Majority("mongos".into()).into(), ..Watches::none() };
    let sweep = sweep_of(&Script::new([]).deployment(), &rule(""), &watches);
    with_engine(&sweep, async |engine| {
        let lag = engine.run.watches.lag.set(LagSource::Majority("mongos".into()));
        assert!(lag.is_ok());
        let _unconfirmed = sweep.lag.unconfirmed();
        assert!(engine.admit(None).await.is_ok());
        replace(engine.run.budget, &rule("    maxLag: 5s\n"));
        let stays_closed = tokio::time::timeout(MS(60_000), engine.admit(None)).await.is_err();
        assert!(stays_closed && engine.sweep.lag.is_bound());
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_window_that_closes_ends_the_sweep_and_one_that_opens_lets_it_go_on() {
    let open = rule("");
    let shut = rule(&closed_window());
    for (before, after, end) in
        [(&open, &shut, Some(StopReason::Window)), (&shut, &open, None), (&shut, &shut, Some(StopReason::Window))]
    {
        let sweep = sweep_of(&Script::new([]).deployment(), before, &Watches::none());
        let ended = with_engine(&sweep, async |engine| {
            replace(engine.run.budget, after);
            let waits = engine.wait(tokio::time::sleep(MS(10_000))).await;
            (waits.err(), engine.check_stop().err())
        });
        let end = end.map(End::Partial);
        assert_eq!(ended.await, (end.clone(), end));
    }
}

#[tokio::test(start_paused = true)]
async fn children_go_by_the_limits_of_their_rule() {
    let with_children = with_children();
    let sweep = sweep_of(&Script::new([]).deployment(), &with_children, &Watches::none());
    with_engine(&sweep.children[0], async |engine| {
        let limits = Limits { concurrency: Some(5), ..with_children.limits.clone() };
        replace(engine.run.budget, &SweepRule { limits, ..with_children.clone() });
        let (_, room) = engine.admit(None).await.map_err(|_| "stopped").unwrap();
        assert_eq!(room.batches, 5);
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn what_a_gate_knows_of_the_batches_stays() {
    with_engine(&Arc::new(sweep()), async |engine| {
        let (_sender, gate) = super::gates::watched(Some(20.0), super::gates::seen(1, 300, 90));
        engine.gates.pressure = gate;
        engine.gates.sent(5000);
        assert!(engine.gates.ask(engine.room(false)).is_err());
        let limits = |max_dirty| Limits { max_dirty, ..rule("").limits };
        engine.gates.set_limits(limits(Some(15.0)), 2000);
        assert!(engine.gates.ask(engine.room(false)).is_err());
        engine.gates.set_limits(limits(Some(pressure::UNWATCHED)), 2000);
        assert!(engine.gates.pressure.is_none() && engine.gates.ask(engine.room(false)).is_ok());
    })
    .await;
}
