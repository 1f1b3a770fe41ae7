//! The figures that only an audit measures.

use super::one::One;
use crate::base::progress::audit::AuditProgress;
use crate::core::audit::figures::{AuditReport, Examined, NativeTrouble};
use crate::core::audit::{doubts, sample_rate, troubles};
use crate::core::facts::{Collection, Scope, ServerFacts};
use crate::core::native::diff::Difference;
use crate::core::native::verdict;
use crate::core::plan::fields::DATES;
use crate::core::plan::findings::{Expired, Findings};
use crate::core::plan::{self, PlannedRule, SweepRule};
use crate::shell::server::look::{audit as ask, count, overdue, periods};
use crate::shell::server::wire::error::Result;

/// An audit under way.
pub(crate) struct Auditing {
    /// Whether every document is looked at, however many there are.
    pub exact: bool,
    /// The differences between the rules and the native TTL settings.
    pub differences: Vec<Difference>,
    pub looking: AuditProgress,
}

impl Auditing {
    /// Returns the figures of a rule that follow from the plan, the others yet to be measured.
    pub(super) fn begin(
        &self,
        planned: &PlannedRule,
        rule: &SweepRule,
        findings: &Findings,
        server: &ServerFacts,
    ) -> AuditReport {
        // No date would be in the index.
        let has_no_dates = findings.decides.unknown_fields.iter().any(|unknown| unknown.field.key == DATES);
        AuditReport {
            sampling: None,
            newest_expired: None,
            age_histogram: None,
            forecast: None,
            by_period: None,
            backlog: None,
            never_expires_samples: Default::default(),
            samples: Vec::new(),
            examined: None,
            create_index: create_index(rule).filter(|_| !has_no_dates),
            native_comparison: verdict::verdict(planned, &self.differences, server),
            ignored_ttl_count: None,
            native_troubles: None,
        }
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

impl One<'_> {
    /// Sorts all documents, or the documents of a sample, into classes, if this is an audit. Without an index the expired
    /// documents are counted as well, where that is exact: no sample, and no holds, because what is held has an age as well.
    pub(super) async fn look_at_ages(&self, findings: &mut Findings) -> Result<()> {
        let Some(auditing) = self.survey.level.auditing() else { return Ok(()) };
        let SweepRule { selection, expiry, .. } = self.rule;
        let deployment = &self.deployment;
        if deployment.facts.capabilities.request_charge && !auditing.exact {
            let why = "the ages of the documents are left out: this service bills every document that is looked at; `--exact` asks for them";
            findings.told.warnings.push(why.to_owned());
            return Ok(());
        }
        let all = auditing.exact || !deployment.facts.capabilities.sample_rate;
        let sample = sample_rate(selection.document_count, all);
        let (found, drawn) = if selection.periods.is_some() {
            let asked = periods::by_period(deployment, self.rule, sample);
            let by_period = self.figure("ages of the documents", asked, findings).await?.flatten();
            let Some((by_period, drawn)) = by_period else { return Ok(()) };
            if let Some(audit) = &mut findings.told.audit {
                audit.by_period = Some(by_period.periods(drawn.map(|drawn| (drawn, selection.document_count))));
            }
            (by_period.found, drawn)
        } else {
            let asked = ask::distribution(deployment, self.rule, sample);
            let Some(found) = self.figure("ages of the documents", asked, findings).await? else { return Ok(()) };
            found
        };
        let sampled = drawn.map(|drawn| (drawn, selection.document_count));
        if let Some(audit) = &mut findings.told.audit {
            found.enter(expiry, selection.is_buckets(), sampled, audit);
        }
        // All buckets have dates, so reasons for a bucket never to expire are not looked for.
        findings.told.never_expires = (!selection.is_buckets()).then(|| found.never_expires(sampled));
        let is_told = findings.decides.unknown_fields.iter().any(|unknown| unknown.field.is_of_dates());
        findings.told.warnings.extend(doubts::doubts(expiry, &found, drawn.is_some(), is_told));
        if drawn.is_none() && selection.index.is_none() && !selection.has_keys() {
            findings.decides.expired = Some(Expired {
                count: found.expired(),
                is_complete: true,
                oldest: found.oldest,
                measurements: found.measurements,
            });
        }
        Ok(())
    }

    /// Measures what an audit tells besides.
    pub(super) async fn audit(&self, findings: &mut Findings) -> Result<()> {
        let Self { rule, deployment, .. } = self;
        let selection = &rule.selection;
        let ignored = count::ignored_ttl(deployment, rule);
        let ignored = self.figure("documents whose ttl does not count", ignored, findings).await?.flatten();
        let expired = findings.decides.expired.as_ref().map(|expired| expired.count);
        let samples = match expired {
            Some(0) => Vec::new(),
            _ => self.figure("samples", ask::samples(deployment, rule), findings).await?.unwrap_or_default(),
        };
        let examined = match (&selection.index, expired) {
            // A scan looks at everything.
            (None, Some(returned)) if !selection.is_buckets() => {
                Some(Examined { documents: selection.document_count, keys: 0, returned })
            }
            _ => self.figure("cost", ask::examined(deployment, selection), findings).await?.flatten(),
        };
        let troubles = match self.planned.collection.as_deref() {
            Some(collection) => Some(self.native_troubles(collection, findings).await?),
            None => None,
        };
        if let Some(audit) = &mut findings.told.audit {
            (audit.ignored_ttl_count, audit.samples) = (ignored, samples);
            (audit.examined, audit.native_troubles) = (examined, troubles);
        }
        Ok(())
    }

    /// Returns the native settings of the collection that are set and do not do their work.
    async fn native_troubles(&self, collection: &Collection, findings: &mut Findings) -> Result<Vec<NativeTrouble>> {
        let deployment = &self.deployment;
        let mut troubles = Vec::new();
        for ttl in collection.ttl().iter().filter(|ttl| ttl.scope != Scope::LastChange) {
            let found = match ttl.deletes_after() {
                Ok(setting) => {
                    let asked = overdue::overdue(deployment, &self.rule.selection, collection, ttl, setting);
                    self.figure("documents overdue by native TTL", asked, findings).await?.flatten()
                }
                Err(_) => None,
            };
            let idle = ttl.idle(collection, &deployment.facts);
            let idle = idle.or_else(|| troubles::of_count(found.as_ref()?, ttl, self.rule.selection.document_count));
            troubles.extend(idle.map(|idle| troubles::trouble(ttl, idle, found.as_ref())));
        }
        Ok(troubles)
    }
}
