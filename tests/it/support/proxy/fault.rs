//! Planned faults for coming commands.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mongodb::bson::Document;

/// A fault of one command.
#[derive(Debug, Clone)]
pub(crate) enum Fault {
    /// The client receives this instead of the reply, before or after the command has run (`done`).
    Answer { reply: Document, done: bool },
    /// The connection is closed, before or after the command has run (`done`).
    Close { done: bool },
    /// The command runs, but its reply never comes, and the connection stays open. Assumption: a device between the two loses the reply.
    Silence,
    /// The command starts after this delay.
    Delay(Duration),
    /// A `delete` stops with this write error if more documents are left after deleting this many. The engine of Azure DocumentDB
    /// then deletes none.
    WriteError { after: u64, error: Document },
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

    fn plan(&self, command: &str, turn: Turn, fault: Fault) {
        let planned = Planned { command: command.to_owned(), turn, fault };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(planned);
    }

    /// Returns the fault planned for a command just received.
    pub(crate) fn take(&self, command: &str) -> Option<Fault> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter_mut().filter(|planned| planned.command == command).find_map(|planned| {
            let strikes = match &mut planned.turn {
                Turn::Next { left: 0 } => false,
                Turn::Next { left } => {
                    *left -= 1;
                    true
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
