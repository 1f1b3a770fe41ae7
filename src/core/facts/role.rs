//! The part of a server in a larger deployment, where it is connected to without the rest.

/// The part that the server has in a deployment, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ServerRole {
    /// It was not looked for, or the user may not read what tells it.
    #[default]
    Unknown,
    /// No part: the deployment is whole, or seen through its router.
    Whole,
    /// The config servers of a sharded cluster, which hold no shard.
    ConfigServers,
    /// A member of a replica set that runs as a standalone.
    Member,
    /// A shard of a sharded cluster.
    Shard,
}

impl ServerRole {
    /// Says why nothing may be written to the server; `None` if it is not known to be connected to without the rest of its
    /// deployment.
    pub fn detached(self) -> Option<&'static str> {
        match self {
            Self::Member => Some(
                "this member of a replica set runs without its set: `local.system.replset` has a configuration, and the server says that it is a \
                 standalone; what changes here parts it from the other members: connect to the set, or start this server with `--replSet` again",
            ),
            Self::Shard => Some(
                "this is a shard of a sharded cluster, connected to directly: only a mongos knows which documents belong to it; connect to a mongos",
            ),
            Self::Unknown | Self::Whole | Self::ConfigServers => None,
        }
    }
}
