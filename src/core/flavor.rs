//! The flavor of a deployment and its capabilities. The rest of the program asks for a capability and never for the product.

use bson::{Bson, Document};

/// The product behind a connection string.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flavor {
    MongoDb,
    /// Azure Cosmos DB for MongoDB, billed by request units.
    CosmosRu,
    /// Azure Cosmos DB for MongoDB vCore, Azure DocumentDB, and other services on the DocumentDB engine.
    DocumentDb,
    /// Amazon DocumentDB, which has no more than the name in common with the DocumentDB engine.
    AmazonDocumentDb,
}

impl Flavor {
    /// Returns the name that the policy and the report use.
    pub fn name(self) -> &'static str {
        match self {
            Flavor::MongoDb => "mongodb",
            Flavor::CosmosRu => "cosmosRu",
            Flavor::DocumentDb => "documentDb",
            Flavor::AmazonDocumentDb => "amazonDocumentDb",
        }
    }

    /// Recognises a flavor by a host name, before anything is sent.
    ///
    /// Source: Microsoft, "Connect to Azure Cosmos DB for MongoDB" and "Azure DocumentDB compatibility"; the sovereign clouds'
    /// private DNS zones; Amazon, "Understanding Amazon DocumentDB endpoints" and "Connecting to elastic clusters".
    pub fn of_host(host: &str) -> Option<Self> {
        const VCORE: [&str; 1] = [".mongocluster.cosmos.azure.com"];
        const RU: [&str; 4] =
            [".mongo.cosmos.azure.com", ".mongo.cosmos.azure.us", ".mongo.cosmos.azure.cn", ".documents.azure.com"];
        const AMAZON: [&str; 2] = [".docdb.amazonaws.com", ".docdb-elastic.amazonaws.com"];
        let host = host.to_ascii_lowercase();
        let host = host.rsplit_once(':').map_or(host.as_str(), |(name, _)| name).trim_end_matches('.');
        if VCORE.iter().any(|suffix| host.ends_with(suffix)) {
            Some(Flavor::DocumentDb)
        } else if RU.iter().any(|suffix| host.ends_with(suffix)) {
            Some(Flavor::CosmosRu)
        } else if AMAZON.iter().any(|suffix| host.ends_with(suffix)) {
            Some(Flavor::AmazonDocumentDb)
        } else {
            None
        }
    }

    /// Recognises a flavor by the reply to `hello`. The DocumentDB engine calls itself a mongos as well, but describes itself
    /// under `internal` (`pg_documentdb_gw`, `ismaster.rs`). Cosmos DB is a set named `globaldb` whose replies have a type of
    /// their own. The members of an Amazon cluster name each other by their hosts, also behind a tunnel; no mark of Amazon's in
    /// its build information is documented.
    pub fn of_hello(hello: &Document) -> Option<(Self, &'static str)> {
        if matches!(hello.get("internal"), Some(Bson::Document(_))) {
            Some((Flavor::DocumentDb, "`internal` in its hello"))
        } else if hello.get_str("_t").is_ok_and(|name| name == "IsMasterResponse" || name == "HelloResponse") {
            Some((Flavor::CosmosRu, "the type of its hello"))
        } else if hello.get_str("setName").is_ok_and(|name| name == "globaldb") {
            Some((Flavor::CosmosRu, "the replica set `globaldb`"))
        } else {
            let members = hello.get_array("hosts").into_iter().flatten().chain(hello.get("me"));
            let mut flavors = members.filter_map(Bson::as_str).filter_map(Self::of_host);
            flavors.find(|flavor| *flavor == Flavor::AmazonDocumentDb).map(|flavor| (flavor, "the names of its members"))
        }
    }

    /// Returns the product's own name.
    pub fn product(self) -> &'static str {
        match self {
            Flavor::MongoDb => "MongoDB",
            Flavor::CosmosRu => "Azure Cosmos DB for MongoDB (RU)",
            Flavor::DocumentDb => "DocumentDB",
            Flavor::AmazonDocumentDb => "Amazon DocumentDB",
        }
    }

    /// Returns the capabilities of a server of this flavor and wire version; 8 is the version of MongoDB 4.2, 9 of 4.4.
    pub fn capabilities(self, wire_version: i32) -> Capabilities {
        match self {
            Flavor::MongoDb => Capabilities {
                read_hints: true,
                delete_hints: wire_version >= 9,
                comments: wire_version >= 9,
                collations: true,
                // `$$NOW` came with 4.2, the oldest version that the driver speaks to.
                delete_clocks: true,
                delete_time_limits: true,
                // From MongoDB 6.0 on (`write_ops.idl`, `find_command.idl`, `aggregate_command.idl`).
                collection_uuids: wire_version >= 17,
                // `$bsonSize` came with 4.4.
                exact_states: wire_version >= 9,
                sorts: true,
                deletes_by_id_list: true,
                deletes_along_range: false,
                sample_rate: wire_version >= 9,
                own_counts: true,
                cursors: true,
                record_order: true,
                member_status: true,
                compacts: true,
                server_load: true,
                parameters: true,
                reads_iso8601: true,
                indexes_literal_names: false,
                request_charge: false,
                shard_keys: ShardKeys::InConfig,
                // From MongoDB 5.1.
                plain_to_ttl: if wire_version >= 14 { PlainToTtl::Modified } else { PlainToTtl::ByHand },
                // Both came with 4.4, `hello` with later versions of 4.2 as well.
                sorts_on_disk: wire_version >= 9,
                hello: wire_version >= 9,
                connection_status: true,
                shows_privileges: true,
                ttl_by_last_change: false,
                concurrency: 2,
                first_batch: 500,
                default_batch: 2000,
                largest_batch: 100_000,
                held_bytes: 10 * 1024 * 1024,
            },
            // Not documented: hints, collations, `$expr`, `maxTimeMS` and comments in deletes. Sorts fail on most fields, and
            // cursors end without notice.
            Flavor::CosmosRu => Capabilities {
                read_hints: false,
                delete_hints: false,
                comments: false,
                collations: false,
                delete_clocks: false,
                delete_time_limits: false,
                collection_uuids: false,
                exact_states: false,
                sorts: false,
                deletes_by_id_list: true,
                deletes_along_range: false,
                sample_rate: false,
                own_counts: true,
                cursors: false,
                record_order: false,
                member_status: false,
                compacts: false,
                server_load: false,
                parameters: false,
                reads_iso8601: false,
                indexes_literal_names: false,
                request_charge: true,
                shard_keys: ShardKeys::ByGetCollection,
                plain_to_ttl: PlainToTtl::Replaced,
                sorts_on_disk: false,
                // Accounts of version 7.0 refuse it (MicrosoftDocs/azure-databases-docs#180), none refuses the older name.
                hello: false,
                connection_status: false,
                shows_privileges: false,
                ttl_by_last_change: true,
                concurrency: 1,
                first_batch: 100,
                default_batch: 1000,
                largest_batch: 1000,
                // "Azure Cosmos DB service quotas": a query is 512 KB long at most.
                held_bytes: 256 * 1024,
            },
            // `pg_documentdb`, `delete.c`: hints are ignored, collations refused, and one command is one transaction; sorts are
            // done in memory.
            Flavor::DocumentDb => Capabilities {
                read_hints: false,
                delete_hints: false,
                comments: true,
                collations: false,
                // Seen at version 0.108: a delete with `$$NOW` is refused (code 9).
                delete_clocks: false,
                delete_time_limits: true,
                collection_uuids: false,
                // An unknown condition fails the whole command, so that nothing is deleted.
                exact_states: true,
                sorts: false,
                // `index_support.c`: a delete has no plan by which a list of `_id`s walks the index; `_id` with one value has
                // one.
                deletes_by_id_list: false,
                deletes_along_range: true,
                sample_rate: true,
                // `coll_stats.c`: the estimate of Postgres, which deletes change only later.
                own_counts: false,
                cursors: true,
                record_order: false,
                member_status: false,
                compacts: false,
                server_load: false,
                parameters: false,
                // Seen at version 0.108: a find along the index finds them, one without it does not.
                reads_iso8601: false,
                indexes_literal_names: true,
                request_charge: false,
                shard_keys: ShardKeys::Unseen,
                // `coll_mod.c`: only an index with expireAfterSeconds can get another.
                plain_to_ttl: PlainToTtl::Replaced,
                sorts_on_disk: false,
                hello: true,
                // `constant.rs` of the gateway: the lists are empty, whoever is logged in.
                connection_status: true,
                shows_privileges: false,
                ttl_by_last_change: false,
                concurrency: 2,
                first_batch: 500,
                default_batch: 25_000,
                // "Service limits" of Azure DocumentDB: the writes of one command.
                largest_batch: 25_000,
                // A document that is deleted by its `_id` has a statement of its own, with all keys.
                held_bytes: 1024 * 1024,
            },
            // Never run against the service, so that nothing is expected of it that a sweep can do without. Amazon, "Functional
            // differences": a statement is one transaction; payloadcms/payload#4407: a hint that does not suit is an error.
            Flavor::AmazonDocumentDb => Capabilities {
                read_hints: false,
                delete_hints: false,
                comments: false,
                collations: false,
                delete_clocks: false,
                delete_time_limits: false,
                collection_uuids: false,
                exact_states: false,
                sorts: false,
                deletes_by_id_list: true,
                deletes_along_range: false,
                sample_rate: false,
                own_counts: false,
                cursors: false,
                record_order: false,
                member_status: false,
                compacts: false,
                server_load: false,
                parameters: false,
                request_charge: false,
                shard_keys: ShardKeys::Unseen,
                // A check too many keeps documents; one too few would delete them.
                reads_iso8601: false,
                indexes_literal_names: true,
                plain_to_ttl: PlainToTtl::ByHand,
                sorts_on_disk: false,
                hello: true,
                connection_status: true,
                shows_privileges: false,
                ttl_by_last_change: false,
                concurrency: 1,
                first_batch: 100,
                default_batch: 1000,
                largest_batch: 1000,
                held_bytes: 256 * 1024,
            },
        }
    }
}

/// The abilities of a deployment that a sweep depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Capabilities {
    /// Reads follow `hint`, and `explain` shows the resulting plan.
    pub read_hints: bool,
    /// Delete statements follow `hint`.
    pub delete_hints: bool,
    /// Every command takes `comment`.
    pub comments: bool,
    /// Deletes compare by a collation.
    pub collations: bool,
    /// Deletes read the server's clock: `$$NOW` in a filter.
    pub delete_clocks: bool,
    /// Deletes end after `maxTimeMS`.
    pub delete_time_limits: bool,
    /// Reads and deletes with `collectionUUID` fail where the name belongs to another collection, or to none.
    pub collection_uuids: bool,
    /// Deletes compare whole documents with constants: `$expr` with `$$ROOT` and `$bsonSize`.
    pub exact_states: bool,
    /// A sort on an indexed field is served by the index. Without it the index cannot be read in ranges.
    pub sorts: bool,
    /// A delete by a list of `_id`s walks the index on `_id`. Without it each `_id` has a statement of its own.
    pub deletes_by_id_list: bool,
    /// A delete by one range of an indexed date walks that range of the index, provided that no other condition is on the date.
    pub deletes_along_range: bool,
    /// `$sampleRate` draws documents evenly.
    pub sample_rate: bool,
    /// `count` without a query is a count, and not an estimate.
    pub own_counts: bool,
    /// A cursor stays open between batches. Without it the collection is paged by `_id`.
    pub cursors: bool,
    /// `showRecordId` shows the place of a document in the storage, `$sample` draws documents at random, and `$natural` follows
    /// the storage.
    pub record_order: bool,
    /// `replSetGetStatus` shows the state of the members.
    pub member_status: bool,
    /// Whether `compact` gives the space of a collection back, on each member by itself.
    pub compacts: bool,
    /// `serverStatus` shows the load of the storage engine.
    pub server_load: bool,
    /// `getParameter` shows the state of the TTL monitor.
    pub parameters: bool,
    /// `getLastRequestStatistics` shows the cost of a request.
    pub request_charge: bool,
    pub shard_keys: ShardKeys,
    /// Expressions read a string by RFC 3339 exactly, and fail on none: `$dateFromString` with a format, `$convert`, and
    /// operators on bytes. Verified with MongoDB only.
    pub reads_iso8601: bool,
    /// An index on a dotted path also holds fields whose name is literally the path.
    pub indexes_literal_names: bool,
    pub plain_to_ttl: PlainToTtl,
    /// A find that sorts may use the server's disk.
    pub sorts_on_disk: bool,
    /// `hello` is answered; otherwise only its older name, `isMaster`.
    pub hello: bool,
    /// `connectionStatus` is answered.
    pub connection_status: bool,
    /// `connectionStatus` names the user and its privileges.
    pub shows_privileges: bool,
    /// Native TTL counts from `_ts`, the time of a document's last change.
    pub ttl_by_last_change: bool,
    /// Delete commands in flight of a rule without an archive, unless the policy sets a number.
    pub concurrency: u32,
    /// Documents of the first delete command.
    pub first_batch: u32,
    /// Maximum number of documents of a delete command unless the policy sets one.
    pub default_batch: u32,
    /// Maximum number of documents of a delete command, whatever the policy says.
    pub largest_batch: u32,
    /// Maximum size in bytes of the keys of holds, which every delete command carries.
    pub held_bytes: usize,
}

/// The place where the shard key of a collection can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShardKeys {
    /// The service does not show it.
    Unseen,
    /// In the database `config`, through mongos.
    InConfig,
    /// By the command `customAction: "GetCollection"`.
    ByGetCollection,
}

/// The way in which a plain index becomes a TTL index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlainToTtl {
    /// By `collMod`.
    Modified,
    /// Dropped, and created again.
    Replaced,
    /// Only by a person, who decides when to do without the index: it may take long to build.
    ByHand,
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn flavors_are_known_by_their_hosts() {
        for (host, flavor) in [
            ("acct.mongo.cosmos.azure.com:10255", Some(Flavor::CosmosRu)),
            ("ACCT.documents.azure.com", Some(Flavor::CosmosRu)),
            ("acct.mongo.cosmos.azure.us:10255", Some(Flavor::CosmosRu)),
            ("c.mongocluster.cosmos.azure.com", Some(Flavor::DocumentDb)),
            ("c.global.mongocluster.cosmos.azure.com.", Some(Flavor::DocumentDb)),
            ("c.cluster-abc.eu-central-1.docdb.amazonaws.com:27017", Some(Flavor::AmazonDocumentDb)),
            ("c-123.eu-central-1.docdb-elastic.amazonaws.com", Some(Flavor::AmazonDocumentDb)),
            ("docdb.amazonaws.com.example.com", None),
            ("db1.example.com:27017", None),
            ("cosmos.azure.com.example.com", None),
            ("localhost", None),
        ] {
            assert_eq!(Flavor::of_host(host), flavor, "{host}");
        }
    }

    #[test]
    fn mongodb_takes_hints_in_deletes_later_than_in_reads() {
        let hints = |wire_version| {
            let capabilities = Flavor::MongoDb.capabilities(wire_version);
            (capabilities.read_hints, capabilities.delete_hints, capabilities.comments)
        };
        assert_eq!([8, 9].map(hints), [(true, false, false), (true, true, true)]);
    }

    #[test]
    fn flavors_are_known_by_their_hello() {
        let of = |hello: Document| Flavor::of_hello(&hello).map(|(flavor, _)| flavor);
        assert_eq!(of(doc! { "msg": "isdbgrid" }), None);
        assert_eq!(of(doc! { "msg": "isdbgrid", "internal": { "kind": "x" } }), Some(Flavor::DocumentDb));
        assert_eq!(of(doc! { "_t": "IsMasterResponse", "setName": "rs" }), Some(Flavor::CosmosRu));
        assert_eq!(of(doc! { "setName": "globaldb" }), Some(Flavor::CosmosRu));
        assert_eq!(of(doc! { "setName": "rs0", "hosts": ["db1.example.com:27017"], "me": "db1.example.com:27017" }), None);
        let member = "c-1.abc.eu-central-1.docdb.amazonaws.com:27017";
        assert_eq!(of(doc! { "setName": "rs0", "hosts": [member] }), Some(Flavor::AmazonDocumentDb));
        assert_eq!(of(doc! { "setName": "rs0", "me": member }), Some(Flavor::AmazonDocumentDb));
    }
}
