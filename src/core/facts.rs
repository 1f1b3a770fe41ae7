//! Facts about a deployment, collected before anything is decided. These are values only; `server` reads them.

mod collection;
mod idle_ttl;
mod native_ttl;
mod oplog;
mod role;
mod write_concern;

use bson::DateTime;

pub use collection::{Catalog, Collection, CollectionKind, DataSize, Figures, FileSize, IndexFacts, TimeSeries};
pub use idle_ttl::{IdleReason, IdleTtl, TtlMonitor};
pub use native_ttl::{LAST_CHANGE, NativeTtl, Scope};
pub use oplog::{Oplog, OplogLook, OplogSize};
pub use role::ServerRole;

use crate::core::flavor::{Capabilities, Flavor, ShardKeys};
use crate::core::policy::namespace::Namespace;
use crate::core::policy::{Child, Expect, Rule};

/// Wire version of MongoDB 7.0, the newest version that was run.
const NEWEST_TESTED: i32 = 21;

/// Wire version of MongoDB 8.0, the first in which reads may have a limit.
const WIRE_VERSION_OF_8_0: i32 = 25;

/// The deployment a run is connected to.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerFacts {
    /// `buildInfo.version`.
    pub version: String,
    pub flavor: Flavor,
    /// Evidence by which the flavor was recognised.
    pub recognised_by: String,
    pub capabilities: Capabilities,
    /// `hello.maxWireVersion`; 8 is MongoDB 4.2, 9 is 4.4, 17 is 6.0.
    pub wire_version: i32,
    pub topology: Topology,
    /// Name of the replica set.
    pub set_name: Option<String>,
    /// `host:port` of the members that the deployment names, or of the seeds of the connection string if it names none.
    pub hosts: Vec<String>,
    /// `hello.localTime`: the server's clock at the beginning of the run.
    pub local_time: DateTime,
    /// The client's clock minus the server's, in milliseconds, give or take the round trip.
    pub clock_skew_ms: i64,
    pub role: ServerRole,
    pub ttl_monitor: TtlMonitor,
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
    /// Whether TTL on the `_id` of a clustered collection keeps documents with dates before 1970. MongoDB 6.0.5 deletes them,
    /// 7.0.28 keeps them; the version in between that changed this is unknown, so they are kept from 6.1 on.
    pub fn clustered_keeps_before_1970(&self) -> bool {
        self.wire_version > 17
    }

    /// Whether one measurement before 1970 or after 2038-01-19 keeps the TTL monitor from deleting anything of a time-series
    /// collection. MongoDB 6.0.5 deletes all the same, 7.0.28 does not, and 8.0.12 and 8.1 delete again (mongo, SERVER-79864 and
    /// SERVER-97368). The first versions of 6.0 and 7.0 that do not are unknown, so that they count as such from 6.0.6 on.
    pub fn stops_at_extended_times(&self) -> bool {
        let mut numbers = self.version.split(['.', '-']).map(|number| number.parse::<u32>().unwrap_or(0));
        let mut next = || numbers.next().unwrap_or(0);
        let version = (next(), next(), next());
        ((6, 0, 6)..=(8, 0, 11)).contains(&version)
    }

    /// Whether the server may end a read that has no `maxTimeMS`, after the time that an administrator has set for all. A
    /// `maxTimeMS` of 0 is no limit.
    ///
    /// Source: MongoDB manual, "defaultMaxTimeMS", new in 8.0.
    pub fn may_limit_reads(&self) -> bool {
        self.flavor == Flavor::MongoDb && self.wire_version >= WIRE_VERSION_OF_8_0
    }

    /// Whether commands name the collection that they are for by its UUID. Through a mongos they do not: before the versions of
    /// 2025, a delete that goes to all shards fails on one that has no chunk of the collection. Source: mongo, a test in
    /// `jstests/sharding` with the tag `requires_fcv_81`: "doesn't return a UUID mismatch in case it targets a shard with no
    /// chunks".
    pub fn takes_collection_uuids(&self) -> bool {
        self.capabilities.collection_uuids && self.topology != Topology::Sharded
    }

    /// Whether the documents of a collection may be on several servers, behind a mongos. Azure Cosmos DB (RU) calls itself one.
    pub fn is_behind_router(&self) -> bool {
        self.topology == Topology::Sharded && self.capabilities.shard_keys == ShardKeys::InConfig
    }

    /// Says that the deployment is of a kind with which this program was never tested; `None` if it was.
    pub fn untested(&self) -> Option<String> {
        match self.flavor {
            Flavor::AmazonDocumentDb => Some(
                "Amazon DocumentDB: never tested with this program; begin with a dry run and a small `maxDeletes`".to_owned(),
            ),
            Flavor::MongoDb if self.wire_version > NEWEST_TESTED => {
                Some(format!("MongoDB {}: not run in the tests, which know 6.0 and 7.0; it is treated as 7.0", self.version))
            }
            Flavor::MongoDb | Flavor::CosmosRu | Flavor::DocumentDb => None,
        }
    }

    /// Returns a sentence about the first expectation of the policy that the deployment does not meet; `None` if it meets all.
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

    /// Returns the reason why nothing may be written to the deployment: the policy does not expect it, or the rest of it is
    /// missing. `None` if it may.
    pub fn unwritable(&self, expect: &Expect) -> Option<String> {
        self.unexpected(expect).or_else(|| self.role.detached().map(str::to_owned))
    }
}

/// A rule in one of its namespaces, with the result of looking at that namespace.
#[derive(Debug, Clone, PartialEq)]
pub struct Target {
    pub rule: Rule,
    pub namespace: Namespace,
    pub seen: NamespaceFacts,
    /// The collections of children; empty where the collection of the rule was not seen.
    pub children: Vec<SeenChild>,
}

/// A collection of children, with the result of looking at it.
#[derive(Debug, Clone, PartialEq)]
pub struct SeenChild {
    pub child: Child,
    pub seen: NamespaceFacts,
    /// The field of the children that names the parent.
    pub field: SeenField,
    /// The field of the parents that it names them by.
    pub parent_field: SeenField,
}

/// The result of looking for a field in a collection.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SeenField {
    /// Whether a document has it; `None` if that is not known.
    pub is_found: Option<bool>,
    /// A field of the documents with a name that is nearly the name of a field that no document has.
    pub similar: Option<String>,
}

/// The result of looking at a namespace.
#[derive(Debug, Clone, PartialEq)]
pub enum NamespaceFacts {
    /// The namespace was not looked for because the rule is disabled.
    NotLookedFor,
    Missing,
    Collection(Box<Collection>, Figures),
    /// Looking failed, for the reason in `error`.
    Unreadable {
        error: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_run_is_named() {
        let untested = |flavor: Flavor, wire_version, version: &str| {
            ServerFacts::made_up(flavor, version, wire_version).untested().unwrap_or_default()
        };
        assert_eq!([17, 21].map(|wire_version| untested(Flavor::MongoDb, wire_version, "7.0.28")), ["", ""]);
        assert!(untested(Flavor::MongoDb, 25, "8.0.4").starts_with("MongoDB 8.0.4: not run in the tests"));
        assert!(untested(Flavor::AmazonDocumentDb, 13, "5.0.0").starts_with("Amazon DocumentDB: never tested"));
        assert_eq!(untested(Flavor::DocumentDb, 25, "8.0.0"), "");
    }
}
