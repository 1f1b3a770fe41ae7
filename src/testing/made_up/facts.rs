//! Made-up facts of a server.

use bson::{Bson, DateTime};

use crate::core::facts::{IndexFacts, ServerFacts, ServerRole, Topology, TtlMonitor};
use crate::core::flavor::Flavor;

impl ServerFacts {
    /// Makes up a replica set of a flavor and a wire version, whose clock is at the beginning of 1970.
    pub(crate) fn made_up(flavor: Flavor, version: &str, wire_version: i32) -> Self {
        Self {
            version: version.into(),
            flavor,
            recognised_by: "a test".into(),
            capabilities: flavor.capabilities(wire_version),
            wire_version,
            topology: Topology::ReplicaSet,
            set_name: None,
            hosts: Vec::new(),
            local_time: DateTime::from_millis(0),
            clock_skew_ms: 0,
            role: ServerRole::Whole,
            ttl_monitor: TtlMonitor::Unknown,
        }
    }
}

impl IndexFacts {
    /// Makes up a plain index in ascending order.
    pub(crate) fn made_up(name: &str, paths: &[&str]) -> Self {
        Self {
            name: name.to_owned(),
            key: paths.iter().map(|path| ((*path).to_owned(), Bson::Int32(1))).collect(),
            partial: None,
            hidden: false,
            sparse: false,
            unique: false,
            collation: None,
            expire_after_seconds: None,
        }
    }
}
