//! Privileges: a dry run only reads, a sweep needs few of them, and a missing one is named.

use std::collections::BTreeMap;

use crate::support::site::{Secured, Site, secured};
use crate::support::sweeper::{Report, id_set, ids};
use futures_util::TryStreamExt;
use mongodb::Database;
use mongodb::bson::{DateTime, Document, doc};

/// The actions on a collection that a sweep cannot do without.
const NEEDED: [&str; 3] = ["find", "remove", "listIndexes"];

const WRITES: [&str; 14] = [
    "delete",
    "insert",
    "update",
    "findAndModify",
    "bulkWrite",
    "create",
    "createIndexes",
    "drop",
    "dropDatabase",
    "dropIndexes",
    "collMod",
    "renameCollection",
    "convertToCapped",
    "mapReduce",
];

/// Fills `indexed`, `backwards` and `plain` of a database; in each, documents 0 to 3 have expired and 4 to 6 have not.
async fn filled(server: &Secured, name: &str) -> (Database, String) {
    let db = server.root().await.database(name);
    let now = DateTime::now().timestamp_millis();
    for (collection, direction) in [("indexed", 1), ("backwards", -1), ("plain", 0)] {
        let documents = (0..7).map(|id| {
            let at = if id < 4 { id - 10 } else { id } * 86_400_000;
            doc! { "_id": format!("private-{id}"), "at": DateTime::from_millis(now + at), "state": "secret-state" }
        });
        let c = db.collection::<Document>(collection);
        c.insert_many(documents).await.expect("an insert");
        if direction != 0 {
            let index = doc! { "key": { "at": direction }, "name": "by_date" };
            let made = db.run_command(doc! { "createIndexes": collection, "indexes": [index] }).await;
            made.expect("an index");
        }
    }
    let rules = format!(
        "  - {{namespace: {name}.indexed, field: at, expireAfter: 1d, maxDeletePercent: 90}}\n  \
           - {{namespace: {name}.backwards, field: at, expireAfter: 1d}}\n  \
           - {{namespace: {name}.plain, field: at, expireAfter: 1d, ttlField: absent, allowUnknownFields: [absent], filter: {{state: secret-state}}}}\n"
    );
    (db, rules)
}

fn expired() -> std::collections::BTreeSet<String> {
    id_set((0..4).map(|id| format!("private-{id}")))
}

fn live() -> std::collections::BTreeSet<String> {
    id_set((4..7).map(|id| format!("private-{id}")))
}

async fn assert_untouched(db: &Database) {
    for collection in ["indexed", "backwards", "plain"] {
        let left = ids(&db.collection(collection)).await;
        assert_eq!(left, &expired() | &live(), "{collection}");
    }
}

/// Returns the documents and indexes of each collection of a database.
async fn content(db: &Database) -> BTreeMap<String, Vec<Document>> {
    let mut content = BTreeMap::new();
    for name in db.list_collection_names().await.expect("names") {
        if name == "system.profile" {
            continue;
        }
        let c = db.collection::<Document>(&name);
        let documents = c.find(doc! {}).sort(doc! { "_id": 1 }).await.expect("a cursor");
        let mut all: Vec<Document> = documents.try_collect().await.expect("documents");
        let indexes = db.run_cursor_command(doc! { "listIndexes": &name }).await.expect("indexes");
        all.extend(indexes.try_collect::<Vec<_>>().await.expect("indexes"));
        content.insert(name, all);
    }
    content
}

/// Creates a user and a role with these privileges; returns the connection string.
async fn user(server: &Secured, name: &str, privileges: Vec<Document>) -> String {
    server.admin(doc! { "createRole": name, "privileges": privileges, "roles": [] }).await;
    server.admin(doc! { "createUser": name, "pwd": "password", "roles": [name] }).await;
    server.uri(name, "password")
}

fn privilege(database: &str, collection: &str, actions: &[&str]) -> Document {
    doc! { "resource": { "db": database, "collection": collection }, "actions": actions.to_vec() }
}

async fn reader(server: &Secured, database: &str) -> String {
    let roles = vec![doc! { "role": "read", "db": database }];
    server.admin(doc! { "createUser": database, "pwd": "password", "roles": roles }).await;
    server.uri(database, "password")
}

fn error(report: &Report, rule: usize) -> &str {
    report.rule(rule, "error").as_str().unwrap_or_default()
}

#[tokio::test]
async fn a_dry_run_needs_no_right_to_write_and_uses_none() {
    let (server, site) = (secured(), Site::new());
    let (db, rules) = filled(&server, "dry").await;
    let uri = reader(&server, "dry").await;
    let before = content(&db).await;
    let as_root = site.report(&server.uri("root", "root-password"), &rules, &["--dry-run"]).await;
    db.run_command(doc! { "profile": 2 }).await.expect("the profiler is on");
    let as_reader = site.report(&uri, &rules, &["--dry-run", "-vv"]).await;
    db.run_command(doc! { "profile": 0 }).await.expect("the profiler is off");

    assert_eq!((as_root.ran.code, as_reader.ran.code), (Some(0), Some(0)), "{as_reader:?}");
    for rule in 0..3 {
        assert_eq!(as_reader.rule(rule, "expiredCount"), 4, "{as_reader:?}");
        for key in ["expiredCount", "documentCount", "oldestExpired", "estimatedBytes", "index", "neverExpires", "status"] {
            assert_eq!(as_reader.rule(rule, key), as_root.rule(rule, key), "{key}");
        }
    }
    assert_eq!(content(&db).await, before);

    let commands: Vec<&str> = as_reader.ran.stderr.lines().filter_map(|line| line.strip_prefix("debug: command ")).collect();
    let named = |name: &str| commands.iter().any(|command| command.split(' ').next() == Some(name));
    assert!(named("aggregate") && named("listIndexes"), "{commands:?}");
    for write in WRITES {
        assert!(!named(write), "{write} was sent: {commands:?}");
    }
    // The profiler of the server saw only reads, too.
    let profile = db.collection::<Document>("system.profile");
    let seen = profile.find(doc! { "user": "dry@admin" }).await.expect("the profile");
    let seen: Vec<Document> = seen.try_collect().await.expect("the entries");
    assert!(!seen.is_empty());
    for entry in seen {
        let op = entry.get_str("op").unwrap_or_default();
        assert!(!["insert", "update", "remove"].contains(&op), "{entry}");
        let command = entry.get_document("command").expect("a command");
        assert!(command.keys().all(|key| !WRITES.contains(&key.as_str())), "{entry}");
    }
}

#[tokio::test]
async fn a_sweep_by_a_user_who_may_only_read_deletes_nothing_and_says_why() {
    let (server, site) = (secured(), Site::new());
    let (db, rules) = filled(&server, "readonly").await;
    let uri = reader(&server, "readonly").await;
    let report = site.report(&uri, &rules, &[]).await;
    assert_eq!(report.ran.code, Some(3), "{report:?}");
    for rule in 0..3 {
        assert_eq!(report.rule(rule, "status"), "failed");
        assert_eq!(report.rule(rule, "deletedCount"), 0);
        assert_eq!(report.rule(rule, "uncertain"), false);
        assert!(error(&report, rule).contains("`remove`"), "{report:?}");
    }
    assert_untouched(&db).await;
}

#[tokio::test]
async fn a_refused_command_is_not_quoted_with_what_documents_hold() {
    let (server, site) = (secured(), Site::new());
    let (_, rules) = filled(&server, "quoted").await;
    let uri = reader(&server, "quoted").await;
    for args in [&["sweep", "-vv"][..], &["sweep", "--format", "json"], &["sweep", "-q"]] {
        let ran = site.run(&uri, &rules, args).await;
        assert_eq!(ran.code, Some(3), "{ran:?}");
        // The predicate in the JSON report quotes the filter of the policy, not a document.
        let shown = serde_json::from_str(&ran.stdout).map_or_else(
            |_| ran.stdout.clone(),
            |mut report: serde_json::Value| {
                for rule in report["rules"].as_array_mut().expect("the rules are a list") {
                    rule.as_object_mut().expect("a rule").remove("predicate").expect("every rule has its predicate");
                }
                report.to_string()
            },
        );
        for part in ["private-", "secret-state", "lsid", "$in"] {
            assert!(!shown.contains(part) && !ran.stderr.contains(part), "{part:?}: {ran:?}");
        }
    }
}

#[tokio::test]
async fn four_rights_are_enough_and_none_of_them_can_be_spared() {
    let (server, site) = (secured(), Site::new());
    for left_out in NEEDED.into_iter().chain(["listCollections"]) {
        let name = format!("without{left_out}");
        let (db, rules) = filled(&server, &name).await;
        let actions: Vec<&str> = NEEDED.into_iter().filter(|action| *action != left_out).collect();
        let mut privileges: Vec<Document> = ["indexed", "backwards", "plain"].map(|c| privilege(&name, c, &actions)).to_vec();
        if left_out != "listCollections" {
            privileges.push(privilege(&name, "", &["listCollections"]));
        }
        let uri = user(&server, &name, privileges).await;
        let report = site.report(&uri, &rules, &[]).await;
        assert_eq!(report.ran.code, Some(3), "{left_out}: {report:?}");
        assert_eq!(report.json["totals"]["failed"], 3, "{left_out}: {report:?}");
        assert_eq!(report.json["totals"]["deletedCount"], 0);
        assert_untouched(&db).await;
    }

    let (db, rules) = filled(&server, "enough").await;
    let mut privileges: Vec<Document> = ["indexed", "backwards", "plain"].map(|c| privilege("enough", c, &NEEDED)).to_vec();
    privileges.push(privilege("enough", "", &["listCollections"]));
    let uri = user(&server, "enough", privileges).await;
    let dry = site.report(&uri, &rules, &["--dry-run"]).await;
    assert_eq!(dry.ran.code, Some(0), "{dry:?}");
    for rule in 0..3 {
        assert_eq!(dry.rule(rule, "expiredCount"), 4);
        assert!(dry.rule(rule, "estimatedBytes").is_null(), "collStats is not granted: {dry:?}");
    }
    let report = site.report(&uri, &rules, &[]).await;
    assert_eq!(report.ran.code, Some(0), "{report:?}");
    for collection in ["indexed", "backwards", "plain"] {
        assert_eq!(ids(&db.collection(collection)).await, live(), "{collection}");
    }
}

#[tokio::test]
async fn a_glob_over_databases_reaches_those_that_the_user_may_see() {
    let (server, site) = (secured(), Site::new());
    let [mine, other] = ["tenant_mine", "tenant_other"].map(|name| filled(&server, name));
    let ((mine, _), (other, _)) = (mine.await, other.await);
    let privileges = vec![privilege("tenant_mine", "", &[&NEEDED[..], &["listCollections"]].concat())];
    let uri = user(&server, "tenant", privileges).await;
    let rules = "  - {namespace: 'tenant_*.*', field: at, expireAfter: 1d}\n";
    let report = site.report(&uri, rules, &[]).await;
    assert_eq!(report.ran.code, Some(0), "{report:?}");
    assert_eq!(report.json["totals"]["deletedCount"], 12);
    assert_untouched(&other).await;
    for collection in ["indexed", "backwards", "plain"] {
        assert_eq!(ids(&mine.collection(collection)).await, live(), "{collection}");
    }
}

#[tokio::test]
async fn check_names_the_right_that_is_missing() {
    let (server, site) = (secured(), Site::new());
    let all = [&NEEDED[..], &["collStats", "listCollections"]].concat();
    let (db, rules) = filled(&server, "checked").await;
    for left_out in all.iter().copied().chain(["nothing"]).filter(|action| *action != "collStats") {
        let actions: Vec<&str> = all.iter().copied().filter(|action| *action != left_out).collect();
        let uri = user(&server, &format!("check{left_out}"), vec![privilege("checked", "", &actions)]).await;
        let ran = site.run(&uri, &rules, &["check", "--connect"]).await;
        if left_out == "nothing" {
            assert_eq!(ran.code, Some(0), "{ran:?}");
            let words = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains("ready to sweep"), "{ran:?}");
        } else {
            assert_eq!(ran.code, Some(3), "{left_out}: {ran:?}");
            assert!(ran.stdout.contains(left_out), "{left_out}: {ran:?}");
        }
        assert!(!ran.stdout.contains("deleted"), "a check never deletes: {ran:?}");
    }
    assert_untouched(&db).await;
}

#[tokio::test]
async fn check_does_not_ask_for_more_than_a_sweep_needs() {
    let (server, site) = (secured(), Site::new());
    let (_, rules) = filled(&server, "nostats").await;
    let actions = [&NEEDED[..], &["listCollections"]].concat();
    let uri = user(&server, "nostats", vec![privilege("nostats", "", &actions)]).await;
    let ran = site.run(&uri, &rules, &["check", "--connect"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
}
