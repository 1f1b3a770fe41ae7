//! The cache of the server's storage engine.

use bson::doc;

use super::Deployment;
use crate::values::count_in;

/// Figures of the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CacheFigures {
    /// Size that the cache may have, in bytes.
    pub size: u64,
    /// Bytes that were written from the cache since the server began.
    pub written: u64,
}

/// Asks for the figures of the cache; `None` if the user may not ask (`clusterMonitor` may), or the server has no such cache.
pub(crate) async fn figures(deployment: &Deployment) -> Option<CacheFigures> {
    let status = deployment.read("admin", doc! { "serverStatus": 1 }).await.ok()?;
    let cache = status.get_document("wiredTiger").ok()?.get_document("cache").ok()?;
    Some(CacheFigures {
        size: count_in(cache, "maximum bytes configured")?,
        written: count_in(cache, "bytes written from cache")?,
    })
}
