//! Everything that talks to MongoDB. Reading is open to every command; deleting needs a [`grant::DeleteGrant`].

pub mod answer;
pub mod audit;
pub mod connect;
pub mod count;
pub mod delete;
pub mod error;
pub mod exact;
pub mod grant;
pub mod history;
pub mod insert;
pub mod inspect;
pub mod lag;
pub mod lease;
pub mod metadata;
pub mod meter;
pub mod native;
pub mod overload;
pub mod privileges;
pub mod retries;
pub mod sample;
pub mod shard_key;
pub mod uri;

use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, Document, doc};
use mongodb::options::ReadPreference;
use mongodb::{Client, Database};
use tracing::debug;

use crate::facts::ServerFacts;
use crate::policy::namespace::Namespace;
use meter::Meter;

/// How long the end of a run waits for the server to be told.
const CLOSE_LIMIT: Duration = Duration::from_secs(5);

/// How a run reads what it does not delete by.
#[derive(Debug, Clone)]
pub struct Reading {
    pub preference: ReadPreference,
    /// How long the server may work on one query; `None`: as long as it takes.
    pub most: Option<Duration>,
}

/// A guard that counts on a secondary would compare with what the primary was.
impl Default for Reading {
    fn default() -> Self {
        Self { preference: ReadPreference::Primary, most: None }
    }
}

/// One connection to one deployment, for one run.
#[derive(Clone)]
pub struct Deployment {
    pub client: Client,
    pub facts: ServerFacts,
    /// What every command carries, so that the server's log and profiler name the run.
    pub comment: String,
    /// Write concern of every delete: the connection string's, or majority.
    pub write_concern: Document,
    /// How long one command of a sweep may stay unanswered.
    pub patience: Duration,
    /// How counts and samples are read.
    pub reading: Reading,
    /// For services that bill each request.
    pub meter: Option<Arc<Meter>>,
}

impl Deployment {
    pub fn database(&self, namespace: &Namespace) -> Database {
        self.client.database(&namespace.database)
    }

    /// Says why the deployment cannot be reached any more, after waiting for it; `None` where it can.
    pub async fn unreachable(&self) -> Option<String> {
        let admin = self.client.database("admin");
        let ping = answer::within(self.patience, async move { admin.run_command(doc! { "ping": 1 }).await }).await;
        ping.err().filter(error::is_unreachable).map(|cause| error::explain(&cause))
    }

    /// Ends the sessions on the server. That it cannot is no trouble of the run.
    pub async fn close(self) {
        if tokio::time::timeout(CLOSE_LIMIT, self.client.shutdown()).await.is_err() {
            debug!("the connection did not close in time");
        }
    }

    /// The command with the run's comment, where the server takes one.
    pub fn marked(&self, mut command: Document) -> Document {
        if let Some(comment) = self.comment() {
            command.insert("comment", comment);
        }
        command
    }

    /// The comment for commands, where the server takes one.
    pub fn comment(&self) -> Option<Bson> {
        self.facts.capabilities.comments.then(|| Bson::from(self.comment.clone()))
    }
}
