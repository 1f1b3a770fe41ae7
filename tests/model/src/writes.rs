//! Deletes and inserts.

use std::sync::Arc;

use bson::oid::ObjectId;
use bson::{Bson, Document, Timestamp, doc};

use crate::call::Call;
use crate::codes;
use crate::collection::{Progress, Scan};
use crate::failure::Failure;
use crate::filter::Filter;
use crate::observer::{Deletion, Insertion, View};
use crate::plan;
use crate::value::integer;

/// Runs statements one after another and returns the reply with their sum, in the order of the server's fields.
pub(crate) struct Statements {
    pub n: i64,
    errors: Vec<Document>,
    is_ordered: bool,
}

impl Statements {
    pub(crate) fn new(call: &Call) -> Self {
        Self { n: 0, errors: Vec::new(), is_ordered: call.body.get_bool("ordered").unwrap_or(true) }
    }

    /// Takes the result of a statement; returns whether to go on.
    ///
    /// Errors: an interruption, which ends the whole command.
    pub(crate) fn add(&mut self, index: usize, result: Result<i64, Failure>) -> Result<bool, Failure> {
        const INTERRUPTIONS: [i32; 3] =
            [codes::INTERRUPTED_DUE_TO_REPL_STATE_CHANGE, codes::INTERRUPTED_AT_SHUTDOWN, codes::MAX_TIME_MS_EXPIRED];
        match result {
            Ok(n) => {
                self.n += n;
                Ok(true)
            }
            // Source: mongo `src/mongo/db/ops/write_ops_exec.cpp`, handleError.
            Err(failure) if INTERRUPTIONS.contains(&failure.code) => Err(failure),
            Err(failure) => {
                self.errors.push(failure.of_statement(index));
                Ok(!self.is_ordered)
            }
        }
    }

    /// Returns `n` and the errors.
    pub(crate) fn reply(self) -> Document {
        let mut reply = doc! { "n": i32::try_from(self.n).expect("few documents") };
        if !self.errors.is_empty() {
            reply.insert("writeErrors", self.errors);
        }
        reply
    }
}

pub(crate) async fn delete(call: &Call) -> Result<Document, Failure> {
    call.takes(&["deletes", "ordered", "let", "bypassDocumentValidation", "collectionUUID"])?;
    let namespace = call.namespace()?;
    let statements = list(call, "deletes")?;
    let mut done = Statements::new(call);
    for (index, statement) in statements.iter().enumerate() {
        if let Some(unknown) = statement.keys().find(|key| !["q", "limit", "hint", "collation"].contains(&key.as_str())) {
            return Err(Failure::new(40_415, format!("BSON field 'delete.deletes.{unknown}' is an unknown field.")));
        }
        let is_limited = match statement.get("limit").and_then(integer) {
            Some(0) => false,
            Some(1) => true,
            Some(_) => return Err(Failure::new(9, "The limit field in delete objects must be 0 or 1.")),
            None => return Err(Failure::new(40_414, "BSON field 'delete.deletes.limit' is missing but a required field")),
        };
        let result = delete_one(call, &namespace, statement, is_limited).await;
        if !done.add(index, result)? {
            break;
        }
    }
    call.confirmed(done.reply()).await
}

/// Carries out one statement: deletes one document after another, between which others read and write.
async fn delete_one(call: &Call, namespace: &str, statement: &Document, is_limited: bool) -> Result<i64, Failure> {
    let query = statement.get_document("q").map_err(|_| Failure::new(40_414, "BSON field 'delete.deletes.q' is missing"))?;
    plan::check_collation(statement.get_document("collation").ok());
    let filter = Filter::new(query, call.now)?;
    let (scan, number) = {
        let state = call.model.state.lock();
        state.check_uuid(&call.body, namespace)?;
        let Some(collection) = state.collections.get(namespace) else {
            return Ok(0);
        };
        (plan::scan(collection, &filter, &[], statement.get("hint"))?.0, collection.number)
    };
    let (mut progress, mut n) = (Progress::default(), 0);
    while let Step::Deleted = step(call, namespace, number, &filter, &scan, &mut progress)? {
        n += 1;
        if is_limited {
            break;
        }
        let (pauses, interrupted) = {
            let mut state = call.model.state.lock();
            let (yields, interrupted) = (state.pace.yields, state.faults.interrupted);
            (state.happens(yields), state.happens(interrupted))
        };
        if interrupted {
            return Err(Failure::new(codes::INTERRUPTED_DUE_TO_REPL_STATE_CHANGE, "operation was interrupted"));
        }
        if pauses {
            call.pause().await;
        }
    }
    Ok(n)
}

enum Step {
    Deleted,
    End,
}

/// Deletes the next document that matches as it is now.
fn step(
    call: &Call,
    namespace: &str,
    number: u64,
    filter: &Filter,
    scan: &Scan,
    progress: &mut Progress,
) -> Result<Step, Failure> {
    let mut state = call.model.state.lock();
    call.check(&state)?;
    loop {
        let collection = state.collections.get(namespace).filter(|collection| collection.number == number);
        let collection = collection.ok_or_else(|| Failure::new(codes::QUERY_PLAN_KILLED, "collection dropped"))?;
        let Some(record) = collection.next(scan, progress) else { return Ok(Step::End) };
        let document = collection.get(record).expect("a document of an index").clone();
        if !filter.matches(&document)? {
            continue;
        }
        let write = state.write(namespace, record, None)?;
        let deletion = Deletion {
            write,
            namespace,
            collection: number,
            document: document.as_document().expect("a document"),
            now: state.now(),
            begun: call.begun,
            client: &call.client,
            comment: call.comment(),
            server: View(&state),
        };
        call.model.observer.deleted(&deletion);
        return Ok(Step::Deleted);
    }
}

pub(crate) async fn insert(call: &Call) -> Result<Document, Failure> {
    call.takes(&["documents", "ordered", "bypassDocumentValidation"])?;
    let namespace = call.namespace()?;
    let mut done = Statements::new(call);
    for (index, document) in list(call, "documents")?.into_iter().enumerate() {
        let result = {
            let mut state = call.model.state.lock();
            call.check(&state)?;
            let mut document = with_times(document, call);
            if !document.contains_key("_id") {
                let mut id = [0; 12];
                id.iter_mut().for_each(|byte| *byte = state.random.u8(..));
                document.insert("_id", ObjectId::from_bytes(id));
            }
            let inserted = state.insert(&namespace, document.clone());
            if let Ok(write) = inserted {
                let (client, now, server) = (&*call.client, state.now(), View(&state));
                let insertion = Insertion { write, namespace: &namespace, document: &document, now, client, server };
                call.model.observer.inserted(&insertion);
            }
            inserted.map(|_| 1)
        };
        if !done.add(index, result)? {
            break;
        }
    }
    call.confirmed(done.reply()).await
}

/// Replaces empty timestamps at the root by the server's time, but in the `_id`.
fn with_times(mut document: Document, call: &Call) -> Document {
    let seconds = u32::try_from(call.now.timestamp_millis() / 1000).expect("a time of this century");
    for (key, value) in document.iter_mut() {
        if key != "_id" && *value == Bson::Timestamp(Timestamp { time: 0, increment: 0 }) {
            *value = Bson::Timestamp(Timestamp { time: seconds, increment: 1 });
        }
    }
    document
}

/// Returns the statements or documents of a write command.
pub(crate) fn list(call: &Call, name: &str) -> Result<Vec<Document>, Failure> {
    let list = call.body.get_array(name).map_err(|_| Failure::new(40_414, format!("BSON field '{name}' is missing")))?;
    if list.is_empty() {
        return Err(Failure::new(16, "Write batch sizes must be between 1 and 100000."));
    }
    Ok(list.iter().filter_map(Bson::as_document).cloned().collect())
}

/// Returns a document that is no longer shared.
pub(crate) fn own(document: &Arc<Bson>) -> Document {
    document.as_document().expect("a document").clone()
}
