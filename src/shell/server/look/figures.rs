//! Figures of one collection: the number and the mean size of its documents, and its shard key.

use bson::{Document, doc};

use super::count::up_to;
use super::sharding::{self, Sharding};
use crate::base::values::{count_in, integer_in};
use crate::core::facts::{Collection, CollectionKind, DataSize, Figures, FileSize};
use crate::core::plan::guard::SCAN_GUARD_DOCUMENTS;
use crate::core::policy::namespace::Namespace;
use crate::shell::server::Deployment;
use crate::shell::server::wire::error::Result;

/// Reads the figures of a collection, or of the buckets of a time-series collection, without the size where that is one command
/// more. Views and capped collections, which are never swept, and time-series collections whose buckets the deployment does not
/// show have none.
pub(crate) async fn of(deployment: &Deployment, collection: &Collection) -> Result<Figures> {
    match &collection.kind {
        CollectionKind::View | CollectionKind::Capped => Ok(Figures::default()),
        CollectionKind::TimeSeries(series) if !series.shows_buckets => Ok(Figures::default()),
        CollectionKind::TimeSeries(_) => {
            Ok(Figures { document_count: count(deployment, &collection.storage()).await?, ..Figures::default() })
        }
        CollectionKind::CosmosRu => {
            // There the reply has both.
            let stats = stats(deployment, &collection.namespace, 1).await?;
            let document_count = match stats.as_ref().and_then(|stats| count_in(stats, "count")) {
                Some(document_count) => document_count,
                None => count(deployment, &collection.namespace).await?,
            };
            let average_bytes = stats.and_then(|stats| integer_in(&stats, "avgObjSize")).filter(|_| document_count > 0);
            let size = DataSize { average_bytes: average_bytes.map(|n| n as f64), file: None };
            let figures = with_sharding(deployment, &collection.namespace).await?;
            Ok(Figures { document_count, size, ..figures })
        }
        CollectionKind::Plain | CollectionKind::Clustered => {
            let document_count = count(deployment, &collection.namespace).await?;
            let figures = with_sharding(deployment, &collection.namespace).await?;
            Ok(Figures { document_count, ..figures })
        }
    }
}

/// Reads the size of the documents of a collection that has so many of them; `None` where that came with the figures.
pub(crate) async fn size(deployment: &Deployment, namespace: &Namespace, document_count: u64) -> Result<Option<DataSize>> {
    if deployment.facts.capabilities.request_charge {
        return Ok(None);
    }
    let stats = stats(deployment, namespace, document_count).await?.unwrap_or_default();
    let average_bytes = match stats.get_document("timeseries") {
        Ok(series) => integer_in(series, "avgBucketSize"),
        Err(_) => integer_in(&stats, "avgObjSize"),
    };
    Ok(Some(DataSize { average_bytes: average_bytes.map(|n| n as f64), file: file(&stats) }))
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

/// Returns the size of the file with the documents, as collStats shows it from MongoDB 4.4 on. A mongos has the free part only in
/// the statistics of each shard (mongo `s/commands/cluster_coll_stats_cmd.cpp`).
fn file(stats: &Document) -> Option<FileSize> {
    let of =
        |stats: &Document| Some(FileSize { size: count_in(stats, "storageSize")?, free: count_in(stats, "freeStorageSize")? });
    let Ok(shards) = stats.get_document("shards") else { return of(stats) };
    let files = shards.values().map(|stats| of(stats.as_document()?)).collect::<Option<Vec<_>>>()?;
    files.into_iter().reduce(|all, file| FileSize { size: all.size + file.size, free: all.free + file.free })
}

/// Returns figures with the shard key of a collection and its throughput. The key is empty if the user may not read it: deletes
/// then go to every shard, which is correct as well.
async fn with_sharding(deployment: &Deployment, namespace: &Namespace) -> Result<Figures> {
    match sharding::of(deployment, namespace).await {
        Ok(Sharding { key: shard_key, throughput }) => Ok(Figures { shard_key, throughput, ..Figures::default() }),
        Err(cause) if cause.is_unavailable() => {
            let unknown = deployment.facts.is_behind_router().then(|| sharding::explain(deployment, &cause));
            Ok(Figures { shard_key_unknown: unknown, ..Figures::default() })
        }
        Err(cause) => Err(cause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_sharded_collection_is_the_sum_of_the_files_on_its_shards() {
        let of_one = |size: i32, free: i32| doc! { "storageSize": size, "freeStorageSize": free };
        let of = |size, free| Some(FileSize { size, free });
        assert_eq!(file(&of_one(9, 4)), of(9, 4));
        let sharded = doc! { "storageSize": 30, "shards": { "a": of_one(10, 3), "b": of_one(20, 1) } };
        assert_eq!(file(&sharded), of(30, 4));
        let before_4_4 = doc! { "storageSize": 30, "shards": { "a": of_one(10, 3), "b": { "storageSize": 20 } } };
        assert_eq!((file(&before_4_4), file(&doc! { "storageSize": 9 }), file(&doc! { "shards": {} })), (None, None, None));
    }
}
