//! `sweeper sweep`, dry or not: one plan, one report.

use std::io::IsTerminal;

use chrono::Utc;
use tracing::warn;

use super::locks::{self, HeldLeases, Wait};
use super::measure::measure;
use super::prepare::{self, At};
use super::{Run, confirm, millis, rules};
use crate::cli::{Common, SweepArgs, When};
use crate::failure::Failure;
use crate::lock::lease::Leases;
use crate::plan::Plan;
use crate::progress::Show;
use crate::report::{Command, Report, RuleReport, RunRecord, Status};
use crate::server::Deployment;
use crate::server::grant::{Consent, DeleteGrant};
use crate::sweep::Limits;
use crate::{exit, stop};

/// Runs once. A dry run takes no lock: it neither waits for others nor keeps them waiting.
pub async fn sweep(mut run: Run, common: &Common, args: &SweepArgs, uri: &str) -> anyhow::Result<Report> {
    if run.policy.history.is_some() {
        warn!("policy `{}`: `history` is not yet supported by this version; the run is not recorded", run.policy.path);
    }
    if let Some(why) = args.stop_file.as_deref().and_then(stop::file::found) {
        let failure = Failure { exit_code: exit::LIMIT, ..Failure::cannot_run(format!("{why}; nothing was contacted")) };
        return Err(failure.hint("remove it to let runs begin again").into());
    }
    run.stop = run.stop.with_file(args.stop_file.as_ref());
    let run = &run;
    let lock_file = args.lock.as_deref().filter(|_| !args.dry_run);
    let lock_collection = run.policy.lock.as_ref().filter(|_| !args.dry_run);
    if args.lock_wait.is_some() && args.lock.is_none() && run.policy.lock.is_none() {
        let failure = Failure::usage("--lock-wait: there is no lock to wait for; nothing was contacted");
        return Err(failure.hint("name one with --lock FILE, or with `lock` in the policy").into());
    }
    let wait = Wait { run, most: args.lock_wait };
    let _lock = match lock_file {
        Some(path) => Some(locks::take_file(path, &wait).await?),
        None => None,
    };
    let at = At { as_of: args.as_of, allow_clock_skew: args.allow_clock_skew };
    let (deployment, mut plan) = prepare::prepare(run, common, &at, uri).await?;
    let held = match lock_collection {
        Some(collection) => Some(HeldLeases::take(&deployment, collection, &wait, &mut plan).await?),
        None => None,
    };
    let leases = held.as_ref().map(HeldLeases::leases).unwrap_or_default();
    let swept = sweep_plan(run, common, args, &deployment, &plan, leases).await;
    if let Some(held) = held {
        held.release().await;
    }
    let reports = swept?;
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

/// Counts, asks where there is somebody to ask, and deletes.
async fn sweep_plan(
    run: &Run,
    common: &Common,
    args: &SweepArgs,
    deployment: &Deployment,
    plan: &Plan,
    leases: Leases,
) -> anyhow::Result<Vec<RuleReport>> {
    let asks = !args.dry_run && confirm::can_ask(args.yes);
    let count_all = args.dry_run || asks;
    let mut reports = measure(run, deployment, plan, count_all).await;
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
            leases,
        };
        rules::sweep(run, deployment, grant, limits, show(common), plan, &mut reports).await;
    } else {
        note_closed_windows(plan, &mut reports);
    }
    Ok(reports)
}

/// What a dry run counts is not what a sweep would delete at this time of the day.
fn note_closed_windows(plan: &Plan, reports: &mut [RuleReport]) {
    for (planned, report) in plan.rules.iter().zip(reports) {
        if let (Some(window), Status::Complete) = (&planned.rule.window, report.status)
            && !window.contains(Utc::now())
        {
            report.warnings.push(format!("deletes only from {window}, and it is not that time now"));
        }
    }
}

fn show(common: &Common) -> Show {
    let on_terminal = std::io::stderr().is_terminal();
    match common.progress {
        When::Never => Show::Nothing,
        When::Auto if common.quiet => Show::Nothing,
        When::Auto | When::Always if on_terminal => Show::Bars,
        When::Auto | When::Always => Show::Lines,
    }
}
