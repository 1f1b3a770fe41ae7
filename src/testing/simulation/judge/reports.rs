//! Judges what runs say in their reports, and what they leave.

use std::collections::BTreeSet;

use bson::{Bson, Document};

use super::{Facts, Gone, Judge, Left, NOW, Run};
use crate::core::plan::Status;
use crate::core::report::{Report, RuleReport};
use crate::testing::simulation::choices::Edition;
use crate::testing::simulation::editions::name;
use crate::testing::simulation::scenario::{LAST, SweptRule};

impl Judge {
    /// Judges a run that has ended with a report. `documents` are those that are left in a namespace.
    pub(in crate::testing::simulation) fn ended(&self, run: &str, report: &Report, documents: impl Fn(&str) -> Vec<Document>) {
        let mut facts = self.facts.lock();
        if report.rules.iter().all(|rule| !rule.uncertain) {
            facts.certain.insert(run.to_owned());
        }
        let namespaces: BTreeSet<&str> = self.scenario.rules.iter().map(|swept| swept.rule.namespace.as_str()).collect();
        for namespace in namespaces {
            let rules: Vec<_> = report.rules.iter().filter(|rule| rule.namespace == namespace).collect();
            let deleted: u64 = rules.iter().map(|rule| rule.deleted_count).sum();
            let unconfirmed: u64 = rules.iter().map(|rule| rule.unconfirmed_count.unwrap_or(0)).sum();
            let is_uncertain = rules.iter().any(|rule| rule.uncertain);
            let gone: Vec<&Gone> = facts.gone.iter().filter(|gone| gone.run == run && gone.namespace == namespace).collect();
            let all = gone.len() as u64;
            let kept = gone.iter().filter(|gone| !gone.is_taken_back).count() as u64;
            let told = || {
                format!(
                    "{run} says {deleted} deleted, {unconfirmed} of them unconfirmed, uncertain: {is_uncertain}; {all} were, {kept} of them for good"
                )
            };
            if deleted > all || deleted.saturating_sub(unconfirmed) > kept {
                self.trace.violated(|| format!("counts more than is gone: {}", told()));
            }
            if !is_uncertain && deleted != kept && unconfirmed == 0 {
                self.trace.violated(|| format!("counts wrongly: {}", told()));
            }
            facts.confirmed.push((run.to_owned(), namespace.to_owned(), deleted.saturating_sub(unconfirmed)));
        }
        self.ended_with_children(run, report, &facts, &documents);
        let as_of = report.as_of.map(|as_of| as_of.0.timestamp_millis()).unwrap_or_default();
        for gone in facts.gone.iter().filter(|gone| gone.run == run) {
            if !gone.rules.iter().any(|rule| rule.is_expired(&gone.document, as_of)) {
                self.trace.violated(|| format!("{run} deleted {}, which had not expired at its own {as_of}", gone.document));
            }
        }
        for (number, swept, ruled) in self.of_rules(report) {
            if ruled.status != Status::Complete {
                continue;
            }
            let Run { begun, begun_at, ref listed, ref edition, .. } = facts.runs[run];
            let namespace = &swept.rule.namespace;
            let goes = |document: &&Document| {
                let rule = facts.at_most(&swept.rule, document, begun_at);
                let may_go = rule.is_expired(document, as_of) && !facts.is_held(document, begun_at);
                may_go && !self.keeps(edition, number, document)
            };
            // What was there when others took the collection away was not deleted before, and could not be deleted any more.
            let is_bound = |left: &&Left| {
                let known = listed.get(namespace);
                left.namespace == *namespace && known.is_some_and(|known| known.len() == 1 && known.contains(&left.number))
            };
            let of_moved = facts.moved.iter().filter(is_bound).flat_map(|left| left.documents.clone());
            let left: Vec<Document> = documents(namespace).into_iter().chain(of_moved).collect();
            for document in left.iter().filter(goes) {
                let key = (namespace.clone(), document.get("_id").map(Bson::to_string).unwrap_or_default());
                if facts.touched.get(&key).is_none_or(|touched| *touched <= begun) {
                    self.trace.violated(|| format!("{run} says `complete` and left {document} in {namespace}"));
                }
            }
        }
    }

    /// Returns the rules of which a report tells, with their numbers.
    fn of_rules<'a>(&'a self, report: &'a Report) -> impl Iterator<Item = (usize, &'a SweptRule, &'a RuleReport)> {
        self.scenario.rules.iter().enumerate().filter_map(|(number, swept)| {
            let told = report.rules.iter().find(|rule| rule.name == name(number))?;
            Some((number, swept, told))
        })
    }

    /// Judges what a run that has ended says of children, and what it left of them.
    fn ended_with_children(&self, run: &str, report: &Report, facts: &Facts, documents: &impl Fn(&str) -> Vec<Document>) {
        let Some(family) = &facts.family else { return };
        let of_children = || report.rules.iter().filter(|rule| self.scenario.family_of(&rule.namespace).is_some());
        let deleted: u64 = of_children().filter_map(|rule| rule.children_deleted_count).sum();
        let unconfirmed: u64 = of_children().filter_map(|rule| rule.unconfirmed_count).sum();
        let is_uncertain = of_children().any(|rule| rule.uncertain);
        let gone = || facts.children.iter().filter(|gone| gone.run == run);
        let (all, kept) = (gone().count() as u64, gone().filter(|gone| !gone.is_taken_back).count() as u64);
        if deleted > all || !is_uncertain && unconfirmed == 0 && deleted != kept {
            self.trace.violated(|| format!("{run} says {deleted} children deleted, {all} were, {kept} of them for good"));
        }
        let (is_last, is_complete) = (run == LAST, of_children().all(|rule| rule.status == Status::Complete));
        let edition = &facts.runs[run].edition;
        // What a run cannot do, because its policy has not all children, stays in the journal.
        let excuses = !is_last || *edition != Edition::whole(&self.scenario);
        if let Some(left) = family.left(documents, excuses).filter(|_| is_complete) {
            self.trace.violated(|| format!("{run} says `complete`, and {left}"));
        }
        let rules =
            (0..self.scenario.rules.len()).filter(|rule| edition.has(*rule) && self.scenario.family_of_rule(*rule).is_some());
        let of_run: BTreeSet<usize> = rules.flat_map(|rule| edition.children(rule)).copied().collect();
        if let Some(entry) = family.needless_entry(&of_run, documents).filter(|_| is_last && is_complete) {
            self.trace.violated(|| format!("the last run left {entry} in the journal"));
        }
    }

    /// Judges that the last run has deleted everything that it may delete: there was no trouble. `documents` are those that are
    /// left in a namespace.
    pub(in crate::testing::simulation) fn last(&self, report: &Report, documents: impl Fn(&str) -> Vec<Document>, now: i64) {
        let facts = self.facts.lock();
        let as_of = report.as_of.map(|as_of| as_of.0.timestamp_millis()).unwrap_or_default();
        let shares = &facts.runs[LAST].shares;
        for (number, swept, told) in self.of_rules(report) {
            let share = shares[number];
            let SweptRule { rule, max_deletes, max_delete_percent, .. } = swept;
            let children =
                self.scenario.family_of_rule(number).map(|_| facts.runs[LAST].edition.children(number)).unwrap_or_default();
            let of_last = facts.gone.iter().filter(|gone| gone.run == LAST && gone.namespace == rule.namespace);
            let gone_now: Vec<&Document> = of_last.map(|gone| &gone.document).collect();
            let orphan =
                children.iter().find_map(|child| facts.family.as_ref()?.old_orphan(*child, &documents, &gone_now, as_of));
            if let Some(orphan) = orphan.filter(|_| told.status == Status::Complete && max_deletes.is_none()) {
                self.trace
                    .violated(|| format!("the last run says `complete` and left {orphan}, whose parent was not there for a day"));
            }
            let is_expired = |document: &Document| facts.at_most(rule, document, NOW).is_expired(document, as_of);
            let is_held = |document: &Document| facts.is_held(document, NOW);
            let (held, left): (Vec<Document>, Vec<Document>) =
                documents(&rule.namespace).into_iter().filter(is_expired).partition(is_held);
            // A document that stays because of its children does not count as expired.
            let may_go = |document: &&Document| !self.keeps(&facts.runs[LAST].edition, number, document);
            let [held, left] = [held, left].map(|expired| expired.iter().filter(may_go).count() as u64);
            let of_last = facts.gone.iter().filter(|gone| gone.run == LAST && gone.namespace == rule.namespace);
            let gone = of_last.filter(|gone| is_expired(&gone.document)).count() as u64;
            if told.status == Status::Complete && told.held_count.is_some_and(|told| told != held) {
                self.trace.violated(|| format!("the last run says {:?} held in {}, {held} are", told.held_count, rule.namespace));
            }
            // Others may have changed the collection since the run began.
            let all = documents(&rule.namespace).len() as u64 + gone;
            let orphans =
                facts.family.as_ref().filter(|_| !children.is_empty()).map_or(0.0, |family| family.orphans_share(&documents));
            let share = share.max((left + gone) as f64 * 100.0 / all.max(1) as f64).max(orphans);
            let is_limited = max_deletes.is_some_and(|most| gone >= most)
                || max_delete_percent.is_some_and(|most| share > f64::from(most))
                || swept.closes().is_some_and(|closes| now >= closes);
            if left > 0 && !is_limited {
                self.trace.violated(|| {
                    format!("the last run deleted {gone} documents of {} and left {left} that have expired", rule.namespace)
                });
            }
        }
    }

    /// Counts the children at the borders of what is promised, those that went and those that are left.
    pub(in crate::testing::simulation) fn count_borders(&self, report: &Report, documents: impl Fn(&str) -> Vec<Document>) {
        let facts = self.facts.lock();
        let (Some(judge), Some(family)) = (&facts.family, &self.scenario.family) else { return };
        let as_of = report.as_of.map(|as_of| as_of.0.timestamp_millis()).unwrap_or_default();
        let gone = facts.children.iter().map(|gone| (gone.namespace.as_str(), gone.document.clone(), "gone"));
        let left = family
            .collections
            .iter()
            .flat_map(|child| documents(child.namespace).into_iter().map(|document| (child.namespace, document, "left")));
        for (namespace, document, end) in gone.chain(left) {
            if let Some(border) = judge.border(namespace, &document, as_of) {
                self.trace.at_border(format!("{border}: {end}"));
            }
        }
    }

    /// Judges the limits and the archives, once no fail-over can follow.
    pub(in crate::testing::simulation) fn at_the_end(&self) {
        let facts = self.facts.lock();
        let kept = |run: &str, namespace: Option<&str>| {
            let of_run = facts.gone.iter().filter(|gone| gone.run == run && !gone.is_taken_back);
            of_run.filter(|gone| namespace.is_none_or(|namespace| gone.namespace == namespace)).count() as u64
        };
        for (run, namespace, confirmed) in &facts.confirmed {
            let kept = kept(run, Some(namespace));
            if *confirmed > kept {
                self.trace.violated(|| format!("{run} says {confirmed} are gone from {namespace} for good, {kept} are"));
            }
        }
        for gone in facts.gone.iter().chain(&facts.children) {
            let Some(archive) = &facts.runs[&gone.run].archive else { continue };
            match archive.does_hold(&gone.namespace, &gone.document) {
                Ok(true) => {}
                Ok(false) => {
                    self.trace.violated(|| format!("{} deleted {}, which its archive has lost", gone.run, gone.document))
                }
                Err(why) => self.trace.violated(|| format!("the archive of {} cannot be read: {why}", gone.run)),
            }
        }
        // A delete may find a document again that others write while it is carried out, and one whose reply was lost is sent
        // again. Nothing can rule that out.
        let once = |run: &str, namespace: Option<&str>| {
            // Orphans count towards the limits of the rule of their parents.
            let orphans = facts.children.iter().filter(|gone| gone.is_orphan);
            let is_of = |gone: &&Gone, namespace: &str| match gone.is_orphan {
                true => self.scenario.family_of(namespace).is_some(),
                false => gone.namespace == namespace,
            };
            let of_run = facts.gone.iter().chain(orphans).filter(|gone| gone.run == run && !gone.is_taken_back);
            let of_run = of_run.filter(|gone| namespace.is_none_or(|namespace| is_of(gone, namespace)));
            match facts.certain.contains(run) {
                true => of_run.map(|gone| (&gone.namespace, &gone.id, gone.begun)).collect::<BTreeSet<_>>().len() as u64,
                false => of_run.map(|gone| (&gone.namespace, &gone.id)).collect::<BTreeSet<_>>().len() as u64,
            }
        };
        for run in facts.runs.keys() {
            if let Some(most) = self.scenario.max_deletes.filter(|most| run != LAST && once(run, None) > *most) {
                self.trace.violated(|| format!("{run} deleted {} documents, {most} were allowed", once(run, None)));
            }
            for swept in &self.scenario.rules {
                let namespace = &swept.rule.namespace;
                let all = self.rules(&facts, run, namespace).map(|(number, _)| self.scenario.rules[number].max_deletes);
                let Some(most) = all.sum::<Option<u64>>() else { continue };
                let gone = once(run, Some(namespace));
                if gone > most {
                    self.trace.violated(|| format!("{run} deleted {gone} documents of {namespace}, {most} were allowed"));
                }
            }
        }
    }
}
