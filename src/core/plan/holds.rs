//! The documents of a rule that holds or periods keep, and the conditions that leave them out.

use std::sync::Arc;

use bson::raw::{CStr, CString, cstr};
use bson::{DateTime, Document, RawDocumentBuf};

use super::periods::{KeptKeys, PeriodCondition, PeriodRule};
use crate::base::values::raw::{self, Fields};
use crate::core::expiry::Expiry;
use crate::core::policy::namespace::Namespace;
use crate::core::policy::{Holds, KeyedCollection, Periods};

/// The documents of a rule that are held back: by holds, or by periods of their own.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldBack {
    /// The collection of the holds, or of the periods.
    pub collection: Namespace,
    /// Path of the key in its documents.
    pub in_hold: String,
    pub filter: Option<Document>,
    /// Path of the key in the documents that are stored.
    pub path: String,
    /// The periods; `None` for holds.
    pub periods: Option<Box<PeriodRule>>,
    /// The keys as they were last read; `None` before the first read, when nothing may be deleted.
    pub keys: Option<Arc<KeptKeys>>,
    /// The keys that were held when the documents were found.
    found_without: Option<Arc<KeptKeys>>,
}

impl HeldBack {
    /// Creates the holds of a policy for a namespace; `path` is the path of the key in the stored documents.
    pub fn new(holds: &Holds, namespace: &Namespace, path: String) -> Self {
        Self { filter: holds.filter.clone(), ..Self::by(&holds.by, namespace, path) }
    }

    /// Creates the periods of a policy for a namespace, of a rule with this expiry; `path` is the path of the key in the stored
    /// documents.
    pub fn of_periods(periods: &Periods, namespace: &Namespace, path: String, expiry: &Expiry) -> Self {
        let Periods { by, value, unit } = periods;
        let of_rule = PeriodRule { value: value.clone(), unit: *unit, expiry: expiry.clone(), shortest: None };
        Self { periods: Some(Box::new(of_rule)), ..Self::by(by, namespace, path) }
    }

    fn by(by: &KeyedCollection, namespace: &Namespace, path: String) -> Self {
        let (collection, in_hold) = (by.collection(namespace), by.key.clone());
        Self { collection, in_hold, filter: None, path, periods: None, keys: None, found_without: None }
    }

    /// Names what the collection has.
    pub fn noun(&self) -> &'static str {
        if self.periods.is_some() { "periods" } else { "holds" }
    }

    /// Whether one read of the holds serves both.
    pub fn is_same_read(&self, other: &Self) -> bool {
        // `==` does not look at the order of keys, which matters in a sub-document.
        let text = |holds: &Self| holds.filter.as_ref().map(Document::to_string);
        let values = |holds: &Self| holds.periods.as_ref().map(|periods| (periods.value.clone(), periods.unit));
        self.collection == other.collection
            && self.in_hold == other.in_hold
            && text(self) == text(other)
            && values(self) == values(other)
    }

    /// Returns the same holds with the keys of a read; the keys of the read before are the ones without which documents were
    /// found.
    pub fn with(&self, keys: &Arc<KeptKeys>) -> Self {
        Self { keys: Some(keys.clone()), found_without: self.keys.clone(), ..self.clone() }
    }

    /// Returns the condition for documents whose period is unclear; `None` if no period is.
    ///
    /// Errors: the keys were not read.
    pub(crate) fn unclear(&self) -> Result<Option<KeyCondition>, bson::error::Error> {
        let unclear = self.keys()?.periods.as_ref().map(|periods| periods.unclear.clone());
        let Some(held) = unclear else { return Ok(None) };
        KeyCondition::new(&self.path, cstr!("$in"), Arc::new(KeptKeys { held, periods: None }))
    }

    /// Returns the condition for documents that are not kept; `None` if nothing is kept.
    ///
    /// Errors: the keys were not read.
    pub(crate) fn unheld(&self) -> Result<Option<KeyCondition>, bson::error::Error> {
        self.unheld_until(None)
    }

    /// Returns the same for documents whose date is at or before `until`, by a condition of its own; `None` for any date.
    ///
    /// Errors: the keys were not read.
    pub(crate) fn unheld_until(&self, until: Option<DateTime>) -> Result<Option<KeyCondition>, bson::error::Error> {
        if let Some(periods) = &self.periods {
            let condition = PeriodCondition::new(periods, &self.path, self.keys()?.clone(), until)?;
            return Ok(condition.map(|condition| KeyCondition::Periods(Box::new(condition))));
        }
        KeyCondition::new(&self.path, cstr!("$nin"), self.keys()?.clone())
    }

    /// Returns the condition for documents whose key is one of those that are held, or whose period is not clear or never ends;
    /// `None` if there is no such key.
    ///
    /// Errors: the keys were not read.
    pub(crate) fn held(&self) -> Result<Option<KeyCondition>, bson::error::Error> {
        KeyCondition::new(&self.path, cstr!("$in"), self.keys()?.clone())
    }

    /// Returns the condition for documents without a hold among those that are in a state in which they were found without one.
    /// Only holds that have come since then can matter.
    ///
    /// Errors: the holds were not read.
    pub(crate) fn unheld_since_found(&self) -> Result<Option<KeyCondition>, bson::error::Error> {
        match &self.found_without {
            Some(before) if self.periods.is_none() => {
                let held = self.keys()?.held.since(&before.held)?;
                KeyCondition::new(&self.path, cstr!("$nin"), Arc::new(KeptKeys { held, periods: None }))
            }
            _ => self.unheld(),
        }
    }

    /// Returns the bytes that the holds add to a statement.
    pub(crate) fn bytes(&self) -> usize {
        self.keys.as_ref().map_or(0, |keys| keys.bytes())
    }

    fn keys(&self) -> Result<&Arc<KeptKeys>, bson::error::Error> {
        self.keys.as_ref().ok_or_else(|| serde::ser::Error::custom(format!("the {} were not read", self.noun())))
    }
}

/// A condition on the key of a document. It shares the lists of keys, which can take megabytes, until it is written into a
/// command.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum KeyCondition {
    /// The key is one of those that are held, or none of them.
    List { path: CString, operator: &'static CStr, keys: Arc<KeptKeys> },
    /// The document has expired by the period of its key.
    Periods(Box<PeriodCondition>),
    /// Each of these.
    All(Vec<Self>),
}

impl KeyCondition {
    fn new(path: &str, operator: &'static CStr, keys: Arc<KeptKeys>) -> Result<Option<Self>, bson::error::Error> {
        let path = CString::try_from(path.to_owned())?;
        Ok((keys.held.count() > 0).then_some(Self::List { path, operator, keys }))
    }

    /// Returns the condition that is met where each of some conditions is; `None` without any.
    pub(super) fn all(mut conditions: Vec<Self>) -> Option<Self> {
        match conditions.len() {
            0 | 1 => conditions.pop(),
            _ => Some(Self::All(conditions)),
        }
    }

    pub(crate) fn write(&self, fields: &mut Fields) {
        match self {
            Self::List { path, operator, keys } => {
                fields.document(path, |condition| condition.value(operator, &keys.held.list));
            }
            Self::Periods(periods) => periods.write(fields),
            Self::All(conditions) => fields.documents(cstr!("$and"), conditions.len(), |one, n| conditions[n].write(one)),
        }
    }

    /// Writes a query together with the condition.
    pub(crate) fn write_with(&self, fields: &mut Fields, query: impl Fn(&mut Fields)) {
        fields.documents(cstr!("$and"), 2, |condition, n| match n {
            0 => query(condition),
            _ => self.write(condition),
        });
    }

    /// Returns the bytes that the condition adds to a query, rounded up.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::List { path, keys, .. } => AROUND_LIST + path.as_str().len() + keys.held.bytes(),
            Self::Periods(periods) => AROUND_LIST + periods.bytes(),
            Self::All(conditions) => AROUND_LIST + conditions.iter().map(Self::bytes).sum::<usize>(),
        }
    }

    /// Returns the condition as a document of its own.
    ///
    /// Errors: the document is too long.
    pub(crate) fn document(&self) -> Result<RawDocumentBuf, bson::error::Error> {
        raw::written(self.bytes(), |fields| self.write(fields))
    }
}

/// Bytes that a condition takes besides its path and its list, with the `$and` around it and a query.
const AROUND_LIST: usize = 60;

#[cfg(test)]
mod tests {
    use bson::{Bson, doc};

    use super::*;
    use crate::base::values::raw::RawValue;
    use crate::testing::made_up::planned;

    fn list(keys: impl IntoIterator<Item = Bson>) -> Arc<KeptKeys> {
        Arc::new(KeptKeys::of(keys.into_iter().map(|key| RawValue::of(key).unwrap()).collect()).unwrap())
    }

    fn held_back() -> HeldBack {
        let rule = planned("    holds: {collection: legal.holds, key: t}\n", 4);
        rule.decision.countable().unwrap().selection.holds.clone().unwrap()
    }

    fn shown(condition: Option<KeyCondition>) -> Option<Document> {
        condition.map(|condition| Document::try_from(&*condition.document().unwrap()).unwrap())
    }

    #[test]
    fn the_condition_has_every_key_once_and_in_order_and_none_if_nothing_is_held() {
        let holds = held_back();
        assert!(holds.unheld().unwrap_err().to_string().contains("the holds were not read"));
        assert!(holds.held().is_err() && holds.unheld_since_found().is_err());
        let none = holds.with(&list([]));
        assert_eq!((none.unheld().unwrap(), none.held().unwrap(), list([]).bytes()), (None, None, 0));
        let keys = list([
            "b".into(),
            10.into(),
            9_i64.into(),
            "a".into(),
            (-1).into(),
            "b".into(),
            "ab".into(),
            2.5.into(),
            (-2.5).into(),
        ]);
        let some = holds.with(&keys);
        let expected: Vec<Bson> =
            vec![(-1).into(), 9_i64.into(), 10.into(), (-2.5).into(), 2.5.into(), "a".into(), "ab".into(), "b".into()];
        assert_eq!(keys.count(), expected.len());
        assert_eq!(shown(some.unheld().unwrap()), Some(doc! { "t": { "$nin": &expected } }));
        assert_eq!(shown(some.held().unwrap()), Some(doc! { "t": { "$in": expected } }));
    }

    #[test]
    fn of_documents_in_a_known_state_only_later_holds_matter() {
        let first = held_back().with(&list([1.into(), 2.into()]));
        // Before a second read, nothing is known to have been found without holds.
        assert_eq!(shown(first.unheld_since_found().unwrap()), Some(doc! { "t": { "$nin": [1, 2] } }));
        assert_eq!(first.with(&list([2.into(), 1.into()])).unheld_since_found().unwrap(), None);
        let later = first.with(&list([2.into(), 3.into(), 1_i64.into()]));
        assert_eq!(shown(later.unheld_since_found().unwrap()), Some(doc! { "t": { "$nin": [1_i64, 3] } }));
        assert_eq!(first.with(&list([])).unheld_since_found().unwrap(), None);
    }

    #[test]
    fn one_read_serves_rules_whose_holds_differ_in_nothing_that_is_read() {
        let holds = held_back();
        let filtered = |filter: Document| HeldBack { filter: Some(filter), ..holds.clone() };
        assert!(holds.is_same_read(&HeldBack { path: "meta.t".into(), ..holds.clone() }));
        assert!(!holds.is_same_read(&filtered(doc! { "a": 1 })));
        assert!(!filtered(doc! { "s": { "a": 1, "b": 2 } }).is_same_read(&filtered(doc! { "s": { "b": 2, "a": 1 } })));
        assert!(!holds.is_same_read(&HeldBack { in_hold: "u".into(), ..holds.clone() }));
    }

    #[test]
    fn the_types_of_keys_are_in_the_servers_order() {
        use bson::{Binary, Timestamp, spec::BinarySubtype};
        let in_order: Vec<Bson> = vec![
            (-1).into(),
            7_i64.into(),
            2.5.into(),
            Bson::Decimal128("-9.5".parse().unwrap()),
            "z".into(),
            doc! { "a": 1 }.into(),
            Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: vec![0] }),
            bson::oid::ObjectId::from_bytes([0; 12]).into(),
            true.into(),
            DateTime::from_millis(5).into(),
            Bson::Timestamp(Timestamp { time: 0, increment: 0 }),
        ];
        let of = |keys: Vec<Bson>| shown(held_back().with(&list(keys)).held().unwrap());
        let expected = Some(doc! { "t": { "$in": &in_order } });
        assert_eq!(of(in_order.iter().rev().cloned().collect()), expected);
        assert_eq!(of(in_order), expected);
    }

    #[test]
    fn the_bytes_of_the_holds_are_what_they_add_to_a_statement_and_little_more() {
        let long = "x".repeat(500);
        for (path, keys) in [("t", vec![Bson::from(1)]), (long.as_str(), vec![long.as_str().into(), 2.into()])] {
            let holds = HeldBack { path: path.to_owned(), ..held_back() }.with(&list(keys));
            let condition = holds.unheld().unwrap().unwrap();
            let alone = condition.document().unwrap().as_bytes().len();
            let query = RawDocumentBuf::try_from(&doc! { "at": 1 }).unwrap();
            let together = raw::written(0, |fields| condition.write_with(fields, |whole| whole.all_of(&query))).unwrap();
            let added = together.as_bytes().len() - query.as_bytes().len();
            assert!((added..added + 30).contains(&condition.bytes()), "{added} {}", condition.bytes());
            assert!(holds.bytes() < alone && holds.bytes() + path.len() + 30 > alone, "{alone} {}", holds.bytes());
        }
        assert_eq!((held_back().bytes(), held_back().with(&list([])).bytes()), (0, 0));
    }

    #[test]
    fn a_filter_leaves_out_what_is_held_and_stays_as_it_is_where_nothing_is() {
        let of = |keys: Option<Vec<Bson>>| {
            let mut selection =
                planned("    holds: {collection: legal.holds, key: t}\n", 4).decision.countable().unwrap().selection.clone();
            selection.holds = keys.map(|keys| held_back().with(&list(keys)));
            selection.without_held(&doc! { "at": 1 }).map(|filter| Document::try_from(&*filter).unwrap())
        };
        assert_eq!(of(None).unwrap(), doc! { "at": 1 });
        assert_eq!(of(Some(vec![])).unwrap(), doc! { "at": 1 });
        assert_eq!(of(Some(vec![1.into()])).unwrap(), doc! { "$and": [{ "at": 1 }, { "t": { "$nin": [1] } }] });
        let selection =
            planned("    holds: {collection: legal.holds, key: t}\n", 4).decision.countable().unwrap().selection.clone();
        assert!(selection.without_held(&doc! { "at": 1 }).is_err(), "the holds were not read");
    }
}
