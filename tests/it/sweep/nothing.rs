//! Sweeps that find nothing to delete: they send few commands, no delete, and say no less than others.

use std::collections::BTreeMap;

use crate::support::faults::{alone, dated, days, fail_commands};
use crate::support::proxied::Proxied;
use crate::support::proxy::Service;
use crate::support::sweeper::{Case, Report, id_set};
use mongodb::bson::{Document, doc};

/// Commands of a run that belong to no rule, in order, but for those by which drivers watch the server.
const OF_RUN: [&str; 9] = [
    "buildInfo",
    "hello",
    "listDatabases",
    "find system.replset",
    "find system.version",
    "getParameter",
    "listCollections",
    "find",
    "endSessions",
];

/// Creates a collection with an index on the date.
async fn indexed(case: &Case, name: &str, documents: impl IntoIterator<Item = Document>) {
    case.index_on_date(name).await;
    case.fill(name, documents).await;
}

/// Returns documents with more fields.
fn with(documents: impl Iterator<Item = Document>, more: Document) -> Vec<Document> {
    documents.map(|document| document.into_iter().chain(more.clone()).collect()).collect()
}

/// Returns the commands of the run, and those of each collection, in order.
fn sent(proxied: &Proxied) -> (Vec<String>, BTreeMap<String, Vec<String>>) {
    let (mut of_run, mut of_rules) = (Vec::new(), BTreeMap::<String, Vec<String>>::new());
    for request in proxied.proxy.requests() {
        if request.kind.ends_with("of a handshake") || request.kind.ends_with("of a monitor") {
            continue;
        }
        let is_bound = request.body.get_document("filter").is_ok_and(|filter| filter.contains_key("_id"));
        match request.body.get_str(&request.name) {
            Ok("system.replset" | "system.version") => of_run.push(request.kind),
            Ok(collection) if !is_bound => of_rules.entry(collection.to_owned()).or_default().push(request.name),
            _ => of_run.push(request.name),
        }
    }
    (of_run, of_rules)
}

fn assert_nothing(report: &Report, rule: usize) {
    let key = |key| report.rule(rule, key);
    assert_eq!((key("status"), key("reason"), key("error")), (&"complete".into(), &().into(), &().into()), "{report:?}");
    for count in ["expiredCount", "deletedCount", "remainingCount", "batches"] {
        assert_eq!(key(count), 0, "{count}: {report:?}");
    }
}

#[tokio::test]
async fn a_rule_that_finds_nothing_sends_three_commands_and_no_delete() {
    let case = Case::new().await;
    let open = |documents: i32| dated(0..documents, days(3));
    indexed(&case, "live", open(30)).await;
    indexed(&case, "empty", []).await;
    let old = with(dated(0..10, days(-9)), doc! { "status": "open", "hold": true, "ttl": -1 });
    for name in ["filtered", "guarded", "own_ttl", "share"] {
        indexed(&case, name, if name == "share" { Vec::from_iter(open(5)) } else { old.clone() }).await;
    }
    case.fill("bare", open(20)).await;
    let series = doc! { "create": "series", "timeseries": { "timeField": "at" } };
    case.db.run_command(series).await.unwrap();
    case.fill("series", open(7)).await;
    let proxied = Proxied::behind(Service::Member, case).await;
    let rules = "  - {namespace: DB.live, field: at, expireAfter: 1d}
  - {namespace: DB.empty, field: at, expireAfter: 1d}
  - {namespace: DB.filtered, field: at, expireAfter: 1d, filter: {status: done}}
  - {namespace: DB.guarded, field: at, expireAfter: 1d, filter: {hold: {$ne: true}}}
  - {namespace: DB.own_ttl, field: at, expireAfter: 1d, ttlField: ttl}
  - {namespace: DB.share, field: at, expireAfter: 1d, maxDeletePercent: 10}
  - {namespace: DB.bare, field: at, expireAfter: 1d}
  - {namespace: DB.series, expireAfter: 1d}\n";
    let swept = proxied.case.report(rules, &[]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    (0..8).for_each(|rule| assert_nothing(&swept, rule));
    let counted = |rule: usize| swept.rule(rule, "documentCount").as_u64();
    assert_eq!([0, 1, 2].map(counted), [30, 0, 10].map(Some));
    let (of_run, of_rules) = sent(&proxied);
    assert_eq!(of_run, OF_RUN);
    let few = ["listIndexes", "count", "aggregate"];
    for (collection, expected) in [
        ("live", &few[..]),
        // The count of the collection is older than the look: a run may wait for its lock in between.
        ("empty", &["listIndexes", "count", "aggregate", "aggregate"]),
        ("filtered", &few),
        // The look for what a delete depends on comes first.
        ("guarded", &["listIndexes", "count", "aggregate", "aggregate"]),
        ("own_ttl", &["listIndexes", "count", "aggregate", "aggregate", "aggregate"]),
        ("share", &few),
        // The documents that are searched are counted, and the field is looked for.
        ("bare", &["listIndexes", "count", "aggregate", "aggregate", "aggregate"]),
        ("series", &["listIndexes"]),
        ("system.buckets.series", &["count", "aggregate"]),
    ] {
        assert_eq!(of_rules[collection], expected, "{collection}: {of_rules:?}");
    }
    assert_eq!(of_rules.len(), 9, "{of_rules:?}");
}

#[tokio::test]
async fn behind_a_glob_a_field_is_looked_for_until_one_namespace_has_it() {
    let case = Case::new().await;
    for n in 0..30 {
        indexed(&case, &format!("tenant_{n:02}"), with(dated(0..4, days(3)), doc! { "ttl": 900_000 })).await;
    }
    let proxied = Proxied::behind(Service::Member, case).await;
    let rule = |keys: &str| format!("  - {{namespace: 'DB.tenant_*', field: at, expireAfter: 1d{keys}}}\n");
    for (keys, looks) in [("", 0..=0), (", filter: {ttl: {$ne: 5}}", 1..=4)] {
        let before = sent(&proxied);
        let swept = proxied.case.report(&rule(keys), &[]).await;
        assert_eq!(swept.ran.code, Some(0), "{swept:?}");
        (0..30).for_each(|rule| assert_nothing(&swept, rule));
        let (of_run, of_rules) = sent(&proxied);
        assert_eq!(of_run[before.0.len()..], OF_RUN);
        let number = |of: &BTreeMap<String, Vec<String>>, name: &str| of.values().flatten().filter(|sent| *sent == name).count();
        let sent = |name| number(&of_rules, name) - number(&before.1, name);
        assert_eq!(["listIndexes", "count", "delete"].map(sent), [30, 30, 0]);
        assert!(looks.contains(&(sent("aggregate") - 30)), "{keys}: {}", sent("aggregate"));
    }
}

#[tokio::test]
async fn a_wrong_name_is_refused_although_nothing_has_expired() {
    let case = Case::new().await;
    indexed(&case, "c", with(dated(0..9, days(3)), doc! { "ttl": 900_000, "hold": false })).await;
    for (keys, guard) in [
        ("ttlField: tll", "unknownField"),
        ("filter: {holdd: {$ne: true}}", "unknownField"),
        ("filter: {hold: {$ne: yes}}", "unknownType"),
        ("holds: {collection: DB.none, key: _id}", "holds"),
    ] {
        let swept = case.report(&format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, {keys}}}\n"), &[]).await;
        assert_eq!((swept.ran.code, swept.rule(0, "status")), (Some(5), &"refused".into()), "{swept:?}");
        assert_eq!(swept.rule(0, "reason"), guard, "{swept:?}");
    }
    let unknown = case.report("  - {namespace: DB.c, field: att, expireAfter: 1d}\n", &[]).await;
    assert_eq!(unknown.ran.code, Some(0), "{unknown:?}");
    assert!(unknown.rule(0, "warnings").to_string().contains("no document found has `att`"), "{unknown:?}");
}

#[tokio::test]
async fn a_look_that_fails_or_takes_too_long_has_not_seen_that_nothing_has_expired() {
    let (_mongod, case) = alone().await;
    for code in [2, 50] {
        indexed(&case, "c", dated(0..9, days(-3))).await;
        fail_commands(&case.client, "alwaysOn", doc! { "failCommands": ["aggregate"], "errorCode": code }).await;
        let swept = case.report("  - {namespace: DB.c, field: at, expireAfter: 1d}\n", &[]).await;
        assert_eq!((swept.ran.code, swept.rule(0, "deletedCount")), (Some(0), &9.into()), "{swept:?}");
        assert_eq!(case.ids("c").await, id_set::<i32>([]));
    }
}

#[tokio::test]
async fn what_is_held_is_told_where_nothing_else_has_expired() {
    let case = Case::new().await;
    indexed(&case, "c", with(dated(0..9, days(-3)), doc! { "tenant": "a" })).await;
    case.fill("holds", [doc! { "tenant": "a" }]).await;
    let proxied = Proxied::behind(Service::Member, case).await;
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, holds: {collection: DB.holds, key: tenant}}\n";
    let swept = proxied.case.report(rule, &[]).await;
    assert_eq!((swept.ran.code, swept.rule(0, "heldCount")), (Some(0), &9.into()), "{swept:?}");
    assert_nothing(&swept, 0);
    assert_eq!(proxied.proxy.requests_of("delete").len(), 0);
    proxied.case.collection("holds").update_many(doc! {}, doc! { "$set": { "tenant": "b" } }).await.unwrap();
    let swept = proxied.case.report(rule, &[]).await;
    assert_eq!((swept.ran.code, swept.rule(0, "deletedCount")), (Some(0), &9.into()), "{swept:?}");
}
