//! Faults on demand: what goes wrong with which of the next commands.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mongodb::bson::Document;

/// One thing that goes wrong with a command.
#[derive(Debug, Clone)]
pub enum Fault {
    /// The client gets this in place of the reply: before anything is done, or after all of it is done.
    Answer { reply: Document, done: bool },
    /// The connection is closed: before anything is done, or after all of it is done.
    Close { done: bool },
    /// The command waits for so long before anything is done.
    Delay(Duration),
    /// A `delete` stops with this write error when it has deleted so many documents and there are more. The engine of Azure DocumentDB
    /// deletes none then.
    WriteError { after: u64, error: Document },
}

/// The faults that are yet to come.
#[derive(Default)]
pub struct Faults(Mutex<Vec<Planned>>);

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
    /// The next `times` commands of that name have this fault, after those that were planned before.
    pub fn next(&self, command: &str, times: u32, fault: Fault) {
        self.plan(command, Turn::Next { left: times }, fault);
    }

    /// From now on every `nth` command of that name has this fault.
    pub fn every(&self, command: &str, nth: u32, fault: Fault) {
        self.plan(command, Turn::EveryNth { nth, seen: 0 }, fault);
    }

    fn plan(&self, command: &str, turn: Turn, fault: Fault) {
        let planned = Planned { command: command.to_owned(), turn, fault };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(planned);
    }

    /// The fault of a command that has come in.
    pub fn take(&self, command: &str) -> Option<Fault> {
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
