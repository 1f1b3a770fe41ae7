//! Request units: the limit of a rule in every second, and the units per document learnt so far. Arithmetic only: time comes in
//! as values.

use std::collections::VecDeque;
use std::time::Duration;

/// Time for which a charge counts against a limit per second.
const SECOND: Duration = Duration::from_secs(1);

/// Share of a second's units that a batch is sized for: the documents of the next batch may be larger than the documents of the
/// last.
const SHARE: f64 = 0.9;

/// Units to load one kB of a document, and to delete one kB with the entries of some indexes. For the first batch only, so they
/// are high. Source of the first: Microsoft, "Request Units in Azure Cosmos DB"; the second is an assumption.
pub(crate) const LOAD_PER_KB: f64 = 1.0;
const DELETE_PER_KB: f64 = 12.0;

/// Units to delete one kB, and for its entry in an index, on top of loading it. Source of the first: the same page, for an
/// insert; the second is an assumption.
const WRITE_PER_KB: f64 = 5.5;
const INDEX_ENTRY: f64 = 0.5;

/// Units of a query apart from the documents that it loads; an assumption.
pub(crate) const QUERY: f64 = 3.0;

/// A limit of request units that holds in every second: a command is sent once the units of the second before leave room for it.
///
/// The service bills a command at some moment between its sending and its reply. A charge counts for a second after the reply, so
/// no second of the service's own clock can hold more.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct UnitLimit {
    limit: f64,
    /// Charges, each with the time at which it no longer counts.
    charges: VecDeque<(Duration, f64)>,
}

impl UnitLimit {
    pub(crate) fn new(limit: u32) -> Self {
        Self { limit: f64::from(limit.max(1)), charges: VecDeque::new() }
    }

    /// Returns the units that a second may cost.
    pub(crate) fn per_second(&self) -> f64 {
        self.limit
    }

    /// Returns the wait before a command that will cost about `expected`. One that costs more than a second's units waits until
    /// no charge counts any more. `now` is the time since the run began; it never goes back.
    pub(crate) fn wait(&self, expected: f64, now: Duration) -> Duration {
        let room = self.limit - expected.min(self.limit);
        let counting = || self.charges.iter().filter(|(end, _)| *end > now);
        let mut sum: f64 = counting().map(|(_, units)| units).sum();
        // The charges end in the order in which they were made, but for the charges of more than a second's units.
        let mut ends: Vec<(Duration, f64)> = counting().copied().collect();
        ends.sort_by_key(|(end, _)| *end);
        let mut free_at = now;
        for (end, units) in ends {
            if sum <= room + 1e-9 {
                break;
            }
            sum -= units;
            free_at = end;
        }
        free_at.saturating_sub(now)
    }

    /// Charges a command whose reply has come. More than a second's units count for as many seconds as they take at the limit.
    pub(crate) fn charge(&mut self, units: f64, now: Duration) {
        self.charges.retain(|(end, _)| *end > now);
        let seconds = (units / self.limit).max(1.0);
        self.charges.push_back((now + SECOND.mul_f64(seconds), units.min(self.limit)));
    }
}

/// The units per document of one kind of command: a rise is believed at once, a fall slowly.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct UnitCost(Option<f64>);

impl UnitCost {
    /// Learns from a command that was about so many documents: all that it cost beyond a query.
    pub(crate) fn learn(&mut self, units: f64, documents: u64) {
        let seen = (units - QUERY).max(0.0) / documents.max(1) as f64;
        self.0 = Some(match self.0 {
            Some(known) if seen < known => known.mul_add(0.75, seen * 0.25),
            _ => seen,
        });
    }

    /// Returns the cost of a document; `None` before the first command.
    pub(crate) fn per_document(self) -> Option<f64> {
        self.0
    }
}

/// The units per document of a rule's queries and deletes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct RuleCosts {
    pub find: UnitCost,
    pub delete: UnitCost,
    /// Mean size of a document in bytes, for the commands before the first one of a kind.
    pub average_bytes: Option<f64>,
}

impl RuleCosts {
    /// Returns the units to expect of finding a document; `None` if nothing is known.
    pub(crate) fn of_find(&self) -> Option<f64> {
        self.find.per_document().or_else(|| Some(self.kilobytes()? * LOAD_PER_KB))
    }

    /// Returns the units to expect of deleting a document; `None` if nothing is known.
    pub(crate) fn of_delete(&self) -> Option<f64> {
        self.delete.per_document().or_else(|| Some(self.kilobytes()? * DELETE_PER_KB))
    }

    fn kilobytes(&self) -> Option<f64> {
        self.average_bytes.map(|bytes| (bytes / 1024.0).ceil().max(1.0))
    }

    /// Returns the documents that may be found and deleted in one second under a limit; at least 1, and no more while nothing is
    /// known.
    pub(crate) fn batch_limit(&self, units_per_second: f64) -> u64 {
        let Some(each) = self.of_find().zip(self.of_delete()).map(|(find, delete)| find + delete) else { return 1 };
        let queries = 2.0 * QUERY;
        // A cast from float saturates.
        (((units_per_second * SHARE - queries) / each.max(0.01)) as u64).max(1)
    }
}

/// The cost of a sweep as it can be foretold from a count of its documents.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct UnitForecast {
    pub units: f64,
    /// The time that the units take at the rate that the rule allows and the service provides; `None` if neither limits it.
    pub seconds: Option<f64>,
}

/// The findings that a forecast follows from.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct CountFindings {
    /// Units that the count has cost. The sweep goes through the same documents.
    pub units: f64,
    pub expired: u64,
    pub average_bytes: Option<f64>,
    /// Indexes besides the one on the `_id`.
    pub indexes: usize,
    /// Whether the documents are found before they are deleted, which loads them twice.
    pub finds_first: bool,
    /// Units per second that the rule allows or the service provides, the lower of both.
    pub per_second: Option<f64>,
}

impl UnitForecast {
    pub(crate) fn of(counted: &CountFindings) -> Self {
        let kilobytes = counted.average_bytes.map_or(1.0, |bytes| (bytes / 1024.0).max(1.0));
        let loads_again = if counted.finds_first { LOAD_PER_KB } else { 0.0 };
        let each = kilobytes * (WRITE_PER_KB + loads_again) + INDEX_ENTRY * counted.indexes as f64;
        let units = (counted.units + each * counted.expired as f64).ceil();
        Self { units, seconds: counted.per_second.map(|per_second| (units / per_second).ceil()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    #[test]
    fn no_second_costs_more_than_the_limit() {
        let mut limit = UnitLimit::new(400);
        assert_eq!(limit.wait(400.0, MS(0)), MS(0));
        limit.charge(50.0, MS(100));
        limit.charge(300.0, MS(200));
        assert_eq!(limit.wait(50.0, MS(300)), MS(0));
        assert_eq!(limit.wait(51.0, MS(300)), MS(800));
        assert_eq!(limit.wait(101.0, MS(300)), MS(900));
        assert_eq!(limit.wait(101.0, MS(1200)), MS(0));
        assert_eq!([limit.per_second(), UnitLimit::new(0).per_second()], [400.0, 1.0]);
    }

    #[test]
    fn a_command_that_costs_more_than_a_second_is_waited_for_as_long_as_it_takes_at_the_limit() {
        let mut limit = UnitLimit::new(100);
        limit.charge(450.0, MS(0));
        limit.charge(20.0, MS(10));
        assert_eq!(limit.wait(80.0, MS(10)), MS(4490));
        assert_eq!(limit.wait(1000.0, MS(1500)), MS(3000));
        assert_eq!(limit.wait(1000.0, MS(4500)), MS(0));
    }

    #[test]
    fn a_forecast_follows_from_the_count() {
        let counted = CountFindings {
            units: 1000.0,
            expired: 500,
            average_bytes: Some(900.0),
            indexes: 1,
            finds_first: false,
            per_second: None,
        };
        assert_eq!(UnitForecast::of(&counted), UnitForecast { units: 4000.0, seconds: None });
        let found =
            CountFindings { finds_first: true, average_bytes: Some(2048.0), indexes: 2, per_second: Some(400.0), ..counted };
        assert_eq!(UnitForecast::of(&found), UnitForecast { units: 8000.0, seconds: Some(20.0) });
        let nothing = CountFindings { units: 6.0, expired: 0, ..counted };
        assert_eq!(UnitForecast::of(&nothing).units, 6.0);
    }

    #[test]
    fn a_batch_is_as_large_as_a_second_allows() {
        let mut costs = RuleCosts { average_bytes: Some(1000.0), ..RuleCosts::default() };
        assert_eq!(costs.batch_limit(400.0), 27);
        costs.find.learn(203.0, 100);
        costs.delete.learn(603.0, 100);
        // The two queries of a batch cost six units, so that 44 documents would take 358.
        assert_eq!((costs.batch_limit(400.0), costs.batch_limit(397.0)), (44, 43));
        costs.delete.learn(30_003.0, 100);
        assert_eq!((costs.batch_limit(400.0), costs.of_delete()), (1, Some(300.0)));
        costs.delete.learn(603.0, 100);
        assert_eq!(costs.of_delete(), Some(226.5));
        assert_eq!(RuleCosts::default().batch_limit(1000.0), 1);
    }
}
