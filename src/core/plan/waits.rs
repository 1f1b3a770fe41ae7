//! The reasons for which a sweep waits: one table, from which the pauses of an outcome, those in the report, and their names
//! follow.

use std::ops::{AddAssign, Index, IndexMut};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::instant::millis;

/// Derives everything that names the reasons from rows: doc comment, variant, field, name in the report, words for people. The
/// last value of a row says whether the wait tells of the speed at which the server deletes.
macro_rules! waits {
    ($($(#[doc = $about:literal])* $(#[serde($serde:ident)])? $wait:ident, $field:ident: $name:literal, $words:literal, $is_of_speed:literal;)*) => {
        /// Reason for which a sweep waits.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Wait {
            $($(#[doc = $about])* $wait,)*
        }

        impl Wait {
            /// All reasons, in the order of the report.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$wait),*];

            /// Returns the name of the reason in the report.
            pub fn name(self) -> &'static str {
                match self { $(Self::$wait => $name),* }
            }

            /// Returns words that follow `paused 5 s for`.
            pub fn words(self) -> &'static str {
                match self { $(Self::$wait => $words),* }
            }

            /// Whether the wait tells of the speed at which the server deletes. The others would be as long on any server.
            pub fn is_of_speed(self) -> bool {
                match self { $(Self::$wait => $is_of_speed),* }
            }
        }

        /// Deliberate pauses in milliseconds, by reason.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[schemars(rename = "pausedMs")]
        pub struct PausedMs {
            $($(#[doc = $about])* #[serde(rename = $name $(, $serde)?)] pub $field: u64,)*
        }

        impl PausedMs {
            /// Returns every reason with the milliseconds of its pauses.
            pub fn by_reason(self) -> [(Wait, u64); Wait::ALL.len()] {
                [$((Wait::$wait, self.$field)),*]
            }
        }

        impl From<Waited> for PausedMs {
            fn from(waited: Waited) -> Self {
                Self { $($field: millis(waited[Wait::$wait])),* }
            }
        }
    };
}

waits! {
    /// A member of the replica set was further behind than `maxLag`.
    Lag, lag: "lag", "lag", false;
    /// More deletes would have left the oplog with a shorter window than `minOplogWindow`.
    #[serde(default)]
    Oplog, oplog: "oplog", "oplog", false;
    /// A query for the oldest document took longer than `maxHeadMs`.
    #[serde(default)]
    Head, head: "head", "the oldest document", false;
    /// A batch took longer than `targetBatchMs`.
    Latency, latency: "latency", "latency", true;
    /// By its own figures the server was under pressure: more of its cache than `maxDirty` waited to be written, its clients had
    /// to do its work, or they queued. Short rests on the way there count as well.
    Pressure, pressure: "pressure", "pressure", true;
    /// The `rate` of the rule or of the run was used up.
    Rate, rate: "rate", "rate", false;
    /// The file of `--pause-file` existed.
    #[serde(default)]
    PauseFile, pause_file: "pauseFile", "the pause file", false;
    /// The service had no room, or `maxRequestUnits` was used up.
    Throttle, throttle: "throttle", "throttling", true;
}

/// Time that a sweep has waited, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Waited([Duration; Wait::ALL.len()]);

impl Index<Wait> for Waited {
    type Output = Duration;

    fn index(&self, wait: Wait) -> &Duration {
        &self.0[wait as usize]
    }
}

impl IndexMut<Wait> for Waited {
    fn index_mut(&mut self, wait: Wait) -> &mut Duration {
        &mut self.0[wait as usize]
    }
}

impl AddAssign for Waited {
    fn add_assign(&mut self, other: Self) {
        Wait::ALL.into_iter().for_each(|wait| self[wait] += other[wait]);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn each_reason_has_its_own_place_in_what_was_waited_and_in_the_report() {
        let mut waited = Waited::default();
        for (wait, length) in Wait::ALL.into_iter().zip(1..) {
            waited[wait] = Duration::from_millis(length);
        }
        waited += waited;
        let report = PausedMs::from(waited);
        let expected = json!({
            "lag": 2, "oplog": 4, "head": 6, "latency": 8, "pressure": 10, "rate": 12, "pauseFile": 14, "throttle": 16,
        });
        assert_eq!(serde_json::to_value(report).unwrap(), expected);
        let by_name: serde_json::Map<String, Value> =
            report.by_reason().into_iter().map(|(wait, millis)| (wait.name().to_owned(), millis.into())).collect();
        assert_eq!(Value::from(by_name), expected);
        let of_any_server = Wait::ALL.into_iter().filter(|wait| !wait.is_of_speed()).map(Wait::name);
        assert_eq!(of_any_server.collect::<Vec<_>>(), ["lag", "oplog", "head", "rate", "pauseFile"]);
        // Reports of versions that did not know these reasons.
        let earlier: PausedMs =
            serde_json::from_value(json!({ "lag": 1, "latency": 2, "pressure": 3, "rate": 4, "throttle": 5 })).unwrap();
        assert_eq!(earlier.by_reason().map(|(_, millis)| millis), [1, 0, 0, 2, 3, 4, 0, 5]);
    }
}
