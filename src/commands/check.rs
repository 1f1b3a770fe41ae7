//! `sweeper check`: checks only the policy, or the policy and the deployment. Reads only.

use tracing::warn;

use super::Run;
use super::prepare::{self, At};
use crate::cli::{CheckArgs, Common};
use crate::failure::Failure;
use crate::plan::Decision;
use crate::policy::Rule;
use crate::policy::only::Only;
use crate::report::counts::{Counts, Obstacle, Remaining};
use crate::report::outcome::RuleOutcome;
use crate::report::{Command, Report, RuleReport, RunRecord};
use crate::server::{error, privileges};

/// Checks what can be checked without a server. The policy itself was validated when it was read.
pub fn offline(run: &Run, common: &Common) -> Result<Report, Failure> {
    let rules = Only(&common.only).rules(&run.policy)?;
    let rules = rules.into_iter().map(|rule| {
        let mut warnings = advice(rule);
        if rule.field.is_none() {
            warnings.push("no `field`: only a time-series collection can do without".to_owned());
        }
        RuleReport::of_policy(rule, warnings)
    });
    let rules = rules.collect();
    Ok(Report::new(run.record(Command::Check), rules))
}

/// Resolves the rules against the deployment, up to where a sweep would begin to count.
pub async fn connected(run: &Run, common: &Common, args: &CheckArgs, uri: &str) -> anyhow::Result<Report> {
    let at = At { as_of: None, allow_clock_skew: args.allow_clock_skew, approval: None };
    let (deployment, plan) = prepare::prepare(run, common, &at, uri).await?;
    let granted = tokio::select! {
        granted = privileges::ask(&deployment) => granted,
        () = run.stop.asked() => return Err(prepare::interrupted(run).into()),
    };
    let granted =
        granted.map_err(|cause| Failure::cannot_run(format!("asking for the user's privileges: {}", error::explain(&cause))))?;
    if let Some(missing) = run.policy.history.as_ref().and_then(|history| granted.missing_for_history(history)) {
        warn!("policy `{}`: `history`: {missing}", run.policy.path);
    }
    let for_leases = run.policy.lock.as_ref().and_then(|collection| granted.missing_for_leases(collection));
    let reports = plan.rules.iter().map(|planned| {
        let missing = match &planned.decision {
            Decision::Sweep(rule) => granted.missing(rule).or_else(|| for_leases.clone()),
            _ => None,
        };
        let counts = Counts { warnings: advice(&planned.rule), obstacle: missing.map(Obstacle::Failed), ..Counts::default() };
        RuleReport::of(planned, &counts, &RuleOutcome::NotSwept { window_closed: false }, &Remaining::Unknown)
    });
    let reports = reports.collect();
    let record = RunRecord { as_of: Some(plan.as_of), server: Some(&deployment.facts), ..run.record(Command::Check) };
    let report = Report::new(record, reports);
    deployment.close().await;
    Ok(report)
}

/// Returns warnings about a rule that is valid, but that a careful person would ask about.
fn advice(rule: &Rule) -> Vec<String> {
    let mut advice = Vec::new();
    if !rule.enabled {
        return advice;
    }
    if rule.max_deletes.is_none() && rule.max_delete_percent.is_none() {
        advice.push("neither `maxDeletes` nor `maxDeletePercent`: a wrong date or filter is not stopped by a limit".to_owned());
    }
    if rule.expire_after_seconds == Some(0) && rule.ttl_field.is_none() {
        advice.push("`expireAfterSeconds: 0`: documents expire at the very date in the field".to_owned());
    }
    advice
}
