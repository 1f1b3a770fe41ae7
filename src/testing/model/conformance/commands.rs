//! The steps of a sequence: commands that are made up, and calls of the program's own code.

use std::fmt;
use std::time::Duration;

use bson::{Bson, Document, RawDocumentBuf, Uuid, doc};
use fastrand::Rng;

use super::Server;
use super::filters::{expression, filter};
use super::outcome::{Outcome, shown};
use super::rules::{self, indexes};
use super::tool::Call;
use super::values::{Shape, document, id, likely_id, operand};
use super::{one_of, relations};
use crate::core::plan::SweepRule;
use crate::core::policy::namespace::Namespace;
use crate::shell::server::look::catalog;
use crate::shell::server::wire::error::ServerError;
use crate::shell::server::wire::transport::{Patience, ServerCommand};

/// One step of a sequence.
pub(super) enum Step {
    /// A command with one reply.
    Run { database: String, body: Document },
    /// A command that opens a cursor, whose documents have an order or not.
    Open { database: String, body: Document, is_ordered: bool },
    /// A command about the collection with a UUID: the one that the server lists, or one that no collection has.
    Bound { namespace: Namespace, body: Document, is_right: bool },
    /// The indexes of a collection.
    Listing(Namespace),
    /// A call of the program's own code.
    Tool(Box<Call>),
    /// A call about children or holds.
    Relations(Box<relations::Call>),
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Run { body, .. } => write!(f, "run {}", shown(&body.clone().into())),
            Self::Open { body, .. } => write!(f, "open {}", shown(&body.clone().into())),
            Self::Bound { body, is_right, .. } => {
                write!(f, "with the {} UUID: {}", if *is_right { "right" } else { "wrong" }, shown(&body.clone().into()))
            }
            Self::Listing(namespace) => write!(f, "indexes of {namespace}"),
            Self::Tool(call) => write!(f, "{call:?}"),
            Self::Relations(call) => write!(f, "{call:?}"),
        }
    }
}

const PATIENCE: Patience = Patience::Limit(Duration::from_secs(120));

impl Step {
    /// Returns the step that reads all documents in the order in which they are stored.
    pub(super) fn everything(namespace: &Namespace) -> Self {
        let body = doc! { "find": &namespace.collection, "hint": { "$natural": 1 } };
        Self::Open { database: namespace.database.clone(), body, is_ordered: true }
    }

    pub(super) async fn run(&self, deployment: &Server) -> Outcome {
        match self {
            Self::Run { database, body } => {
                let command = ServerCommand::of(database, body, PATIENCE).expect("a command");
                Outcome::of_reply(deployment.transport.run(command).await)
            }
            Self::Open { database, body, is_ordered } => {
                let command = ServerCommand::of(database, body, PATIENCE).expect("a command");
                Outcome::of_documents(read(deployment, command).await, *is_ordered)
            }
            Self::Bound { namespace, body, is_right } => {
                let entry = catalog::entry(deployment, namespace).await.expect("a listing");
                let listed = entry.as_ref().and_then(catalog::uuid).filter(|_| *is_right);
                let mut body = body.clone();
                body.insert("collectionUUID", listed.unwrap_or(Uuid::from_bytes([1; 16])));
                let command = ServerCommand::of(&namespace.database, &body, PATIENCE).expect("a command");
                match body.contains_key("delete") {
                    true => Outcome::of_reply(deployment.transport.run(command).await),
                    false => Outcome::of_documents(read(deployment, command).await, false),
                }
            }
            Self::Listing(namespace) => Outcome::of(indexes(deployment, namespace).await),
            Self::Tool(call) => call.run(deployment).await,
            Self::Relations(call) => call.run(deployment).await,
        }
    }
}

async fn read(deployment: &Server, command: ServerCommand) -> Result<Vec<RawDocumentBuf>, ServerError> {
    let mut batches = deployment.transport.open(command).await?;
    let mut documents = Vec::new();
    while let Some(batch) = batches.next().await? {
        documents.extend(batch);
    }
    Ok(documents)
}

/// Returns the steps with which a sequence begins: indexes and documents.
pub(super) fn beginning(random: &mut Rng, namespace: &Namespace, shape: Shape) -> Vec<Step> {
    let run = |body: Document| Step::Run { database: namespace.database.clone(), body };
    let mut steps = vec![run(doc! { "create": &namespace.collection })];
    for field in ["at", "a.b", "at.0", "kind"] {
        if random.u8(0..6) > if field == "at" { 3 } else { 0 } {
            continue;
        }
        let direction = if random.u8(0..3) == 0 { -1 } else { 1 };
        let mut key = doc! { field: direction };
        if random.u8(0..4) == 0 {
            key.insert("n", *one_of(random, &[1, -1]));
        }
        let mut index = doc! { "key": key, "name": format!("{field}_") };
        if random.u8(0..8) == 0 {
            index.insert(*one_of(random, &["sparse", "unique"]), true);
        }
        steps.push(run(doc! { "createIndexes": &namespace.collection, "indexes": [index] }));
    }
    let documents: Vec<Document> = (0..random.i32(8..40))
        .map(|n| {
            let id = if random.u8(0..5) == 0 { id(random) } else { n.into() };
            document(random, shape, id)
        })
        .collect();
    steps.push(run(doc! { "insert": &namespace.collection, "documents": documents, "ordered": false }));
    steps
}

/// Returns any further step.
pub(super) fn any(random: &mut Rng, namespace: &Namespace, shape: Shape, of: &[SweepRule]) -> Step {
    let rule = one_of(random, of).clone();
    let database = namespace.database.clone();
    let collection = namespace.collection.as_str();
    let run = |body: Document| Step::Run { database: database.clone(), body };
    match random.u8(0..26) {
        0 => {
            let documents: Vec<Document> = (0..random.u8(1..4))
                .map(|_| {
                    let id = likely_id(random);
                    document(random, shape, id)
                })
                .collect();
            run(doc! { "insert": collection, "documents": documents, "ordered": random.bool() })
        }
        1..4 => find(random, namespace, &rule),
        4 => {
            run(doc! { "count": collection, "query": filter(random, 2), "limit": random.i32(0..3) * 4, "skip": random.i32(0..3) })
        }
        5 => run(deletes(random, collection)),
        6 => run(update(random, shape, collection)),
        7 => aggregate(random, namespace, &rule),
        8 => bad(random, namespace),
        20 => bound(random, namespace),
        21.. => Step::Relations(Box::new(relations::Call::any(random, namespace, shape, rule))),
        _ => Step::Tool(Box::new(Call::any(random, namespace, shape, rule))),
    }
}

/// Returns a command that names its collection by a UUID, which may be gone or under another name.
fn bound(random: &mut Rng, namespace: &Namespace) -> Step {
    let collection = namespace.collection.as_str();
    let ids = doc! { "_id": { "$in": [random.i32(0..30), random.i32(0..30)] } };
    let statement = |filter: Document| doc! { "q": filter, "limit": 0 };
    let body = match random.u8(0..3) {
        0 => doc! { "find": collection, "filter": ids },
        1 => doc! { "aggregate": collection, "pipeline": [{ "$match": ids }, { "$project": { "_id": 1 } }], "cursor": {} },
        _ => {
            let deletes = vec![statement(ids), statement(doc! { "_id": random.i32(0..30) })];
            doc! { "delete": collection, "deletes": deletes, "ordered": random.bool() }
        }
    };
    Step::Bound { namespace: namespace.clone(), body, is_right: random.bool() }
}

/// Returns a query, in most cases with an order.
fn find(random: &mut Rng, namespace: &Namespace, rule: &SweepRule) -> Step {
    let mut body = doc! { "find": &namespace.collection, "filter": filter(random, 2) };
    if random.bool() {
        body.insert("filter", doc! { "$and": [rules::bounds(random, rule), filter(random, 0)] });
    }
    let mut is_ordered = true;
    match random.u8(0..4) {
        0 => drop(body.insert("hint", doc! { "_id": 1 })),
        1 => drop(body.insert("hint", doc! { "$natural": *one_of(random, &[1, -1]) })),
        2 => {
            let field = *one_of(random, &["at", "a.b", "n", "at.0"]);
            // The `_id` is unique, so that the order is defined.
            body.insert("sort", doc! { field: *one_of(random, &[1, -1]), "_id": *one_of(random, &[1, -1]) });
        }
        _ => is_ordered = false,
    }
    if is_ordered && random.bool() {
        body.insert("limit", random.i32(1..8));
        if random.bool() {
            body.insert("skip", random.i32(1..8));
        }
    }
    if body.get("hint") == Some(&doc! { "_id": 1 }.into()) && random.u8(0..3) == 0 {
        for bound in ["min", "max"] {
            if random.bool() {
                // A bound that is left out is the end of all keys, and a mongod refuses a range from an end to itself. The
                // program sends no such end.
                let id =
                    Some(likely_id(random)).filter(|id| !matches!(id, Bson::MinKey | Bson::MaxKey)).unwrap_or(Bson::Int32(0));
                body.insert(bound, doc! { "_id": id });
            }
        }
    }
    if random.u8(0..3) == 0 {
        body.insert("batchSize", random.i32(1..6));
    }
    match random.u8(0..6) {
        // From keys, a position in an array is read as the name of a field, or not, depending on the plan.
        0 if rule.expiry.field.contains(".0") => {}
        0 => {
            // A mongod reads one field from the keys of an index, which show other values than the documents, wherever it sees
            // that an index serves the filter. The program asks for one field only in a range of it.
            body.insert("projection", doc! { "_id": 0, &rule.expiry.field: 1 });
            body.insert("filter", rules::bounds(random, rule));
        }
        1 => drop(body.insert("projection", doc! { "_id": 1 })),
        2 => drop(body.insert("projection", doc! { "kind": 0 })),
        _ => {}
    }
    // Both fields of a projection on the `_id` would be at odds.
    if rule.expiry.field == "_id" {
        body.remove("projection");
    }
    Step::Open { database: namespace.database.clone(), body, is_ordered }
}

fn deletes(random: &mut Rng, collection: &str) -> Document {
    let statement = |random: &mut Rng| match random.u8(0..8) {
        0..3 => doc! { "q": { "_id": likely_id(random) }, "limit": 1 },
        3..6 => doc! { "q": filter(random, 2), "limit": 1, "hint": { "_id": *one_of(random, &[1]) } },
        // Fails on the first document whose value is no array, in the middle of the statement.
        6 => doc! { "q": { "$expr": { "$gt": [{ "$size": "$at" }, 1] } }, "limit": 0, "hint": { "$natural": 1 } },
        _ => doc! { "q": { "$and": [filter(random, 1), filter(random, 1)] }, "limit": 0 },
    };
    let statements: Vec<Document> = (0..random.u8(1..4)).map(|_| statement(random)).collect();
    doc! { "delete": collection, "deletes": statements, "ordered": random.bool() }
}

fn update(random: &mut Rng, shape: Shape, collection: &str) -> Document {
    let id = likely_id(random);
    let statement = match random.u8(0..5) {
        0 => {
            let mut document = document(random, shape, id.clone());
            document.remove("_id");
            doc! { "q": { "_id": id }, "u": document, "upsert": random.bool() }
        }
        1 => {
            let document = document(random, shape, id);
            doc! { "q": { "$nor": [{}] }, "u": [{ "$replaceWith": { "$literal": document } }], "upsert": true }
        }
        2 => doc! { "q": filter(random, 1), "u": { "$set": { "z": 1, "kind": "z", "c": operand(random) } }, "multi": true },
        3 => {
            doc! { "q": { "_id": id, "kind": "x" }, "u": { "$set": { "n": operand(random) }, "$unset": { "ttl": 1 } }, "upsert": true }
        }
        _ => {
            doc! { "q": { "_id": id }, "u": { "$set": { "at": operand(random) }, "$setOnInsert": { "made": true } }, "upsert": random.bool() }
        }
    };
    doc! { "update": collection, "updates": [statement], "ordered": true }
}

fn aggregate(random: &mut Rng, namespace: &Namespace, rule: &SweepRule) -> Step {
    let matching = doc! { "$match": if random.bool() { filter(random, 2) } else { rule.selection.predicate.clone() } };
    let group = |id: Bson| {
        doc! { "$group": {
            "_id": id, "n": { "$sum": 1 }, "least": { "$min": "$at" }, "greatest": { "$max": "$at" }, "ids": { "$max": "$_id" },
        } }
    };
    let rest = match random.u8(0..6) {
        0 => vec![group(Bson::Null)],
        1 => vec![group(doc! { "$type": "$at" }.into())],
        2 => vec![doc! { "$count": "n" }],
        3 => vec![doc! { "$sort": { "at": 1, "_id": 1 } }, doc! { "$skip": 1 }, doc! { "$limit": 3 }],
        4 => vec![doc! { "$project": { "_id": 1, "at": 1, "is": expression(random) } }],
        _ => vec![doc! { "$facet": { "n": [{ "$count": "n" }], "g": [group("$kind".into()), { "$sort": { "_id": 1 } }] } }],
    };
    let stages: Vec<Document> = std::iter::once(matching).chain(rest).collect();
    let body = doc! { "aggregate": &namespace.collection, "pipeline": stages, "cursor": {} };
    Step::Open { database: namespace.database.clone(), body, is_ordered: false }
}

/// Returns a command that no server accepts, or that finds nothing to work on.
fn bad(random: &mut Rng, namespace: &Namespace) -> Step {
    let c = namespace.collection.as_str();
    let wrong = [
        doc! { "find": c, "filter": { "at": { "$foo": 1 } } },
        doc! { "find": c, "filter": { "$foo": 1 } },
        doc! { "find": c, "filter": { "$and": [] } },
        doc! { "find": c, "filter": { "$or": [5] } },
        doc! { "find": c, "filter": { "at": { "$in": 5 } } },
        doc! { "find": c, "filter": { "at": { "$type": "dates" } } },
        doc! { "find": c, "filter": { "at": { "$not": 5 } } },
        doc! { "find": c, "filter": { "at": { "$gte": Bson::Undefined } } },
        doc! { "find": c, "filter": { "at": { "$lte": 5, "$foo": 1 } } },
        doc! { "find": c, "filter": { "$expr": { "$foo": 1 } } },
        doc! { "find": c, "filter": { "$expr": "$$unknown" } },
        doc! { "find": c, "filter": { "$expr": { "$eq": [1] } } },
        doc! { "find": c, "filter": { "$expr": { "$eq": [1, 1], "$ne": [1, 1] } } },
        doc! { "find": c, "filter": {}, "hint": "unknown_1" },
        doc! { "find": c, "filter": {}, "hint": { "unknown": 1 } },
        doc! { "find": c, "filter": {}, "sort": { "at": 5 } },
        doc! { "find": c, "filter": {}, "limit": -1 },
        doc! { "find": c, "filter": {}, "min": { "_id": 1 } },
        doc! { "find": c, "filter": {}, "unknown": 1 },
        doc! { "find": c, "filter": {}, "projection": { "a": 1, "b": 0 } },
        doc! { "find": "" },
        doc! { "find": "unknown", "filter": {} },
        doc! { "unknown": c },
        doc! { "count": "unknown" },
        doc! { "aggregate": c, "pipeline": [{ "$foo": 1 }], "cursor": {} },
        doc! { "aggregate": c, "pipeline": [{ "$match": {}, "$limit": 1 }], "cursor": {} },
        doc! { "aggregate": c, "pipeline": [{ "$limit": 0 }], "cursor": {} },
        doc! { "aggregate": c, "pipeline": [{ "$group": { "n": { "$sum": 1 } } }], "cursor": {} },
        doc! { "aggregate": c, "pipeline": [{ "$group": { "_id": 1, "n": { "$foo": 1 } } }], "cursor": {} },
        doc! { "aggregate": c, "pipeline": [] },
        doc! { "delete": c, "deletes": [] },
        doc! { "delete": c, "deletes": [{ "q": {}, "limit": 2 }] },
        doc! { "delete": c, "deletes": [{ "q": {} }] },
        doc! { "delete": c, "deletes": [{ "q": {}, "limit": 0, "unknown": 1 }] },
        doc! { "delete": c, "deletes": [{ "q": { "at": { "$foo": 1 } }, "limit": 0 }] },
        doc! { "delete": c, "deletes": [{ "q": {}, "limit": 0, "hint": "unknown_1" }] },
        doc! { "delete": "unknown", "deletes": [{ "q": {}, "limit": 0 }] },
        doc! { "update": c, "updates": [{ "q": { "_id": 1 }, "u": { "$foo": { "a": 1 } } }] },
        doc! { "update": c, "updates": [{ "q": { "_id": 1 }, "u": { "a": 1 }, "multi": true }] },
        doc! { "update": c, "updates": [{ "q": { "_id": { "$gte": 0 } }, "u": { "$set": { "_id": 99 } }, "multi": true }] },
        doc! { "insert": c, "documents": [{ "_id": [1] }] },
        doc! { "insert": c, "documents": [{ "_id": Bson::Undefined }] },
        doc! { "insert": c, "documents": [] },
        doc! { "getMore": 12_345_i64, "collection": c },
        doc! { "killCursors": c, "cursors": [12_345_i64] },
        doc! { "listIndexes": "unknown" },
        doc! { "drop": "unknown" },
    ];
    let body = one_of(random, &wrong).clone();
    let opens = ["find", "aggregate"].iter().any(|name| body.contains_key(name));
    let database = namespace.database.clone();
    if opens { Step::Open { database, body, is_ordered: false } } else { Step::Run { database, body } }
}
