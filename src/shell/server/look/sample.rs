//! A look at a deployment for the author of a first policy: its largest collections, and some documents of one of them.

use std::time::Duration;

use bson::{Document, doc};
use futures_util::{StreamExt, stream};
use tokio::time::{Instant, timeout_at};

use super::{catalog, figures};
use crate::core::facts::{Collection, CollectionKind};
use crate::core::policy::namespace::{Namespace, NamespacePattern};
use crate::shell::server::wire::error::Result;
use crate::shell::server::wire::find::Query;
use crate::shell::server::wire::transport::ReadPreference;
use crate::shell::server::{Deployment, MAX_CONCURRENT_READS};

/// Maximum number of documents in a sample.
const MAX_SAMPLE: u64 = 100;

/// Time after which a sample is given up.
const MAX_TIME: Duration = Duration::from_secs(10);

/// Time after which the collections that were not counted stay so.
const MAX_COUNT_TIME: Duration = Duration::from_secs(3);

/// A collection with the number of its documents.
pub(crate) struct Counted {
    pub collection: Collection,
    /// `None` if they could not be counted in time.
    pub documents: Option<u64>,
}

/// The collections that the user may see.
pub(crate) struct Listed {
    /// Collections that can be swept, the largest first.
    pub fit: Vec<Counted>,
    /// Views and capped collections.
    pub unfit: Vec<Collection>,
}

/// Lists the collections that the user may see and a pattern matches, and counts those that can be swept.
///
/// Errors: the databases cannot be listed although a pattern has a `*` in its database.
pub(crate) async fn collections(deployment: &Deployment, patterns: &[NamespacePattern]) -> Result<Listed> {
    let catalog = catalog::catalog(deployment, &patterns.iter().collect::<Vec<_>>()).await?;
    let is_unfit = |collection: &Collection| matches!(collection.kind, CollectionKind::View | CollectionKind::Capped);
    let (unfit, fit): (Vec<_>, Vec<_>) = catalog.collections.into_iter().partition(is_unfit);
    let until = Instant::now() + MAX_COUNT_TIME;
    let counted = stream::iter(fit).map(|collection| async move {
        // A collection that cannot be counted can still be chosen.
        let counted = timeout_at(until, figures::count(deployment, &collection.storage())).await;
        let documents = counted.ok().and_then(Result::ok);
        Counted { collection, documents }
    });
    let mut counted: Vec<Counted> = counted.buffered(MAX_CONCURRENT_READS).collect().await;
    counted.sort_by(|a, b| b.documents.cmp(&a.documents).then_with(|| a.collection.namespace.cmp(&b.collection.namespace)));
    Ok(Listed { fit: counted, unfit })
}

/// Reads some documents: the latest ones by `_id`, if the service sorts.
///
/// Errors: the collection cannot be read in time.
pub(crate) async fn documents(deployment: &Deployment, namespace: &Namespace) -> Result<Vec<Document>> {
    let mut find = Query::find(namespace, doc! {}).limit(MAX_SAMPLE).max_time(Some(MAX_TIME));
    if deployment.facts.capabilities.sorts {
        find = find.sort(doc! { "_id": -1 });
    }
    find.read_preference(ReadPreference::ConnectionString).all(deployment).await
}
