//! Read concerns: what a read sees of the data, and what it waits for.

use std::borrow::Cow;
use std::time::Duration;

use bson::{Bson, Document, Timestamp};
use tokio::time::Instant;

use crate::call::Call;
use crate::codes;
use crate::collection::Collections;
use crate::failure::Failure;
use crate::state::State;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Level {
    Local,
    Majority,
    Linearizable,
    Snapshot,
}

/// The read concern of a command.
pub(crate) struct Concern {
    level: Level,
    /// Number of the write that the read sees at least.
    after: Option<u64>,
}

impl Concern {
    pub(crate) fn of(call: &Call) -> Result<Self, Failure> {
        let none = Document::new();
        let concern = call.body.get_document("readConcern").unwrap_or(&none);
        let level = match concern.get("level") {
            None => Level::Local,
            Some(Bson::String(level)) => match level.as_str() {
                "local" => Level::Local,
                "majority" => Level::Majority,
                "linearizable" => Level::Linearizable,
                "snapshot" => Level::Snapshot,
                _ => return Err(Failure::bad("the model does not know this read concern")),
            },
            Some(_) => return Err(Failure::new(14, "BSON field 'readConcern.level' is the wrong type")),
        };
        let after = match concern.get("afterClusterTime") {
            None => None,
            Some(Bson::Timestamp(time)) => Some(u64::from(time.increment)),
            Some(_) => return Err(Failure::new(14, "BSON field 'readConcern.afterClusterTime' is the wrong type")),
        };
        Ok(Self { level, after })
    }

    /// Waits until the read may begin. A linearizable one does once a majority confirms that the primary is still one.
    pub(crate) async fn wait(&self, call: &Call) -> Result<(), Failure> {
        if self.level == Level::Linearizable {
            let (write, asked) = {
                let mut state = call.model.state.lock();
                if state.primary_from > Instant::now() {
                    return Err(Failure::new(codes::NOT_WRITABLE_PRIMARY, "not primary"));
                }
                let pace = state.pace.replication.clone();
                (state.written, Instant::now() + Duration::from_millis(state.random.u64(pace)))
            };
            return call.until(|state| Some(asked.max(state.confirmed_from(write)))).await;
        }
        match self.after {
            Some(write) => call.until(|state| state.committed_at(write)).await,
            None => Ok(()),
        }
    }

    /// Whether the read shows one point in time, or is close enough to it: later batches show nothing newer.
    pub(crate) fn is_one_point(&self) -> bool {
        self.level != Level::Local
    }

    /// Returns the data that the read sees, as far as they concern a collection.
    pub(crate) fn data<'a>(&self, state: &'a State, namespace: &str) -> Cow<'a, Collections> {
        match self.level {
            // Once a linearizable read may begin, a majority has all that it sees; what came since may be taken back.
            Level::Local => Cow::Borrowed(&state.collections),
            Level::Majority | Level::Linearizable | Level::Snapshot => state.by_majority(namespace),
        }
    }

    /// Returns the time of what the read saw, for a read that is to follow; a server tells it with every reply.
    pub(crate) fn operation_time(&self, state: &State) -> Option<Timestamp> {
        let time = u32::try_from(state.now().timestamp_millis() / 1000).expect("a time of this century");
        let increment = u32::try_from(state.written).expect("few writes");
        (self.level == Level::Linearizable).then_some(Timestamp { time, increment })
    }
}
