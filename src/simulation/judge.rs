//! The judge: sees every delete at the moment at which the server does it, and every report, and says which promise was broken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bson::{Bson, DateTime, Document};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::archives::RunArchive;
use super::oracle::Rule;
use super::scenario::{LAST, LOCKS, MAX_SKEW, Scenario, SweptRule};
use super::trace::{Trace, digest};
use crate::lock::lease::CREATED;
use crate::report::{Report, Status};
use crate::server::model::{Deletion, Observer, View};

/// The facts about all runs so far.
pub(super) struct Judge {
    scenario: Scenario,
    trace: Trace,
    facts: Mutex<Facts>,
}

#[derive(Default)]
struct Facts {
    runs: BTreeMap<String, Run>,
    gone: Vec<Gone>,
    /// Numbers of documents that are gone for good, by what the runs say: run, namespace and number.
    confirmed: Vec<(String, String, u64)>,
    /// The last time at which somebody else wrote a document, or a fail-over brought it back, by namespace and `_id`.
    touched: BTreeMap<(String, String), u64>,
    /// Writes of others that a fail-over may take back: number, namespace and `_id`.
    written: Vec<(u64, String, String)>,
    /// Counts every write and every fail-over.
    time: u64,
    dropped: Option<DroppedLeases>,
}

/// The leases that were dropped together with their collection.
struct DroppedLeases {
    at: Instant,
    leases: Vec<Document>,
}

/// One run of a sweeper.
struct Run {
    /// The time of its beginning.
    begun: u64,
    /// The share of each rule's collection that had expired at its beginning, in percent.
    shares: Vec<f64>,
    has_deleted: bool,
    archive: Option<Arc<RunArchive>>,
}

/// A document that a run deleted.
struct Gone {
    write: u64,
    run: String,
    namespace: String,
    is_taken_back: bool,
    id: String,
    document: Document,
}

impl Judge {
    pub(super) fn new(scenario: &Scenario, trace: &Trace) -> Arc<Self> {
        Arc::new(Self { scenario: scenario.clone(), trace: trace.clone(), facts: Mutex::default() })
    }

    fn rules<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a Rule> {
        self.scenario.rules.iter().map(|swept| &swept.rule).filter(move |rule| rule.namespace == namespace)
    }

    /// Notes the beginning of a run, with the documents of a namespace and the server's clock.
    pub(super) fn begins(
        &self,
        run: &str,
        documents: impl Fn(&str) -> Vec<Document>,
        now: i64,
        archive: Option<Arc<RunArchive>>,
    ) {
        let share = |rule: &Rule| {
            let all = documents(&rule.namespace);
            let expired = all.iter().filter(|document| rule.is_expired(document, now)).count();
            expired as f64 * 100.0 / all.len().max(1) as f64
        };
        let shares = self.scenario.rules.iter().map(|swept| share(&swept.rule)).collect();
        let mut facts = self.facts.lock();
        let begun = facts.time;
        facts.runs.insert(run.to_owned(), Run { begun, shares, has_deleted: false, archive });
    }

    /// Notes a write that another client made.
    pub(super) fn wrote(&self, write: u64, namespace: &str, id: &Bson) {
        let mut facts = self.facts.lock();
        facts.time += 1;
        let time = facts.time;
        facts.touched.insert((namespace.to_owned(), id.to_string()), time);
        facts.written.push((write, namespace.to_owned(), id.to_string()));
    }

    /// Notes a write that a fail-over took back.
    fn took_back(&self, write: u64) {
        let mut facts = self.facts.lock();
        facts.time += 1;
        let Facts { gone, touched, written, time, .. } = &mut *facts;
        for gone in gone.iter_mut().filter(|gone| gone.write == write) {
            gone.is_taken_back = true;
            touched.insert((gone.namespace.clone(), gone.id.clone()), *time);
        }
        for (_, namespace, id) in written.iter().filter(|(written, ..)| *written == write) {
            touched.insert((namespace.clone(), id.clone()), *time);
        }
    }

    /// Notes that the collection of the leases was dropped, which had these documents.
    pub(super) fn dropped(&self, leases: Vec<Document>) {
        self.facts.lock().dropped = Some(DroppedLeases { at: Instant::now(), leases });
    }

    /// Returns the run that holds the lease of a namespace, and may rely on it.
    fn holder(facts: &Facts, server: &View<'_>, namespace: &str) -> Option<String> {
        let run = |lease: &Document| lease.get_str("runId").ok().map(str::to_owned);
        // A run whose lease was dropped may go on until it finds out. Until then, no other one may rely on a new lease.
        let before = facts.dropped.as_ref().filter(|dropped| dropped.at.elapsed() < *CREATED);
        let before = before.and_then(|dropped| dropped.leases.iter().find(|lease| lease.get("_id") == Some(&namespace.into())));
        before.or_else(|| server.document(LOCKS, &namespace.into())).and_then(run)
    }

    /// Judges a run that has ended with a report. `documents` are those that are left in a namespace.
    pub(super) fn ended(&self, run: &str, report: &Report, documents: impl Fn(&str) -> Vec<Document>) {
        let mut facts = self.facts.lock();
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
        let as_of = report.as_of.map(|as_of| as_of.0.timestamp_millis()).unwrap_or_default();
        for gone in facts.gone.iter().filter(|gone| gone.run == run) {
            if !self.rules(&gone.namespace).any(|rule| rule.is_expired(&gone.document, as_of)) {
                self.trace.violated(|| format!("{run} deleted {}, which had not expired at its own {as_of}", gone.document));
            }
        }
        for (swept, ruled) in self.scenario.rules.iter().zip(&report.rules) {
            if ruled.status != Status::Complete {
                continue;
            }
            let begun = facts.runs[run].begun;
            let namespace = &swept.rule.namespace;
            for document in documents(namespace).iter().filter(|document| swept.rule.is_expired(document, as_of)) {
                let key = (namespace.clone(), document.get("_id").map(Bson::to_string).unwrap_or_default());
                if facts.touched.get(&key).is_none_or(|touched| *touched <= begun) {
                    self.trace.violated(|| format!("{run} says `complete` and left {document} in {namespace}"));
                }
            }
        }
    }

    /// Judges that the last run has deleted everything that it may delete: there was no trouble. `documents` are those that are left in a namespace.
    pub(super) fn last(&self, report: &Report, documents: impl Fn(&str) -> Vec<Document>, now: i64) {
        let facts = self.facts.lock();
        let as_of = report.as_of.map(|as_of| as_of.0.timestamp_millis()).unwrap_or_default();
        for (swept, share) in self.scenario.rules.iter().zip(&facts.runs[LAST].shares) {
            let SweptRule { rule, max_deletes, max_delete_percent, .. } = swept;
            let is_expired = |document: &Document| rule.is_expired(document, as_of);
            let left = documents(&rule.namespace).iter().filter(|document| is_expired(document)).count();
            let of_last = facts.gone.iter().filter(|gone| gone.run == LAST && gone.namespace == rule.namespace);
            let gone = of_last.filter(|gone| is_expired(&gone.document)).count() as u64;
            // Others may have changed the collection since the run began.
            let all = documents(&rule.namespace).len() as u64 + gone;
            let share = share.max((left as u64 + gone) as f64 * 100.0 / all.max(1) as f64);
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

    /// Judges the limits and the archives, once no fail-over can follow.
    pub(super) fn at_the_end(&self) {
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
        for gone in &facts.gone {
            let Some(archive) = &facts.runs[&gone.run].archive else { continue };
            match archive.does_hold(&gone.namespace, &gone.document) {
                Ok(true) => {}
                Ok(false) => {
                    self.trace.violated(|| format!("{} deleted {}, which its archive has lost", gone.run, gone.document))
                }
                Err(why) => self.trace.violated(|| format!("the archive of {} cannot be read: {why}", gone.run)),
            }
        }
        for run in facts.runs.keys() {
            if let Some(most) = self.scenario.max_deletes.filter(|most| run != LAST && kept(run, None) > *most) {
                self.trace.violated(|| format!("{run} deleted {} documents, {most} were allowed", kept(run, None)));
            }
            for swept in &self.scenario.rules {
                let namespace = &swept.rule.namespace;
                let all = self.scenario.rules.iter().filter(|other| other.rule.namespace == *namespace);
                let Some(most) = all.map(|swept| swept.max_deletes).sum::<Option<u64>>() else { continue };
                let gone = kept(run, Some(namespace));
                if gone > most {
                    self.trace.violated(|| format!("{run} deleted {gone} documents of {namespace}, {most} were allowed"));
                }
            }
        }
    }

    /// Judges a delete by the share of the collection that had expired when its run began. Says nothing if anything was written since.
    fn judge_share(&self, run: &str, facts: &Facts, namespace: &str) {
        let Some(known) = facts.runs.get(run).filter(|known| !known.has_deleted && known.begun == facts.time) else { return };
        let rules = self.scenario.rules.iter().zip(&known.shares).filter(|(swept, _)| swept.rule.namespace == namespace);
        let refused = rules.map(|(swept, share)| {
            swept.max_delete_percent.filter(|percent| *share > f64::from(*percent)).map(|most| (share, most))
        });
        // With several rules on a collection, another one may be the one that deletes.
        if let Some(all) = refused.collect::<Option<Vec<_>>>()
            && let Some((share, most)) = all.first()
        {
            self.trace.violated(|| format!("{run} deletes from {namespace} where {share} % have expired, {most} % are allowed"));
        }
    }
}

impl Observer for Arc<Judge> {
    fn deleted(&self, deletion: &Deletion<'_>) {
        let Deletion { write, namespace, document, now, comment, .. } = deletion;
        let Some(run) = comment.strip_prefix("sweeper ") else { return };
        let id = document.get("_id").map(Bson::to_string).unwrap_or_default();
        self.trace.step(digest(&id), || format!("{run} deletes {document} from {namespace}"));
        let mut facts = self.facts.lock();
        // The clock of a new primary may be behind that by which the run judges; its report tells exactly.
        let behind = self.scenario.troubles.fail_over_every.map_or(0, |_| 2 * MAX_SKEW);
        let latest = self.scenario.as_of.unwrap_or(now.timestamp_millis() + behind);
        if !self.rules(namespace).any(|rule| rule.is_expired(document, latest)) {
            self.trace
                .violated(|| format!("{run} deletes {document}, which has not expired at {}", DateTime::from_millis(latest)));
        }
        if self.scenario.has_lease {
            let holder = Judge::holder(&facts, &deletion.server, namespace);
            if let Some(holder) = holder.filter(|holder| holder != run) {
                self.trace.violated(|| format!("{run} deletes {id} from {namespace}, whose lease {holder} has"));
            }
        }
        self.judge_share(run, &facts, namespace);
        facts.time += 1;
        if run != LAST {
            self.trace.deleted();
        }
        let archive = facts.runs.get_mut(run).and_then(|known| {
            known.has_deleted = true;
            known.archive.clone()
        });
        let gone = Gone {
            write: *write,
            run: run.to_owned(),
            namespace: (*namespace).to_owned(),
            is_taken_back: false,
            id,
            document: (*document).clone(),
        };
        facts.gone.push(gone);
        drop(facts);
        if let Some(archive) = archive {
            match archive.would_hold(namespace, document) {
                Ok(true) => {}
                Ok(false) => self.trace.violated(|| format!("{run} deletes {document}, which is not in its archive")),
                Err(why) => self.trace.violated(|| format!("{run} deletes {document}, and its archive is unreadable: {why}")),
            }
        }
    }

    fn taken_back(&self, write: u64) {
        self.trace.step(write, || format!("a fail-over takes back write {write}"));
        self.took_back(write);
    }
}
