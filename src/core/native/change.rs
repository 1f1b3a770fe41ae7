//! Commands that give a native TTL setting the value that a rule asks for.

use bson::{Bson, Document, doc};
use serde_json::Value;

use super::target::TtlTarget;
use crate::core::facts::{Collection, CollectionKind, IndexFacts, NativeTtl, Scope};
use crate::core::flavor::PlainToTtl;
use crate::core::plan::index::is_same_collation;
use crate::core::policy::namespace::Namespace;

/// The commands that change one setting.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub namespace: Namespace,
    /// In the order in which they are run. They contain only values from the policy: whole seconds within int32, never NaN, which
    /// collMod would store as 0.
    pub commands: Vec<Document>,
}

impl Change {
    /// Returns the name of the index that the change creates.
    pub fn new_index(&self) -> Option<&str> {
        let created = self.commands.iter().find_map(|command| command.get_array("indexes").ok())?;
        created.first()?.as_document()?.get_str("name").ok()
    }

    /// Whether the change begins with dropping an index.
    pub fn drops(&self) -> bool {
        self.commands.first().is_some_and(|command| command.contains_key("dropIndexes"))
    }

    /// Returns the commands as one would paste them into mongosh.
    pub fn shell(&self) -> String {
        let database = Value::from(self.namespace.database.as_str());
        let run = |command| format!("db.getSiblingDB({database}).runCommand({})", document(command));
        self.commands.iter().map(run).collect::<Vec<_>>().join("; ")
    }
}

/// Returns the change that gives an existing setting the value of the target.
///
/// Errors: the reason why the setting cannot be changed in place.
pub fn alter(collection: &Collection, native: &NativeTtl, target: &TtlTarget) -> Result<Change, String> {
    match (&native.index, target.seconds) {
        // Azure Cosmos DB (RU) has no collMod (Microsoft, "Supported features and syntax", 3.6 to 7.0).
        (Some(index), seconds) if collection.kind == CollectionKind::CosmosRu => {
            Ok(replace_index(collection, index, target, seconds))
        }
        (Some(index), _) if is_series(collection) => Err(format!(
            "the server changes no TTL index of a time-series collection: drop `{index}`, and `sweeper native apply` creates it again"
        )),
        (Some(index), Some(seconds)) => Ok(modify_index(collection, index, seconds)),
        (Some(index), None) => Err(format!(
            "the rule is disabled, and a TTL index cannot be switched off: drop `{index}`, and create it without expireAfterSeconds if queries use it"
        )),
        (None, seconds) => Ok(modify_collection(collection, seconds)),
    }
}

/// Returns the change that creates a missing setting. `planned` are the changes that come before it.
///
/// Errors: the message names an index that is in the way.
pub fn create(
    collection: &Collection,
    target: &TtlTarget,
    seconds: i64,
    plain_to_ttl: PlainToTtl,
    planned: &[(TtlTarget, Change)],
) -> Result<Change, String> {
    if target.scope == Scope::LastChange {
        return Ok(match plain_index(collection, target) {
            Some(index) => replace_index(collection, index, target, Some(seconds)),
            None => {
                change(collection, vec![create_index(collection, target, seconds, free_name(collection, &target.field, planned))])
            }
        });
    }
    if target.scope != Scope::Index {
        return Ok(modify_collection(collection, Some(seconds)));
    }
    match (plain_index(collection, target), plain_to_ttl) {
        (Some(index), _) if is_series(collection) => Err(format!(
            "the index `{index}` without expireAfterSeconds is in the way, and the server changes no index of a time-series collection into a \
             TTL index; drop it, and this creates it again"
        )),
        (Some(index), PlainToTtl::Modified) => Ok(modify_index(collection, index, seconds)),
        (Some(index), PlainToTtl::Replaced) if !has_further_options(collection, index) => {
            Ok(replace_index(collection, index, target, Some(seconds)))
        }
        (Some(index), _) => Err(format!(
            "the plain index `{index}` is in the way, and this server makes no TTL index of it; drop it, and this creates it again"
        )),
        (None, _) => {
            Ok(change(collection, vec![create_index(collection, target, seconds, free_name(collection, &target.field, planned))]))
        }
    }
}

fn is_series(collection: &Collection) -> bool {
    matches!(collection.kind, CollectionKind::TimeSeries(_))
}

/// Finds an index without expireAfterSeconds on the same field with the same filter. The server accepts no TTL index in addition
/// to such an index, but can turn it into one.
pub fn plain_index<'a>(collection: &'a Collection, target: &TtlTarget) -> Option<&'a str> {
    let serves = |index: &&IndexFacts| {
        index.expire_after_seconds.is_none()
            && index.date_field() == Some(&target.field)
            && is_same_filter(index.partial.as_ref(), index.collation.as_ref(), target)
    };
    collection.indexes.iter().find(serves).map(|index| index.name.as_str())
}

/// Whether an index has options that it would lose by being replaced.
fn has_further_options(collection: &Collection, name: &str) -> bool {
    collection.indexes.iter().any(|index| index.name == name && (index.unique || index.sparse || index.hidden))
}

/// Whether an index contains the same documents as the one of the target.
pub fn is_same_filter(partial: Option<&Document>, collation: Option<&Document>, target: &TtlTarget) -> bool {
    let partial = partial.filter(|partial| !partial.is_empty());
    // Dates compare alike under every collation, which matters only to the filter.
    partial.map(plain_numbers) == target.partial.as_ref().map(plain_numbers)
        && (partial.is_none() || is_same_collation(collation, target.collation.as_ref()))
}

/// Returns a document with its whole numbers in one type: `5` is an int32 in a policy and a double from an old shell, and both
/// match alike.
fn plain_numbers(document: &Document) -> Document {
    fn plain(value: &Bson) -> Bson {
        match value {
            Bson::Int32(n) => Bson::Int64(i64::from(*n)),
            Bson::Double(n) if n.fract() == 0.0 && n.abs() < 9e15 => Bson::Int64(*n as i64),
            Bson::Document(inner) => Bson::Document(plain_numbers(inner)),
            Bson::Array(items) => Bson::Array(items.iter().map(plain).collect()),
            other => other.clone(),
        }
    }
    document.iter().map(|(name, value)| (name.clone(), plain(value))).collect()
}

fn modify_index(collection: &Collection, index: &str, seconds: i64) -> Change {
    let index = doc! { "name": index, "expireAfterSeconds": whole(seconds) };
    change(collection, vec![doc! { "collMod": &collection.namespace.collection, "index": index }])
}

/// Returns the change that drops an index and, unless TTL is to be off, creates it again under the same name.
fn replace_index(collection: &Collection, index: &str, target: &TtlTarget, seconds: Option<i64>) -> Change {
    let drop = doc! { "dropIndexes": &collection.namespace.collection, "index": index };
    let create = seconds.map(|seconds| create_index(collection, target, seconds, index.to_owned()));
    change(collection, [drop].into_iter().chain(create).collect())
}

fn modify_collection(collection: &Collection, seconds: Option<i64>) -> Change {
    let value = seconds.map_or(Bson::from("off"), whole);
    change(collection, vec![doc! { "collMod": &collection.namespace.collection, "expireAfterSeconds": value }])
}

fn create_index(collection: &Collection, target: &TtlTarget, seconds: i64, name: String) -> Document {
    let mut index = doc! {
        "key": { &target.field: 1 },
        "name": name,
        "expireAfterSeconds": whole(seconds),
    };
    if let Some(partial) = &target.partial {
        index.insert("partialFilterExpression", partial.clone());
        // An index that is created without a collation gets the collation of the collection.
        if !is_same_collation(target.collation.as_ref(), collection.collation.as_ref()) {
            index.insert("collation", target.collation.clone().unwrap_or_else(|| doc! { "locale": "simple" }));
        }
    }
    doc! { "createIndexes": &collection.namespace.collection, "indexes": [index] }
}

fn whole(seconds: i64) -> Bson {
    i32::try_from(seconds).map_or(Bson::Int64(seconds), Bson::Int32)
}

fn change(collection: &Collection, commands: Vec<Document>) -> Change {
    Change { namespace: collection.namespace.clone(), commands }
}

/// Returns the name that mongosh would give the index, with a number if that name is taken.
fn free_name(collection: &Collection, field: &str, planned: &[(TtlTarget, Change)]) -> String {
    let is_free = |name: &String| {
        !planned.iter().any(|(_, change)| change.new_index() == Some(name.as_str()))
            && !collection.indexes.iter().any(|index| index.name == *name)
    };
    let mut names = std::iter::once(format!("{field}_1")).chain((1..).map(|number| format!("{field}_1_ttl{number}")));
    names.find(is_free).unwrap_or_default()
}

/// Writes a document as a literal of mongosh.
fn document(document: &Document) -> String {
    let entries: Vec<String> = document.iter().map(|(name, value)| format!("{}: {}", key(name), literal(value))).collect();
    format!("{{{}}}", entries.join(", "))
}

fn key(name: &str) -> String {
    let is_identifier = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c == '$')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '$');
    // Even in quotation marks this key would set the object's prototype.
    if name == "__proto__" {
        "[\"__proto__\"]".to_owned()
    } else if is_identifier {
        name.to_owned()
    } else {
        Value::from(name).to_string()
    }
}

fn literal(value: &Bson) -> String {
    match value {
        Bson::Document(inner) => document(inner),
        Bson::Array(items) => format!("[{}]", items.iter().map(literal).collect::<Vec<_>>().join(", ")),
        Bson::String(text) => Value::from(text.as_str()).to_string(),
        Bson::Boolean(_) | Bson::Null | Bson::Int32(_) => value.to_string(),
        Bson::Int64(n) => format!("NumberLong(\"{n}\")"),
        // mongosh sends a whole number as an int32.
        Bson::Double(n) if n.is_finite() => format!("Double({n:?})"),
        other => format!("EJSON.deserialize({})", other.clone().into_canonical_extjson()),
    }
}

#[cfg(test)]
mod tests {
    use bson::DateTime;

    use super::*;

    #[test]
    fn values_keep_their_types_in_the_shell() {
        let namespace = Namespace { database: "a\"b".into(), collection: "c".into() };
        let command = doc! {
            "collMod": "c d", "x.y": [1, 2_i64, 1.0, true, Bson::Null], "at": DateTime::from_millis(1), "__proto__": "\n",
        };
        assert_eq!(
            Change { namespace, commands: vec![command] }.shell(),
            "db.getSiblingDB(\"a\\\"b\").runCommand({collMod: \"c d\", \"x.y\": [1, NumberLong(\"2\"), Double(1.0), true, null], \
             at: EJSON.deserialize({\"$date\":{\"$numberLong\":\"1\"}}), [\"__proto__\"]: \"\\n\"})"
        );
    }
}
