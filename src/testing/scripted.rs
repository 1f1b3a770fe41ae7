//! A transport that plays replies from a list, for unit tests.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bson::{Document, RawDocumentBuf, doc};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use crate::core::facts::ServerFacts;
use crate::core::flavor::Flavor;
use crate::shell::server::Deployment;
use crate::shell::server::wire::error::ServerError;
use crate::shell::server::wire::meter::Billing;
use crate::shell::server::wire::transport::{Batches, ServerCommand, Transport};

/// The answer to one request.
pub(crate) enum ScriptedReply {
    Reply(Document),
    /// A reply after this time.
    Late(Duration, Document),
    /// One batch of a cursor.
    Batch(Vec<Document>),
    End,
    Error(ServerError),
    /// No answer ever.
    Silence,
}

/// The answers that are left, and the commands that were sent.
#[derive(Default)]
pub(crate) struct Script {
    answers: Mutex<VecDeque<ScriptedReply>>,
    sent: Mutex<Vec<ServerCommand>>,
}

impl Script {
    pub(crate) fn new(answers: impl IntoIterator<Item = ScriptedReply>) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers.into_iter().collect()), sent: Mutex::default() })
    }

    /// Adds further answers.
    pub(crate) fn then(&self, answers: impl IntoIterator<Item = ScriptedReply>) {
        self.answers.lock().extend(answers);
    }

    /// Returns the bodies of the commands that were sent.
    pub(crate) fn sent(&self) -> Vec<Document> {
        self.sent.lock().iter().map(|command| Document::try_from(&*command.body).unwrap()).collect()
    }

    fn answer(&self) -> ScriptedReply {
        self.answers.lock().pop_front().unwrap_or_else(|| ScriptedReply::Error(ServerError::other("the script is over")))
    }

    /// Returns a deployment of MongoDB 7.0 that answers from the script.
    pub(crate) fn deployment(self: &Arc<Self>) -> Deployment {
        let facts = ServerFacts::made_up(Flavor::MongoDb, "7.0.0", 21);
        Deployment::over(Arc::new(self.clone()), facts, "sweeper test".into())
    }

    /// Returns a deployment that bills its requests. The answer to each request is followed by that to the question what it has
    /// cost.
    pub(crate) fn billed(self: &Arc<Self>) -> Deployment {
        let billing = Billing::new(Arc::new(self.clone()), Arc::new(self.clone()));
        self.deployment().billed_by(billing)
    }
}

/// Returns the answer to the question what a request has cost.
pub(crate) fn cost(units: f64) -> ScriptedReply {
    ScriptedReply::Reply(doc! { "RequestCharge": units, "ok": 1.0 })
}

impl Transport for Arc<Script> {
    fn run(&self, command: ServerCommand) -> BoxFuture<'_, Result<Document, ServerError>> {
        Box::pin(async move {
            self.sent.lock().push(command);
            match self.answer() {
                ScriptedReply::Reply(reply) => Ok(reply),
                ScriptedReply::Late(time, reply) => {
                    tokio::time::sleep(time).await;
                    Ok(reply)
                }
                ScriptedReply::Error(cause) => Err(cause),
                ScriptedReply::Silence => std::future::pending().await,
                ScriptedReply::Batch(_) | ScriptedReply::End => panic!("the script has a batch where a command is sent"),
            }
        })
    }

    fn open(&self, command: ServerCommand) -> BoxFuture<'_, Result<Box<dyn Batches>, ServerError>> {
        Box::pin(async move {
            self.sent.lock().push(command);
            Ok(Box::new(self.clone()) as Box<dyn Batches>)
        })
    }
}

impl Batches for Arc<Script> {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Vec<RawDocumentBuf>>, ServerError>> {
        Box::pin(async {
            match self.answer() {
                ScriptedReply::Batch(batch) => {
                    Ok(Some(batch.iter().map(|document| RawDocumentBuf::try_from(document).unwrap()).collect()))
                }
                ScriptedReply::End => Ok(None),
                ScriptedReply::Error(cause) => Err(cause),
                ScriptedReply::Silence => std::future::pending().await,
                ScriptedReply::Reply(_) | ScriptedReply::Late(..) => panic!("the script has a reply where a batch is fetched"),
            }
        })
    }
}
