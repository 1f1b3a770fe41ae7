//! Judges that runs delete only under leases that they hold, and in collections that they knew.

use std::time::Duration;

use bson::Document;
use server_model::{Deletion, View};
use tokio::time::Instant;

use super::{Facts, Judge};
use crate::shell::lock::lease::CREATED;
use crate::testing::simulation::relations::JOURNAL;

/// Age of a look at parents up to which a delete of their children may begin.
const MAX_LOOK_AGE: Duration = Duration::from_secs(2);

/// A collection that others dropped or renamed.
pub(super) struct Left {
    pub namespace: String,
    at: Instant,
    pub number: u64,
    /// Its documents at that moment.
    pub documents: Vec<Document>,
}

/// The leases that were dropped together with their collection.
pub(super) struct DroppedLeases {
    at: Instant,
    leases: Vec<Document>,
}

impl Judge {
    /// Notes that a collection of leases was dropped, which had these documents, at a time of the server's clock.
    pub(in crate::testing::simulation) fn dropped(&self, collection: &'static str, leases: Vec<Document>, now: i64) {
        let mut facts = self.facts.lock();
        facts.dropped.insert(collection, DroppedLeases { at: Instant::now(), leases });
        if let Some(family) = facts.family.as_mut().filter(|_| collection == JOURNAL) {
            family.journal_dropped(now);
        }
    }

    /// Notes that others drop or rename a collection with these documents, at a time of the server's clock.
    pub(in crate::testing::simulation) fn moved(&self, namespace: &str, number: u64, documents: Vec<Document>, now: i64) {
        let mut facts = self.facts.lock();
        if let Some(family) = &mut facts.family {
            family.moved(namespace, now);
        }
        facts.moved.push(Left { namespace: namespace.to_owned(), at: Instant::now(), number, documents });
    }

    /// Judges that a run deletes no children once the collection of their parents is not the one that it knew.
    pub(super) fn judge_parents(&self, run: &str, facts: &Facts, deletion: &Deletion<'_>) {
        let parents = self.scenario.rules[0].rule.namespace.as_str();
        let Some(listed) = facts.runs.get(run).and_then(|known| known.listed.get(parents)) else { return };
        let since_moved = |left: &&Left| left.namespace == parents && listed.contains(&left.number);
        let moved = facts.moved.iter().filter(since_moved).map(|left| deletion.begun.saturating_duration_since(left.at)).max();
        let is_known = deletion.server.number(parents).is_some_and(|number| listed.contains(&number));
        if !is_known && moved.is_some_and(|moved| moved > MAX_LOOK_AGE + self.skew()) {
            let Deletion { document, namespace, .. } = deletion;
            self.trace.violated(|| format!("{run} deletes {document} from {namespace} {moved:?} after {parents} was moved"));
        }
    }

    /// Returns the largest difference of two readings of the servers' clocks.
    fn skew(&self) -> Duration {
        let most = self.scenario.troubles.fail_over_every.map_or(0, |_| 2 * self.scenario.max_skew);
        Duration::from_millis(most.unsigned_abs())
    }

    /// Judges that a run deletes only in a collection that it knew before its first delete.
    pub(super) fn judge_collection(&self, run: &str, facts: &Facts, deletion: &Deletion<'_>) {
        let Deletion { namespace, collection, document, .. } = deletion;
        let listed = facts.runs.get(run).and_then(|known| known.listed.get(*namespace));
        if listed.is_some_and(|listed| !listed.contains(collection)) {
            self.trace.violated(|| format!("{run} deletes {document} from another collection that has the name {namespace}"));
        }
    }

    /// Returns the run that holds the lease of a namespace in a collection, and may rely on it.
    pub(super) fn holder(facts: &Facts, server: &View<'_>, leases: &str, namespace: &str) -> Option<String> {
        let run = |lease: &Document| lease.get_str("runId").ok().map(str::to_owned);
        // A run whose lease was dropped may go on until it finds out. Until then, no other one may rely on a new lease.
        let before = facts.dropped.get(leases).filter(|dropped| dropped.at.elapsed() < *CREATED);
        let before = before.and_then(|dropped| dropped.leases.iter().find(|lease| lease.get("_id") == Some(&namespace.into())));
        before.or_else(|| server.document(leases, &namespace.into())).and_then(run)
    }

    /// Judges that a run that deletes parents or children has the lease on the parents in the journal.
    pub(super) fn judge_journal_lease(&self, run: &str, facts: &Facts, deletion: &Deletion<'_>) {
        let parents = self.scenario.rules[0].rule.namespace.as_str();
        let holder = Judge::holder(facts, &deletion.server, JOURNAL, parents);
        if holder.as_deref() != Some(run) && (holder.is_some() || !facts.dropped.contains_key(JOURNAL)) {
            let Deletion { document, namespace, .. } = deletion;
            self.trace
                .violated(|| format!("{run} deletes {document} from {namespace}, and {holder:?} has the lease in the journal"));
        }
    }
}
