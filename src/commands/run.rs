//! Sweeps the rules of a plan concurrently, within the limits of the run. The rules take turns between batches.

pub(super) mod archiving;
pub(super) mod cut_short;
pub(super) mod events;
pub(super) mod leases;
pub(super) mod listen;
pub(super) mod locks;
pub(super) mod record;
mod steer;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use tokio::time::Instant;

use super::session::Session;
use super::survey::MAX_COUNT_TIME;
use crate::base::instant::millis;
use crate::base::progress::{LINE_EVERY, Progress};
use crate::base::text::plural;
use crate::core::pace::pressure::UNWATCHED;
use crate::core::plan::findings::{Findings, ReadKeys, Remaining};
use crate::core::plan::holds::HeldBack;
use crate::core::plan::outcome::{End, HeldDocuments, Outcome, RuleOutcome, Stopped, Swept};
use crate::core::plan::periods::KeptKeys;
use crate::core::plan::verdict::Verdict;
use crate::core::plan::{Plan, PlannedRule, StopReason, SweepRule};
use crate::core::policy::RunLimits;
use crate::core::report::RuleReport;
use crate::shell::lock::lease::Leases;
use crate::shell::server::Deployment;
use crate::shell::server::delete::document_match;
use crate::shell::server::delete::grant::DeleteGrant;
use crate::shell::server::look::count;
use crate::shell::server::watch::Watches;
use crate::shell::server::watch::holds::ReadHolds;
use crate::shell::server::watch::lag::LagSource;
use crate::shell::server::watch::load;
use crate::shell::server::watch::load::LoadSource;
use crate::shell::sweep::{self, Permit, RuleSweep, RunBudget, RunContext};
use archiving::Archives;

/// State that all rules of one sweep share.
struct Sweeping<'a> {
    session: &'a Session,
    deployment: &'a Deployment,
    grant: Arc<DeleteGrant>,
    budget: RunBudget,
    watches: Watches,
    progress: Progress,
    /// Set when a rule finds the deployment unreachable, so that later rules fail at once instead of waiting for server selection
    /// again.
    gone: RefCell<Option<String>>,
    archives: Archives,
}

/// Sweeps every rule that is ready; `held` are the holds that were read before. Returns the outcomes in the order of the plan.
pub(super) async fn sweep(
    session: &Session,
    deployment: &Deployment,
    grant: DeleteGrant,
    mut limits: RunLimits,
    leases: Leases,
    (plan, findings): (&Plan, &[Findings]),
    held: Vec<(HeldBack, ReadHolds)>,
) -> Vec<RuleOutcome> {
    let mut outcomes: Vec<_> = plan.rules.iter().map(|_| RuleOutcome::NotSwept { window_closed: false }).collect();
    let ready: Vec<_> = ready(plan, findings).collect();
    let of_rules = ready.iter().map(|ready| (ready.rule, &ready.rule.limits));
    limits.concurrency = limits.concurrency.or(steer::largest_concurrency(deployment, of_rules));
    let limited = ready.iter().filter(|ready| !ready.findings.goes_by.nothing_expired).map(|ready| &ready.rule.limits);
    let watches = Watches::new(deployment, &session.pause, held);
    tokio::select! {
        biased;
        () = watches.begin(deployment, limited) => {}
        // Each rule sees the request to stop by itself.
        () = session.stop.asked() => {}
    }
    let expected = ready.iter().map(Ready::expired_count).sum();
    session.so_far.begin(ready.iter().map(|rule| rule.index));
    let sweeping = Sweeping {
        session,
        deployment,
        grant: Arc::new(grant),
        budget: RunBudget::new(session.begun, limits, leases),
        watches,
        progress: Progress::new(session.show(), ready.len(), expected).seen_in(&session.last_sample),
        gone: RefCell::new(None),
        archives: Archives::new(session, ready.iter().map(|rule| rule.rule)),
    };
    let rules = join_all(ready.iter().map(async |rule| {
        let outcome = sweeping.one(rule).await;
        let report = RuleReport::of(rule.planned, rule.findings, &outcome, &Remaining::Unknown);
        events::rule_ended(&report.billed(deployment.units_spent_on(&rule.rule.name, &rule.rule.namespace)));
        session.so_far.ended(rule.index, outcome.clone());
        (rule.index, outcome)
    }));
    let lines = async {
        loop {
            tokio::time::sleep(LINE_EVERY).await;
            sweeping.progress.line();
        }
    };
    let ended = tokio::select! {
        biased;
        // First, so that no rule begins under limits that were replaced before.
        () = steer::follow(&sweeping, &ready) => Vec::new(),
        ended = rules => ended,
        () = lines => Vec::new(),
    };
    for (index, outcome) in ended {
        outcomes[index] = outcome;
    }
    let swept: Vec<_> = ready.iter().map(|ready| (ready.index, ready.rule)).collect();
    sweeping.archives.end(&swept, &mut outcomes).await;
    outcomes
}

/// A rule that is ready to be swept: neither the plan nor the findings speak against it.
struct Ready<'a> {
    /// Place of the rule in the plan.
    index: usize,
    planned: &'a PlannedRule,
    rule: &'a SweepRule,
    findings: &'a Findings,
}

impl Ready<'_> {
    fn expired_count(&self) -> Option<u64> {
        self.findings.decides.expired.as_ref().filter(|expired| expired.is_complete).map(|expired| expired.count)
    }
}

fn ready<'a>(plan: &'a Plan, findings: &'a [Findings]) -> impl Iterator<Item = Ready<'a>> {
    let with_rule = |(index, (planned, findings))| Some(Ready { index, planned, rule: ready_rule(planned, findings)?, findings });
    plan.rules.iter().zip(findings).enumerate().filter_map(with_rule)
}

/// Returns the rule of a namespace that a sweep may delete by; `None` if the plan or the findings speak against it.
pub(super) fn ready_rule<'a>(planned: &'a PlannedRule, findings: &Findings) -> Option<&'a SweepRule> {
    planned.decision.swept().filter(|_| Verdict::before(planned, &findings.decides).is_none())
}

impl Sweeping<'_> {
    async fn one(&self, ready: &Ready<'_>) -> RuleOutcome {
        let rule = ready.rule;
        let stop = &self.session.stop;
        let permit = tokio::select! {
            biased;
            reason = sweep::stopped(rule, &self.budget, stop) => {
                return RuleOutcome::NotBegun(Stopped { reason, lease_lost: self.lease_lost(rule, reason) });
            }
            permit = self.budget.acquire() => permit,
        };
        if let Some(why) = self.gone.borrow().as_ref() {
            return RuleOutcome::Unreachable(why.clone());
        }
        // Apart, so that the rules that wait for their turn do not take the memory of one that is swept.
        Box::pin(self.sweep(ready, permit)).await
    }

    /// Sweeps a rule whose turn it is.
    async fn sweep(&self, ready: &Ready<'_>, permit: Permit) -> RuleOutcome {
        let (rule, stop) = (ready.rule, &self.session.stop);
        let begun = Instant::now();
        let mut expected = ready.expired_count();
        if expected.is_none() && self.progress.shows_bars() && sweep::stop_reason(rule, &self.budget, stop).is_none() {
            let deployment = self.deployment.of_rule(rule);
            expected = self.unless_stopped(rule, count::expired_within(&deployment, rule, MAX_COUNT_TIME)).await.flatten();
        }
        events::rule_begins(rule, ready.expired_count());
        let progress = &self.progress.begin(&rule.namespace.to_string(), expected);
        let Self { deployment, grant, budget, watches, .. } = self;
        let archive = self.archives.of(rule);
        let holds = rule.selection.holds.as_ref().map(|holds| watches.holds.of(holds));
        let goes_by = &ready.findings.goes_by;
        let rule_sweep = Arc::new(RuleSweep::new(deployment, rule, goes_by, grant, watches, budget.leases(), archive));
        let shows_storage = deployment.facts.capabilities.record_order && !goes_by.nothing_expired;
        let written_before = if shows_storage && rule_sweep.is_large() { self.written(rule).await } else { None };
        self.session.so_far.runs(ready.index, rule_sweep.clone());
        let run = RunContext { run_id: &self.session.id, budget, progress, stop, watches };
        let directory = rule_sweep.archive_directory();
        let outcome = sweep::sweep(rule_sweep, run, permit).await;
        if matches!(outcome.end, End::Failed(_)) && self.gone.borrow().is_none() {
            let gone = self.unless_stopped(rule, deployment.unreachable()).await.flatten();
            self.gone.replace(gone);
        }
        let written_after = if written_before.is_some() { self.written(rule).await } else { None };
        let lease_lost = match outcome.end {
            End::Partial(reason) => self.lease_lost(rule, reason),
            End::Complete | End::Failed(_) => None,
        };
        RuleOutcome::Swept(Box::new(Swept {
            lease_lost,
            archive: directory,
            never_expires: self.never_expires(ready, &outcome).await,
            held: self.held(ready, holds.and_then(|holds| holds.last()), &outcome).await,
            written_bytes: written_after.zip(written_before).and_then(|(after, before)| after.checked_sub(before)),
            pressure_unknown: self.pressure_unknown(rule),
            warnings: self.warnings(rule, &outcome),
            outcome,
            duration_ms: millis(begun.elapsed()),
        }))
    }

    /// Counts the documents that never expire by the rule. After the sweep the expired documents are out of the way, and no
    /// delete waits for the count.
    async fn never_expires(&self, ready: &Ready<'_>, outcome: &Outcome) -> Option<BTreeMap<String, u64>> {
        // A service that bills the count of a whole collection is asked for it only in a dry run and an audit.
        let is_billed = self.deployment.facts.capabilities.request_charge;
        if ready.findings.told.never_expires.is_some() || !outcome.end.is_over() || is_billed {
            return None;
        }
        let deployment = self.deployment.of_rule(ready.rule);
        // The sweep is over: a count that fails is not worth an error.
        self.unless_stopped(ready.rule, count::never_expires(&deployment, ready.rule)).await?.ok()?
    }

    /// Counts the documents that holds keep, if they were not counted before. After the sweep the others are out of the way.
    async fn held(&self, ready: &Ready<'_>, keys: Option<Arc<KeptKeys>>, outcome: &Outcome) -> Option<HeldDocuments> {
        let keys = keys.filter(|_| outcome.end.is_over() && ready.findings.told.held.is_none())?;
        let deployment = self.deployment.of_rule(ready.rule);
        let keys = ReadKeys { holds: Some(keys), ..ready.findings.goes_by.keys.clone() };
        let rule = ready.rule.with_keys(&keys);
        self.unless_stopped(ready.rule, count::held(&deployment, &rule)).await?.ok()?
    }

    /// Returns the bytes that the server has written from its cache so far; `None` if it does not tell.
    async fn written(&self, rule: &SweepRule) -> Option<u64> {
        let figures = self.unless_stopped(rule, load::figures(self.deployment)).await??;
        figures.written
    }

    /// Returns the result of a question about a rule; `None` if the rule may not go on meanwhile.
    async fn unless_stopped<T>(&self, rule: &SweepRule, asked: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            answer = asked => Some(answer),
            _ = sweep::stopped(rule, &self.budget, &self.session.stop) => None,
        }
    }

    /// Returns the figures of the server's load that were unknown; `None` if none was, or the rule does not go by them.
    fn pressure_unknown(&self, rule: &SweepRule) -> Option<String> {
        let max_dirty = self.budget.limits_of(rule).max_dirty;
        self.watches.load.get()?.unknown().filter(|_| max_dirty != Some(UNWATCHED))
    }

    fn warnings(&self, rule: &SweepRule, outcome: &Outcome) -> Vec<String> {
        let limits = self.budget.limits_of(rule);
        let lag = match (self.watches.lag.get(), limits.max_lag) {
            (Some(LagSource::Majority(why)), Some(_)) => Some(format!(
                "`maxLag`: the lag is unknown: {why}; instead a majority had to confirm each batch within that time"
            )),
            _ => None,
        };
        let load = match (self.watches.load.get(), limits.max_dirty) {
            (Some(LoadSource::Unknown(Some(why))), Some(max)) if max != UNWATCHED => Some(format!(
                "`maxDirty` had no effect, and the sweep paced itself by how long its deletes took: unknown figures of the server's \
                 load: {why}"
            )),
            _ => None,
        };
        let of_children = outcome.children.iter().flat_map(|children| &children.collections);
        let incomparable = outcome.archived.incomparable + of_children.map(|child| child.archived.incomparable).sum::<u64>();
        let incomparable = (incomparable > 0).then(|| {
            format!(
                "{} kept, and not archived: a delete cannot compare documents of more than about 15 MB, of more than {} levels, with the \
                 same name twice, or with text that is not valid UTF-8",
                plural(incomparable, "document"),
                document_match::MAX_DEPTH
            )
        });
        lag.into_iter().chain(load).chain(incomparable).collect()
    }

    /// Returns the reason why the rule's lease was lost, if that is what stopped the rule.
    fn lease_lost(&self, rule: &SweepRule, reason: StopReason) -> Option<String> {
        (reason == StopReason::LockLost).then(|| self.budget.leases().why_over(&rule.namespace))
    }
}
