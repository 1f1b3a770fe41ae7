//! `sweeper reclaim`: gives the space of deleted documents back to the file system, one member at a time.

mod member;

use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};

use super::cli::{Common, ReclaimArgs};
use super::confirm;
use super::session::outputs::{SingleOutput, deliver_single};
use super::session::{Session, prepare};
use crate::base::exit;
use crate::base::failure::Failure;
use crate::base::instant::{Instant, millis};
use crate::base::stop::Stop;
use crate::base::text::{bytes, plural};
use crate::core::facts::{CollectionKind, Topology};
use crate::core::policy::Rule;
use crate::core::policy::namespace::{Namespace, NamespacePattern};
use crate::core::policy::only::Only;
use crate::core::report::reclaim::{self, MemberRole, ReclaimReport, ReclaimRow, ReclaimStatus, ReclaimTotals};
use crate::core::report::{Format, PolicyReport, SCHEMA_VERSION, ServerReport};
use crate::shell::server::Deployment;
use crate::shell::server::watch::lag::{self, SetMember};
use member::{Reclaim, ReclaimMember};

/// Lag of a member up to which the set is in step, unless a rule has a `maxLag`.
const MAX_LAG: Duration = Duration::from_secs(10);

const NOTHING: &str = "nothing was compacted";

/// Runs the command and writes its report. Returns the exit code.
pub(super) async fn command(options: &Common, args: &ReclaimArgs, id: &str) -> anyhow::Result<u8> {
    let output = SingleOutput::with_format(options, "reclaim", &[Format::Table, Format::Json])?;
    let (session, output) = Session::begin_single(options, id, output)?;
    session.need_uri()?;
    let stop = session.stop.with_end(args.max_duration.map(|max| session.begun + max));
    let (set, namespaces, members) = stop.or_fail(NOTHING, look(&session)).await?;
    let max_lag = session.policy.rules.iter().filter_map(|rule| rule.limits.max_lag).min().unwrap_or(MAX_LAG);
    let reclaim = Reclaim { stop: &stop, set: &set, members: &members, max_lag, primary: args.primary };
    let places = || members.iter().flat_map(|member| namespaces.iter().map(move |namespace| (member, namespace)));
    let measured = stream::iter(places()).then(|(member, namespace)| reclaim.measure(member, namespace));
    let mut rows: Vec<ReclaimRow> = stop.or_fail::<_, Failure>(NOTHING, measured.map(Ok).try_collect()).await?;
    if !args.dry_run && rows.iter().any(|row| row.status == ReclaimStatus::Planned) {
        if confirm::can_ask(args.yes) {
            ask(&session, &stop, &rows).await?;
        }
        for ((member, namespace), row) in places().zip(&mut rows) {
            reclaim.compact(member, namespace, row).await;
        }
    }
    let report = ReclaimReport {
        schema_version: SCHEMA_VERSION,
        command: "reclaim",
        dry_run: args.dry_run,
        run_id: session.id.clone(),
        started_at: Instant(session.started_at),
        duration_ms: millis(session.begun.elapsed()),
        exit_code: reclaim::exit_code(&rows, stopped(&stop)),
        policy: PolicyReport { path: session.policy.path.clone(), sha256: session.policy.sha256.clone() },
        server: ServerReport::from(&set.facts),
        totals: ReclaimTotals::of(&rows),
        rows,
    };
    set.close().await;
    ReclaimMember::close_all(members).await;
    let colored = output.look(&session.options).colored;
    let text = output.json_or_text(&report, |report| reclaim::to_text(report, colored));
    Ok(deliver_single(&session.options, output, &text, report.exit_code, &reclaim::summary(&report))?)
}

/// Returns the exit code of a run that was asked to stop.
fn stopped(stop: &Stop) -> Option<u8> {
    stop.is_asked().then(|| stop.exit_code().unwrap_or(exit::LIMIT))
}

/// Shows what each member would give back, and asks.
async fn ask(session: &Session, stop: &Stop, rows: &[ReclaimRow]) -> anyhow::Result<()> {
    let planned = || rows.iter().filter(|row| row.status == ReclaimStatus::Planned);
    let members: BTreeSet<&str> = planned().map(|row| row.member.as_str()).collect();
    let space = bytes(planned().filter_map(|row| row.reclaimable_bytes).sum());
    let question = format!("compact, to give back {space} on {}?", plural(members.len() as u64, "member"));
    let shown = reclaim::rows(rows, session.options.color.decide(io::stderr().is_terminal()));
    confirm::ask(stop, &shown, &shown, &question, NOTHING).await
}

/// Connects, and finds the namespaces and the members, in the order in which these are compacted.
///
/// Errors: no connection, a deployment that is not compacted, or nothing that the policy names.
async fn look(session: &Session) -> Result<(Deployment, Vec<Namespace>, Vec<ReclaimMember>), Failure> {
    let only = Only(&session.options.only);
    let rules = only.rules(&session.policy)?;
    let set = prepare::connect(session, NOTHING).await?;
    if let Some(why) = unserved(&set) {
        return Err(Failure::cannot_run(format!("{why}; {NOTHING}")).exit_code(exit::REFUSED));
    }
    let namespaces = namespaces(&set, &rules, &only).await?;
    if namespaces.is_empty() {
        return Err(only.nothing_selected(&session.policy).into());
    }
    let members = ReclaimMember::connect_all(session, members(&set).await?).await;
    Ok((set, namespaces, members))
}

/// Returns the names and roles of the members, the primary last.
///
/// Errors: the set does not show them.
async fn members(set: &Deployment) -> Result<Vec<(String, MemberRole)>, Failure> {
    if set.facts.topology == Topology::Standalone {
        return Ok(vec![(set.facts.hosts.first().cloned().unwrap_or_default(), MemberRole::Standalone)]);
    }
    let members = lag::members(set).await.map_err(|cause| {
        let failure = Failure::cannot_run(format!("looking at the members of the replica set: {cause}; {NOTHING}"));
        match cause.is_unauthorized() {
            true => {
                failure.hint("grant the role `clusterMonitor`: no member is compacted unless the others are seen to be in step")
            }
            false => failure,
        }
    })?;
    let role = |member: &SetMember| if member.is_primary { MemberRole::Primary } else { MemberRole::Secondary };
    let mut members: Vec<_> = members.iter().map(|member| (member.name.clone(), role(member))).collect();
    members.sort_by_key(|(_, role)| *role == MemberRole::Primary);
    Ok(members)
}

/// Returns the reason why a deployment is not compacted; `None` if it can be.
fn unserved(set: &Deployment) -> Option<String> {
    if !set.facts.capabilities.compacts {
        let product = set.facts.flavor.product();
        return Some(format!("{product} has no `compact` that gives space back: the service manages its storage itself"));
    }
    (set.facts.topology == Topology::Sharded).then(|| {
        "mongos does not compact: expected a connection string of the replica set of a shard; run it for each shard".to_owned()
    })
}

/// Returns the collections that the rules delete from, and those of their children.
async fn namespaces(set: &Deployment, rules: &[&Rule], only: &Only<'_>) -> Result<Vec<Namespace>, Failure> {
    let enabled = || rules.iter().filter(|rule| rule.enabled);
    let children = enabled().filter_map(|rule| rule.family.as_ref()).flat_map(|family| &family.children);
    let children: Vec<NamespacePattern> = children.map(|child| NamespacePattern::from(&child.namespace)).collect();
    let patterns: Vec<&NamespacePattern> = enabled().map(|rule| &rule.namespace).chain(&children).collect();
    let catalog = prepare::whole_catalog(set, &patterns, NOTHING).await?;
    let is_swept = |namespace: &Namespace| {
        let by_rule = enabled().any(|rule| rule.stands_for(namespace) && only.selects(Some(rule), namespace));
        by_rule || children.iter().any(|pattern| pattern.matches(namespace))
    };
    let collections = catalog.collections.iter().filter(|collection| collection.kind != CollectionKind::View);
    Ok(collections.filter(|collection| is_swept(&collection.namespace)).map(|collection| collection.storage()).collect())
}
