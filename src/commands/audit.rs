//! `sweeper audit`: a dry run with the figures that a person wants to see before the first sweep. Reads only.

use std::collections::BTreeMap;

use super::session::Session;
use super::session::outputs;
use super::session::prepare::{self, PlanOptions};
use super::survey::holds::RunHolds;
use super::survey::{self, Auditing, Level};
use super::sweep::not_swept;
use crate::base::progress::audit::AuditProgress;
use crate::commands::cli::{AuditArgs, Common, ReadFrom};
use crate::core::facts::{Catalog, ServerFacts};
use crate::core::native::diff::{self, Difference};
use crate::core::plan::Plan;
use crate::core::plan::findings::Remaining;
use crate::core::policy::only::Only;
use crate::core::report::{Report, ReportCommand, RuleReport, RunRecord};
use crate::shell::server::ReadOptions;
use crate::shell::server::wire::transport::ReadPreference;

/// Runs the command, delivers its report, and returns the exit code.
///
/// Errors: a usage error, or no connection.
pub(super) async fn command(options: &Common, args: &AuditArgs, id: &str) -> anyhow::Result<u8> {
    outputs::check_conflicts(options, None)?;
    let (session, outputs) = Session::begin(options, id)?;
    session.need_uri()?;
    let report = audit(&session, args).await?;
    let report = if args.detailed_exitcode { report.with_detailed_exit_code() } else { report };
    Ok(outputs::deliver(options, &report, outputs, false))
}

async fn audit(session: &Session, args: &AuditArgs) -> anyhow::Result<Report> {
    let options = PlanOptions { as_of: args.as_of, allow_clock_skew: args.allow_clock_skew, strict: args.strict, approval: None };
    let (mut deployment, plan) = prepare::plan(session, &options).await?;
    deployment.read_options = ReadOptions { preference: preference(args.read_preference), max_time: Some(args.max_time) };
    let looking = AuditProgress::new(session.show(), plan.rules.len());
    let auditing = Auditing { exact: args.exact, differences: differences(session, &plan, &deployment.facts), looking };
    let holds = RunHolds::new(&deployment, &plan);
    let findings = tokio::select! {
        findings = survey::survey(session, &deployment, &plan, Level::Audit(&auditing), session.policy.run, &holds) => findings,
        // Never returns. A signal ends the work on each rule, and so ends the survey.
        () = auditing.looking.lines() => Vec::new(),
    };
    drop((auditing, holds));
    let rules = plan.rules.iter().zip(findings).zip(not_swept(&plan));
    let rules = rules.map(|((planned, findings), outcome)| {
        let spent = deployment.units_spent_on(&planned.rule.name, &planned.namespace);
        RuleReport::of(planned, &findings, &outcome, &Remaining::Derived).billed(spent)
    });
    let rules = rules.collect();
    let record = RunRecord {
        dry_run: true,
        as_of: Some(plan.as_of),
        server: Some(&deployment.facts),
        ..session.record(ReportCommand::Audit)
    };
    let report = Report::new(record, rules).billed(deployment.units_spent());
    deployment.close().await;
    Ok(report)
}

/// Compares the rules with the native TTL settings of the collections that the plan has seen.
fn differences(session: &Session, plan: &Plan, server: &ServerFacts) -> Vec<Difference> {
    let Ok(rules) = Only(&session.options.only).rules(&session.policy) else { return Vec::new() };
    let rules: Vec<_> = rules.into_iter().filter(|rule| rule.enabled).collect();
    let seen = plan.rules.iter().filter_map(|planned| planned.collection.as_deref());
    let seen: BTreeMap<_, _> = seen.map(|collection| (&collection.namespace, collection)).collect();
    let catalog = Catalog { collections: seen.into_values().cloned().collect(), unreadable: Vec::new() };
    diff::diff(&rules, &catalog, server.wire_version, server.capabilities.plain_to_ttl)
}

fn preference(from: ReadFrom) -> ReadPreference {
    match from {
        ReadFrom::Primary => ReadPreference::Primary,
        ReadFrom::PrimaryPreferred => ReadPreference::PrimaryPreferred,
        ReadFrom::Secondary => ReadPreference::Secondary,
        ReadFrom::SecondaryPreferred => ReadPreference::SecondaryPreferred,
        ReadFrom::Nearest => ReadPreference::Nearest,
    }
}
