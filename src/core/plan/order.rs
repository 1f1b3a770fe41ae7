//! The choice of the order in which a sweep goes through the documents of a rule.
//!
//! Along the index on the date each delete changes the page that its document is stored on. Where dates and storage are in the
//! same order, the next deletes are on the same page. Where they are not, a page is read, changed, written and evicted once for
//! almost every document on it. That begins where the collection is larger than the part of the cache that may hold changed
//! pages. In the order of the storage it is changed once, but every page is read, those without an expired document too.

use std::ops::AddAssign;

use super::{Selection, Storage, SweepRule};
use crate::base::text::bytes;
use crate::core::facts::{ServerFacts, Topology};
use crate::core::policy::{Order, Rule};

/// Share of the cache up to which all pages of a collection can be changed before the server writes any. It is half of
/// `eviction_dirty_target`, which is 5 % (WiredTiger, "Cache and eviction tuning"; MongoDB keeps the default).
const UNWRITTEN_SHARE: f64 = 0.025;

/// Size up to which a collection is not worth a look at its storage.
const SMALL_BYTES: f64 = 64.0 * 1024.0 * 1024.0;

/// Size of a page of documents in the storage (WiredTiger, `leaf_page_max`; MongoDB sets 32 kB).
const PAGE_BYTES: f64 = 32.0 * 1024.0;

/// Scattered expired documents on each page from which on the order of the storage costs less: along the index such a page is
/// changed so many times.
const WORTHWHILE_PER_PAGE: f64 = 3.0;

/// Share of the documents that must be expired and scattered as well. Below it most pages are read for nothing.
const WORTHWHILE_SHARE: f64 = 0.05;

/// Distance in the storage up to which two documents count as close to each other, as a share of the cache.
const CLOSE_SHARE: f64 = 0.01;

/// Reason for the order of the storage where no index could be created that helps.
pub const STRINGS: &str = "no index serves dates in strings";

/// Distance in bytes up to which two documents count as close to each other where the size of the cache is unknown.
const CLOSE_BYTES: f64 = 1024.0 * 1024.0;

/// Share of the neighbours by `_id` that are stored apart, from which on the `_id`s do not follow the storage.
const MIXED: f64 = 0.25;

/// The order of a rule's deletes, and the reason for it.
#[derive(Debug, Clone, PartialEq)]
pub struct OrderChoice {
    /// Never `Auto`; `None` is the order of the index that the policy hints at.
    pub order: Option<Order>,
    /// Whether the `_id`s of the documents are in the order of the storage, so that a range of them is a part of it; `None` if
    /// that is unknown.
    pub ids_follow: Option<bool>,
    pub reason: String,
}

impl OrderChoice {
    /// Creates a choice that was made without a look at the `_id`s.
    pub fn new(order: impl Into<Option<Order>>, reason: &str) -> Self {
        Self { order: order.into(), ids_follow: None, reason: reason.to_owned() }
    }
}

/// Documents drawn from a collection, and what is next to them along the indexes on the date and on the `_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StorageSample {
    /// Documents that were drawn from the whole collection.
    pub drawn: u64,
    /// Documents among them that have expired.
    pub expired: u64,
    /// Pairs of neighbours along the index on the date.
    pub dates: Neighbours,
    /// Pairs of neighbours along the index on the `_id`.
    pub ids: Neighbours,
}

/// Pairs of documents that are next to each other along an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Neighbours {
    pub pairs: u64,
    /// Pairs whose documents are stored far from each other.
    pub apart: u64,
}

impl AddAssign for Neighbours {
    fn add_assign(&mut self, other: Self) {
        self.pairs += other.pairs;
        self.apart += other.apart;
    }
}

impl Neighbours {
    /// Returns the share of the pairs that are stored far from each other, 0 to 1; 0 if there are none.
    fn apart_share(self) -> f64 {
        if self.pairs == 0 { 0.0 } else { self.apart as f64 / self.pairs as f64 }
    }
}

/// Chooses without a look at the server, if that is possible. `run_limit` names a limit of the whole run under which the oldest
/// documents go first.
pub fn first_choice(rule: &Rule, planned: &SweepRule, server: &ServerFacts, run_limit: Option<&str>) -> Option<OrderChoice> {
    let made = |order: Option<Order>, reason: &str| Some(OrderChoice::new(order, reason));
    let selection = &planned.selection;
    let limits = &planned.limits;
    let limit = run_limit.or(limits.max_deletes.map(|_| "maxDeletes")).or(limits.rate.map(|_| "rate"));
    if selection.storage != Storage::Plain {
        return made(Some(Order::Storage), "the documents are stored in the order of the _id");
    }
    if selection.index.is_none() {
        let why = match planned.expiry.format.is_sorted_by_index() {
            true => "no index has the order of the dates",
            false => STRINGS,
        };
        return made(Some(Order::Storage), why);
    }
    if server.topology == Topology::Sharded {
        return made(Some(Order::OldestFirst), "each shard has a storage of its own");
    }
    match (rule.order, &rule.hint, limit) {
        (Order::OldestFirst, None, _) => return made(Some(Order::OldestFirst), "the policy says so"),
        // The sample tells by what the storage is gone through.
        (Order::Storage, ..) => return None,
        (Order::Auto | Order::OldestFirst, Some(_), _) => return made(None, "the policy names the index"),
        (Order::Auto, None, Some(limit)) => return made(Some(Order::OldestFirst), &format!("under {limit} the oldest go first")),
        (Order::Auto, None, None) => {}
    }
    match selection.data_bytes() {
        None => made(Some(Order::OldestFirst), "the size of the collection is unknown"),
        Some(_) if !is_large(selection) => made(Some(Order::OldestFirst), "the collection is small"),
        Some(_) => None,
    }
}

/// Whether a collection is known to be large enough for a look at its storage.
pub fn is_large(selection: &Selection) -> bool {
    selection.data_bytes().is_some_and(|size| size > SMALL_BYTES)
}

/// Chooses by the size of the server's cache, if that is enough.
pub fn by_cache(rule: &Rule, planned: &SweepRule, cache: Option<u64>) -> Option<OrderChoice> {
    let (cache, size) = (cache?, planned.selection.data_bytes()?);
    let fits = rule.order == Order::Auto && size <= cache as f64 * UNWRITTEN_SHARE;
    fits.then(|| {
        OrderChoice::new(
            Order::OldestFirst,
            &format!("{} can be changed within the cache of {}", bytes(size as u64), bytes(cache)),
        )
    })
}

/// Returns the difference of two RecordIds up to which documents count as close to each other.
pub fn close(cache: Option<u64>, average_bytes: Option<f64>) -> i64 {
    let close = cache.map_or(CLOSE_BYTES, |cache| cache as f64 * CLOSE_SHARE);
    // A cast from float saturates.
    (close / average_bytes.unwrap_or(1024.0).max(1.0)) as i64
}

/// Chooses by a sample of documents that have this size on average.
pub fn by_sample(rule: &Rule, average_bytes: Option<f64>, sample: &StorageSample) -> OrderChoice {
    let expired = if sample.drawn == 0 { 0.0 } else { sample.expired as f64 / sample.drawn as f64 };
    let apart = sample.dates.apart_share();
    let ids_follow = (sample.ids.pairs > 0).then(|| sample.ids.apart_share() < MIXED);
    let scattered = expired * apart;
    let per_page = scattered * PAGE_BYTES / average_bytes.unwrap_or(PAGE_BYTES).max(1.0);
    let is_worthwhile = scattered >= WORTHWHILE_SHARE && per_page >= WORTHWHILE_PER_PAGE;
    let found = format!(
        "about {:.0} % have expired, and {:.0} % of the neighbours in date are stored far from each other",
        expired * 100.0,
        apart * 100.0
    );
    let (order, reason) = match rule.order {
        Order::Storage => (Order::Storage, "the policy says so".to_owned()),
        Order::Auto | Order::OldestFirst if is_worthwhile => (Order::Storage, found),
        Order::Auto | Order::OldestFirst => (Order::OldestFirst, found),
    };
    OrderChoice { order: Some(order), ids_follow, reason }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::flavor::Flavor;
    use crate::core::plan::Decision;
    use crate::core::plan::index::IndexChoice;
    use crate::testing::made_up::planned;

    const MIB: u64 = 1024 * 1024;

    /// Makes up a rule with an index on its date, for a collection of a size.
    fn indexed(keys: &str, size: u64) -> (Rule, SweepRule) {
        let planned = planned(keys, size / 100);
        let Decision::Sweep(mut sweep) = planned.decision else { panic!("to be swept") };
        sweep.selection.index = Some(IndexChoice { name: "at_1".into(), oldest_first: true, bounded: true });
        (planned.rule, sweep)
    }

    fn first(keys: &str, size: u64) -> Option<Option<Order>> {
        let (rule, planned) = indexed(keys, size);
        first_choice(&rule, &planned, &ServerFacts::made_up(Flavor::MongoDb, "6.0.5", 17), None).map(|choice| choice.order)
    }

    fn sample(expired: u64, dates: (u64, u64), ids: (u64, u64)) -> StorageSample {
        let neighbours = |(pairs, apart)| Neighbours { pairs, apart };
        StorageSample { drawn: 400, expired, dates: neighbours(dates), ids: neighbours(ids) }
    }

    #[test]
    fn the_policy_a_limit_a_hint_and_a_small_collection_need_no_look_at_the_storage() {
        for (keys, size, order) in [
            ("", 64 * MIB, Some(Some(Order::OldestFirst))),
            ("", 65 * MIB, None),
            ("    order: oldestFirst\n", 999 * MIB, Some(Some(Order::OldestFirst))),
            // By what the storage is gone through, the sample tells.
            ("    order: storage\n", MIB, None),
            ("    order: storage\n    maxDeletes: 5\n", MIB, None),
            ("    maxDeletes: 5\n", 999 * MIB, Some(Some(Order::OldestFirst))),
            ("    rate: 5\n", 999 * MIB, Some(Some(Order::OldestFirst))),
            ("    hint: at_1\n", 999 * MIB, Some(None)),
            ("    hint: at_1\n    order: oldestFirst\n", 999 * MIB, Some(None)),
            ("    hint: at_1\n    order: storage\n", 999 * MIB, None),
        ] {
            assert_eq!(first(keys, size), order, "{keys} {size}");
        }
    }

    #[test]
    fn a_limit_of_the_run_a_missing_index_and_several_storages_decide_as_well() {
        let (rule, mut planned) = indexed("", 999 * MIB);
        let order = |planned: &SweepRule, server: &ServerFacts, limit| {
            first_choice(&rule, planned, server, limit).map(|choice| (choice.order, choice.reason))
        };
        let mongod = ServerFacts::made_up(Flavor::MongoDb, "6.0.5", 17);
        let (chosen, why) = order(&planned, &mongod, Some("--max-deletes")).unwrap();
        assert_eq!((chosen, why.as_str()), (Some(Order::OldestFirst), "under --max-deletes the oldest go first"));
        let sharded = ServerFacts { topology: Topology::Sharded, ..mongod.clone() };
        assert_eq!(order(&planned, &sharded, None).unwrap().0, Some(Order::OldestFirst));
        planned.selection.size.average_bytes = None;
        assert_eq!(order(&planned, &mongod, None).unwrap().0, Some(Order::OldestFirst));
        planned.selection.index = None;
        assert_eq!(order(&planned, &mongod, None).unwrap().0, Some(Order::Storage));
    }

    #[test]
    fn a_collection_that_can_be_changed_within_the_cache_goes_by_date() {
        let (rule, planned) = indexed("", 100 * MIB);
        let fits = |cache| by_cache(&rule, &planned, cache).is_some();
        assert_eq!([None, Some(3_999 * MIB), Some(4_001 * MIB)].map(fits), [false, false, true]);
        let (forced, planned) = indexed("    order: storage\n", 100 * MIB);
        assert_eq!(by_cache(&forced, &planned, Some(9_999 * MIB)), None);
    }

    #[test]
    fn the_order_of_the_storage_needs_pages_with_several_scattered_documents() {
        let (rule, _) = indexed("", MIB);
        for (bytes, expired, dates, order) in [
            // 32 documents on a page.
            (1024.0, 200, (100, 99), Order::Storage),
            (1024.0, 38, (100, 100), Order::Storage),
            (1024.0, 37, (100, 100), Order::OldestFirst),
            (1024.0, 200, (100, 0), Order::OldestFirst),
            (1024.0, 400, (100, 10), Order::Storage),
            (1024.0, 400, (100, 9), Order::OldestFirst),
            (1024.0, 400, (0, 0), Order::OldestFirst),
            (1024.0, 0, (0, 0), Order::OldestFirst),
            // Most pages have no expired document, however small the documents are.
            (100.0, 20, (100, 100), Order::Storage),
            (100.0, 19, (100, 100), Order::OldestFirst),
            // One document on a page.
            (32_768.0, 400, (100, 100), Order::OldestFirst),
            (10_000.0, 400, (100, 100), Order::Storage),
        ] {
            let choice = by_sample(&rule, Some(bytes), &sample(expired, dates, (100, 0)));
            assert_eq!(choice.order, Some(order), "{bytes} {expired} {dates:?}");
        }
        let (forced, _) = indexed("    order: storage\n", MIB);
        assert_eq!(by_sample(&forced, None, &sample(0, (0, 0), (0, 0))).order, Some(Order::Storage));
    }

    #[test]
    fn ids_follow_the_storage_unless_many_neighbours_are_apart() {
        let (rule, _) = indexed("", MIB);
        let follow = |ids| by_sample(&rule, None, &sample(200, (100, 99), ids)).ids_follow;
        assert_eq!([(0, 0), (100, 24), (100, 25)].map(follow), [None, Some(true), Some(false)]);
    }

    #[test]
    fn documents_are_close_within_a_hundredth_of_the_cache() {
        assert_eq!(close(Some(256 * MIB), Some(1024.0)), 2621);
        assert_eq!(close(None, Some(1024.0)), 1024);
        assert_eq!(close(None, Some(0.0)), 1024 * 1024);
    }

    #[test]
    fn neighbours_of_several_samples_add_up() {
        let mut all = Neighbours { pairs: 10, apart: 3 };
        all += Neighbours { pairs: 5, apart: 2 };
        assert_eq!(all, Neighbours { pairs: 15, apart: 5 });
    }
}
