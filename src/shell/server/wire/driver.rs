//! The implementation of the transport over the `mongodb` crate.

mod errors;

use std::time::Duration;

use bson::raw::RawBsonRef;
use bson::{Bson, Document, RawDocument, RawDocumentBuf};
use futures_util::StreamExt;
use futures_util::future::BoxFuture;
use mongodb::Client;
use mongodb::action::Action;
use mongodb::event::EventHandler;
use mongodb::event::command::CommandEvent;
use mongodb::options::{ClientOptions, ReadPreference as Preference, ReadPreferenceOptions, SelectionCriteria};
use mongodb::raw_batch_cursor::{RawBatch, RawBatchCursor};
use tracing::{debug, warn};

use super::error::ServerError;
use super::running::Question;
use super::timeout::{reply_in_time, reply_within};
use super::transport::{Batches, Patience, ReadPreference, ServerCommand, Transport};

/// Time limit of the question whether a server is at work on a command.
const MAX_ANSWER_TIME: Duration = Duration::from_secs(5);

/// A pool of connections to one deployment.
pub(crate) struct Driver {
    client: Client,
}

impl Driver {
    /// Creates a driver.
    ///
    /// Errors: the options are not valid.
    pub(crate) fn new(mut options: ClientOptions) -> Result<Self, ServerError> {
        // For the handler the driver decodes each command and each reply, which takes several times their memory.
        if tracing::enabled!(target: "sweeper::command", tracing::Level::DEBUG) {
            options.command_event_handler = Some(EventHandler::callback(log_command));
        }
        Ok(Self { client: Client::with_options(options)? })
    }

    fn criteria(&self, preference: ReadPreference) -> Option<SelectionCriteria> {
        let options = Some(ReadPreferenceOptions::default());
        let preference = match preference {
            ReadPreference::Primary => Preference::Primary,
            ReadPreference::PrimaryPreferred => Preference::PrimaryPreferred { options },
            ReadPreference::Secondary => Preference::Secondary { options },
            ReadPreference::SecondaryPreferred => Preference::SecondaryPreferred { options },
            ReadPreference::Nearest => Preference::Nearest { options },
            ReadPreference::ConnectionString => return self.client.selection_criteria().cloned(),
        };
        Some(SelectionCriteria::ReadPreference(preference))
    }
}

impl Transport for Driver {
    fn run(&self, command: ServerCommand) -> BoxFuture<'_, Result<Document, ServerError>> {
        let database = self.client.database(&command.database);
        let criteria = self.criteria(command.read_preference);
        let waiting = Waiting::new(&self.client, &command, criteria.clone());
        let reply = async move {
            let run = database.run_raw_command(command.body);
            Ok(run.optional(criteria, |run, criteria| run.selection_criteria(criteria)).await?)
        };
        Box::pin(waiting.reply(reply))
    }

    fn open(&self, command: ServerCommand) -> BoxFuture<'_, Result<Box<dyn Batches>, ServerError>> {
        let database = self.client.database(&command.database);
        let criteria = self.criteria(command.read_preference);
        let waiting = Waiting::new(&self.client, &command, criteria.clone());
        Box::pin(async move {
            let opened = waiting.clone().reply(async move {
                let (batch_size, comment) = (batch_size(&command.body), comment(&command.body));
                let run = database.run_raw_cursor_command(command.body);
                let run = run.optional(criteria, |run, criteria| run.selection_criteria(criteria));
                let run = run.optional(batch_size, |run, size| run.batch_size(size));
                Ok(run.optional(comment, |run, comment| run.comment(comment)).batch().await?)
            });
            Ok(Box::new(DriverBatches { cursor: Some(opened.await?), waiting }) as Box<dyn Batches>)
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async { self.client.clone().shutdown().await })
    }
}

/// The wait for the reply to a command.
#[derive(Clone)]
struct Waiting {
    client: Client,
    criteria: Option<SelectionCriteria>,
    patience: Patience,
    ends_unawaited: bool,
    /// `None` if the server cannot tell whether it is at work on the command.
    question: Option<Question>,
    shown: String,
}

impl Waiting {
    fn new(client: &Client, command: &ServerCommand, criteria: Option<SelectionCriteria>) -> Self {
        let question = Question::about(command);
        let ServerCommand { patience, ends_unawaited, .. } = *command;
        Self { client: client.clone(), criteria, patience, ends_unawaited, question, shown: shown(command) }
    }

    async fn reply<T: Send + 'static>(
        self,
        reply: impl Future<Output = Result<T, ServerError>> + Send + 'static,
    ) -> Result<T, ServerError> {
        let shown = self.shown.clone();
        let remind = move |waited: Duration| warn!("{shown}: no answer for {} s; still waiting", waited.as_secs());
        let patience = (self.patience, self.ends_unawaited);
        reply_in_time(patience, reply, move || self.clone().ask(), remind).await
    }

    /// Asks the server whether it is still at work on the command; `None` if it does not tell.
    async fn ask(self) -> Option<bool> {
        let question = self.question?;
        let (admin, ask, criteria) = (self.client.database("admin"), question.command(), self.criteria);
        let asked = async move {
            let run = admin.run_command(ask);
            Ok(run.optional(criteria, |run, criteria| run.selection_criteria(criteria)).await?)
        };
        question.answer(&reply_within(MAX_ANSWER_TIME, asked).await.ok()?)
    }
}

/// Returns the name of a command and the collection that it is about.
fn shown(command: &ServerCommand) -> String {
    match command.body.iter().next() {
        Some(Ok((name, RawBsonRef::String(collection)))) => format!("{name} {}.{collection}", command.database),
        Some(Ok((name, _))) => name.to_string(),
        _ => String::new(),
    }
}

/// Returns the batch size that a command asks for, which the driver repeats in each getMore.
fn batch_size(command: &RawDocument) -> Option<u32> {
    let of_find = command.get("batchSize").ok().flatten();
    let of_cursor = || command.get_document("cursor").ok()?.get("batchSize").ok()?;
    let size = of_find.or_else(of_cursor)?;
    u32::try_from(size.as_i64().or_else(|| size.as_i32().map(i64::from))?).ok()
}

fn comment(command: &RawDocument) -> Option<Bson> {
    command.get_str("comment").ok().map(Bson::from)
}

/// A cursor of the driver, which sends every getMore to the server that opened it.
struct DriverBatches {
    /// `None` after an error, or after a batch was abandoned on its way.
    cursor: Option<RawBatchCursor>,
    waiting: Waiting,
}

impl Batches for DriverBatches {
    fn next(&mut self) -> BoxFuture<'_, Result<Option<Vec<RawDocumentBuf>>, ServerError>> {
        Box::pin(async {
            let Some(mut cursor) = self.cursor.take() else {
                return Err(ServerError::other("the cursor was given up after an error"));
            };
            // The cursor is moved into the future and returned by it, because the future may be abandoned as a whole.
            let fetched = self.waiting.clone().reply(async move {
                let batch = cursor.next().await;
                Ok((cursor, batch))
            });
            let (cursor, batch) = fetched.await?;
            // After an error the driver may treat the cursor as exhausted, so it is not used again.
            let batch = batch.transpose()?;
            self.cursor = Some(cursor);
            batch.map(|batch| documents(&batch)).transpose()
        })
    }
}

fn documents(batch: &RawBatch) -> Result<Vec<RawDocumentBuf>, ServerError> {
    let documents = batch.doc_slices()?.into_iter().map(|value| match value?.as_document() {
        Some(document) => Ok(document.to_owned()),
        None => Err(ServerError::invalid_reply("a batch holds a value that is not a document")),
    });
    documents.collect()
}

/// Names each command in the log without its body: bodies hold filters and documents.
fn log_command(event: CommandEvent) {
    match event {
        CommandEvent::Started(event) => {
            let target = event.command.get_str(&event.command_name).unwrap_or_default();
            debug!(target: "sweeper::command", "command {} {}.{target}", event.command_name, event.db);
        }
        CommandEvent::Failed(event) => {
            debug!(target: "sweeper::command", "command {} failed: {}", event.command_name, ServerError::from(event.failure))
        }
        _ => {}
    }
}
