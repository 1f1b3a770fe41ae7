//! The question to a server whether it is still at work on a command. It tells a command that takes long from one whose reply is
//! lost.

use bson::raw::RawBsonRef;
use bson::{Bson, Document, RawDocument, doc};

use super::transport::ServerCommand;

/// A command as `$currentOp` shows it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Question {
    /// The name of the database and a dot, with which the namespace of every operation begins.
    database: String,
    name: String,
    /// The collection, if the command is about one.
    collection: Option<String>,
    comment: String,
}

impl Question {
    /// Creates the question about a command; `None` for a command without a comment, which cannot be told from the commands of
    /// other clients.
    pub(crate) fn about(command: &ServerCommand) -> Option<Self> {
        let (name, value) = command.body.iter().next()?.ok()?;
        let comment = comment(&command.body).or_else(|| comment(value.as_document()?))?;
        let collection = match value {
            RawBsonRef::String(collection) => Some(collection.to_owned()),
            _ => None,
        };
        Some(Self { database: format!("{}.", command.database), name: name.as_str().to_owned(), collection, comment })
    }

    /// Returns the command that asks, for the database `admin`. It needs no privilege: a user may see operations of his own
    /// (MongoDB manual, "$currentOp", `allUsers`).
    pub(crate) fn command(&self) -> Document {
        let places = ["command.comment", "command.explain.comment", "cursor.originatingCommand.comment"];
        let by_comment: Vec<Document> = places.iter().map(|place| doc! { *place: &self.comment }).collect();
        let stages = [
            doc! { "$currentOp": {} },
            doc! { "$match": { "active": true, "$or": by_comment } },
            // A command may be long, and its first field names it.
            doc! { "$project": {
                "ns": 1,
                "first": { "$arrayElemAt": [{ "$objectToArray": "$command" }, 0] },
                "collection": "$command.collection",
            } },
        ];
        doc! { "aggregate": 1, "pipeline": stages.to_vec(), "cursor": {}, "comment": &self.comment }
    }

    /// Tells from the reply whether the server is at work on the command, or on another one of this run that looks the same.
    /// Returns `None` if the server does not show commands with their comments, as it should show at least the command that
    /// asks.
    pub(crate) fn answer(&self, reply: &Document) -> Option<bool> {
        let operations = reply.get_document("cursor").ok()?.get_array("firstBatch").ok()?;
        let mut operations = operations.iter().filter_map(Bson::as_document);
        operations.clone().find(|operation| first(operation).0 == "aggregate" && is_in(operation, "admin."))?;
        Some(operations.any(|operation| self.is_this(operation)))
    }

    fn is_this(&self, operation: &Document) -> bool {
        let (name, value) = first(operation);
        let of = |collection: Option<&str>| self.collection.as_deref() == collection;
        let is_named = match name {
            // A batch of the cursor that the command has opened.
            "getMore" => self.opens_cursor() && of(operation.get_str("collection").ok()),
            name => name == self.name && of(value),
        };
        is_named && is_in(operation, &self.database)
    }

    fn opens_cursor(&self) -> bool {
        matches!(self.name.as_str(), "find" | "aggregate" | "listIndexes")
    }
}

/// Returns the name of an operation, and the collection that it is about.
fn first(operation: &Document) -> (&str, Option<&str>) {
    let first = operation.get_document("first").ok();
    let text = |key| first.and_then(|first| first.get_str(key).ok());
    (text("k").unwrap_or_default(), text("v"))
}

fn is_in(operation: &Document, database: &str) -> bool {
    operation.get_str("ns").is_ok_and(|namespace| namespace.starts_with(database))
}

fn comment(body: &RawDocument) -> Option<String> {
    Some(body.get_str("comment").ok()?.to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::shell::server::wire::transport::Patience;

    fn question(body: Document) -> Option<Question> {
        Question::about(&ServerCommand::of("app", &body, Patience::WhileRunning(Duration::from_secs(1))).unwrap())
    }

    /// Returns a reply of mongod: the operations, and the one that asks.
    fn reply(mut operations: Vec<Document>) -> Document {
        operations.push(doc! { "ns": "admin.$cmd.aggregate", "first": { "k": "aggregate", "v": 1 } });
        doc! { "cursor": { "firstBatch": operations, "id": 0_i64 }, "ok": 1.0 }
    }

    #[test]
    fn a_command_is_recognised_by_comment_name_and_namespace() {
        let find = question(doc! { "find": "c", "filter": {}, "comment": "sweeper 1" }).unwrap();
        let finding =
            |namespace: &str, name: &str, collection: &str| doc! { "ns": namespace, "first": { "k": name, "v": collection } };
        let more = |collection: &str| doc! { "ns": "app.c", "first": { "k": "getMore", "v": 5_i64 }, "collection": collection };
        for (operations, is_running) in [
            (vec![], false),
            (vec![finding("app.c", "find", "c")], true),
            (vec![more("c")], true),
            (vec![more("d")], false),
            (vec![finding("app.c", "delete", "c"), finding("app.d", "find", "d"), finding("apple.c", "find", "c")], false),
            (vec![finding("app.c", "delete", "c"), finding("app.c", "find", "c")], true),
        ] {
            assert_eq!(find.answer(&reply(operations.clone())), Some(is_running), "{operations:?}");
        }
        for silent in [doc! { "ok": 1.0 }, doc! { "cursor": { "firstBatch": [finding("app.c", "find", "c")] } }] {
            assert_eq!(find.answer(&silent), None, "{silent}");
        }
        let listing = question(doc! { "listCollections": 1, "comment": "sweeper 1" }).unwrap();
        let shown = doc! { "ns": "app.$cmd.listCollections", "first": { "k": "listCollections", "v": 1 } };
        assert_eq!(listing.answer(&reply(vec![shown])), Some(true));
    }

    #[test]
    fn the_question_holds_the_comment_of_the_command() {
        let explain = question(doc! { "explain": { "find": "c", "comment": "sweeper 1" }, "verbosity": "queryPlanner" }).unwrap();
        assert_eq!((explain.name.as_str(), explain.comment.as_str()), ("explain", "sweeper 1"));
        assert!(explain.command().to_string().contains(r#""command.explain.comment": "sweeper 1""#));
        let shown = doc! { "ns": "app.c", "first": { "k": "explain", "v": { "find": "c" } } };
        assert_eq!(explain.answer(&reply(vec![shown])), Some(true));
        assert_eq!(question(doc! { "find": "c" }), None);
    }
}
