//! Sharded collections, where an `_id` is unique on each shard only: what a sweep archived and deleted comes back whole, and every document of the
//! archive is in one count.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::support::archives::{archive, directory, restored};
use crate::support::cluster::{Cluster, middle};
use crate::support::faults::days;
use crate::support::proxy::router::Sharded;
use crate::support::sweeper::Ran;
use mongodb::bson::{Bson, RawDocumentBuf, doc};
use serde_json::Value;

/// Number of `_id`s that two expired documents share.
const TWINS: i32 = 40;

/// A collection `c` whose expired documents were archived and deleted.
struct Swept {
    cluster: Cluster,
    archive: PathBuf,
    before: BTreeSet<(usize, Vec<u8>)>,
    live: BTreeSet<(usize, Vec<u8>)>,
}

/// Returns the document with this `_id` of one of two twins, which differ in everything that a shard key of these tests names.
fn twin(id: i32, side: usize) -> RawDocumentBuf {
    let document = doc! {
        "tenant": (["acme", "zeta"][side]),
        "_id": id,
        "at": days([-3, -30][side]),
        "a": { "x": 0, "b": ([10, 90][side] + id % 5) },
        "v": format!("{id} of {side}"),
    };
    RawDocumentBuf::try_from(&document).unwrap()
}

/// Returns all shard keys of these tests. With the flag, two documents can have one `_id`.
fn keys() -> Vec<(Sharded, bool)> {
    let tenant_hash = Sharded::halves(doc! { "tenant": "hashed" }, middle());
    assert_ne!(tenant_hash.shard_of(&["acme".into()]), tenant_hash.shard_of(&["zeta".into()]));
    vec![
        (Sharded::halves(doc! { "tenant": 1 }, ["m".into()]), true),
        (Sharded::halves(doc! { "_id": "hashed" }, middle()), false),
        (Sharded::halves(doc! { "at": 1 }, [days(-10).into()]), true),
        (Sharded::halves(doc! { "tenant": 1, "at": 1 }, ["m".into(), Bson::MinKey]), true),
        (Sharded::halves(doc! { "a.b": 1 }, [50.into()]), true),
        (tenant_hash, true),
    ]
}

async fn swept(sharded: Sharded, has_twins: bool, rule: &str) -> Swept {
    let cluster = Cluster::new().await;
    cluster.shard("c", sharded).await;
    let sides = if has_twins { 2 } else { 1 };
    let documents: Vec<_> = (0..TWINS).flat_map(|id| (0..sides).map(move |side| twin(id, side))).collect();
    cluster.fill("c", &documents).await;
    let live = doc! { "_id": 1000, "tenant": "acme", "at": days(3), "a": { "b": 10 } };
    cluster.fill("c", &[RawDocumentBuf::try_from(&live).unwrap()]).await;
    let before = cluster.documents("c").await;
    let rule = format!(
        "  - {{namespace: DB.c, field: at, expireAfter: 1d, {rule}archive: {{directory: {}}}}}\n",
        directory(&cluster.case).display()
    );
    let ran = cluster.case.run(&rule, &["sweep"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let live = cluster.documents("c").await;
    assert_eq!((live.len(), before.len()), (1, documents.len() + 1), "{ran:?}");
    Swept { archive: archive(&directory(&cluster.case)), cluster, before, live }
}

/// Returns the counts of a report that are not 0.
fn counts(report: &Value) -> Vec<(&'static str, u64)> {
    let names = ["inserted", "replaced", "same", "different", "conflict", "refused"];
    let count = |name: &&'static str| (*name, report["namespaces"][0][format!("{name}Count")].as_u64().unwrap());
    names.iter().map(count).filter(|(_, count)| *count > 0).collect()
}

/// Restores the archive, which must end with this exit code and these counts.
async fn restores(swept: &Swept, args: &[&str], code: i32, expected: &[(&str, u64)]) -> (Value, Ran) {
    let (report, ran) = restored(&swept.cluster.case, &swept.archive, args).await;
    assert_eq!((ran.code, counts(&report).as_slice()), (Some(code), expected), "{ran:?}");
    (report, ran)
}

#[tokio::test]
async fn what_was_archived_and_deleted_comes_back_whole() {
    for (sharded, has_twins) in keys() {
        let shown = sharded.key.to_string();
        let swept = swept(sharded, has_twins, "").await;
        let all = swept.before.len() as u64 - 1;
        restores(&swept, &["--dry-run"], 0, &[("inserted", all)]).await;
        assert_eq!(swept.cluster.documents("c").await, swept.live, "{shown}");
        restores(&swept, &[], 0, &[("inserted", all)]).await;
        assert_eq!(swept.cluster.documents("c").await, swept.before, "{shown}");
        for args in [&[][..], &["--dry-run"], &["--replace"]] {
            restores(&swept, args, 0, &[("same", all)]).await;
            assert_eq!(swept.cluster.documents("c").await, swept.before, "{shown}");
        }
    }
}
