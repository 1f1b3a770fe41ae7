//! Commands about the server and its collections, and those that change collections.

use bson::{Bson, DateTime, Document, doc};

use crate::call::Call;
use crate::codes;
use crate::failure::Failure;
use crate::filter::Filter;
use crate::state::State;

/// Name of the replica set.
const SET_NAME: &str = "model";

/// The members, of which the first is the primary.
const MEMBERS: [&str; 3] = ["model-a:27017", "model-b:27017", "model-c:27017"];

/// Carries out a command that is at its end at once.
pub(crate) fn carry_out(call: &Call, name: &str) -> Result<Document, Failure> {
    let mut state = call.model.state.lock();
    let mut reply = match name {
        "hello" | "isMaster" | "ismaster" => hello(&state),
        "ping" => doc! {},
        "buildInfo" | "buildinfo" => doc! { "version": state.release.version(), "maxBsonObjectSize": 16_777_216 },
        "listDatabases" => list_databases(&state),
        "listCollections" => list_collections(call, &state)?,
        "listIndexes" => list_indexes(call, &state)?,
        "collStats" | "collstats" => coll_stats(call, &state)?,
        "connectionStatus" => {
            let none = Vec::<Bson>::new();
            let user = doc! { "authenticatedUsers": none.clone(), "authenticatedUserRoles": none.clone() };
            let mut user = user;
            if call.body.get_bool("showPrivileges").unwrap_or(false) {
                user.insert("authenticatedUserPrivileges", none);
            }
            doc! { "authInfo": user }
        }
        "getParameter" => match call.body.contains_key("ttlMonitorEnabled") {
            true => doc! { "ttlMonitorEnabled": true },
            false => return Err(Failure::new(codes::INVALID_OPTIONS, "no option found to get")),
        },
        "serverStatus" => {
            let mut status =
                doc! { "host": MEMBERS[0], "version": state.release.version(), "process": "mongod", "localTime": state.now() };
            status.extend(state.status.clone());
            status
        }
        "replSetGetConfig" => {
            let members = (0_i32..).zip(MEMBERS).map(|(id, host)| doc! { "_id": id, "host": host });
            doc! { "config": { "_id": SET_NAME, "members": members.collect::<Vec<_>>() } }
        }
        "replSetGetStatus" => status(&state),
        "create" => {
            let namespace = call.namespace()?;
            if state.collections.contains_key(&namespace) {
                return Err(Failure::new(48, format!("Collection {namespace} already exists.")));
            }
            state.collection(&namespace);
            doc! {}
        }
        "drop" => {
            let namespace = call.namespace()?;
            if !state.collections.contains_key(&namespace) {
                return Err(Failure::new(codes::NAMESPACE_NOT_FOUND, "ns not found"));
            }
            let indexes = i32::try_from(state.collection(&namespace).indexes.len()).expect("few indexes");
            state.drop_collection(&namespace);
            doc! { "nIndexesWas": indexes, "ns": namespace }
        }
        "createIndexes" => create_indexes(call, &mut state)?,
        _ => return Err(Failure::new(codes::COMMAND_NOT_FOUND, format!("no such command: '{name}'"))),
    };
    reply.insert("ok", 1.0);
    Ok(reply)
}

fn hello(state: &State) -> Document {
    doc! {
        "isWritablePrimary": true,
        "setName": SET_NAME,
        "setVersion": 1,
        "secondary": false,
        "primary": MEMBERS[0],
        "me": MEMBERS[0],
        "hosts": MEMBERS.as_slice(),
        "maxBsonObjectSize": 16_777_216,
        "maxMessageSizeBytes": 48_000_000,
        "maxWriteBatchSize": 100_000,
        "localTime": state.now(),
        "logicalSessionTimeoutMinutes": 30,
        "minWireVersion": 0,
        "maxWireVersion": state.release.wire_version(),
        "readOnly": false,
    }
}

/// Returns the positions of the members: a secondary has what a majority has.
fn status(state: &State) -> Document {
    let lag = state.committed_at(state.written).map_or(0, |at| {
        i64::try_from(at.saturating_duration_since(tokio::time::Instant::now()).as_millis()).expect("a short time")
    });
    let now = state.now().timestamp_millis();
    let member = |(id, name): (i32, &str)| {
        let is_primary = id == 0;
        let optime = DateTime::from_millis(if is_primary { now } else { now - lag });
        let state = if is_primary { "PRIMARY" } else { "SECONDARY" };
        doc! { "_id": id, "name": name, "health": 1.0, "stateStr": state, "optimeDate": optime }
    };
    doc! { "set": SET_NAME, "members": (0_i32..).zip(MEMBERS).map(member).collect::<Vec<_>>() }
}

fn list_databases(state: &State) -> Document {
    let mut names: Vec<&str> = state.collections.keys().filter_map(|namespace| Some(namespace.split_once('.')?.0)).collect();
    names.dedup();
    doc! { "databases": names.into_iter().map(|name| doc! { "name": name }).collect::<Vec<_>>() }
}

fn first_batch(namespace: String, batch: Vec<Document>) -> Document {
    doc! { "cursor": { "id": 0_i64, "ns": namespace, "firstBatch": batch } }
}

fn list_collections(call: &Call, state: &State) -> Result<Document, Failure> {
    let filter = Filter::new(call.body.get_document("filter").unwrap_or(&Document::new()), call.now)?;
    let prefix = format!("{}.", call.database);
    let mut found = Vec::new();
    let of_database =
        state.collections.iter().filter_map(|(namespace, collection)| Some((namespace.strip_prefix(&prefix)?, collection)));
    for (name, collection) in of_database {
        let by_id = doc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" };
        let info = doc! { "readOnly": false, "uuid": collection.uuid() };
        let entry = Bson::from(doc! { "name": name, "type": "collection", "options": {}, "info": info, "idIndex": by_id });
        if filter.matches(&entry)? {
            found.extend(entry.as_document().cloned());
            call.model.observer.listed(call.comment(), &format!("{prefix}{name}"), collection.number);
        }
    }
    Ok(first_batch(format!("{}.$cmd.listCollections", call.database), found))
}

fn list_indexes(call: &Call, state: &State) -> Result<Document, Failure> {
    let namespace = call.namespace()?;
    let Some(collection) = state.collections.get(&namespace) else {
        return Err(Failure::new(codes::NAMESPACE_NOT_FOUND, format!("ns does not exist: {namespace}")));
    };
    let specs = collection.indexes.iter().map(|index| index.spec.clone()).collect();
    Ok(first_batch(namespace, specs))
}

fn coll_stats(call: &Call, state: &State) -> Result<Document, Failure> {
    let namespace = call.namespace()?;
    let Some(collection) = state.collections.get(&namespace) else {
        return Ok(doc! { "ns": namespace, "size": 0, "count": 0, "storageSize": 0, "nindexes": 0 });
    };
    let bytes = |document: &Document| bson::serialize_to_vec(document).expect("a document").len();
    let size: usize = collection.documents().map(bytes).sum();
    let number = |n: usize| i32::try_from(n).expect("a small number");
    let mut stats = doc! { "ns": namespace, "size": number(size), "count": number(collection.len()) };
    if collection.len() > 0 {
        stats.insert("avgObjSize", number(size / collection.len()));
    }
    stats.extend(doc! { "storageSize": 4096, "nindexes": number(collection.indexes.len()) });
    Ok(stats)
}

fn create_indexes(call: &Call, state: &mut State) -> Result<Document, Failure> {
    let namespace = call.namespace()?;
    let is_new = !state.collections.contains_key(&namespace);
    let collection = state.collection(&namespace);
    let number = |n: usize| i32::try_from(n).expect("few indexes");
    let before = number(collection.indexes.len());
    for spec in call.body.get_array("indexes").into_iter().flatten().filter_map(Bson::as_document) {
        let mut full = doc! { "v": 2 };
        full.extend(spec.clone());
        if collection.index(spec.get_str("name").unwrap_or_default()).is_none() {
            collection.create_index(full)?;
        }
    }
    let after = number(collection.indexes.len());
    let mut reply = doc! { "numIndexesBefore": before, "numIndexesAfter": after };
    match after == before {
        true => reply.insert("note", "all indexes already exist"),
        false => reply.insert("createdCollectionAutomatically", is_new),
    };
    Ok(reply)
}
