//! Commands that Cosmos DB for MongoDB (RU) refuses before doing anything, with its error messages.

use mongodb::bson::{Bson, Document};

use super::super::upstream::{documents, whole};
use super::super::{Call, errors};
use super::CosmosRu;
use super::operators::{Unsupported, in_filter, in_pipeline, in_projection, in_update};

/// Both from a `hello` reply: laravel-mongodb#1492.
pub(super) const MAX_WRITES: i32 = 1000;
pub(super) const MAX_MESSAGE_BYTES: i32 = 4 * 1024 * 1024;

/// The supported commands. Sources: "Supported features and syntax", "Use MongoDB extension commands"; every driver sends `ping`
/// and those to log in.
const COMMANDS: [&str; 38] = [
    "abortTransaction",
    "aggregate",
    "authenticate",
    "buildInfo",
    "buildinfo",
    "collStats",
    "commitTransaction",
    "count",
    "create",
    "createIndexes",
    "currentOp",
    "customAction",
    "dbStats",
    "delete",
    "distinct",
    "drop",
    "dropDatabase",
    "dropIndexes",
    "explain",
    "find",
    "findAndModify",
    "getLastRequestStatistics",
    "getMore",
    "hello",
    "hostInfo",
    "insert",
    "isMaster",
    "ismaster",
    "killCursors",
    "listCollections",
    "listDatabases",
    "listIndexes",
    "logout",
    "ping",
    "saslContinue",
    "saslStart",
    "update",
    "whatsmyuri",
];

/// Returns the error if the command is refused.
pub(super) fn refusal(settings: &CosmosRu, call: &Call<'_>) -> Option<Document> {
    let command = &call.command;
    let refuses_hello = settings.refuses_hello && call.name == "hello";
    if refuses_hello || !COMMANDS.contains(&call.name.as_str()) {
        let text = format!("Command {} not supported.", call.name);
        return Some(errors::of_cosmos(115, "CommandNotSupported", &text));
    }
    if call.bytes > usize::try_from(MAX_MESSAGE_BYTES).unwrap_or(usize::MAX) {
        let text = errors::too_large().get_str("errmsg").unwrap_or_default().to_owned();
        return Some(errors::of_cosmos(16, "", &text));
    }
    if command.contains_key("txnNumber") && !settings.retryable_writes {
        // Source: microsoft/vscode-cosmosdb#1296, #1439.
        let text = "Retryable writes are not supported. Please disable retryable writes by specifying \"retrywrites=false\" in the \
                    connection string or an equivalent driver specific config.";
        return Some(errors::of_cosmos(2, "BadValue", text));
    }
    // The pages of version 3.6 said "cursor.hint(): No". That the others, which no page names, are refused in reads as well, and
    // the message, are assumptions.
    if let Some(name) = ["hint", "collation", "comment", "let"].into_iter().find(|name| command.contains_key(name)) {
        return Some(errors::bad_request(&format!("{name} is not supported")));
    }
    if call.name == "delete" {
        return of_delete(settings, call);
    }
    let within = |key| command.get_document(key).ok();
    let found = within("filter")
        .and_then(in_filter)
        .or_else(|| within("query").and_then(in_filter))
        .or_else(|| within("projection").and_then(in_projection))
        .or_else(|| in_pipeline(documents(command, "pipeline")))
        .or_else(|| command.get("update").filter(|_| call.name == "findAndModify").and_then(in_update))
        .or_else(|| documents(command, "updates").filter_map(|update| update.get("u")).find_map(in_update))
        .or_else(|| documents(command, "updates").filter_map(|update| update.get_document("q").ok()).find_map(in_filter));
    found.map(in_words)
}

/// Refuses all options of a `delete` that are not documented for any version: the strictest reading.
fn of_delete(settings: &CosmosRu, call: &Call<'_>) -> Option<Document> {
    let command = &call.command;
    let unknown = |name: &str| errors::of_cosmos(9, "FailedToParse", &format!("BSON field 'delete.{name}' is an unknown field."));
    if command.contains_key("maxTimeMS") {
        return Some(unknown("maxTimeMS"));
    }
    let statements = || documents(command, "deletes");
    let count = statements().count();
    if !(1..=usize::try_from(MAX_WRITES).unwrap_or(usize::MAX)).contains(&count) {
        let text = format!("Write batch sizes must be between 1 and {MAX_WRITES}. Got {count} operations.");
        return Some(errors::of_cosmos(21, "InvalidLength", &text));
    }
    if let Some(name) = statements().flat_map(Document::keys).find(|name| !["q", "limit"].contains(&name.as_str())) {
        return Some(unknown(&format!("deletes.{name}")));
    }
    if let Some(found) = statements().filter_map(|statement| statement.get_document("q").ok()).find_map(in_filter) {
        return Some(in_words(found));
    }
    let key = settings.shard_keys.get(&namespace(call))?;
    let is_aimed = |statement: &Document| statement.get_document("q").is_ok_and(|q| key.keys().all(|path| names(q, path)));
    // Source: microsoft/vscode-cosmosdb#1118; with retryable writes for every delete ("Supported features", Retryable writes).
    let needs_key = |statement: &&Document| settings.retryable_writes || whole(statement, "limit") == 1;
    let astray = statements().filter(needs_key).any(|statement| !is_aimed(statement));
    astray.then(|| errors::of_cosmos(61, "ShardKeyNotFound", "query in command must target a single shard key"))
}

/// Whether a filter gives one value for a path. A missing field is not a value: spring-projects/spring-data-mongodb#4499.
fn names(filter: &Document, path: &str) -> bool {
    filter.iter().any(|(key, value)| match value {
        Bson::Array(members) if key == "$and" => members.iter().filter_map(Bson::as_document).any(|member| names(member, path)),
        Bson::Document(operators) if key == path => {
            operators.keys().all(|operator| !operator.starts_with('$') || operator == "$eq")
        }
        Bson::RegularExpression(_) => false,
        _ => key == path,
    })
}

fn in_words(unsupported: Unsupported) -> Document {
    match unsupported {
        Unsupported::Stage(name) => {
            errors::of_cosmos(40_324, "Location40324", &format!("Unrecognized pipeline stage name: {name}"))
        }
        // Source: automatiko-io/automatiko-engine#222.
        Unsupported::Operator(name) => {
            errors::of_cosmos(115, "CommandNotSupported", &format!("'{}' is not supported", name.trim_start_matches('$')))
        }
        Unsupported::ArrayLiteral => errors::bad_request("Comparison expressions with an array literal are not supported."),
    }
}

/// Returns the collection of a command as `database.collection`.
pub(super) fn namespace(call: &Call<'_>) -> String {
    let collection = if call.name == "customAction" { "collection" } else { call.name.as_str() };
    let part = |key| call.command.get_str(key).unwrap_or_default();
    format!("{}.{}", part("$db"), part(collection))
}
