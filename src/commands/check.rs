//! `sweeper check`: checks only the policy, or the policy and the deployment. Reads only.

use tracing::warn;

use super::session::Session;
use super::session::outputs;
use super::session::prepare::{self, PlanOptions};
use super::survey::{self, Level};
use crate::base::failure::Failure;
use crate::commands::cli::{CheckArgs, Common};
use crate::core::facts::{ServerRole, Topology};
use crate::core::native::own_ttl;
use crate::core::plan::SweepRule;
use crate::core::plan::findings::Remaining;
use crate::core::plan::outcome::RuleOutcome;
use crate::core::policy::Rule;
use crate::core::policy::only::Only;
use crate::core::report::{Report, ReportCommand, RuleReport, RunRecord};
use crate::shell::server::look::privileges;

/// Runs the command, delivers its report, and returns the exit code.
///
/// Errors: a usage error, no connection, or no answer about the user's privileges.
pub(super) async fn command(options: &Common, args: &CheckArgs, id: &str) -> anyhow::Result<u8> {
    outputs::check_conflicts(options, None)?;
    let (session, outputs) = if args.connect { Session::begin(options, id)? } else { Session::begin_offline(options, id)? };
    let report = if args.connect { connected(&session, args).await? } else { offline(&session)? };
    Ok(outputs::deliver(options, &report, outputs, false))
}

/// Checks what can be checked without a server. The policy itself was validated when it was read.
fn offline(session: &Session) -> Result<Report, Failure> {
    let rules = Only(&session.options.only).rules(&session.policy)?;
    let rules = rules.into_iter().map(|rule| {
        let mut warnings = advice(rule);
        if rule.field.is_none() {
            warnings.push("no `field`: only a time-series collection can do without".to_owned());
        }
        RuleReport::of_policy(rule, warnings)
    });
    let rules = rules.collect();
    Ok(Report::new(session.record(ReportCommand::Check), rules))
}

/// Resolves the rules against the deployment, up to where a sweep would begin to count.
async fn connected(session: &Session, args: &CheckArgs) -> anyhow::Result<Report> {
    let options = PlanOptions { as_of: None, allow_clock_skew: args.allow_clock_skew, strict: args.strict, approval: None };
    let (deployment, plan) = prepare::plan(session, &options).await?;
    let granted = async {
        let asked = privileges::ask(&deployment).await;
        asked.map_err(|cause| Failure::cannot_run(format!("asking for the user's privileges: {cause}")))
    };
    let (granted, unknown) = session.stop.or_fail("nothing was deleted", granted).await?;
    if let Some(why) = unknown {
        warn!(
            "the user's privileges are unknown, because the service does not show them: {why}; a missing one shows only in a sweep"
        );
    }
    if deployment.facts.role == ServerRole::Unknown && deployment.facts.topology == Topology::Standalone {
        warn!(
            "whether this server is a member of a replica set that runs without its set, or a shard, is unknown, because the user may not read \
             `local.system.replset` or `admin.system.version`: such a server would not be refused"
        );
    }
    if let Some(missing) = session.policy.history.as_ref().and_then(|history| granted.missing_for_history(history)) {
        warn!("policy `{}`: `history`: {missing}", session.policy.path);
    }
    let for_leases = session.policy.lock.as_ref().and_then(|collection| granted.missing_for_leases(collection));
    let lacks = |rule: &SweepRule| granted.missing(rule).or_else(|| for_leases.clone());
    let findings = survey::whole(session, &deployment, &plan, Level::Check(&lacks), "nothing was deleted").await?;
    let mut reports = Vec::new();
    for (planned, mut findings) in plan.rules.iter().zip(findings) {
        let mut warnings = advice(&planned.rule);
        if let (Some(ttl_field), Some(collection)) = (&planned.rule.ttl_field, &planned.collection) {
            warnings.extend(own_ttl::obeyed(ttl_field, collection));
        }
        findings.told.warnings.splice(..0, warnings);
        let spent = deployment.units_spent_on(&planned.rule.name, &planned.namespace);
        reports.push(RuleReport::of(planned, &findings, &RuleOutcome::Checked, &Remaining::Unknown).billed(spent));
    }
    let record = RunRecord { as_of: Some(plan.as_of), server: Some(&deployment.facts), ..session.record(ReportCommand::Check) };
    let report = Report::new(record, reports).billed(deployment.units_spent());
    deployment.close().await;
    Ok(report)
}

/// Returns warnings about a rule that is valid, but that a careful person would ask about.
fn advice(rule: &Rule) -> Vec<String> {
    let mut advice = Vec::new();
    if !rule.enabled {
        return advice;
    }
    if rule.limits.max_deletes.is_none() && rule.limits.max_delete_percent.is_none() {
        advice.push("neither `maxDeletes` nor `maxDeletePercent`: no limit would stop a wrong date or filter".to_owned());
    }
    if rule.expire_after_seconds == Some(0) && rule.ttl_field.is_none() {
        advice.push("a lifetime of 0: documents expire at the very date in the field".to_owned());
    }
    if rule.family.as_ref().is_some_and(|family| family.orphans) {
        advice.push(
            "`orphans: true`: a sweep also deletes children without a parent, where every child of that parent has an ObjectId older than \
             a day; they count towards `maxDeletes`, `maxDeletePercent` compares them with all children, and a dry run shows how many there are"
                .to_owned(),
        );
    }
    advice
}
