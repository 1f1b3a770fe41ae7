//! Relative dates: `{$ago: 90d}` in a filter is a date that is as long before the instant of the run.

use mongodb::bson::{Bson, DateTime, Document, doc};
use serde_json::{Value, json};

use crate::support::sweeper::{Case, Report, id_set};

/// 2020-09-13T12:26:40Z.
const NOW: i64 = 1_600_000_000_000;
const DAY: i64 = 86_400_000;
const AS_OF: [&str; 2] = ["--as-of", "2020-09-13T12:26:40Z"];

fn days_ago(days: i64, off: i64) -> DateTime {
    DateTime::from_millis(NOW - days * DAY + off)
}

/// Made more than a year ago and not seen for 90 days.
const RULE: &str = "  - {name: r, namespace: DB.c, field: at, expireAfter: 365d, filter: {seenAt: {$lt: {$ago: 90d}}}}\n";

/// Returns documents with the second date at the edge, and whether each goes by [`RULE`].
fn documents() -> Vec<(Document, bool)> {
    let old = days_ago(365, 0);
    let seen = [
        (Bson::from(days_ago(90, -1)), true),
        (days_ago(90, 0).into(), false),
        (days_ago(90, 1).into(), false),
        (Bson::from(vec![Bson::from(days_ago(1, 0)), days_ago(100, 0).into()]), true),
        ("2020-01-01T00:00:00Z".into(), false),
        (5.into(), false),
        (Bson::Null, false),
    ];
    let seen = seen.into_iter().map(|(seen, goes)| (doc! { "at": old, "seenAt": seen }, goes));
    let others = [
        (doc! { "at": old }, false),
        (doc! { "at": days_ago(365, 1), "seenAt": days_ago(1000, 0) }, false),
        (doc! { "seenAt": days_ago(1000, 0) }, false),
    ];
    let with_id = |(id, (mut document, goes)): (i32, (Document, bool))| {
        document.insert("_id", id);
        (document, goes)
    };
    (0..).zip(seen.chain(others)).map(with_id).collect()
}

async fn filled() -> Case {
    let case = Case::new().await;
    case.fill("c", documents().into_iter().map(|(document, _)| document)).await;
    case
}

fn survivors() -> std::collections::BTreeSet<String> {
    id_set((0..).zip(documents()).filter(|(_, (_, goes))| !goes).map(|(id, _)| id))
}

/// Returns the entry of a report for the one relative date of [`RULE`].
fn said() -> Value {
    json!([{ "of": "filter", "path": "seenAt", "ago": "90d", "date": "2020-06-15T12:26:40.000Z" }])
}

#[tokio::test]
async fn exactly_what_lies_before_both_dates_goes_and_every_report_has_the_date() {
    let case = filled().await;
    let dry = case.report(RULE, &[&["--dry-run"], &AS_OF[..]].concat()).await;
    assert_eq!((dry.rule(0, "expiredCount"), dry.rule(0, "relativeDates")), (&2.into(), &said()), "{dry:?}");
    assert_eq!(
        dry.rule(0, "predicate").to_string().matches(r#"{"$date":"2020-06-15T12:26:40Z"}"#).count(),
        1,
        "{}",
        dry.rule(0, "predicate")
    );
    let words = "90d ago (filter, seenAt) is 2020-06-15T12:26:40.000Z";
    for args in [&["audit"][..], &["sweep", "--dry-run", "-v"], &["sweep", "--dry-run", "-v", "--format", "html"]] {
        let ran = case.run(RULE, &[args, &AS_OF].concat()).await;
        let in_one_line = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(in_one_line.contains(words), "{args:?}: {ran:?}");
    }
    let namespace = case.collection("c").namespace().to_string();
    let why = case.run(RULE, &[&["why", &namespace, "0"], &AS_OF[..]].concat()).await;
    assert!(why.stdout.contains(r#"yes  {"seenAt":{"$lt":{"$date":"2020-06-15T12:26:40Z"}}}"#), "{why:?}");

    let swept = case.report(RULE, &AS_OF).await;
    assert_eq!((swept.ran.code, swept.rule(0, "deletedCount")), (Some(0), &2.into()), "{swept:?}");
    assert_eq!(swept.rule(0, "relativeDates"), &said());
    assert_eq!(case.ids("c").await, survivors());
}

#[tokio::test]
async fn a_saved_plan_is_swept_at_its_own_dates() {
    let case = filled().await;
    let plan = case.dir.path().join("plan.json");
    let saved = case.run(RULE, &[&["audit", "-o", plan.to_str().unwrap()], &AS_OF[..]].concat()).await;
    assert_eq!(saved.code, Some(0), "{saved:?}");
    let swept: Report = case.report(RULE, &["--plan", plan.to_str().unwrap()]).await;
    assert_eq!((swept.ran.code, swept.rule(0, "relativeDates")), (Some(0), &said()), "{swept:?}");
    assert_eq!(case.ids("c").await, survivors());
}

#[tokio::test]
async fn an_index_on_both_dates_is_used_and_holds_count_by_relative_dates() {
    let case = filled().await;
    let index = doc! { "key": { "at": 1, "seenAt": 1 }, "name": "both" };
    case.db.run_command(doc! { "createIndexes": "c", "indexes": [index] }).await.unwrap();
    case.fill(
        "holds",
        [
            doc! { "_id": 0, "c": 3, "until": days_ago(1, 1) },
            doc! { "_id": 1, "c": 0, "until": days_ago(1, 0) },
            doc! { "_id": 2, "c": 0, "until": "2030-01-01" },
        ],
    )
    .await;
    let rule =
        RULE.replace("}}}}", "}}}, holds: {collection: holds, key: {of: _id, in: c}, filter: {until: {$gt: {$ago: 1d}}}}}");
    let swept = case.report(&rule, &AS_OF).await;
    assert_eq!((swept.ran.code, swept.rule(0, "index")), (Some(0), &"both".into()), "{swept:?}");
    let of_holds = json!({ "of": "holds.filter", "path": "until", "ago": "1d", "date": "2020-09-12T12:26:40.000Z" });
    assert_eq!(swept.rule(0, "relativeDates")[1], of_holds, "{swept:?}");
    let mut left = survivors();
    left.extend(id_set([3]));
    assert_eq!(case.ids("c").await, left, "only the first hold counts");
}

#[tokio::test]
async fn the_date_is_the_runs_own_without_as_of() {
    let case = Case::new().await;
    let ago = |millis: i64| DateTime::from_millis(DateTime::now().timestamp_millis() - millis);
    let seen = [3_600_000 + 60_000, 3_600_000 - 60_000].map(ago);
    case.fill("c", (0..).zip(seen).map(|(id, seen): (i32, _)| doc! { "_id": id, "at": days_ago(0, 0), "seenAt": seen })).await;
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, filter: {seenAt: {$not: {$gte: {$ago: 1h}}}}}\n";
    let swept = case.report(rule, &[]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    assert_eq!(case.ids("c").await, id_set([1]));
    let instant = |value: &Value| DateTime::parse_rfc3339_str(value.as_str().unwrap()).unwrap().timestamp_millis();
    assert_eq!(instant(&swept.json["asOf"]) - instant(&swept.rule(0, "relativeDates")[0]["date"]), 3_600_000);
}
