//! The policy, validated: only [`parse::parse`] makes a [`Policy`], so every policy that exists is valid.
//!
//! The keys of a policy are listed in one table, `keys`; the parser, the JSON Schema ([`schema`]) and the documentation
//! ([`docs`]) are made from it.

pub mod answer;
pub mod archive;
pub mod comparisons;
mod constructors;
pub mod docs;
pub mod duration;
mod entry;
mod env;
mod family;
mod filter;
mod holds;
mod key;
mod keys;
mod kinds;
pub mod limits;
pub mod loosened;
mod mapping;
mod mistaken;
pub mod namespace;
mod nested;
pub mod only;
pub mod parse;
pub mod paths;
mod place;
mod problem;
mod properties;
pub mod relative;
pub mod reread;
mod rule;
pub mod schema;
mod strings;
mod traps;
pub mod value_type;
pub mod window;
mod yaml;

use std::path::PathBuf;
use std::time::Duration;

use bson::{Bson, Document};

pub use archive::{ArchivePlace, ArchiveTo, BucketUrl, Compression, StorageService};
pub use holds::{Holds, KeyedCollection, Periods};
use limits::Limits;
use namespace::{Namespace, NamespacePattern, why_never_swept};
pub use problem::{PolicyError, nearest};

use crate::core::flavor::Flavor;

/// A policy: the rules, the deployment they are for, and the limits of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Path of the file, as the user named it; `-` is standard input.
    pub path: String,
    /// SHA-256 of the text as read, in hexadecimal digits.
    pub sha256: String,
    pub connection: Connection,
    pub run: RunLimits,
    /// Namespace of the lease collection, if the policy asks for a lock in the database.
    pub lock: Option<Namespace>,
    /// Namespace of the history collection, if the policy asks for one.
    pub history: Option<Namespace>,
    /// Namespace of the journal of parents whose children are yet to be deleted, if the policy names one.
    pub journal: Option<Namespace>,
    /// In the order of the text; never empty.
    pub rules: Vec<Rule>,
}

/// The deployment that the policy is for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Connection {
    pub uri: Option<String>,
    /// File that holds the connection string. A relative path is relative to the working directory.
    pub uri_file: Option<PathBuf>,
    /// `None` is `auto`: recognised once connected.
    pub flavor: Option<Flavor>,
    pub expect: Expect,
}

/// Deployments in which a run may take place; an empty one allows every deployment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expect {
    pub replica_set: Option<String>,
    /// Members as `host:port`, all of which the deployment must have.
    pub hosts: Vec<String>,
}

/// Limits of the whole run, over all rules; `None` means no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RunLimits {
    /// Documents and orphans that the run deletes at most. Only the command line sets it.
    pub max_deletes: Option<u64>,
    pub max_duration: Option<Duration>,
    /// Delete commands in flight at most; `None` is the largest `concurrency` of any rule.
    pub concurrency: Option<u32>,
    /// Documents per second at most.
    pub rate: Option<u32>,
}

impl RunLimits {
    /// Returns the name of a limit under which the oldest documents go first; `None` without one.
    pub fn oldest_first(&self) -> Option<&'static str> {
        self.max_deletes.map(|_| "--max-deletes").or(self.rate.map(|_| "rate"))
    }
}

/// A value that stands for environment variables.
#[derive(Debug, Clone, PartialEq)]
pub struct Variable {
    pub value: Bson,
    /// The value as text, in which the variables are replaced.
    pub text: String,
    /// The text of the policy.
    pub written: String,
}

/// One entry of `collections`.
#[derive(Debug, Clone, PartialEq)]
pub struct Rule {
    /// Unique within the policy.
    pub name: String,
    pub namespace: NamespacePattern,
    pub exclude: Vec<NamespacePattern>,
    /// A MongoDB field path; `None` is the timeField of a time-series collection.
    pub field: Option<String>,
    /// Seconds after the date at which a document expires, 0 to 2^31 - 1; `None` is -1: only documents with a ttl or a period
    /// of their own expire.
    pub expire_after_seconds: Option<u32>,
    /// Root-level name of the field that overrides `expire_after_seconds` for its document.
    pub ttl_field: Option<String>,
    /// A further predicate. A plan has dates in the place of the relative ones that a policy has.
    pub filter: Option<Document>,
    pub collation: Option<Document>,
    /// The values of filter and collation that stand for environment variables, and may be secret.
    pub variables: Vec<Variable>,
    /// `None` is `date`; on `_id` it depends on whether the collection is clustered.
    pub date_format: Option<DateFormat>,
    pub hint: Option<String>,
    pub order: Order,
    pub enabled: bool,
    pub limits: Limits,
    pub allow_collection_scan: bool,
    /// Paths that no document needs to have.
    pub allow_unknown_fields: Vec<String>,
    /// Paths that may be compared with a type that no document has there.
    pub allow_unknown_types: Vec<String>,
    /// Archive to which every document is written before it is deleted.
    pub archive: Option<ArchiveTo>,
    /// The collections whose documents go with the documents of the rule.
    pub family: Option<ChildPolicy>,
    /// Collection whose documents say what is kept.
    pub holds: Option<Holds>,
    /// Collection whose documents say after which time documents expire.
    pub periods: Option<Periods>,
}

/// Collections whose documents, the children, go once their parents are gone, the documents of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChildPolicy {
    /// Namespace of the journal.
    pub journal: Namespace,
    /// Never empty.
    pub children: Vec<Child>,
    /// Whether existing orphans are deleted too.
    pub orphans: bool,
}

/// A collection of children.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    pub namespace: Namespace,
    /// Path that holds a value of the parent.
    pub field: String,
    /// Path of that value in the parent.
    pub parent_field: String,
}

impl Policy {
    /// Returns the rule of a name.
    pub fn rule(&self, name: &str) -> Option<&Rule> {
        self.rules.iter().find(|rule| rule.name == name)
    }
}

impl Rule {
    /// Whether the rule applies to a namespace.
    pub fn stands_for(&self, namespace: &Namespace) -> bool {
        self.namespace.matches(namespace)
            && why_never_swept(&namespace.database, &namespace.collection).is_none()
            && !self.exclude.iter().any(|pattern| pattern.matches(namespace))
    }
}

/// Type in which the field stores a date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DateFormat {
    /// BSON Date, the only one that native TTL knows.
    Date,
    /// Seconds since 1970 as int32, int64 or double.
    EpochSeconds,
    /// Milliseconds since 1970 as int32, int64 or double.
    EpochMillis,
    /// The creation time inside an ObjectId, in whole seconds.
    ObjectId,
    /// A string by RFC 3339 with `Z` or an offset.
    Iso8601,
}

impl DateFormat {
    /// Whether an index on the field has the order of the dates. Strings with offsets are in another order.
    pub fn is_sorted_by_index(self) -> bool {
        self != Self::Iso8601
    }
}

/// Order in which a rule's documents are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Whichever of the two costs the server less.
    Auto,
    /// By date, along the index on it.
    OldestFirst,
    /// As they are stored, so that each page of the storage is changed once.
    Storage,
}
