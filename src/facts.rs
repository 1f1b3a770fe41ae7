//! What was seen on the server before anything was decided. Values only: looking is the business of [`crate::server`].

use bson::{Bson, DateTime, Document};

use crate::flavor::{Capabilities, Flavor};
use crate::policy::namespace::Namespace;
use crate::policy::{Expect, Rule};

/// The deployment a run is connected to.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerFacts {
    /// `buildInfo.version`.
    pub version: String,
    pub flavor: Flavor,
    /// The evidence by which the flavor was recognised.
    pub recognised_by: String,
    pub capabilities: Capabilities,
    /// `hello.maxWireVersion`; 8 is MongoDB 4.2, 9 is 4.4, 17 is 6.0.
    pub wire_version: i32,
    pub topology: Topology,
    /// Name of the replica set.
    pub set_name: Option<String>,
    /// `host:port` of the members that the deployment names, or of the seeds of the connection string where it names none.
    pub hosts: Vec<String>,
    /// `hello.localTime`: the server's clock when the run began.
    pub local_time: DateTime,
    /// The client's clock minus the server's, in milliseconds, give or take the round trip.
    pub clock_skew_ms: i64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    Standalone,
    ReplicaSet,
    Sharded,
}

impl Topology {
    pub fn name(self) -> &'static str {
        match self {
            Topology::Standalone => "standalone",
            Topology::ReplicaSet => "replicaSet",
            Topology::Sharded => "sharded",
        }
    }
}

impl ServerFacts {
    /// Whether TTL on the `_id` of a clustered collection leaves dates before 1970 alone: not in 6.0.5, but in 7.0.28 and later. Where
    /// between them it changed is not known; from 6.1 on such documents are kept.
    pub fn clustered_keeps_before_1970(&self) -> bool {
        self.wire_version > 17
    }

    /// Says what the deployment is not that the policy expects.
    pub fn unexpected(&self, expect: &Expect) -> Option<String> {
        if let Some(expected) = &expect.replica_set
            && self.set_name.as_ref() != Some(expected)
        {
            let found = self.set_name.as_ref().map_or_else(|| "no replica set".to_owned(), |name| format!("`{name}`"));
            return Some(format!("the policy expects the replica set `{expected}`; connected to {found}"));
        }
        let absent = expect.hosts.iter().find(|host| !self.hosts.contains(host))?;
        Some(format!("the policy expects the host `{absent}`; connected to {}", self.hosts.join(", ")))
    }
}

/// One rule and one namespace it stands for, with what was seen there.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    pub rule: Rule,
    pub namespace: Namespace,
    pub seen: Seen,
}

/// What a namespace turned out to be.
#[derive(Debug, Clone, PartialEq)]
pub enum Seen {
    /// It was not looked for: the rule is disabled.
    NotLookedFor,
    Missing,
    View,
    TimeSeries(TimeSeriesFacts),
    Collection(CollectionFacts),
    /// Looking failed; says why.
    Unreadable {
        error: String,
    },
}

/// A time-series collection, as listCollections shows it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TimeSeriesFacts {
    pub time_field: String,
    pub meta_field: Option<String>,
    /// The collection's own TTL, in seconds.
    pub expire_after_seconds: Option<i64>,
    /// The collection behind it; `None` where the server does not show one.
    pub buckets: Option<CollectionFacts>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct CollectionFacts {
    pub capped: bool,
    pub clustered: bool,
    /// The TTL of a clustered collection itself, in seconds.
    pub expire_after_seconds: Option<i64>,
    /// Paths of the shard key, where the deployment shows them.
    pub shard_key: Vec<String>,
    /// The collection's default collation.
    pub collation: Option<Document>,
    /// By the collection's own count, which is exact but after a crash.
    pub document_count: u64,
    /// Mean size of a document in bytes; `None` where the user may not see it or there is no document.
    pub average_bytes: Option<f64>,
    pub indexes: Vec<IndexFacts>,
}

/// One index, as listIndexes shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct IndexFacts {
    pub name: String,
    pub key: Vec<(String, Bson)>,
    pub partial: Option<Document>,
    pub hidden: bool,
    pub sparse: bool,
    pub collation: Option<Document>,
    pub expire_after_seconds: Option<Bson>,
}
