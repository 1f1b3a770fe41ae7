//! `sweeper native diff` compares each rule with the equivalent native TTL setting.

use crate::support::native::{RULES, column, command, deployment, index, indexes, native, ttl};
use crate::support::sweeper::Case;
use crate::support::version::version;
use mongodb::bson::{Document, doc};
use serde_json::{Value, json};
use ttl_sweeper::core::facts::{Catalog, Collection, CollectionKind, IndexFacts};
use ttl_sweeper::core::flavor::Flavor;
use ttl_sweeper::core::native::diff::{Difference, diff};
use ttl_sweeper::core::policy::namespace::Namespace;
use ttl_sweeper::core::policy::parse;

#[tokio::test]
async fn a_diff_holds_every_rule_beside_the_setting_that_would_do_the_same() {
    let case = deployment().await;
    let (ran, report) = native(&case, RULES, &["diff"]).await;
    assert_eq!((ran.code, &report["exitCode"], &report["command"]), (Some(5), &json!(5), &json!("native diff")), "{ran:?}");
    let name = case.db.name();
    let namespaces = ["same", "differs", "plain", "made", "made", "clustered", "series", "seriesOff", "same", "same"];
    assert_eq!(column(&report, "/namespace"), namespaces.map(|collection| json!(format!("{name}.{collection}"))));
    let states = ["same", "differs", "missing", "missing", "missing", "missing", "differs", "differs", "extra", "extra"];
    assert_eq!(column(&report, "/state"), states.map(Value::from), "{report:#}");
    assert_eq!(
        report["rows"][1],
        json!({
            "rule": format!("{name}.differs"), "namespace": format!("{name}.differs"), "state": "differs",
            "native": {
                "scope": "index", "index": "by date", "field": "at", "expireAfterSeconds": 60,
                "partialFilterExpression": null, "collation": null, "hidden": false,
            },
            "wanted": {
                "scope": "index", "index": null, "field": "at", "expireAfterSeconds": 86400,
                "partialFilterExpression": null, "collation": null, "hidden": false,
            },
            "reason": null, "change": null,
        })
    );
    assert_eq!(
        column(&report, "/native/expireAfterSeconds"),
        [json!(3600), json!(60), Value::Null, Value::Null, Value::Null, Value::Null, json!(5), json!(5), json!(5), json!(5)]
    );
    assert_eq!(report["rows"][7]["wanted"]["expireAfterSeconds"], "off");

    let table = case.run(RULES, &["native", "diff"]).await;
    let lines: Vec<&str> = table.stdout.lines().collect();
    assert_eq!(
        lines[1],
        format!("differs     {name}.differs    at: expireAfterSeconds 60 by index by date, the policy says 86400")
    );
    assert_eq!(
        lines[2],
        format!(
            "missing     {name}.plain      at: expireAfterSeconds 86400 of the policy: the index `plain` has no expireAfterSeconds"
        )
    );
    assert_eq!(
        lines[9],
        format!(
            "extra       {name}.same       at: hashed: expireAfterSeconds 5 by index hashed: the server never deletes by an index of this kind (at: hashed)"
        )
    );
    let version = version(&case.db).await.text;
    let summary = format!("on mongodb {version} standalone: 1 same, 3 differs, 4 missing, 2 extra");
    assert!(lines[10].ends_with(&summary), "{table:?}");

    let only = case.run(RULES, &["native", "diff", "--only", "*.plain"]).await;
    assert_eq!(only.stdout.lines().count(), 2, "{only:?}");
    let same = "  - {namespace: DB.differs, field: at, expireAfterSeconds: 60}\n";
    assert_eq!(native(&case, same, &["diff"]).await.0.code, Some(0));
}

#[tokio::test]
async fn the_largest_value_is_said_to_delete_what_is_68_years_old() {
    let case = Case::new().await;
    index(&case.db, "c", doc! { "at": 1 }, "m", ttl(i32::MAX)).await;
    let rule = |keys: &str| format!("  - {{namespace: DB.c, {keys}}}\n");
    let reason = async |keys: &str, row: usize| {
        let (_, report) = native(&case, &rule(keys), &["diff"]).await;
        let row = &report["rows"][row];
        (
            row["state"].clone(),
            row["reason"].as_str().unwrap_or_default().split_once(" up to 19").map(|(head, _)| head.to_owned()),
        )
    };
    let said = "2147483647 s are 68 years: the server deletes dates";
    assert_eq!(reason("field: at, expireAfterSeconds: 2147483647", 0).await, ("same".into(), Some(said.to_owned())));
    assert_eq!(reason("field: at, expireAfterSeconds: 5", 0).await, ("differs".into(), Some(said.to_owned())));
    let extra = format!("no rule deletes by it; the server does; {said}");
    assert_eq!(reason("field: other, expireAfterSeconds: 5", 1).await, ("extra".into(), Some(extra)));
}

#[tokio::test]
async fn what_no_native_setting_can_do_is_said_with_the_reason() {
    let case = deployment().await;
    let db = &case.db;
    command(db, doc! { "create": "capped", "capped": true, "size": 4096 }).await;
    command(db, doc! { "create": "view", "viewOn": "same", "pipeline": [] }).await;
    let rules = "  - {name: a, namespace: DB.plain, field: at, expireAfter: 1d, ttlField: ttl}
  - {name: b, namespace: DB.plain, field: at, expireAfter: 1d, dateFormat: epochMillis}
  - {name: c, namespace: DB.plain, field: _id, expireAfter: 1d, dateFormat: objectId}
  - {name: d, namespace: DB.plain, field: _id, expireAfter: 1d}
  - {name: e, namespace: DB.plain, field: at, expireAfter: 1d, filter: {s: {$ne: 1}}}
  - {name: f, namespace: DB.capped, field: at, expireAfter: 1d}
  - {name: g, namespace: DB.view, field: at, expireAfter: 1d}
  - {name: h, namespace: DB.series, field: at, expireAfter: 1d}
  - {name: i, namespace: DB.series, field: t, expireAfter: 1d, filter: {m: 1}}
  - {name: j, namespace: DB.clustered, field: _id, expireAfter: 1d, filter: {m: 1}}
  - {name: k, namespace: DB.gone, field: at, expireAfter: 1d}
  - {name: l, namespace: DB.differs, field: at, expireAfterSeconds: 60}
  - {name: m, namespace: DB.differs, field: at, expireAfterSeconds: 61}
  - {name: n, namespace: DB.plain, field: at, expireAfter: 1d, dateFormat: iso8601}
  - {name: o, namespace: DB.plain, field: at, expireAfter: 1d, filter: {seen: {$lt: {$ago: 90d}}}}\n";
    let only: Vec<String> = "abcdefghijkmno".chars().flat_map(|name| ["--only".to_owned(), name.to_string()]).collect();
    let args: Vec<&str> = ["apply", "--yes"].into_iter().chain(only.iter().map(String::as_str)).collect();
    let before = indexes(db, "plain").await;
    let (ran, report) = native(&case, rules, &args).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(column(&report, "/state").iter().all(|state| state == "impossible"), "{report:#}");
    assert!(column(&report, "/change").iter().all(Value::is_null));
    let reasons = [
        "a ttl in each document (`ttlField: ttl`); native TTL has one value for all of them",
        "numbers as dates (`dateFormat`); native TTL knows only BSON dates",
        "the time inside an ObjectId; native TTL knows only BSON dates",
        "the index on `_id` takes no expireAfterSeconds; only a clustered collection does",
        "`$ne` in the filter, which no partial index takes",
        "a capped collection takes no TTL index before MongoDB 7.1",
        "a view holds no documents of its own",
        "a time-series collection expires only by its timeField `t`",
        if version(db).await.major < 7 {
            "before MongoDB 7.0 a time-series collection has one expireAfterSeconds for all of it, without a filter"
        } else {
            "`filter`: this time-series collection has no metaField, and a bucket can be selected by nothing else"
        },
        "a clustered collection has one expireAfterSeconds for all of it, without a filter",
        "no such namespace",
        "the rule `l` wants the same setting with another value, and the server takes one of them",
        "strings as dates (`dateFormat`); native TTL knows only BSON dates",
        "a relative date (`$ago`) in the filter; the filter of an index has dates that stay",
    ];
    assert_eq!(column(&report, "/reason"), reasons.map(Value::from));
    assert_eq!(indexes(db, "plain").await, before);
    assert!(!db.list_collection_names().await.unwrap().contains(&"gone".to_owned()), "no collection is created");
}

/// Compares one rule for `a.c` with a collection that exists on no server.
fn compared(keys: &str, kind: CollectionKind, index: &Document, wire_version: i32) -> Vec<Difference> {
    compared_on(Flavor::MongoDb, keys, kind, index, wire_version)
}

fn compared_on(flavor: Flavor, keys: &str, kind: CollectionKind, index: &Document, wire_version: i32) -> Vec<Difference> {
    let text = format!("version: 1\ncollections: [{{namespace: a.c, expireAfter: 1d, {keys}}}]");
    let policy = parse::parse("p", &text, &|_| None, true).unwrap();
    let index = IndexFacts {
        name: index.get_str("name").unwrap_or("i").to_owned(),
        key: index.get_document("key").unwrap().clone().into_iter().collect(),
        partial: index.get_document("partial").ok().cloned(),
        hidden: false,
        sparse: false,
        unique: index.get_bool("unique").unwrap_or(false),
        collation: index.get_document("collation").ok().cloned(),
        expire_after_seconds: index.get("ttl").cloned(),
    };
    let namespace = Namespace { database: "a".into(), collection: "c".into() };
    let collection = Collection { indexes: vec![index], ..Collection::new(namespace, kind) };
    let rules: Vec<_> = policy.rules.iter().collect();
    diff(
        &rules,
        &Catalog { collections: vec![collection], unreadable: Vec::new() },
        wire_version,
        flavor.capabilities(wire_version).plain_to_ttl,
    )
}

#[test]
fn a_service_that_modifies_no_plain_index_replaces_it_unless_it_would_lose_an_option() {
    let on = |flavor, index: Document| compared_on(flavor, "field: at", CollectionKind::Plain, &index, 21).remove(0);
    let plain = on(Flavor::DocumentDb, doc! { "key": { "at": -1 }, "name": "by_date" });
    let index = doc! { "key": { "at": 1 }, "name": "by_date", "expireAfterSeconds": 86400 };
    let expected = [doc! { "dropIndexes": "c", "index": "by_date" }, doc! { "createIndexes": "c", "indexes": [index] }];
    assert_eq!(plain.change.unwrap().commands, expected);
    let unique = on(Flavor::DocumentDb, doc! { "key": { "at": 1 }, "name": "by_date", "unique": true });
    assert_eq!(unique.change, None);
    assert!(unique.reason.unwrap().starts_with("the plain index `by_date` is in the way"));
    let ttl = on(Flavor::DocumentDb, doc! { "key": { "at": 1 }, "ttl": 60 });
    assert!(ttl.change.unwrap().commands[0].contains_key("collMod"), "an index that has a value gets another in place");
}

#[test]
fn what_older_and_newer_servers_take_decides_the_change() {
    for (keys, kind, index, wire_version, state, change) in [
        ("field: at", CollectionKind::Plain, doc! { "key": { "at": 1 } }, 13, "missing", None),
        ("field: at", CollectionKind::Plain, doc! { "key": { "at": 1 } }, 14, "missing", Some("collMod")),
        ("field: at", CollectionKind::Capped, doc! { "key": { "x": 1 } }, 21, "impossible", None),
        ("field: at", CollectionKind::Capped, doc! { "key": { "x": 1 } }, 22, "missing", Some("createIndexes")),
        ("field: at, filter: {s: {$in: [1]}}", CollectionKind::Plain, doc! { "key": { "x": 1 } }, 13, "impossible", None),
        (
            "field: at, filter: {s: {$in: [1]}}",
            CollectionKind::Plain,
            doc! { "key": { "x": 1 } },
            17,
            "missing",
            Some("createIndexes"),
        ),
        ("field: at", CollectionKind::Plain, doc! { "key": { "at": 1 }, "ttl": f64::NAN }, 17, "differs", Some("collMod")),
        ("field: at", CollectionKind::Plain, doc! { "key": { "at": 1 }, "ttl": 86400.9 }, 17, "same", None),
        ("field: at", CollectionKind::Plain, doc! { "key": { "at": 1.0 }, "ttl": 86400_i64 }, 17, "same", None),
        (
            "field: at, filter: {n: 5}",
            CollectionKind::Plain,
            doc! { "key": { "at": 1 }, "ttl": 86400, "partial": { "n": 5.0 } },
            17,
            "same",
            None,
        ),
        (
            "field: at, filter: {n: 5}",
            CollectionKind::Plain,
            doc! { "key": { "at": 1 }, "ttl": 86400, "partial": { "n": 6 } },
            17,
            "missing",
            Some("createIndexes"),
        ),
        ("field: at, enabled: false", CollectionKind::Plain, doc! { "key": { "at": 1 }, "ttl": 60 }, 17, "differs", None),
        ("field: at, enabled: false", CollectionKind::Plain, doc! { "key": { "at": 1 } }, 17, "same", None),
        ("field: at", CollectionKind::Plain, doc! { "key": { "$**": 1 }, "name": "at_1" }, 17, "missing", Some("createIndexes")),
        (
            "field: at, collation: {locale: en}",
            CollectionKind::Plain,
            doc! { "key": { "at": 1 }, "ttl": 86400 },
            17,
            "same",
            None,
        ),
        (
            "field: at, filter: {s: x}, collation: {locale: en}",
            CollectionKind::Plain,
            doc! { "key": { "at": 1 }, "ttl": 86400, "partial": { "s": "x" } },
            17,
            "missing",
            Some("createIndexes"),
        ),
    ] {
        let difference = compared(keys, kind, &index, wire_version).remove(0);
        assert_eq!(difference.state.to_string(), state, "{keys} {index}: {difference:?}");
        let command = difference.change.as_ref().and_then(|change| change.commands[0].keys().next().cloned());
        assert_eq!(command.as_deref(), change, "{keys} {index}");
    }
}
