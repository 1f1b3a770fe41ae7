//! The cost of requests on services that bill them. The service reports only the cost of the last request on a connection, so every
//! request goes over a connection of its own, one at a time.

use std::sync::Arc;

use bson::{Document, doc};
use parking_lot::Mutex;

use super::Deployment;
use super::error::ServerError;
use super::timeout::with_timeout;
use super::transport::{ServerCommand, Transport};

/// A connection whose last request is known.
pub(crate) struct Meter {
    transport: Arc<dyn Transport>,
    turn: tokio::sync::Mutex<()>,
}

impl Meter {
    /// Creates a meter. `transport` must have at most one connection.
    pub(crate) fn new(transport: Arc<dyn Transport>) -> Self {
        Self { transport, turn: tokio::sync::Mutex::new(()) }
    }
}

/// Request units spent since they were last taken. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Charges(Arc<Mutex<f64>>);

impl Charges {
    fn add(&self, units: f64) {
        *self.0.lock() += units;
    }

    /// Returns the request units spent since the last call.
    pub(crate) fn take(&self) -> f64 {
        std::mem::take(&mut *self.0.lock())
    }
}

impl Deployment {
    /// Runs a command of a sweep within the time limit of commands. If the service bills requests, adds the cost to the charges.
    pub(crate) async fn charged(&self, command: ServerCommand, charges: &Charges) -> Result<Document, ServerError> {
        let Some(meter) = self.meter.clone() else { return self.send_once(command.time_limit(self.command_timeout)).await };
        let charges = charges.clone();
        let ask = ServerCommand::of(&command.database, &doc! { "getLastRequestStatistics": 1 })?;
        let metered = async move {
            let _turn = meter.turn.lock().await;
            let reply = meter.transport.run(command).await;
            // An unknown cost cannot be counted, but does not affect the command itself.
            if let Ok(statistics) = meter.transport.run(ask).await
                && let Ok(units) = statistics.get_f64("RequestCharge")
            {
                charges.add(units);
            }
            reply
        };
        with_timeout(Some(self.command_timeout), metered).await
    }
}
