//! The holds of a rule in one namespace: the keys whose documents are kept, and the condition that leaves them out.

use std::cmp::Ordering;
use std::collections::HashSet;
use std::sync::Arc;

use bson::raw::{CStr, CString, cstr};
use bson::spec::ElementType;
use bson::{Bson, Document, RawDocumentBuf};

use crate::base::values::raw::{self, Fields, RawValue};
use crate::core::policy::Holds;
use crate::core::policy::namespace::Namespace;

/// The documents of a rule that are held back.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldBack {
    /// The collection of the holds.
    pub collection: Namespace,
    /// Path of the key in a hold.
    pub in_hold: String,
    pub filter: Option<Document>,
    /// Path of the key in the documents that are stored.
    pub path: String,
    /// The keys that are held, as they were last read; `None` before the first read, when nothing may be deleted.
    pub keys: Option<Arc<KeyList>>,
    /// The keys that were held when the documents were found.
    found_without: Option<Arc<KeyList>>,
}

impl HeldBack {
    /// Creates the holds of a policy for a namespace; `path` is the path of the key in the stored documents.
    pub fn new(holds: &Holds, namespace: &Namespace, path: String) -> Self {
        let Holds { in_hold, filter, .. } = holds.clone();
        Self { collection: holds.collection(namespace), in_hold, filter, path, keys: None, found_without: None }
    }

    /// Whether one read of the holds serves both.
    pub fn is_same_read(&self, other: &Self) -> bool {
        // `==` does not look at the order of keys, which matters in a sub-document.
        let text = |holds: &Self| holds.filter.as_ref().map(Document::to_string);
        self.collection == other.collection && self.in_hold == other.in_hold && text(self) == text(other)
    }

    /// Returns the same holds with the keys of a read; the keys of the read before are the ones without which documents were
    /// found.
    pub fn with(&self, keys: &Arc<KeyList>) -> Self {
        Self { keys: Some(keys.clone()), found_without: self.keys.clone(), ..self.clone() }
    }

    /// Returns the condition for documents without a hold; `None` if nothing is held.
    ///
    /// Errors: the holds were not read.
    pub(crate) fn unheld(&self) -> Result<Option<KeyCondition>, bson::error::Error> {
        KeyCondition::new(&self.path, cstr!("$nin"), self.keys()?.clone())
    }

    /// Returns the condition for documents with a hold; `None` if nothing is held.
    ///
    /// Errors: the holds were not read.
    pub(crate) fn held(&self) -> Result<Option<KeyCondition>, bson::error::Error> {
        KeyCondition::new(&self.path, cstr!("$in"), self.keys()?.clone())
    }

    /// Returns the condition for documents without a hold among those that are in a state in which they were found without one.
    /// Only holds that have come since then can matter.
    ///
    /// Errors: the holds were not read.
    pub(crate) fn unheld_since_found(&self) -> Result<Option<KeyCondition>, bson::error::Error> {
        match &self.found_without {
            Some(before) => KeyCondition::new(&self.path, cstr!("$nin"), Arc::new(self.keys()?.since(before)?)),
            None => self.unheld(),
        }
    }

    /// Returns the bytes that the holds add to a statement.
    pub(crate) fn bytes(&self) -> usize {
        self.keys.as_ref().map_or(0, |keys| keys.bytes())
    }

    fn keys(&self) -> Result<&Arc<KeyList>, bson::error::Error> {
        self.keys.as_ref().ok_or_else(|| serde::ser::Error::custom("the holds were not read"))
    }
}

/// A condition on the key of a document. It shares the list of keys, which can take megabytes, until it is written into a
/// command.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KeyCondition {
    path: CString,
    operator: &'static CStr,
    keys: Arc<KeyList>,
}

impl KeyCondition {
    fn new(path: &str, operator: &'static CStr, keys: Arc<KeyList>) -> Result<Option<Self>, bson::error::Error> {
        let path = CString::try_from(path.to_owned())?;
        Ok((keys.count > 0).then_some(Self { path, operator, keys }))
    }

    pub(crate) fn write(&self, fields: &mut Fields) {
        fields.document(&self.path, |condition| condition.value(self.operator, &self.keys.list));
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
        AROUND_LIST + self.path.as_str().len() + self.keys.bytes()
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

/// Keys that are held, each once.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyList {
    count: usize,
    list: RawValue,
}

impl KeyList {
    /// Creates a list. The server sorts a list that it gets in every command, which takes long unless the list is in order
    /// already. This list is in order, but for types of which few are held.
    pub(crate) fn of(mut keys: Vec<RawValue>) -> Result<Self, bson::error::Error> {
        keys.sort_by(order);
        keys.dedup();
        Ok(Self { count: keys.len(), list: RawValue::list(&keys)? })
    }

    /// Returns the number of keys.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the bytes that the list adds to a statement.
    fn bytes(&self) -> usize {
        if self.count == 0 { 0 } else { self.list.as_bytes().len() }
    }

    /// Returns the keys that an earlier list does not have.
    fn since(&self, before: &Self) -> Result<Self, bson::error::Error> {
        if self.list == before.list {
            return Ok(Self { count: 0, list: RawValue::list(&[])? });
        }
        let known = before.list.items();
        let known: HashSet<(u8, &[u8])> = known.iter().map(|key| (key.kind() as u8, key.as_bytes())).collect();
        Self::of(self.list.items().into_iter().filter(|key| !known.contains(&(key.kind() as u8, key.as_bytes()))).collect())
    }
}

/// Returns what is wrong with the key of a hold; `None` if it can be held.
///
/// Null, a list or a pattern is no key: the server takes them for no value, several values or many. With null, every document
/// without the field would be held. NaN is no key because in most languages nothing is equal to it. A list of keys takes no
/// document whose names begin with `$`.
pub(crate) fn malformed(key: Option<&RawValue>) -> Option<&'static str> {
    let Some(key) = key else { return Some("is missing") };
    match key.kind() {
        ElementType::Null => Some("is null"),
        ElementType::Array => Some("is a list"),
        ElementType::Double | ElementType::Decimal128 => is_nan(key).then_some("is NaN"),
        ElementType::EmbeddedDocument => match key.decoded() {
            Some(Bson::Document(document)) if !has_operator(&document) => None,
            _ => Some("is a document with a name that begins with `$`, or one that is not valid"),
        },
        ElementType::String
        | ElementType::Int32
        | ElementType::Int64
        | ElementType::Binary
        | ElementType::ObjectId
        | ElementType::Boolean
        | ElementType::DateTime
        | ElementType::Timestamp => None,
        _ => Some("is of a type that is no key"),
    }
}

fn is_nan(key: &RawValue) -> bool {
    match key.decoded() {
        Some(Bson::Double(number)) => number.is_nan(),
        Some(Bson::Decimal128(number)) => number.to_string().contains("NaN"),
        _ => true,
    }
}

fn has_operator(document: &Document) -> bool {
    document.iter().any(|(name, value)| name.starts_with('$') || value.as_document().is_some_and(has_operator))
}

/// Compares two keys as the server orders them, without a collation, as far as they are of the same type. The order is one of
/// speed only.
fn order(a: &RawValue, b: &RawValue) -> Ordering {
    let number = |value: &RawValue| match (value.kind(), value.as_bytes()) {
        (ElementType::Int32, bytes) => bytes.try_into().map(|bytes| i64::from(i32::from_le_bytes(bytes))).ok(),
        (ElementType::Int64 | ElementType::DateTime, bytes) => bytes.try_into().map(i64::from_le_bytes).ok(),
        _ => None,
    };
    let double = |value: &RawValue| match (value.kind(), value.as_bytes().try_into()) {
        (ElementType::Double, Ok(bytes)) => Some(f64::from_le_bytes(bytes)),
        _ => None,
    };
    let by_rank = rank(a).cmp(&rank(b));
    let by_value = || match (number(a).zip(number(b)), double(a).zip(double(b)), a.kind()) {
        (Some((a, b)), ..) => a.cmp(&b),
        (_, Some((a, b)), _) => a.total_cmp(&b),
        // Behind the length.
        (_, _, ElementType::String) => a.as_bytes().get(4..).cmp(&b.as_bytes().get(4..)),
        _ => a.as_bytes().cmp(b.as_bytes()),
    };
    by_rank.then_with(by_value).then_with(|| (a.kind() as u8).cmp(&(b.kind() as u8))).then_with(|| a.as_bytes().cmp(b.as_bytes()))
}

/// Returns the place of a type in the server's order; whole numbers of both types share one.
fn rank(value: &RawValue) -> u8 {
    match value.kind() {
        ElementType::Int32 | ElementType::Int64 => 0,
        ElementType::Double => 1,
        ElementType::Decimal128 => 2,
        ElementType::String => 3,
        ElementType::EmbeddedDocument => 4,
        ElementType::Binary => 5,
        ElementType::ObjectId => 6,
        ElementType::Boolean => 7,
        ElementType::DateTime => 8,
        _ => 9,
    }
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, Regex, doc};

    use super::*;
    use crate::testing::made_up::planned;

    fn list(keys: impl IntoIterator<Item = Bson>) -> Arc<KeyList> {
        Arc::new(KeyList::of(keys.into_iter().map(|key| RawValue::of(key).unwrap()).collect()).unwrap())
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
    fn what_is_no_value_or_many_is_no_key() {
        let wrong = |key: Bson| malformed(Some(&RawValue::of(key).unwrap()));
        for key in [
            "x".into(),
            "".into(),
            0.into(),
            (-0.0).into(),
            f64::INFINITY.into(),
            Bson::Decimal128("1.0".parse().unwrap()),
            true.into(),
            DateTime::from_millis(0).into(),
            doc! { "a": { "b": [1] } }.into(),
            bson::oid::ObjectId::new().into(),
        ] {
            assert_eq!(wrong(key.clone()), None, "{key}");
        }
        let pattern = Regex { pattern: bson::raw::cstr!("x").to_owned(), options: bson::raw::cstr!("").to_owned() };
        for (key, why) in [
            (Bson::Null, "is null"),
            (Bson::Array(vec![1.into()]), "is a list"),
            (f64::NAN.into(), "is NaN"),
            (Bson::Decimal128("NaN".parse().unwrap()), "is NaN"),
            (Bson::RegularExpression(pattern), "no key"),
            (Bson::Undefined, "no key"),
            (Bson::MaxKey, "no key"),
            (doc! { "a": { "$gt": 1 } }.into(), "begins with `$`"),
        ] {
            assert!(wrong(key.clone()).is_some_and(|found| found.contains(why)), "{key}");
        }
        assert_eq!(malformed(None), Some("is missing"));
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
