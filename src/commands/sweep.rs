//! `sweeper sweep`, dry or not: one plan, one report.

use std::io::IsTerminal;
use std::path::Path;

use chrono::Utc;

use super::locks::{self, HeldLeases, LockWait};
use super::prepare::{self, At};
use super::{Run, confirm, counts, events, record, rules};
use crate::approval::Approval;
use crate::cli::{Common, SweepArgs, When};
use crate::failure::Failure;
use crate::lock::lease::Leases;
use crate::log::LogFormat;
use crate::plan::{Plan, PlannedRule};
use crate::progress::Show;
use crate::report::counts::{Counts, Remaining};
use crate::report::outcome::RuleOutcome;
use crate::report::{Command, Report, RuleReport, RunRecord, Status};
use crate::server::Deployment;
use crate::server::grant::{Consent, DeleteGrant};
use crate::sweep::Limits;
use crate::{exit, stop};

/// Sweeps once, and records the run in the history where the policy asks for one.
pub async fn sweep(mut run: Run, common: &Common, args: &SweepArgs, uri: &str) -> anyhow::Result<Report> {
    if let Some(why) = args.stop_file.as_deref().and_then(stop::find_file) {
        let failure = Failure { exit_code: exit::LIMIT, ..Failure::cannot_run(format!("{why}; nothing was contacted")) };
        return Err(failure.hint("remove it to let runs begin again").into());
    }
    run.stop = run.stop.with_file(args.stop_file.as_ref());
    let run = &run;
    let swept = unrecorded(run, common, args, uri).await;
    record::history(run, args.dry_run, &swept).await;
    if let (Ok(_), Some(deployment)) = (&swept, run.connected.get()) {
        deployment.clone().close().await;
    }
    swept
}

/// A dry run takes no lock: it neither waits for others nor keeps them waiting.
async fn unrecorded(run: &Run, common: &Common, args: &SweepArgs, uri: &str) -> anyhow::Result<Report> {
    let approval = args.plan.as_deref().map(read_plan).transpose()?;
    let lock_file = args.lock.as_deref().filter(|_| !args.dry_run);
    let lock_collection = run.policy.lock.as_ref().filter(|_| !args.dry_run);
    if args.lock_wait.is_some() && args.lock.is_none() && run.policy.lock.is_none() {
        let failure = Failure::usage("--lock-wait: there is no lock to wait for; nothing was contacted");
        return Err(failure.hint("name one with --lock FILE, or with `lock` in the policy").into());
    }
    let wait = LockWait { session: run, max: args.lock_wait };
    let _lock = match lock_file {
        Some(path) => Some(locks::take_file(path, &wait).await?),
        None => None,
    };
    let at = At {
        as_of: args.as_of.or_else(|| approval.as_ref().map(Approval::as_of)),
        allow_clock_skew: args.allow_clock_skew,
        approval: approval.as_ref().map(|approval| (approval, args.max_plan_age)),
    };
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
    let (counts, outcomes) = swept?;
    let is_recorded = args.metrics_file.is_some() || run.policy.history.is_some();
    let remaining = counts::after(run, &deployment, &plan, &counts, &outcomes, is_recorded).await;
    let rules = plan.rules.iter().zip(&counts).zip(outcomes.iter().zip(&remaining));
    let rules = rules.map(|((planned, counts), (outcome, remaining))| RuleReport::of(planned, counts, outcome, remaining));
    let record = RunRecord {
        dry_run: args.dry_run,
        as_of: Some(plan.as_of),
        server: Some(&deployment.facts),
        plan: approval.zip(args.plan.as_ref()).map(|(approval, path)| approval.reported(path.display().to_string())),
        ..run.record(Command::Sweep)
    };
    Ok(Report::new(record, rules.collect()))
}

fn read_plan(path: &Path) -> Result<Approval, Failure> {
    let name = path.display();
    let text = std::fs::read_to_string(path)
        .map_err(|cause| Failure::usage(format!("reading the plan `{name}`: {cause}; nothing was contacted")))?;
    Approval::read(&text).map_err(|why| {
        Failure::usage(format!("reading the plan `{name}`: {why}; nothing was contacted"))
            .hint("save one: sweeper audit -o audit.json")
    })
}

/// Counts, asks if there is somebody to ask, and deletes. Returns counts and outcomes in the order of the plan.
async fn sweep_plan(
    run: &Run,
    common: &Common,
    args: &SweepArgs,
    deployment: &Deployment,
    plan: &Plan,
    leases: Leases,
) -> anyhow::Result<(Vec<Counts>, Vec<RuleOutcome>)> {
    let asks = !args.dry_run && confirm::can_ask(args.yes);
    let counts = counts::before(run, deployment, plan, args.dry_run || asks).await;
    let not_swept = not_swept(plan);
    let reports: Vec<RuleReport> = plan
        .rules
        .iter()
        .zip(&counts)
        .zip(&not_swept)
        .map(|((planned, counts), outcome)| RuleReport::of(planned, counts, outcome, &Remaining::Unknown))
        .collect();
    let is_ready = |report: &RuleReport| !args.dry_run && report.status == Status::Complete;
    reports.iter().filter(|report| !is_ready(report)).for_each(events::rule_ended);
    let consent = if asks { confirm::ask_to_delete(&run.stop, &reports).await? } else { Consent::NotAsked };
    let Some(grant) = DeleteGrant::new(args.dry_run, consent) else { return Ok((counts, not_swept)) };
    let of_policy = &run.policy.run;
    let limits = Limits {
        max_duration: args.max_duration.or(of_policy.max_duration),
        max_deletes: args.max_deletes,
        rate: args.rate.or(of_policy.rate),
        concurrency: of_policy.concurrency,
        leases,
    };
    let outcomes = rules::sweep(run, deployment, grant, limits, show(common), plan, &counts).await;
    Ok((counts, outcomes))
}

/// Returns the outcomes of a plan of which nothing is swept, in its order.
pub fn not_swept(plan: &Plan) -> Vec<RuleOutcome> {
    let is_closed = |rule: &PlannedRule| rule.rule.window.as_ref().is_some_and(|window| !window.contains(Utc::now()));
    plan.rules.iter().map(|planned| RuleOutcome::NotSwept { window_closed: is_closed(planned) }).collect()
}

pub fn show(common: &Common) -> Show {
    let on_terminal = std::io::stderr().is_terminal();
    match common.progress {
        When::Never => Show::Nothing,
        When::Auto if common.quiet => Show::Nothing,
        // Bars are not for a log of objects.
        When::Auto | When::Always if on_terminal && common.log_format == LogFormat::Text => Show::Bars,
        When::Auto | When::Always => Show::Lines,
    }
}
