//! Leases in a collection of the deployment: takes, renews and releases them. [`crate::shell::lock::lease`] defines their
//! documents.

use std::time::Duration;

use bson::{DateTime, Document, doc};

use crate::base::values::count_in;
use crate::core::policy::namespace::Namespace;
use crate::shell::lock::lease;
use crate::shell::lock::moment::{Moment, ServerTime};
use crate::shell::lock::{Attempt, Holder, Occupant};
use crate::shell::server::Deployment;
use crate::shell::server::connect::recognise;
use crate::shell::server::wire::codes;
use crate::shell::server::wire::error::{Result, ServerError};
use crate::shell::server::wire::find::Query;
use crate::shell::server::wire::retry::Retries;
use crate::shell::server::wire::transport::{Patience, ServerCommand};

/// Time limit of one command; after that it is tried again.
const MAX_COMMAND_TIME: Duration = Duration::from_secs(10);

const PATIENCE: Patience = Patience::Limit(MAX_COMMAND_TIME);

/// Age of a reading of the server's clock after which the clock is read again; a lease is shorter by up to this age.
const MAX_READING_AGE: Duration = Duration::from_secs(5);

/// Maximum number of times in a row that a lease may be released between two looks.
const MAX_RELEASED: u32 = 5;

/// A lease that was taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken {
    /// The reading of the clock from which it counts.
    pub time: ServerTime,
    /// Whether its document may have been created just now, because there was none.
    pub is_created: bool,
}

/// The collection of the leases, and the run that takes leases in it.
pub(crate) struct LeaseStore {
    deployment: Deployment,
    namespace: Namespace,
    me: Holder,
}

impl LeaseStore {
    pub(crate) fn new(deployment: &Deployment, namespace: &Namespace, run_id: &str) -> Self {
        Self { deployment: deployment.aside(), namespace: namespace.clone(), me: Holder::me(run_id, deployment.facts.local_time) }
    }

    /// Reads the server's clock.
    ///
    /// Errors: no answer, or an answer without the time.
    pub(crate) async fn clock(&self) -> Result<ServerTime> {
        recognise::clock(&self.deployment, PATIENCE).await
    }

    /// Takes a lease if no other run holds it. An old reading of `clock` is replaced.
    pub(crate) async fn attempt(&self, namespace: &Namespace, clock: &mut Option<ServerTime>) -> Result<Attempt<Taken>> {
        let mut retries = Retries::patient();
        let mut released = 0;
        let mut is_unsure = false;
        loop {
            let cause = match self.take(namespace, clock).await {
                // An attempt whose reply was lost may have created the document.
                Ok(taken) => return Ok(Attempt::Taken(Taken { is_created: taken.is_created || is_unsure, ..taken })),
                Err(cause) => cause,
            };
            is_unsure |= cause.is_reply_lost();
            if cause.has_code(codes::DUPLICATE_KEY) {
                let occupant = self.occupant(namespace).await?;
                let is_free = occupant.expires_at.zip(*clock).is_some_and(|(end, time)| end <= time.now);
                if !is_free || released == MAX_RELEASED {
                    return Ok(Attempt::Held(occupant));
                }
                released += 1;
            } else {
                let Some(wait) = retries.wait(&cause) else { return Err(cause) };
                tokio::time::sleep(wait).await;
            }
        }
    }

    /// Takes a lease that is free. `attempt` retries, with a new reading of the clock.
    async fn take(&self, namespace: &Namespace, clock: &mut Option<ServerTime>) -> Result<Taken> {
        let time = match *clock {
            Some(reading) if reading.asked.elapsed() < MAX_READING_AGE => reading,
            _ => *clock.insert(self.clock().await?),
        };
        let (filter, update) = lease::taking(namespace, &self.me, &time);
        let reply = self.write(filter, update, true, |_| None).await?;
        let is_created = reply.get_array("upserted").is_ok_and(|created| !created.is_empty());
        Ok(Taken { time, is_created })
    }

    /// Returns the run that holds a lease.
    async fn occupant(&self, namespace: &Namespace) -> Result<Occupant> {
        let leases = self.find(doc! { "_id": namespace.to_string() }).await?;
        Ok(lease::occupant(leases.first().unwrap_or(&Document::new())))
    }

    /// Tells whether this run holds all these leases, by their documents.
    pub(crate) async fn are_mine(&self, namespaces: &[Namespace]) -> Result<bool> {
        let mine = self.find(lease::owned(namespaces, &self.me.run_id)).await?;
        Ok(mine.len() == namespaces.len())
    }

    /// Renews leases. Returns the reading of the clock from which they count, and the namespaces whose lease this run does not
    /// hold any more.
    pub(crate) async fn renew(&self, namespaces: &[Namespace]) -> Result<(ServerTime, Vec<Namespace>)> {
        let now = self.clock().await?;
        // The caller tries again at once, with a new reading of the clock.
        let renewed = self.update(namespaces, lease::renewing(&now), |_| None).await?;
        if usize::try_from(renewed).is_ok_and(|renewed| renewed == namespaces.len()) {
            return Ok((now, Vec::new()));
        }
        let mine = self.find(lease::owned(namespaces, &self.me.run_id)).await?;
        let mine: Vec<&str> = mine.iter().filter_map(|lease| lease.get_str("_id").ok()).collect();
        let lost = namespaces.iter().filter(|namespace| !mine.contains(&namespace.to_string().as_str()));
        Ok((now, lost.cloned().collect()))
    }

    /// Releases leases; `are_new` if they cannot be relied on yet.
    pub(crate) async fn release(&self, namespaces: &[Namespace], are_new: bool) -> Result<()> {
        let update = if are_new {
            lease::releasing_new(&self.clock().await?)
        } else {
            // Any time in the past will do, and the clock may have been set back since it was last read.
            lease::releasing(&ServerTime { now: DateTime::from_millis(0), asked: Moment::now() })
        };
        let mut retries = Retries::several();
        self.update(namespaces, update, |cause| retries.wait_unless_silent(cause)).await.map(|_| ())
    }

    /// Changes the leases of these namespaces that belong to this run; returns their number.
    async fn update(
        &self,
        namespaces: &[Namespace],
        update: Document,
        next_wait: impl FnMut(&ServerError) -> Option<Duration>,
    ) -> Result<u64> {
        let reply = self.write(lease::owned(namespaces, &self.me.run_id), update, false, next_wait).await?;
        Ok(count_in(&reply, "n").unwrap_or(0))
    }

    async fn write(
        &self,
        filter: Document,
        update: Document,
        upsert: bool,
        next_wait: impl FnMut(&ServerError) -> Option<Duration>,
    ) -> Result<Document> {
        // A lease is worthless if a fail-over can roll it back.
        let majority = doc! { "w": "majority", "wtimeout": i64::try_from(MAX_COMMAND_TIME.as_millis()).unwrap_or(i64::MAX) };
        let command = doc! {
            "update": &self.namespace.collection,
            "updates": [{ "q": filter, "u": update, "multi": true, "upsert": upsert }],
            "ordered": true,
            "writeConcern": majority,
        };
        let command = ServerCommand::of(&self.namespace.database, &self.deployment.marked(command), PATIENCE)?;
        self.deployment.write(&command, next_wait).await
    }

    async fn find(&self, filter: Document) -> Result<Vec<Document>> {
        Query::find(&self.namespace, filter).time_limit(MAX_COMMAND_TIME).all(&self.deployment).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scripted::{Script, ScriptedReply};

    #[tokio::test(start_paused = true)]
    async fn a_lease_counts_as_created_unless_its_document_was_surely_there() {
        let namespace = Namespace { database: "app".into(), collection: "c".into() };
        let hello = || ScriptedReply::Reply(doc! { "localTime": DateTime::from_millis(1_000) });
        let updated = || ScriptedReply::Reply(doc! { "n": 1, "nModified": 1, "ok": 1.0 });
        let inserted = || ScriptedReply::Reply(doc! { "n": 1, "upserted": [{ "index": 0, "_id": "app.c" }], "ok": 1.0 });
        let failed = |cause| ScriptedReply::Error(cause);
        for (replies, is_created) in [
            (vec![hello(), updated()], false),
            (vec![hello(), inserted()], true),
            (vec![hello(), failed(ServerError::timeout(MAX_COMMAND_TIME)), updated()], true),
            (vec![hello(), failed(ServerError::reported(codes::NOT_WRITABLE_PRIMARY, "not primary", "")), updated()], false),
        ] {
            let script = Script::new(replies);
            let store = LeaseStore::new(&script.deployment(), &namespace, "me");
            let Attempt::Taken(taken) = store.attempt(&namespace, &mut None).await.unwrap() else { panic!("it is free") };
            assert_eq!((taken.is_created, taken.time.now), (is_created, DateTime::from_millis(1_000)));
        }
    }
}
