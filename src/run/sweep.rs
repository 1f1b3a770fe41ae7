//! `sweeper sweep`, dry or not: one plan, one report.

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Instant;

use tracing::warn;

use super::measure::{measure, not_begun, note_unseen_field};
use super::prepare::{self, At};
use super::{Run, confirm, millis};
use crate::cli::{Common, SweepArgs, When};
use crate::failure::Failure;
use crate::plan::{Decision, PlannedRule};
use crate::progress::{Progress, Show};
use crate::report::{Command, Report, RuleReport, RunRecord, Status};
use crate::server::grant::{Consent, DeleteGrant};
use crate::server::{Deployment, count};
use crate::sweep::{self, End, Job, Outcome, RunBudget};

pub async fn sweep(run: &Run, common: &Common, args: &SweepArgs, uri: &str) -> anyhow::Result<Report> {
    refuse_unsupported(run, args)?;
    let at = At { as_of: args.as_of, allow_clock_skew: args.allow_clock_skew };
    let (deployment, plan) = prepare::prepare(run, common, &at, uri).await?;

    let asks = !args.dry_run && confirm::can_ask(args.yes);
    let count_all = args.dry_run || asks;
    let mut reports = measure(run, &deployment, &plan, count_all).await;
    let consent = if asks { confirm::ask(&run.stop, &reports).await? } else { Consent::NotAsked };
    if consent == Consent::Refused && run.stop.is_asked() {
        return Err(prepare::interrupted(run).into());
    }
    if consent == Consent::Refused {
        return Err(Failure::cannot_run("not confirmed; nothing was deleted").into());
    }
    if let Some(grant) = DeleteGrant::new(args.dry_run, consent) {
        let progress = Progress::new(show(common));
        let grant = Arc::new(grant);
        let limits = &run.policy.run;
        let mut budget = RunBudget::new(
            run.begun,
            args.max_duration.or(limits.max_duration),
            args.max_deletes,
            args.rate.or(limits.rate),
            limits.concurrency,
        );
        let mut gone: Option<String> = None;
        for (planned, report) in plan.rules.iter().zip(&mut reports) {
            let Decision::Sweep(selection) = &planned.decision else {
                continue;
            };
            if report.status != Status::Complete {
                continue;
            }
            if let Some(why) = &gone {
                not_begun(report, why);
                continue;
            }
            let begun = Instant::now();
            progress.begin(&report.namespace, report.expired_count);
            let job = Job { deployment: &deployment, planned, selection, grant: &grant, progress: &progress, stop: &run.stop };
            let outcome = sweep::sweep(&job, &mut budget).await;
            progress.end();
            if matches!(outcome.end, End::Failed(_)) && !run.stop.is_asked() {
                // Otherwise each further rule would wait for the server anew.
                gone = deployment.unreachable().await;
            }
            enter(report, outcome);
            warn_if_field_unseen(&deployment, planned, report).await;
            report.duration_ms += millis(begun);
        }
    }
    let record = RunRecord {
        command: Command::Sweep,
        dry_run: args.dry_run,
        run_id: run.id.clone(),
        as_of: Some(plan.as_of),
        started_at: run.started_at,
        duration_ms: millis(run.begun),
        signal_exit: run.stop.exit_code(),
        policy: &run.policy,
        server: Some(&deployment.facts),
    };
    let report = Report::new(record, reports);
    deployment.close().await;
    Ok(report)
}

/// What the policy asks for and this version cannot do: a lock that is not taken would let two runs believe they are alone.
fn refuse_unsupported(run: &Run, args: &SweepArgs) -> Result<(), Failure> {
    let path = &run.policy.path;
    if run.policy.lock.is_some() && !args.dry_run {
        return Err(Failure::usage(format!(
            "policy `{path}`: `lock` is not yet supported by this version; nothing was contacted"
        ))
        .hint("leave `lock` out, and see to it that only one machine runs this policy"));
    }
    if run.policy.history.is_some() {
        warn!("policy `{path}`: `history` is not yet supported by this version; the run is not recorded");
    }
    Ok(())
}

fn enter(report: &mut RuleReport, outcome: Outcome) {
    report.deleted_count = outcome.deleted;
    report.batches = outcome.batches;
    report.uncertain = outcome.uncertain;
    match outcome.end {
        End::Complete => {}
        End::Partial(reason) => {
            report.status = Status::Partial;
            report.reason = Some(reason.word().to_owned());
        }
        End::Failed(why) => {
            report.status = Status::Failed;
            let least = if outcome.uncertain { "at least " } else { "" };
            report.error = Some(format!("deleting: {why}; {least}{} documents were deleted before", outcome.deleted));
        }
    }
}

/// A rule that deletes nothing may name a field that does not exist.
async fn warn_if_field_unseen(deployment: &Deployment, planned: &PlannedRule, report: &mut RuleReport) {
    let idle =
        report.status == Status::Complete && report.deleted_count == 0 && report.document_count.is_some_and(|count| count > 0);
    if idle && report.expired_count.is_none() {
        // The sweep is over; a question that cannot be answered is not worth an error.
        if let Ok(seen) = count::has_field(deployment, &planned.namespace, &planned.rule.field).await {
            note_unseen_field(report, planned, seen);
        }
    }
}

fn show(common: &Common) -> Show {
    let on_terminal = std::io::stderr().is_terminal();
    match common.progress {
        When::Never => Show::Nothing,
        When::Auto if common.quiet => Show::Nothing,
        When::Auto | When::Always if on_terminal => Show::Bar,
        When::Auto | When::Always => Show::Lines,
    }
}
