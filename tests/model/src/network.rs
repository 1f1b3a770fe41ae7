//! The way of commands from a client to the server and back, with everything that can happen on it.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bson::Document;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};

use crate::call::{Call, rest};
use crate::dispatch;
use crate::failure::Failure;
use crate::faults::End;
use crate::model::Model;

/// Time for which a client looks for a primary (`serverSelectionTimeoutMS` of the drivers).
const MAX_SELECTION: Duration = Duration::from_secs(30);

/// The reason why a command has no result, as its client sees it.
#[derive(Debug, Clone, PartialEq)]
pub enum CommandError {
    /// The command got no connection, and was not sent.
    NotSent,
    /// The connection was cut; the words say when.
    Cut(&'static str),
    /// There was no primary for a long time.
    Unreachable,
    /// The server reported an error.
    Reported(Failure),
}

/// A command on its way, up to its reply. The type is no `async fn`, whose code would be compiled in the crate of the caller.
pub type Sent = Pin<Box<dyn Future<Output = Result<Document, CommandError>> + Send>>;

impl Model {
    /// Returns a number for a command that a client is about to send.
    pub fn command_number(&self) -> u64 {
        self.state.lock().command_number()
    }

    /// Tells whether the server is at work on a command; `None` if no client can reach the server.
    pub fn is_running(&self, number: u64) -> Option<bool> {
        let state = self.state.lock();
        (state.primary_from <= Instant::now()).then(|| state.running.contains(&number))
    }

    /// Sends a command of a client. The server goes on with a command whose client has gone.
    pub fn send(self: &Arc<Self>, client: &Arc<str>, number: u64, database: String, body: Document) -> Sent {
        Box::pin(attempt(self.clone(), client.clone(), number, database, body))
    }

    /// Ends a cursor, as the end of its client does.
    pub fn end_cursor(&self, id: i64) {
        self.state.lock().cursors.remove(&id);
    }

    /// Waits for a primary.
    async fn primary(&self) -> Result<(), CommandError> {
        let deadline = Instant::now() + MAX_SELECTION;
        loop {
            let from = self.state.lock().primary_from;
            if from <= Instant::now() {
                return Ok(());
            }
            if from > deadline {
                sleep_until(deadline).await;
                if self.state.lock().primary_from > deadline {
                    return Err(CommandError::Unreachable);
                }
                continue;
            }
            sleep_until(from).await;
        }
    }
}

async fn attempt(
    model: Arc<Model>,
    client: Arc<str>,
    number: u64,
    database: String,
    body: Document,
) -> Result<Document, CommandError> {
    model.primary().await?;
    let fate = model.state.lock().fate(body.contains_key("delete"));
    let cut_at = match &fate.end {
        End::Unsent => return Err(CommandError::NotSent),
        End::CutBefore => {
            rest(fate.arrives_after).await;
            return Err(CommandError::Cut("before the command arrived"));
        }
        End::Swallowed => return std::future::pending().await,
        End::CutAt(after) => Some(*after),
        _ => None,
    };
    let (sender, reply) = oneshot::channel();
    tokio::spawn(async move {
        rest(fate.arrives_after).await;
        let result = match fate.end {
            End::Refused(code) => Err(Failure::new(code, "the server refuses the command")),
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
        Some(after) => tokio::time::timeout(after, reply)
            .await
            .map_err(|_| CommandError::Cut("while the command was on its way or carried out"))?,
        None => reply.await,
    };
    reply.map_err(|_| CommandError::Cut("before the reply arrived"))?.map_err(CommandError::Reported)
}
