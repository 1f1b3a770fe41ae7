//! The pauses of a sweep.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::instant::millis;
use crate::core::plan::outcome::Paused;

/// Deliberate pauses in milliseconds, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "pausedMs")]
pub struct PausedMs {
    /// A member of the replica set was further behind than `maxLag`.
    pub lag: u64,
    /// More deletes would have left the oplog with a shorter window than `minOplogWindow`.
    #[serde(default)]
    pub oplog: u64,
    /// A query for the oldest document took longer than `maxHeadMs`.
    #[serde(default)]
    pub head: u64,
    /// A batch took longer than `targetBatchMs`.
    pub latency: u64,
    /// By its own figures the server was under pressure: more of its cache than `maxDirty` waited to be written, its clients had to do its work, or
    /// they queued. Short rests on the way there count as well.
    pub pressure: u64,
    /// The `rate` of the rule or of the run was used up.
    pub rate: u64,
    /// The file of `--pause-file` existed.
    #[serde(default)]
    pub pause_file: u64,
    /// The service had no room, or `maxRequestUnits` was used up.
    pub throttle: u64,
}

impl PausedMs {
    /// Returns every reason with the milliseconds of its pauses.
    pub fn by_reason(self) -> [(&'static str, u64); 8] {
        let Self { lag, oplog, head, latency, pressure, rate, pause_file, throttle } = self;
        [
            ("lag", lag),
            ("oplog", oplog),
            ("head", head),
            ("latency", latency),
            ("pressure", pressure),
            ("rate", rate),
            ("pauseFile", pause_file),
            ("throttle", throttle),
        ]
    }
}

impl From<Paused> for PausedMs {
    fn from(Paused { lag, oplog, head, latency, pressure, rate, pause_file, throttle }: Paused) -> Self {
        let [lag, oplog, head, latency, pressure, rate, pause_file, throttle] =
            [lag, oplog, head, latency, pressure, rate, pause_file, throttle].map(|pause: Duration| millis(pause));
        Self { lag, oplog, head, latency, pressure, rate, pause_file, throttle }
    }
}
