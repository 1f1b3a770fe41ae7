//! Chunks that move from shard to shard while a delete is on its way.
//!
//! Source: s/write_ops/write_op.cpp (`_successfulShardSet`), s/write_ops/batch_write_exec.cpp. The shard that a chunk leaves
//! answers that the router's view is out of date. The router sends the statement again to shards that have not carried it out.

use std::io;
use std::sync::{Arc, PoisonError};

use mongodb::bson::{Bson, doc};

use super::{Asked, Router};

/// A move of a chunk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Move {
    /// Place of the chunk in the order of the chunks.
    pub chunk: usize,
    /// The shard that gets it.
    pub to: usize,
}

impl Router {
    /// Lets a chunk move in the middle of the next delete from its collection that goes to several shards.
    pub(crate) fn move_in_next_delete(&self, namespace: &str, moved: Move) {
        self.moves.lock().unwrap_or_else(PoisonError::into_inner).push((namespace.to_owned(), moved));
    }

    /// Returns the shard that gets a chunk while these shards carry out a delete.
    pub(super) fn next_move(&self, asked: &Asked, shards: &[usize]) -> Option<usize> {
        let moves = self.moves.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, next) = moves.iter().find(|(namespace, _)| *namespace == asked.namespace())?;
        (shards.len() > 1 && shards.contains(&next.to)).then_some(next.to)
    }

    /// Moves the chunk whose turn it is, with its documents.
    pub(super) async fn move_chunk(&self, asked: &Asked) -> io::Result<()> {
        let next = {
            let mut moves = self.moves.lock().unwrap_or_else(PoisonError::into_inner);
            let place = moves.iter().position(|(namespace, _)| *namespace == asked.namespace());
            place.map(|place| moves.remove(place).1)
        };
        let (Some(Move { chunk, to }), Some(sharded)) = (next, &asked.sharded) else { return Ok(()) };
        // As in a migration, a delete comes before or after the move of its document, and brings no document back.
        let _moving = self.moving.write().await;
        let from = sharded.chunks[chunk].1;
        let (collection, database) = (&asked.collection, &asked.database);
        let found = self.gather(from, &doc! { "find": collection, "$db": database }).await?.unwrap_or_default();
        let of_chunk = |document: &&Bson| {
            let key = document.as_document().and_then(|document| sharded.key_of(document));
            key.is_some_and(|key| sharded.chunk_of(&key) == chunk)
        };
        let moved: Vec<Bson> = found.iter().filter(of_chunk).cloned().collect();
        let ids: Vec<Bson> = moved.iter().filter_map(|document| document.as_document()?.get("_id").cloned()).collect();
        self.run(to, &doc! { "insert": collection, "documents": moved, "$db": database }).await?;
        let leave = doc! { "q": { "_id": { "$in": ids } }, "limit": 0 };
        self.run(from, &doc! { "delete": collection, "deletes": [leave], "$db": database }).await?;
        let mut collections = self.collections.lock().unwrap_or_else(PoisonError::into_inner);
        // Another chunk may have moved since the delete was asked for.
        let mut after = collections.get(&asked.namespace()).map_or_else(|| (**sharded).clone(), |now| (**now).clone());
        after.chunks[chunk].1 = to;
        collections.insert(asked.namespace(), Arc::new(after));
        Ok(())
    }
}
