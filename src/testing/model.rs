//! Clients of the model of a server: the seam of the program, behind which the model carries out its commands.
//!
//! The tests in `conformance` compare the model with a mongod.

mod conformance;
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, Document, RawDocumentBuf, doc};
use futures_util::future::BoxFuture;
use server_model::{CommandError, Model};

use crate::base::failure::Failure;
use crate::core::facts::ServerFacts;
use crate::core::flavor::Flavor;
use crate::shell::server::Deployment;
use crate::shell::server::connect::recognise::{ask, need_no_user};
use crate::shell::server::wire::error::{FailureStage, ServerError};
use crate::shell::server::wire::timeout::reply_in_time;
use crate::shell::server::wire::transport::{Batches, Patience, ServerCommand, Transport};

/// Time limit of a command that recognises the model.
const FIRST: Patience = Patience::Limit(Duration::from_secs(60));

/// Connects to a model of a server, as a run does.
///
/// Errors: the reason.
pub(crate) async fn connect(transport: Arc<dyn Transport>, run_id: &str) -> Result<Deployment, Failure> {
    let asked = async {
        let facts = ask(transport.as_ref(), FIRST, vec!["model:27017".into()], None).await?;
        need_no_user(transport.as_ref(), FIRST).await.map(|()| facts)
    };
    let failed =
        |cause: ServerError| Failure::cannot_run(format!("connecting to `mongodb://model`: {cause}; nothing was deleted"));
    Ok(Deployment::over(transport.clone(), asked.await.map_err(failed)?, format!("sweeper {run_id}")))
}

/// A client of the model. Each process has its own, and a name of its own.
pub(crate) struct Client {
    model: Arc<Model>,
    name: Arc<str>,
}

impl Client {
    pub(crate) fn new(model: &Arc<Model>, name: &str) -> Arc<Self> {
        Arc::new(Self { model: model.clone(), name: name.into() })
    }

    /// Returns the deployment as a run sees it that has connected to the model.
    pub(crate) fn deployment(self: &Arc<Self>, run_id: &str) -> Deployment {
        let mut facts = ServerFacts::made_up(Flavor::MongoDb, "6.0.5", 17);
        facts.local_time = self.model.now();
        Deployment::over(Arc::new(self.clone()), facts, format!("sweeper {run_id}"))
    }

    /// Sends a command and waits for its reply, as long as the patience of the command lasts.
    async fn send(&self, command: &ServerCommand, body: Document) -> Result<Document, ServerError> {
        let number = self.model.command_number();
        let sent = self.model.send(&self.name, number, command.database.clone(), body);
        let answer = async { sent.await.map_err(ServerError::from) };
        let model = self.model.clone();
        // A client that cannot reach the server is told nothing.
        let is_running = move || std::future::ready(model.is_running(number));
        reply_in_time((command.patience, command.ends_unawaited), answer, is_running, |_| {}).await
    }
}

impl From<CommandError> for ServerError {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::NotSent => {
                let why = "no connection: all of them were given up after an error of another command";
                Self::new(FailureStage::NotSent, why.into())
            }
            CommandError::Cut(when) => Self::new(FailureStage::Network, format!("network error: the connection was cut {when}")),
            CommandError::Unreachable => Self::new(FailureStage::Unreachable, "no suitable server answered in time".into()),
            CommandError::Reported(failure) => Self::reported(failure.code, &failure.message, ""),
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
        self.client.model.end_cursor(self.id);
    }
}

fn batch(reply: &Document, name: &str) -> Result<Vec<RawDocumentBuf>, ServerError> {
    let batch = reply.get_document("cursor").and_then(|cursor| cursor.get_array(name));
    let batch = batch.map_err(|_| ServerError::invalid_reply("a cursor without a batch"))?;
    batch.iter().filter_map(Bson::as_document).map(|document| Ok(RawDocumentBuf::try_from(document)?)).collect()
}
