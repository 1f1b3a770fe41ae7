//! Sweeps the rules of a plan side by side: each has its turns, within the limits of the run.

use std::cell::RefCell;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use futures_util::future::join_all;

use super::Run;
use super::archive::Archives;
use super::events;
use super::measure::{LONGEST_COUNT, not_begun, note_unseen_field};
use crate::instant::millis;
use crate::plan::{Decision, Plan, SweepRule};
use crate::progress::{LINE_EVERY, Progress, Show};
use crate::report::{PausedMs, RuleReport, Status};
use crate::server::grant::DeleteGrant;
use crate::server::lag::LagSource;
use crate::server::meter::Charges;
use crate::server::{Deployment, count, exact};
use crate::sweep::{self, Archived, End, Job, Limits, Outcome, RunBudget, StopReason};
use crate::text::plural;

/// What all rules of one sweep share.
struct Sweeping<'a> {
    run: &'a Run,
    deployment: &'a Deployment,
    grant: Arc<DeleteGrant>,
    budget: RunBudget,
    lag: LagSource,
    progress: Progress,
    /// Why no server is left, once one rule has found out: otherwise each further rule would wait for it anew.
    gone: RefCell<Option<String>>,
    archives: Archives,
}

/// Sweeps every rule that is ready, and enters into its report what became of it.
pub async fn sweep(
    run: &Run,
    deployment: &Deployment,
    grant: DeleteGrant,
    mut limits: Limits,
    show: Show,
    plan: &Plan,
    reports: &mut [RuleReport],
) {
    let mut ready: Vec<_> = plan
        .rules
        .iter()
        .zip(reports)
        .filter_map(|(planned, report)| match &planned.decision {
            Decision::Sweep(rule) if report.status == Status::Complete => Some((rule, report)),
            _ => None,
        })
        .collect();
    let most = ready.iter().map(|(rule, _)| rule.limits.concurrency.unwrap_or(deployment.facts.capabilities.concurrency)).max();
    limits.concurrency = limits.concurrency.or(most);
    let lag = if ready.iter().any(|(rule, _)| rule.limits.max_lag.is_some()) {
        tokio::select! {
            lag = LagSource::open(deployment) => lag,
            // Each rule finds out by itself that it is to stop.
            () = run.stop.asked() => LagSource::NoSecondary,
        }
    } else {
        LagSource::NoSecondary
    };
    let expected = ready.iter().map(|(_, report)| report.expired_count).sum();
    let sweeping = Sweeping {
        run,
        deployment,
        grant: Arc::new(grant),
        budget: RunBudget::new(run.begun, &limits),
        lag,
        progress: Progress::new(show, ready.len(), expected),
        gone: RefCell::new(None),
        archives: Archives::new(run, ready.iter().map(|(rule, _)| *rule)),
    };
    let rules = join_all(ready.iter_mut().map(async |(rule, report)| {
        sweeping.one(rule, report).await;
        events::rule_ended(report);
    }));
    let lines = async {
        loop {
            tokio::time::sleep(LINE_EVERY).await;
            sweeping.progress.line();
        }
    };
    tokio::select! {
        _ = rules => {}
        () = lines => {}
    }
    sweeping.progress.end();
    sweeping.archives.end(&mut ready);
}

impl Sweeping<'_> {
    async fn one(&self, rule: &SweepRule, report: &mut RuleReport) {
        let Run { stop, .. } = self.run;
        let turn = tokio::select! {
            turn = self.budget.turn() => turn,
            reason = sweep::stopped(rule, &self.budget, stop) => return self.end_early(report, rule, reason),
        };
        if let Some(why) = self.gone.borrow().as_ref() {
            return not_begun(report, why);
        }
        let begun = Instant::now();
        let mut expected = report.expired_count;
        if expected.is_none() && self.progress.shows_bars() && sweep::stop_reason(rule, &self.budget, stop).is_none() {
            expected = count::expired_within(self.deployment, rule, LONGEST_COUNT).await;
        }
        events::rule_begins(report);
        let progress = &self.progress.begin(&report.namespace, expected);
        let Self { deployment, grant, budget, lag, .. } = self;
        let charges = &Charges::default();
        let archive = self.archives.of(rule);
        let archive = archive.as_ref();
        let job = Job { deployment, rule, grant, charges, budget, lag, archive, progress, stop };
        let outcome = sweep::sweep(&job, turn).await;
        if matches!(outcome.end, End::Failed(_)) && !stop.is_asked() && self.gone.borrow().is_none() {
            let gone = deployment.unreachable().await;
            self.gone.replace(gone);
        }
        if let (LagSource::Majority(why), true) = (lag, rule.limits.max_lag.is_some()) {
            report.warnings.push(format!("`maxLag`: {why}; a majority had to confirm each batch in that time instead"));
        }
        enter_archived(report, &outcome, archive.map(|archive| archive.archive.path()));
        self.enter(report, rule, outcome);
        self.count_kept(rule, report).await;
        self.warn_if_field_unseen(rule, report).await;
        report.duration_ms += millis(begun.elapsed());
    }

    /// Counts what the rule leaves alone for ever. After the sweep: what has expired is then out of the way, and nobody waits.
    async fn count_kept(&self, rule: &SweepRule, report: &mut RuleReport) {
        let is_over = report.status == Status::Complete || report.reason.as_deref() == Some(StopReason::MaxDeletes.word());
        if report.never_expires.is_some() || !is_over {
            return;
        }
        tokio::select! {
            // A question that cannot be answered is not worth an error: the sweep is over.
            kept = count::never_expires(self.deployment, rule) => report.never_expires = kept.unwrap_or(None),
            _ = sweep::stopped(rule, &self.budget, &self.run.stop) => {}
        }
    }

    /// A rule that deletes nothing may name a field that does not exist.
    async fn warn_if_field_unseen(&self, rule: &SweepRule, report: &mut RuleReport) {
        let has_documents = report.document_count.is_some_and(|count| count > 0);
        let idle = report.status == Status::Complete && report.deleted_count == 0 && has_documents;
        if idle && report.expired_count.is_none() {
            // The sweep is over; a question that cannot be answered is not worth an error.
            if let Ok(seen) = count::has_field(self.deployment, rule).await {
                note_unseen_field(report, rule, seen);
            }
        }
    }

    /// Enters what a sweep came to.
    fn enter(&self, report: &mut RuleReport, rule: &SweepRule, outcome: Outcome) {
        let paused = outcome.paused;
        report.deleted_count = outcome.deleted;
        report.batches = outcome.batches;
        report.uncertain = outcome.uncertain;
        report.paused_ms = Some(PausedMs {
            lag: millis(paused.lag),
            latency: millis(paused.latency),
            rate: millis(paused.rate),
            throttle: millis(paused.throttle),
        });
        report.request_units = outcome.request_units;
        if outcome.unconfirmed > 0 {
            report.warnings.push(format!(
                "{} deleted on the primary, but not confirmed by the members in time: a fail-over may bring them back",
                plural(outcome.unconfirmed, "document")
            ));
        }
        match outcome.end {
            End::Complete => {}
            End::Partial(reason) => self.end_early(report, rule, reason),
            End::Failed(why) => {
                report.status = Status::Failed;
                let least = if outcome.uncertain { "at least " } else { "" };
                report.error = Some(format!("deleting: {why}; {least}{} documents were deleted before", outcome.deleted));
            }
        }
    }

    fn end_early(&self, report: &mut RuleReport, rule: &SweepRule, reason: StopReason) {
        report.reason = Some(reason.word().to_owned());
        if reason == StopReason::LockLost {
            report.status = Status::Failed;
            let why = self.budget.leases().why_over(&rule.namespace);
            let least = if report.uncertain { "at least " } else { "" };
            report.error = Some(format!("{why}; {least}{} deleted before", plural(report.deleted_count, "document")));
            return;
        }
        report.status = Status::Partial;
        if let (StopReason::Window, Some(window)) = (reason, &rule.limits.window) {
            report.warnings.push(format!("deletes only from {window}"));
        }
    }
}

/// Enters what was archived, `to` being the directory of the run.
fn enter_archived(report: &mut RuleReport, outcome: &Outcome, to: Option<&Path>) {
    let Archived { documents, incomparable } = outcome.archived;
    let Some(to) = to else { return };
    report.archived_count = Some(documents);
    report.archive = (documents > 0).then(|| to.display().to_string());
    let left = documents.saturating_sub(outcome.deleted);
    if left > 0 && !outcome.uncertain {
        report.warnings.push(format!(
            "{} archived and not deleted: changed, or gone, between the two; what is still expired is for the next run",
            plural(left, "document")
        ));
    }
    if incomparable > 0 {
        report.warnings.push(format!(
            "{} kept, and not archived: a delete cannot compare documents of more than about 15 MB, of more than {} levels, or with a name twice",
            plural(incomparable, "document"),
            exact::DEEPEST
        ));
    }
}
