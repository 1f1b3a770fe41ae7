//! The way of commands from a client to the model and back: the seam of the program, with everything that can happen on it.

use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, Document, RawDocumentBuf, doc};
use futures_util::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use super::call::{Call, rest};
use super::failure::Failure;
use super::faults::End;
use super::{Model, dispatch};
use crate::core::facts::ServerFacts;
use crate::core::flavor::Flavor;
use crate::shell::server::Deployment;
use crate::shell::server::wire::error::{FailureStage, ServerError};
use crate::shell::server::wire::timeout::reply_in_time;
use crate::shell::server::wire::transport::{Batches, ServerCommand, Transport};

/// Time for which a client looks for a primary (`serverSelectionTimeoutMS` of the drivers).
const MAX_SELECTION: Duration = Duration::from_secs(30);

/// A client of the model.
pub(crate) struct Client {
    model: Arc<Model>,
    name: Arc<str>,
}

impl Client {
    pub(super) fn new(model: &Arc<Model>, name: &str) -> Arc<Self> {
        Arc::new(Self { model: model.clone(), name: name.into() })
    }

    /// Returns the deployment as a run sees it that has connected to the model.
    pub(crate) fn deployment(self: &Arc<Self>, run_id: &str) -> Deployment {
        let mut facts = ServerFacts::made_up(Flavor::MongoDb, "6.0.5", 17);
        facts.local_time = self.model.now();
        Deployment::over(Arc::new(self.clone()), facts, format!("sweeper {run_id}"))
    }

    /// Sends a command and waits for its reply, as long as the patience of the command lasts.
    async fn send(self: &Arc<Self>, command: &ServerCommand, body: Document) -> Result<Document, ServerError> {
        let number = self.model.state.lock().command_number();
        let (client, database) = (self.clone(), command.database.clone());
        let answer = async move { client.attempt(number, database, body).await };
        let model = self.model.clone();
        // A client that cannot reach the server is told nothing.
        let is_running = move || {
            let state = model.state.lock();
            std::future::ready((state.primary_from <= Instant::now()).then(|| state.running.contains(&number)))
        };
        reply_in_time((command.patience, command.ends_unawaited), answer, is_running, |_| {}).await
    }

    async fn attempt(&self, number: u64, database: String, body: Document) -> Result<Document, ServerError> {
        self.primary().await?;
        let fate = self.model.state.lock().fate(body.contains_key("delete"));
        let cut = |when: &str| ServerError::new(FailureStage::Network, format!("network error: the connection was cut {when}"));
        let cut_at = match &fate.end {
            End::Unsent(cause) => return Err(cause.clone()),
            End::CutBefore => {
                rest(fate.arrives_after).await;
                return Err(cut("before the command arrived"));
            }
            End::Swallowed => return std::future::pending().await,
            End::CutAt(after) => Some(*after),
            _ => None,
        };
        let (model, client) = (self.model.clone(), self.name.clone());
        let (sender, reply) = oneshot::channel();
        // The server goes on with a command whose client has gone.
        tokio::spawn(async move {
            rest(fate.arrives_after).await;
            let result = match fate.end {
                End::Refused(code) => Err(Failure::new(code, "the server steps down or shuts down")),
                _ => {
                    model.state.lock().running.insert(number);
                    let call = Call::begin(model.clone(), client, database, body, fate.begins_after).await;
                    let result = dispatch::carry_out(&call).await;
                    model.state.lock().running.remove(&number);
                    result
                }
            };
            rest(fate.returns_after).await;
            match fate.end {
                End::CutAfter => drop(sender),
                End::Silent => {
                    let _sender = sender;
                    std::future::pending::<()>().await;
                }
                _ => drop(sender.send(result)),
            }
        });
        let reply = match cut_at {
            Some(after) => {
                tokio::time::timeout(after, reply).await.map_err(|_| cut("while the command was on its way or carried out"))?
            }
            None => reply.await,
        };
        Ok(reply.map_err(|_| cut("before the reply arrived"))??)
    }

    /// Waits for a primary.
    async fn primary(&self) -> Result<(), ServerError> {
        let deadline = Instant::now() + MAX_SELECTION;
        loop {
            let from = self.model.state.lock().primary_from;
            if from <= Instant::now() {
                return Ok(());
            }
            if from > deadline {
                sleep_until(deadline).await;
                if self.model.state.lock().primary_from > deadline {
                    return Err(ServerError::new(FailureStage::Unreachable, "no suitable server answered in time".into()));
                }
                continue;
            }
            sleep_until(from).await;
        }
    }
}

impl Transport for Arc<Client> {
    fn run(&self, command: ServerCommand) -> BoxFuture<'_, Result<Document, ServerError>> {
        Box::pin(async move {
            let body = Document::try_from(&*command.body)?;
            self.send(&command, body).await
        })
    }

    fn open(&self, command: ServerCommand) -> BoxFuture<'_, Result<Box<dyn Batches>, ServerError>> {
        Box::pin(async move {
            let mut body = Document::try_from(&*command.body)?;
            let reply = self.send(&command, body.clone()).await?;
            let cursor = reply.get_document("cursor").map_err(|_| ServerError::invalid_reply("no cursor"))?;
            let id = cursor.get_i64("id").map_err(|_| ServerError::invalid_reply("a cursor without id"))?;
            let namespace = cursor.get_str("ns").map_err(|_| ServerError::invalid_reply("a cursor without namespace"))?;
            let collection = namespace.split_once('.').map_or(namespace, |(_, collection)| collection).to_owned();
            // The driver repeats the size of the batches, and the comment.
            let mut more = doc! { "getMore": id, "collection": collection };
            let size = body.remove("batchSize").or_else(|| body.get_document_mut("cursor").ok()?.remove("batchSize"));
            more.extend(size.map(|size| ("batchSize".to_owned(), size)));
            more.extend(body.remove("comment").map(|comment| ("comment".to_owned(), comment)));
            let first = Some(batch(&reply, "firstBatch")?);
            Ok(Box::new(OpenCursor { client: self.clone(), command, id, more, first, has_failed: false }) as Box<dyn Batches>)
        })
    }
}

/// A cursor as a client has it.
struct OpenCursor {
    client: Arc<Client>,
    /// The command that opened it, for its database and its time limit.
    command: ServerCommand,
    /// 0 after the last batch.
    id: i64,
    /// The command for the next batch.
    more: Document,
    first: Option<Vec<RawDocumentBuf>>,
    has_failed: bool,
}

impl Batches for OpenCursor {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Vec<RawDocumentBuf>>, ServerError>> {
        Box::pin(async move {
            if self.has_failed {
                return Err(ServerError::other("the cursor was given up after an error"));
            }
            if let Some(first) = self.first.take() {
                return Ok(Some(first));
            }
            if self.id == 0 {
                return Ok(None);
            }
            self.has_failed = true;
            let reply = self.client.send(&self.command, self.more.clone()).await?;
            let next = batch(&reply, "nextBatch")?;
            self.id = reply.get_document("cursor").and_then(|cursor| cursor.get_i64("id")).unwrap_or(0);
            self.has_failed = false;
            Ok(Some(next))
        })
    }
}

impl Drop for OpenCursor {
    fn drop(&mut self) {
        self.client.model.state.lock().cursors.remove(&self.id);
    }
}

fn batch(reply: &Document, name: &str) -> Result<Vec<RawDocumentBuf>, ServerError> {
    let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array(name));
    let batch = batch.map_err(|_| ServerError::invalid_reply("a cursor without a batch"))?;
    batch.iter().filter_map(Bson::as_document).map(|document| Ok(RawDocumentBuf::try_from(document)?)).collect()
}
