//! `why`: one document, explained by the server's own judgement.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};
use serde_json::{Value, json};

use crate::support::cluster::Cluster;
use crate::support::proxy::router::Sharded;
use crate::support::sweeper::{Case, Ran, run, sweeper};

const NOW: i64 = 1_600_000_000_000;
const HOUR: i64 = 3_600_000;

fn at(millis: i64) -> Bson {
    DateTime::from_millis(NOW + millis).into()
}

async fn why(case: &Case, rules: &str, id: &str, args: &[&str]) -> Ran {
    let mut command = sweeper(&[&["why", "--uri", &case.uri, "--as-of", "2020-09-13T12:26:40Z", "--policy"], &[][..]].concat());
    let namespace = case.collection("c").namespace().to_string();
    command.arg(case.policy(rules)).arg(namespace).arg(id).args(args);
    run(command).await
}

/// Returns what the first rule makes of a document.
async fn explained(case: &Case, rules: &str, id: &str) -> Value {
    let ran = why(case, rules, id, &["--format", "json"]).await;
    let json: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    json["rules"][0].clone()
}

const RULE: &str =
    "  - {name: r, namespace: DB.c, field: at, expireAfter: 1h, ttlField: ttl, filter: {status: done, hold: {$ne: true}}}\n";

#[tokio::test]
async fn what_decided_is_named_for_every_kind_of_document() {
    let case = Case::new().await;
    let done = |id: &str, more: Document| {
        let mut document = doc! { "_id": id, "status": "done" };
        document.extend(more);
        document
    };
    // The document, whether it goes, the reason why it never expires, and the instant at which it expires after now.
    let cases = [
        (done("old", doc! { "at": at(-HOUR) }), true, None, Some(0)),
        (done("young", doc! { "at": at(1 - HOUR) }), false, None, Some(1)),
        (done("earliest", doc! { "at": [at(0), at(-HOUR), 5] }), true, None, Some(0)),
        (done("short", doc! { "at": at(-2000), "ttl": 2 }), true, None, Some(0)),
        (done("long", doc! { "at": at(-HOUR), "ttl": 7200_i64 }), false, None, Some(HOUR)),
        (done("odd", doc! { "at": at(-HOUR), "ttl": 20.5 }), true, None, Some(0)),
        (done("never", doc! { "at": at(-HOUR), "ttl": -1 }), false, Some("ttlNever"), None),
        (done("zero", doc! { "at": at(-HOUR), "ttl": 0 }), false, Some("ttlNotPositive"), None),
        (done("text", doc! { "at": "2020-01-01T00:00:00Z" }), false, Some("string"), None),
        (done("none", doc! {}), false, Some("missing"), None),
        (done("held", doc! { "at": at(-HOUR), "hold": true }), false, None, Some(0)),
        (doc! { "_id": "open", "status": "open", "at": at(-HOUR) }, false, None, Some(0)),
    ];
    case.fill("c", cases.iter().map(|(document, ..)| document.clone())).await;
    for (document, taken, never, expires) in &cases {
        let id = document.get_str("_id").unwrap();
        let rule = explained(&case, RULE, id).await;
        let expires_at = expires.map(|millis| DateTime::from_millis(NOW + millis).try_to_rfc3339_string().unwrap());
        assert_eq!((&rule["taken"], &rule["neverExpires"]), (&json!(taken), &json!(never)), "{rule}");
        let shown = rule["expiresAt"].as_str().map(|at| DateTime::parse_rfc3339_str(at).unwrap());
        assert_eq!(shown, expires_at.map(|at| DateTime::parse_rfc3339_str(at).unwrap()), "{rule}");
    }
    let rule = explained(&case, RULE, "earliest").await;
    assert_eq!(
        (&rule["dates"], &rule["element"], &rule["threshold"]),
        (&json!(2), &json!(1), &json!("2020-09-13T11:26:40.000Z"))
    );
    let rule = explained(&case, RULE, "odd").await;
    assert_eq!((&rule["ttlValue"], &rule["ttlCounts"]), (&json!(20.5), &json!(false)));
    let rule = explained(&case, RULE, "held").await;
    let filter = json!([{"clause": {"status": "done"}, "matches": true}, {"clause": {"hold": {"$ne": true}}, "matches": false}]);
    assert_eq!(rule["filter"], filter);
    // `why` judges as a sweep does.
    assert_eq!(
        case.report(RULE, &["--as-of", "2020-09-13T12:26:40Z"]).await.rule(0, "deletedCount"),
        cases.iter().filter(|(_, taken, ..)| *taken).count()
    );
    for (document, taken, ..) in &cases {
        let id = document.get_str("_id").unwrap();
        assert_eq!(case.ids("c").await.contains(&Bson::from(id).to_string()), !taken, "{id}");
    }
}

#[tokio::test]
async fn a_date_in_a_string_is_explained_as_any_other() {
    let case = Case::new().await;
    let rule = "  - {name: r, namespace: DB.c, field: at, expireAfter: 1h, dateFormat: iso8601}\n";
    let of = |texts: &[&str]| Bson::from(texts.iter().map(|text| Bson::from(*text)).collect::<Vec<_>>());
    // The run is at 12:26:40.
    let cases: [(&str, Bson, bool, Value, Value); 6] = [
        ("old", "2020-09-13T13:26:40+02:00".into(), true, json!("2020-09-13T12:26:40.000Z"), Value::Null),
        ("young", "2020-09-13T11:26:40.000001Z".into(), false, json!("2020-09-13T12:26:40.001Z"), Value::Null),
        (
            "two",
            of(&["2021-01-01T00:00:00Z", "no", "2020-09-13T11:26:40Z"]),
            true,
            json!("2020-09-13T12:26:40.000Z"),
            Value::Null,
        ),
        ("local", "2020-01-01T00:00:00".into(), false, Value::Null, json!("string")),
        ("none", of(&["2020-01-01"]), false, Value::Null, json!("arrayWithoutDate")),
        ("date", at(-HOUR), false, Value::Null, json!("date")),
    ];
    case.fill("c", cases.iter().map(|(id, value, ..)| doc! { "_id": *id, "at": value.clone() })).await;
    for (id, _, taken, expires, never) in &cases {
        let rule = explained(&case, rule, id).await;
        assert_eq!((&rule["taken"], &rule["expiresAt"], &rule["neverExpires"]), (&json!(taken), expires, never), "{rule}");
    }
    assert_eq!(explained(&case, rule, "two").await["dates"], 2);
}

#[tokio::test]
async fn ids_are_found_as_they_are_written_and_the_text_says_all_of_it() {
    let case = Case::new().await;
    let id = ObjectId::new();
    let ids = [id.into(), Bson::from(5_i64), "5".into(), doc! { "a": 1 }.into(), "Five".into(), "five".into()];
    case.fill("c", ids.into_iter().map(|id| doc! { "_id": id, "at": at(-HOUR) })).await;
    let folded = "  - {name: r, namespace: DB.c, field: at, expireAfter: 1h, collation: {locale: en, strength: 2}}\n";
    for (written, kind) in [
        (format!("{id}"), "$oid"),
        (format!("ObjectId('{id}')"), "$oid"),
        ("NumberLong(5)".into(), "$numberLong"),
        ("{a: 1}".into(), "a"),
    ] {
        let ran = why(&case, folded, &written, &["--format", "json"]).await;
        let json: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
        assert!(json["id"].get(kind).is_some() && json["takenBy"] == json!(["r"]), "{json}");
    }
    // A number or a string.
    let ran = why(&case, folded, "5", &[]).await;
    let hint = r#"hint: write the `_id` with its type: a string as '"5"', a number as 5, or 'ObjectId("...")', 'UUID("...")', Extended JSON"#;
    let found = |many: &str, db: &str| format!("error: why: {many} of `{db}.c` found whose `_id` is ");
    let said = format!("{}the number 5 or the string \"5\"\n{hint}\n", found("2 documents", case.db.name()));
    assert_eq!((ran.code, ran.stderr), (Some(1), said));
    assert_eq!(why(&case, folded, "'5'", &[]).await.code, Some(0));
    let ran = why(&case, folded, "six", &[]).await;
    let said = format!("{}the string \"six\"\n{hint}\n", found("no document", case.db.name()));
    assert_eq!((ran.code, ran.stderr), (Some(1), said));
    let ran = why(&case, folded, "0123456789abcdef01234568", &[]).await;
    let either = "ObjectId(\"0123456789abcdef01234568\") or the string \"0123456789abcdef01234568\"";
    let said = format!("{}{either}\n{hint}\n", found("no document", case.db.name()));
    assert_eq!((ran.code, ran.stderr), (Some(1), said));
    assert_eq!(why(&case, folded, "{a: ", &[]).await.code, Some(2));

    let two = format!(
        "{folded}  - {{name: other, namespace: DB.*, field: at, expireAfter: 2h, maxDeletes: 1}}\n  - {{name: off, namespace: DB.c, field: at, expireAfter: 1s, enabled: false}}\n"
    );
    let ran = why(&case, &two, "five", &[]).await;
    for part in [
        "with the `_id` \"five\"",
        "r: expired at 2020-09-13T12:26:40.000Z: the next sweep deletes it",
        "other: stays until 2020-09-13T13:26:40.000Z",
        "off: the rule does nothing here: disabled in the policy",
        "threshold  2020-09-13T11:26:40.000Z",
    ] {
        assert!(ran.stdout.contains(part), "{part}: {ran:?}");
    }
    assert_eq!(case.ids("c").await.len(), 6);
    // A guard would keep the rule from deleting anything.
    let misspelt = folded.replace("expireAfter: 1h", "expireAfter: 1h, ttlField: tll");
    let ran = why(&case, &misspelt, "five", &[]).await;
    let kept = "r: expired at 2020-09-13T12:26:40.000Z, but the rule deletes nothing: refused (unknownField): no document found has `tll`";
    assert!(ran.code == Some(0) && ran.stdout.contains(kept), "{ran:?}");
    let ran = why(&case, &two.replace("DB.c", "DB.d").replace("DB.*", "DB.e"), "five", &[]).await;
    assert_eq!((ran.code, ran.stderr.contains("no rule covers `")), (Some(2), true), "{ran:?}");
}

#[tokio::test]
async fn limits_that_only_a_count_decides_are_named_and_a_closed_window_is_a_reason() {
    let case = Case::new().await;
    case.fill("c", (0..4).map(|id| doc! { "_id": id, "at": at(-HOUR) }).chain([doc! { "_id": 9, "at": at(HOUR) }])).await;
    let rule = |keys: &str| format!("  - {{name: r, namespace: DB.c, field: at, expireAfter: 1h{keys}}}\n");
    let expired = "expired at 2020-09-13T12:26:40.000Z";
    for (keys, limits, unless) in [
        ("", json!([]), ""),
        (", maxDeletes: 1", json!(["maxDeletes"]), ", unless `maxDeletes` keeps it"),
        (
            ", maxDeletes: 1, maxDeletePercent: 50, minOplogWindow: 10000d",
            json!(["maxDeletes", "maxDeletePercent", "minOplogWindow"]),
            ", unless `maxDeletes` or `maxDeletePercent` or `minOplogWindow` keeps it",
        ),
    ] {
        let found = explained(&case, &rule(keys), "3").await;
        assert_eq!((&found["taken"], &found["limits"]), (&json!(true), &limits), "{found}");
        assert_eq!(found["verdict"], format!("{expired}: the next sweep deletes it{unless}"));
    }
    // What stays, stays whatever the limits are.
    let found = explained(&case, &rule(", maxDeletes: 1"), "9").await;
    assert_eq!((&found["taken"], &found["limits"]), (&json!(false), &json!([])), "{found}");

    let clock = |hours: i64| (chrono::Utc::now() + chrono::TimeDelta::hours(hours)).format("%H:%M:%S").to_string();
    let window = |from, to| format!(", window: {{start: '{}', end: '{}', timezone: UTC}}", clock(from), clock(to));
    let found = explained(&case, &rule(&window(-2, 2)), "3").await;
    assert_eq!((&found["taken"], &found["notSwept"]), (&json!(true), &Value::Null), "{found}");
    let found = explained(&case, &rule(&window(2, 4)), "3").await;
    assert_eq!(found["taken"], false, "{found}");
    let why = found["notSwept"].as_str().unwrap();
    assert!(why.starts_with("it deletes only from ") && why.ends_with(" UTC, and it is not that time now"), "{why}");
    assert_eq!(found["verdict"], format!("{expired}, but the rule deletes nothing: {why}"));
    assert_eq!(case.ids("c").await.len(), 5);
}

#[tokio::test]
async fn documents_of_different_shards_with_one_id_are_not_taken_for_one() {
    let cluster = Cluster::new().await;
    cluster.shard("c", Sharded::halves(doc! { "tenant": 1 }, ["m".into()])).await;
    let of = |id: i32, tenant: &str, at_ms: i64| doc! { "_id": id, "tenant": tenant, "at": at(at_ms), "status": "done" };
    cluster.case.fill("c", [of(1, "acme", -2 * HOUR), of(1, "zeta", HOUR), of(2, "zeta", -2 * HOUR)]).await;
    let rule = "  - {name: r, namespace: DB.c, field: at, expireAfter: 1h}\n";
    let twins = why(&cluster.case, rule, "1", &[]).await;
    assert_eq!(twins.code, Some(1), "{twins:?}");
    for part in
        ["why: 2 documents of `", "` found whose `_id` is the number 1", "hint: documents on different shards can have one `_id`"]
    {
        assert!(twins.stderr.contains(part), "{part}: {twins:?}");
    }
    assert_eq!(explained(&cluster.case, rule, "2").await["taken"], true);
}
