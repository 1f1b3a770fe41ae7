//! The differences between mongod and the engine of Azure DocumentDB, formerly Azure Cosmos DB for MongoDB vCore.
//!
//! Sources: microsoft/documentdb (`pg_documentdb_gw` and `pg_documentdb`, by the files named below), and the pages "MQL
//! compatibility" and "Service limits" of Azure DocumentDB.

use std::io;

use mongodb::bson::{Bson, Document, doc};

use super::upstream::{documents, is_ok, whole};
use super::{Call, errors, partial, writable};

/// A command with more writes fails. Source: Azure DocumentDB, "Service limits".
const MAX_WRITES: i32 = 25_000;

/// Commands that the gateway does not know. Sources: "MQL compatibility"; for the message: documentdb/documentdb#425.
const UNKNOWN: [&str; 9] = [
    "replSetGetStatus",
    "replSetGetConfig",
    "serverStatus",
    "refreshSessions",
    "bulkWrite",
    "customAction",
    "getLastRequestStatistics",
    "top",
    "profile",
];

/// The number by which the estimate of `count` exceeds the documents of a collection, as after many deletes. Assumption: any
/// number.
pub(crate) const ESTIMATE_EXCESS: i64 = 100_000;

/// Settings of a cluster.
#[derive(Debug, Clone, Default)]
pub(crate) struct DocumentDb {
    /// Number of documents that one command can delete in its time; `None` for no limit.
    pub most_deleted: Option<u64>,
    /// Whether `hello` also has `setName: "globaldb"`, as in samples from older clusters.
    pub names_set: bool,
    /// Whether `hello` does not tell the time. Assumption: no gateway does so; it is what a client must not rely on.
    pub hides_time: bool,
}

impl DocumentDb {
    pub(crate) async fn answer(&self, call: &mut Call<'_>) -> io::Result<Document> {
        let traits = Traits::of(&Bson::Document(call.command.clone()));
        if traits.has_let_of_two {
            // The backend that evaluates it over arrays ends by a segmentation fault, and PostgreSQL ends all others. Observed at
            // version 0.108; here every such expression ends the connection.
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if traits.has_cond {
            // Both branches are evaluated, so that one for another type fails (`HandlePreParsedDollarCond` of
            // bson_expression_conditional_operators.c). Here every document has a type that one of the branches fails on.
            let text = "Expected 'array' type as input to $filter but found 'date' type";
            return Ok(errors::failed(28_651, "Location28651", text));
        }
        match call.name.clone().as_str() {
            "hello" | "isMaster" | "ismaster" => {
                let theirs = call.forward().await?;
                Ok(self.hello(&call.name, &theirs))
            }
            "buildInfo" | "buildinfo" => Ok(doc! {
                "version": "7.0.0", "versionArray": [7, 0, 0, 0], "bits": 64, "maxBsonObjectSize": 16_777_216, "ok": 1.0,
            }),
            name if UNKNOWN.contains(&name) => {
                Ok(errors::failed(115, "CommandNotSupported", &format!("Unknown request received: {name}")))
            }
            // constant.rs: whoever is logged in, the lists are empty.
            "connectionStatus" => Ok(doc! {
                "authInfo": { "authenticatedUsers": [], "authenticatedUserRoles": [], "authenticatedUserPrivileges": [] }, "ok": 1.0,
            }),
            "count" if !call.command.contains_key("query") => {
                let mut reply = call.forward().await?;
                // coll_stats.c: the estimate of PostgreSQL, which lags behind.
                if is_ok(&reply) {
                    reply.insert("n", whole(&reply, "n") + ESTIMATE_EXCESS);
                }
                Ok(reply)
            }
            "collMod" if is_plain_index(call).await? => {
                // coll_mod.c: only an index that has expireAfterSeconds can get another.
                Ok(errors::failed(72, "InvalidOptions", "no expireAfterSeconds field to update"))
            }
            "delete" => self.delete(call).await,
            _ => {
                // The engine accepts and ignores this.
                call.command.remove("txnNumber");
                call.forward().await
            }
        }
    }

    /// Returns the reply to `hello`. Source: ismaster.rs, where `localTime` is a number; `kind`: microsoft/vscode-documentdb.
    fn hello(&self, name: &str, theirs: &Document) -> Document {
        let mut reply = doc! {
            writable(name): true, "msg": "isdbgrid", "maxBsonObjectSize": 16_777_216, "maxMessageSizeBytes": 48_000_000,
            "maxWriteBatchSize": MAX_WRITES, "localTime": theirs.get_datetime("localTime").map(|time| time.timestamp_millis()).ok(), "logicalSessionTimeoutMinutes": 30,
            "minWireVersion": 0, "maxWireVersion": 21, "readOnly": false, "saslSupportedMechs": ["SCRAM-SHA-256"],
            "internal": { "documentdb_versions": ["1.106-0", "1.106.0", "12.1-1"], "kind": "azuredocumentdb" }, "ok": 1.0,
        };
        if self.hides_time {
            reply.remove("localTime");
        }
        if self.names_set {
            reply.insert("setName", "globaldb");
        }
        reply
    }

    /// Deletes in one transaction: everything that the command matches, or nothing.
    async fn delete(&self, call: &mut Call<'_>) -> io::Result<Document> {
        if let Some(refusal) = refusal(&call.command) {
            return Ok(refusal);
        }
        strip(&mut call.command);
        if let Some((_, error)) = call.stop.take() {
            return stopped(call, &error).await;
        }
        if let Some(most) = self.most_deleted {
            match partial::targets(call.upstream, &call.command, most).await? {
                Err(refusal) => return Ok(refusal),
                Ok(targets) if targets.iter().map(Vec::len).sum::<usize>() as u64 > most => return Ok(errors::command_timeout()),
                Ok(_) => {}
            }
        }
        call.forward().await
    }
}

/// Whether the engine finds the documents of a delete statement by walking all documents, or all that have expired. So it does by
/// a list of `_id`s: only one value of `_id` becomes a condition on its index (`DeleteAllMatchingDocuments` of delete.c). So it
/// does by a range next to a second condition on the same field. Observed at version 0.108: the planner walks the index by both
/// conditions.
pub(crate) fn is_scan(statement: &Document) -> bool {
    let found = conditions(statement);
    let has_operator = |value: &Bson| value.as_document().is_some_and(|value| value.keys().any(|key| key.starts_with('$')));
    let is_one_id = found.iter().any(|(key, value)| *key == "_id" && !has_operator(value));
    let fields: Vec<&str> = found.iter().map(|(key, _)| *key).filter(|key| !key.starts_with('$')).collect();
    let is_repeated = fields.iter().enumerate().any(|(at, field)| fields[..at].contains(field));
    !is_one_id && (fields.contains(&"_id") || is_repeated)
}

/// Returns the conditions of a delete statement that all have to hold, with the fields that they are on. A condition on a type is
/// left out, because it leads to no index.
pub(crate) fn conditions(statement: &Document) -> Vec<(&str, &Bson)> {
    fn add<'a>(query: &'a Document, found: &mut Vec<(&'a str, &'a Bson)>) {
        for (key, value) in query {
            match value {
                Bson::Array(all) if key == "$and" => {
                    all.iter().filter_map(Bson::as_document).for_each(|inner| add(inner, found));
                }
                value => found.push((key, value)),
            }
        }
    }
    let mut found = Vec::new();
    statement.get_document("q").iter().for_each(|query| add(query, &mut found));
    let is_type = |value: &Bson| value.as_document().is_some_and(|value| value.keys().eq(["$type"]));
    found.retain(|(_, value)| !is_type(value));
    found
}

/// The parts of a command that the engine evaluates in its own way.
#[derive(Default)]
struct Traits {
    has_cond: bool,
    has_let_of_two: bool,
}

impl Traits {
    fn of(part: &Bson) -> Self {
        let mut traits = Self::default();
        traits.look(part);
        traits
    }

    fn look(&mut self, part: &Bson) {
        match part {
            Bson::Array(items) => items.iter().for_each(|item| self.look(item)),
            Bson::Document(document) => {
                for (key, value) in document {
                    self.has_cond |= key == "$cond";
                    let variables = value.as_document().and_then(|bound| bound.get_document("vars").ok());
                    self.has_let_of_two |= key == "$let" && variables.is_some_and(|variables| variables.len() > 1);
                    // A constant is not evaluated.
                    if key != "$literal" && key != "documents" {
                        self.look(value);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Whether a `collMod` is for an index without expireAfterSeconds.
async fn is_plain_index(call: &mut Call<'_>) -> io::Result<bool> {
    let Ok(index) = call.command.get_document("index") else { return Ok(false) };
    let list = doc! { "listIndexes": call.command.get("collMod"), "$db": call.command.get("$db") };
    let reply = call.upstream.run(&list).await?;
    let Ok(cursor) = reply.get_document("cursor") else { return Ok(false) };
    let is_meant = |found: &Document| {
        found.get("name") == index.get("name") || found.get("key").is_some_and(|key| index.get("keyPattern") == Some(key))
    };
    Ok(documents(cursor, "firstBatch").any(|found| is_meant(found) && !found.contains_key("expireAfterSeconds")))
}

/// Returns the error if the command is refused. Source: delete.c and commands_common.c of microsoft/documentdb, its feature flags
/// at their defaults.
fn refusal(command: &Document) -> Option<Document> {
    let not_supported = |what: &str| Some(errors::failed(115, "CommandNotSupported", &format!("{what} is not supported yet")));
    if documents(command, "deletes").count() > usize::try_from(MAX_WRITES).unwrap_or(usize::MAX) {
        let text = format!("Write batch sizes must be between 1 and {MAX_WRITES}");
        return Some(errors::failed(21, "InvalidLength", &text));
    }
    if command.contains_key("let") {
        return not_supported("let");
    }
    for statement in documents(command, "deletes") {
        let limit = whole(statement, "limit");
        if ![0, 1].contains(&limit) {
            let text = format!("The limit field in delete objects must be 0 or 1. Got {limit}");
            return Some(errors::failed(9, "FailedToParse", &text));
        }
        for (key, _) in statement {
            match key.as_str() {
                "q" | "limit" | "hint" => {}
                "collation" => return not_supported("delete.deletes.collation"),
                "comment" => return not_supported("delete.deletes.comment"),
                key => {
                    let text = format!("BSON field 'delete.deletes.{key}' is an unknown field.");
                    return Some(errors::failed(40_415, "Location40415", &text));
                }
            }
        }
    }
    None
}

/// Removes options that the engine accepts and ignores, so that mongod ignores them, too.
fn strip(command: &mut Document) {
    for key in ["writeConcern", "txnNumber"] {
        command.remove(key);
    }
    for statement in command.get_array_mut("deletes").into_iter().flatten().filter_map(Bson::as_document_mut) {
        statement.remove("hint");
    }
}

/// Runs a `delete` that a planned fault stops: the statement that fails is rolled back.
async fn stopped(call: &mut Call<'_>, error: &Document) -> io::Result<Document> {
    match partial::targets(call.upstream, &call.command, 0).await? {
        Err(refusal) => Ok(refusal),
        Ok(targets) if targets.iter().all(Vec::is_empty) => call.forward().await,
        Ok(targets) => partial::delete_first(call.upstream, &call.command, &targets, 0, error).await,
    }
}
