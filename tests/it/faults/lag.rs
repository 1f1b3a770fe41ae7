//! `maxLag` on a real replica set: the members that count, unknown lag, and deployments where the user may not see the members.

use std::process::Command;
use std::time::{Duration, Instant};

use crate::support::faults::{end, signal, start};
use crate::support::mongod::Mongod;
use crate::support::replica_set::ReplicaSet;
use crate::support::said::Said;
use crate::support::sweeper::{Report, id_set, ids, sweeper};
use mongodb::Client;
use mongodb::bson::{DateTime, Document, doc};
use mongodb::options::{Acknowledgment, WriteConcern};

const EXPIRED: i32 = 3000;

async fn set_of_three() -> (ReplicaSet, Client) {
    let set = tokio::task::spawn_blocking(|| ReplicaSet::start(3, &[])).await.expect("a replica set");
    // Every member has its part in these tests.
    set.never_elect().await;
    let client = set.client().await;
    (set, client)
}

/// Fills `app.c`, on all members, with documents of which the first have expired.
async fn fill(client: &Client) {
    let now = DateTime::now().timestamp_millis();
    let at = |id| if id < EXPIRED { now - 864_000_000 + i64::from(id) } else { now };
    let documents = (0..EXPIRED + 5).map(|id| doc! { "_id": id, "at": DateTime::from_millis(at(id)) });
    let all = WriteConcern::builder().w(Acknowledgment::Nodes(3)).build();
    let c = client.database("app").collection::<Document>("c");
    c.insert_many(documents).write_concern(all).await.expect("an insert");
}

async fn left(client: &Client) -> usize {
    ids(&client.database("app").collection("c")).await.len()
}

/// A sweep in batches that are small enough to pause between them.
fn sweep(set: &ReplicaSet, keys: &str, args: &[&str]) -> Command {
    let policy = format!(
        "version: 1\ncollections:\n  - {{namespace: app.c, field: at, expireAfter: 1d, batchSize: 100, maxLag: 2s{keys}}}\n"
    );
    let path = set.members[0].dir.path().join("policy.yaml");
    std::fs::write(&path, policy).expect("a policy");
    let mut command = sweeper(&[&["sweep", "--format", "json", "--uri", &set.uri()], args].concat());
    command.arg("--policy").arg(path);
    command
}

async fn report(child: std::process::Child) -> Report {
    let ran = end(child).await;
    let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("no report: {cause}\n{ran:?}"));
    Report { json, ran }
}

/// Stops a secondary from fetching the writes of the primary, or lets it continue.
async fn replicate(member: &Mongod, on: bool) {
    let mode = if on { "off" } else { "alwaysOn" };
    let command = doc! { "configureFailPoint": "stopReplProducer", "mode": mode };
    member.client().await.database("admin").run_command(command).await.expect("a fail point");
}

/// Writes to another collection until the member is at least four seconds behind.
async fn let_lag(client: &Client, member: &Mongod) {
    replicate(member, false).await;
    for _ in 0..6 {
        client.database("app").collection("other").insert_one(doc! {}).await.expect("a write");
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test]
async fn a_sweep_waits_for_one_member_of_three_and_goes_on_when_it_is_near() {
    let (set, client) = set_of_three().await;
    fill(&client).await;
    let_lag(&client, &set.members[1]).await;
    let mut child = start(sweep(&set, "", &[]));
    let said = Said::by(&mut child);
    let who = format!("waiting: 127.0.0.1:{} is ", set.members[1].port);
    said.until(&who).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    // Three seconds would be enough to delete everything.
    assert_eq!(left(&client).await, 3005);
    replicate(&set.members[1], true).await;
    let mut swept = report(child).await;
    swept.ran.stderr = said.into_text();
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    assert_eq!(swept.rule(0, "deletedCount"), EXPIRED);
    assert!(swept.rule(0, "pausedMs")["lag"].as_u64().unwrap() > 1000, "{swept:?}");
    assert!(swept.ran.stderr.contains(&who) && swept.ran.stderr.contains("2 s are allowed"), "{swept:?}");
    assert_eq!(ids(&client.database("app").collection("c")).await, id_set(EXPIRED..EXPIRED + 5));

    // Clients do not read from a hidden member, and a delayed one lags on purpose: both are ignored.
    for settings in
        [doc! { "priority": 0, "hidden": true }, doc! { "priority": 0, "hidden": false, "secondaryDelaySecs": 3600_i64 }]
    {
        let delayed = settings.contains_key("secondaryDelaySecs");
        client.database("app").collection::<Document>("c").drop().await.unwrap();
        fill(&client).await;
        set.reconfigure(|config| {
            config.get_array_mut("members").unwrap()[2].as_document_mut().unwrap().extend(settings.clone());
        })
        .await;
        if !delayed {
            let_lag(&client, &set.members[2]).await;
        }
        let swept = report(start(sweep(&set, "", &["--max-duration", "90s"]))).await;
        assert_eq!(swept.ran.code, Some(0), "{swept:?}");
        assert_eq!(swept.rule(0, "deletedCount"), EXPIRED);
        // On a busy machine the other member may really lag behind.
        let left_behind = format!("127.0.0.1:{} is ", set.members[2].port);
        assert!(!swept.ran.stderr.contains("is unknown") && !swept.ran.stderr.contains(&left_behind), "{swept:?}");
        replicate(&set.members[2], true).await;
    }
}

#[tokio::test]
async fn a_member_that_is_gone_counts_as_lagging_and_the_run_can_be_ended() {
    let (mut set, client) = set_of_three().await;
    fill(&client).await;
    set.members[2].kill();
    let gone = format!("lag is unknown: 127.0.0.1:{} is ", set.members[2].port);
    let swept = report(start(sweep(&set, ", rate: 200", &["--max-duration", "12s"]))).await;
    assert_eq!(swept.ran.code, Some(4), "{swept:?}");
    assert_eq!((swept.rule(0, "status"), swept.rule(0, "reason")), (&"partial".into(), &"maxDuration".into()));
    assert_eq!(swept.rule(0, "deletedCount"), 3005 - left(&client).await);
    // At first the member only lags: this one, or another that copied its operations from it.
    assert!(swept.ran.stderr.contains("app.c: waiting: "), "{swept:?}");
    assert!(swept.rule(0, "pausedMs")["lag"].as_u64().unwrap() > 0, "{swept:?}");

    let before = left(&client).await;
    let mut child = start(sweep(&set, "", &[]));
    let said = Said::by(&mut child);
    said.until(&gone).await;
    said.until("0 deleted, 0 per second; app.c 0 (waiting: ").await;
    signal(&child, "TERM");
    let swept = report(child).await;
    assert_eq!(swept.ran.code, Some(143), "{swept:?}");
    assert_eq!((swept.rule(0, "reason"), swept.rule(0, "deletedCount")), (&"interrupted".into(), &0.into()));
    assert_eq!(left(&client).await, before);
}

#[tokio::test]
async fn where_the_members_may_not_be_seen_a_majority_has_to_confirm_in_time() {
    let (set, client) = set_of_three().await;
    fill(&client).await;
    // The reply of the server to a user without `clusterMonitor`.
    let forbidden = doc! {
        "configureFailPoint": "failCommand",
        "mode": "alwaysOn",
        "data": { "failCommands": ["replSetGetStatus", "replSetGetConfig"], "errorCode": 13, "appName": "sweeper" },
    };
    client.database("admin").run_command(forbidden).await.unwrap();
    for member in &set.members[1..] {
        replicate(member, false).await;
    }
    let child = start(sweep(&set, "", &[]));
    let begun = Instant::now();
    while left(&client).await == 3005 {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing was deleted within 60 s");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // Two seconds for the first batches, and some more to show that no others follow.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let few = left(&client).await;
    assert!((2805..3005).contains(&few), "{few} left: two batches may be in flight");
    for member in &set.members[1..] {
        replicate(member, true).await;
    }
    let swept = report(child).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    assert_eq!((swept.rule(0, "deletedCount"), swept.rule(0, "uncertain")), (&EXPIRED.into(), &false.into()));
    assert!(swept.rule(0, "pausedMs")["lag"].as_u64().unwrap() > 1000, "{swept:?}");
    assert!(swept.ran.stderr.contains("no majority of the members has confirmed a batch within 2 s"), "{swept:?}");
    assert!(swept.rule(0, "warnings")[0].as_str().unwrap().contains("clusterMonitor"), "{swept:?}");
    assert_eq!(ids(&client.database("app").collection("c")).await, id_set(EXPIRED..EXPIRED + 5));

    // A sweep that ends without a confirmation reports its deletes as unconfirmed.
    client.database("app").collection::<Document>("c").drop().await.unwrap();
    fill(&client).await;
    for member in &set.members[1..] {
        replicate(member, false).await;
    }
    let swept = report(start(sweep(&set, "", &["--max-duration", "10s"]))).await;
    assert_eq!(swept.ran.code, Some(4), "{swept:?}");
    assert_eq!(swept.rule(0, "reason"), "maxDuration");
    let gone = 3005 - left(&client).await;
    assert!(gone > 0 && swept.rule(0, "deletedCount") == gone, "{gone}: {swept:?}");
    assert!(swept.rule(0, "warnings").to_string().contains("not confirmed by the members in time"), "{swept:?}");
}
