//! Collections that are dropped, renamed or replaced while a rule sweeps them, or before its first delete: the rule fails with
//! the reason, and nothing is deleted in a collection that took the name.

use std::process::Command;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use mongodb::bson::{DateTime, Document, doc};

use crate::support::family;
use crate::support::faults::{dated, days, end, start, until_deleted_from};
use crate::support::proxied::Proxied;
use crate::support::proxy::cosmos::CosmosRu;
use crate::support::proxy::document_db::DocumentDb;
use crate::support::proxy::{Proxy, Service};
use crate::support::sweeper::{Case, Report, id_set};
use crate::support::terminal::Terminal;

/// Change that others make to a collection.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    Dropped,
    Renamed,
    /// Another collection is renamed to its name.
    Replaced,
    /// It is dropped, and another one is created.
    CreatedAgain,
}

use Change::{CreatedAgain, Dropped, Renamed, Replaced};

impl Change {
    /// Changes a collection. One that takes its name has the documents 1000 to 1099.
    async fn make(self, case: &Case, name: &str) {
        let namespace = |name: &str| format!("{}.{name}", case.db.name());
        let rename = async |from: &str, to: &str| {
            let rename = doc! { "renameCollection": namespace(from), "to": namespace(to), "dropTarget": true };
            case.client.database("admin").run_command(rename).await.expect("another name");
        };
        match self {
            Dropped => case.collection(name).drop().await.expect("a drop"),
            Renamed => rename(name, "kept").await,
            Replaced => {
                case.fill("other", others()).await;
                case.db.run_command(doc! { "createIndexes": "other", "indexes": [at_1()] }).await.expect("an index");
                rename("other", name).await;
            }
            CreatedAgain => {
                case.collection(name).drop().await.expect("a drop");
                case.fill(name, others()).await;
            }
        }
    }

    /// Whether a reason is the reason of the change. Between a drop and what follows it, a run may look; and a drop ends a delete
    /// that is running before others see that the collection is gone.
    fn is_said(self, case: &Case, name: &str, error: &str) -> bool {
        let is_dropped = || self == CreatedAgain && error.contains(&Dropped.reason(case, name));
        let is_ended_by_drop = error.contains("dropped, renamed or moved during the run: query plan killed");
        error.contains(&self.reason(case, name)) || is_dropped() || is_ended_by_drop
    }

    /// Returns what the run says of it.
    fn reason(self, case: &Case, name: &str) -> String {
        let namespace = format!("`{}.{name}`", case.db.name());
        match self {
            Dropped => format!("{namespace} was dropped during the run"),
            Renamed => format!("{namespace} was renamed to `{}.kept` during the run", case.db.name()),
            Replaced | CreatedAgain => format!("{namespace} was replaced by another collection during the run"),
        }
    }
}

fn at_1() -> Document {
    doc! { "key": { "at": 1 }, "name": "at_1" }
}

/// Returns the documents of a collection that takes a name; all have expired.
fn others() -> impl Iterator<Item = Document> {
    dated(1000..1100, days(-3))
}

/// Documents of the collection that is swept: 400 have expired.
fn documents() -> impl Iterator<Item = Document> {
    dated(0..400, days(-3)).chain(dated(400..410, days(3)))
}

async fn filled(case: &Case, is_indexed: bool) {
    case.fill("c", documents()).await;
    if is_indexed {
        case.db.run_command(doc! { "createIndexes": "c", "indexes": [at_1()] }).await.expect("an index");
    }
}

fn read(ran: crate::support::sweeper::Ran) -> Report {
    let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    Report { json, ran }
}

/// Sweeps slowly, and makes the change once something is deleted.
async fn swept_while(case: &Case, rules: &str, change: Change) -> Report {
    let child = start(case.command(rules, &["sweep", "--format", "json"]));
    until_deleted_from(case, "c", 410).await;
    change.make(case, "c").await;
    read(end(child).await)
}

/// Sweeps, holds the run back by its pause file once something is deleted, and makes the change meanwhile.
async fn swept_around(case: &Case, mut command: Command, change: Change) -> Report {
    let pause = case.dir.path().join("pause");
    command.arg("--pause-file").arg(&pause);
    let child = start(command);
    until_deleted_from(case, "c", 410).await;
    std::fs::write(&pause, "").expect("a file");
    let begun = Instant::now();
    let mut left = case.ids("c").await;
    loop {
        tokio::time::sleep(Duration::from_secs(3)).await;
        let now = case.ids("c").await;
        if now == left {
            break;
        }
        left = now;
        assert!(begun.elapsed() < Duration::from_secs(60), "the run does not pause");
    }
    assert!(left.len() > 10, "too late: {left:?}");
    change.make(case, "c").await;
    std::fs::remove_file(&pause).expect("the file");
    read(end(child).await)
}

/// Asserts that the first rule failed for the change, that its count is right, and who survives. `full` documents were there
/// before.
async fn assert_failed(case: &Case, report: &Report, change: Change) {
    assert_eq!((report.ran.code, report.rule(0, "status")), (Some(3), &"failed".into()), "{change:?} {report:?}");
    let error = report.rule(0, "error").as_str().expect("a reason");
    assert!(change.is_said(case, "c", error), "{change:?} {error}");
    let deleted = report.rule(0, "deletedCount").as_u64().expect("a number");
    assert!((1..400).contains(&deleted), "{change:?} {report:?}");
    assert!(error.contains(&format!("{deleted} document")), "{change:?} {error}");
    assert_eq!(report.rule(0, "remainingCount"), &serde_json::Value::Null, "what is left of it is unknown: {report:?}");
    match change {
        Dropped => assert_eq!(case.ids("c").await, id_set::<i32>([])),
        Renamed => {
            let kept = case.ids("kept").await;
            let gone = 410 - kept.len() as u64;
            let is_right = if report.rule(0, "uncertain") == true { gone >= deleted } else { gone == deleted };
            assert!(is_right && kept.is_superset(&id_set(400..410)), "{gone} {report:?}");
        }
        Replaced | CreatedAgain => assert_eq!(case.ids("c").await, id_set(1000..1100), "{change:?} {report:?}"),
    }
}

const SLOW: &str = "batchSize: 10, rate: 100, concurrency: 1";

/// Tries the changes on collections of their own, at the same time.
async fn all_of(rule: &str, is_indexed: bool, changes: &[Change]) {
    join_all(changes.iter().map(async |change| {
        let case = Case::new().await;
        filled(&case, is_indexed).await;
        let report = swept_while(&case, rule, *change).await;
        assert_failed(&case, &report, *change).await;
    }))
    .await;
}

const ALL: [Change; 4] = [Dropped, Renamed, Replaced, CreatedAgain];

#[tokio::test]
async fn a_rule_along_an_index_ends_with_its_collection() {
    all_of(&format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, {SLOW}}}\n"), true, &ALL).await;
}

#[tokio::test]
async fn a_rule_without_an_index_ends_with_its_collection() {
    all_of(&format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, {SLOW}}}\n"), false, &ALL).await;
}

#[tokio::test]
async fn a_rule_with_times_of_the_documents_own_ends_with_its_collection() {
    all_of(
        &format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, ttlField: ttl, allowUnknownFields: [ttl], {SLOW}}}\n"),
        true,
        &ALL,
    )
    .await;
}

#[tokio::test]
async fn a_rule_by_single_ids_ends_with_its_collection() {
    all_of(&format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, maxDeletes: 390, {SLOW}}}\n"), true, &ALL).await;
}

#[tokio::test]
async fn a_rule_that_archives_ends_with_its_collection() {
    join_all(ALL.iter().map(async |change| {
        let case = Case::new().await;
        filled(&case, true).await;
        let to = case.dir.path().join("archive");
        std::fs::create_dir(&to).expect("a directory");
        let archive = format!("archive: {{directory: {}}}", to.display());
        let rule = format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, {SLOW}, {archive}}}\n");
        let report = swept_while(&case, &rule, *change).await;
        assert_failed(&case, &report, *change).await;
        let archived = report.rule(0, "archivedCount").as_u64().expect("a number");
        assert!(archived >= report.rule(0, "deletedCount").as_u64().expect("a number"), "{report:?}");
    }))
    .await;
}

#[tokio::test]
async fn a_rule_in_the_order_of_the_storage_ends_with_its_collection() {
    let rule =
        "  - {namespace: DB.c, field: at, expireAfter: 1d, order: storage, batchSize: 10, targetBatchMs: 100, concurrency: 1}\n";
    for change in [Dropped, Replaced] {
        let case = Case::new().await;
        filled(&case, true).await;
        let report =
            swept_around(&case, case.command(&format!("{rule}run: {{rate: 100}}\n"), &["sweep", "--format", "json"]), change)
                .await;
        assert_failed(&case, &report, change).await;
    }
}

#[tokio::test]
async fn a_time_series_collection_that_is_dropped_or_created_again_ends_its_rule() {
    for change in [Dropped, CreatedAgain] {
        let case = Case::new().await;
        let create = doc! { "create": "s", "timeseries": { "timeField": "t", "metaField": "m" } };
        // Each series has a bucket of its own.
        let measured = |id: i32| doc! { "_id": id, "t": days(-3), "m": id };
        case.db.run_command(create.clone()).await.expect("a collection");
        case.fill("s", (0..400).map(measured)).await;
        let rule = format!("  - {{namespace: DB.s, expireAfter: 1d, {SLOW}}}\n");
        let child = start(case.command(&rule, &["sweep", "--format", "json"]));
        until_deleted_from(&case, "s", 400).await;
        case.collection("s").drop().await.expect("a drop");
        if change == CreatedAgain {
            case.db.run_command(create).await.expect("a collection");
            case.fill("s", (1000..1100).map(measured)).await;
        }
        let report = read(end(child).await);
        assert_eq!((report.ran.code, report.rule(0, "status")), (Some(3), &"failed".into()), "{report:?}");
        let error = report.rule(0, "error").as_str().expect("a reason");
        assert!(change.is_said(&case, "system.buckets.s", error), "{error}");
        let survivors = if change == CreatedAgain { id_set(1000..1100) } else { id_set::<i32>([]) };
        assert_eq!(case.ids("s").await, survivors, "{report:?}");
    }
}

/// Sweeps orders with lines, and makes the change of a collection once something is deleted.
async fn orders_swept_while(database: &str, name: &str, change: Change) -> (Case, Report) {
    let case = family::case(database).await;
    family::fill(&case, 0..200, 200..205).await;
    let child = start(case.command(&family::rule(", rate: 60"), &["sweep", "--format", "json"]));
    until_deleted_from(&case, "orders", 205).await;
    change.make(&case, name).await;
    let report = read(end(child).await);
    assert_eq!((report.ran.code, report.rule(0, "status")), (Some(3), &"failed".into()), "{change:?} {report:?}");
    let error = report.rule(0, "error").as_str().expect("a reason");
    assert!(change.is_said(&case, name, error), "{change:?} {error}");
    (case, report)
}

#[tokio::test]
async fn a_rule_with_children_ends_with_the_collection_of_the_parents_and_no_child_of_a_living_parent_goes() {
    for (database, change) in [("uuid_renamed", Renamed), ("uuid_replaced", Replaced), ("uuid_dropped", Dropped)] {
        let (case, report) = orders_swept_while(database, "orders", change).await;
        if change == Renamed {
            let orders = case.ids("kept").await;
            let lines = family::lines_of(&case).await;
            let robbed: Vec<&String> = orders
                .iter()
                .filter(|id| (0..205).any(|order| id_set([order]).contains(*id) && lines.get(&order) != Some(&3)))
                .collect();
            assert!(robbed.is_empty(), "{robbed:?} {report:?}");
        }
        if change == Replaced {
            assert_eq!(case.ids("orders").await, id_set(1000..1100), "{report:?}");
        }
    }
}

#[tokio::test]
async fn a_rule_with_children_ends_with_the_collection_of_the_children() {
    for (database, change) in [("uuid_lines_replaced", Replaced), ("uuid_lines_dropped", Dropped)] {
        let (case, report) = orders_swept_while(database, "lines", change).await;
        if change == Replaced {
            assert_eq!(case.ids("lines").await, id_set(1000..1100), "{report:?}");
        }
    }
}

#[tokio::test]
async fn a_collection_that_is_replaced_while_the_question_waits_keeps_every_document() {
    for (change, service) in
        [(Replaced, None), (Dropped, None), (Replaced, Some(Service::Mongos)), (Dropped, Some(Service::Mongos))]
    {
        let mut case = Case::new().await;
        filled(&case, true).await;
        // Four of five stay.
        case.fill("c", dated(2000..4000, days(3))).await;
        let proxy;
        if let Some(service) = service {
            let port = case.uri.rsplit_once(':').and_then(|(_, rest)| rest.split('/').next()?.parse().ok()).expect("a port");
            proxy = Proxy::start(port, service).await;
            case.uri = proxy.uri();
        }
        let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, maxDeletePercent: 50}\n";
        let terminal = Terminal::open(&case.command(rule, &["sweep"])).until_asked().await;
        change.make(&case, "c").await;
        let ran = terminal.types("yes\n").end().await;
        assert_eq!(ran.code, Some(3), "{ran:?}");
        assert!(ran.stdout.contains("failed: nothing was deleted"), "{ran:?}");
        let survivors = if change == Replaced { id_set(1000..1100) } else { id_set::<i32>([]) };
        assert_eq!(case.ids("c").await, survivors, "{ran:?}");
    }
}

/// Sweeps through a proxy, around each change, where the server does not look at UUIDs itself.
async fn looked_at(service: impl Fn() -> Service, changes: &[Change], is_indexed: bool) {
    join_all(changes.iter().map(async |change| {
        let case = Case::new().await;
        filled(&case, is_indexed).await;
        let proxied = Proxied::behind(service(), case).await;
        let rule = format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, {SLOW}}}\n");
        let command = proxied.case.command(&rule, &["sweep", "--format", "json"]);
        let report = swept_around(&proxied.case, command, *change).await;
        assert_failed(&proxied.case, &report, *change).await;
        let deletes = proxied.proxy.requests_of("delete");
        assert!(deletes.iter().all(|delete| !delete.body.contains_key("collectionUUID")), "{deletes:?}");
    }))
    .await;
}

#[tokio::test]
async fn where_the_server_does_not_look_the_catalog_is_looked_at() {
    looked_at(|| Service::Mongos, &ALL, true).await;
    looked_at(|| Service::Mongos, &ALL, false).await;
}

#[tokio::test]
async fn a_server_that_refuses_the_uuid_is_swept_by_looks() {
    looked_at(|| Service::NoUuids, &[Replaced, Dropped], true).await;
    let case = Case::new().await;
    filled(&case, true).await;
    let proxied = Proxied::behind(Service::NoUuids, case).await;
    let report = proxied.case.report("  - {namespace: DB.c, field: at, expireAfter: 1d}\n", &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(0), &400.into()), "{report:?}");
    assert_eq!(proxied.case.ids("c").await, id_set(400..410));
}

#[tokio::test]
async fn services_on_azure_are_looked_at_as_far_as_they_show_their_collections() {
    looked_at(|| Service::DocumentDb(DocumentDb::default()), &[Replaced, Dropped], true).await;
    looked_at(|| Service::CosmosRu(CosmosRu::default()), &[Dropped], false).await;
}

#[tokio::test]
async fn a_run_looks_at_the_catalog_every_few_seconds_and_not_with_each_batch() {
    let case = Case::new().await;
    filled(&case, true).await;
    let proxied = Proxied::behind(Service::Mongos, case).await;
    let begun = DateTime::now().timestamp_millis();
    let report = proxied.case.report(&format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, {SLOW}}}\n"), &[]).await;
    let seconds = (DateTime::now().timestamp_millis() - begun) / 1000;
    assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(0), &400.into()), "{report:?}");
    let looks = proxied.proxy.requests_of("listCollections").len();
    let batches = proxied.proxy.requests_of("delete").len();
    // Planned, before the first delete, every two seconds, and at the end.
    assert!(looks as i64 <= seconds / 2 + 4 && batches > 2 * looks, "{looks} looks, {batches} batches, {seconds} s");
}

#[tokio::test]
async fn where_the_server_looks_itself_no_command_is_added_to_a_batch() {
    let case = Case::new().await;
    filled(&case, true).await;
    let proxied = Proxied::behind(Service::Member, case).await;
    let report = proxied.case.report(&format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, {SLOW}}}\n"), &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(0), &400.into()), "{report:?}");
    let requests = proxied.proxy.requests();
    let listed = requests.iter().filter(|request| request.name == "listCollections").count();
    assert_eq!(listed, 1, "the plan lists the collection");
    let deletes: Vec<_> = requests.iter().filter(|request| request.name == "delete").collect();
    assert!(deletes.len() > 10 && deletes.iter().all(|delete| delete.body.contains_key("collectionUUID")));
    let first = requests.iter().position(|request| request.name == "delete").expect("a delete");
    let of_sweep = requests[first..].iter().filter(|request| ["find", "aggregate"].contains(&request.name.as_str()));
    assert!(of_sweep.clone().count() > 0 && of_sweep.clone().all(|read| read.body.contains_key("collectionUUID")));
}
