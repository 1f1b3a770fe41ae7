//! One number for one thing, in every format and by every way to run: rules that overlap, the limit of the run, refused rules,
//! what is left.

use crate::support::faults::{dated, days};
use crate::support::sweeper::{Case, Report, id_set};
use mongodb::IndexModel;
use mongodb::bson::{Bson, DateTime, doc};
use serde_json::{Value, json};

/// Returns ten documents that have expired by both rules, and two that have not.
async fn ten(with_index: bool) -> Case {
    let case = Case::new().await;
    case.fill("c", dated(0..10, days(-9)).chain(dated(10..12, days(9)))).await;
    if with_index {
        case.collection("c").create_index(IndexModel::builder().keys(doc! { "at": 1 }).build()).await.expect("an index");
    }
    case
}

fn both(of_a: &str, of_b: &str) -> String {
    format!(
        "  - {{name: a, namespace: DB.c, field: at, expireAfter: 1d{of_a}}}\n  - {{name: b, namespace: DB.c, field: at, expireAfter: 2d{of_b}}}\n"
    )
}

/// Runs a command with one output per format. Returns the JSON, the table, the CSV, Markdown and the page.
async fn every_format(case: &Case, rules: &str, args: &[&str]) -> (Report, [String; 4]) {
    let path = |name: &str| case.dir.path().join(name).display().to_string();
    let [json, text, csv, markdown, page] = ["a.json", "a.txt", "a.csv", "a.md", "a.html"].map(path);
    let ran = case.run(rules, &[args, &["-o", &json, "-o", &text, "-o", &csv, "-o", &markdown, "-o", &page]].concat()).await;
    let read = |path: &String| std::fs::read_to_string(path).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    let others = [&text, &csv, &markdown, &page].map(|path| read(path).replace("\n  ", " "));
    (Report { json: serde_json::from_str(&read(&json)).expect("JSON"), ran }, others)
}

fn values(report: &Report, key: &str) -> Vec<Value> {
    report.json["rules"].as_array().unwrap().iter().map(|rule| rule[key].clone()).collect()
}

/// Returns the cells of a column.
fn column(csv: &str, name: &str) -> Vec<String> {
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let place = reader.headers().unwrap().iter().position(|head| head == name).unwrap();
    reader.records().map(|record| record.unwrap()[place].to_owned()).collect()
}

#[tokio::test]
async fn rules_that_overlap_are_named_and_their_sums_are_upper_bounds() {
    let case = ten(true).await;
    let rules = both("", "");
    for args in [&["sweep", "--dry-run"][..], &["audit"]] {
        let (report, [text, csv, markdown, page]) = every_format(&case, &rules, args).await;
        let totals = &report.json["totals"];
        assert_eq!((&totals["expiredCount"], &totals["wouldDeleteCount"]), (&json!(20), &json!(20)), "{totals}");
        assert_eq!((&totals["overlapping"], &totals["documentCount"]), (&json!(true), &json!(12)), "{totals}");
        for (place, other) in ["b", "a"].into_iter().enumerate() {
            let said = report.rule(place, "warnings").to_string();
            assert!(said.contains(&format!("`{other}` is for the same collection")), "{said}");
        }
        for text in [&text, &markdown] {
            assert!(text.contains("would delete at most 20 documents by 2 rules"), "{text}");
            assert!(text.contains("is for the same collection"), "{text}");
        }
        assert!(page.contains("at most 20 documents would go") && page.contains("<dt>expired</dt><dd>at most 20</dd>"), "{page}");
        assert_eq!(column(&csv, "wouldDeleteCount"), ["10", "10"]);
        assert!(column(&csv, "warnings").iter().all(|said| said.contains("for the same collection")), "{csv}");
        if args == ["audit"] {
            for text in [&text, &markdown] {
                assert!(text.contains("total: at most 20 documents expired") && !text.contains("166.7 %"), "{text}");
            }
        }
    }
    let checked = case.run(&rules, &["check", "--connect"]).await;
    assert!(checked.stdout.contains("for the same collection"), "{checked:?}");
    // One rule with nothing expired counts no document twice.
    let apart = case.report(&both("", "").replace("2d", "30d"), &["--dry-run"]).await;
    assert_eq!((&apart.json["totals"]["overlapping"], &apart.json["totals"]["expiredCount"]), (&json!(false), &json!(10)));
    assert_eq!(values(&apart, "warnings"), [json!([]), json!([])], "{apart:?}");
}

/// One rule deletes six, and the other is refused: four are left, and not the ten that it counted.
#[tokio::test]
async fn what_a_rule_leaves_is_counted_where_another_rule_deleted() {
    for with_index in [true, false] {
        let case = ten(with_index).await;
        let rules = both(", maxDeletePercent: 50", ", maxDeletes: 6") + "history: {collection: DB.runs}\n";
        let metrics = case.dir.path().join("a.prom").display().to_string();
        let (swept, [text, csv, _, page]) = every_format(&case, &rules, &["sweep", "--metrics-file", &metrics]).await;
        assert_eq!(swept.ran.code, Some(5), "{swept:?}");
        assert_eq!(case.ids("c").await.len(), 6);
        assert_eq!(
            (values(&swept, "deletedCount"), values(&swept, "expiredCount")),
            (vec![json!(0), json!(6)], vec![json!(10), Value::Null])
        );
        let (left, cell, total) = if with_index { (json!(4), "4", json!(8)) } else { (Value::Null, "", Value::Null) };
        assert_eq!(values(&swept, "remainingCount"), [left.clone(), left.clone()], "{swept:?}");
        assert_eq!((column(&csv, "remainingCount"), &swept.json["totals"]["remainingCount"]), (vec![cell.to_owned(); 2], &total));
        let said = if with_index { "left: at most 8 documents" } else { "left: at most 10 documents; unknown: 1 rule" };
        assert!(text.contains(said) && swept.ran.stderr.contains(said), "{text} {swept:?}");
        assert_eq!(page.contains("<dt>left</dt><dd>at most 8</dd>"), with_index, "{page}");
        let metrics = std::fs::read_to_string(metrics).unwrap();
        let series = metrics.lines().filter(|line| line.starts_with("sweeper_expired_documents_remaining{"));
        let series: Vec<&str> = series.map(|line| line.rsplit(' ').next().unwrap()).collect();
        assert_eq!(series, vec!["4"; if with_index { 2 } else { 0 }], "{metrics}");
        let run = case.collection("runs").find_one(doc! {}).await.unwrap().unwrap();
        let of_history: Value = Bson::from(run).into_relaxed_extjson();
        assert_eq!(of_history["rules"][0]["remainingCount"], left, "{of_history}");
    }
}

#[tokio::test]
async fn the_limit_of_the_run_bounds_what_would_go_in_every_format() {
    let case = Case::new().await;
    case.fill("c", dated(0..40, days(-3))).await;
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d}\n";
    let (report, [text, csv, markdown, page]) = every_format(&case, rule, &["sweep", "--dry-run", "--max-deletes", "10"]).await;
    assert_eq!((report.rule(0, "expiredCount"), report.rule(0, "wouldDeleteCount")), (&json!(40), &json!(10)));
    assert_eq!(
        (report.rule(0, "wouldDeleteLimit"), &report.json["totals"]["wouldDeleteCount"]),
        (&json!("maxDeletes"), &json!(10))
    );
    assert!(text.contains("would delete 10 documents by 1 rule") && text.contains("--max-deletes"), "{text}");
    assert_eq!(
        (column(&csv, "wouldDeleteCount"), column(&csv, "wouldDeleteLimit")),
        (vec!["10".into()], vec!["maxDeletes".into()])
    );
    assert!(markdown.contains("| 100.0 % | 10 | maxDeletes |"), "{markdown}");
    assert!(page.contains("10 documents would go") && page.contains("data-l=\"would go\" data-v=\"10\""), "{page}");
    let swept = case.report(rule, &["--max-deletes", "10"]).await;
    assert_eq!((swept.rule(0, "deletedCount"), &swept.json["totals"]["wouldDeleteCount"]), (&json!(10), &Value::Null));
}

#[tokio::test]
async fn no_format_says_what_a_sweep_by_a_refused_rule_would_do() {
    let case = Case::new().await;
    case.fill("c", dated(0..40, days(-3))).await;
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, maxDeletePercent: 1}\n";
    for args in [&["sweep", "--dry-run"][..], &["audit"]] {
        let (report, [text, csv, markdown, page]) = every_format(&case, rule, args).await;
        assert_eq!((report.rule(0, "status"), report.rule(0, "expiredCount")), (&json!("refused"), &json!(40)));
        for key in ["estimate", "wouldDeleteCount", "estimatedSeconds"] {
            assert_eq!(report.rule(0, key), &Value::Null, "{key}");
        }
        assert_eq!((&report.json["totals"]["oplogBytes"], &report.json["totals"]["wouldDeleteCount"]), (&json!(0), &json!(0)));
        for text in [&text, &markdown] {
            assert!(!text.contains("a sweep would delete") && text.contains("nothing would be deleted"), "{text}");
        }
        assert_eq!((column(&csv, "estimate"), column(&csv, "expiredCount")), (vec![String::new()], vec!["40".to_owned()]));
        assert!(page.contains("nothing would go") && !page.contains("no history yet"), "{page}");
    }
}

#[tokio::test]
async fn a_dry_run_and_an_audit_say_the_same_is_left() {
    let case = ten(true).await;
    let rules = "  - {namespace: DB.c, field: at, expireAfter: 1d}\n";
    let (dry, _) = every_format(&case, rules, &["sweep", "--dry-run"]).await;
    let (audit, _) = every_format(&case, rules, &["audit"]).await;
    for key in ["expiredCount", "remainingCount", "oldestRemaining", "oldestExpired", "wouldDeleteCount"] {
        assert!(!dry.rule(0, key).is_null(), "{key}");
        assert_eq!(dry.rule(0, key), audit.rule(0, key), "{key}");
    }
    assert_eq!(dry.json["totals"]["remainingCount"], audit.json["totals"]["remainingCount"]);
}

/// The server walks the index by the condition of the filter, whose first match is another document.
#[tokio::test]
async fn the_oldest_is_the_earliest_date_that_has_expired_whatever_the_filter_says_of_dates() {
    let case = ten(true).await;
    let (oldest, shared) = (days(-90), days(-4));
    case.fill("c", [doc! { "_id": 21, "at": [shared, days(-3)] }, doc! { "_id": 20, "at": [oldest, shared] }]).await;
    let [shared, since] = [shared, days(-5)].map(|date| format!("{{$date: '{}'}}", date.try_to_rfc3339_string().unwrap()));
    for filter in [shared, format!("{{$gt: {since}}}"), format!("{{$elemMatch: {{$gt: {since}}}}}")] {
        let rules = format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, filter: {{at: {filter}}}}}\n");
        for args in [&["sweep", "--dry-run"][..], &["audit"]] {
            let (report, _) = every_format(&case, &rules, args).await;
            assert_eq!(report.rule(0, "expiredCount"), &json!(2), "{report:?}");
            let told = report.rule(0, "oldestExpired").as_str().unwrap();
            assert_eq!(DateTime::parse_rfc3339_str(told).unwrap(), oldest, "{args:?}: {filter}");
        }
    }
    assert_eq!(case.ids("c").await, id_set((0..12).chain(20..22)));
}
