//! Updates, as leases and restores send them.

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};

use crate::call::Call;
use crate::collection::Progress;
use crate::failure::Failure;
use crate::filter::Filter;
use crate::observer::{Updated, View};
use crate::order::compare;
use crate::state::State;
use crate::writes::{Statements, list, own};
use crate::{pipeline, plan};

/// A change of one document.
enum Change {
    Operators(Document),
    Replacement(Document),
    Pipeline(Vec<pipeline::Stage>),
}

pub(crate) async fn update(call: &Call) -> Result<Document, Failure> {
    call.takes(&["updates", "ordered", "bypassDocumentValidation", "let"])?;
    let namespace = call.namespace()?;
    let (mut done, mut modified, mut upserted) = (Statements::new(call), 0, Vec::new());
    for (index, statement) in list(call, "updates")?.iter().enumerate() {
        let result = {
            let mut state = call.model.state.lock();
            call.check(&state)?;
            one(call, &mut state, &namespace, statement)
        };
        let result = result.map(|Sum { n, changed, id }| {
            modified += changed;
            upserted.extend(id.map(|id| doc! { "index": i32::try_from(index).expect("few statements"), "_id": id }));
            n
        });
        if !done.add(index, result)? {
            break;
        }
    }
    let mut reply = done.reply();
    if !upserted.is_empty() {
        reply.insert("upserted", upserted);
    }
    reply.insert("nModified", modified);
    call.confirmed(reply).await
}

struct Sum {
    n: i64,
    changed: i32,
    /// The `_id` of the document that was inserted.
    id: Option<Bson>,
}

fn one(call: &Call, state: &mut State, namespace: &str, statement: &Document) -> Result<Sum, Failure> {
    let known = ["q", "u", "multi", "upsert", "hint", "collation"];
    if let Some(unknown) = statement.keys().find(|key| !known.contains(&key.as_str())) {
        return Err(Failure::new(40_415, format!("BSON field 'update.updates.{unknown}' is an unknown field.")));
    }
    plan::check_collation(statement.get_document("collation").ok());
    let query = statement.get_document("q").map_err(|_| Failure::new(40_414, "BSON field 'update.updates.q' is missing"))?;
    let filter = Filter::new(query, call.now)?;
    let flag = |name| statement.get_bool(name).unwrap_or(false);
    let change = match statement.get("u") {
        Some(Bson::Document(change)) if change.keys().next().is_some_and(|key| key.starts_with('$')) => {
            Change::Operators(change.clone())
        }
        Some(Bson::Document(replacement)) if flag("multi") => {
            return Err(Failure::new(9, format!("multi update is not supported for replacement-style update: {replacement}")));
        }
        Some(Bson::Document(replacement)) => Change::Replacement(replacement.clone()),
        Some(Bson::Array(stages)) => {
            let stages: Vec<&Document> = stages.iter().filter_map(Bson::as_document).collect();
            Change::Pipeline(pipeline::compile(&stages, call.now)?)
        }
        _ => return Err(Failure::new(9, "Update argument must be either an object or an array")),
    };
    change.check()?;
    let mut records = Vec::new();
    if let Some(collection) = state.collections.get(namespace) {
        let (scan, _) = plan::scan(collection, &filter, &[], statement.get("hint"))?;
        let mut progress = Progress::default();
        while let Some(record) = collection.next(&scan, &mut progress) {
            if !records.contains(&record) && filter.matches(collection.get(record).expect("a document of an index"))? {
                records.push(record);
                if !flag("multi") {
                    break;
                }
            }
        }
    }
    let mut updated = Sum { n: 0, changed: 0, id: None };
    for record in &records {
        let before = state.collections[namespace].get(*record).expect("a document").clone();
        let after = change.applied(own(&before), false)?;
        let has_same_id = before.as_document().and_then(|before| before.get("_id")).zip(after.get("_id"));
        if !has_same_id.is_some_and(|(before, after)| compare(before, after).is_eq()) {
            return Err(Failure::new(66, "Performing an update on the path '_id' would modify the immutable field '_id'"));
        }
        updated.n += 1;
        let after = Bson::from(after);
        if after != *before {
            updated.changed += 1;
            let write = state.write(namespace, *record, Some(after.clone()))?;
            let (Some(before), Some(after)) = (before.as_document(), after.as_document()) else { continue };
            let change = Updated { write, namespace, before, after, now: state.now(), client: &call.client, server: View(state) };
            call.model.observer.updated(&change);
        }
    }
    if records.is_empty() && flag("upsert") {
        let mut document = change.applied(equalities(query), true)?;
        if !document.contains_key("_id") {
            let mut id = [0; 12];
            id.iter_mut().for_each(|byte| *byte = state.random.u8(..));
            document.insert("_id", ObjectId::from_bytes(id));
        }
        let id = document.get("_id").cloned();
        state.insert(namespace, document)?;
        updated = Sum { n: 1, changed: 0, id };
    }
    Ok(updated)
}

/// Returns the fields that a filter requires to equal a value, with which an inserted document begins.
fn equalities(filter: &Document) -> Document {
    let mut found = Document::new();
    for (key, value) in filter {
        match (key.as_str(), value) {
            ("$and", Bson::Array(parts)) => {
                parts.iter().filter_map(Bson::as_document).for_each(|part| found.extend(equalities(part)));
            }
            (key, _) if key.starts_with('$') => {}
            (_, Bson::Document(operators)) if operators.keys().next().is_some_and(|key| key.starts_with('$')) => {
                if let Some(value) = operators.get("$eq") {
                    found.insert(key, value);
                }
            }
            (_, Bson::RegularExpression(_)) => {}
            (key, value) => drop(found.insert(key, value)),
        }
    }
    found
}

impl Change {
    fn check(&self) -> Result<(), Failure> {
        let Self::Operators(operators) = self else { return Ok(()) };
        for (operator, fields) in operators {
            if !["$set", "$unset", "$setOnInsert", "$max", "$pullAll"].contains(&operator.as_str()) {
                return Err(Failure::new(9, format!("Unknown modifier: {operator}")));
            }
            let fields = fields.as_document().ok_or_else(|| Failure::new(9, "Modifiers operate on fields"))?;
            let has_dots = fields.keys().any(|name| name.contains('.'));
            assert!(!has_dots, "the model changes no fields below others");
        }
        Ok(())
    }

    fn applied(&self, mut document: Document, inserts: bool) -> Result<Document, Failure> {
        match self {
            Self::Operators(operators) => {
                let fields = |(operator, fields)| {
                    let fields = Bson::as_document(fields).into_iter().flatten();
                    fields.map(move |(name, value): (&String, &Bson)| (name.as_str(), operator, value))
                };
                let mut changes: Vec<(&str, &String, &Bson)> = operators.iter().flat_map(fields).collect();
                // New fields come in the order of their names, whatever sets them.
                changes.sort_by_key(|(name, ..)| *name);
                for (name, operator, value) in changes {
                    let is_over = document.get(name).is_none_or(|before| compare(value, before).is_gt());
                    match operator.as_str() {
                        "$unset" => drop(document.remove(name)),
                        "$pullAll" => {
                            let Bson::Array(pulled) = value else {
                                return Err(Failure::new(2, "$pullAll requires an array argument"));
                            };
                            match document.get_mut(name) {
                                None => {}
                                Some(Bson::Array(items)) => {
                                    items.retain(|item| !pulled.iter().any(|value| compare(value, item).is_eq()))
                                }
                                Some(_) => return Err(Failure::new(2, "Cannot apply $pull to a non-array value")),
                            }
                        }
                        "$setOnInsert" if !inserts => {}
                        "$max" if !is_over => {}
                        _ => drop(document.insert(name, value)),
                    }
                }
                Ok(document)
            }
            Self::Replacement(replacement) => {
                let mut replaced = Document::new();
                if let Some(id) = replacement.get("_id").or(document.get("_id")) {
                    replaced.insert("_id", id);
                }
                replaced.extend(
                    replacement.iter().filter(|(name, _)| *name != "_id").map(|(name, value)| (name.clone(), value.clone())),
                );
                Ok(replaced)
            }
            Self::Pipeline(stages) => {
                let found = pipeline::run(stages, vec![std::sync::Arc::new(document.into())])?;
                Ok(own(found.first().ok_or_else(|| Failure::bad("an update without a result"))?))
            }
        }
    }
}
