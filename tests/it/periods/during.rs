//! Periods that become longer, or break, while a sweep deletes.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::bson::{DateTime, Document, doc};
use mongodb::options::{Acknowledgment, WriteConcern};

use crate::support::faults::{days, end, start, until_deleted_from};
use crate::support::replica_set::ReplicaSet;
use crate::support::sweeper::{Case, id_set};

/// Seconds, in place of 20, after which a longer period is respected.
const SECONDS: u32 = 4;

fn sweep(case: &Case, rate: u32) -> Command {
    let rule = format!(
        "  - {{namespace: DB.c, field: at, expireAfter: 400d, batchSize: 5, rate: {rate}, concurrency: 2, \
         periods: {{collection: DB.tenants, key: {{of: t, in: _id}}, value: days, unit: d}}}}\n"
    );
    let mut command = case.command(&rule, &["sweep", "--format", "json"]);
    command.env("SWEEPER_TEST_HOLDS_SECONDS", SECONDS.to_string());
    command
}

#[tokio::test]
async fn a_longer_period_that_a_majority_knew_of_in_time_keeps_its_documents() {
    const TENANTS: i32 = 3000;
    let set = tokio::task::spawn_blocking(|| ReplicaSet::start(1, &[])).await.unwrap();
    set.never_elect().await;
    let case = Case::at(&set.uri(), set.client().await, "t");
    case.fill("tenants", (0..TENANTS).map(|id| doc! { "_id": id, "days": 1 + id % 3 })).await;
    case.fill("c", (0..TENANTS).map(|id| doc! { "_id": id, "at": days(-9), "t": id })).await;
    case.db.run_command(doc! { "createIndexes": "c", "indexes": [{ "key": { "at": 1 }, "name": "at_1" }] }).await.unwrap();
    let majority = WriteConcern::builder().w(Acknowledgment::Majority).build();
    let tenants = case.collection("tenants");
    let mut child = start(sweep(&case, 200));
    until_deleted_from(&case, "c", TENANTS as usize).await;
    let mut longer: BTreeMap<i32, DateTime> = BTreeMap::new();
    // In no order of the tenants, as long as the sweep runs.
    let order: Vec<i32> = (0..TENANTS).map(|n| n * 77 % TENANTS).collect();
    for some in order.chunks(20) {
        if child.try_wait().unwrap().is_some() {
            break;
        }
        let change = doc! { "$set": { "days": if some[0] % 2 == 0 { 30 } else { -1 } } };
        tenants.update_many(doc! { "_id": { "$in": some } }, change).write_concern(majority.clone()).await.unwrap();
        let at = DateTime::now();
        longer.extend(some.iter().map(|tenant| (*tenant, at)));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let ran = end(child).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let left = case.ids("c").await;
    let of_longer = id_set(longer.keys().copied());
    assert!(!left.is_empty() && left.is_subset(&of_longer), "{} of {}", left.len(), of_longer.len());
    // The oplog says when each document went.
    let deletes = doc! { "op": "d", "ns": "t.c" };
    let oplog = case.client.database("local").collection::<Document>("oplog.rs");
    let entries: Vec<Document> = oplog.find(deletes).await.unwrap().try_collect().await.unwrap();
    let mut late = 0;
    for entry in &entries {
        let id = entry.get_document("o").unwrap().get_i32("_id").unwrap();
        let went = entry.get_datetime("wall").unwrap().timestamp_millis();
        if let Some(known) = longer.get(&id) {
            let after = went - known.timestamp_millis();
            assert!(after < i64::from(SECONDS) * 1000, "{id} went {after} ms after its period became longer");
            late += i32::from(after > 0);
        }
    }
    assert!(entries.len() + left.len() == TENANTS as usize && late > 0, "{} {} {late}", entries.len(), left.len());
    // A period that is short again lets its documents go in the next run.
    tenants.update_many(doc! {}, doc! { "$set": { "days": 1 } }).write_concern(majority).await.unwrap();
    let again = end(start(sweep(&case, 100_000))).await;
    assert_eq!((again.code, case.ids("c").await), (Some(0), id_set::<i32>([])), "{again:?}");
}

#[tokio::test]
async fn a_period_that_becomes_unclear_keeps_its_documents_and_a_key_that_breaks_ends_the_sweep() {
    let case = Case::new().await;
    case.fill("tenants", (0..10).map(|id| doc! { "_id": id, "days": 1 })).await;
    case.fill("c", (0..400).map(|id| doc! { "_id": id, "at": days(-9), "t": id % 10 })).await;
    let child = start(sweep(&case, 40));
    until_deleted_from(&case, "c", 400).await;
    case.collection("tenants").update_one(doc! { "_id": 3 }, doc! { "$set": { "days": "1" } }).await.unwrap();
    tokio::time::sleep(Duration::from_secs(u64::from(SECONDS))).await;
    let of_three = id_set((0..400).filter(|id| id % 10 == 3));
    let then = &case.ids("c").await & &of_three;
    let ran = end(child).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!then.is_empty());
    assert_eq!(case.ids("c").await, then);

    let case = Case::new().await;
    case.fill("tenants", (0..10).map(|id| doc! { "_id": id, "days": 1 })).await;
    case.fill("c", (0..400).map(|id| doc! { "_id": id, "at": days(-9), "t": id % 10 })).await;
    let child = start(sweep(&case, 40));
    until_deleted_from(&case, "c", 400).await;
    case.collection("tenants").drop().await.unwrap();
    let ran = end(child).await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert!(ran.stdout.contains("does not exist; expected the collection of the periods"), "{ran:?}");
    assert!(case.ids("c").await.len() > 30);
}
