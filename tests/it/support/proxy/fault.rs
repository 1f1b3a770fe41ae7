//! Planned faults for coming commands.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mongodb::bson::Document;
use tokio::sync::watch;

/// A fault of one command.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// The client receives this instead of the reply, before or after the command has run (`done`).
    Answer { reply: Document, done: bool },
    /// The connection is closed, before or after the command has run (`done`).
    Close { done: bool },
    /// The command runs, but its reply never comes, and the connection stays open. Assumption: a device between the two loses the
    /// reply.
    Silence,
    /// The command starts after this delay.
    Delay(Duration),
    /// The command is on its way until the gate opens, even if its sender has gone. Assumption: a network that was cut, or a
    /// server that was stopped, keeps the bytes.
    Hold(Gate),
    /// A `delete` stops with this write error if more documents are left after deleting this many. The engine of Azure DocumentDB
    /// then deletes none.
    WriteError { after: u64, error: Document },
}

/// A place where one command is held on its way.
#[derive(Debug, Clone)]
pub(crate) struct Gate {
    is_open: watch::Sender<bool>,
    reply: watch::Sender<Option<Document>>,
}

impl Gate {
    pub(crate) fn new() -> Self {
        Self { is_open: watch::Sender::new(false), reply: watch::Sender::new(None) }
    }

    /// Lets the command through; returns the server's reply to it.
    pub(crate) async fn open(&self) -> Document {
        self.is_open.send_replace(true);
        let mut reply = self.reply.subscribe();
        reply.wait_for(Option::is_some).await.expect("the gate lives").clone().expect("a reply")
    }

    pub(super) async fn opened(&self) {
        self.is_open.subscribe().wait_for(|is_open| *is_open).await.expect("the gate lives");
    }

    pub(super) fn note(&self, reply: &Document) {
        self.reply.send_replace(Some(reply.clone()));
    }
}

/// Planned faults.
#[derive(Default)]
pub(crate) struct Faults(Mutex<Vec<Planned>>);

struct Planned {
    command: String,
    turn: Turn,
    fault: Fault,
}

enum Turn {
    Next { left: u32 },
    EveryNth { nth: u32, seen: u32 },
    Once { after: Option<usize> },
}

impl Faults {
    /// Plans a fault for the next `times` commands of this name, after those planned before.
    pub(crate) fn next(&self, command: &str, times: u32, fault: Fault) {
        self.plan(command, Turn::Next { left: times }, fault);
    }

    /// Plans a fault for every `nth` command of this name from now on.
    pub(crate) fn every(&self, command: &str, nth: u32, fault: Fault) {
        self.plan(command, Turn::EveryNth { nth, seen: 0 }, fault);
    }

    /// Plans a fault for one command of this name or kind, after `after` others from now on.
    pub(crate) fn once(&self, command: &str, after: usize, fault: Fault) {
        self.plan(command, Turn::Once { after: Some(after) }, fault);
    }

    /// Returns the names and kinds of the commands that were to meet a fault and have not come.
    pub(crate) fn outstanding(&self) -> Vec<String> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter()
            .filter(|planned| matches!(planned.turn, Turn::Once { after: Some(_) }))
            .map(|planned| planned.command.clone())
            .collect()
    }

    fn plan(&self, command: &str, turn: Turn, fault: Fault) {
        let planned = Planned { command: command.to_owned(), turn, fault };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(planned);
    }

    /// Returns the fault planned for a command just received.
    pub(crate) fn take(&self, name: &str, kind: &str) -> Option<Fault> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter_mut().filter(|planned| planned.command == name || planned.command == kind).find_map(|planned| {
            let strikes = match &mut planned.turn {
                Turn::Next { left: 0 } => false,
                Turn::Next { left } => {
                    *left -= 1;
                    true
                }
                Turn::Once { after: None } => false,
                Turn::Once { after: Some(after) } => {
                    let strikes = *after == 0;
                    planned.turn = Turn::Once { after: after.checked_sub(1) };
                    strikes
                }
                Turn::EveryNth { nth, seen } => {
                    *seen += 1;
                    *seen % *nth == 0
                }
            };
            strikes.then(|| planned.fault.clone())
        })
    }
}
