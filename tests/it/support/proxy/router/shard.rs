//! A shard: a mongod, or a replica set whose primary may change.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use mongodb::bson::{Document, doc};

use super::super::errors;
use super::super::upstream::{Upstream, is_ok, whole};

/// Further tries of a read (`kMaxNumRetries` in s/client/shard.h).
const RETRIES: u32 = 3;

/// Maximum time without a primary (`kDefaultFindHostTimeout` in s/client/shard_remote.cpp).
const NO_PRIMARY: Duration = Duration::from_secs(15);

/// Reads, which a mongos repeats. A `getMore` it does not: the cursor is on one member.
const READS: [&str; 6] = ["find", "aggregate", "count", "listCollections", "listIndexes", "collStats"];

/// Codes of a member that is no primary any more, or goes down (`NotPrimaryError` and `ShutdownError` in
/// base/error_codes.yml).
const NO_LONGER_PRIMARY: [i64; 7] = [91, 189, 10_107, 11_600, 11_602, 13_435, 13_436];

/// A shard.
pub(super) struct Shard {
    /// Ports of the members.
    members: Vec<u16>,
    /// Place of the primary among them, as far as is known.
    primary: AtomicUsize,
    /// Connections to the primary that no command uses.
    idle: Mutex<Vec<Upstream>>,
}

impl Shard {
    pub(super) fn new(members: Vec<u16>) -> Self {
        Self { members, primary: AtomicUsize::new(0), idle: Mutex::default() }
    }

    /// Runs a command on the primary. A read that meets the loss of the primary is tried again on the next one. The reply to
    /// other commands is an error then, and the next one is looked for.
    ///
    /// Source: `Shard::runCommandWithFixedRetryAttempts`, `RetryPolicy` in s/client/shard.h: writes without a transaction number
    /// are sent once.
    pub(super) async fn run(&self, command: &Document) -> io::Result<Document> {
        let name = command.keys().next().map_or("", String::as_str);
        let mut retries = if READS.contains(&name) { RETRIES } else { 0 };
        loop {
            let reply = match self.try_once(command).await {
                Ok(reply) if is_ok(&reply) || !NO_LONGER_PRIMARY.contains(&whole(&reply, "code")) => return Ok(reply),
                Ok(reply) => reply,
                Err(cause) if self.members.len() == 1 => return Err(cause),
                Err(cause) => errors::failed(6, "HostUnreachable", &cause.to_string()),
            };
            self.find_primary().await;
            if retries == 0 {
                return Ok(reply);
            }
            retries -= 1;
        }
    }

    async fn try_once(&self, command: &Document) -> io::Result<Document> {
        let member = self.primary.load(Ordering::Relaxed);
        let idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut upstream = match idle {
            Some(upstream) => upstream,
            None => Upstream::connect(self.members[member]).await?,
        };
        let reply = upstream.run(command).await?;
        if self.primary.load(Ordering::Relaxed) == member {
            self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(upstream);
        }
        Ok(reply)
    }

    /// Waits for a member that is the primary.
    async fn find_primary(&self) {
        let begun = Instant::now();
        while begun.elapsed() < NO_PRIMARY {
            for (place, port) in self.members.iter().enumerate() {
                let Ok(mut upstream) = Upstream::connect(*port).await else { continue };
                let hello = upstream.run(&doc! { "hello": 1, "$db": "admin" }).await.unwrap_or_default();
                if hello.get_bool("isWritablePrimary").unwrap_or(false) {
                    self.primary.store(place, Ordering::Relaxed);
                    // The others lead to the last primary, or may be broken.
                    *self.idle.lock().unwrap_or_else(PoisonError::into_inner) = vec![upstream];
                    return;
                }
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }
}
