//! Audit output about single documents, suspicious dates, indexes and native TTL, in each format.

use std::time::Duration;

use crate::support::audit::{audit, sum, warnings};
use crate::support::faults::{alone, dated, days};
use crate::support::sweeper::Case;
use mongodb::IndexModel;
use mongodb::bson::{DateTime, doc};
use mongodb::options::IndexOptions;
use serde_json::Value;

#[tokio::test]
async fn doubtful_dates_are_named() {
    let case = Case::new().await;
    let now = DateTime::now().timestamp_millis();
    let date = DateTime::from_millis;
    let documents = [
        doc! { "at": date(now / 1000) },
        doc! { "at": date(0) },
        doc! { "at": date(now * 1000) },
        doc! { "at": date(now + 11 * 365 * 86_400_000) },
        doc! { "at": now / 1000 },
        doc! { "at": now / 1000 },
        doc! { "at": now },
        doc! { "at": 5 },
        doc! { "at": date(now - 3 * 86_400_000) },
    ];
    case.fill("c", documents).await;
    case.fill("s", (0..3).map(|_| doc! { "at": "2020-01-01" })).await;
    let strings = ["2024-01-31T02:00:00Z", "2024-01-31T02:00:00.5+02:00", "hello", "", "5", "2024-13-45", "x\0y", "東京", "-"];
    case.fill("t", strings.map(|text| doc! { "at": text })).await;
    let rules = "  - {name: c, namespace: DB.c, field: at, expireAfter: 1d}
  - {name: s, namespace: DB.s, field: at, expireAfter: 1d}
  - {name: e, namespace: DB.c, field: at, expireAfter: 1d, dateFormat: epochMillis}
  - {name: f, namespace: DB.c, field: at, expireAfter: 1d, dateFormat: epochSeconds}
  - {name: t, namespace: DB.t, field: at, expireAfter: 1d}
  - {name: i, namespace: DB.t, field: at, expireAfter: 1d, dateFormat: iso8601}\n";
    let report = audit(&case, rules, &[]).await;
    for (rule, part) in [
        (0, "2 documents with a date in January 1970 would be deleted"),
        (0, "1 document with a date in the year 5138 or later"),
        (0, "1 document with a date more than ten years ahead"),
        (0, "2 documents with a number in `at` that looks like epoch seconds"),
        (0, "1 document with a number in `at` that looks like epoch milliseconds"),
        (1, "no document found has a date in `at` (`field`), so none expires"),
        (1, "3 documents with a date in `at` that is written as a string"),
        (4, "2 documents with a date in `at` that is written as a string"),
        (4, "`dateFormat: iso8601` is for those by RFC 3339"),
        (5, "7 documents with a string in `at` that is no date by RFC 3339 with `Z` or an offset, and is kept"),
        (2, "3 documents with a number in `at` that looks like seconds where the rule says milliseconds"),
        (2, "5 documents with a BSON date in `at`"),
        (3, "1 document with a number in `at` that looks like milliseconds where the rule says seconds"),
    ] {
        assert!(warnings(&report, rule).contains(part), "{part}: {}", warnings(&report, rule));
    }
    assert_eq!(report.rule(0, "expiredCount"), 3);
    assert_eq!(report.rule(0, "neverExpires"), &serde_json::json!({ "number": 4 }));
    assert_eq!((report.rule(5, "expiredCount"), report.rule(5, "createIndex")), (&2.into(), &Value::Null));
    assert_eq!(report.rule(5, "neverExpires"), &serde_json::json!({ "string": 7 }));
}

#[tokio::test]
async fn what_decided_is_said_of_samples_and_the_oldest_come_first_along_an_index() {
    let case = Case::new().await;
    let documents = (0..30).map(|n| doc! { "_id": n, "at": [days(i64::from(n) - 60), days(i64::from(n) - 50), days(5)] });
    case.fill("c", documents.chain([doc! { "_id": 100, "at": days(-61), "ttl": 20 }, doc! { "_id": 101, "at": days(-62) }]))
        .await;
    case.collection("c").create_index(IndexModel::builder().keys(doc! { "at": 1 }).build()).await.expect("an index");
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, ttlField: ttl}\n";
    let report = audit(&case, rule, &[]).await;
    let samples = report.rule(0, "samples").as_array().unwrap();
    let whys: Vec<&Value> = samples.iter().take(3).map(|sample| &sample["why"]).collect();
    assert_eq!(whys, ["at least 1d old", "ttl 20 overrides 86400", "earliest of 3 dates"]);
    let ids: Vec<&str> = samples.iter().map(|sample| sample["id"]["$numberInt"].as_str().unwrap()).collect();
    assert_eq!(ids, ["101", "100", "0", "1", "2", "3", "4", "5", "6", "7"]);
    assert_eq!((report.rule(0, "createIndex"), report.rule(0, "examined")["returned"].as_u64()), (&Value::Null, Some(32)));
}

#[tokio::test]
async fn native_ttl_is_compared_and_an_index_advised() {
    let (_mongod, case) = alone().await;
    // The monitors of the tests' servers are off, which would be said.
    let on = doc! { "setParameter": 1, "ttlMonitorEnabled": true };
    case.client.database("admin").run_command(on).await.expect("a parameter");
    for name in ["same", "other", "bare", "own"] {
        case.fill(name, dated(0..3, days(3))).await;
    }
    for (name, seconds) in [("same", 86_400), ("other", 7200), ("own", 864_000)] {
        let options = IndexOptions::builder().expire_after(Duration::from_secs(seconds)).build();
        let index = IndexModel::builder().keys(doc! { "at": 1 }).options(options).build();
        case.collection(name).create_index(index).await.expect("an index");
    }
    let rules = "  - {namespace: DB.same, field: at, expireAfter: 1d}
  - {namespace: DB.other, field: at, expireAfter: 1d}
  - {namespace: DB.bare, field: at, expireAfter: 1d}
  - {namespace: DB.own, field: at, expireAfter: 1d, ttlField: ttl}\n";
    let report = audit(&case, rules, &[]).await;
    for (rule, state, part) in [
        (0, "same", "index at_1 deletes after 86400 s"),
        (1, "differs", "index at_1 deletes after 7200 s, the rule says 86400"),
        (2, "none", "`sweeper native apply` makes one"),
        (3, "differs", "deletes after 864000 s, whatever the rule says; no native TTL does what the rule does: a ttl in each"),
    ] {
        let compared = report.rule(rule, "nativeComparison");
        assert_eq!(compared["state"], state, "{compared}");
        assert!(compared["detail"].as_str().unwrap().contains(part), "{compared}");
    }
    let create = format!("db.getSiblingDB({:?}).getCollection(\"bare\").createIndex({{\"at\": 1}})", case.db.name());
    assert_eq!((report.rule(2, "createIndex"), report.rule(0, "createIndex")), (&create.into(), &Value::Null));
    assert_eq!(report.rule(2, "examined"), &serde_json::json!({ "documents": 3, "keys": 0, "returned": 0 }));
}

#[tokio::test]
async fn buckets_are_counted_by_their_latest_measurement() {
    let case = Case::new().await;
    case.db
        .run_command(doc! { "create": "s", "timeseries": { "timeField": "t", "metaField": "m" } })
        .await
        .expect("a collection");
    // Each meta value gets its own bucket.
    let measured = |m: i32, millis: i64| doc! { "t": DateTime::from_millis(1_769_824_800_000 + millis), "m": m };
    let day = 86_400_000;
    case.fill(
        "s",
        [measured(0, -3 * day), measured(0, -3 * day + 1), measured(1, -day), measured(2, -day + 1), measured(3, day)],
    )
    .await;
    let rule = "  - {namespace: DB.s, expireAfter: 1d, filter: {m: {$lt: 9}}}\n";
    let report = audit(&case, rule, &["--as-of", "2026-01-31T02:00:00Z"]).await;
    assert_eq!((report.rule(0, "expiredCount"), report.rule(0, "expiredMeasurements")), (&2.into(), &3.into()), "{report:?}");
    assert_eq!(sum(report.rule(0, "ageHistogram"), "notExpiredCount"), 2);
    let forecast: Vec<u64> =
        report.rule(0, "forecast").as_array().unwrap().iter().map(|day| day["count"].as_u64().unwrap()).collect();
    assert_eq!(forecast[..3], [1, 1, 0]);
    assert_eq!((report.rule(0, "neverExpires"), report.rule(0, "createIndex")), (&Value::Null, &Value::Null));
    let sample = &report.rule(0, "samples")[0];
    assert_eq!(sample["why"], "latest measurement at least 1d old");
    assert_eq!(sample["date"], "2026-01-28T02:00:00.001Z");
    let none = audit(&case, "  - {namespace: DB.s, expireAfter: 1d, filter: {m: 9}}\n", &[]).await;
    assert_eq!(none.rule(0, "ageHistogram"), &serde_json::json!([]));
}

#[tokio::test]
async fn every_format_shows_the_same_figures_within_80_columns() {
    let case = Case::new().await;
    let ids = ["<b>`|*_", "\u{202e}turned", "plain"];
    let documents = (0..1500)
        .map(|n| doc! { "_id": n, "at": days(i64::from(n) / 10 - 400), "ttl": if n % 300 == 0 { -1 } else { 86_400 * 10 } });
    case.fill("c", documents).await;
    case.fill("c", ids.map(|id| doc! { "_id": id, "at": "text" })).await;
    let rules = "  - {name: <i>name, namespace: DB.c, field: at, expireAfter: 1d, ttlField: ttl}
  - {name: other, namespace: DB.nowhere, field: at, expireAfter: 1d}\n";
    let args = ["--as-of", "2026-01-31T02:00:00Z"];
    let json = audit(&case, rules, &args).await;
    let rule = &json.json["rules"][0];
    let count = ttl_sweeper::base::text::count;
    let forecast = rule["forecast"].as_array().unwrap();
    let within = |days: usize| count(forecast[..days].iter().map(|day| day["count"].as_u64().unwrap()).sum());
    let next = format!("expires next: {} in 24 h, {} in 7 d, {} in 30 d", within(1), within(7), within(30));
    assert!(rule["expiredCount"].as_u64() > Some(100) && within(30) != "0", "{rule}");
    for format in ["table", "markdown"] {
        let ran = case.run(rules, &[&["audit", "--format", format], &args[..]].concat()).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let text = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        let shows = |value: &str| assert!(text.contains(value), "{format}: {value} is not in:\n{}", ran.stdout);
        shows(&next);
        shows("nothing was deleted (audit)");
        shows("3 string, such as");
        shows(rule["createIndex"].as_str().unwrap());
        shows(rule["newestExpired"].as_str().unwrap());
        shows("native TTL: none:");
        for range in rule["ageHistogram"].as_array().unwrap() {
            let numbers = ["expiredCount", "notExpiredCount"].map(|key| count(range[key].as_u64().unwrap()));
            shows(&numbers.join(" "));
        }
        for month in rule["backlog"].as_array().unwrap() {
            shows(&format!("{} {}", month["month"].as_str().unwrap(), count(month["count"].as_u64().unwrap())));
        }
        for (reason, n) in rule["neverExpires"].as_object().unwrap().iter().filter(|(_, n)| **n != 0) {
            shows(&format!("{} {reason}", count(n.as_u64().unwrap())));
        }
        for sample in rule["samples"].as_array().unwrap() {
            shows(&format!("{} {}", sample["date"].as_str().unwrap(), ttl_sweeper::base::text::id(&sample["id"])));
        }
        assert!(!ran.stdout.contains('\u{202e}'), "{}", ran.stdout);
        if format == "table" {
            let is_narrow = |line: &str| line.chars().count() <= 80 || line.trim_start().starts_with("db.getSiblingDB");
            assert!(ran.stdout.lines().all(is_narrow), "{}", ran.stdout);
        } else {
            // Angle brackets occur only in code.
            let raw: Vec<&str> = ran.stdout.lines().filter(|line| line.contains('<') && !line.starts_with("    ")).collect();
            assert!(raw.is_empty(), "{raw:?}");
        }
    }

    let csv = case.run(rules, &[&["audit", "--format", "csv"], &args[..]].concat()).await;
    let mut reader = csv::Reader::from_reader(csv.stdout.as_bytes());
    let header = reader.headers().unwrap().clone();
    let records: Vec<csv::StringRecord> = reader.records().map(|record| record.expect("as many cells as columns")).collect();
    let cell = |name: &str| &records[0][header.iter().position(|column| column == name).unwrap_or_else(|| panic!("no `{name}`"))];
    let listed =
        |key: &str, of: &dyn Fn(&Value) -> String| rule[key].as_array().unwrap().iter().map(of).collect::<Vec<_>>().join("; ");
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string().replace("null", ""), str::to_owned);
    let age = |range: &Value| {
        let [min, max] = ["minAgeSeconds", "maxAgeSeconds"].map(|key| text(&range[key]));
        format!("{min}..{max}={}+{}", range["expiredCount"], range["notExpiredCount"])
    };
    for (key, expected) in [
        ("newestExpired", text(&rule["newestExpired"])),
        ("createIndex", text(&rule["createIndex"])),
        ("sampling", String::new()),
        ("forecast", listed("forecast", &|day| format!("{}={}", text(&day["from"]), day["count"]))),
        ("backlog", listed("backlog", &|month| format!("{}={}", text(&month["month"]), month["count"]))),
        (
            "samples",
            listed("samples", &|sample| format!("{}={} ({})", sample["id"], text(&sample["date"]), text(&sample["why"]))),
        ),
        // It begins with the age of a date in the future, which a spreadsheet must not take for a formula.
        ("ageHistogram", format!("'{}", listed("ageHistogram", &age))),
    ] {
        assert_eq!(cell(key), expected, "{key}");
    }
    assert_eq!(records.len(), 2);
    let sweep = case.run(rules, &["sweep", "--dry-run", "--format", "csv"]).await;
    assert!(!sweep.stdout.contains("ageHistogram"), "a sweep has no such columns: {sweep:?}");
}
