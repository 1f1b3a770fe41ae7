//! Figures of one collection: the number and the mean size of its documents, and its shard key.

use bson::{Document, doc};

use super::Deployment;
use super::count::up_to;
use super::error::Result;
use super::find::Query;
use super::transport::ReadPreference;
use crate::facts::{Collection, CollectionKind, Figures, FileSize, Topology};
use crate::flavor::ShardKeys;
use crate::plan::guard::SCAN_GUARD_DOCUMENTS;
use crate::policy::namespace::Namespace;
use crate::values::{count_in, integer_in};

/// Reads the figures of a collection, or of the buckets of a time-series collection. Views and capped collections, which are
/// never swept, and time-series collections whose buckets the deployment does not show have none.
pub(crate) async fn of(deployment: &Deployment, collection: &Collection) -> Result<Figures> {
    match &collection.kind {
        CollectionKind::View | CollectionKind::Capped => Ok(Figures::default()),
        CollectionKind::TimeSeries(series) if !series.shows_buckets => Ok(Figures::default()),
        CollectionKind::TimeSeries(_) => {
            let document_count = count(deployment, &collection.storage()).await?;
            let stats = stats(deployment, &collection.namespace, document_count).await?;
            let of_buckets = |stats: &Document| integer_in(stats.get_document("timeseries").ok()?, "avgBucketSize");
            let average_bytes = stats.as_ref().and_then(of_buckets).map(|n| n as f64);
            Ok(Figures { document_count, average_bytes, file: stats.as_ref().and_then(file), ..Figures::default() })
        }
        CollectionKind::CosmosRu => {
            // One command less: there the reply has both.
            let stats = stats(deployment, &collection.namespace, 1).await?;
            let document_count = match stats.as_ref().and_then(|stats| count_in(stats, "count")) {
                Some(document_count) => document_count,
                None => count(deployment, &collection.namespace).await?,
            };
            let average_bytes = stats.and_then(|stats| integer_in(&stats, "avgObjSize")).filter(|_| document_count > 0);
            let (shard_key, throughput) = shard_key(deployment, &collection.namespace).await?;
            Ok(Figures { document_count, average_bytes: average_bytes.map(|n| n as f64), file: None, shard_key, throughput })
        }
        CollectionKind::Plain | CollectionKind::Clustered => {
            let document_count = count(deployment, &collection.namespace).await?;
            let stats = stats(deployment, &collection.namespace, document_count).await?;
            let average_bytes = stats.as_ref().and_then(|stats| integer_in(stats, "avgObjSize")).map(|n| n as f64);
            let (shard_key, throughput) = shard_key(deployment, &collection.namespace).await?;
            Ok(Figures { document_count, average_bytes, file: stats.as_ref().and_then(file), shard_key, throughput })
        }
    }
}

/// Counts the documents of a collection, by its own count if that is one.
pub(crate) async fn count(deployment: &Deployment, namespace: &Namespace) -> Result<u64> {
    let mut count = doc! { "count": &namespace.collection };
    if !deployment.facts.capabilities.own_counts {
        // With a query the documents are counted.
        count.insert("query", doc! {});
    }
    let reply = deployment.read(&namespace.database, count).await?;
    match count_in(&reply, "n").unwrap_or(0) {
        // After an unclean shutdown the own count may leave out documents; none is not believed without a look.
        0 if deployment.facts.capabilities.own_counts => up_to(deployment, namespace, None, SCAN_GUARD_DOCUMENTS + 1).await,
        documents => Ok(documents),
    }
}

/// Returns the reply to collStats; `None` if there is no document, or the user may not ask.
async fn stats(deployment: &Deployment, namespace: &Namespace, document_count: u64) -> Result<Option<Document>> {
    if document_count == 0 {
        return Ok(None);
    }
    match deployment.read(&namespace.database, doc! { "collStats": &namespace.collection }).await {
        Ok(stats) => Ok(Some(stats)),
        Err(cause) if cause.is_unavailable() => Ok(None),
        Err(cause) => Err(cause),
    }
}

/// Returns the size of the file with the documents, as collStats shows it from MongoDB 4.4 on.
fn file(stats: &Document) -> Option<FileSize> {
    Some(FileSize { size: count_in(stats, "storageSize")?, free: count_in(stats, "freeStorageSize")? })
}

/// Returns the paths of the shard key, which are empty if the collection is not sharded or the deployment does not show the key, and the request
/// units per second that the collection has.
///
/// Sources: MongoDB manual, "Config Database"; Microsoft, "Use MongoDB extension commands to manage data", GetCollection.
async fn shard_key(deployment: &Deployment, namespace: &Namespace) -> Result<(Vec<String>, Option<u32>)> {
    let facts = &deployment.facts;
    let key = match facts.capabilities.shard_keys {
        ShardKeys::ByGetCollection => {
            let command = doc! { "customAction": "GetCollection", "collection": &namespace.collection };
            let reply = deployment.read(&namespace.database, command).await;
            reply.map(|reply| (reply.get_document("shardKeyDefinition").ok().cloned(), throughput(&reply)))
        }
        ShardKeys::InConfig if facts.topology == Topology::Sharded => {
            let collections = Namespace { database: "config".into(), collection: "collections".into() };
            let entry = Query::find(&collections, doc! { "_id": namespace.to_string(), "dropped": { "$ne": true } });
            let entry = entry.limit(1).read_preference(ReadPreference::ConnectionString).first_batch(deployment).await;
            entry.map(|entry| (entry.first().and_then(|entry| Document::try_from(entry.get_document("key").ok()?).ok()), None))
        }
        ShardKeys::InConfig | ShardKeys::Unseen => return Ok((Vec::new(), None)),
    };
    match key {
        Ok((key, throughput)) => Ok((key.unwrap_or_default().keys().cloned().collect(), throughput)),
        // Deletes then go to every shard, which is correct as well.
        Err(cause) if cause.is_unavailable() => Ok((Vec::new(), None)),
        Err(cause) => Err(cause),
    }
}

/// Returns the throughput in a reply to GetCollection: what is provisioned, or the most that autoscale provides.
fn throughput(reply: &Document) -> Option<u32> {
    let autoscale = reply.get_document("autoScaleSettings").ok().and_then(|settings| integer_in(settings, "maxThroughput"));
    autoscale
        .or_else(|| integer_in(reply, "provisionedThroughput"))
        .and_then(|units| u32::try_from(units).ok())
        .filter(|units| *units > 0)
}
