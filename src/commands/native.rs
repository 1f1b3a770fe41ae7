//! `sweeper native`: compares the policy with the deployment's native TTL settings, and changes the settings to what the policy
//! says.

use std::io::{self, IsTerminal};
use std::time::Duration;

use tracing::warn;

use super::confirm;
use super::session::Session;
use super::session::outputs::{SingleOutput, deliver_single};
use super::session::prepare;
use crate::base::exit;
use crate::base::failure::Failure;
use crate::base::instant::Instant;
use crate::base::stop;
use crate::base::text::plural;
use crate::commands::cli::{Common, NativeApplyArgs, NativeCommand};
use crate::core::facts::Scope;
use crate::core::native::diff::{self, Difference};
use crate::core::native::notes;
use crate::core::plan::guard;
use crate::core::policy::only::Only;
use crate::core::report::native::{self, ChangeReport, ChangeStatus, NativeReport, NativeRow};
use crate::core::report::{Format, PolicyReport, SCHEMA_VERSION, ServerReport};
use crate::shell::server::Deployment;
use crate::shell::server::look::overdue;
use crate::shell::server::own::native_ttl;

/// Maximum time to wait for a change that is under way after a signal.
const MAX_LAST_WAIT: Duration = stop::MAX_TIME_TO_END;

/// Runs the command and writes its report. Returns the exit code.
pub(super) async fn command(options: &Common, command: &NativeCommand, id: &str) -> anyhow::Result<u8> {
    let output = SingleOutput::with_format(options, "native", &[Format::Table, Format::Json])?;
    let (session, output) = Session::begin_single(options, id, output)?;
    let session = &session;
    session.need_uri()?;
    if let NativeCommand::Apply(NativeApplyArgs { dry_run: false, yes: false }) = command
        && !io::stdin().is_terminal()
    {
        let failure = Failure::usage("native apply: cannot ask, because standard input is not a terminal; nothing was contacted");
        return Err(failure.hint("look with --dry-run, then pass --yes").into());
    }
    let (deployment, differences) = unless_stopped(session, look(session)).await?;
    let mut rows: Vec<NativeRow> = differences.iter().map(NativeRow::from).collect();
    let (command, dry_run, exit_code) = match command {
        NativeCommand::Diff => (native::NativeReportCommand::Diff, false, native::of_diff(&rows)),
        NativeCommand::Apply(args) => {
            unless_stopped(session, measure(&deployment, &differences, &mut rows)).await?;
            if !args.dry_run {
                apply(session, &Only(&session.options.only), &deployment, args.yes, &differences, &mut rows).await?;
            }
            (native::NativeReportCommand::Apply, args.dry_run, native::of_apply(&rows, args.dry_run))
        }
    };
    let report = NativeReport {
        schema_version: SCHEMA_VERSION,
        command,
        dry_run,
        run_id: session.id.clone(),
        started_at: Instant(session.started_at),
        exit_code: session.stop.exit_code().unwrap_or(exit_code),
        policy: PolicyReport { path: session.policy.path.clone(), sha256: session.policy.sha256.clone() },
        server: ServerReport::from(&deployment.facts),
        rows,
    };
    deployment.close().await;
    let colored = output.look(&session.options).colored;
    let text = output.json_or_text(&report, |report| native::to_text(report, colored));
    Ok(deliver_single(&session.options, output, &text, report.exit_code, &native::summary(&report))?)
}

/// Runs work that a signal may end at once, because nothing has been changed yet.
async fn unless_stopped<T>(session: &Session, work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    session.stop.or_fail("nothing was changed", work).await
}

async fn look(session: &Session) -> Result<(Deployment, Vec<Difference>), Failure> {
    let only = Only(&session.options.only);
    only.rules(&session.policy)?;
    let mut deployment = prepare::connect(session, "nothing was changed").await?;
    prepare::find_part(&mut deployment, "nothing was changed").await?;
    deployment.facts.ttl_monitor = overdue::monitor(&deployment).await;
    if let Some(why) = deployment.facts.ttl_monitor.why_off() {
        warn!("{why}: no TTL setting of this server deletes anything");
    }
    let differences = compare(session, &only, &deployment).await?;
    if differences.is_empty() { Err(only.nothing_selected(&session.policy).into()) } else { Ok((deployment, differences)) }
}

async fn compare(session: &Session, only: &Only<'_>, deployment: &Deployment) -> Result<Vec<Difference>, Failure> {
    let patterns: Vec<_> = session.policy.rules.iter().map(|rule| &rule.namespace).collect();
    let catalog = prepare::whole_catalog(deployment, &patterns, "nothing was changed").await?;
    // All rules take part: a setting is extra only if none of them corresponds to it.
    let rules: Vec<_> = session.policy.rules.iter().collect();
    let mut differences = diff::diff(&rules, &catalog, deployment.facts.wire_version, deployment.facts.capabilities.plain_to_ttl);
    diff::note(&mut differences, &catalog, &deployment.facts);
    differences.retain(|difference| only.selects(difference.rule.as_ref(), &difference.namespace));
    Ok(differences)
}

/// Counts the documents that each change would delete at once. A change that cannot be counted, or deletes more than its rule
/// allows, is not made. None is made on a server that is connected to without the rest of its deployment.
async fn measure(deployment: &Deployment, differences: &[Difference], rows: &mut [NativeRow]) -> Result<(), Failure> {
    for (difference, row) in differences.iter().zip(rows) {
        let (Some(change), Some(target), Some(rule)) = (&difference.change, &difference.target, &difference.rule) else {
            continue;
        };
        let namespace = &difference.namespace;
        let charged = deployment.charged_within(&rule.name, namespace, rule.limits.max_request_units);
        let counted = native_ttl::affected(&charged, namespace, target).await;
        let (status, error) = match &counted {
            Err(cause) => {
                let why = format!("counting expired documents: {cause}; nothing was changed there");
                (ChangeStatus::Failed, Some(why))
            }
            Ok(_) if deployment.facts.role.detached().is_some() => {
                (ChangeStatus::Refused, deployment.facts.role.detached().map(str::to_owned))
            }
            Ok(counted) => {
                match counted.and_then(|affected| {
                    guard::share(rule.limits.max_delete_percent, affected.expired, affected.documents, guard::DOCUMENT)
                }) {
                    Some(refusal) => (ChangeStatus::Refused, Some(refusal.detail)),
                    None if target.scope == Scope::LastChange
                        && target.seconds.is_some()
                        && rule.limits.max_delete_percent.is_some() =>
                    {
                        let why = "`maxDeletePercent` cannot be checked, because `_ts` is not visible; leave it out of this rule";
                        (ChangeStatus::Refused, Some(why.to_owned()))
                    }
                    None => (ChangeStatus::Planned, None),
                }
            }
        };
        let counted = counted.ok().flatten();
        row.change = Some(ChangeReport {
            command: change.shell(),
            notes: notes::notes(change, difference.native.as_ref(), target),
            expired_count: counted.map(|affected| affected.expired),
            document_count: counted.map(|affected| affected.documents),
            status,
            error,
        });
    }
    Ok(())
}

/// Makes the changes that no guard refuses, until a signal comes. Asks first, unless `yes`.
async fn apply(
    session: &Session,
    only: &Only<'_>,
    deployment: &Deployment,
    yes: bool,
    differences: &[Difference],
    rows: &mut [NativeRow],
) -> anyhow::Result<()> {
    let is_ready = |row: &&NativeRow| row.change.as_ref().is_some_and(|change| change.status == ChangeStatus::Planned);
    let ready: Vec<NativeRow> = rows.iter().filter(is_ready).cloned().collect();
    if ready.is_empty() {
        return Ok(());
    }
    if !yes {
        let question = format!("apply {}?", plural(ready.len() as u64, "change"));
        let shown = native::rows(&ready, session.options.color.decide(io::stderr().is_terminal()));
        confirm::ask(&session.stop, &shown, &shown, &question, "nothing was changed").await?;
    }
    // Counting and asking take time. The index may have been replaced by one that must never get this change: a collMod of a
    // wildcard index crashes mongod 7.0.
    let now = unless_stopped(session, compare(session, only, deployment)).await?;
    if !now.iter().map(|difference| &difference.change).eq(differences.iter().map(|difference| &difference.change)) {
        let failure = Failure::cannot_run("the deployment changed after it was shown; nothing was changed");
        return Err(Failure { exit_code: exit::REFUSED, ..failure }.hint("look again").into());
    }
    for (difference, row) in differences.iter().zip(rows) {
        let (Some(change), Some(report)) = (&difference.change, &mut row.change) else { continue };
        if session.stop.is_asked() || report.status != ChangeStatus::Planned {
            continue;
        }
        // A signal lets a change come to its end, unless its end is not in sight: an index on a large collection takes hours.
        let applied = tokio::select! {
            biased;
            applied = native_ttl::apply(deployment, change) => applied,
            () = session.stop.asked_for(MAX_LAST_WAIT) => Err(format!(
                "no answer within {} s after the signal, so it is unknown whether it was changed: see `sweeper native diff`",
                MAX_LAST_WAIT.as_secs()
            )),
        };
        match applied {
            Ok(()) => report.status = ChangeStatus::Applied,
            Err(why) => {
                report.status = ChangeStatus::Failed;
                report.error = Some(why);
            }
        }
    }
    Ok(())
}
