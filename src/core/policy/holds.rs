//! The keys `holds` and `periods` of a rule: collections whose documents say what must not go, or when it goes.

use bson::Document;
use serde_json::{Value, json};

use super::entry::Entry;
use super::key::{AnyKey, Key, Kind, Section};
use super::kinds::{Text, Words};
use super::mapping::Mapping;
use super::namespace::Namespace;
use super::nested::Filter;
use super::yaml::Node;
use super::{Variable, filter, strings};

/// A collection whose documents say something of the rule's documents that have the same value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyedCollection {
    pub place: KeyedPlace,
    /// Path of the value in the rule's documents.
    pub of: String,
    /// Path of the value in the documents of the collection.
    pub key: String,
}

/// Holds: a document of the rule is kept while a document of a collection has the same value.
#[derive(Debug, Clone, PartialEq)]
pub struct Holds {
    pub by: KeyedCollection,
    /// The documents of the collection that count; `None` for all.
    pub filter: Option<Document>,
    /// The values of the filter that stand for environment variables, and may be secret.
    pub variables: Vec<Variable>,
}

/// Periods: a document of the rule expires after the time that the document of a collection with the same value names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Periods {
    pub by: KeyedCollection,
    /// Path of the time in the documents of the collection.
    pub value: String,
    /// Seconds of its unit.
    pub unit: i64,
}

/// The place of such a collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyedPlace {
    Namespace(Namespace),
    /// A collection in the database of the rule.
    Beside(String),
}

impl KeyedCollection {
    /// Returns the collection as the policy names it.
    pub fn place(&self) -> String {
        match &self.place {
            KeyedPlace::Namespace(namespace) => namespace.to_string(),
            KeyedPlace::Beside(collection) => collection.clone(),
        }
    }

    /// Returns the collection for the documents of a namespace.
    pub fn collection(&self, of_rule: &Namespace) -> Namespace {
        match &self.place {
            KeyedPlace::Namespace(namespace) => namespace.clone(),
            KeyedPlace::Beside(collection) => Namespace { database: of_rule.database.clone(), collection: collection.clone() },
        }
    }
}

const PLACE: Text<KeyedPlace> = Text::new(
    "`database.collection`, or a collection in the database of the rule",
    r#"^((?!(admin|config|local)\.)[^*./\\ "$<>:|?\u0000]+\.(?!system\.)(oplog\.\$[^*\u0000]*|[^*$\u0000]+)|[^*.$\u0000]+)$"#,
    parse_place,
);

static COLLECTION: Key<Text<KeyedPlace>> =
    Key::new("collection", PLACE, "Collection of the holds; it must exist, and the user needs `find` on it.")
        .examples(&["legal.holds", "holds"])
        .required("`database.collection`");

static KEY: Key<HeldKey> = Key::new(
    "key",
    HeldKey,
    "Path of the value that a document and its hold share; `of` and `in` where the two have different names.",
)
.examples(&["tenantId", "{of: tenantId, in: customer}"])
.required("a field path");

static FILTER: Key<Filter> =
    Key::new("filter", Filter, "The holds that count: MongoDB's query language as Extended JSON. Default: all.")
        .examples(&["{active: true}", "{until: {$gt: {$date: '2030-01-01T00:00:00Z'}}}"]);

/// Keys of `holds`.
pub(super) static IN_HOLDS: &[&dyn AnyKey] = &[&COLLECTION, &KEY, &FILTER];

static OF: Key<Text<String>> =
    Key::new("of", FIELD_PATH, "Path in the documents of the rule.").examples(&["tenantId"]).required("a field path");

static IN: Key<Text<String>> = Key::new("in", FIELD_PATH, "Path in the holds.").examples(&["customer"]).required("a field path");

static IN_KEY: Section = Section { title: "", lists: &[&[&OF, &IN]] };

const FIELD_PATH: Text<String> = Text::new("a field path", strings::FIELD_PATTERN, strings::parse_field);

/// A path that documents and holds share, or one of each: first the path of the documents.
struct HeldKey;

impl Kind for HeldKey {
    type Value = (String, String);

    fn read(&self, entry: &Entry) -> Option<(String, String)> {
        if let Node::Map(_) = entry.node {
            let map = Mapping::open(entry.clone(), &IN_KEY)?;
            return map.optional(&OF).zip(map.optional(&IN));
        }
        FIELD_PATH.read(entry).map(|path| (path.clone(), path))
    }

    fn schema(&self) -> Value {
        json!({ "anyOf": [FIELD_PATH.schema(), IN_KEY.schema(|key| key.schema())] })
    }

    fn words(&self) -> String {
        "a field path, or a mapping".to_owned()
    }

    fn section(&self) -> Option<&'static Section> {
        Some(&IN_KEY)
    }
}

fn parse_place(text: &str) -> Result<KeyedPlace, String> {
    if text.contains('.') {
        return Namespace::parse(text).map(KeyedPlace::Namespace);
    }
    // A name is valid or not whatever its database is called.
    Namespace::parse(&format!("database.{text}"))
        .map_err(|_| format!("{text:?} is no collection; expected `database.collection`"))?;
    Ok(KeyedPlace::Beside(text.to_owned()))
}

fn read_keyed(map: &Mapping, collection: &Key<Text<KeyedPlace>>, key: &Key<HeldKey>) -> Option<KeyedCollection> {
    let (of, key) = map.optional(key)?;
    Some(KeyedCollection { place: map.optional(collection)?, of, key })
}

pub(super) fn read_holds(map: &Mapping) -> Option<Holds> {
    let variables = map.entry(&FILTER).map(|entry| filter::variables(entry.node, entry.context.env));
    Some(Holds {
        by: read_keyed(map, &COLLECTION, &KEY)?,
        filter: map.optional(&FILTER),
        variables: variables.unwrap_or_default(),
    })
}

static PERIODS_COLLECTION: Key<Text<KeyedPlace>> =
    Key::new("collection", PLACE, "Collection of the periods; it must exist, and the user needs `find` on it.")
        .examples(&["app.tenants", "tenants"])
        .required("`database.collection`");

static PERIODS_KEY: Key<HeldKey> = Key::new(
    "key",
    HeldKey,
    "Path of the value that a document and its period share; `of` and `in` where the two have different names.",
)
.examples(&["{of: tenantId, in: _id}", "tenantId"])
.required("a field path");

static VALUE: Key<Text<String>> = Key::new(
    "value",
    FIELD_PATH,
    "Path of the period: a whole number above 0, or -1 for never. Without one expireAfter applies; anything else keeps the documents.",
)
.examples(&["retentionDays", "settings.days"])
.required("a field path");

static UNIT: Key<Words<i64>> =
    Key::new("unit", Words(&[("s", 1), ("m", 60), ("h", 3_600), ("d", 86_400), ("w", 604_800)]), "Unit of the period.")
        .examples(&["d"])
        .required("one of `s`, `m`, `h`, `d`, `w`");

/// Keys of `periods`.
pub(super) static IN_PERIODS: &[&dyn AnyKey] = &[&PERIODS_COLLECTION, &PERIODS_KEY, &VALUE, &UNIT];

pub(super) fn read_periods(map: &Mapping) -> Option<Periods> {
    Some(Periods {
        by: read_keyed(map, &PERIODS_COLLECTION, &PERIODS_KEY)?,
        value: map.optional(&VALUE)?,
        unit: map.optional(&UNIT)?,
    })
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;
    use crate::core::policy::parse::parse;

    fn holds(value: &str) -> Result<Holds, String> {
        let text = format!("{{version: 1, collections: [{{namespace: app.c, field: at, expireAfter: 1h, holds: {value}}}]}}");
        let policy = parse("p", &text, &|_| None, true).map_err(|problems| problems.to_string())?;
        Ok(policy.rules[0].holds.clone().unwrap())
    }

    #[test]
    fn holds_are_in_a_namespace_or_next_to_the_documents_with_one_path_or_two() {
        let of_rule = Namespace { database: "app".into(), collection: "c".into() };
        let found = holds("{collection: legal.holds, key: tenantId, filter: {active: true}}").unwrap();
        assert_eq!((found.by.of.as_str(), found.by.key.as_str()), ("tenantId", "tenantId"));
        assert_eq!(
            (found.filter.clone(), found.by.collection(&of_rule).to_string()),
            (Some(doc! { "active": true }), "legal.holds".into())
        );
        let found = holds("{collection: holds, key: {of: meta.tenant, in: customer}}").unwrap();
        assert_eq!((found.by.of.as_str(), found.by.key.as_str(), found.filter.clone()), ("meta.tenant", "customer", None));
        assert_eq!(found.by.collection(&of_rule).to_string(), "app.holds");
    }

    #[test]
    fn holds_that_say_too_little_are_no_holds() {
        for (value, why) in [
            ("legal.holds", "expected a mapping"),
            ("{collection: legal.holds}", "no `key`"),
            ("{key: tenantId}", "no `collection`"),
            ("{collection: admin.holds, key: t}", "admin"),
            ("{collection: 'legal.*', key: t}", "has a `*`"),
            ("{collection: 'a$b', key: t}", "is no collection"),
            ("{collection: legal.holds, key: $t}", "key"),
            ("{collection: legal.holds, key: [t]}", "key"),
            ("{collection: legal.holds, key: {of: t}}", "no `in`"),
            ("{collection: legal.holds, key: {of: t, in: c, as: x}}", "unknown key `as`"),
            ("{collection: legal.holds, key: t, filter: {}}", "empty filter"),
            ("{collection: legal.holds, key: t, filter: {$where: x}}", "not allowed"),
            ("{collection: legal.holds, keys: t, key: t}", "unknown key `keys`"),
        ] {
            let problems = holds(value).unwrap_err();
            assert!(problems.contains(why), "{value}: {problems}");
        }
    }
}
