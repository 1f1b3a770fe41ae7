//! Queries and their cursors.

use std::collections::VecDeque;

use bson::{Bson, Document, doc};

use crate::call::Call;
use crate::codes;
use crate::collection::Scan;
use crate::concern::Concern;
use crate::cursor::{Cursor, Source};
use crate::failure::Failure;
use crate::filter::Filter;
use crate::projection::Projection;
use crate::query::Query;
use crate::sort::sort;
use crate::state::State;
use crate::value::{integer, integer_in};
use crate::{pipeline, plan};

/// Documents of the first batch of a `find` that names no size.
const FIRST_BATCH: usize = 101;

/// Returns the first batch, and keeps the cursor if documents may be left.
fn open(mut cursor: Cursor, state: &mut State, size: usize, is_single: bool) -> Result<Document, Failure> {
    let batch = cursor.batch(&state.collections, size)?;
    let namespace = cursor.namespace.clone();
    let id = if is_single || cursor.left == 0 { 0 } else { state.random.i64(1..i64::MAX) };
    if id != 0 {
        state.cursors.insert(id, cursor);
    }
    Ok(doc! { "cursor": { "firstBatch": batch, "id": id, "ns": namespace }, "ok": 1.0 })
}

fn unsigned(of: &Document, name: &str) -> Result<Option<usize>, Failure> {
    match of.get(name) {
        None => Ok(None),
        Some(value) => {
            let n = integer(value).ok_or_else(|| Failure::new(14, format!("BSON field '{name}' is the wrong type")))?;
            let n = usize::try_from(n).map_err(|_| Failure::new(51_024, format!("BSON field '{name}' value must be >= 0")))?;
            Ok(Some(n))
        }
    }
}

pub(crate) async fn find(call: &Call) -> Result<Document, Failure> {
    call.takes(&FIND)?;
    let body = &call.body;
    let namespace = call.namespace()?;
    let filter = Filter::new(body.get_document("filter").unwrap_or(&Document::new()), call.now)?;
    let sorting = plan::sort(body.get_document("sort").ok())?;
    let projection = Projection::new(body.get_document("projection").ok(), call.now)?;
    let skip = unsigned(body, "skip")?.unwrap_or(0);
    let left = unsigned(body, "limit")?.filter(|limit| *limit > 0).unwrap_or(usize::MAX);
    let size = unsigned(body, "batchSize")?.unwrap_or(FIRST_BATCH);
    let concern = Concern::of(call)?;
    concern.wait(call).await?;
    let mut state = call.model.state.lock();
    call.check(&state)?;
    state.check_uuid(body, &namespace)?;
    let data = concern.data(&state, &namespace);
    let source = match Query::new(&data, &namespace, body, (filter, &sorting))? {
        None => Source::Done(VecDeque::new()),
        Some((mut query, needs_sort)) => {
            if !needs_sort {
                query.cover(&data, projection.paths());
            }
            if needs_sort || concern.is_one_point() {
                let mut documents = query.all(&data)?;
                if needs_sort {
                    sort(&mut documents, &sorting)?;
                }
                Source::Done(documents.into())
            } else {
                Source::Query(Box::new(query))
            }
        }
    };
    let cursor = Cursor { term: call.term, namespace, source, projection, skip, left, client: call.client.clone() };
    let time = concern.operation_time(&state);
    let mut reply = open(cursor, &mut state, size, body.get_bool("singleBatch").unwrap_or(false))?;
    reply.extend(time.map(|time| ("operationTime".to_owned(), Bson::Timestamp(time))));
    Ok(reply)
}

const FIND: [&str; 15] = [
    "collectionUUID",
    "filter",
    "sort",
    "projection",
    "hint",
    "skip",
    "limit",
    "batchSize",
    "singleBatch",
    "min",
    "max",
    "collation",
    "allowDiskUse",
    "noCursorTimeout",
    "returnKey",
];

pub(crate) async fn aggregate(call: &Call) -> Result<Document, Failure> {
    call.takes(&["pipeline", "cursor", "hint", "collation", "allowDiskUse", "let", "collectionUUID"])?;
    let body = &call.body;
    let Ok(options) = body.get_document("cursor") else {
        return Err(Failure::new(9, "The 'cursor' option is required, except for aggregate with the explain argument"));
    };
    let size = unsigned(options, "batchSize")?.unwrap_or(FIRST_BATCH);
    let namespace = call.namespace()?;
    let mut stages = Vec::new();
    for stage in body.get_array("pipeline").map_err(|_| Failure::new(14, "'pipeline' option must be specified as an array"))? {
        stages
            .push(stage.as_document().ok_or_else(|| Failure::new(14, "Each element of the 'pipeline' array must be an object"))?);
    }
    // The first conditions choose the index.
    let (first, rest) = match stages.split_first() {
        Some((stage, rest)) if stage.contains_key("$match") && stage.len() == 1 => (stage.get_document("$match").ok(), rest),
        _ => (None, stages.as_slice()),
    };
    let filter = Filter::new(first.unwrap_or(&Document::new()), call.now)?;
    let rest = pipeline::compile(rest, call.now)?;
    let concern = Concern::of(call)?;
    concern.wait(call).await?;
    let mut state = call.model.state.lock();
    call.check(&state)?;
    state.check_uuid(body, &namespace)?;
    let data = concern.data(&state, &namespace);
    let documents = match Query::new(&data, &namespace, body, (filter, &[]))? {
        Some((mut query, _)) => query.all(&data)?,
        None => Vec::new(),
    };
    let source = Source::Done(pipeline::run(&rest, documents)?.into());
    let projection = Projection::new(None, call.now)?;
    let client = call.client.clone();
    let cursor = Cursor { term: call.term, namespace, source, projection, skip: 0, left: usize::MAX, client };
    open(cursor, &mut state, size, false)
}

pub(crate) fn count(call: &Call) -> Result<Document, Failure> {
    call.takes(&["query", "limit", "skip", "hint", "collation", "fields"])?;
    let namespace = call.namespace()?;
    let query = call.body.get_document("query").ok().filter(|query| !query.is_empty());
    let filter = Filter::new(query.unwrap_or(&Document::new()), call.now)?;
    let skip = unsigned(&call.body, "skip")?.unwrap_or(0);
    let limit = integer_in(&call.body, "limit").map_or(0, i64::unsigned_abs);
    let limit = usize::try_from(limit).ok().filter(|limit| *limit > 0).unwrap_or(usize::MAX);
    let state = call.model.state.lock();
    call.check(&state)?;
    let documents = match Query::new(&state.collections, &namespace, &call.body, (filter, &[]))? {
        None => 0,
        // Without conditions, the collection's own count is the answer.
        Some(_) if query.is_none() && !call.body.contains_key("hint") => {
            let collection = &state.collections[&namespace];
            let documents = i64::try_from(collection.len()).expect("few documents") + collection.miscount;
            usize::try_from(documents).unwrap_or(0)
        }
        Some((mut query, _)) => query.all(&state.collections)?.len(),
    };
    Ok(doc! { "n": i32::try_from(documents.saturating_sub(skip).min(limit)).expect("few documents"), "ok": 1.0 })
}

/// Returns what the program reads of a plan: whether there is a sort, whether the index is multikey, and the numbers of what was
/// read.
pub(crate) fn explain(call: &Call) -> Result<Document, Failure> {
    let body = call.body.get_document("explain").map_err(|_| Failure::new(14, "explain needs a command"))?;
    let Ok(collection) = body.get_str("find") else { return Err(Failure::bad("the model explains only `find`")) };
    let namespace = format!("{}.{collection}", call.database);
    let filter = Filter::new(body.get_document("filter").unwrap_or(&Document::new()), call.now)?;
    let sorting = plan::sort(body.get_document("sort").ok())?;
    let limit = unsigned(body, "limit")?.filter(|limit| *limit > 0).unwrap_or(usize::MAX);
    let state = call.model.state.lock();
    call.check(&state)?;
    let Some((mut query, needs_sort)) = Query::new(&state.collections, &namespace, body, (filter, &sorting))? else {
        return Ok(doc! { "queryPlanner": { "winningPlan": { "stage": "EOF" } }, "ok": 1.0 });
    };
    let is_multikey = match &query.scan {
        Scan::Index { name, .. } => state.collections[&namespace].index(name).map(|index| index.is_multikey()),
        Scan::Natural { .. } => None,
    };
    let mut plan = match is_multikey {
        Some(is_multikey) => doc! { "stage": "IXSCAN", "isMultiKey": is_multikey },
        None => doc! { "stage": "COLLSCAN" },
    };
    if needs_sort {
        plan = doc! { "stage": "SORT", "inputStage": plan };
    }
    let mut reply = doc! { "queryPlanner": { "winningPlan": plan } };
    if call.body.get_str("verbosity").is_ok_and(|verbosity| verbosity != "queryPlanner") {
        let returned = i32::try_from(query.all(&state.collections)?.len().min(limit)).expect("few documents");
        let stats = doc! { "nReturned": returned, "totalKeysExamined": returned, "totalDocsExamined": returned };
        reply.insert("executionStats", stats);
    }
    reply.insert("ok", 1.0);
    Ok(reply)
}

pub(crate) fn get_more(call: &Call) -> Result<Document, Failure> {
    call.takes(&["collection", "batchSize"])?;
    let id = integer_in(&call.body, "getMore").unwrap_or(0);
    let size = unsigned(&call.body, "batchSize")?.filter(|size| *size > 0).unwrap_or(usize::MAX);
    let mut state = call.model.state.lock();
    let lost = state.faults.lost_cursor;
    let cursor = state.cursors.remove(&id).filter(|cursor| cursor.term == state.term && cursor.client == call.client);
    let gone = || Failure::new(codes::CURSOR_NOT_FOUND, format!("cursor id {id} not found"));
    if state.happens(lost) {
        return Err(gone());
    }
    let mut cursor = cursor.ok_or_else(gone)?;
    let batch = cursor.batch(&state.collections, size)?;
    let (namespace, is_over) = (cursor.namespace.clone(), cursor.left == 0);
    if !is_over {
        state.cursors.insert(id, cursor);
    }
    let id = if is_over { 0 } else { id };
    Ok(doc! { "cursor": { "nextBatch": batch, "id": id, "ns": namespace }, "ok": 1.0 })
}

pub(crate) fn kill_cursors(call: &Call) -> Result<Document, Failure> {
    let ids = call.body.get_array("cursors").map_err(|_| Failure::new(40_414, "BSON field 'killCursors.cursors' is missing"))?;
    let mut state = call.model.state.lock();
    let (killed, unknown): (Vec<Bson>, Vec<Bson>) =
        ids.iter().cloned().partition(|id| id.as_i64().is_some_and(|id| state.cursors.remove(&id).is_some()));
    let none = Vec::<Bson>::new();
    Ok(
        doc! { "cursorsKilled": killed, "cursorsNotFound": unknown, "cursorsAlive": none.clone(), "cursorsUnknown": none, "ok": 1.0 },
    )
}
