//! `sweeper audit`: a dry run with the figures that a person wants to see before the first sweep. Reads only.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::shell::server::wire::error::{Result, ServerError};

use super::session::Session;
use super::session::outputs;
use super::session::prepare::{self, PlanOptions};
use super::survey::estimates::Estimates;
use super::survey::fields;
use super::survey::holds::{self, RunHolds};
use super::survey::orders;
use super::survey::orphans;
use super::survey::{for_search_guard, for_share_guard};
use super::sweep::not_swept;
use crate::base::instant::millis;
use crate::base::progress::audit::AuditProgress;
use crate::base::text::duration;
use crate::commands::cli::{AuditArgs, Common, ReadFrom};
use crate::core::audit::figures::{AuditReport, Examined, NativeComparison, NativeTrouble, PARENT_FIELD};
use crate::core::audit::{doubts, sample_rate, troubles};
use crate::core::facts::{Catalog, Collection, Scope};
use crate::core::native::diff::{self, Difference};
use crate::core::native::verdict;
use crate::core::plan::estimate::RunCaps;
use crate::core::plan::findings::{CountObstacle, Counts, Expired, Remaining};
use crate::core::plan::verdict::not_begun;
use crate::core::plan::{self, Family, Plan, PlannedRule, StopReason, SweepRule};
use crate::core::policy::RunLimits;
use crate::core::policy::only::Only;
use crate::core::report::{Report, ReportCommand, RuleReport, RunRecord};
use crate::shell::server::look::{audit as ask, children, count, overdue};
use crate::shell::server::wire::codes;
use crate::shell::server::wire::transport::ReadPreference;
use crate::shell::server::{Deployment, ReadOptions};

/// Runs the command, delivers its report, and returns the exit code.
///
/// Errors: a usage error, or no connection.
pub(super) async fn command(options: &Common, args: &AuditArgs, id: &str) -> anyhow::Result<u8> {
    outputs::check_conflicts(options, None)?;
    let (session, outputs) = Session::begin(options, id)?;
    session.need_uri()?;
    let report = audit(&session, args).await?;
    let report = if args.detailed_exitcode { report.with_detailed_exit_code() } else { report };
    Ok(outputs::deliver(options, &report, outputs))
}

async fn audit(session: &Session, args: &AuditArgs) -> anyhow::Result<Report> {
    let options = PlanOptions { as_of: args.as_of, allow_clock_skew: args.allow_clock_skew, strict: args.strict, approval: None };
    let (mut deployment, plan) = prepare::plan(session, &options).await?;
    deployment.read_options = ReadOptions { preference: preference(args.read_preference), max_time: Some(args.max_time) };
    let looking = AuditProgress::new(session.show(), plan.rules.len());
    let RunLimits { rate, max_duration, .. } = session.policy.run;
    let caps = RunCaps { max_deletes: None, rate, max_duration };
    // A server that does not answer is found out by the first rule.
    let estimates = Estimates::open(session, &deployment, &plan, caps, true);
    let estimates = tokio::select! {
        estimates = estimates => estimates.ok().flatten(),
        () = session.stop.asked() => None,
    };
    let auditing = Auditing { session, deployment: &deployment, exact: args.exact, estimates, looking };
    let counts = tokio::select! {
        counts = auditing.all(&plan) => counts,
        // Never returns. A signal ends the work on each rule, and so ends `all`.
        () = auditing.looking.lines() => Vec::new(),
    };
    drop(auditing);
    let rules = plan.rules.iter().zip(counts).zip(not_swept(&plan));
    let rules = rules.map(|((planned, counts), outcome)| {
        let spent = deployment.units_spent_on(&planned.rule.name, &planned.namespace);
        RuleReport::of(planned, &counts, &outcome, &Remaining::Derived).billed(spent)
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

fn preference(from: ReadFrom) -> ReadPreference {
    match from {
        ReadFrom::Primary => ReadPreference::Primary,
        ReadFrom::PrimaryPreferred => ReadPreference::PrimaryPreferred,
        ReadFrom::Secondary => ReadPreference::Secondary,
        ReadFrom::SecondaryPreferred => ReadPreference::SecondaryPreferred,
        ReadFrom::Nearest => ReadPreference::Nearest,
    }
}

struct Auditing<'a> {
    session: &'a Session,
    deployment: &'a Deployment,
    exact: bool,
    estimates: Option<Estimates>,
    looking: AuditProgress,
}

impl Auditing<'_> {
    /// Audits the rules one after another: each may search a whole collection, and an audit is in no hurry.
    async fn all(&self, plan: &Plan) -> Vec<Counts> {
        let differences = self.native(plan);
        let mut gone: Option<String> = None;
        let mut all = Vec::new();
        let looked = fields::look(self.session, self.deployment, plan, true, |planned| planned.decision.countable()).await;
        let holds = RunHolds::new(self.deployment, plan);
        for (number, (planned, mut counts)) in plan.rules.iter().zip(looked).enumerate() {
            if let Some(rule) = planned.decision.countable().filter(|_| counts.obstacle.is_none()) {
                if let Some(why) = &gone {
                    counts.obstacle = Some(CountObstacle::Failed(not_begun(why)));
                } else {
                    let begun = Instant::now();
                    let deployment = self.deployment.of_rule(rule);
                    let read = tokio::select! {
                        read = holds.enter(rule, &mut counts) => read,
                        () = self.session.stop.asked() => None,
                    };
                    // Without its holds a rule is refused. All else that an audit tells of it is measured all the same.
                    let rule = &read.unwrap_or_else(|| holds::none(rule));
                    let one = One { auditing: self, number, planned, rule, deployment };
                    let comparison = verdict::verdict(planned, &differences, &self.deployment.facts);
                    gone = one.audit(comparison, &mut counts).await;
                    counts.duration_ms += millis(begun.elapsed());
                }
            }
            all.push(counts);
        }
        all
    }

    /// Compares the rules with the native TTL settings of the collections that the plan has seen.
    fn native(&self, plan: &Plan) -> Vec<Difference> {
        let Ok(rules) = Only(&self.session.options.only).rules(&self.session.policy) else { return Vec::new() };
        let rules: Vec<_> = rules.into_iter().filter(|rule| rule.enabled).collect();
        let seen = plan.rules.iter().filter_map(|planned| planned.collection.as_deref());
        let seen: BTreeMap<_, _> = seen.map(|collection| (&collection.namespace, collection)).collect();
        let catalog = Catalog { collections: seen.into_values().cloned().collect(), unreadable: Vec::new() };
        diff::diff(&rules, &catalog, self.deployment.facts.wire_version, self.deployment.facts.capabilities.plain_to_ttl)
    }
}

/// One rule in one namespace, while it is audited.
struct One<'a> {
    auditing: &'a Auditing<'a>,
    number: usize,
    planned: &'a PlannedRule,
    rule: &'a SweepRule,
    /// Charges its requests to the rule.
    deployment: Deployment,
}

impl One<'_> {
    /// Measures the figures, and keeps those that were measured before an error or a signal. Returns the reason if the deployment cannot be
    /// reached.
    async fn audit(&self, native_comparison: Option<NativeComparison>, counts: &mut Counts) -> Option<String> {
        let mut audit = AuditReport {
            sampling: None,
            newest_expired: None,
            age_histogram: None,
            forecast: None,
            backlog: None,
            never_expires_samples: Default::default(),
            samples: Vec::new(),
            examined: None,
            create_index: create_index(self.rule),
            native_comparison,
            ignored_ttl_count: None,
            native_troubles: None,
        };
        let measured = tokio::select! {
            measured = self.measure(counts, &mut audit) => Some(measured),
            () = self.auditing.session.stop.asked() => None,
        };
        counts.audit = Some(audit);
        match measured {
            Some(Ok(())) => None,
            Some(Err(cause)) => {
                let why = cause.to_string();
                counts.obstacle = Some(CountObstacle::Failed(format!("counting: {why}")));
                cause.is_unreachable().then_some(why)
            }
            None => {
                counts.obstacle = Some(CountObstacle::Stopped(StopReason::Interrupted));
                None
            }
        }
    }

    async fn measure(&self, counts: &mut Counts, audit: &mut AuditReport) -> Result<()> {
        let rule = self.rule;
        let selection = &rule.selection;
        let deployment = &self.deployment;
        if selection.index.is_some() {
            self.count(counts).await?;
        }
        let is_whole = self.distribute(counts, audit).await?;
        if selection.index.is_none() && (!is_whole || selection.holds.is_some()) {
            // One more pass: counts from a sample are not exact, and what is held has an age as well.
            self.count(counts).await?;
        }
        counts.held = self.figure("documents that are held", count::held(deployment, rule), counts).await?.flatten();
        self.count_documents(counts).await?;
        counts.order = orders::choose(deployment, self.planned, rule, None).await;
        if let Some(estimates) = &self.auditing.estimates {
            estimates.enter(deployment, rule, counts).await;
        }
        if let Some(family) = &rule.family {
            self.count_children(family, counts).await?;
        }
        if counts.never_expires.is_none() && !selection.is_buckets() {
            let kept = count::never_expires(deployment, rule);
            counts.never_expires = self.figure("documents that never expire", kept, counts).await?.flatten();
        }
        if let Some(never) = &mut counts.never_expires
            && !never.contains_key(PARENT_FIELD)
            && let Some(unclear) = count::of_unclear_key(deployment, rule).await?
        {
            never.insert(PARENT_FIELD.to_owned(), unclear);
        }
        if rule.expiry.ttl_field.is_some() {
            let ignored = count::ignored_ttl(deployment, rule);
            audit.ignored_ttl_count = self.figure("documents whose ttl does not count", ignored, counts).await?.flatten();
        }
        let expired_count = counts.expired.as_ref().map(|expired| expired.count);
        if expired_count != Some(0) {
            let samples = ask::samples(deployment, rule);
            audit.samples = self.figure("samples", samples, counts).await?.unwrap_or_default();
        }
        audit.examined = match (&selection.index, expired_count) {
            // A scan looks at everything.
            (None, Some(returned)) if !selection.is_buckets() => {
                Some(Examined { documents: selection.document_count, keys: 0, returned })
            }
            _ => self.figure("cost", ask::examined(deployment, selection), counts).await?.flatten(),
        };
        if let Some(collection) = self.planned.collection.as_deref() {
            audit.native_troubles = Some(self.native_troubles(collection, counts).await?);
        }
        Ok(())
    }

    /// Counts the children of the expired documents, and those whose parent is not there.
    async fn count_children(&self, family: &Family, counts: &mut Counts) -> Result<()> {
        let expired = counts.expired.as_ref().map(|expired| expired.count);
        if expired.is_some_and(|expired| expired <= children::MAX_PARENTS) {
            let asked = children::of_expired(&self.deployment, self.rule, family);
            counts.children = self.figure("children", asked, counts).await?;
        }
        let asked = orphans::of_audit(&self.deployment, self.rule, family);
        counts.orphans = self.figure("children without a parent", asked, counts).await?;
        Ok(())
    }

    /// Returns the native settings of the collection that are set and do not do their work.
    async fn native_troubles(&self, collection: &Collection, counts: &mut Counts) -> Result<Vec<NativeTrouble>> {
        let deployment = &self.deployment;
        let mut troubles = Vec::new();
        for ttl in collection.ttl().iter().filter(|ttl| ttl.scope != Scope::LastChange) {
            let found = match ttl.deletes_after() {
                Ok(setting) => {
                    let asked = overdue::overdue(deployment, collection, ttl, setting);
                    self.figure("documents overdue by native TTL", asked, counts).await?.flatten()
                }
                Err(_) => None,
            };
            let idle = ttl.idle(collection, &deployment.facts);
            let idle = idle.or_else(|| troubles::of_count(found.as_ref()?, ttl, self.rule.selection.document_count));
            troubles.extend(idle.map(|idle| troubles::trouble(ttl, idle, found.as_ref())));
        }
        Ok(troubles)
    }

    /// Counts the documents of the collection, where a guard compares their number.
    async fn count_documents(&self, counts: &mut Counts) -> Result<()> {
        let known =
            self.figure("documents", for_search_guard(&self.deployment, self.planned, self.rule), counts).await?.flatten();
        counts.documents = known;
        if let Some(Expired { count, .. }) = counts.expired {
            let asked = for_share_guard(&self.deployment, self.rule, count, known);
            counts.documents = self.figure("documents", asked, counts).await?.flatten().or(known);
        }
        Ok(())
    }

    /// Counts the expired documents, as a dry run does.
    async fn count(&self, counts: &mut Counts) -> Result<()> {
        let expired = count::expired_and_forecast(&self.deployment, self.rule, None);
        self.look("expired documents");
        match expired.await {
            Ok((expired, forecast)) => {
                (counts.expired, counts.forecast) = (Some(expired), forecast);
                Ok(())
            }
            Err(cause) => self.out_of_time("expired documents", cause, counts),
        }
    }

    /// Sorts all documents, or those of a sample, into classes. Returns true if all were looked at; without an index the expired documents
    /// are then counted as well.
    async fn distribute(&self, counts: &mut Counts, audit: &mut AuditReport) -> Result<bool> {
        let SweepRule { selection, expiry, .. } = self.rule;
        let deployment = &self.deployment;
        if deployment.facts.capabilities.request_charge && !self.auditing.exact {
            let why = "the ages of the documents are left out: this service bills every document that is looked at; `--exact` asks for them";
            counts.warnings.push(why.to_owned());
            return Ok(false);
        }
        let all = self.auditing.exact || !deployment.facts.capabilities.sample_rate;
        let sample = sample_rate(selection.document_count, all);
        let asked = ask::distribution(deployment, self.rule, sample);
        let Some((found, drawn)) = self.figure("ages of the documents", asked, counts).await? else { return Ok(false) };
        let sampled = drawn.map(|drawn| (drawn, selection.document_count));
        found.enter(expiry, selection.is_buckets(), sampled, audit);
        // All buckets have dates, so reasons for a bucket never to expire are not looked for.
        counts.never_expires = (!selection.is_buckets()).then(|| found.never_expires(sampled));
        counts.warnings.extend(doubts::doubts(expiry, &found, drawn.is_some()));
        if drawn.is_none() && selection.index.is_none() && selection.holds.is_none() {
            counts.expired = Some(Expired {
                count: found.expired(),
                is_complete: true,
                oldest: found.oldest,
                measurements: found.measurements,
            });
        }
        Ok(drawn.is_none())
    }

    /// Measures a figure other than the count. If that fails, the audit warns and goes on without it.
    async fn figure<T>(&self, what: &str, asked: impl Future<Output = Result<T>>, counts: &mut Counts) -> Result<Option<T>> {
        self.look(what);
        match asked.await {
            Ok(found) => Ok(Some(found)),
            Err(cause) if cause.has_code(codes::MAX_TIME_MS_EXPIRED) => self.out_of_time(what, cause, counts).map(|()| None),
            Err(cause) if cause.is_unreachable() => Err(cause),
            Err(cause) => {
                counts.warnings.push(format!("{what}: not measured: {cause}"));
                Ok(None)
            }
        }
    }

    /// Warns that a figure was not measured within the time limit.
    ///
    /// Errors: any error other than an exceeded time limit.
    fn out_of_time(&self, what: &str, cause: ServerError, counts: &mut Counts) -> Result<()> {
        if !cause.has_code(codes::MAX_TIME_MS_EXPIRED) {
            return Err(cause);
        }
        let most = self.deployment.read_options.max_time.map_or(0, millis);
        counts.warnings.push(format!("{what}: not measured: it took longer than {}; `--max-time` allows more", duration(most)));
        Ok(())
    }

    fn look(&self, what: &str) {
        self.auditing.looking.at(self.number, &self.rule.namespace.to_string(), what);
    }
}

/// Returns the command that creates an index on the rule's field, if none serves it.
fn create_index(rule: &SweepRule) -> Option<String> {
    let SweepRule { selection, expiry, namespace, .. } = rule;
    let serves = selection.index.as_ref().is_some_and(|index| index.bounded);
    // No index serves dates in strings. Buckets, and documents whose `_id` is the date, are found by their `_id`.
    let has_order = expiry.format.is_sorted_by_index();
    if serves || !has_order || selection.is_buckets() || expiry.field == "_id" {
        return None;
    }
    Some(plan::create_index(namespace, &expiry.field))
}
