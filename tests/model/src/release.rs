//! The release of the server, as far as it makes a difference to the model.

use std::time::Duration;

/// A release of MongoDB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Release {
    /// 6.0, which is compared with a real server.
    #[default]
    V6_0,
    /// 8.0, by its documentation.
    V8_0 {
        /// Time after which a read without `maxTimeMS` ends (`defaultMaxTimeMS`).
        max_read: Duration,
    },
}

/// Reads that `defaultMaxTimeMS` ends.
const READS: [&str; 4] = ["aggregate", "count", "distinct", "find"];

impl Release {
    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::V6_0 => "6.0.5",
            Self::V8_0 { .. } => "8.0.0",
        }
    }

    pub(crate) fn wire_version(self) -> i32 {
        match self {
            Self::V6_0 => 17,
            Self::V8_0 { .. } => 25,
        }
    }

    /// Returns the time after which a command ends that names none.
    pub(crate) fn default_max_time(self, command: &str) -> Option<Duration> {
        match self {
            Self::V8_0 { max_read } if READS.contains(&command) => Some(max_read),
            Self::V6_0 | Self::V8_0 { .. } => None,
        }
    }
}
