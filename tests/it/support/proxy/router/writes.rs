//! Writes of the router: each statement goes to the shards that it targets, and the replies are added up.

use std::borrow::Cow;
use std::io;

use futures_util::future::try_join_all;
use mongodb::bson::{Bson, Document, doc};
use server_model::compare;

use super::super::errors::write_error;
use super::super::upstream::{documents, is_ok, size, whole};
use super::chunks::{demanded, tenant_of};
use super::{Answer, Asked, Router, Sharded};

/// Effects of the statements of a command so far.
#[derive(Default)]
struct Written {
    n: i64,
    modified: i64,
    upserted: Vec<Document>,
    errors: Vec<Document>,
    concern_error: Option<Bson>,
}

impl Written {
    /// Adds the reply of a shard. `places` has the index in the client's command for each index in the shard's. An error of the
    /// shard's whole command is an error of its statements; of the first one, if their order counts.
    ///
    /// Source: s/write_ops/batch_write_op.cpp (`noteBatchResponse`, `noteBatchError`).
    fn add(&mut self, mut reply: Document, places: &[usize], is_ordered: bool) {
        if !is_ok(&reply) {
            let code = i32::try_from(whole(&reply, "code")).unwrap_or(0);
            let failed = if is_ordered { 1 } else { places.len() };
            for place in places.iter().take(failed) {
                self.refuse(*place, code, reply.get_str("errmsg").unwrap_or_default());
            }
            return;
        }
        self.n += whole(&reply, "n");
        self.modified += whole(&reply, "nModified");
        let placed = |entry: &Document| {
            let index = usize::try_from(whole(entry, "index")).unwrap_or(0);
            let mut entry = entry.clone();
            entry.insert("index", places.get(index).map_or(0, |place| i32::try_from(*place).unwrap_or(0)));
            entry
        };
        self.upserted.extend(documents(&reply, "upserted").map(placed));
        self.errors.extend(documents(&reply, "writeErrors").map(placed));
        self.concern_error = self.concern_error.take().or(reply.remove("writeConcernError"));
    }

    /// Adds an error of a statement that was not sent to any shard.
    fn refuse(&mut self, index: usize, code: i32, why: &str) {
        let mut error = write_error(code, why);
        error.insert("index", i32::try_from(index).unwrap_or(0));
        self.errors.push(error);
    }

    fn reply(mut self, is_update: bool) -> Document {
        let mut reply = doc! { "n": i32::try_from(self.n).unwrap_or(i32::MAX), "ok": 1.0 };
        if is_update {
            reply.insert("nModified", i32::try_from(self.modified).unwrap_or(i32::MAX));
        }
        if !self.upserted.is_empty() {
            reply.insert("upserted", self.upserted);
        }
        if !self.errors.is_empty() {
            self.errors.sort_by_key(|error| whole(error, "index"));
            reply.insert("writeErrors", self.errors);
        }
        if let Some(error) = self.concern_error {
            reply.insert("writeConcernError", error);
        }
        reply
    }
}

/// Bytes of the documents in a command that a shard gets.
///
/// Source: `BSONObjMaxUserSize` in s/write_ops/batch_write_op.cpp (`wouldMakeBatchesTooBig`).
const MAX_COMMAND: usize = 16 * 1024 * 1024;

/// Documents that one command inserts.
struct InsertGroup {
    shard: usize,
    /// Sum of the sizes of the documents.
    bytes: usize,
    /// Their places in the command of the client.
    places: Vec<usize>,
    documents: Vec<Bson>,
}

/// Kind of a statement of an update.
enum Update {
    /// With the paths that they change.
    Operators(Vec<String>),
    Pipeline,
    Replacement(Document),
}

impl Router {
    /// Sends each document to the shard that owns it; in an ordered command those before the first error only.
    ///
    /// Source: `targetInsert` in s/chunk_manager_targeter.cpp, `targetBatch` in s/write_ops/batch_write_op.cpp: consecutive
    /// documents of an ordered command share a command as long as one shard owns them.
    pub(super) async fn insert(&self, asked: &Asked) -> Answer {
        let is_ordered = asked.command.get_bool("ordered").unwrap_or(true);
        let mut written = Written::default();
        let mut groups: Vec<InsertGroup> = Vec::new();
        for (index, document) in documents(&asked.command, "documents").enumerate() {
            let document: &Document = &self.with_tenant(asked, document);
            let shard = match &asked.sharded {
                None => 0,
                Some(sharded) => match sharded.key_of(document) {
                    Some(key) => sharded.shard_of(&key),
                    None => {
                        written.refuse(index, 61, "Shard key cannot contain array values or array descendants.");
                        if is_ordered {
                            break;
                        }
                        continue;
                    }
                },
            };
            let bytes = size(document);
            let has_room = |group: &&mut InsertGroup| group.shard == shard && group.bytes + bytes < MAX_COMMAND;
            let group = match is_ordered {
                true => groups.last_mut().filter(has_room),
                false => groups.iter_mut().find(has_room),
            };
            match group {
                Some(group) => {
                    group.places.push(index);
                    group.documents.push(document.clone().into());
                    group.bytes += bytes;
                }
                None => {
                    groups.push(InsertGroup { shard, bytes, places: vec![index], documents: vec![document.clone().into()] });
                }
            }
        }
        let refused = std::mem::take(&mut written.errors);
        for InsertGroup { shard, places, documents, .. } in groups {
            let command = asked.with("documents", documents);
            written.add(self.run(shard, &command).await?, &places, is_ordered);
            if is_ordered && !written.errors.is_empty() {
                return Ok(written.reply(false));
            }
        }
        written.errors.extend(refused);
        Ok(written.reply(false))
    }

    /// Returns a document with a tenant, if the collections of clients are sharded by one: the documents of the tests have none.
    /// A run's own inserts have a comment, and stay as they are.
    fn with_tenant<'a>(&self, asked: &Asked, document: &'a Document) -> Cow<'a, Document> {
        let has_tenants = asked.sharded.as_ref().is_some_and(|sharded| sharded.key.contains_key("tenant"));
        let is_given = has_tenants && self.shards_new() && !asked.command.contains_key("comment");
        match tenant_of(document) {
            Some(tenant) if is_given && !document.contains_key("tenant") && size(document) < MAX_COMMAND - 100 => {
                let mut document = document.clone();
                document.insert("tenant", tenant);
                Cow::Owned(document)
            }
            _ => Cow::Borrowed(document),
        }
    }

    /// Runs each update on the shards that it targets.
    pub(super) async fn update(&self, asked: &Asked) -> Answer {
        let mut written = Written::default();
        for (index, statement) in documents(&asked.command, "updates").enumerate() {
            let shards = match &asked.sharded {
                None => Ok(vec![0]),
                Some(sharded) => target_update(sharded, statement),
            };
            let refusal = match shards {
                Ok(shards) => {
                    let refusal = self.changed_key(asked, statement, &shards).await?;
                    if refusal.is_none() {
                        self.send(asked, "updates", statement, &shards, index, &mut written).await?;
                    }
                    refusal
                }
                Err(refusal) => Some(refusal),
            };
            if let Some((code, why)) = refusal {
                written.refuse(index, code, why);
            }
            if asked.command.get_bool("ordered").unwrap_or(true) && !written.errors.is_empty() {
                break;
            }
        }
        Ok(written.reply(true))
    }

    /// Runs each delete on the shards that it targets.
    pub(super) async fn delete(&self, asked: &Asked) -> Answer {
        let mut written = Written::default();
        for (index, statement) in documents(&asked.command, "deletes").enumerate() {
            let filter = statement.get_document("q").cloned().unwrap_or_default();
            let shards = match &asked.sharded {
                None => Ok(vec![0]),
                Some(sharded) => target_delete(sharded, statement, &filter),
            };
            match shards {
                Ok(mut shards) => {
                    if let Some(to) = self.next_move(asked, &shards) {
                        // The shard that gets the chunk has carried out the statement by then, and is not asked again.
                        shards.retain(|shard| *shard != to);
                        self.send(asked, "deletes", statement, &[to], index, &mut written).await?;
                        self.move_chunk(asked).await?;
                    }
                    self.send(asked, "deletes", statement, &shards, index, &mut written).await?;
                }
                Err((code, why)) => written.refuse(index, code, why),
            }
            if asked.command.get_bool("ordered").unwrap_or(true) && !written.errors.is_empty() {
                break;
            }
        }
        Ok(written.reply(false))
    }

    /// Sends a command with one statement of another to some shards at the same time.
    ///
    /// Source: s/write_ops/batch_write_exec.cpp (`MultiStatementTransactionRequestsSender`), s/async_requests_sender.h.
    async fn send(
        &self,
        asked: &Asked,
        list: &str,
        statement: &Document,
        shards: &[usize],
        index: usize,
        written: &mut Written,
    ) -> io::Result<()> {
        let command = &asked.with(list, vec![Bson::Document(statement.clone())]);
        let _unmoved = self.moving.read().await;
        let sent = shards.iter().map(async |shard| self.run(*shard, &self.of_owned(asked, *shard, command)).await);
        for reply in try_join_all(sent).await? {
            written.add(reply, &[index], true);
        }
        Ok(())
    }

    /// Returns the error of an update whose operators name a path of the shard key, or of a replacement that would change the
    /// key of its document.
    ///
    /// Source: `_checkRestrictionsOnUpdatingShardKeyAreNotViolated` and `_checkIfWritingToOrphanOrWouldChangeShardKey` in
    /// db/exec/update_stage.cpp.
    async fn changed_key(
        &self,
        asked: &Asked,
        statement: &Document,
        shards: &[usize],
    ) -> io::Result<Option<(i32, &'static str)>> {
        let Some(sharded) = &asked.sharded else { return Ok(None) };
        let (with, shard) = match (kind(statement), shards) {
            // No test sets one to the value that it has.
            (Update::Operators(paths), _) if paths.iter().any(|path| sharded.key.contains_key(path)) => {
                return Ok(Some((31_025, "Shard key update is not allowed without specifying the full shard key in the query")));
            }
            (Update::Replacement(with), [shard]) => (with, shard),
            _ => return Ok(None),
        };
        let filter = statement.get_document("q").cloned().unwrap_or_default();
        let mut find = doc! { "find": &asked.collection, "filter": &filter, "limit": 1, "$db": &asked.database };
        find.extend(statement.get("collation").map(|collation| ("collation".to_owned(), collation.clone())));
        let found = self.gather(*shard, &find).await?.unwrap_or_default();
        let before = found.first().and_then(Bson::as_document).and_then(|found| sharded.key_of(found));
        let is_equal = |(before, after): (&Bson, &Bson)| compare(before, after).is_eq();
        let is_changed =
            before.is_some_and(|before| !sharded.key_of(&with).is_some_and(|after| before.iter().zip(&after).all(is_equal)));
        Ok(match sharded.key_of_query(&filter) {
            _ if !is_changed => None,
            None => Some((31_025, "Shard key update is not allowed without specifying the full shard key in the query")),
            Some(_) => {
                Some((20, "Must run update to shard key field in a multi-statement transaction or with retryWrites: true."))
            }
        })
    }
}

impl Asked {
    /// Returns the command with another list in the place of its own, which is not copied: it may be long, and parts of it many.
    fn with(&self, list: &str, items: Vec<Bson>) -> Document {
        let others = self.command.iter().filter(|(key, _)| *key != list);
        others.map(|(key, value)| (key.clone(), value.clone())).chain([(list.to_owned(), items.into())]).collect()
    }
}

fn kind(statement: &Document) -> Update {
    match statement.get("u") {
        Some(Bson::Document(with)) if with.keys().next().is_some_and(|name| name.starts_with('$')) => {
            Update::Operators(with.values().filter_map(Bson::as_document).flat_map(Document::keys).cloned().collect())
        }
        Some(Bson::Document(with)) => Update::Replacement(with.clone()),
        _ => Update::Pipeline,
    }
}

/// Returns the shards of an update, or the error with which it is refused: by the query if that leads to one shard; a replacement
/// otherwise by its own shard key; other updates everywhere, if they are for many documents or name an `_id`.
///
/// Source: `targetUpdate` in s/chunk_manager_targeter.cpp.
fn target_update(sharded: &Sharded, statement: &Document) -> Result<Vec<usize>, (i32, &'static str)> {
    let filter = statement.get_document("q").cloned().unwrap_or_default();
    if sharded.is_collated(statement) {
        return Err((61, "Failed to target by query :: could not extract exact shard key: the collation is not simple"));
    }
    if statement.get_bool("upsert").unwrap_or(false) {
        let key =
            sharded.key_of_query(&filter).ok_or((61, "Failed to target upsert by query :: could not extract exact shard key"))?;
        return Ok(vec![sharded.shard_of(&key)]);
    }
    let shards = sharded.shards_of(&filter);
    if shards.len() == 1 {
        return Ok(shards);
    }
    if let Update::Replacement(with) = kind(statement) {
        let why = "Failed to target update by replacement document :: could not extract exact shard key";
        return Ok(vec![sharded.shard_of(&sharded.key_of(&with).ok_or((61, why))?)]);
    }
    let is_multi = statement.get_bool("multi").unwrap_or(false);
    if !is_multi && !is_exact_id(&filter) {
        return Err((
            72,
            "A {multi:false} update on a sharded collection must contain an exact match on _id or target a single shard",
        ));
    }
    Ok(shards)
}

/// Returns the shards of a delete, or the error with which it is refused.
///
/// Source: `targetDelete`, `targetShardKey` and `isExactIdQuery` in s/chunk_manager_targeter.cpp (6.0): under a collation only a
/// key without text leads to one shard, and only an `_id` without text is exact, unless the collation is the collection's.
fn target_delete(sharded: &Sharded, statement: &Document, filter: &Document) -> Result<Vec<usize>, (i32, &'static str)> {
    let is_collated = sharded.is_collated(statement);
    if let Some(key) = sharded.key_of_query(filter).filter(|key| !(is_collated && key.iter().any(is_compared_by_collation))) {
        return Ok(vec![sharded.shard_of(&key)]);
    }
    let is_default = statement.get_document("collation").ok().is_none_or(|asked| Some(asked) == sharded.collation.as_ref());
    let is_plain_id = |ids: &Vec<Bson>| is_default || !ids.iter().any(is_compared_by_collation);
    if whole(statement, "limit") == 1 && !(is_exact_id(filter) && demanded(filter, "_id").as_ref().is_some_and(is_plain_id)) {
        return Err((61, "A single delete on a sharded collection must contain an exact match on _id or contain the shard key"));
    }
    Ok(if is_collated { sharded.shards() } else { sharded.shards_of(filter) })
}

/// Source: `isCollatableType` in db/query/collation/collation_index_key.cpp.
fn is_compared_by_collation(value: &Bson) -> bool {
    matches!(value, Bson::String(_) | Bson::Document(_) | Bson::Array(_))
}

fn is_exact_id(filter: &Document) -> bool {
    demanded(filter, "_id").is_some_and(|ids| ids.len() == 1)
}
