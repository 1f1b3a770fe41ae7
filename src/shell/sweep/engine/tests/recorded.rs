//! Tests of the record of a finished batch, and of how it ends the sweep.

use std::time::Duration;

use tokio::task::JoinError;
use tokio::time::Instant;

use super::super::*;
use super::{sweep_of, with_engine};
use crate::core::plan::SweepRule;
use crate::core::plan::outcome::Archived;
use crate::core::plan::waits::Wait;
use crate::shell::server::watch::Watches;
use crate::shell::server::watch::lag::LagSource;
use crate::testing::made_up::{planned, with_children};
use crate::testing::scripted::Script;

/// Returns a batch of which both documents were deleted.
fn whole() -> Sent {
    let result = BatchResult { deleted: 2, ..BatchResult::default() };
    Sent { is_sent: true, is_cut_short: false, out_of_lease: false, latency: None, result }
}

fn finished(sent: Sent) -> FinishedBatch {
    FinishedBatch { asked: 2, paused_before: Duration::ZERO, archived: Archived::default(), sent }
}

fn recorded(sent: Sent) -> Result<FinishedBatch, JoinError> {
    Ok(finished(sent))
}

fn rule() -> SweepRule {
    planned("", 4).decision.countable().unwrap().clone()
}

fn sweep() -> Arc<RuleSweep> {
    sweep_of(&Script::new([]).deployment(), &rule(), &Watches::none())
}

#[tokio::test]
async fn a_batch_is_settled_only_if_all_of_it_was_sent_and_answered() {
    type Change = fn(&mut Sent);
    let cases: [(Change, bool); 5] = [
        (|_| {}, true),
        (|sent| sent.is_sent = false, false),
        (|sent| sent.is_cut_short = true, false),
        (|sent| sent.result.uncertain = true, false),
        (|sent| sent.result.error = Some(DeleteError::fatal("bad value")), false),
    ];
    for (number, (change, is_settled)) in cases.into_iter().enumerate() {
        let mut sent = whole();
        change(&mut sent);
        let sweep = sweep();
        let found = with_engine(&sweep, async |engine| {
            let _ = engine.record(recorded(sent));
            engine.is_settled
        });
        assert_eq!(found.await, is_settled, "case {number}");
    }
}

#[tokio::test]
async fn the_sweep_ends_with_a_lease_that_is_lost_or_an_error_that_stays_and_not_with_what_its_own_end_cuts_short() {
    let error = || DeleteError::fatal("bad value");
    let given_up = || DeleteError { given_up: true, ..error() };
    let cut = || DeleteError { confirmation_cut: true, ..error() };
    let timed_out = || DeleteError { confirmation_timed_out: true, ..error() };
    let lost = || Err(End::Partial(StopReason::LockLost));
    let failed = || Err(End::Failed("bad value".to_owned()));
    // Whether it was sent, was cut short or lost its lease, its error, whether the rule has `maxLag`; the end, and whether a part
    // was given up.
    for (is_sent, is_cut_short, out_of_lease, error, has_lag, end, gave_up) in [
        (true, false, false, None, false, Ok(()), false),
        (true, true, false, None, false, Ok(()), true),
        (true, false, false, Some(error()), true, failed(), false),
        (true, false, false, Some(given_up()), false, Ok(()), true),
        (true, false, false, Some(cut()), false, Ok(()), false),
        (true, false, false, Some(timed_out()), false, failed(), false),
        (true, false, false, Some(timed_out()), true, Ok(()), false),
        (true, false, true, Some(given_up()), false, lost(), true),
        (true, false, true, None, false, lost(), false),
        (false, true, false, None, false, Ok(()), true),
        (false, false, true, None, false, lost(), false),
        (false, false, true, Some(error()), false, lost(), false),
        (false, false, false, Some(error()), false, failed(), false),
    ] {
        let context = format!("{is_sent} {is_cut_short} {out_of_lease} {error:?} {has_lag}");
        let mut rule = rule();
        rule.limits.max_lag = has_lag.then_some(Duration::from_secs(5));
        let watches = Watches { lag: LagSource::Majority("mongos".into()).into(), ..Watches::none() };
        let sweep = sweep_of(&Script::new([]).deployment(), &rule, &watches);
        let result = BatchResult { error, ..whole().result };
        let sent = Sent { is_sent, is_cut_short, out_of_lease, result, ..whole() };
        let found = with_engine(&sweep, async |engine| {
            let end = engine.record(recorded(sent));
            let gave_up = engine.gave_up;
            // What was given up stays so.
            engine.record(recorded(whole())).map_err(|_| "a whole batch ended the sweep").unwrap();
            (end, gave_up, engine.gave_up, engine.outcome().deleted)
        });
        let deleted = if is_sent { 4 } else { 2 };
        assert_eq!(found.await, (end, gave_up, gave_up, deleted), "{context}");
    }
}

#[tokio::test(start_paused = true)]
async fn documents_are_shown_as_deleted_unless_they_are_children_and_what_held_back_is_counted() {
    let family = sweep_of(&Script::new([]).deployment(), &with_children(), &Watches::none());
    for (sweep, shown) in [(&family, 2), (&family.children[0], 0)] {
        with_engine(sweep, async |engine| {
            let mut sent = whole();
            sent.result.throttled = Duration::from_millis(300);
            sent.latency = Some(Duration::from_secs(2));
            engine.record(recorded(sent)).map_err(|_| "a whole batch ended the sweep").unwrap();
            assert_eq!(engine.outcome().paused[Wait::Throttle], Duration::from_millis(300));
            // Two documents took ten times as long as a batch may: the server is left in peace.
            assert_eq!(engine.gates.rests_until - Instant::now(), engine.pace.rest());
            assert!(!engine.pace.rest().is_zero());
            assert_eq!(engine.run.progress.shown(), shown);
        })
        .await;
    }
}

#[tokio::test]
async fn batches_in_flight_at_the_end_are_waited_for_and_counted_and_the_first_failure_is_the_one_that_is_told() {
    let failure = |why: &str| Sent { result: BatchResult { error: Some(DeleteError::fatal(why)), ..whole().result }, ..whole() };
    let failed = |why: &str| End::Failed(why.to_owned());
    for (before, last, end) in [
        (End::Complete, whole(), End::Complete),
        (End::Partial(StopReason::MaxDeletes), whole(), End::Partial(StopReason::MaxDeletes)),
        (End::Partial(StopReason::MaxDeletes), failure("later"), failed("later")),
        (failed("first"), failure("later"), failed("first")),
    ] {
        let sweep = sweep();
        with_engine(&sweep, async |engine| {
            engine.outcome().end = before;
            let sent_again = sweep.clone();
            engine.in_flight.spawn(async move {
                // Nothing is sent again.
                sent_again.ended().await;
                finished(last)
            });
            engine.wait_for_last().await;
            let outcome = engine.outcome();
            assert_eq!((outcome.deleted, &outcome.end), (2, &end));
        })
        .await;
    }
}

#[tokio::test]
async fn a_fixed_latency_is_told_only_if_nothing_else_held_the_sweep_back() {
    with_engine(&sweep(), async |engine| {
        let mut paused = Waited::default();
        assert_eq!(engine.decisive_fixed_latency(&paused), None);
        for _ in 0..60 {
            let documents = engine.pace.batch_size();
            let latency = Some(Duration::from_millis(400) + Duration::from_micros(5) * documents);
            engine.pace.record(&BatchTiming { documents: documents.into(), latency, overloaded_after: None });
        }
        let told = engine.decisive_fixed_latency(&paused).expect("the fixed latency decides");
        assert_eq!((told.batch_size, told.concurrency), (2000, engine.concurrency));
        for wait in Wait::ALL {
            paused[wait] = Duration::from_millis(1);
            // The rests for the latency itself do not count.
            assert_eq!(engine.decisive_fixed_latency(&paused).is_some(), wait == Wait::Latency, "{wait:?}");
            paused[wait] = Duration::ZERO;
        }
    })
    .await;
}

/// What the rule and its batches have waited for the pause file at the same time counts once.
#[tokio::test(start_paused = true)]
async fn time_for_which_the_pause_file_was_there_counts_once() {
    let sweep = sweep_of(&Script::new([]).deployment(), &planned("", 4).decision.countable().unwrap().clone(), &Watches::none());
    let seconds = Duration::from_secs;
    let counted = with_engine(&sweep, async |engine| {
        let mut counted = Vec::new();
        for (waited, paused_before, paused) in [(0, 0, 4), (10, 4, 5), (10, 4, 9)] {
            engine.outcome().paused[Wait::PauseFile] += seconds(waited);
            let result = BatchResult { paused: seconds(paused), ..BatchResult::default() };
            let finished = FinishedBatch { paused_before: seconds(paused_before), ..finished(Sent { result, ..whole() }) };
            assert!(engine.record(Ok(finished)).is_ok());
            counted.push(engine.outcome().paused[Wait::PauseFile].as_secs());
        }
        counted
    });
    // The second batch waited while the rule did; the third as well, and the rule for longer.
    assert_eq!(counted.await, [4, 14, 24]);
}
