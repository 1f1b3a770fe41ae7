//! A transport that plays replies from a list, for unit tests.

use std::collections::VecDeque;
use std::sync::Arc;

use bson::{DateTime, Document, RawDocumentBuf, doc};
use futures_util::future::BoxFuture;
use parking_lot::Mutex;

use super::error::ServerError;
use super::transport::{Batches, Command, Transport};
use super::{Deployment, ReadOptions, timeout};
use crate::facts::{ServerFacts, Topology};
use crate::flavor::Flavor;

/// The answer to one request.
pub(crate) enum Answer {
    Reply(Document),
    /// One batch of a cursor.
    Batch(Vec<Document>),
    End,
    Error(ServerError),
}

/// The answers that are left, and the commands that were sent.
#[derive(Default)]
pub(crate) struct Script {
    answers: Mutex<VecDeque<Answer>>,
    sent: Mutex<Vec<Command>>,
}

impl Script {
    pub(crate) fn new(answers: impl IntoIterator<Item = Answer>) -> Arc<Self> {
        Arc::new(Self { answers: Mutex::new(answers.into_iter().collect()), sent: Mutex::default() })
    }

    /// Returns the bodies of the commands that were sent.
    pub(crate) fn sent(&self) -> Vec<Document> {
        self.sent.lock().iter().map(|command| Document::try_from(&*command.body).unwrap()).collect()
    }

    fn answer(&self) -> Answer {
        self.answers.lock().pop_front().unwrap_or_else(|| Answer::Error(ServerError::other("the script is over")))
    }

    /// Returns a deployment of MongoDB 7.0 that answers from the script.
    pub(crate) fn deployment(self: &Arc<Self>) -> Deployment {
        Deployment {
            transport: Arc::new(self.clone()),
            facts: ServerFacts {
                version: "7.0.0".into(),
                flavor: Flavor::MongoDb,
                recognised_by: "a script".into(),
                capabilities: Flavor::MongoDb.capabilities(21),
                wire_version: 21,
                topology: Topology::ReplicaSet,
                set_name: None,
                hosts: Vec::new(),
                local_time: DateTime::from_millis(0),
                clock_skew_ms: 0,
            },
            comment: "sweeper test".into(),
            write_concern: doc! { "w": "majority" },
            read_concern: None,
            command_timeout: timeout::MAX_COMMAND_TIME,
            read_options: ReadOptions::default(),
            meter: None,
        }
    }
}

impl Transport for Arc<Script> {
    fn run(&self, command: Command) -> BoxFuture<'_, Result<Document, ServerError>> {
        Box::pin(async move {
            self.sent.lock().push(command);
            match self.answer() {
                Answer::Reply(reply) => Ok(reply),
                Answer::Error(cause) => Err(cause),
                Answer::Batch(_) | Answer::End => panic!("the script has a batch where a command is sent"),
            }
        })
    }

    fn open(&self, command: Command) -> BoxFuture<'_, Result<Box<dyn Batches>, ServerError>> {
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
                Answer::Batch(batch) => {
                    Ok(Some(batch.iter().map(|document| RawDocumentBuf::try_from(document).unwrap()).collect()))
                }
                Answer::End => Ok(None),
                Answer::Error(cause) => Err(cause),
                Answer::Reply(_) => panic!("the script has a reply where a batch is fetched"),
            }
        })
    }
}
