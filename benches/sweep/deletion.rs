//! One measured deletion: its times and the resources of its process.

use std::time::{Duration, Instant};

use serde_json::Value;

/// One run of a peer.
pub(crate) struct Deletion {
    pub begun: Instant,
    pub ended: Instant,
    /// `None` for a peer without a process of its own.
    pub usage: Option<Usage>,
    /// Sweeper's report; null for the other peers.
    pub report: Value,
    /// The lines that sweeper wrote to standard error; none for the other peers.
    pub log: Vec<String>,
}

/// Resources that the process of a peer used.
pub(crate) struct Usage {
    /// Peak of the resident memory in bytes.
    pub peak: u64,
    pub client_cpu: Duration,
    /// Processor time of the server over the same time.
    pub server_cpu: Duration,
}

impl Usage {
    /// Returns the peak of the resident memory in megabytes.
    pub(crate) fn megabytes(&self) -> f64 {
        self.peak as f64 / 1e6
    }

    /// Returns the client's processor time as a percentage of the server's.
    pub(crate) fn client_percent(&self) -> f64 {
        100.0 * self.client_cpu.as_secs_f64() / self.server_cpu.as_secs_f64()
    }
}

impl Deletion {
    /// Makes what is known of a deletion without a process of its own that ends now.
    pub(crate) fn since(begun: Instant) -> Self {
        Self { begun, ended: Instant::now(), usage: None, report: Value::Null, log: Vec::new() }
    }

    pub(crate) fn wall(&self) -> Duration {
        self.ended - self.begun
    }
}
