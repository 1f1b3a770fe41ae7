//! Rules whose predicates the program itself builds.

use bson::{Bson, DateTime, Document, doc};
use fastrand::Rng;

use super::Server;
use super::values::{NOW, Shape};
use super::{filters, on, one_of};
use crate::core::expiry::Expiry;
use crate::core::plan::index::IndexChoice;
use crate::core::plan::{Selection, SweepRule};
use crate::core::policy::DateFormat;
use crate::core::policy::namespace::Namespace;
use crate::shell::server::look::catalog;
use crate::testing::made_up::planned;

/// Fields of dates, each with the index on it that `commands` may create.
pub(super) const FIELDS: [&str; 5] = ["at", "a.b", "at.0", "a.0.b", "_id"];

/// Returns some rules for a collection.
pub(super) fn some(random: &mut Rng, namespace: &Namespace, shape: Shape) -> Vec<SweepRule> {
    (0..3).map(|_| rule(random, namespace, shape)).collect()
}

fn rule(random: &mut Rng, namespace: &Namespace, shape: Shape) -> SweepRule {
    use DateFormat::{Date, EpochMillis, EpochSeconds, Iso8601, ObjectId};
    let field = if random.u8(0..4) > 0 { "at" } else { *one_of(random, &FIELDS) };
    let other = *one_of(random, &[Date, EpochSeconds, EpochMillis, ObjectId, Iso8601]);
    // The model reads few of the strings that a mongod takes for dates without a format.
    let has_others = shape.format != Iso8601 || other != Date;
    let format = if random.u8(0..5) > 0 || !has_others { shape.format } else { other };
    let ttl_field = (random.u8(0..3) == 0).then(|| "ttl".to_owned());
    let seconds = *one_of(random, &[Some(0), Some(60), Some(3600), Some(3600), None]);
    let filter = match random.u8(0..10) {
        0 => Some(on("kind", "x")),
        1 => Some(filters::filter(random, 1)),
        _ => None,
    };
    let expiry = Expiry {
        field: field.to_owned(),
        format,
        expire_after_seconds: if ttl_field.is_some() { seconds } else { seconds.or(Some(60)) },
        ttl_field,
        not_before_1970: format == Date && random.u8(0..6) == 0,
        checks_path: random.u8(0..3) == 0,
        filter: filter.clone(),
        as_of: DateTime::from_millis(NOW),
    };
    let made_up = planned("", 3);
    let made_up = made_up.decision.countable().expect("a rule that is swept").clone();
    let selection = Selection { predicate: expiry.predicate(), filter, namespace: namespace.clone(), ..made_up.selection };
    SweepRule { namespace: namespace.clone(), expiry, selection, ..made_up }
}

/// Returns the entries of `listIndexes`; none if there is no collection.
pub(super) async fn indexes(deployment: &Server, namespace: &Namespace) -> Vec<Document> {
    let found = catalog::index_entries(deployment, namespace).await;
    found.expect("an answer").unwrap_or_default()
}

/// Returns the rule along an index that exists.
pub(super) fn along_index(rule: &SweepRule, indexes: &[Document]) -> SweepRule {
    let first = |index: &Document| {
        let (path, direction) = index.get_document("key").ok()?.iter().next()?;
        let name = index.get_str("name").ok()?.to_owned();
        let serves = *path == rule.expiry.field && rule.expiry.format.is_sorted_by_index();
        serves.then(|| IndexChoice { name, oldest_first: *direction == Bson::Int32(1), bounded: true })
    };
    // A sparse index lacks documents.
    let index = indexes.iter().filter(|index| !index.contains_key("sparse")).find_map(first);
    let mut rule = rule.clone();
    rule.selection.index = index;
    rule
}

/// Returns the bounds of a range of a rule's field, as the sweep sets them.
pub(super) fn bounds(random: &mut Rng, rule: &SweepRule) -> Document {
    let mut bounds = Document::new();
    if random.u8(0..3) == 0 {
        let lower = *one_of(random, &["$gt", "$gte"]);
        bounds.insert(lower, super::values::operand(random));
    }
    let upper = if random.u8(0..3) > 0 { rule.expiry.latest_key() } else { super::values::date(random).into() };
    bounds.insert(*one_of(random, &["$lt", "$lte"]), upper);
    doc! { &rule.expiry.field: bounds }
}
