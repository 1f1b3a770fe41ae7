//! The policy: what a person wrote, validated. Only [`parse::parse`] makes one, so a `Policy` that exists has no problem left.

pub mod archive;
pub mod docs;
pub mod duration;
mod entry;
mod env;
mod filter;
mod key;
mod keys;
mod kinds;
mod mapping;
pub mod namespace;
pub mod only;
pub mod parse;
mod place;
mod problem;
mod rule;
pub mod schema;
mod strings;
pub mod window;
mod yaml;

use std::time::Duration;

use bson::Document;

use archive::{ArchiveTo, Compression};
use namespace::{Namespace, NamespacePattern, why_never_swept};
pub use problem::{PolicyError, nearest};
use window::Window;

use crate::flavor::Flavor;

/// A whole policy document.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Where it was read from, as the user named it; `-` is standard input.
    pub path: String,
    /// SHA-256 of the text as read, in hexadecimal digits.
    pub sha256: String,
    pub connection: Connection,
    pub run: RunLimits,
    /// Namespace of the lease collection, where the policy asks for a lock in the database.
    pub lock: Option<Namespace>,
    /// Namespace of the history collection, where the policy asks for one.
    pub history: Option<Namespace>,
    /// In the order of the text; never empty.
    pub rules: Vec<Rule>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Connection {
    pub uri: Option<String>,
    /// `None`: `auto`, recognised once connected.
    pub flavor: Option<Flavor>,
    pub expect: Expect,
}

/// Where a run may happen at all; an empty one allows every deployment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expect {
    pub replica_set: Option<String>,
    /// `host:port` of members, all of which the deployment must have.
    pub hosts: Vec<String>,
}

/// Limits of the whole run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RunLimits {
    pub max_duration: Option<Duration>,
    /// Delete commands in flight at most, over all rules; `None` is as many as the rule with the most of them may have.
    pub concurrency: Option<u32>,
    /// Documents per second at most, over all rules.
    pub rate: Option<u32>,
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
    /// Seconds after the date at which a document expires, 0 to 2^31 - 1; `None` is -1: only documents with a ttl of their own expire.
    pub expire_after_seconds: Option<u32>,
    /// Root-level name of the field that overrides `expire_after_seconds` for its document.
    pub ttl_field: Option<String>,
    pub filter: Option<Document>,
    pub collation: Option<Document>,
    /// `None` is `date`, but on `_id`: there it is decided by the collection (clustered or not).
    pub date_format: Option<DateFormat>,
    pub hint: Option<String>,
    pub enabled: bool,
    /// Documents per delete command at most.
    pub batch_size: u32,
    /// Documents per second at most.
    pub rate: Option<u32>,
    /// Delete commands in flight at most; `None` is what suits the service.
    pub concurrency: Option<u32>,
    /// The latency that batches grow and shrink towards.
    pub target_batch: Duration,
    /// Cosmos RU: request units per second at most.
    pub max_request_units: Option<u32>,
    /// Truncating limit of this rule, per namespace.
    pub max_deletes: Option<u64>,
    /// Guard: the rule is refused above this share of the collection, in percent.
    pub max_delete_percent: Option<f64>,
    /// Pause while a secondary lags more, or nobody can tell.
    pub max_lag: Option<Duration>,
    /// Delete only inside of it.
    pub window: Option<Window>,
    pub allow_collection_scan: bool,
    /// Every document is written out before it is deleted.
    pub archive: Option<ArchiveTo>,
}

impl Rule {
    /// Whether a namespace is one of those that the rule is about.
    pub fn stands_for(&self, namespace: &Namespace) -> bool {
        self.namespace.matches(namespace)
            && why_never_swept(&namespace.database, &namespace.collection).is_none()
            && !self.exclude.iter().any(|pattern| pattern.matches(namespace))
    }
}

/// How a date is stored in the field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DateFormat {
    /// BSON Date, what native TTL knows.
    Date,
    /// Seconds since 1970 as int32, int64 or double.
    EpochSeconds,
    /// Milliseconds since 1970 as int32, int64 or double.
    EpochMillis,
    /// The creation time inside an ObjectId, in whole seconds.
    ObjectId,
}
