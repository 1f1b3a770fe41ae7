//! `sweeper sweep`, dry or not: one plan, one report.

use std::io::IsTerminal;

use chrono::Utc;
use tracing::warn;

use super::measure::measure;
use super::prepare::{self, At};
use super::{Run, confirm, millis, rules};
use crate::cli::{Common, SweepArgs, When};
use crate::failure::Failure;
use crate::plan::Plan;
use crate::progress::Show;
use crate::report::{Command, Report, RuleReport, RunRecord, Status};
use crate::server::grant::{Consent, DeleteGrant};
use crate::sweep::Limits;

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
        let of_policy = &run.policy.run;
        let limits = Limits {
            max_duration: args.max_duration.or(of_policy.max_duration),
            max_deletes: args.max_deletes,
            rate: args.rate.or(of_policy.rate),
            concurrency: of_policy.concurrency,
        };
        rules::sweep(run, &deployment, grant, limits, show(common), &plan, &mut reports).await;
    } else {
        note_closed_windows(&plan, &mut reports);
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

/// What a dry run counts is not what a sweep would delete at this time of the day.
pub fn note_closed_windows(plan: &Plan, reports: &mut [RuleReport]) {
    for (planned, report) in plan.rules.iter().zip(reports) {
        if let (Some(window), Status::Complete) = (&planned.rule.window, report.status)
            && !window.contains(Utc::now())
        {
            report.warnings.push(format!("deletes only from {window}, and it is not that time now"));
        }
    }
}

pub fn show(common: &Common) -> Show {
    let on_terminal = std::io::stderr().is_terminal();
    match common.progress {
        When::Never => Show::Nothing,
        When::Auto if common.quiet => Show::Nothing,
        When::Auto | When::Always if on_terminal => Show::Bars,
        When::Auto | When::Always => Show::Lines,
    }
}
