//! A mongos in front of several mongods, as mongos 6.0 routes; the documents, and what commands do to them, are the mongods' own.
//!
//! Played: inserts, updates, deletes, finds, aggregations, counts, cursors, statistics, explain and definitions of sharded and
//! unsharded collections. So are orphans, the round trips to the shards, a chunk that moves in the middle of a delete, and
//! shards that fail over.
//! Not played: other moves of chunks, stale versions, two fields of one name in a document, and a cursor that is closed before
//! its end: all documents of a query are read at once.

mod chunks;
mod definitions;
mod moves;
mod reads;
mod shard;
mod stats;
mod writes;

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mongodb::bson::{Bson, DateTime, Document, doc};
use tokio::sync::RwLock;

pub(crate) use chunks::Sharded;
pub(crate) use moves::Move;

use self::shard::Shard;
use super::upstream::{is_ok, size, whole};
use super::{Call, errors};

/// The router and what it knows of the cluster. The first shard is the primary shard of every database and has the database
/// `config`.
pub(crate) struct Router {
    shards: Vec<Shard>,
    /// Sharded collections by their namespaces.
    collections: Mutex<HashMap<String, Arc<Sharded>>>,
    /// Documents of each cursor that are yet to be fetched.
    cursors: Mutex<BTreeMap<i64, Vec<Bson>>>,
    is_config_hidden: AtomicBool,
    /// How collections are sharded that clients make; `None` if they are not.
    of_new: Mutex<Option<Sharded>>,
    /// Moves that are yet to come, with the namespaces of their collections.
    moves: Mutex<Vec<(String, Move)>>,
    /// Held by each write while shards carry it out, and by a chunk that moves: no document is changed between its two shards.
    moving: RwLock<()>,
    /// Whether shards have documents of chunks that they do not own.
    has_orphans: AtomicBool,
    /// Milliseconds by which its clock is ahead of those of the shards.
    ahead: AtomicI64,
    trips: Mutex<Vec<Trip>>,
}

/// A command that a shard answered.
#[derive(Debug, Clone)]
pub(crate) struct Trip {
    pub shard: usize,
    /// Command and collection, such as `delete c`.
    pub kind: String,
    /// The number of documents in the reply to a write or a count.
    pub n: i64,
}

/// Fields of `hello` that only members of a set have.
const OF_SETS: [&str; 10] = [
    "hosts",
    "setName",
    "setVersion",
    "secondary",
    "primary",
    "me",
    "electionId",
    "lastWrite",
    "lastCommittedOpTime",
    "topologyVersion",
];

/// Bytes of documents in a reply.
///
/// Source: `FindCommon::kMaxBytesToReturnToClientAtOnce` in db/query/find_common.h, which s/query/cluster_find.cpp obeys.
const MAX_REPLY: usize = 16 * 1024 * 1024;

/// The end of a command: a reply that the client gets, or a broken connection to a shard.
type Answer = io::Result<Document>;

impl Router {
    /// Creates a router. Each shard has the ports of its members; the first shard is one mongod.
    pub(crate) fn new(shards: impl IntoIterator<Item = Vec<u16>>) -> Arc<Self> {
        let shards = shards.into_iter().map(Shard::new).collect();
        let (collections, cursors, moves) = (Mutex::default(), Mutex::default(), Mutex::default());
        let (is_config_hidden, of_new) = (AtomicBool::new(false), Mutex::default());
        let (moving, has_orphans, ahead, trips) =
            (RwLock::default(), AtomicBool::new(false), AtomicI64::new(0), Mutex::default());
        Arc::new(Self { shards, collections, cursors, is_config_hidden, of_new, moves, moving, has_orphans, ahead, trips })
    }

    /// Sets the clock of the router so many milliseconds ahead of those of the shards.
    pub(crate) fn set_ahead(&self, millis: i64) {
        self.ahead.store(millis, Ordering::Relaxed);
    }

    /// Lets reads and deletes leave out the orphans that a test puts on the shards.
    pub(crate) fn expect_orphans(&self) {
        self.has_orphans.store(true, Ordering::Relaxed);
    }

    /// Returns the commands on a collection that shards have answered since the last call, in order.
    pub(crate) fn take_trips(&self, collection: &str) -> Vec<Trip> {
        let taken = std::mem::take(&mut *self.trips.lock().unwrap_or_else(PoisonError::into_inner));
        taken.into_iter().filter(|trip| trip.kind.ends_with(&format!(" {collection}"))).collect()
    }

    fn note(&self, shard: usize, command: &Document, reply: &Document) {
        let name = command.keys().next().map_or("", String::as_str);
        let collection = command.get_str(name).or_else(|_| command.get_str("collection")).unwrap_or_default();
        let trip = Trip { shard, kind: format!("{name} {collection}"), n: whole(reply, "n") };
        self.trips.lock().unwrap_or_else(PoisonError::into_inner).push(trip);
    }

    /// Shards a collection from now on.
    pub(crate) fn shard(&self, namespace: &str, sharded: Sharded) {
        let mut collections = self.collections.lock().unwrap_or_else(PoisonError::into_inner);
        collections.insert(namespace.to_owned(), Arc::new(sharded));
    }

    /// Refuses the database `config` to every user, as a user without a role there sees it.
    pub(crate) fn hide_config(&self) {
        self.is_config_hidden.store(true, Ordering::Relaxed);
    }

    pub(super) async fn answer(&self, call: &mut Call<'_>) -> Answer {
        // Sessions and transactions are the router's own affair; a standalone mongod refuses the numbers of retryable writes.
        for key in ["lsid", "txnNumber", "$clusterTime"] {
            call.command.remove(key);
        }
        let database = call.command.get_str("$db").unwrap_or_default().to_owned();
        let target = call.command.get_str(&call.name).unwrap_or_default().to_owned();
        if database == "config" && self.is_config_hidden.load(Ordering::Relaxed) {
            let why = format!("not authorized on config to execute command {{ {}: \"{target}\" }}", call.name);
            return Ok(errors::failed(13, "Unauthorized", &why));
        }
        let sharded = match self.sharded(&database, &target) {
            None => self.shard_if_new(&database, &target, call).await?,
            known => known,
        };
        let asked = Asked { database, collection: target, sharded, command: call.command.clone() };
        match call.name.as_str() {
            "insert" => self.insert(&asked).await,
            "update" => self.update(&asked).await,
            "delete" => self.delete(&asked).await,
            "find" => self.find(&asked).await,
            "aggregate" => self.aggregate(&asked).await,
            "count" => self.count(&asked).await,
            "getMore" => Ok(self.get_more(&asked)),
            "killCursors" => Ok(self.kill_cursors(&asked)),
            "drop" if asked.sharded.is_some() => self.drop_sharded(&asked).await,
            "createIndexes" if asked.sharded.is_some() => self.create_indexes(&asked).await,
            "dropIndexes" | "collMod" if asked.sharded.is_some() => self.on_all_shards(&asked).await,
            // The second by cluster_fsync_cmd.cpp.
            "dropDatabase" | "fsync" => self.on_all_shards(&asked).await,
            // The collection was made when it was sharded.
            "create" if asked.sharded.is_some() => Ok(doc! { "ok": 1.0 }),
            // They go to the primary shard, and to the shard with the lowest chunk (cluster_list_collections_cmd.cpp,
            // cluster_list_indexes_cmd.cpp).
            "listCollections" | "listIndexes" => match self.gather(0, &asked.command).await? {
                Ok(found) => Ok(self.opened(&asked, found, None)),
                Err(refusal) => Ok(refusal),
            },
            "collStats" => self.coll_stats(&asked).await,
            "explain" => self.explain(&asked).await,
            "hello" | "isMaster" | "ismaster" => {
                // Source: MongoDB manual, "hello", "Sharded Instances" and "Replica Sets": the latter's fields are the set's own.
                let mut reply = call.forward().await?;
                for of_set in OF_SETS {
                    reply.remove(of_set);
                }
                if let Ok(time) = reply.get_datetime("localTime") {
                    let time = time.timestamp_millis() + self.ahead.load(Ordering::Relaxed);
                    reply.insert("localTime", DateTime::from_millis(time));
                }
                reply.insert("msg", "isdbgrid");
                Ok(reply)
            }
            // A mongos has no TTL monitor, and so no parameter of it.
            "getParameter" => Ok(errors::failed(72, "InvalidOptions", "no option found to get")),
            _ => call.forward().await,
        }
    }

    fn sharded(&self, database: &str, collection: &str) -> Option<Arc<Sharded>> {
        let collections = self.collections.lock().unwrap_or_else(PoisonError::into_inner);
        collections.get(&format!("{database}.{collection}")).cloned()
    }

    /// Runs a command on a shard.
    async fn run(&self, shard: usize, command: &Document) -> Answer {
        let reply = self.shards[shard].run(command).await?;
        self.note(shard, command, &reply);
        Ok(reply)
    }

    /// Runs a command that opens a cursor on a shard, and reads it to its end; the inner error is the shard's refusal. Every part
    /// has the size for which the client asked.
    ///
    /// Source: s/query/async_results_merger.cpp (`scheduleGetMores`, the parameter `batchSize`).
    async fn gather(&self, shard: usize, command: &Document) -> io::Result<Result<Vec<Bson>, Document>> {
        let mut reply = self.run(shard, command).await?;
        let size = Some(whole(command, "batchSize")).filter(|size| *size > 0);
        let mut found = Vec::new();
        loop {
            if !is_ok(&reply) {
                return Ok(Err(reply));
            }
            let cursor = reply.get_document("cursor").map_err(io::Error::other)?;
            let batch = cursor.get_array("firstBatch").or_else(|_| cursor.get_array("nextBatch")).map_err(io::Error::other)?;
            found.extend(batch.iter().cloned());
            let id = whole(cursor, "id");
            if id == 0 {
                return Ok(Ok(found));
            }
            // Listings have namespaces with a dot of their own.
            let (database, collection) = cursor.get_str("ns").ok().and_then(|ns| ns.split_once('.')).unwrap_or_default();
            let mut more = doc! { "getMore": id, "collection": collection, "$db": database };
            more.extend(size.map(|size| ("batchSize".to_owned(), size.into())));
            reply = self.run(shard, &more).await?;
        }
    }

    /// Returns the first part of what a query found; the rest is kept for `getMore`.
    fn opened(&self, asked: &Asked, found: Vec<Bson>, batch_size: Option<i64>) -> Document {
        // The first batch has 101 documents unless the client says otherwise.
        let (batch, id) = self.keep(found, batch_size.unwrap_or(101));
        let command = asked.command.keys().next().map(String::as_str).unwrap_or_default();
        // A command about a whole database has no collection.
        let ns = match asked.collection.as_str() {
            "" => format!("{}.$cmd.{command}", asked.database),
            collection => format!("{}.{collection}", asked.database),
        };
        doc! { "cursor": { "id": id, "ns": ns, "firstBatch": batch }, "ok": 1.0 }
    }

    /// Splits the next batch off, and keeps the rest under a new number, which is 0 if there is none.
    fn keep(&self, mut found: Vec<Bson>, batch_size: i64) -> (Vec<Bson>, i64) {
        let most = usize::try_from(batch_size).unwrap_or(usize::MAX).min(found.len());
        let mut bytes = 0;
        let mut is_beyond = |document: &Bson| {
            bytes += document.as_document().map_or(0, size);
            bytes > MAX_REPLY
        };
        // A document goes even if it fills a reply by itself.
        let fitting = found[..most].iter().position(&mut is_beyond).unwrap_or(most).max(1.min(most));
        let rest = found.split_off(fitting);
        if rest.is_empty() {
            return (found, 0);
        }
        let mut cursors = self.cursors.lock().unwrap_or_else(PoisonError::into_inner);
        let id = cursors.keys().next_back().map_or(1 << 40, |last| last + 1);
        cursors.insert(id, rest);
        (found, id)
    }

    fn get_more(&self, asked: &Asked) -> Document {
        let id = whole(&asked.command, "getMore");
        let found = self.cursors.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        let Some(found) = found else {
            return errors::failed(43, "CursorNotFound", &format!("cursor id {id} not found"));
        };
        let size = asked.command.get("batchSize").map_or(i64::MAX, |_| whole(&asked.command, "batchSize"));
        let (batch, id) = self.keep(found, size);
        let collection = asked.command.get_str("collection").unwrap_or_default();
        doc! { "cursor": { "id": id, "ns": format!("{}.{collection}", asked.database), "nextBatch": batch }, "ok": 1.0 }
    }

    fn kill_cursors(&self, asked: &Asked) -> Document {
        let ids = asked.command.get_array("cursors").cloned().unwrap_or_default();
        let mut cursors = self.cursors.lock().unwrap_or_else(PoisonError::into_inner);
        let (killed, missing): (Vec<Bson>, Vec<Bson>) =
            ids.into_iter().partition(|id| id.as_i64().is_some_and(|id| cursors.remove(&id).is_some()));
        doc! { "cursorsKilled": killed, "cursorsNotFound": missing, "cursorsAlive": [], "cursorsUnknown": [], "ok": 1.0 }
    }
}

/// A command with its target.
struct Asked {
    database: String,
    collection: String,
    /// `None` if the collection is not sharded.
    sharded: Option<Arc<Sharded>>,
    command: Document,
}

impl Asked {
    fn namespace(&self) -> String {
        format!("{}.{}", self.database, self.collection)
    }

    /// Returns the shards to which a query goes: the primary shard of an unsharded collection.
    fn shards_of(&self, filter: &Document) -> Vec<usize> {
        match &self.sharded {
            None => vec![0],
            Some(sharded) if sharded.is_collated(&self.command) => sharded.shards(),
            Some(sharded) => sharded.shards_of(filter),
        }
    }
}

/// Returns the name of a shard in replies.
fn shard_name(shard: usize) -> String {
    format!("shard{shard}")
}
