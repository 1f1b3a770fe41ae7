//! A look at a deployment for somebody who has no policy yet: its largest collections, and some documents of one.

use std::time::Duration;

use bson::{Document, doc};
use futures_util::{StreamExt, stream};
use super::error::Result;

use super::find::Query;
use super::transport::ReadPreference;
use super::{Deployment, inspect, native};
use crate::native::{Collection, Kind};
use crate::policy::namespace::{Namespace, NamespacePattern};

/// Collections that are counted at the same time.
const AT_ONCE: usize = 8;

/// Documents that are looked at.
const SAMPLE: u64 = 100;

/// The sample is not worth waiting for longer than this.
const LONGEST: Duration = Duration::from_secs(10);

/// A collection with the number of its documents.
pub struct Counted {
    pub collection: Collection,
    pub documents: u64,
}

/// The collections that can be swept and the user may see, those with most documents first.
///
/// Errors: the databases cannot be listed.
pub async fn collections(deployment: &Deployment) -> Result<Vec<Counted>> {
    let everything = [NamespacePattern { database: "*".into(), collection: "*".into() }];
    let catalog = native::catalog(deployment, &everything).await?;
    let fit = catalog.collections.into_iter().filter(|collection| !matches!(collection.kind, Kind::View | Kind::Capped));
    let counted = stream::iter(fit).map(|collection| async move {
        let stored = match collection.kind {
            Kind::TimeSeries { .. } => collection.namespace.buckets(),
            _ => collection.namespace.clone(),
        };
        // One that cannot be counted can still be chosen.
        let documents = inspect::count(deployment, &stored).await.unwrap_or(0);
        Counted { collection, documents }
    });
    let mut counted: Vec<Counted> = counted.buffered(AT_ONCE).collect().await;
    counted.sort_by(|a, b| b.documents.cmp(&a.documents).then_with(|| a.collection.namespace.cmp(&b.collection.namespace)));
    Ok(counted)
}

/// Some documents: the latest by `_id`, where the service sorts.
///
/// Errors: the collection cannot be read in time.
pub async fn documents(deployment: &Deployment, namespace: &Namespace) -> Result<Vec<Document>> {
    let mut find = Query::find(namespace, doc! {}).limit(SAMPLE).max_time(Some(LONGEST));
    if deployment.facts.capabilities.sorts {
        find = find.sort(doc! { "_id": -1 });
    }
    find.read_preference(ReadPreference::ConnectionString).all(deployment).await
}
