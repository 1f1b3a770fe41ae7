//! The look at one rule in one namespace.

use super::{Level, Survey, orders, orphans};
use crate::base::instant::millis;
use crate::base::machine::wall_clock;
use crate::base::text::{duration, plural};
use crate::core::audit::figures::PARENT_FIELD;
use crate::core::plan::findings::{CountedDocuments, Expired, Findings};
use crate::core::plan::verdict::Verdict;
use crate::core::plan::{PlannedRule, SweepRule, guard};
use crate::shell::server::Deployment;
use crate::shell::server::look::{children, count, figures};
use crate::shell::server::wire::codes;
use crate::shell::server::wire::error::Result;

/// One rule in one namespace, while it is looked at.
pub(super) struct One<'a> {
    pub survey: &'a Survey<'a>,
    /// Place of the rule in the plan.
    pub number: usize,
    pub planned: &'a PlannedRule,
    /// The rule with the keys that are held.
    pub rule: &'a SweepRule,
    /// Charges its requests to the rule.
    pub deployment: Deployment,
}

impl One<'_> {
    /// Enters everything that the level of the survey has.
    ///
    /// Errors: what decides cannot be found out, or the deployment cannot be reached.
    pub(super) async fn measure(&self, findings: &mut Findings) -> Result<()> {
        let Self { survey, planned, rule, deployment, .. } = self;
        let level = survey.level;
        findings.told.audit = level.auditing().map(|auditing| auditing.begin(planned, rule, findings, &deployment.facts));
        if level.is_over(planned, findings) {
            return Ok(());
        }
        findings.decides.documents = self.decided("documents", self.for_search_guard(), findings).await?.flatten();
        if level.is_over(planned, findings) {
            return Ok(());
        }
        self.count(findings).await?;
        self.count_orphans(findings).await?;
        // With children there may be work that an earlier run has left.
        let is_none = findings.decides.expired.as_ref().is_some_and(|expired| expired.is_complete && expired.count == 0);
        findings.goes_by.nothing_expired = rule.family.is_none() && is_none;
        if matches!(level, Level::Sweep) && findings.goes_by.nothing_expired && rule.limits.min_oplog_window.is_none() {
            return Ok(());
        }
        if !matches!(level, Level::Why) {
            let SweepRule { namespace, selection, .. } = rule;
            findings.goes_by.size = figures::size(deployment, namespace, selection.document_count).await?;
        }
        let rule = &findings.goes_by.sized(rule);
        if !matches!(level, Level::Why) {
            findings.goes_by.order = orders::choose(deployment, planned, rule, survey.run.oldest_first()).await;
        }
        let mut ids = Vec::new();
        if let Some(estimates) = &survey.estimates {
            ids = estimates.decide(deployment, rule, findings).await;
        }
        if level.counts_all() {
            let children = self.tell(findings).await?;
            // Nothing goes by a rule that is refused.
            if let Some(estimates) = survey.estimates.as_ref().filter(|_| Verdict::before(planned, &findings.decides).is_none()) {
                estimates.enter(deployment, rule, &ids, children.as_deref(), findings).await;
            }
        }
        if level.auditing().is_some() {
            self.audit(findings).await?;
        }
        Ok(())
    }

    /// Counts the expired documents where they are told or a guard compares them, and the documents of the collection with them.
    async fn count(&self, findings: &mut Findings) -> Result<()> {
        let Self { rule, deployment, .. } = self;
        let (level, counts_all) = (self.survey.level, self.survey.level.counts_all());
        let is_compared = rule.limits.max_delete_percent.is_some() || rule.approved.is_some();
        if level.only_judges() {
            return Ok(());
        }
        if !(counts_all || is_compared) {
            self.look_for_one(findings).await;
            return Ok(());
        }
        if rule.selection.index.is_none() {
            // The look at all ages counts the expired documents as well: one pass instead of two.
            self.look_at_ages(findings).await?;
        }
        if findings.decides.expired.is_none() {
            // The guard objects to any number from this one on.
            let enough = rule.limits.max_delete_percent.filter(|_| !counts_all && rule.approved.is_none());
            let enough = enough.map(|percent| (percent / 100.0 * rule.selection.document_count as f64) as u64 + 1);
            let asked = count::expired_and_forecast(deployment, rule, enough);
            let Some((expired, forecast)) = self.decided("expired documents", asked, findings).await? else { return Ok(()) };
            (findings.decides.expired, findings.told.forecast) = (Some(expired), forecast);
        }
        if let Some(expired) = &findings.decides.expired {
            let known = findings.decides.documents;
            let asked = self.for_share_guard(expired.count, known);
            findings.decides.documents = self.decided("documents", asked, findings).await?.flatten().or(known);
        }
        Ok(())
    }

    /// Looks for one expired document, where no number of them is needed. Where requests are billed, a sweep finds and deletes
    /// in one command.
    async fn look_for_one(&self, findings: &mut Findings) {
        let Self { rule, deployment, .. } = self;
        if rule.family.is_some()
            || deployment.facts.capabilities.request_charge
            || rule.limits.is_window_closed(wall_clock().into())
        {
            return;
        }
        if count::has_some(deployment, &rule.selection).await == Some(false) {
            findings.decides.expired = Some(Expired { count: 0, is_complete: true, oldest: None, measurements: None });
        }
    }

    /// Counts the orphans. Where the rule does not delete them, their number is only told; a check only says that there is no
    /// parent.
    async fn count_orphans(&self, findings: &mut Findings) -> Result<()> {
        if let Level::Check(_) = self.survey.level {
            findings.told.warnings.extend(orphans::without_parents(&self.deployment, self.rule).await);
        }
        if self.survey.level.only_judges() {
            return Ok(());
        }
        let what = "children without a parent";
        let asked = orphans::count(&self.deployment, self.rule, self.survey.level);
        let counted = match self.rule.family.as_ref().and_then(|family| family.orphans.as_ref()) {
            Some(_) => self.decided(what, asked, findings).await?,
            None => self.figure(what, asked, findings).await?,
        };
        findings.decides.orphans = counted.flatten();
        Ok(())
    }

    /// Counts what a dry run tells besides. Returns the children of the expired documents by collection, if they were counted.
    async fn tell(&self, findings: &mut Findings) -> Result<Option<Vec<u64>>> {
        let Self { rule, deployment, .. } = self;
        if rule.selection.index.is_some() {
            self.look_at_ages(findings).await?;
        }
        findings.told.held = self.figure("documents that are held", count::held(deployment, rule), findings).await?.flatten();
        let unclear = count::unclear_periods(deployment, rule);
        findings.told.unclear_periods = self.figure("documents whose period is unclear", unclear, findings).await?.flatten();
        if findings.told.never_expires.is_none() {
            let kept = count::never_expires(deployment, rule);
            findings.told.never_expires = self.figure("documents that never expire", kept, findings).await?.flatten();
        }
        if findings.told.never_expires.as_ref().is_some_and(|never| !never.contains_key(PARENT_FIELD)) {
            let unclear = count::of_unclear_key(deployment, rule);
            let unclear = self.figure("documents with an unclear key for their children", unclear, findings).await?.flatten();
            let entry = unclear.map(|unclear| (PARENT_FIELD.to_owned(), unclear));
            findings.told.never_expires.iter_mut().for_each(|never| never.extend(entry.clone()));
        }
        self.count_children(findings).await
    }

    /// Counts the children of the expired documents by collection, where there are not too many of these.
    async fn count_children(&self, findings: &mut Findings) -> Result<Option<Vec<u64>>> {
        let (Some(family), Some(expired)) = (&self.rule.family, &findings.decides.expired) else { return Ok(None) };
        if expired.count > children::MAX_PARENTS {
            let many = plural(children::MAX_PARENTS, "document");
            let why = format!("the children of the expired documents were not counted: these are more than {many}");
            findings.told.warnings.push(why);
            return Ok(None);
        }
        let asked = children::of_expired(&self.deployment, self.rule, family);
        let counts = self.figure("children", asked, findings).await?;
        findings.told.children = counts.as_ref().map(|counts| counts.iter().sum());
        Ok(counts)
    }

    /// Counts the documents of a collection that would be searched without an index, as far as the guard of large collections
    /// needs to know.
    async fn for_search_guard(&self) -> Result<Option<CountedDocuments>> {
        let SweepRule { namespace, selection, expiry, .. } = self.rule;
        let at_any_size = guard::scan(&self.planned.rule, namespace, &expiry.field, selection.index.as_ref(), u64::MAX);
        if at_any_size.is_none() || selection.is_buckets() {
            return Ok(None);
        }
        count::documents_up_to(&self.deployment, selection, guard::SCAN_GUARD_DOCUMENTS + 1).await
    }

    /// Counts the documents of the collection, as far as the guard of the share of the expired documents needs to know; `known`
    /// are those that were counted before.
    async fn for_share_guard(&self, expired_count: u64, known: Option<CountedDocuments>) -> Result<Option<CountedDocuments>> {
        match guard::enough_documents(self.rule.limits.max_delete_percent, expired_count) {
            Some(enough) if known.is_none_or(|known| !known.is_complete && known.count < enough) => {
                count::documents_up_to(&self.deployment, &self.rule.selection, enough).await
            }
            _ => Ok(known),
        }
    }

    /// Returns what decides; `None`, with a warning, if that takes longer than `--max-time`.
    async fn decided<T>(&self, what: &str, asked: impl Future<Output = Result<T>>, findings: &mut Findings) -> Result<Option<T>> {
        if let Some(auditing) = self.survey.level.auditing() {
            auditing.looking.at(self.number, &self.rule.namespace.to_string(), what);
        }
        let most = self.deployment.read_options.max_time;
        match (asked.await, most) {
            (Err(cause), Some(most)) if cause.has_code(codes::MAX_TIME_MS_EXPIRED) => {
                let most = duration(millis(most));
                let why = format!("{what}: not measured: it took longer than {most}; `--max-time` allows more");
                findings.told.warnings.push(why);
                Ok(None)
            }
            (asked, _) => asked.map(Some),
        }
    }

    /// Returns what is only told; `None`, with a warning, if that fails: a sweep does not need it.
    ///
    /// Errors: the deployment cannot be reached.
    pub(super) async fn figure<T>(
        &self,
        what: &str,
        asked: impl Future<Output = Result<T>>,
        findings: &mut Findings,
    ) -> Result<Option<T>> {
        match self.decided(what, asked, findings).await {
            Err(cause) if !cause.is_unreachable() => {
                findings.told.warnings.push(format!("{what}: not measured: {cause}"));
                Ok(None)
            }
            measured => measured,
        }
    }
}
