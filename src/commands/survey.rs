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
use crate::base::failure::Failure;
use crate::base::instant::millis;
use crate::core::plan::findings::{CountObstacle, Findings};
use crate::core::plan::verdict::{Verdict, not_begun};
use crate::core::plan::{Plan, PlannedRule, SweepRule};
use crate::core::policy::RunLimits;
use crate::shell::server::Deployment;
use crate::shell::server::look::predicate;
use crate::shell::sweep::asked_reason;
pub(super) use after::{MAX_COUNT_TIME, after};
use estimates::Estimates;
pub(super) use figures::Auditing;
use holds::RunHolds;
use one::One;

/// Rules that are looked at at the same time.
const AT_ONCE: usize = 4;

/// Depth of a survey: from level to level more is looked at.
#[derive(Clone, Copy)]
pub(super) enum Level<'a> {
    /// Judges the rules for one document, as far as that needs no count of what has expired.
    Why,
    /// Judges the rules in the same way, and fails those for which a sweep lacks the privilege that the function names.
    Check(&'a dyn Fn(&SweepRule) -> Option<String>),
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
        matches!(self, Self::DryRun | Self::Audit(_))
    }

    /// Whether nothing is counted but what shows whether a collection may be searched.
    fn only_judges(self) -> bool {
        matches!(self, Self::Why | Self::Check(_))
    }

    /// Whether fields are looked for although no delete depends on them.
    fn names_all_fields(self) -> bool {
        !matches!(self, Self::Why | Self::Sweep)
    }

    /// Returns the privilege that a sweep by the rule lacks, where that is asked for.
    fn lacks(self, rule: &SweepRule) -> Option<String> {
        match self {
            Self::Check(lacks) => lacks(rule),
            Self::Why | Self::Sweep | Self::DryRun | Self::Audit(_) => None,
        }
    }

    fn auditing(self) -> Option<&'a Auditing> {
        match self {
            Self::Audit(auditing) => Some(auditing),
            Self::Why | Self::Check(_) | Self::Sweep | Self::DryRun => None,
        }
    }

    /// Returns the rule of a namespace that is looked at, if one is.
    fn rule(self, planned: &PlannedRule) -> Option<&SweepRule> {
        match self {
            Self::Sweep => planned.decision.swept(),
            Self::Why | Self::Check(_) | Self::DryRun | Self::Audit(_) => planned.decision.countable(),
        }
    }

    /// Returns the rule of a namespace whose fields are looked for.
    fn rule_with_fields(self, planned: &PlannedRule) -> Option<&SweepRule> {
        // Documents in another namespace may have what the documents in this one lack, so that one namespace by itself does not
        // get a rule with a glob refused.
        let is_one_of_many = matches!(self, Self::Why) && planned.rule.namespace.is_glob();
        planned.decision.countable().filter(|rule| !is_one_of_many && self.lacks(rule).is_none())
    }

    /// Whether nothing more has to be known of a rule that cannot be swept.
    fn is_over(self, planned: &PlannedRule, findings: &Findings) -> bool {
        matches!(self, Self::Sweep) && Verdict::before(planned, &findings.decides).is_some()
    }
}

/// The survey of a run.
struct Survey<'a> {
    session: &'a Session,
    deployment: &'a Deployment,
    level: Level<'a>,
    run: RunLimits,
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
    run: RunLimits,
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
            fields::look(session, deployment, plan, level.names_all_fields(), |planned| level.rule_with_fields(planned)).await
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

/// Looks at the rules of a plan as [`survey`] does, for a command that needs the findings on all of them. `nothing` names what
/// was not done if it is asked to stop.
///
/// Errors: a request to stop.
pub(super) async fn whole(
    session: &Session,
    deployment: &Deployment,
    plan: &Plan,
    level: Level<'_>,
    nothing: &str,
) -> Result<Vec<Findings>, Failure> {
    let findings = survey(session, deployment, plan, level, session.policy.run, &RunHolds::new(deployment, plan)).await;
    let is_stopped = |findings: &Findings| matches!(findings.decides.obstacle, Some(CountObstacle::Stopped(_)));
    match findings.iter().any(is_stopped) {
        true => Err(session.stop.failure(nothing)),
        false => Ok(findings),
    }
}

impl Survey<'_> {
    /// Looks at one rule, and adds to its findings. What was found before an error or a request to stop stays.
    async fn one(&self, number: usize, planned: &PlannedRule, mut findings: Findings) -> Findings {
        // The findings on a refused rule are evidence for others only.
        let Some(rule) = self.level.rule(planned) else { return Findings::default() };
        if self.level.is_over(planned, &findings) {
            return findings;
        }
        let lacks = self.level.lacks(rule).map(CountObstacle::Failed);
        let gone = self.gone.borrow().as_ref().map(|why| CountObstacle::Failed(not_begun(why)));
        if let Some(obstacle) = lacks.or_else(|| findings.decides.obstacle.take()).or(gone) {
            self.meet(obstacle, planned, &mut findings);
            return findings;
        }
        let begun = Instant::now();
        let ended = tokio::select! {
            biased;
            measured = self.measure(number, planned, rule, &mut findings) => measured,
            () = self.session.stop.asked() => Err(CountObstacle::Stopped(asked_reason(&self.session.stop))),
        };
        if let Err(obstacle) = ended {
            self.meet(obstacle, planned, &mut findings);
        }
        findings.told.duration_ms += millis(begun.elapsed());
        findings
    }

    /// Enters an obstacle. A rule that is refused stays so where nothing had to be counted.
    fn meet(&self, obstacle: CountObstacle, planned: &PlannedRule, findings: &mut Findings) {
        match obstacle {
            CountObstacle::Failed(why) if self.level.only_judges() && planned.decision.swept().is_none() => {
                findings.told.warnings.push(why);
            }
            obstacle => findings.decides.obstacle = Some(obstacle),
        }
    }

    /// Measures one rule.
    ///
    /// Errors: the obstacle that ended the look.
    async fn measure(
        &self,
        number: usize,
        planned: &PlannedRule,
        rule: &SweepRule,
        findings: &mut Findings,
    ) -> Result<(), CountObstacle> {
        // Without its holds or periods a rule is refused. What else is told of it is counted all the same.
        let rule = &self.holds.enter(rule, findings).await.unwrap_or_else(|| rule.without_keys());
        let deployment = self.deployment.of_rule(rule);
        if let (Level::Check(_), true) = (self.level, planned.decision.swept().is_some())
            && let Some(why) = predicate::objection(&deployment, rule).await
        {
            return Err(CountObstacle::Failed(format!("the server does not take the predicate: {why}")));
        }
        let one = One { survey: self, number, planned, rule, deployment };
        one.measure(findings).await.map_err(|cause| {
            if cause.is_unreachable() {
                self.gone.replace(Some(cause.to_string()));
            }
            CountObstacle::Failed(format!("counting: {cause}"))
        })
    }
}
