//! The survey of the rules of a plan: what decides whether they may be swept, what a sweep goes by, and what is only told.

mod after;
pub(super) mod estimates;
pub(super) mod fields;
mod figures;
pub(super) mod holds;
mod one;
mod orders;
pub(super) mod orphans;

use std::cell::RefCell;

use futures_util::{StreamExt, stream};
use tokio::time::Instant;

use super::session::Session;
use crate::base::instant::millis;
use crate::core::plan::estimate::RunCaps;
use crate::core::plan::findings::{CountObstacle, Findings};
use crate::core::plan::verdict::{Verdict, not_begun};
use crate::core::plan::{Plan, PlannedRule, SweepRule};
use crate::shell::server::Deployment;
use crate::shell::sweep::asked_reason;
pub(super) use after::{MAX_COUNT_TIME, after};
use estimates::Estimates;
pub(super) use figures::Auditing;
use holds::RunHolds;
use one::One;

/// Rules that are looked at at the same time.
const AT_ONCE: usize = 4;

/// Depth of a survey: each level has everything of those above it.
#[derive(Clone, Copy)]
pub(super) enum Level<'a> {
    /// Counts what a guard compares, and stops at the first refusal.
    Sweep,
    /// Counts in every rule that can be counted, those that are refused too.
    DryRun,
    /// Measures the figures of an audit.
    Audit(&'a Auditing),
}

impl<'a> Level<'a> {
    /// Whether everything is counted in every rule that can be counted.
    fn counts_all(self) -> bool {
        !matches!(self, Self::Sweep)
    }

    fn auditing(self) -> Option<&'a Auditing> {
        match self {
            Self::Audit(auditing) => Some(auditing),
            Self::Sweep | Self::DryRun => None,
        }
    }

    /// Returns the rule of a namespace that is looked at, if one is.
    fn rule(self, planned: &PlannedRule) -> Option<&SweepRule> {
        match self {
            Self::Sweep => planned.decision.swept(),
            Self::DryRun | Self::Audit(_) => planned.decision.countable(),
        }
    }

    /// Whether nothing more has to be known of a rule that cannot be swept.
    fn is_over(self, planned: &PlannedRule, findings: &Findings) -> bool {
        !self.counts_all() && Verdict::before(planned, &findings.decides).is_some()
    }
}

/// The survey of a run.
struct Survey<'a> {
    session: &'a Session,
    deployment: &'a Deployment,
    level: Level<'a>,
    run: RunCaps,
    holds: &'a RunHolds<'a>,
    estimates: Option<Estimates>,
    /// Set when the deployment turns out to be unreachable.
    gone: RefCell<Option<String>>,
}

/// Looks at the rules of a plan under these limits of the whole run. Returns the findings in the order of the plan.
pub(super) async fn survey(
    session: &Session,
    deployment: &Deployment,
    plan: &Plan,
    level: Level<'_>,
    run: RunCaps,
    holds: &RunHolds<'_>,
) -> Vec<Findings> {
    let mut survey = Survey { session, deployment, level, run, holds, estimates: None, gone: RefCell::default() };
    let opened = tokio::select! {
        biased;
        opened = Estimates::open(session, deployment, plan, run, level.counts_all()) => opened,
        // Each rule sees the request to stop by itself.
        () = session.stop.asked() => Ok(None),
    };
    let looked = match opened {
        Ok(estimates) => {
            survey.estimates = estimates;
            fields::look(session, deployment, plan, level.counts_all(), |planned| planned.decision.countable()).await
        }
        Err(cause) => {
            survey.gone.replace(Some(cause.to_string()));
            vec![Findings::default(); plan.rules.len()]
        }
    };
    let survey = &survey;
    // An audit may search a whole collection for each rule, and is in no hurry.
    let at_once = if level.auditing().is_some() { 1 } else { AT_ONCE };
    stream::iter(plan.rules.iter().zip(looked).enumerate())
        .map(|(number, (planned, looked))| survey.one(number, planned, looked))
        .buffered(at_once)
        .collect()
        .await
}

impl Survey<'_> {
    /// Looks at one rule, and adds to its findings. What was found before an error or a request to stop stays.
    async fn one(&self, number: usize, planned: &PlannedRule, mut findings: Findings) -> Findings {
        // The findings on a refused rule are evidence for others only.
        let Some(rule) = self.level.rule(planned) else { return Findings::default() };
        if findings.decides.obstacle.is_some() || self.level.is_over(planned, &findings) {
            return findings;
        }
        let known = self.gone.borrow().clone();
        if let Some(why) = known {
            findings.decides.obstacle = Some(CountObstacle::Failed(not_begun(&why)));
            return findings;
        }
        let begun = Instant::now();
        let ended = tokio::select! {
            biased;
            measured = self.measure(number, planned, rule, &mut findings) => measured,
            () = self.session.stop.asked() => Err(CountObstacle::Stopped(asked_reason(&self.session.stop))),
        };
        findings.decides.obstacle = ended.err();
        findings.told.duration_ms += millis(begun.elapsed());
        findings
    }

    /// Errors: the obstacle that ended the look.
    async fn measure(
        &self,
        number: usize,
        planned: &PlannedRule,
        rule: &SweepRule,
        findings: &mut Findings,
    ) -> Result<(), CountObstacle> {
        // Without its holds a rule is refused. What else is told of it is counted all the same.
        let rule = &self.holds.enter(rule, findings).await.unwrap_or_else(|| holds::none(rule));
        let one = One { survey: self, number, planned, rule, deployment: self.deployment.of_rule(rule) };
        one.measure(findings).await.map_err(|cause| {
            if cause.is_unreachable() {
                self.gone.replace(Some(cause.to_string()));
            }
            CountObstacle::Failed(format!("counting: {cause}"))
        })
    }
}
