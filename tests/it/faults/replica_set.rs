//! A replica set of three: its description in the report, and sweeps while a secondary is stopped, lags, or the primary changes.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::support::faults::{Stopped, send};
use crate::support::mongod::Mongod;
use crate::support::pool::{Kept, Shared};
use crate::support::replica_set::ReplicaSet;
use crate::support::site::Site;
use crate::support::sweeper::{id_set, ids};
use mongodb::bson::{DateTime, Document, doc};
use mongodb::options::WriteConcern;
use mongodb::{Client, Collection};
use serde_json::Value;

const DAY: i64 = 86_400_000;

/// Returns the set that the tests of this file share; they run one at a time.
fn shared() -> Kept<tokio::sync::Mutex<ReplicaSet>> {
    static SHARED: Shared<tokio::sync::Mutex<ReplicaSet>> = Shared::new();
    let log = ["--setParameter", "logComponentVerbosity={command: {verbosity: 1}}"];
    SHARED.get(|| tokio::sync::Mutex::new(ReplicaSet::start(3, &log)))
}

fn date(id: i32) -> DateTime {
    DateTime::from_millis(DateTime::now().timestamp_millis() - 10 * DAY + i64::from(id))
}

/// Inserts `expired` documents that have expired, from 0 on, and then 50 live ones; all members have them when it returns.
async fn filled(client: &Client, name: &str, expired: i32) -> (Collection<Document>, String) {
    let c = client.database("app").collection::<Document>(name);
    let documents = (0..expired + 50).map(|id| doc! { "_id": id, "at": if id < expired { date(id) } else { DateTime::now() } });
    let all = WriteConcern::builder().w(mongodb::options::Acknowledgment::Nodes(3)).build();
    let filled = c.insert_many(documents).write_concern(all).await;
    filled.expect("an insert");
    (c, format!("  - {{namespace: app.{name}, field: at, expireAfter: 1d, batchSize: 500}}\n"))
}

/// Returns the current primary and the other members.
async fn members<'a>(set: &'a ReplicaSet, client: &Client) -> (&'a Mongod, Vec<&'a Mongod>) {
    let hello = client.database("admin").run_command(doc! { "hello": 1 }).await.expect("hello");
    let primary = hello.get_str("primary").expect("a primary").to_owned();
    let is_primary = |member: &&Mongod| primary.ends_with(&format!(":{}", member.port));
    let (primary, others): (Vec<_>, Vec<_>) = set.members.iter().partition(is_primary);
    (primary[0], others)
}

async fn admin(member: &Mongod, command: Document) {
    let done = member.client().await.database("admin").run_command(command).await;
    done.expect("a command on one member");
}

#[tokio::test]
async fn the_report_names_the_set_and_deletes_reach_the_majority() {
    let (set, site) = (shared(), Site::new());
    let set = set.lock().await;
    let client = set.client().await;
    let (c, rules) = filled(&client, "plain", 20).await;
    let dry = site.report(&set.uri(), &rules, &["--dry-run"]).await;
    assert_eq!(dry.ran.code, Some(0), "{dry:?}");
    assert_eq!(dry.rule(0, "expiredCount"), 20);
    assert_eq!(ids(&c).await.len(), 70);
    let swept = site.report(&set.uri(), &rules, &[]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    assert_eq!(swept.rule(0, "deletedCount"), 20);
    assert_eq!(ids(&c).await, id_set(20..70));
    for report in [&dry, &swept] {
        assert_eq!(report.json["server"]["topology"], "replicaSet");
        assert_eq!(report.json["server"]["name"], "rs0");
    }

    let (primary, _) = members(&set, &client).await;
    let log = std::fs::read_to_string(primary.dir.path().join("log")).expect("the primary's log");
    let entries = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let concerns: Vec<Value> = entries
        .map(|entry| entry["attr"]["command"].clone())
        .filter(|command| command["delete"] == "plain")
        .map(|command| command["writeConcern"].clone())
        .collect();
    assert_eq!(concerns, [serde_json::json!({ "w": "majority" })]);
}

#[tokio::test]
async fn deletes_that_do_not_reach_the_majority_are_counted_and_said() {
    let (set, site) = (shared(), Site::new());
    let set = set.lock().await;
    let client = set.client().await;
    let (c, rules) = filled(&client, "lagging", 20).await;
    let (_, secondaries) = members(&set, &client).await;
    for secondary in &secondaries {
        admin(secondary, doc! { "configureFailPoint": "stopReplProducer", "mode": "alwaysOn" }).await;
    }
    let report = site.report(&format!("{}&wtimeoutMS=1000", set.uri()), &rules, &[]).await;
    for secondary in &secondaries {
        admin(secondary, doc! { "configureFailPoint": "stopReplProducer", "mode": "off" }).await;
    }
    assert_eq!(report.ran.code, Some(3), "{report:?}");
    assert_eq!(report.rule(0, "deletedCount"), 20);
    assert!(report.rule(0, "error").to_string().contains("write concern was not reached"), "{report:?}");
    assert_eq!(ids(&c).await, id_set(20..70));
}

#[tokio::test]
async fn a_secondary_that_does_not_answer_does_not_stop_a_sweep() {
    let (set, site) = (shared(), Site::new());
    let set = set.lock().await;
    let client = set.client().await;
    let (c, rules) = filled(&client, "stopped", 20).await;
    let (primary, secondaries) = members(&set, &client).await;
    let stopped = Stopped::new(secondaries[0].child.id());
    // The dry run asks the silent member first.
    let silent_first = format!("mongodb://127.0.0.1:{},127.0.0.1:{}/?replicaSet=rs0", secondaries[0].port, primary.port);
    let dry = site.report(&silent_first, &rules, &["--dry-run"]).await;
    assert_eq!((dry.ran.code, dry.rule(0, "expiredCount").as_u64()), (Some(0), Some(20)), "{dry:?}");
    let swept = site.report(&set.uri(), &rules, &[]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    assert_eq!(swept.rule(0, "deletedCount"), 20);
    drop(stopped);
    assert_eq!(ids(&c).await, id_set(20..70));
}

/// Gives documents new dates, each once. Returns the `_id`s confirmed by the majority, and the `_id`s whose outcome is unknown.
async fn rescue(c: Collection<Document>, expired: i32) -> (BTreeSet<i32>, BTreeSet<i32>) {
    let (mut rescued, mut unknown) = (BTreeSet::new(), BTreeSet::new());
    for id in (0..expired).rev().step_by(10) {
        let threshold = DateTime::from_millis(DateTime::now().timestamp_millis() - 5 * DAY);
        let still_expired = doc! { "_id": id, "at": { "$lt": threshold } };
        let update = doc! { "$set": { "at": DateTime::now() } };
        let moved = c.find_one_and_update(still_expired, update).write_concern(WriteConcern::majority()).await;
        match moved {
            Ok(Some(_)) => drop(rescued.insert(id)),
            Ok(None) => {}
            Err(_) => drop(unknown.insert(id)),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    (rescued, unknown)
}

/// A change of the primary in the middle of a sweep.
enum Trouble {
    StepsDown,
    Dies,
}

/// Changes the primary during a sweep and concurrent writes; afterwards no live document is missing and no expired one is left.
async fn through_a_change(set: &ReplicaSet, name: &str, trouble: Trouble) {
    const EXPIRED: i32 = 1500;
    let site = Site::new();
    let uri = format!("{}&heartbeatFrequencyMS=500&connectTimeoutMS=1000&serverSelectionTimeoutMS=5000", set.uri());
    let client = Client::with_uri_str(&uri).await.expect("a client");
    let (c, rules) = filled(&client, name, EXPIRED).await;
    let (primary, _) = members(set, &client).await;
    let writer = tokio::spawn(rescue(c.clone(), EXPIRED));

    let change = async {
        // In the middle: some are deleted, most are not.
        while c.count_documents(doc! {}).await.expect("a count") > EXPIRED as u64 - 300 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        match trouble {
            Trouble::StepsDown => {
                let step_down = doc! { "replSetStepDown": 20, "secondaryCatchUpPeriodSecs": 10 };
                admin(primary, step_down).await;
            }
            Trouble::Dies => send(primary.child.id(), "KILL"),
        }
    };
    let (report, ()) = tokio::join!(site.report(&uri, &rules, &["--rate", "1000"]), change);
    let (rescued, unknown) = writer.await.expect("the writer");
    assert_ne!(primary.port, members(set, &client).await.0.port, "the primary has changed");

    let deleted = report.rule(0, "deletedCount").as_u64().expect("a count");
    let gone = (EXPIRED + 50) as u64 - c.count_documents(doc! {}).await.expect("a count");
    let uncertain = report.rule(0, "uncertain") == true;
    assert!(deleted == gone || (uncertain && deleted < gone), "{deleted} of {gone}: {report:?}");
    assert_eq!(report.ran.code, Some(0), "{report:?}");

    let left = ids(&c).await;
    let must: BTreeSet<String> = id_set(rescued.iter().copied().chain(EXPIRED..EXPIRED + 50));
    let may = &must | &id_set(unknown);
    assert!(left.is_superset(&must), "live documents were deleted: {:?}", &must - &left);
    assert!(left.is_subset(&may), "expired documents are left: {:?}", &left - &may);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_steps_down_in_the_middle_costs_no_live_document() {
    let set = shared();
    through_a_change(&*set.lock().await, "stepdown", Trouble::StepsDown).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_primary_that_dies_in_the_middle_costs_no_live_document() {
    let set = ReplicaSet::start(3, &[]);
    through_a_change(&set, "dies", Trouble::Dies).await;
}

/// A fail-over may take such deletes back, as `failover` shows.
#[tokio::test]
async fn deletes_that_no_majority_need_confirm_are_unconfirmed_and_the_report_says_why() {
    let set = shared();
    let set = set.lock().await;
    let (client, site) = (set.client().await, Site::new());
    for (options, part) in [
        ("&w=1", Some("`w=1` is less than a majority of the 3 members")),
        ("&journal=false", Some("with `journal=false` members confirm what is not yet on their disks")),
        ("&w=2", None),
        ("", None),
    ] {
        let (c, rules) = filled(&client, "weak", 20).await;
        let swept = site.report(&format!("{}{options}", set.uri()), &rules, &[]).await;
        assert_eq!((swept.ran.code, swept.rule(0, "deletedCount")), (Some(0), &20.into()), "{swept:?}");
        let unconfirmed = if part.is_some() { 20 } else { 0 };
        assert_eq!(swept.rule(0, "unconfirmedCount"), unconfirmed, "{options}: {swept:?}");
        let warnings = swept.rule(0, "warnings").to_string();
        match part {
            Some(part) => {
                assert!(warnings.contains(part) && warnings.contains("a fail-over may bring them back"), "{warnings}");
                assert!(swept.ran.stderr.contains(part) && swept.ran.stderr.contains("warning: "), "{swept:?}");
            }
            None => assert!(!warnings.contains("fail-over") && !swept.ran.stderr.contains("majority"), "{swept:?}"),
        }
        assert_eq!(ids(&c).await, id_set(20..70));
        c.drop().await.unwrap();
    }
}
