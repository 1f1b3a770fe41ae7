//! The differences between mongod and the engine of Azure DocumentDB, formerly Azure Cosmos DB for MongoDB vCore.
//!
//! Sources: microsoft/documentdb (the gateway's ismaster.rs and requests/mod.rs, the extension's delete.c), and the pages "MQL
//! compatibility" and "Service limits" of Azure DocumentDB.

use std::io;

use mongodb::bson::{Bson, Document, doc};

use super::upstream::{documents, whole};
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

/// Settings of a cluster.
#[derive(Debug, Clone, Default)]
pub(crate) struct DocumentDb {
    /// Number of documents that one command can delete in its time; `None` for no limit.
    pub most_deleted: Option<u64>,
    /// Whether `hello` also has `setName: "globaldb"`, as in samples from older clusters.
    pub names_set: bool,
}

impl DocumentDb {
    pub(crate) async fn answer(&self, call: &mut Call<'_>) -> io::Result<Document> {
        match call.name.as_str() {
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
            "delete" => self.delete(call).await,
            _ => {
                // The engine accepts and ignores this.
                call.command.remove("txnNumber");
                call.forward().await
            }
        }
    }

    /// Returns the reply to `hello`. Source: the gateway's ismaster.rs; `kind`: microsoft/vscode-documentdb.
    fn hello(&self, name: &str, theirs: &Document) -> Document {
        let mut reply = doc! {
            writable(name): true, "msg": "isdbgrid", "maxBsonObjectSize": 16_777_216, "maxMessageSizeBytes": 48_000_000,
            "maxWriteBatchSize": MAX_WRITES, "localTime": theirs.get("localTime"), "logicalSessionTimeoutMinutes": 30,
            "minWireVersion": 0, "maxWireVersion": 21, "readOnly": false, "saslSupportedMechs": ["SCRAM-SHA-256"],
            "internal": { "documentdb_versions": ["1.106-0", "1.106.0", "12.1-1"], "kind": "azuredocumentdb" }, "ok": 1.0,
        };
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
