//! Ranges of the `_id`, `lo <= _id < hi`, for a collection without a usable index and for buckets. The server examines each
//! document once, while it deletes.

use bson::{Bson, Document, doc};

use crate::base::values::float;
use crate::base::values::raw::RawValue;
use crate::core::facts::Topology;
use crate::core::plan::Storage;
use crate::shell::server::delete::restriction::Restriction;
use crate::shell::server::wire::error::Result;
use crate::shell::server::wire::find::Query;
use crate::shell::sweep::{NextBatch, RuleSweep};

/// One pass over the `_id`s of a collection.
pub(crate) struct IdSlices<'a> {
    sweep: &'a RuleSweep,
    /// The beginning of the next range.
    begin: Bson,
    /// The last `_id` when the pass began: documents inserted later are for another run.
    last: Bson,
    exhausted: bool,
}

impl<'a> IdSlices<'a> {
    /// Opens a pass; `None` if ranges would be worse than one read of the collection: the order of `_id`s that are not ObjectIds
    /// may be unrelated to the order in which the documents are stored, and a comparison covers values of one type only.
    pub(crate) async fn open(sweep: &'a RuleSweep) -> Result<Option<Self>> {
        let RuleSweep { deployment, rule, .. } = sweep;
        // The same `_id` can be on two shards, and a range of one document might then end where it begins.
        if rule.selection.storage == Storage::Clustered || deployment.facts.topology == Topology::Sharded {
            return Ok(None);
        }
        if sweep.ids_follow == Some(false) {
            return Ok(None);
        }
        let mut ends = Vec::new();
        for direction in [1, -1] {
            // The dates of buckets are in the order of the `_id`: there is nothing to do before the first expired one, nor after
            // the last.
            let filter = if rule.selection.is_buckets() { rule.selection.predicate.clone() } else { Document::new() };
            ends.extend(first_id(sweep, ids(sweep, filter, direction)).await?);
        }
        let [begin, last] = ends.as_slice() else { return Ok(None) };
        let is_range = match (begin, last) {
            (Bson::ObjectId(_), Bson::ObjectId(_)) => true,
            // All between two numbers are numbers. NaN comes first among them, and compares only with itself.
            (begin, last) => sweep.ids_follow == Some(true) && is_finite(begin) && is_finite(last),
        };
        Ok(is_range.then(|| Self { sweep, begin: begin.clone(), last: last.clone(), exhausted: false }))
    }

    /// Returns the next range, of at most `max` documents.
    ///
    /// Errors: the reason why the pass cannot go on.
    pub(crate) async fn take(&mut self, max: u64) -> std::result::Result<NextBatch, String> {
        if self.exhausted {
            return Ok(NextBatch::Exhausted);
        }
        let rest = doc! { "_id": { "$gte": &self.begin, "$lte": &self.last } };
        let end = first_id(self.sweep, ids(self.sweep, rest, 1).skip(max)).await;
        let end = end.map_err(|cause| self.sweep.explain_read(&cause))?;
        let bounds = match &end {
            Some(end) => doc! { "$gte": &self.begin, "$lt": end },
            None => doc! { "$gte": &self.begin, "$lte": &self.last },
        };
        match end {
            Some(end) => self.begin = end,
            None => self.exhausted = true,
        }
        let restriction =
            Box::new(Restriction::Range { bounds: doc! { "_id": bounds }, hint: Bson::Document(doc! { "_id": 1 }) });
        Ok(NextBatch::Batch { restriction, documents: max })
    }
}

/// Whether a value is a number that can bound a range.
fn is_finite(value: &Bson) -> bool {
    float(value).is_some_and(f64::is_finite)
}

/// Returns a query for `_id`s, ascending if `direction` is 1 and descending if it is -1.
fn ids(sweep: &RuleSweep, filter: Document, direction: i32) -> Query {
    sweep.query(filter).projection(doc! { "_id": 1 }).sort(doc! { "_id": direction }).hint(Some(doc! { "_id": 1 }))
}

/// Returns the first `_id`; undefined, which no `_id` is, if it is not valid.
async fn first_id(sweep: &RuleSweep, query: Query) -> Result<Option<Bson>> {
    let found = query.limit(1).first_batch(&sweep.deployment).await?;
    let id = found.first().and_then(|document| RawValue::at(document, "_id"));
    Ok(id.map(|id| id.decoded().unwrap_or(Bson::Undefined)))
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::*;
    use crate::shell::lock::lease::Leases;
    use crate::testing::made_up::sweep;
    use crate::testing::scripted::Script;
    use crate::testing::scripted::ScriptedReply::{self, Batch};

    fn id(n: u8) -> Bson {
        ObjectId::from_bytes([n; 12]).into()
    }

    fn found(id: Option<Bson>) -> ScriptedReply {
        Batch(id.into_iter().map(|id| doc! { "_id": id }).collect())
    }

    #[tokio::test]
    async fn ranges_are_opened_only_where_all_ids_are_of_one_type_and_in_the_order_of_the_storage() {
        let number = |n: f64| Some(Bson::from(n));
        for (first, last, ids_follow, is_range) in [
            (Some(id(1)), Some(id(9)), None, true),
            (Some(id(1)), Some(id(9)), Some(true), true),
            (Some(1.into()), Some(Bson::Int64(9)), Some(true), true),
            (Some(1.into()), Some(9.into()), None, false),
            (number(f64::NAN), number(9.0), Some(true), false),
            (number(1.0), number(f64::INFINITY), Some(true), false),
            (Some("a".into()), Some("z".into()), Some(true), false),
            (Some(1.into()), Some(id(9)), Some(true), false),
            (None, None, None, false),
        ] {
            let script = Script::new([found(first.clone()), found(last.clone())]);
            let mut sweep = sweep::sweep(&script, 100, &Leases::default(), None);
            sweep.ids_follow = ids_follow;
            let opened = IdSlices::open(&sweep).await.unwrap();
            assert_eq!(opened.is_some(), is_range, "{first:?} {last:?} {ids_follow:?}");
            let sorted: Vec<_> = script.sent().iter().map(|find| find.get_document("sort").unwrap().clone()).collect();
            assert_eq!(sorted, [doc! { "_id": 1 }, doc! { "_id": -1 }]);
            assert!(script.sent().iter().all(|find| find.get_document("filter").unwrap().is_empty()));
        }
    }

    #[tokio::test]
    async fn nothing_is_read_where_ranges_are_of_no_use_and_only_what_has_expired_among_buckets() {
        let open = |storage: Storage, topology: Topology, ids_follow: Option<bool>| async move {
            let script = Script::new([found(Some(id(1))), found(Some(id(9)))]);
            let mut sweep = sweep::sweep(&script, 100, &Leases::default(), None);
            sweep.rule.selection.storage = storage;
            sweep.deployment.facts.topology = topology;
            sweep.ids_follow = ids_follow;
            let is_open = IdSlices::open(&sweep).await.unwrap().is_some();
            let predicate = sweep.rule.selection.predicate.clone();
            (is_open, script.sent().iter().filter(|find| find.get_document("filter").unwrap() == &predicate).count())
        };
        let buckets = Storage::Buckets { measurements: "t".into() };
        for (storage, topology, ids_follow, expected) in [
            (Storage::Plain, Topology::ReplicaSet, None, (true, 0)),
            (buckets, Topology::ReplicaSet, None, (true, 2)),
            (Storage::Clustered, Topology::ReplicaSet, None, (false, 0)),
            (Storage::Plain, Topology::Sharded, None, (false, 0)),
            (Storage::Plain, Topology::ReplicaSet, Some(false), (false, 0)),
        ] {
            assert_eq!(open(storage.clone(), topology, ids_follow).await, expected, "{storage:?} {topology:?} {ids_follow:?}");
        }
    }

    #[tokio::test]
    async fn ranges_follow_each_other_up_to_the_last_id_that_was_there() {
        let script = Script::new([found(Some(id(1))), found(Some(id(9))), found(Some(id(4))), found(None)]);
        let sweep = sweep::sweep(&script, 100, &Leases::default(), None);
        let mut slices = IdSlices::open(&sweep).await.unwrap().unwrap();
        for expected in [doc! { "$gte": id(1), "$lt": id(4) }, doc! { "$gte": id(4), "$lte": id(9) }] {
            let NextBatch::Batch { restriction, documents: 50 } = slices.take(50).await.unwrap() else { panic!("a range") };
            let hint = Bson::Document(doc! { "_id": 1 });
            assert_eq!(*restriction, Restriction::Range { bounds: doc! { "_id": expected }, hint });
        }
        assert!(matches!(slices.take(50).await.unwrap(), NextBatch::Exhausted));
        let ends: Vec<_> = script.sent()[2..].iter().map(|find| find.get_i64("skip").unwrap()).collect();
        assert_eq!(ends, [50, 50]);
    }
}
