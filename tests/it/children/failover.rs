//! A replica set that changes its primary between parents and their children, or takes back the deletes of the parents.

use std::time::{Duration, Instant};

use crate::support::family::{assert_kept, assert_whole, entries, fill, lines_of, orders, report_after, rule, short};
use crate::support::faults::{end, fail_commands, heal, pause_deletes, resume_deletes, start, until_deleting_from};
use crate::support::filled::until_whole;
use crate::support::mongod::Mongod;
use crate::support::replica_set::ReplicaSet;
use crate::support::sweeper::Case;
use mongodb::Client;
use mongodb::bson::{Document, doc};

/// With these options the driver soon notices a change.
const WATCHFUL: &str = "&heartbeatFrequencyMS=500&connectTimeoutMS=1000&serverSelectionTimeoutMS=20000";

async fn set_of_three() -> (ReplicaSet, Case) {
    let set = tokio::task::spawn_blocking(|| ReplicaSet::start(3, &[])).await.unwrap();
    set.reconfigure(|config| {
        for member in config.get_array_mut("members").unwrap() {
            member.as_document_mut().unwrap().insert("priority", 1);
        }
        // A new primary must not fetch missing operations from the old one.
        config.get_document_mut("settings").unwrap().insert("catchUpTimeoutMillis", 0);
    })
    .await;
    set.never_elect().await;
    let uri = format!("{}{WATCHFUL}", set.uri());
    let client = Client::with_uri_str(&uri).await.unwrap();
    until_whole(&set, &client).await;
    let case = Case::at(&uri, client, "t");
    (set, case)
}

async fn admin(member: &Mongod, command: Document) {
    member.client().await.database("admin").run_command(command).await.expect("a command on one member");
}

/// Lets members replicate, or not.
async fn replicate(members: [&Mongod; 2], on: bool) {
    for member in members {
        let mode = if on { "off" } else { "alwaysOn" };
        admin(member, doc! { "configureFailPoint": "stopReplProducer", "mode": mode }).await;
    }
}

/// Makes the primary step down at once, and one of the others the primary.
async fn fail_over(set: &ReplicaSet, primary: usize) {
    let down = doc! { "replSetStepDown": 60, "secondaryCatchUpPeriodSecs": 0, "force": true };
    admin(&set.members[primary], down).await;
    let others = [1, 2].map(|step| &set.members[(primary + step) % 3]);
    let begun = Instant::now();
    // The one that is behind the other is refused.
    for member in others.iter().cycle() {
        let admin = member.client().await.database("admin");
        let _ = admin.run_command(doc! { "replSetStepUp": 1 }).await;
        let hello = admin.run_command(doc! { "hello": 1 }).await.unwrap();
        if hello.get_bool("isWritablePrimary").unwrap() {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "no other member was elected within 60 s");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Sweeps once more, and asserts that only the orders from `live` on are left, each with its lines, and no other line.
async fn assert_finished(case: &Case, live: i32) {
    let before = orders(case).await;
    let report = report_after(case, &rule("")).await;
    assert_eq!((report.ran.code, report.rule(0, "status")), (Some(0), &"complete".into()), "{report:?}");
    assert_eq!(orders(case).await, before.into_iter().filter(|order| *order >= live).collect(), "{report:?}");
    assert_whole(case, &format!("{report:?}")).await;
    assert!(entries(case).await.is_empty(), "{report:?}");
}

#[tokio::test]
async fn a_primary_that_steps_down_between_parents_and_children_leaves_no_orphan() {
    let (set, case) = set_of_three().await;
    for (first, is_killed) in [(0, false), (100, true)] {
        fill(&case, first..first + 50, 1000 + first..1010 + first).await;
        let primary = set.primary(&case.client).await;
        let of_primary = set.members[primary].client().await;
        // An error that passes: the sweep tries again, and comes no further as long as this member is the primary.
        let fault = doc! { "failCommands": ["find"], "namespace": "t.lines", "errorCode": 11_602 };
        fail_commands(&of_primary, "alwaysOn", fault).await;
        let mut child = start(short(case.command(&rule(""), &["sweep"])));
        while lines_of(&case).await.len() == orders(&case).await.len() {
            assert!(child.try_wait().unwrap().is_none(), "the sweep ended before a parent went: {:?}", end(child).await);
        }
        if is_killed {
            child.kill().unwrap();
        }
        fail_over(&set, primary).await;
        heal(&of_primary).await;
        let ran = end(child).await;
        assert!(is_killed || matches!(ran.code, Some(0 | 3)), "{ran:?}");
        assert_kept(&case, &format!("{ran:?}")).await;
        let living = orders(&case).await;
        assert!((1000 + first..1010 + first).all(|order| living.contains(&order)), "{living:?} {ran:?}");
        assert_finished(&case, 1000).await;
        until_whole(&set, &case.client).await;
    }
}

#[tokio::test]
async fn parents_that_are_gone_from_the_primary_only_keep_their_children_and_may_come_back() {
    let (set, case) = set_of_three().await;
    fill(&case, 0..5, 5..10).await;
    let primary = set.primary(&case.client).await;
    let of_primary = set.members[primary].client().await;
    let others = [1, 2].map(|step| &set.members[(primary + step) % 3]);
    // Once the entry is in the journal, nothing reaches a majority any more.
    pause_deletes(&of_primary).await;
    let hasty = Case::at(&format!("{}&wtimeoutMS=1000", case.uri), case.client.clone(), "t");
    let child = start(short(hasty.command(&rule(""), &["sweep"])));
    until_deleting_from(&of_primary.database("t").collection("orders")).await;
    replicate(others, false).await;
    resume_deletes(&of_primary).await;
    let ran = end(child).await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    assert_eq!(orders(&case).await, (5..10).collect(), "{ran:?}");

    // The next run finds the entry, and parents that are gone from the primary.
    let report = case.report(&rule(""), &["--max-duration", "5s"]).await;
    assert_eq!(report.ran.code, Some(4), "{report:?}");
    assert_eq!(lines_of(&case).await, (0..10).map(|order| (order, 3)).collect(), "{report:?}");

    fail_over(&set, primary).await;
    replicate(others, true).await;
    until_whole(&set, &case.client).await;
    assert_eq!(orders(&case).await, (0..10).collect(), "the fail-over brings the parents back");
    assert_whole(&case, "after the fail-over").await;
    assert_finished(&case, 5).await;
    assert_eq!(orders(&case).await, (5..10).collect());
}

#[tokio::test]
async fn without_a_majority_for_its_entry_no_parent_goes() {
    let (set, case) = set_of_three().await;
    fill(&case, 0..5, 5..10).await;
    let primary = set.primary(&case.client).await;
    let others = [1, 2].map(|step| &set.members[(primary + step) % 3]);
    replicate(others, false).await;
    let report = case.report(&rule(""), &["--max-duration", "5s"]).await;
    assert_eq!(report.ran.code, Some(4), "{report:?}");
    assert_eq!(orders(&case).await, (0..10).collect(), "{report:?}");
    replicate(others, true).await;
    until_whole(&set, &case.client).await;
    assert_finished(&case, 5).await;
}
