//! A replica set of three that loses its primary, its majority or all of its members in the middle of a sweep: the sweep
//! continues if it can, ends by itself if it cannot, and never claims more deletions than there were.

use std::process::Child;
use std::time::{Duration, Instant};

use crate::support::faults::{Stopped, end, heal, pause_deletes, slow_down, start, until_running};
use crate::support::filled::{Filled, Way, until_whole};
use crate::support::mongod::Mongod;
use crate::support::replica_set::ReplicaSet;
use crate::support::site::Site;
use crate::support::sweeper::{Report, sweeper};
use mongodb::Client;
use mongodb::bson::{Document, doc};

const EXPIRED: i32 = 600;

/// With these options the driver soon notices a silent member.
const WATCHFUL: &str = "&heartbeatFrequencyMS=500&connectTimeoutMS=1000&serverSelectionTimeoutMS=20000";

/// Maximum time of any sweep in this file: each batch is tried at most four times, and each try waits for a server.
const BOUND: Duration = Duration::from_secs(150);

async fn set_of_three() -> (ReplicaSet, Client) {
    let set = tokio::task::spawn_blocking(|| ReplicaSet::start(3, &[])).await.expect("a replica set");
    set.prefer_no_member().await;
    let client = Client::with_uri_str(format!("{}{WATCHFUL}", set.uri())).await.expect("a client");
    (set, client)
}

async fn admin(member: &Mongod, command: Document) {
    let done = member.client().await.database("admin").run_command(command).await;
    done.expect("a command on one member");
}

async fn is_primary(member: &Mongod) -> bool {
    let hello = member.client().await.database("admin").run_command(doc! { "hello": 1 }).await.expect("hello");
    hello.get_bool("isWritablePrimary").expect("a role")
}

/// Slows deletes down on every member: whichever is the primary when the sweep begins, its batches take time.
async fn slow_down_all(set: &ReplicaSet, millis: i32) {
    for member in &set.members {
        slow_down(&member.client().await, "delete", millis).await;
    }
}

/// Returns the number of documents on one member.
async fn count(member: &Mongod) -> u64 {
    let collection = member.client().await.database("app").collection::<Document>("c");
    let mut count = None;
    // A member that recovers answers no reads.
    until(
        async || {
            count = collection.count_documents(doc! {}).await.ok();
            count.is_some()
        },
        "a member answers",
    )
    .await;
    count.expect("a count")
}

async fn until(mut is: impl AsyncFnMut() -> bool, what: &str) {
    let begun = Instant::now();
    while !is().await {
        assert!(begun.elapsed() < Duration::from_secs(60), "not within 60 s: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A running sweep and its collection.
struct Sweep {
    site: Site,
    uri: String,
    filled: Filled,
    child: Child,
    begun: Instant,
}

impl Sweep {
    /// Starts a sweep that takes some seconds, and waits until it deletes.
    async fn begin(set: &ReplicaSet, client: &Client, way: Way, options: &str) -> Self {
        Self::begin_with(set, client, way, options, 250).await
    }

    /// Starts a sweep whose deletes take this many milliseconds, and waits until it deletes.
    async fn begin_with(set: &ReplicaSet, client: &Client, way: Way, options: &str, millis: i32) -> Self {
        until_whole(set, client).await;
        let filled = Filled::new(client, way, EXPIRED).await.expect("an insert");
        slow_down_all(set, millis).await;
        let (site, uri) = (Site::new(), format!("{}{options}", set.uri()));
        let mut command = sweeper(&["sweep", "--format", "json", "--uri", &uri, "--policy"]);
        command.arg(site.policy("", &filled.rule));
        let sweep = Self { site, uri, filled, child: start(command), begun: Instant::now() };
        sweep.filled.until_begun().await;
        sweep
    }

    /// Waits for the end, compares the report with the documents left once the set is whole again, and finishes with a further
    /// run.
    async fn end(self, set: &mut ReplicaSet, client: &Client, repair: impl AsyncFnOnce(&mut ReplicaSet)) -> Report {
        let ran = end(self.child).await;
        assert!(self.begun.elapsed() < BOUND, "{ran:?}");
        let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
        let report = Report { json, ran };
        repair(set).await;
        until_whole(set, client).await;
        let left = self.filled.left().await.expect("the documents left");
        assert!(left.is_superset(&self.filled.live()), "live documents were deleted: {report:?}");
        let deleted = report.rule(0, "deletedCount").as_u64().expect("a count");
        let gone = (EXPIRED + crate::support::filled::LIVE) as u64 - left.len() as u64;
        let uncertain = report.rule(0, "uncertain") == true;
        // Deletes that a fail-over may have undone, according to the report.
        let doubtful = unconfirmed(&report);
        assert!(deleted - doubtful <= gone && gone <= deleted || uncertain && deleted < gone, "{deleted} of {gone}: {report:?}");
        match report.ran.code {
            Some(0) if self.uri.contains("&w=1") => {
                assert!(left.len() > self.filled.live().len(), "nothing came back: {report:?}")
            }
            Some(0) => assert_eq!(left, self.filled.live(), "{report:?}"),
            Some(3) => assert!(report.rule(0, "error").as_str().is_some_and(|error| error.contains("deleting: ")), "{report:?}"),
            _ => panic!("{report:?}"),
        }
        for member in &set.members {
            heal(&member.client().await).await;
        }
        let again = self.site.report(&self.uri.replace("&w=1", ""), &self.filled.rule, &[]).await;
        assert_eq!(again.ran.code, Some(0), "{again:?}");
        assert_eq!(self.filled.left().await.expect("the documents left"), self.filled.live(), "{again:?}");
        report
    }
}

/// Returns the number of documents that were deleted on a primary but not confirmed by a majority.
fn unconfirmed(report: &Report) -> u64 {
    report.rule(0, "unconfirmedCount").as_u64().expect("a rule that was swept")
}

fn assert_went_on(report: &Report) {
    assert_eq!(report.ran.code, Some(0), "{report:?}");
    assert!(report.ran.stderr.contains("trying again in"), "{report:?}");
}

#[tokio::test]
async fn a_primary_that_dies_with_batches_in_flight() {
    let (mut set, client) = set_of_three().await;
    for way in [Way::Index, Way::Ids, Way::Scan] {
        let sweep = Sweep::begin(&set, &client, way, WATCHFUL).await;
        let primary = set.primary(&client).await;
        pause_deletes(&client).await;
        // A delete that is only slow ends in this time, and the next one does not.
        tokio::time::sleep(Duration::from_secs(1)).await;
        until_running(&client, "delete").await;
        set.members[primary].kill();
        let report = sweep.end(&mut set, &client, async |set| set.members[primary].restart()).await;
        assert_went_on(&report);
        assert_eq!(report.rule(0, "uncertain"), true, "{report:?}");
    }
}

#[tokio::test]
async fn a_primary_that_steps_down_with_batches_in_flight() {
    let (mut set, client) = set_of_three().await;
    for way in [Way::Index, Way::Scan] {
        // The server may step down between two commands; that sweep ends as well, but it does not count.
        let mut reports = Vec::new();
        for _ in 0..5 {
            let sweep = Sweep::begin(&set, &client, way, WATCHFUL).await;
            let primary = set.primary(&client).await;
            // The step-down waits for a secondary without a gap to the primary: between slow batches there is one.
            slow_down_all(&set, 1000).await;
            admin(&set.members[primary], doc! { "replSetStepDown": 10, "secondaryCatchUpPeriodSecs": 10 }).await;
            let report = sweep.end(&mut set, &client, async |_| {}).await;
            assert_eq!(report.ran.code, Some(0), "{report:?}");
            let is_met = report.ran.stderr.contains("trying again in");
            reports.push(report);
            if is_met {
                break;
            }
        }
        assert_went_on(reports.last().expect("a report"));
    }
}

#[tokio::test]
async fn a_primary_that_says_nothing_more() {
    let (mut set, client) = set_of_three().await;
    // Includes the driver's default limits, under which it takes up to 20 s to notice.
    for (way, options) in [(Way::Index, WATCHFUL), (Way::Ids, WATCHFUL), (Way::Scan, "")] {
        let sweep = Sweep::begin(&set, &client, way, options).await;
        let primary = set.primary(&client).await;
        until_running(&client, "delete").await;
        let stopped = Stopped::new(set.members[primary].child.id());
        let report = sweep.end(&mut set, &client, async |_| drop(stopped)).await;
        assert_went_on(&report);
        assert_eq!(report.rule(0, "uncertain"), true, "{report:?}");
    }
}

#[tokio::test]
async fn a_secondary_that_says_nothing_leaves_a_majority() {
    let (mut set, client) = set_of_three().await;
    let sweep = Sweep::begin(&set, &client, Way::Index, WATCHFUL).await;
    let secondary = (set.primary(&client).await + 1) % 3;
    let stopped = Stopped::new(set.members[secondary].child.id());
    let report = sweep.end(&mut set, &client, async |_| drop(stopped)).await;
    assert_eq!((report.ran.code, report.rule(0, "uncertain")), (Some(0), &false.into()), "{report:?}");
}

#[tokio::test]
async fn a_majority_that_is_away_for_a_while_is_waited_for() {
    let (mut set, client) = set_of_three().await;
    let sweep = Sweep::begin(&set, &client, Way::Index, WATCHFUL).await;
    let primary = set.primary(&client).await;
    let stopped: Vec<Stopped> = [1, 2].iter().map(|step| Stopped::new(set.members[(primary + step) % 3].child.id())).collect();
    until(async || !is_primary(&set.members[primary]).await, "the primary notices, and steps down").await;
    drop(stopped);
    let report = sweep.end(&mut set, &client, async |_| {}).await;
    assert_went_on(&report);
}

#[tokio::test]
async fn a_majority_that_stays_away_fails_the_sweep_in_bounded_time() {
    let (mut set, client) = set_of_three().await;
    let options = WATCHFUL.replace("=20000", "=2000");
    let sweep = Sweep::begin(&set, &client, Way::Ids, &options).await;
    let primary = set.primary(&client).await;
    let stopped: Vec<Stopped> = [1, 2].iter().map(|step| Stopped::new(set.members[(primary + step) % 3].child.id())).collect();
    let report = sweep.end(&mut set, &client, async |_| drop(stopped)).await;
    assert_eq!((report.ran.code, report.rule(0, "status")), (Some(3), &"failed".into()), "{report:?}");
    assert!(unconfirmed(&report) > 0, "{report:?}");
}

#[tokio::test]
async fn a_set_that_is_started_anew() {
    let (mut set, client) = set_of_three().await;
    for way in [Way::Index, Way::Ids] {
        let sweep = Sweep::begin(&set, &client, way, WATCHFUL).await;
        until_running(&client, "delete").await;
        set.members.iter_mut().for_each(Mongod::kill);
        let mut set_again = set;
        set = tokio::task::spawn_blocking(move || {
            set_again.members.iter_mut().for_each(Mongod::restart);
            set_again
        })
        .await
        .expect("all members start");
        let report = sweep.end(&mut set, &client, async |_| {}).await;
        assert_went_on(&report);
        assert_eq!(report.rule(0, "uncertain"), true, "{report:?}");
    }
}

/// Sweeps while a fail-over takes back the deletes of this many documents, which only the primary knew of.
async fn through_rollback(options: &str, documents: u64) -> Report {
    let (mut set, client) = set_of_three().await;
    // A new primary must not fetch missing operations from the old one.
    let catch_up = doc! { "catchUpTimeoutMillis": 0 };
    set.reconfigure(|config| config.get_document_mut("settings").unwrap().extend(catch_up.clone())).await;
    set.never_elect().await;

    // So slow that most of the documents are still there when the others stop to replicate.
    let sweep = Sweep::begin_with(&set, &client, Way::Index, &format!("{WATCHFUL}{options}"), 1500).await;
    let primary = set.primary(&client).await;
    for step in [1, 2] {
        admin(&set.members[(primary + step) % 3], doc! { "configureFailPoint": "stopReplProducer", "mode": "alwaysOn" }).await;
    }
    let count = async |step| count(&set.members[(primary + step) % 3]).await;
    let is_ahead = async || count(0).await + documents <= count(1).await.min(count(2).await);
    until(is_ahead, "batches that only the primary knows of").await;
    admin(&set.members[primary], doc! { "replSetStepDown": 20, "secondaryCatchUpPeriodSecs": 0, "force": true }).await;
    // While the others do not replicate, they can only elect one of themselves.
    let others = [1, 2].map(|step| &set.members[(primary + step) % 3]);
    // The one that is behind the other is refused.
    let step_up = async |member: &Mongod| {
        let _ = member.client().await.database("admin").run_command(doc! { "replSetStepUp": 1 }).await;
        is_primary(member).await
    };
    until(async || step_up(others[0]).await || step_up(others[1]).await, "another one is elected").await;
    for step in [1, 2] {
        admin(&set.members[(primary + step) % 3], doc! { "configureFailPoint": "stopReplProducer", "mode": "off" }).await;
    }
    slow_down_all(&set, 250).await;
    sweep.end(&mut set, &client, async |_| {}).await
}

#[tokio::test]
async fn documents_that_a_fail_over_brings_back_are_not_counted_twice() {
    let report = through_rollback("", 1).await;
    assert_went_on(&report);
    assert!(report.ran.stderr.contains("a fail-over may bring documents back"), "{report:?}");
    assert_eq!(report.rule(0, "uncertain"), true, "{report:?}");
}

#[tokio::test]
async fn all_that_a_fail_over_may_take_back_under_a_weak_write_concern_is_unconfirmed() {
    let report = through_rollback("&w=1", 60).await;
    let deleted = report.rule(0, "deletedCount").as_u64().expect("a count");
    assert_eq!((unconfirmed(&report), deleted > 0), (deleted, true), "{report:?}");
    let warnings = report.rule(0, "warnings").to_string();
    assert!(warnings.contains("`w=1` is less than a majority of the 3 members: a fail-over may bring them back"), "{warnings}");
}
