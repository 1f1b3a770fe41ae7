//! `sweeper sweep`, with or without `--dry-run`: one plan, one report.

use std::io::IsTerminal;
use std::path::Path;
use std::sync::Arc;

use super::confirm;
use super::run::leases::HeldLeases;
use super::run::locks::{self, LockWait};
use super::run::record::Record;
use super::run::{cut_short, events, record};
use super::session::Session;
use super::session::outputs::{self, Output};
use super::session::prepare::{self, PlanOptions};
use super::survey::Level;
use super::survey::holds::RunHolds;
use super::{run, survey};
use crate::base::exit;
use crate::base::failure::{self, Failure};
use crate::base::machine::wall_clock;
use crate::base::pause_file::PauseFile;
use crate::base::stop::{self, Stop};
use crate::commands::cli::{Common, SweepArgs};
use crate::core::plan::findings::{Findings, Remaining};
use crate::core::plan::outcome::{RuleOutcome, Stopped};
use crate::core::plan::{Plan, PlannedRule, StopReason};
use crate::core::policy::RunLimits;
use crate::core::report::approval::Approval;
use crate::core::report::{self, Report, ReportCommand, RuleReport, RunRecord};
use crate::shell::lock::lease::Leases;
use crate::shell::server::Deployment;
use crate::shell::server::delete::grant::{Consent, DeleteGrant};

/// Runs the command, delivers its report, and returns the exit code.
///
/// Errors: a usage error, no connection, a lock that is held, or no confirmation; nothing was deleted then.
pub(super) async fn command(options: &Common, args: &SweepArgs, id: &str) -> anyhow::Result<u8> {
    outputs::check_conflicts(options, Some(args))?;
    let stop = Stop::listen()?;
    let mut record = Record::new(args, None);
    record.open()?;
    let begun = Session::begin_under(stop, options, id).await.and_then(|(session, outputs)| {
        session.need_uri()?;
        Ok((session, outputs))
    });
    Ok(once(&record, options, args, begun).await?.exit_code)
}

/// A sweep that ended with a report.
pub(super) struct EndedSweep {
    pub exit_code: u8,
    /// The outcome in one line.
    pub said: String,
}

/// Sweeps once, delivers the report, and records the end of the run, also if it failed.
pub(super) async fn once(
    record: &Record,
    options: &Common,
    args: &SweepArgs,
    begun: anyhow::Result<(Session, Vec<Output>)>,
) -> anyhow::Result<EndedSweep> {
    let swept = async {
        let (session, outputs) = begun?;
        let session = with_ends(session, args)?;
        let why = tokio::select! {
            biased;
            swept = sweep(&session, args) => return Ok((swept?, outputs, None)),
            why = session.stop.must_end() => why,
        };
        let report = cut_short::report(&session, limits(&session, args), args.dry_run, &why);
        cut_short::warn_of_the_end(&session, &why);
        Ok((report, outputs, Some(session)))
    };
    let (report, outputs, cut_short) = swept.await.inspect_err(|cause| record.failed(cause))?;
    let report = if args.detailed_exitcode { report.with_detailed_exit_code() } else { report };
    let exit_code = outputs::deliver(options, &report, outputs, args.every.is_some());
    let ended = EndedSweep { exit_code: record.ended(&report, exit_code), said: report::reason(&report) };
    // Last, because the process has only a moment left.
    if let Some(session) = cut_short {
        record::end_at_once(&session, args.dry_run, &Ok(report)).await;
    }
    Ok(ended)
}

/// Lets the stop file and the maximum duration end the run, and the pause file hold it back.
///
/// Errors: the stop file is there already.
pub(super) fn with_ends(mut session: Session, args: &SweepArgs) -> Result<Session, Failure> {
    if let Some(why) = args.stop_file.as_deref().and_then(|path| stop::find_file("stop", path)) {
        let failure = Failure::cannot_run(format!("{why}; nothing was contacted")).exit_code(exit::LIMIT);
        return Err(failure.hint("remove it to let runs begin again"));
    }
    let end = args.max_duration.or(session.policy.run.max_duration).and_then(|most| session.begun.checked_add(most));
    session.stop = session.stop.with_file(args.stop_file.as_ref()).with_end(end);
    // A dry run has nothing to hold back.
    session.pause = PauseFile::watch(args.pause_file.as_ref().filter(|_| !args.dry_run));
    Ok(session)
}

/// Sweeps once, and records the run in the history if the policy has one.
pub(super) async fn sweep(session: &Session, args: &SweepArgs) -> anyhow::Result<Report> {
    let swept = match unrecorded(session, args).await {
        Err(cause) if failure::is_stop(&cause) => {
            if !session.options.quiet {
                failure::log(&cause, false);
            }
            // No rule has begun.
            Ok(cut_short::report(session, limits(session, args), args.dry_run, ""))
        }
        swept => swept,
    };
    record::end(session, args.dry_run, &swept).await;
    let Some(deployment) = session.connected.get() else { return swept };
    let swept = swept.map(|report| report.billed(deployment.units_spent()));
    if swept.is_ok() {
        deployment.clone().close().await;
    }
    swept
}

/// Sweeps once. A dry run takes no lock: it neither waits for other runs nor keeps them waiting.
async fn unrecorded(session: &Session, args: &SweepArgs) -> anyhow::Result<Report> {
    let approval = args.plan.as_deref().map(read_plan).transpose()?;
    if let Some((approval, path)) = approval.as_ref().zip(args.plan.as_ref()) {
        session.so_far.approved(approval.reported(path.display().to_string()));
    }
    let lock_file = args.lock.as_deref().filter(|_| !args.dry_run);
    let has_leases = session.policy.lock.is_some() || session.policy.rules.iter().any(|rule| rule.family.is_some());
    if args.lock_wait.is_some() && args.lock.is_none() && !has_leases {
        let failure = Failure::usage("--lock-wait: there is no lock to wait for; nothing was contacted");
        return Err(failure.hint("name one with --lock FILE, or with `lock` in the policy").into());
    }
    let wait = LockWait { session, max: args.lock_wait };
    let _lock = match lock_file {
        Some(path) => Some(locks::take_file(path, &wait).await?),
        None => None,
    };
    let options = PlanOptions {
        as_of: args.as_of.or_else(|| approval.as_ref().map(Approval::as_of)),
        allow_clock_skew: args.allow_clock_skew,
        strict: args.strict,
        approval: approval.as_ref().map(|approval| (approval, args.max_plan_age)),
    };
    let (deployment, plan) = prepare::plan(session, &options).await?;
    let mut plan = Arc::new(plan);
    session.so_far.planned(Arc::clone(&plan), Arc::default());
    record::begin(session, args.dry_run, plan.as_of).await;
    let held = match args.dry_run {
        false => Some(HeldLeases::take(&deployment, session.policy.lock.as_ref(), &wait, &mut plan).await?),
        true => None,
    };
    let leases = held.as_ref().map(HeldLeases::leases).unwrap_or_default();
    let swept = sweep_plan(session, args, &deployment, &plan, leases).await;
    if let Some(held) = held {
        held.release().await;
    }
    let (findings, outcomes) = swept?;
    // A service that bills the count of a whole collection is asked for it only if it is recorded.
    let is_recorded = args.metrics_file.is_some() || args.listen.is_some() || session.policy.history.is_some();
    // Nor does a run that has to end wait for it.
    let count_all = is_recorded || !(deployment.facts.capabilities.request_charge || session.stop.is_asked());
    let remaining = survey::after(session, &deployment, &plan, &findings, &outcomes, count_all).await;
    let rules = plan.rules.iter().zip(&*findings).zip(outcomes.iter().zip(&remaining));
    let rules = rules.map(|((planned, findings), (outcome, remaining))| {
        let spent = deployment.units_spent_on(&planned.rule.name, &planned.namespace);
        RuleReport::of(planned, findings, outcome, remaining).billed(spent)
    });
    let record = RunRecord {
        dry_run: args.dry_run,
        as_of: Some(plan.as_of),
        server: Some(&deployment.facts),
        plan: session.so_far.plan(),
        limits: limits(session, args),
        ..session.record(ReportCommand::Sweep)
    };
    Ok(Report::new(record, rules.collect()).billed(deployment.units_spent()))
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

/// Counts, asks for confirmation on a terminal, and deletes. Returns counts and outcomes in the order of the plan.
async fn sweep_plan(
    session: &Session,
    args: &SweepArgs,
    deployment: &Deployment,
    plan: &Arc<Plan>,
    leases: Leases,
) -> anyhow::Result<(Arc<[Findings]>, Vec<RuleOutcome>)> {
    let asks = !args.dry_run && confirm::can_ask(args.yes);
    let run = limits(session, args);
    let level = if args.dry_run || asks { Level::DryRun } else { Level::Sweep };
    let holds = RunHolds::new(deployment, plan);
    let findings: Arc<[Findings]> = survey::survey(session, deployment, plan, level, run, &holds).await.into();
    session.so_far.planned(Arc::clone(plan), Arc::clone(&findings));
    let not_swept = not_swept(plan);
    let reports: Vec<RuleReport> = plan
        .rules
        .iter()
        .zip(&*findings)
        .zip(&not_swept)
        .map(|((planned, findings), outcome)| RuleReport::of(planned, findings, outcome, &Remaining::Unknown))
        .collect();
    let is_ready = |place: usize| !args.dry_run && run::ready_rule(&plan.rules[place], &findings[place]).is_some();
    reports.iter().enumerate().filter(|(place, _)| !is_ready(*place)).for_each(|(_, report)| events::rule_ended(report));
    let consent = match asks {
        true => {
            let record = RunRecord {
                as_of: Some(plan.as_of),
                server: Some(&deployment.facts),
                plan: session.so_far.plan(),
                limits: run,
                ..session.record(ReportCommand::Sweep)
            };
            let colored = session.options.color.decide(std::io::stderr().is_terminal());
            confirm::ask_to_delete(&session.stop, &Report::new(record, reports), colored).await?
        }
        false => Consent::NotAsked,
    };
    let Some(grant) = DeleteGrant::new(args.dry_run, consent) else {
        let outcomes = not_swept.into_iter().zip(&*findings);
        let outcomes: Vec<RuleOutcome> =
            outcomes.map(|(outcome, findings)| if args.dry_run { outcome } else { not_begun(outcome, findings) }).collect();
        return Ok((findings, outcomes));
    };
    let outcomes = run::sweep(session, deployment, grant, run, leases, (plan, &*findings), holds.read_so_far()).await;
    Ok((findings, outcomes))
}

/// Returns the limits of the whole run; the limits of the command line win.
fn limits(session: &Session, args: &SweepArgs) -> RunLimits {
    let of_policy = session.policy.run;
    RunLimits {
        max_deletes: args.max_deletes,
        rate: args.rate.or(of_policy.rate),
        max_duration: args.max_duration.or(of_policy.max_duration),
        ..of_policy
    }
}

/// Returns the outcome of a rule in a sweep without a question, because nothing would have been deleted: its window keeps expired
/// documents, or orphans.
fn not_begun(outcome: RuleOutcome, findings: &Findings) -> RuleOutcome {
    let has_expired = findings.decides.expired.as_ref().is_none_or(|expired| expired.count > 0);
    let has_orphans = findings.decides.orphans.as_ref().is_some_and(|orphans| orphans.old_count() > Some(0));
    match outcome {
        RuleOutcome::NotSwept { window_closed: true } if has_expired || has_orphans => {
            RuleOutcome::NotBegun(Stopped { reason: StopReason::Window, lease_lost: None })
        }
        outcome => outcome,
    }
}

/// Returns the outcomes of a plan when no rule is swept, in the order of the plan.
pub(super) fn not_swept(plan: &Plan) -> Vec<RuleOutcome> {
    let now = wall_clock().into();
    let closed = |planned: &PlannedRule| planned.rule.limits.is_window_closed(now);
    plan.rules.iter().map(|planned| RuleOutcome::NotSwept { window_closed: closed(planned) }).collect()
}
