//! Reads of a replica set that see all that its majority knew before they began, and nothing that a fail-over could take back.

use bson::{Bson, Document, doc};

use crate::core::policy::namespace::Namespace;
use crate::shell::server::Deployment;
use crate::shell::server::wire::error::Result;

/// Time limit of the read that a majority confirms.
const MAX_CONFIRM_MS: i64 = 10_000;

/// Returns the read concern, of a level, of a read that follows. A read of one document with read concern `linearizable` comes
/// first. That read succeeds only on a primary that a majority confirms, and its operation time is later than every write that
/// this primary had made before. A primary that was cut off cannot have such a point in time, so that its old state is never
/// taken for the present one (MongoDB manual, "Read Concern linearizable").
///
/// Errors: no answer, or no majority that confirms the primary.
pub(crate) async fn concern(deployment: &Deployment, collection: &Namespace, level: &str) -> Result<Document> {
    let confirmed = doc! {
        "find": &collection.collection, "limit": 1, "singleBatch": true, "projection": { "_id": 1 },
        "readConcern": { "level": "linearizable" }, "maxTimeMS": MAX_CONFIRM_MS,
    };
    let reply = deployment.read(&collection.database, confirmed).await?;
    let mut concern = doc! { "level": level };
    if let Some(Bson::Timestamp(time)) = reply.get("operationTime") {
        concern.insert("afterClusterTime", *time);
    }
    Ok(concern)
}
