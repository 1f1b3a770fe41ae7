//! Leases in a collection of the deployment: taken, renewed and given back. What they look like is in [`crate::lock::lease`].

use std::time::Duration;

use bson::{Document, doc};
use futures_util::TryStreamExt;
use mongodb::Collection;
use mongodb::action::Action;
use mongodb::error::{Error, Result};
use mongodb::options::{Acknowledgment, ReadPreference, SelectionCriteria, WriteConcern};

use super::retries::Retries;
use super::{Deployment, answer, connect, error};
use crate::lock::Holder;
use crate::lock::lease::{self, Held, Moment, Reading};
use crate::policy::namespace::Namespace;

/// A command that is not answered for so long is tried again.
const LONGEST_SILENCE: Duration = Duration::from_secs(10);

/// How long the server's clock is gone by without reading it anew; a lease is shorter by as much.
const READING_LASTS: Duration = Duration::from_secs(5);

/// How often in a row a lease may be given back between two looks.
const MOST_RELEASED: u32 = 5;

/// The collection, and who takes leases in it.
pub struct LeaseStore {
    deployment: Deployment,
    collection: Collection<Document>,
    me: Holder,
}

/// What came of trying to take a lease.
#[derive(Debug)]
pub enum Attempt {
    /// It counts from this moment on.
    Taken(Moment),
    Held(Held),
}

impl LeaseStore {
    pub fn new(deployment: &Deployment, namespace: &Namespace, run_id: &str) -> Self {
        Self {
            deployment: deployment.clone(),
            collection: deployment.database(namespace).collection(&namespace.collection),
            me: Holder::me(run_id, deployment.facts.local_time),
        }
    }

    /// Reads the server's clock.
    ///
    /// Errors: the driver's, or the server does not tell the time.
    pub async fn clock(&self) -> Result<Reading> {
        let admin = self.deployment.client.database("admin");
        let asked = Moment::now();
        let hello = answer::within(LONGEST_SILENCE, async move { connect::hello(&admin).await }).await?;
        let server = hello.get_datetime("localTime").map_err(|_| Error::custom("the server does not tell its time"))?;
        Ok(Reading { server: *server, asked })
    }

    /// Takes a lease, if no other run has it. `clock` is read anew where it is old.
    pub async fn attempt(&self, namespace: &Namespace, clock: &mut Option<Reading>) -> Result<Attempt> {
        let mut retries = Retries::default();
        let mut released = 0;
        loop {
            let now = match *clock {
                Some(reading) if reading.asked.elapsed() < READING_LASTS => reading,
                _ => *clock.insert(self.clock().await?),
            };
            let cause = match self.take(namespace, &now).await {
                Ok(()) => return Ok(Attempt::Taken(now.asked)),
                Err(cause) => cause,
            };
            if error::code(&cause) == Some(error::DUPLICATE_KEY) {
                let held = self.held(namespace).await?;
                let is_free = held.expires_at.is_some_and(|end| end <= now.server);
                if !is_free || released == MOST_RELEASED {
                    return Ok(Attempt::Held(held));
                }
                released += 1;
            } else {
                let Some(wait) = retries.wait(&cause) else { return Err(cause) };
                tokio::time::sleep(wait).await;
            }
        }
    }

    async fn take(&self, namespace: &Namespace, now: &Reading) -> Result<()> {
        let (filter, update) = lease::taking(namespace, &self.me, now);
        let (collection, comment) = (self.collection.clone(), self.deployment.comment());
        let taken = async move {
            // Not `update_one`, which the driver sends with a transaction number: not every service takes one, and this can be sent again.
            let update = collection.update_many(filter, update).upsert(true).write_concern(known_to_a_majority());
            update.optional(comment, |update, comment| update.comment(comment)).await
        };
        answer::within(LONGEST_SILENCE, taken).await.map(|_| ())
    }

    /// Who has a lease.
    async fn held(&self, namespace: &Namespace) -> Result<Held> {
        let leases = self.find(doc! { "_id": namespace.to_string() }).await?;
        Ok(Held::read(leases.first().unwrap_or(&Document::new())))
    }

    /// Renews leases; gives the moment from which they count, and those that another run has by now.
    pub async fn renew(&self, namespaces: &[Namespace]) -> Result<(Moment, Vec<Namespace>)> {
        let now = self.clock().await?;
        let renewed = self.update(namespaces, lease::renewing(&now)).await?;
        if usize::try_from(renewed).is_ok_and(|renewed| renewed == namespaces.len()) {
            return Ok((now.asked, Vec::new()));
        }
        let mine = self.find(lease::owned(namespaces, &self.me.run_id)).await?;
        let mine: Vec<&str> = mine.iter().filter_map(|lease| lease.get_str("_id").ok()).collect();
        let lost = namespaces.iter().filter(|namespace| !mine.contains(&namespace.to_string().as_str()));
        Ok((now.asked, lost.cloned().collect()))
    }

    /// Gives leases back.
    pub async fn release(&self, namespaces: &[Namespace]) -> Result<()> {
        // Any time that is past will do.
        let long_past = Reading { server: self.deployment.facts.local_time, asked: Moment::now() };
        self.update(namespaces, lease::releasing(&long_past)).await.map(|_| ())
    }

    /// Changes those of the leases that this run has; gives their number.
    async fn update(&self, namespaces: &[Namespace], update: Document) -> Result<u64> {
        let filter = lease::owned(namespaces, &self.me.run_id);
        let (collection, comment) = (self.collection.clone(), self.deployment.comment());
        let updated = async move {
            let update = collection.update_many(filter, update).write_concern(known_to_a_majority());
            update.optional(comment, |update, comment| update.comment(comment)).await
        };
        Ok(answer::within(LONGEST_SILENCE, updated).await?.matched_count)
    }

    async fn find(&self, filter: Document) -> Result<Vec<Document>> {
        let (collection, comment) = (self.collection.clone(), self.deployment.comment());
        let found = async move {
            let find = collection.find(filter).selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary));
            find.optional(comment, |find, comment| find.comment(comment)).await?.try_collect().await
        };
        answer::within(LONGEST_SILENCE, found).await
    }
}

/// A lease that a fail-over could take back would be none.
fn known_to_a_majority() -> WriteConcern {
    WriteConcern::builder().w(Acknowledgment::Majority).w_timeout(LONGEST_SILENCE).build()
}
