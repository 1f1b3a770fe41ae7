//! `sweeper check`: the policy alone, or held against the deployment. Reads only.

use super::Run;
use super::sweep::{begin, millis, selected};
use crate::cli::{CheckArgs, Common};
use crate::expiry::Expiry;
use crate::failure::Failure;
use crate::plan::{self, Decision, PlannedRule, RunFacts};
use crate::policy::namespace::Namespace;
use crate::policy::{DateFormat, Rule};
use crate::report::{Command, Report, RuleReport, RunRecord, Status};
use crate::server::{connect, error, inspect, privileges};

/// What can be said without asking a server. The policy itself was validated when it was read.
pub fn offline(run: &Run) -> Report {
    let rules = run.policy.rules.iter().map(|rule| {
        let expiry = Expiry {
            field: rule.field.clone(),
            format: rule.date_format.unwrap_or(DateFormat::Date),
            expire_after_seconds: rule.expire_after_seconds,
            ttl_field: rule.ttl_field.clone(),
            not_before_1970: false,
            filter: None,
            as_of: run.started_at,
        };
        let namespace = Namespace {
            database: rule.namespace.database.clone(),
            collection: rule.namespace.collection.clone(),
        };
        let decision = Decision::Skip(String::new());
        let planned = PlannedRule {
            rule: rule.clone(),
            namespace,
            expiry,
            decision,
            warnings: advice(rule),
        };
        RuleReport {
            threshold: None,
            ..RuleReport::new(&planned)
        }
    });
    let rules = rules.collect();
    Report::new(record(run, None), rules)
}

/// Resolves the rules against the deployment, up to where a sweep would begin to count.
pub async fn connected(run: &Run, common: &Common, args: &CheckArgs, uri: &str) -> anyhow::Result<Report> {
    let rules = selected(run, common)?;
    let connection = &run.policy.connection;
    let deployment = connect::connect(uri, connection.flavor, &run.id).await?;
    let cannot = |doing: &str, cause: &mongodb::error::Error| Failure::cannot_run(format!("{doing}: {}", error::explain(cause)));
    let targets = inspect::targets(&deployment, &rules)
        .await
        .map_err(|cause| cannot("listing databases", &cause))?;
    let granted = privileges::ask(&deployment)
        .await
        .map_err(|cause| cannot("asking for the user's privileges", &cause))?;
    let facts = RunFacts {
        server: &deployment.facts,
        expect: &connection.expect,
        as_of: deployment.facts.local_time,
        allow_clock_skew: args.allow_clock_skew,
    };
    let plan = plan::plan(&facts, targets);
    let reports = plan.rules.iter().map(|planned| {
        let mut report = begin(planned);
        report.warnings.extend(advice(&planned.rule));
        if let (Status::Complete, Some(missing)) = (report.status, granted.missing(&planned.namespace)) {
            report.status = Status::Failed;
            report.error = Some(missing);
        }
        report
    });
    let reports = reports.collect();
    let mut record = record(run, Some(&deployment.facts));
    record.as_of = Some(plan.as_of);
    Ok(Report::new(record, reports))
}

/// What a careful person would ask about a rule that is valid.
fn advice(rule: &Rule) -> Vec<String> {
    let mut advice = Vec::new();
    if rule.max_deletes.is_none() && rule.max_delete_percent.is_none() {
        advice.push("neither `maxDeletes` nor `maxDeletePercent`: a wrong date or filter is not stopped by a limit".to_owned());
    }
    if rule.expire_after_seconds == Some(0) && rule.ttl_field.is_none() {
        advice.push("`expireAfterSeconds: 0`: documents expire at the very date in the field".to_owned());
    }
    advice
}

fn record<'a>(run: &'a Run, server: Option<&'a crate::facts::ServerFacts>) -> RunRecord<'a> {
    RunRecord {
        command: Command::Check,
        dry_run: false,
        run_id: run.id.clone(),
        as_of: None,
        started_at: run.started_at,
        duration_ms: millis(run.begun),
        signal_exit: run.stop.exit_code(),
        policy: &run.policy,
        server,
    }
}
