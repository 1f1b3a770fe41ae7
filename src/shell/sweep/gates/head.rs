//! Holds a rule back while keys of deleted documents are in the way of a query for the oldest one.

use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use crate::core::pace::head::Took;
use crate::shell::server::watch::head;
use crate::shell::server::wire::error::ServerError;
use crate::shell::server::wire::retry::{Retries, retry};
use crate::shell::sweep::RuleSweep;

/// A gate that is open while the query takes no longer than allowed.
pub(crate) struct HeadGate {
    max: Duration,
    /// The last query, and its end.
    last: Option<(Took, Instant)>,
}

impl HeadGate {
    pub(crate) fn new(max: Duration) -> Self {
        Self { max, last: None }
    }

    /// Replaces the time that the query may take.
    pub(crate) fn set_max(&mut self, max: Duration) {
        self.max = max;
    }

    /// Returns the time that the query may take.
    pub(crate) fn max(&self) -> Duration {
        self.max
    }

    /// Whether the next query is due, before which nothing may be sent.
    pub(crate) fn is_due(&self) -> bool {
        self.until_next().is_zero()
    }

    /// Takes in a query that has just ended.
    pub(crate) fn looked(&mut self, took: Took) {
        self.last = Some((took, Instant::now()));
    }

    /// Returns the reason why the rule has to wait, and the time until the next query; `None` if it need not, or that query is
    /// due.
    pub(crate) fn too_long(&self) -> Option<(String, Duration)> {
        let (took, _) = self.last.filter(|_| !self.is_due())?;
        Some((took.too_long(self.max)?, self.until_next()))
    }

    fn until_next(&self) -> Duration {
        self.last.map_or(Duration::ZERO, |(took, ended)| took.until_next().saturating_sub(ended.elapsed()))
    }
}

/// Asks for the oldest document of a rule; `max` is the time that this may take by the policy.
///
/// Errors: the query failed for a reason that does not pass.
pub(crate) async fn look(sweep: &RuleSweep, max: Duration) -> Result<Took, String> {
    let namespace = &sweep.rule.namespace;
    let mut retries = Retries::patient();
    let next_wait = |cause: &ServerError| {
        let wait = retries.wait(cause)?;
        warn!(%namespace, "{namespace}: looking for the oldest document: {cause}; trying again in {} ms", wait.as_millis());
        Some(wait)
    };
    let found = retry(next_wait, || head::time_to_find(&sweep.deployment, &sweep.rule, max)).await;
    found.map_err(|cause| format!("looking for the oldest document, as `maxHeadMs` asks: {cause}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bson::{Document, doc};

    use super::*;
    use crate::base::progress::{Progress, Show};
    use crate::base::stop::Stop;
    use crate::base::watch;
    use crate::core::plan::StopReason;
    use crate::core::plan::outcome::{End, Outcome};
    use crate::core::plan::waits::Wait;
    use crate::core::policy::RunLimits;
    use crate::shell::lock::lease::Leases;
    use crate::shell::server::watch::Watches;
    use crate::shell::server::wire::codes;
    use crate::shell::sweep::{RunBudget, RunContext};
    use crate::testing::made_up::sweep;
    use crate::testing::scripted::Script;
    use crate::testing::scripted::ScriptedReply::{self, Batch, Error, Late, Reply};

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn found() -> ScriptedReply {
        Batch(vec![doc! { "at": 1 }])
    }

    fn too_slow() -> ScriptedReply {
        Error(ServerError::reported(codes::MAX_TIME_MS_EXPIRED, "operation exceeded time limit", ""))
    }

    fn failure(code: i32) -> ScriptedReply {
        Error(ServerError::reported(code, "trouble", ""))
    }

    /// Returns the `_id`s of documents that are found, in one batch.
    fn candidates(ids: std::ops::Range<i32>) -> ScriptedReply {
        Batch(ids.map(|id| doc! { "_id": id }).collect())
    }

    /// Sweeps one document after another, by a server that answers like this, until the end of the run.
    async fn sweep(answers: Vec<ScriptedReply>, end: Option<Duration>) -> (Outcome, Vec<Document>) {
        let script = Script::new(answers);
        let mut sweep = sweep::sweep(&script, 100, &Leases::default(), None);
        let limits = &mut sweep.rule.limits;
        (limits.max_deletes, limits.concurrency, limits.target_batch) = (Some(100), Some(1), MS(60_000));
        limits.max_head = Some(MS(20));
        (sweep.rule.sizes.batch, sweep.rule.head_index) = (1, Some("at_1".into()));
        let begun = Instant::now();
        let budget = RunBudget::new(begun, RunLimits::default(), Leases::default());
        let progress = Progress::new(Show::Nothing, 1, None);
        let progress = progress.begin("app.c", None);
        let permit = budget.acquire().await;
        let (_signals, receiver) = watch::channel(None);
        let stop = Stop::by(receiver).with_end(end.map(|end| begun + end));
        let run = RunContext { run_id: "r", budget: &budget, progress: &progress, stop: &stop, watches: &Watches::none() };
        let outcome = crate::shell::sweep::sweep(Arc::new(sweep), run, permit).await;
        (outcome, script.sent())
    }

    /// Returns the letter of each command: a query for the oldest document, a find of others, a delete.
    fn letters(sent: &[Document]) -> String {
        let letter = |command: &Document| match (command.contains_key("delete"), command.contains_key("sort")) {
            (true, _) => 'd',
            (false, true) => 'o',
            (false, false) => 'f',
        };
        sent.iter().map(letter).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn no_delete_goes_out_while_the_oldest_document_takes_too_long() {
        let answers = vec![too_slow(), too_slow(), found(), candidates(1..2), Reply(doc! { "n": 1 }), ScriptedReply::End];
        let (outcome, sent) = sweep(answers, None).await;
        assert_eq!((letters(&sent).as_str(), outcome.deleted, outcome.end), ("ooofd", 1, End::Complete));
        assert_eq!(outcome.paused[Wait::Head], MS(20_000));
        let query = doc! {
            "find": "c", "filter": {}, "sort": { "at": 1 }, "limit": 1_i64, "projection": { "_id": 0, "at": 1 }, "hint": "at_1", "maxTimeMS": 1000_i64,
            "collectionUUID": bson::Uuid::from_bytes([7; 16]), "comment": "sweeper test",
        };
        assert_eq!(sent[0], query);
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_query_comes_after_a_second_and_before_the_next_batch() {
        let deleted = |millis| Late(MS(millis), doc! { "n": 1 });
        let answers = vec![
            found(),
            candidates(1..5),
            deleted(400),
            deleted(599),
            deleted(2),
            too_slow(),
            found(),
            deleted(1),
            ScriptedReply::End,
        ];
        let (outcome, sent) = sweep(answers, None).await;
        assert_eq!((letters(&sent).as_str(), outcome.deleted, outcome.end), ("ofdddood", 4, End::Complete));
        assert_eq!(outcome.paused[Wait::Head], MS(10_000));
    }

    #[tokio::test(start_paused = true)]
    async fn a_sweep_that_waits_for_the_oldest_document_ends_by_its_other_limits() {
        let begun = Instant::now();
        let (outcome, sent) = sweep(vec![too_slow(), too_slow(), too_slow()], Some(MS(25_000))).await;
        assert_eq!((letters(&sent).as_str(), outcome.end), ("ooo", End::Partial(StopReason::MaxDuration)));
        assert_eq!(begun.elapsed(), MS(25_000));
        // A query without an answer is not waited for.
        let begun = Instant::now();
        let (outcome, sent) = sweep(vec![ScriptedReply::Silence], Some(MS(1500))).await;
        assert_eq!((letters(&sent).as_str(), outcome.end), ("o", End::Partial(StopReason::MaxDuration)));
        assert_eq!(begun.elapsed(), MS(1500));
    }

    #[tokio::test(start_paused = true)]
    async fn trouble_that_passes_is_tried_again_and_any_other_fails_the_rule() {
        let stepped_down = || failure(codes::PRIMARY_STEPPED_DOWN);
        let answers = vec![stepped_down(), stepped_down(), found(), candidates(1..2), Reply(doc! { "n": 1 }), ScriptedReply::End];
        let (outcome, sent) = sweep(answers, None).await;
        assert_eq!((letters(&sent).as_str(), outcome.deleted, outcome.end), ("ooofd", 1, End::Complete));
        for answers in [vec![failure(codes::UNAUTHORIZED)], (0..4).map(|_| stepped_down()).collect()] {
            let (times, begun) = (answers.len(), Instant::now());
            let (outcome, sent) = sweep(answers, None).await;
            let End::Failed(why) = outcome.end else { panic!("{:?}", outcome.end) };
            assert!(why.starts_with("looking for the oldest document, as `maxHeadMs` asks: trouble"), "{why}");
            // The last command looks what became of the collection.
            assert!(sent.last().unwrap().contains_key("listCollections"), "{sent:?}");
            assert_eq!((sent.len(), begun.elapsed() > MS(6000)), (times + 1, times > 1));
        }
    }
}
