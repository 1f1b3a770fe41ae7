//! The judge: sees every delete at the moment at which the server does it, and every report, and says which promise was broken.

mod family;
mod holds;
mod leases;
mod periods;
mod reports;
mod restores;
mod settings;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bson::{Bson, DateTime, Document};
use parking_lot::Mutex;
use server_model::{Deletion, Insertion, Observer, Updated, View};
use tokio::time::Instant;

use super::archives::RunArchive;
use super::choices::Edition;
use super::editions::name;
use super::oracle::Rule;
use super::relations::{HOLDS, JOURNAL, TENANTS};
use super::scenario::{LAST, LOCKS, MAX_SKEW, Scenario};
use super::trace::{Trace, digest};
use family::{ByRule, FamilyJudge};
use holds::HoldsJudge;
use leases::{DroppedLeases, Left};
use periods::PeriodsJudge;
use restores::Restoring;
use settings::Settings;

/// A time after every other one: what is held since then is held now.
const NOW: i64 = i64::MAX;

/// The facts about all runs so far.
pub(super) struct Judge {
    scenario: Scenario,
    trace: Trace,
    begun: Instant,
    facts: Mutex<Facts>,
}

#[derive(Default)]
struct Facts {
    runs: BTreeMap<String, Run>,
    gone: Vec<Gone>,
    /// The children that runs deleted.
    children: Vec<Gone>,
    /// Numbers of documents that are gone for good, by what the runs say: run, namespace and number.
    confirmed: Vec<(String, String, u64)>,
    /// The last time at which somebody else wrote a document, or a fail-over brought it back, by namespace and `_id`.
    touched: BTreeMap<(String, String), u64>,
    /// Writes of others that a fail-over may take back: number, namespace and `_id`.
    written: Vec<(u64, String, String)>,
    /// Counts every write and every fail-over.
    time: u64,
    /// Collections of leases that were dropped.
    dropped: BTreeMap<&'static str, DroppedLeases>,
    family: Option<FamilyJudge>,
    holds: Option<HoldsJudge>,
    periods: Option<PeriodsJudge>,
    /// Collections that others dropped or renamed.
    moved: Vec<Left>,
    /// Number of writes that fail-overs have taken back.
    taken_back: usize,
    restores: BTreeMap<String, Restoring>,
    /// Runs of which every reply came.
    certain: BTreeSet<String>,
}

/// One run of a sweeper.
struct Run {
    /// The policy that it has.
    edition: Edition,
    /// The time of its beginning.
    begun: u64,
    /// The same in milliseconds since the simulation began.
    begun_at: i64,
    /// The last write to parents and children before it.
    after: u64,
    /// The share of each rule's collection that had expired at its beginning, in percent.
    shares: Vec<f64>,
    has_deleted: bool,
    /// Numbers of the collections that the catalog has shown to the run, by namespace, until it deleted there.
    listed: BTreeMap<String, BTreeSet<u64>>,
    archive: Option<Arc<RunArchive>>,
}

/// A document that a run deleted.
struct Gone {
    write: u64,
    run: String,
    namespace: String,
    is_taken_back: bool,
    /// Whether it is a child that had no parent before.
    is_orphan: bool,
    id: String,
    document: Document,
    /// The beginning of the command that deleted it.
    begun: Instant,
    /// The rules of the run, as the command may have judged it at the earliest; none for a child.
    rules: Vec<Rule>,
}

impl Judge {
    pub(super) fn new(scenario: &Scenario, trace: &Trace) -> Arc<Self> {
        let family = FamilyJudge::new(scenario);
        let holds = scenario.holds.as_ref().map(HoldsJudge::new);
        let periods = scenario.periods.as_ref().map(PeriodsJudge::new);
        let facts = Mutex::new(Facts { family, holds, periods, ..Facts::default() });
        Arc::new(Self { scenario: scenario.clone(), trace: trace.clone(), begun: Instant::now(), facts })
    }

    /// Returns the milliseconds since the simulation began.
    fn time(&self, instant: Instant) -> i64 {
        i64::try_from(instant.duration_since(self.begun).as_millis()).unwrap_or(i64::MAX)
    }

    /// Returns the rules by which a run deletes in a namespace, with their numbers.
    fn rules<'a>(&'a self, facts: &'a Facts, run: &str, namespace: &'a str) -> impl Iterator<Item = (usize, &'a Rule)> {
        let edition = facts.runs.get(run).map(|run| &run.edition);
        let of_run = move |number: &usize| edition.is_none_or(|edition| edition.has(*number));
        let rules = self.scenario.rules.iter().enumerate().map(|(number, swept)| (number, &swept.rule));
        rules.filter(move |(number, rule)| of_run(number) && rule.namespace == namespace)
    }

    /// Whether a document stays because a key of it, by which children of a rule of a run name it, may be several.
    fn keeps(&self, edition: &Edition, rule: usize, document: &Document) -> bool {
        self.scenario.family_of_rule(rule).is_some_and(|family| family.keeps(edition.children(rule), document))
    }

    /// Notes the beginning of a run, with the documents of a namespace and the server's clock.
    pub(super) fn begins(
        &self,
        run: &str,
        documents: impl Fn(&str) -> Vec<Document>,
        now: i64,
        archive: Option<Arc<RunArchive>>,
    ) {
        let mut facts = self.facts.lock();
        let begun_at = self.time(Instant::now());
        let edition = self.scenario.edition(run);
        let share = |(number, rule): (usize, &Rule)| {
            let all = documents(&rule.namespace);
            // A document that stays because of its children does not count as expired.
            let stays = |document: &Document| facts.is_held(document, NOW) || self.keeps(&edition, number, document);
            let goes =
                |document: &&Document| facts.at_most(rule, document, begun_at).is_expired(document, now) && !stays(document);
            let expired = all.iter().filter(goes).count();
            expired as f64 * 100.0 / all.len().max(1) as f64
        };
        let shares = self.scenario.rules.iter().map(|swept| &swept.rule).enumerate().map(share).collect();
        let begun = facts.time;
        let after = facts.family.as_ref().map_or(0, FamilyJudge::last_write);
        let known = Run { edition, begun, begun_at, after, shares, has_deleted: false, listed: BTreeMap::new(), archive };
        facts.runs.insert(run.to_owned(), known);
    }

    /// Notes a write that another client made, at a time of the server's clock; `document` is what it left.
    pub(super) fn wrote(&self, write: u64, namespace: &str, id: &Bson, document: Option<&Document>, at: i64) {
        let mut facts = self.facts.lock();
        facts.time += 1;
        let time = facts.time;
        if let Some(family) = &mut facts.family {
            family.wrote(write, namespace, id, document, at);
        }
        if let Some(holds) = facts.holds.as_mut().filter(|_| namespace == HOLDS) {
            holds.wrote(write, id, document, self.time(Instant::now()));
        }
        if let Some(periods) = facts.periods.as_mut().filter(|_| namespace == TENANTS) {
            periods.settings.wrote(write, id, document, self.time(Instant::now()));
        }
        facts.touched.insert((namespace.to_owned(), id.to_string()), time);
        facts.written.push((write, namespace.to_owned(), id.to_string()));
    }

    /// Notes the parents that were there before the simulation began.
    pub(super) fn filled(&self, parents: &[Document]) {
        if let Some(family) = &mut self.facts.lock().family {
            family.filled(parents);
        }
    }

    /// Notes that a majority knows of a hold or a period that others wrote.
    pub(super) fn known(&self, write: u64) {
        let now = self.time(Instant::now());
        self.facts.lock().settings().for_each(|settings| settings.known(write, now));
    }

    /// Notes a hold or a period that was there before the simulation began.
    pub(super) fn known_before(&self, write: u64) {
        self.facts.lock().settings().for_each(|settings| settings.known(write, i64::MIN));
    }

    /// Notes a write that a fail-over took back.
    fn took_back(&self, write: u64) {
        let mut facts = self.facts.lock();
        facts.time += 1;
        facts.taken_back += 1;
        if let Some(family) = &mut facts.family {
            family.took_back(write);
        }
        facts.settings().for_each(|settings| settings.took_back(write));
        let Facts { gone, children, touched, written, time, .. } = &mut *facts;
        for gone in gone.iter_mut().chain(children).filter(|gone| gone.write == write) {
            gone.is_taken_back = true;
            touched.insert((gone.namespace.clone(), gone.id.clone()), *time);
        }
        for (_, namespace, id) in written.iter().filter(|(written, ..)| *written == write) {
            touched.insert((namespace.clone(), id.clone()), *time);
        }
    }

    /// Judges a delete by the share of the collection that had expired when its run began. Says nothing if anything was written
    /// since.
    fn judge_share(&self, run: &str, facts: &Facts, namespace: &str) {
        let Some(known) = facts.runs.get(run).filter(|known| !known.has_deleted && known.begun == facts.time) else { return };
        let refused = self.rules(facts, run, namespace).map(|(number, _)| {
            let share = known.shares[number];
            let most = self.scenario.rules[number].max_delete_percent;
            most.filter(|percent| share > f64::from(*percent)).map(|most| (share, most))
        });
        // With several rules on a collection, another one may be the one that deletes.
        if let Some(all) = refused.collect::<Option<Vec<_>>>()
            && let Some((share, most)) = all.first()
        {
            self.trace.violated(|| format!("{run} deletes from {namespace} where {share} % have expired, {most} % are allowed"));
        }
    }
}

impl Facts {
    /// Returns the collections by which holds and periods are known.
    fn settings(&mut self) -> impl Iterator<Item = &mut Settings> {
        let of_holds = self.holds.as_mut().map(|holds| &mut holds.settings);
        of_holds.into_iter().chain(self.periods.as_mut().map(|periods| &mut periods.settings))
    }

    /// Returns a rule as a delete that began then may judge a document at the earliest.
    fn at_least(&self, rule: &Rule, document: &Document, begun: i64, server: &View<'_>) -> Rule {
        self.periods.as_ref().map_or(rule.clone(), |periods| periods.at_least(rule, document, begun, server))
    }

    /// Returns a rule as a run that began then judges a document at the latest.
    fn at_most(&self, rule: &Rule, document: &Document, since: i64) -> Rule {
        self.periods.as_ref().map_or(rule.clone(), |periods| periods.at_most(rule, document, since))
    }

    /// Whether a document is held, or was so at any time since then.
    fn is_held(&self, document: &Document, since: i64) -> bool {
        self.holds.as_ref().is_some_and(|holds| holds.held_since(document, since))
    }
}

impl Judge {
    /// Judges the end of a child.
    fn child_deleted(&self, deletion: &Deletion<'_>, run: &str, facts: &mut Facts) {
        let Deletion { document, namespace, .. } = deletion;
        self.judge_journal_lease(run, facts, deletion);
        self.judge_collection(run, facts, deletion);
        self.judge_parents(run, facts, deletion);
        let after = facts.runs.get(run).map_or(0, |known| known.after);
        if let Some(wrong) = facts.family.as_mut().and_then(|family| family.child_deleted(deletion, after)) {
            self.trace.violated(|| format!("{run} deletes {document} from {namespace}, {wrong}"));
        }
        let is_orphan = facts.family.as_ref().is_some_and(FamilyJudge::is_orphan);
        facts.children.push(Gone { is_orphan, ..Gone::of(deletion, run) });
    }

    /// Judges the end of a document of a rule.
    fn document_deleted(&self, deletion: &Deletion<'_>, run: &str, facts: &mut Facts) {
        let Deletion { namespace, document, now, .. } = deletion;
        // The clock of a new primary may be behind that by which the run judges; its report tells exactly.
        let behind = self.scenario.troubles.fail_over_every.map_or(0, |_| 2 * MAX_SKEW);
        let latest = self.scenario.as_of.unwrap_or(now.timestamp_millis() + behind);
        let begun = self.time(deletion.begun);
        let judged = |(number, rule): (usize, &Rule)| (number, facts.at_least(rule, document, begun, &deletion.server));
        let judged: Vec<(usize, Rule)> = self.rules(facts, run, namespace).map(judged).collect();
        let is_expired = |judged: &&(usize, Rule)| judged.1.is_expired(document, latest);
        let expired: Vec<usize> = judged.iter().filter(is_expired).map(|(number, _)| *number).collect();
        if expired.is_empty() {
            self.trace
                .violated(|| format!("{run} deletes {document}, which has not expired at {}", DateTime::from_millis(latest)));
        }
        if let Some(setting) = facts.periods.as_ref().and_then(|periods| periods.forbids(begun, &deletion.server)) {
            self.trace.violated(|| format!("{run} deletes {document} in spite of {setting}"));
        }
        if let Some(hold) = facts.holds.as_ref().and_then(|holds| holds.forbids(document, begun, &deletion.server)) {
            self.trace.violated(|| format!("{run} deletes {document} in spite of {hold}"));
        }
        let edition = facts.runs.get(run).map(|known| known.edition.clone());
        let edition = edition.unwrap_or_else(|| Edition::whole(&self.scenario));
        let by = expired.iter().map(|number| ByRule { name: name(*number), children: edition.children(*number).to_vec() });
        let has_children = |number: &usize| !edition.children(*number).is_empty();
        if self.scenario.family_of(namespace).is_some() && expired.iter().all(has_children) {
            self.judge_journal_lease(run, facts, deletion);
        }
        if self.scenario.family_of(namespace).is_some()
            && let Some(wrong) = facts.family.as_mut().and_then(|family| family.parent_deleted(deletion, run, by.collect()))
        {
            self.trace.violated(|| format!("{run} deletes {document}, a parent, {wrong}"));
        }
        self.judge_share(run, facts, namespace);
        self.judge_collection(run, facts, deletion);
        facts.time += 1;
        if run != LAST {
            self.trace.deleted();
        }
        if let Some(known) = facts.runs.get_mut(run) {
            known.has_deleted = true;
        }
        facts.gone.push(Gone { rules: judged.into_iter().map(|(_, rule)| rule).collect(), ..Gone::of(deletion, run) });
    }
}

impl Gone {
    fn of(deletion: &Deletion<'_>, run: &str) -> Self {
        Self {
            write: deletion.write,
            run: run.to_owned(),
            namespace: deletion.namespace.to_owned(),
            is_taken_back: false,
            is_orphan: false,
            id: deletion.document.get("_id").map(Bson::to_string).unwrap_or_default(),
            document: deletion.document.clone(),
            begun: deletion.begun,
            rules: Vec::new(),
        }
    }
}

impl Observer for Judge {
    fn deleted(&self, deletion: &Deletion<'_>) {
        let Deletion { namespace, document, server, client: run, .. } = deletion;
        let run = *run;
        let id = document.get("_id").map(Bson::to_string).unwrap_or_default();
        if *namespace == JOURNAL {
            // Its `_id` is not of the seed's making.
            self.trace.step(digest(JOURNAL), || format!("{run} removes {document} from the journal"));
            if let Some(left) = self.facts.lock().family.as_ref().and_then(|family| family.entry_removed(document, server)) {
                self.trace.violated(|| format!("{run} removes an entry from the journal, and {left}"));
            }
            return;
        }
        self.trace.step(digest(&id), || format!("{run} deletes {document} from {namespace}"));
        let mut facts = self.facts.lock();
        let is_child = facts.family.as_ref().is_some_and(|family| family.has(namespace));
        // Children go under the lease of their parents.
        let leased = if is_child { self.scenario.rules[0].rule.namespace.as_str() } else { namespace };
        if self.scenario.has_lease
            && let Some(holder) = Judge::holder(&facts, server, LOCKS, leased).filter(|holder| holder != run)
        {
            self.trace.violated(|| format!("{run} deletes {id} from {namespace}, and {holder} has the lease of {leased}"));
        }
        if is_child {
            self.child_deleted(deletion, run, &mut facts);
        } else {
            self.document_deleted(deletion, run, &mut facts);
        }
        let archive = facts.runs.get(run).and_then(|known| known.archive.clone());
        drop(facts);
        if let Some(archive) = archive {
            match archive.would_hold(namespace, document) {
                Ok(true) => {}
                Ok(false) => self.trace.violated(|| format!("{run} deletes {document}, which is not in its archive")),
                Err(why) => self.trace.violated(|| format!("{run} deletes {document}, and its archive is unreadable: {why}")),
            }
        }
    }

    fn inserted(&self, insertion: &Insertion<'_>) {
        self.restore_inserted(insertion.client, insertion);
    }

    fn updated(&self, update: &Updated<'_>) {
        let Updated { namespace, before, after, server, client: run, .. } = update;
        self.restore_updated(run, update);
        if *namespace != JOURNAL {
            return;
        }
        self.trace.step(digest(JOURNAL), || format!("{run} changes {before} to {after} in the journal"));
        if let Some(left) = self.facts.lock().family.as_ref().and_then(|family| family.entry_changed(before, after, server)) {
            self.trace.violated(|| format!("{run} changes an entry in the journal, and {left}"));
        }
    }

    fn listed(&self, comment: &str, namespace: &str, collection: u64) {
        let Some(run) = comment.strip_prefix("sweeper ") else { return };
        let mut facts = self.facts.lock();
        let has_deleted = facts.gone.iter().chain(&facts.children).any(|gone| gone.run == run && gone.namespace == namespace);
        if let Some(known) = facts.runs.get_mut(run).filter(|_| !has_deleted) {
            known.listed.entry(namespace.to_owned()).or_default().insert(collection);
        }
    }

    fn taken_back(&self, write: u64) {
        self.trace.step(write, || format!("a fail-over takes back write {write}"));
        self.took_back(write);
    }
}
