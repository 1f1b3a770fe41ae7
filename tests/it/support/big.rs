//! A collection of more than a million documents. Tests share it, and none changes it: it takes seconds to fill.

use mongodb::bson::{DateTime, doc};

use super::mongod::block_on;
use super::pool::{Shared, standalone};
use super::sweeper::Case;

const DATABASE: &str = "big";

/// Documents of the collection.
pub(crate) const DOCUMENTS: u64 = 1_100_000;

/// The instant before which there is a document for every ten seconds; the newest has the `_id` 0.
pub(crate) const AS_OF: &str = "2026-01-31T02:00:00.000Z";

/// Returns a case whose database has the collection `big`, without an index on its date `at`.
pub(crate) async fn big() -> Case {
    static FILLED: Shared<()> = Shared::new();
    let _filled = tokio::task::spawn_blocking(|| FILLED.get(|| block_on(fill()))).await.expect("a filled collection");
    Case::named(DATABASE).await
}

async fn fill() {
    let mongod = tokio::task::spawn_blocking(standalone).await.expect("the shared server");
    let database = mongod.client().await.database(DATABASE);
    let now = DateTime::parse_rfc3339_str(AS_OF).unwrap();
    let id = doc! { "$add": [{ "$multiply": ["$a", 1000] }, "$b"] };
    let stages = vec![
        doc! { "$documents": [{ "a": { "$range": [0, DOCUMENTS as i64 / 1000] } }] },
        doc! { "$unwind": "$a" },
        doc! { "$set": { "b": { "$range": [0, 1000] } } },
        doc! { "$unwind": "$b" },
        doc! { "$project": { "_id": &id, "even": { "$mod": ["$b", 2] }, "at": { "$subtract": [now, { "$multiply": [&id, 10_000] }] } } },
        doc! { "$out": "big" },
    ];
    database.run_command(doc! { "aggregate": 1, "pipeline": stages, "cursor": {} }).await.expect("an aggregate");
}
