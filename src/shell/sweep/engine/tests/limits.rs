//! Sweeps of a server that answers from a list: what a batch adds to the outcome, and how the sweep ends.

use std::sync::Arc;
use std::time::Duration;

use bson::{Document, Uuid, doc};
use tokio::time::Instant;

use crate::base::progress::{Progress, Show};
use crate::base::stop::Stop;
use crate::base::watch;
use crate::core::facts::Topology;
use crate::core::plan::StopReason;
use crate::core::plan::index::IndexChoice;
use crate::core::plan::outcome::{End, Outcome};
use crate::core::policy::RunLimits;
use crate::shell::lock::lease::Leases;
use crate::shell::server::watch::Watches;
use crate::shell::server::wire::codes;
use crate::shell::server::wire::error::ServerError;
use crate::shell::sweep::{RuleSweep, RunBudget, RunContext};
use crate::testing::made_up::sweep;
use crate::testing::scripted::Script;
use crate::testing::scripted::ScriptedReply::{self, Batch, Error, Late, Reply};

/// Sweeps with these answers. `of_run` is the limit of the whole run.
async fn swept(
    answers: Vec<ScriptedReply>,
    of_run: Option<u64>,
    change: impl FnOnce(&mut RuleSweep),
) -> (Outcome, Vec<Document>) {
    let script = Script::new(answers);
    let mut sweep = sweep::sweep(&script, 100, &Leases::default(), None);
    // Documents are found by their `_id`s.
    sweep.rule.limits.max_deletes = Some(100);
    change(&mut sweep);
    let limits = RunLimits { max_deletes: of_run, ..RunLimits::default() };
    let budget = RunBudget::new(Instant::now(), limits, Leases::default());
    let progress = Progress::new(Show::Nothing, 1, None);
    let progress = progress.begin("app.c", None);
    let permit = budget.acquire().await;
    let (_signals, receiver) = watch::channel(None);
    let stop = Stop::by(receiver);
    let run = RunContext { budget: &budget, progress: &progress, stop: &stop, run_id: "run", watches: &Watches::none() };
    let outcome = crate::shell::sweep::sweep(Arc::new(sweep), run, permit).await;
    (outcome, script.sent())
}

fn found(ids: std::ops::RangeInclusive<i32>) -> ScriptedReply {
    Batch(ids.map(|id| doc! { "_id": id }).collect())
}

fn deleted(n: i32) -> ScriptedReply {
    Reply(doc! { "n": n, "ok": 1.0 })
}

/// Returns the numbers of the documents that the deletes name.
fn named(sent: &[Document]) -> Vec<usize> {
    let ids = |delete: &Document| {
        let query = delete.get_array("deletes").ok()?[0].as_document()?.get_document("q").ok()?;
        let by_id = query.get_array("$and").ok()?.iter().find_map(|part| part.as_document()?.get_document("_id").ok())?;
        Some(by_id.get_array("$in").ok()?.len())
    };
    sent.iter().filter_map(ids).collect()
}

#[tokio::test(start_paused = true)]
async fn a_limit_is_used_to_the_last_document_and_ends_the_sweep_only_where_more_are_left() {
    let partial = || End::Partial(StopReason::MaxDeletes);
    for (answers, deletes, total, end) in [
        (vec![found(1..=3), deleted(2)], vec![2], 2, partial()),
        (vec![found(1..=2), deleted(2), ScriptedReply::End], vec![2], 2, End::Complete),
        // One had changed: its place goes to the next.
        (vec![found(1..=4), deleted(1), deleted(1)], vec![2, 1], 2, partial()),
        (vec![found(1..=3), deleted(1), deleted(0), ScriptedReply::End], vec![2, 1], 1, End::Complete),
        (vec![ScriptedReply::End], vec![], 0, End::Complete),
    ] {
        for is_of_run in [false, true] {
            let answers = answers.iter().map(again).collect();
            let (outcome, sent) = swept(answers, is_of_run.then_some(2), |sweep| {
                sweep.rule.limits.max_deletes = Some(if is_of_run { 100 } else { 2 });
            })
            .await;
            assert_eq!((named(&sent), outcome.deleted, &outcome.end), (deletes.clone(), total, &end), "{is_of_run}");
            assert_eq!((outcome.batches as usize, outcome.uncertain, outcome.unconfirmed), (deletes.len(), false, 0));
        }
    }
}

fn again(reply: &ScriptedReply) -> ScriptedReply {
    match reply {
        Reply(reply) => Reply(reply.clone()),
        Late(time, reply) => Late(*time, reply.clone()),
        Batch(batch) => Batch(batch.clone()),
        ScriptedReply::End => ScriptedReply::End,
        Error(_) | ScriptedReply::Silence => panic!("answers that are used once"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_delete_without_an_answer_uses_up_what_it_may_have_deleted() {
    let lost = || Error(ServerError::timeout(Duration::from_secs(5)));
    // Two of the limit of three may be gone, of which one was counted.
    let (outcome, sent) = swept(vec![found(1..=5), lost(), deleted(1), deleted(1)], None, |sweep| {
        sweep.rule.limits.max_deletes = Some(3);
        sweep.rule.sizes.batch = 2;
    })
    .await;
    assert_eq!((named(&sent).iter().sum::<usize>(), outcome.deleted, outcome.uncertain), (5, 2, true));
    assert_eq!(outcome.end, End::Partial(StopReason::MaxDeletes));
}

#[tokio::test(start_paused = true)]
async fn a_delete_that_fails_ends_the_sweep_with_the_reason_and_what_became_of_the_collection() {
    let refused =
        || Reply(doc! { "n": 1, "ok": 1.0, "writeErrors": [{ "index": 0, "code": codes::BAD_VALUE, "errmsg": "bad value" }] });
    let listed = |byte: u8| {
        let info = doc! { "uuid": Uuid::from_bytes([byte; 16]) };
        [Batch(vec![doc! { "name": "c", "type": "collection", "info": info }]), ScriptedReply::End]
    };
    for (byte, is_gone, begins) in [(7, false, "bad value"), (8, true, "`app.c` was replaced by another collection")] {
        let answers = [found(1..=2), ScriptedReply::End, refused()].into_iter().chain(listed(byte)).collect();
        let (outcome, _) = swept(answers, None, |_| {}).await;
        let End::Failed(why) = &outcome.end else { panic!("{:?}", outcome.end) };
        assert!(why.starts_with(begins) && why.contains("bad value"), "{why}");
        assert_eq!((outcome.deleted, outcome.is_collection_gone), (1, is_gone));
    }
}

#[tokio::test(start_paused = true)]
async fn deletes_that_the_members_have_not_confirmed_are_told() {
    let unconfirmed = || {
        let error = doc! { "code": codes::WRITE_CONCERN_TIMEOUT, "codeName": "WriteConcernTimeout", "errmsg": "waiting" };
        Reply(doc! { "n": 2, "ok": 1.0, "writeConcernError": error })
    };
    let (outcome, _) = swept(vec![found(1..=2), ScriptedReply::End, unconfirmed()], None, |_| {}).await;
    assert_eq!((outcome.deleted, outcome.unconfirmed, outcome.batches), (2, 2, 1));
    assert!(matches!(&outcome.end, End::Failed(why) if why.starts_with("deleted on the primary")), "{:?}", outcome.end);
}

#[tokio::test(start_paused = true)]
async fn what_the_deletes_missed_on_shards_is_looked_for_and_swept_in_further_passes() {
    let pass = |ids, n: i32| [found(ids), ScriptedReply::End, deleted(n)];
    let (some, none) = (|| vec![found(3..=3), ScriptedReply::End], || vec![ScriptedReply::End]);
    let again = |n: i32, look: Vec<ScriptedReply>| pass(3..=3, n).into_iter().chain(look).collect::<Vec<_>>();
    let missed = || End::Partial(StopReason::Missed);
    let failed = || vec![Error(ServerError::reported(codes::MAX_TIME_MS_EXPIRED, "too long", ""))];
    // Without an index nothing is looked for where each delete has found what it was for.
    for (answers, total, deletes, end, seen_none) in [
        (vec![pass(1..=3, 3).into()], 3, 1, End::Complete, false),
        (vec![pass(1..=3, 2).into(), none()], 2, 1, End::Complete, true),
        (vec![pass(1..=3, 2).into(), some(), again(1, vec![])], 3, 2, End::Complete, false),
        (vec![pass(1..=3, 2).into(), some(), again(0, none())], 2, 2, End::Complete, true),
        (vec![pass(1..=3, 2).into(), some(), again(0, some()), again(0, some()), again(0, some())], 2, 4, missed(), false),
        // A document that was seen and not found is looked for again.
        (vec![pass(1..=3, 2).into(), some(), none(), none()], 2, 1, End::Complete, true),
        (vec![pass(1..=3, 2).into(), some(), none(), some(), none(), some(), none(), some()], 2, 1, missed(), false),
        // After a look that failed, the further passes are the look.
        (vec![pass(1..=3, 2).into(), failed(), none()], 2, 1, End::Complete, true),
        (vec![pass(1..=3, 2).into(), failed(), again(0, vec![]), none()], 2, 2, End::Complete, true),
    ] {
        let answers: Vec<ScriptedReply> = answers.into_iter().flatten().collect();
        let (outcome, sent) = swept(answers, None, |sweep| sweep.deployment.facts.topology = Topology::Sharded).await;
        assert_eq!(
            (outcome.deleted, named(&sent).len(), outcome.end, outcome.seen_none),
            (total, deletes, end, seen_none),
            "{sent:?}"
        );
    }
    let explained = || vec![Reply(doc! { "plan": { "stage": "IXSCAN" } })];
    let pass = |ids, n: i32| explained().into_iter().chain(pass(ids, n)).collect::<Vec<_>>();
    let empty = || explained().into_iter().chain(none()).collect::<Vec<_>>();
    for (answers, deletes, looks, end) in [
        (vec![pass(1..=3, 3), none()], 1, 1, End::Complete),
        (vec![pass(1..=3, 3), some(), pass(3..=3, 1), none()], 2, 2, End::Complete),
        // A look that took too long is not made a second time.
        (vec![pass(1..=3, 3), failed(), empty()], 1, 1, End::Complete),
        (vec![pass(1..=3, 3), failed(), pass(3..=3, 1), empty()], 2, 1, End::Complete),
        (vec![pass(1..=3, 3), failed(), pass(3..=3, 1), pass(3..=3, 1), pass(3..=3, 1)], 4, 1, missed()),
    ] {
        let answers: Vec<ScriptedReply> = answers.into_iter().flatten().collect();
        let (outcome, sent) = swept(answers, None, |sweep| {
            sweep.deployment.facts.topology = Topology::Sharded;
            sweep.rule.selection.index = Some(IndexChoice { name: "at_1".into(), oldest_first: true, bounded: true });
        })
        .await;
        assert_eq!((named(&sent).len(), outcome.seen_none), (deletes, end == End::Complete), "{sent:?}");
        assert_eq!(outcome.end, end);
        assert_eq!(sent.iter().filter(|sent| sent.contains_key("aggregate")).count(), looks, "{sent:?}");
    }
}
