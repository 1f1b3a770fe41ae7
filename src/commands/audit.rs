//! `sweeper audit`: a dry run with everything a person wants to see before. Reads only.

use std::collections::BTreeMap;
use std::time::Instant;

use crate::server::error::{Result, ServerError as Error};

use super::Run;
use super::measure::{begin, not_begun, refuse};
use super::prepare::{self, At};
use super::sweep::{note_closed_windows, show};
use crate::audit::{doubts, sample_rate};
use crate::cli::{AuditArgs, Common, ReadFrom};
use crate::facts::Catalog;
use crate::instant::{millis, rfc3339};
use crate::native::diff::{self, Difference};
use crate::native::verdict;
use crate::plan::{self, Plan, SweepRule, guard};
use crate::policy::only::Only;
use crate::progress::AuditProgress;
use crate::report::audit::{AuditReport, Examined, NativeComparison};
use crate::report::{Command, Report, RuleReport, RunRecord, Status};
use crate::server::transport::ReadPreference;
use crate::server::{Deployment, ReadOptions, audit as ask, codes, count, error};
use crate::sweep::StopReason;
use crate::text::duration;

pub async fn audit(run: &Run, common: &Common, args: &AuditArgs, uri: &str) -> anyhow::Result<Report> {
    let at = At { as_of: args.as_of, allow_clock_skew: args.allow_clock_skew, approval: None };
    let (mut deployment, plan) = prepare::prepare(run, common, &at, uri).await?;
    deployment.read_options = ReadOptions { preference: preference(args.read_preference), max_time: Some(args.max_time) };
    let looking = AuditProgress::new(show(common), plan.rules.len());
    let auditing = Auditing { run, common, deployment: &deployment, exact: args.exact, looking };
    let mut reports = tokio::select! {
        reports = auditing.all(&plan) => reports,
        // A signal ends the work on a rule, and by that this.
        () = auditing.looking.lines() => Vec::new(),
    };
    drop(auditing);
    note_closed_windows(&plan, &mut reports);
    let record =
        RunRecord { dry_run: true, as_of: Some(plan.as_of), server: Some(&deployment.facts), ..run.record(Command::Audit) };
    let report = Report::new(record, reports);
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
    run: &'a Run,
    common: &'a Common,
    deployment: &'a Deployment,
    exact: bool,
    looking: AuditProgress,
}

impl Auditing<'_> {
    /// One rule after another: each may go through a whole collection, and an audit is in no hurry.
    async fn all(&self, plan: &Plan) -> Vec<RuleReport> {
        let differences = self.native(plan);
        let mut gone: Option<String> = None;
        let mut reports = Vec::new();
        for (number, planned) in plan.rules.iter().enumerate() {
            let mut report = begin(planned);
            if let Some(rule) = planned.decision.countable() {
                if let Some(why) = &gone {
                    not_begun(&mut report, why);
                } else {
                    let begun = Instant::now();
                    let one = One { auditing: self, number, rule };
                    gone = one.audit(verdict::verdict(planned, &differences), &mut report).await;
                    report.duration_ms = millis(begun.elapsed());
                }
            }
            reports.push(report);
        }
        reports
    }

    /// Compares the rules with the native TTL settings of the collections that the plan has seen.
    fn native(&self, plan: &Plan) -> Vec<Difference> {
        let Ok(rules) = Only(&self.common.only).rules(&self.run.policy) else { return Vec::new() };
        let rules: Vec<_> = rules.into_iter().filter(|rule| rule.enabled).collect();
        let seen = plan.rules.iter().filter_map(|planned| planned.collection.as_deref());
        let seen: BTreeMap<_, _> = seen.map(|collection| (&collection.namespace, collection)).collect();
        let catalog = Catalog { collections: seen.into_values().cloned().collect(), unreadable: Vec::new() };
        diff::diff(&rules, &catalog, self.deployment.facts.wire_version)
    }
}

/// One rule in one namespace, while it is looked at.
struct One<'a> {
    auditing: &'a Auditing<'a>,
    number: usize,
    rule: &'a SweepRule,
}

impl One<'_> {
    /// Measures everything and enters it into the report. Gives why no server is left, where that was found out.
    async fn audit(&self, native_comparison: Option<NativeComparison>, report: &mut RuleReport) -> Option<String> {
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
        };
        let measured = tokio::select! {
            measured = self.measure(report, &mut audit) => Some(measured),
            () = self.auditing.run.stop.asked() => None,
        };
        report.audit = Some(audit);
        match measured {
            Some(Ok(())) => None,
            Some(Err(cause)) => {
                let why = error::explain(&cause);
                report.status = Status::Failed;
                report.reason = None;
                report.error = Some(format!("counting: {why}; nothing was deleted there"));
                error::is_unreachable(&cause).then_some(why)
            }
            None => {
                report.status = Status::Partial;
                report.reason = Some(StopReason::Interrupted.word().to_owned());
                None
            }
        }
    }

    async fn measure(&self, report: &mut RuleReport, audit: &mut AuditReport) -> Result<()> {
        let rule = self.rule;
        let selection = &rule.selection;
        let deployment = self.auditing.deployment;
        if selection.index.is_some() {
            self.count(report).await?;
        }
        let is_whole = self.distribute(report, audit).await?;
        if selection.index.is_none() && !is_whole {
            // One pass more: a sample says nothing exact.
            self.count(report).await?;
        }
        if report.never_expires.is_none() && !selection.is_buckets() {
            let kept = count::never_expires(deployment, rule);
            report.never_expires = self.beside("documents that never expire", kept, report).await?.flatten();
        }
        if report.expired_count != Some(0) {
            let samples = ask::samples(deployment, rule);
            audit.samples = self.beside("samples", samples, report).await?.unwrap_or_default();
        }
        audit.examined = match (&selection.index, report.expired_count, report.document_count) {
            // A scan looks at everything.
            (None, Some(returned), Some(documents)) if !selection.is_buckets() => Some(Examined { documents, keys: 0, returned }),
            _ => self.beside("cost", ask::examined(deployment, selection), report).await?.flatten(),
        };
        Ok(())
    }

    /// Counts what has expired, as a dry run does.
    async fn count(&self, report: &mut RuleReport) -> Result<()> {
        let expired = count::expired(self.auditing.deployment, self.rule);
        self.look("expired documents");
        match expired.await {
            Ok(expired) => {
                self.enter_expired(expired, report);
                Ok(())
            }
            Err(cause) => self.out_of_time("expired documents", cause, report),
        }
    }

    fn enter_expired(&self, expired: count::Expired, report: &mut RuleReport) {
        report.set_expired(expired.count, self.rule.selection.average_bytes);
        report.oldest_expired = expired.oldest.map(rfc3339);
        report.expired_measurements = expired.measurements;
        if let Some(refusal) =
            guard::share(self.rule.limits.max_delete_percent, expired.count, self.rule.selection.document_count)
            && report.status == Status::Complete
        {
            refuse(report, &refusal);
        }
    }

    /// Puts all documents into their classes, or those of a sample. Gives whether all were looked at; what has expired is then counted too.
    async fn distribute(&self, report: &mut RuleReport, audit: &mut AuditReport) -> Result<bool> {
        let SweepRule { selection, expiry, .. } = self.rule;
        let deployment = self.auditing.deployment;
        if deployment.facts.capabilities.request_charge && !self.auditing.exact {
            let why = "the ages of the documents are left out: this service bills every document that is looked at; `--exact` asks for them";
            report.warnings.push(why.to_owned());
            return Ok(false);
        }
        let all = self.auditing.exact || !deployment.facts.capabilities.sample_rate;
        let sample = sample_rate(selection.document_count, all);
        let asked = ask::distribution(deployment, self.rule, sample);
        let Some((found, drawn)) = self.beside("ages of the documents", asked, report).await? else { return Ok(false) };
        found.enter(expiry, selection.is_buckets(), drawn.map(|drawn| (drawn, selection.document_count)), report, audit);
        report.warnings.extend(doubts::doubts(expiry, &found, drawn.is_some()));
        if drawn.is_none() && selection.index.is_none() {
            let expired = count::Expired { count: found.expired(), oldest: found.oldest, measurements: found.measurements };
            self.enter_expired(expired, report);
        }
        Ok(drawn.is_none())
    }

    /// A figure beside the count: what keeps it from being measured is said, and the audit goes on without it.
    async fn beside<T>(&self, what: &str, asked: impl Future<Output = Result<T>>, report: &mut RuleReport) -> Result<Option<T>> {
        self.look(what);
        match asked.await {
            Ok(found) => Ok(Some(found)),
            Err(cause) if error::code(&cause) == Some(codes::MAX_TIME_MS_EXPIRED) => {
                self.out_of_time(what, cause, report).map(|()| None)
            }
            Err(cause) if error::is_unreachable(&cause) => Err(cause),
            Err(cause) => {
                report.warnings.push(format!("{what}: not measured: {}", error::explain(&cause)));
                Ok(None)
            }
        }
    }

    /// Errors: any other than that the time is over.
    fn out_of_time(&self, what: &str, cause: Error, report: &mut RuleReport) -> Result<()> {
        if error::code(&cause) != Some(codes::MAX_TIME_MS_EXPIRED) {
            return Err(cause);
        }
        let most = self.auditing.deployment.read_options.max_time.map_or(0, millis);
        report.warnings.push(format!("{what}: not measured: it took longer than {}; `--max-time` allows more", duration(most)));
        Ok(())
    }

    fn look(&self, what: &str) {
        self.auditing.looking.at(self.number, &self.rule.namespace.to_string(), what);
    }
}

/// The command that makes an index on the rule's field, where none serves it.
fn create_index(rule: &SweepRule) -> Option<String> {
    let SweepRule { selection, expiry, namespace, .. } = rule;
    let serves = selection.index.as_ref().is_some_and(|index| index.bounded);
    // Buckets, and documents whose `_id` is the date, are found by it.
    if serves || selection.is_buckets() || expiry.field == "_id" {
        return None;
    }
    Some(plan::create_index(namespace, &expiry.field))
}
