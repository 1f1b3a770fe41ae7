//! What is sent to the server so that a native TTL setting becomes what a rule wants.

use bson::{Bson, Document, doc};

use super::possible::Wanted;
use super::{Collection, NativeTtl, Scope, shell, single_field};
use crate::facts::IndexFacts;
use crate::plan::index::is_same_collation;
use crate::policy::namespace::Namespace;

/// Wire version of MongoDB 5.1: collMod makes a TTL index of a plain one.
const PLAIN_TO_TTL: i32 = 14;

/// One command that changes one setting.
#[derive(Debug, Clone, PartialEq)]
pub struct Change {
    pub namespace: Namespace,
    /// Carries values of the policy alone: whole seconds within int32, never NaN, which collMod would store as 0.
    pub command: Document,
}

impl Change {
    /// The name of the index that it makes.
    pub fn new_index(&self) -> Option<&str> {
        self.command.get_array("indexes").ok()?.first()?.as_document()?.get_str("name").ok()
    }

    /// The command as a person would paste it into mongosh.
    pub fn shell(&self) -> String {
        shell::command(&self.namespace, &self.command)
    }
}

/// The change from a setting that is there to the one that is wanted.
///
/// Errors: why it cannot be made in place.
pub fn alter(collection: &Collection, native: &NativeTtl, wanted: &Wanted) -> Result<Change, String> {
    match (&native.index, wanted.seconds) {
        (Some(index), _) if wanted.scope == Scope::LastChange => Err(format!(
            "this service changes no index in place: drop `{index}`, and create it anew with `sweeper native apply`; until then nothing expires"
        )),
        (Some(index), Some(seconds)) => Ok(modify_index(collection, index, seconds)),
        (Some(index), None) => Err(format!(
            "the rule is disabled, and a TTL index cannot be switched off: drop `{index}`, and create it without expireAfterSeconds if queries use it"
        )),
        (None, seconds) => Ok(modify_collection(collection, seconds)),
    }
}

/// The change that makes a setting where there is none. `planned` are the changes that come before it.
///
/// Errors: what stands in the way.
pub fn create(
    collection: &Collection,
    wanted: &Wanted,
    seconds: i64,
    wire_version: i32,
    planned: &[(Wanted, Change)],
) -> Result<Change, String> {
    if wanted.scope == Scope::LastChange {
        return match plain_index(collection, wanted) {
            Some(index) => {
                Err(format!("the index `{index}` without expireAfterSeconds is in the way; drop it, and this creates it anew"))
            }
            None => Ok(create_index(collection, wanted, seconds, planned)),
        };
    }
    if wanted.scope != Scope::Index {
        return Ok(modify_collection(collection, Some(seconds)));
    }
    match plain_index(collection, wanted) {
        Some(index) if wire_version < PLAIN_TO_TTL => Err(format!(
            "the plain index `{index}` is in the way, and before MongoDB 5.1 no plain index becomes a TTL index; drop it, and this creates it anew"
        )),
        Some(index) => Ok(modify_index(collection, index, seconds)),
        None => Ok(create_index(collection, wanted, seconds, planned)),
    }
}

/// An index without expireAfterSeconds on the same field with the same filter: beside it the server takes no TTL index, and it serves as one.
pub fn plain_index<'a>(collection: &'a Collection, wanted: &Wanted) -> Option<&'a str> {
    let serves = |index: &&IndexFacts| {
        index.expire_after_seconds.is_none()
            && single_field(index) == Some(wanted.field.as_str())
            && is_same_filter(index.partial.as_ref(), index.collation.as_ref(), wanted)
    };
    collection.indexes.iter().find(serves).map(|index| index.name.as_str())
}

/// Whether an index holds the documents that the wanted one would.
pub fn is_same_filter(partial: Option<&Document>, collation: Option<&Document>, wanted: &Wanted) -> bool {
    let partial = partial.filter(|partial| !partial.is_empty());
    // Dates compare alike under every collation: it matters to the filter alone.
    partial.map(plain_numbers) == wanted.partial.as_ref().map(plain_numbers)
        && (partial.is_none() || is_same_collation(collation, wanted.collation.as_ref()))
}

/// A document with its whole numbers in one type: `5` of a policy is an int32, that of an old shell a double, and they match alike.
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
    change(collection, doc! { "collMod": &collection.namespace.collection, "index": index })
}

fn modify_collection(collection: &Collection, seconds: Option<i64>) -> Change {
    let value = seconds.map_or(Bson::from("off"), whole);
    change(collection, doc! { "collMod": &collection.namespace.collection, "expireAfterSeconds": value })
}

fn create_index(collection: &Collection, wanted: &Wanted, seconds: i64, planned: &[(Wanted, Change)]) -> Change {
    let mut index = doc! {
        "key": { &wanted.field: 1 },
        "name": free_name(collection, &wanted.field, planned),
        "expireAfterSeconds": whole(seconds),
    };
    if let Some(partial) = &wanted.partial {
        index.insert("partialFilterExpression", partial.clone());
        // An index takes the collection's collation over, unless it names its own.
        if !is_same_collation(wanted.collation.as_ref(), collection.collation.as_ref()) {
            index.insert("collation", wanted.collation.clone().unwrap_or_else(|| doc! { "locale": "simple" }));
        }
    }
    change(collection, doc! { "createIndexes": &collection.namespace.collection, "indexes": [index] })
}

fn whole(seconds: i64) -> Bson {
    i32::try_from(seconds).map_or(Bson::Int64(seconds), Bson::Int32)
}

fn change(collection: &Collection, command: Document) -> Change {
    Change { namespace: collection.namespace.clone(), command }
}

/// The name that the shell would give, or one like it where that is taken.
fn free_name(collection: &Collection, field: &str, planned: &[(Wanted, Change)]) -> String {
    let is_free = |name: &String| {
        !planned.iter().any(|(_, change)| change.new_index() == Some(name.as_str()))
            && !collection.indexes.iter().any(|index| index.name == *name)
    };
    let mut names = std::iter::once(format!("{field}_1")).chain((1..).map(|number| format!("{field}_1_ttl{number}")));
    names.find(is_free).unwrap_or_default()
}
