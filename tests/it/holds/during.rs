//! Holds that come, go and break while a sweep deletes.

use std::collections::BTreeSet;
use std::process::{Child, Command};
use std::time::Duration;

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::options::{Acknowledgment, WriteConcern};

use crate::support::faults::{days, end, start, until_deleted_from};
use crate::support::proxied::Proxied;
use crate::support::proxy::Service;
use crate::support::proxy::fault::{Fault, Gate};
use crate::support::replica_set::ReplicaSet;
use crate::support::sweeper::{Case, Ran, id_set};

const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 5, rate: RATE, concurrency: 2, holds: {collection: DB.holds, key: t}}\n";

/// Returns a sweep that respects a hold after this many seconds, instead of 20.
fn sweep(case: &Case, rate: u32, seconds: u32) -> Command {
    let mut command = case.command(&RULE.replace("RATE", &rate.to_string()), &["sweep", "--format", "json"]);
    command.env("SWEEPER_TEST_HOLDS_SECONDS", seconds.to_string());
    command
}

fn document(id: i32, tenants: i32) -> Document {
    doc! { "_id": id, "at": days(-3), "t": id % tenants }
}

fn ended(ran: &Ran) -> serde_json::Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"))
}

/// Returns the keys that the filter of a delete leaves out.
fn left_out(filter: &Document) -> BTreeSet<i32> {
    let parts = filter.get_array("$and").into_iter().flatten().filter_map(Bson::as_document);
    parts.fold(BTreeSet::new(), |mut found, part| {
        let list = part.get_document("t").and_then(|condition| condition.get_array("$nin"));
        found.extend(list.into_iter().flatten().filter_map(Bson::as_i32));
        found.extend(left_out(part));
        found
    })
}

#[tokio::test]
async fn a_hold_that_a_majority_knew_of_in_time_is_in_every_delete() {
    const TENANTS: i32 = 6000;
    const DOCUMENTS: i32 = 6000;
    // The server refuses a delete a tenth of this before it would be too late, by the beginning of the command, which is before
    // the one that is profiled.
    const SECONDS: u32 = 6;
    // The profiler keeps commands of up to 50 KB whole.
    const HOLDS_AT_A_TIME: usize = 30;
    let set = tokio::task::spawn_blocking(|| ReplicaSet::start(1, &[])).await.unwrap();
    set.never_elect().await;
    let case = Case::at(&set.uri(), set.client().await, "t");
    case.fill("c", (0..DOCUMENTS).map(|id| document(id, TENANTS))).await;
    case.db.run_command(doc! { "createIndexes": "c", "indexes": [{ "key": { "at": 1 }, "name": "at_1" }] }).await.unwrap();
    case.db.create_collection("holds").await.unwrap();
    // By default the profiler keeps the last megabyte.
    let profile = doc! { "create": "system.profile", "capped": true, "size": 200_000_000 };
    case.db.run_command(profile).await.unwrap();
    case.db.run_command(doc! { "profile": 2 }).await.unwrap();
    let majority = WriteConcern::builder().w(Acknowledgment::Majority).build();
    let holds = case.collection("holds");
    let mut child = start(sweep(&case, 400, SECONDS));
    let mut known: Vec<(i32, DateTime)> = Vec::new();
    until_deleted_from(&case, "c", DOCUMENTS as usize).await;
    // In no order of the tenants, as long as the sweep runs.
    let tenants: Vec<i32> = (0..TENANTS).map(|n| n * 77 % TENANTS).collect();
    for tenants in tenants.chunks(HOLDS_AT_A_TIME).take(100) {
        if child.try_wait().unwrap().is_some() {
            break;
        }
        let several = tenants.iter().map(|tenant| doc! { "t": tenant });
        holds.insert_many(several).write_concern(majority.clone()).await.unwrap();
        let at = DateTime::now();
        known.extend(tenants.iter().map(|tenant| (*tenant, at)));
        tokio::time::sleep(Duration::from_millis(60)).await;
    }
    let ran = end(child).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    case.db.run_command(doc! { "profile": 0 }).await.unwrap();

    let profiled = case.db.collection::<Document>("system.profile").find(doc! { "op": "remove", "ns": "t.c" }).await.unwrap();
    let removes: Vec<Document> = profiled.try_collect().await.unwrap();
    let mut lists = BTreeSet::new();
    for remove in &removes {
        // The profiler notes the end. The beginning is no later than this.
        let took = match remove.get("millis") {
            Some(Bson::Int32(took)) => i64::from(*took),
            Some(Bson::Int64(took)) => *took,
            other => panic!("{other:?}"),
        };
        let begun = remove.get_datetime("ts").unwrap().timestamp_millis() - took;
        let filter = remove.get_document("command").unwrap().get_document("q").unwrap();
        let carried = left_out(filter);
        let in_time = known.iter().filter(|(_, at)| at.timestamp_millis() + i64::from(SECONDS) * 1000 <= begun);
        for (tenant, at) in in_time {
            assert!(carried.contains(tenant), "{tenant}, held since {at}, is not in {remove}");
        }
        lists.insert(carried.len());
    }
    // Holds came while the sweep deleted, and others before and after what it has deleted of them.
    assert!(lists.len() > 2, "{lists:?}");
    let left = case.ids("c").await;
    let held: BTreeSet<i32> = known.iter().map(|(tenant, _)| *tenant).collect();
    let of_held = id_set((0..DOCUMENTS).filter(|id| held.contains(&(id % TENANTS))));
    assert!(!left.is_empty() && left.is_subset(&of_held), "{} of {}", left.len(), of_held.len());

    // What a removed hold kept goes in the next run, and nothing else.
    let gone: Vec<i32> = known.iter().map(|(tenant, _)| *tenant).filter(|tenant| tenant % 2 == 0).collect();
    holds.delete_many(doc! { "t": { "$in": &gone } }).await.unwrap();
    let again = end(start(sweep(&case, 100_000, 20))).await;
    assert_eq!(again.code, Some(0), "{again:?}");
    let still = id_set((0..DOCUMENTS).filter(|id| held.contains(&(id % TENANTS)) && !gone.contains(&(id % TENANTS))));
    assert_eq!(case.ids("c").await, &left & &still);
}

/// Returns a slow sweep of 300 documents behind a proxy, of which some are held.
async fn slow(seconds: u32) -> (Proxied, Child) {
    let proxied = Proxied::behind(Service::Member, Case::new().await).await;
    let case = &proxied.case;
    case.fill("c", (0..300).map(|id| document(id, 10))).await;
    case.fill("holds", [doc! { "t": 0 }]).await;
    let command = sweep(case, 40, seconds);
    (proxied, start(command))
}

/// Asserts that a sweep ended in the middle, for this reason, and that its counts are right.
async fn assert_failed(case: &Case, child: Child, part: &str) {
    let ran = end(child).await;
    let rule = &ended(&ran)["rules"][0];
    assert_eq!((ran.code, rule["status"].as_str()), (Some(3), Some("failed")), "{ran:?}");
    let error = rule["error"].as_str().unwrap();
    assert!(error.contains(part) && error.contains("deleted before"), "{error}");
    let left = case.ids("c").await;
    assert!(left.len() > 30 && left.len() < 300, "{} are left: {ran:?}", left.len());
    assert_eq!(rule["deletedCount"], 300 - left.len(), "{ran:?}");
    assert!(left.is_superset(&id_set((0..300).filter(|id| id % 10 == 0))), "{ran:?}");
}

#[tokio::test]
async fn holds_that_may_not_be_read_any_more_end_the_sweep() {
    let (proxied, child) = slow(2).await;
    until_deleted_from(&proxied.case, "c", 300).await;
    let refused = doc! { "ok": 0.0, "code": 13, "codeName": "Unauthorized", "errmsg": "not authorized on t to execute command" };
    proxied.proxy.faults().next("find holds", 1, Fault::Answer { reply: refused, done: false });
    assert_failed(&proxied.case, child, "reading the holds").await;
}

#[tokio::test]
async fn a_hold_without_a_key_that_comes_during_the_sweep_ends_it() {
    let (proxied, child) = slow(2).await;
    until_deleted_from(&proxied.case, "c", 300).await;
    proxied.case.fill("holds", [doc! { "t": Bson::Null }]).await;
    assert_failed(&proxied.case, child, "`t` is null").await;
}

#[tokio::test]
async fn a_collection_of_holds_that_is_dropped_during_the_sweep_ends_it() {
    let (proxied, child) = slow(2).await;
    until_deleted_from(&proxied.case, "c", 300).await;
    proxied.case.collection("holds").drop().await.unwrap();
    assert_failed(&proxied.case, child, "does not exist").await;
}

#[tokio::test]
async fn trouble_with_the_holds_that_passes_is_waited_out() {
    let (proxied, child) = slow(2).await;
    until_deleted_from(&proxied.case, "c", 300).await;
    let faults = proxied.proxy.faults();
    let stepped_down = doc! { "ok": 0.0, "code": 189, "codeName": "PrimarySteppedDown", "errmsg": "stepped down" };
    faults.next("find holds", 2, Fault::Answer { reply: stepped_down, done: false });
    faults.next("find holds", 1, Fault::Close { done: false });
    let ran = end(child).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(proxied.case.ids("c").await, id_set((0..300).filter(|id| id % 10 == 0)));
}

#[tokio::test]
async fn a_delete_that_arrives_late_deletes_nothing_and_is_sent_again_with_the_holds_of_then() {
    let proxied = Proxied::behind(Service::Member, Case::new().await).await;
    let case = &proxied.case;
    case.fill("c", (0..300).map(|id| document(id, 10))).await;
    case.fill("holds", [doc! { "t": 0 }]).await;
    let gate = Gate::new();
    proxied.proxy.faults().once("delete", 0, Fault::Hold(gate.clone()));
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, concurrency: 1, holds: {collection: DB.holds, key: t}}\n";
    let mut command = case.command(rule, &["sweep", "--format", "json"]);
    command.env("SWEEPER_TEST_HOLDS_SECONDS", "2");
    let child = start(command);
    while proxied.proxy.requests_of("delete").is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    case.fill("holds", [doc! { "t": 7 }]).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let reply = gate.open().await;
    assert_eq!(reply.get_i32("n").unwrap(), 0, "{reply}");
    let error = reply.get_array("writeErrors").unwrap()[0].as_document().unwrap();
    assert!(error.get_str("errmsg").unwrap().contains("the time of this delete is over"), "{reply}");
    let ran = end(child).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(case.ids("c").await, id_set((0..300).filter(|id| id % 10 == 0 || id % 10 == 7)));
}

#[tokio::test]
async fn a_rule_without_holds_asks_and_carries_nothing_more() {
    let proxied = Proxied::behind(Service::Member, Case::new().await).await;
    let case = &proxied.case;
    case.fill("c", (0..300).map(|id| document(id, 10))).await;
    let ran = case.run("  - {namespace: DB.c, field: at, expireAfter: 1d}\n", &["sweep"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for delete in proxied.proxy.requests_of("delete") {
        let text = delete.body.to_string();
        assert!(!text.contains("$nin") && !text.contains("$$NOW"), "{text}");
    }
}

#[tokio::test]
async fn under_a_rate_a_rule_with_holds_sends_few_commands() {
    let case = Case::new().await;
    case.db.create_collection("holds").await.unwrap();
    let mut batches = Vec::new();
    for keys in ["", ", holds: {collection: DB.holds, key: t}"] {
        case.fill("c", (0..2000).map(|id| document(id, 10))).await;
        let rule = format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, rate: 5000{keys}}}\n");
        let report = case.report(&rule, &[]).await;
        assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(0), &2000.into()), "{report:?}");
        batches.push(report.rule(0, "batches").as_u64().unwrap());
    }
    // On a busy machine batches without holds become fewer too: what a rate has saved up meanwhile goes at once.
    assert!(batches[0] > batches[1] && batches[1] <= 8, "{batches:?}");
}
