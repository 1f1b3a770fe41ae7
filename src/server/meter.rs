//! What requests cost on services that bill them. The service tells only of the last request, so that each goes over a connection of its
//! own, one at a time.

use std::sync::Arc;

use bson::{Document, RawDocumentBuf, doc};
use mongodb::Client;
use mongodb::error::Result;
use mongodb::options::ClientOptions;
use parking_lot::Mutex;

use super::{Deployment, answer};
use crate::policy::namespace::Namespace;

/// A connection whose last request is known.
pub struct Meter {
    client: Client,
    turn: tokio::sync::Mutex<()>,
}

impl Meter {
    /// Errors: the options are not valid.
    pub fn open(mut options: ClientOptions) -> Result<Self> {
        options.max_pool_size = Some(1);
        options.min_pool_size = None;
        Ok(Self { client: Client::with_options(options)?, turn: tokio::sync::Mutex::new(()) })
    }
}

/// Request units that were spent and not yet looked at. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Charges(Arc<Mutex<f64>>);

impl Charges {
    fn add(&self, units: f64) {
        *self.0.lock() += units;
    }

    /// What was spent since this was last asked.
    pub fn take(&self) -> f64 {
        std::mem::take(&mut *self.0.lock())
    }
}

impl Deployment {
    /// Runs a command of a sweep; where the service bills requests, what it cost is added to the charges.
    pub async fn charged(&self, namespace: &Namespace, command: RawDocumentBuf, charges: &Charges) -> Result<Document> {
        let Some(meter) = self.meter.clone() else {
            let database = self.database(namespace);
            return answer::within(self.patience, async move { database.run_raw_command(command).await }).await;
        };
        let (database, charges) = (meter.client.database(&namespace.database), charges.clone());
        let metered = async move {
            let _turn = meter.turn.lock().await;
            let reply = database.run_raw_command(command).await;
            // What is not known cannot be counted; that is no trouble of the command itself.
            if let Ok(statistics) = database.run_command(doc! { "getLastRequestStatistics": 1 }).await
                && let Ok(units) = statistics.get_f64("RequestCharge")
            {
                charges.add(units);
            }
            reply
        };
        answer::within(self.patience, metered).await
    }
}
