//! The HTML report, read by a parser: it shows the values of the JSON report and loads nothing.

use std::collections::HashSet;

use crate::support::page::{all, audit, facts, number, page, rows, text, texts};
use base64::Engine;
use scraper::Html;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use ttl_sweeper::base::text::{bytes, count};

#[test]
fn the_page_shows_the_values_of_the_report() {
    let report = audit();
    let html = Html::parse_document(&page(&report));
    let root = html.root_element();
    assert_eq!(html.errors, Vec::<std::borrow::Cow<str>>::new());
    assert_eq!(texts(root, "h1"), ["1,344,320 documents would go"]);
    assert_eq!(texts(root, "title"), ["sweeper audit: 1,344,320 documents would go"]);
    let head = text(all(root, "header")[0]);
    for value in [&report["runId"], &report["asOf"], &report["startedAt"], &report["policy"]["sha256"], &report["policy"]["path"]]
    {
        assert!(head.contains(value.as_str().unwrap()), "{value} is not in {head}");
    }
    assert!(head.contains("mongodb 6.0.5, replicaSet rs0: db1:27017, db2:27017, db3:27017"), "{head}");

    let table = rows(root, "section table.sortable");
    assert_eq!(table.len(), report["rules"].as_array().unwrap().len());
    for (index, (row, rule)) in table.iter().zip(report["rules"].as_array().unwrap()).enumerate() {
        let percent = rule["expiredPercent"].as_f64().map(|percent| format!("{percent:.1} %"));
        let share = percent.unwrap_or_else(|| "not measured".into());
        assert_eq!(row[0], rule["name"]);
        let warnings = match rule["warnings"].as_array().unwrap().len() {
            0 => String::new(),
            1 => "1 warning".to_owned(),
            number => format!("{number} warnings"),
        };
        let status = rule["status"].as_str().unwrap().replace("complete", "ready");
        assert_eq!(row[1], format!("{status}{warnings}"));
        let would_go = if rule["status"] == "complete" { number(&rule["wouldDeleteCount"]) } else { "–".to_owned() };
        assert_eq!(row[2..6], [number(&rule["expiredCount"]), number(&rule["documentCount"]), share.clone(), would_go]);

        let article = all(root, &format!("details#rule-{}", index + 1))[0];
        let facts = facts(article);
        assert_eq!(facts["namespace"], rule["namespace"]);
        assert_eq!(facts["field"], rule["field"]);
        if rule["status"] == "skipped" {
            assert!(!facts.contains_key("expired"), "{facts:?}");
            continue;
        }
        assert_eq!(facts["expired"], number(&rule["expiredCount"]));
        assert_eq!(facts["documents"], number(&rule["documentCount"]));
        assert_eq!(facts["share"], share);
        assert_eq!(facts["their size, estimated"], rule["estimatedBytes"].as_u64().map_or("not measured".into(), bytes));
        for (label, key) in [("threshold", "threshold"), ("oldest expired", "oldestExpired"), ("newest expired", "newestExpired")]
        {
            if let Some(shown) = facts.get(label) {
                assert_eq!(shown, rule[key].as_str().unwrap_or("not measured"), "{label}");
            }
        }
        let body = text(article);
        for note in rule["warnings"].as_array().unwrap().iter().chain([&rule["error"]]).filter_map(Value::as_str) {
            // What is between two backticks is shown as code.
            assert!(body.contains(&note.replace('`', "")), "{note} is not in {body}");
        }
        for setting in rule["nativeTtl"].as_array().into_iter().flatten() {
            assert!(facts["native TTL"].contains(&format!("{} s", setting["expireAfterSeconds"])), "{facts:?}");
        }
    }
}

#[test]
fn charts_have_a_text_and_their_numbers_as_tables() {
    let report = audit();
    let html = Html::parse_document(&page(&report));
    let sessions = all(html.root_element(), "details#rule-1")[0];
    let rule = &report["rules"][0];
    let charts = all(sessions, ".chart");
    assert_eq!(charts.len(), 3);
    for chart in &charts {
        assert_eq!(chart.attr("role"), Some("img"));
        assert_eq!(all(*chart, "svg").len(), 1);
    }
    assert_eq!(
        charts[0].attr("aria-label"),
        Some("Age of the documents: 1,336,200 expired, 334,352 not. The numbers are in the table below.")
    );
    assert_eq!(facts(sessions)["next 30 days"], "325,203");
    let ages: Vec<[String; 2]> = rule["ageHistogram"]
        .as_array()
        .unwrap()
        .iter()
        .map(|range| [number(&range["expiredCount"]), number(&range["notExpiredCount"])])
        .collect();
    let tables = all(sessions, ".numbers table");
    let cells = |index: usize| rows(tables[index], "table");
    assert_eq!(cells(0).iter().map(|row| [row[1].clone(), row[2].clone()]).collect::<Vec<_>>(), ages);
    assert_eq!(cells(0)[0][0], "in the future");
    assert_eq!(cells(0)[3][0], "1 d – 7 d");
    assert_eq!(cells(0)[8][0], "2 y and more");
    let forecast: Vec<Vec<String>> = (rule["forecast"].as_array().unwrap().iter())
        .map(|day| vec![day["from"].as_str().unwrap().to_owned(), number(&day["count"])])
        .collect();
    assert_eq!((cells(1), forecast.len()), (forecast, 30));
    assert_eq!(cells(2), [["2026-01", "1,336,200"]]);

    // 59 months are grouped by year.
    let events = all(html.root_element(), "details#rule-2")[0];
    let of = |year: &str| {
        let months = report["rules"][1]["backlog"].as_array().unwrap().iter();
        months
            .filter(|month| month["month"].as_str().unwrap().starts_with(year))
            .map(|month| month["count"].as_u64().unwrap())
            .sum()
    };
    let years: Vec<Vec<String>> =
        ["2021", "2022", "2023", "2024", "2025", "2026"].iter().map(|year| vec![(*year).to_owned(), count(of(year))]).collect();
    assert_eq!(rows(all(events, ".numbers table")[2], "table"), years);
    let body = text(events);
    assert!(body.contains("projected from 100,000 documents of 1,130,420; 95 % of the shares are within 0.31"), "{body}");
    assert!(texts(events, "pre")[0].contains("createIndex({seenAt: 1})"));
}

#[test]
fn what_never_expires_and_samples_are_shown_with_their_ids() {
    let report = audit();
    let html = Html::parse_document(&page(&report));
    let sessions = all(html.root_element(), "details#rule-1")[0];
    let tables: Vec<Vec<Vec<String>>> =
        all(sessions, "details#rule-1 > .scroll table").into_iter().map(|table| rows(table, "table")).collect();
    let never = &tables[0];
    assert_eq!(never.iter().map(|row| row[0].as_str()).collect::<Vec<_>>(), ["missing", "null", "string"]);
    assert_eq!(never.iter().map(|row| row[2].as_str()).collect::<Vec<_>>(), ["212", "3", "135"]);
    assert_eq!(never[2][3], r#"4711"user-77:mobile""#);
    let samples: Vec<Vec<String>> = (report["rules"][0]["samples"].as_array().unwrap().iter())
        .map(|sample| {
            vec![
                ttl_sweeper::base::text::id(&sample["id"]),
                sample["date"].as_str().unwrap().into(),
                sample["why"].as_str().unwrap().into(),
            ]
        })
        .collect();
    assert_eq!(tables[1], samples);
    let carts = texts(all(html.root_element(), "details#rule-3")[0], "tbody th");
    assert_eq!(carts.last().unwrap(), "ttlNotPositive", "a reason with no documents has no row: {carts:?}");
}

#[test]
fn what_was_not_measured_is_said_and_never_shown_as_0() {
    let mut report = audit();
    let html = Html::parse_document(&page(&report));
    assert_eq!(
        texts(html.root_element(), ".tiles dd"),
        [
            "2,422,994without uploads",
            "1.72 GiBwithout uploads",
            "374,522without carts, uploads",
            "1,571without uploads",
            "61 refused, 1 failed",
            "1in 1 rule"
        ]
    );
    // A rule with a glob has several namespaces, and is one rule.
    report["rules"][4]["name"] = report["rules"][5]["name"].clone();
    let globbed = Html::parse_document(&page(&report));
    assert_eq!(texts(globbed.root_element(), ".tiles dd")[4], "5in 6 namespaces, 1 refused, 1 failed");
    let uploads = all(html.root_element(), "details#rule-4")[0];
    let shown = facts(uploads);
    for label in ["documents", "expired", "share", "oldest expired", "newest expired", "next 30 days", "found by", "native TTL"] {
        assert_eq!(shown[label], "not measured", "{label}");
    }
    let body = text(uploads);
    assert!(body.contains("Ages, forecast and backlog: not measured") && body.contains("Never expire: not measured"), "{body}");

    // A sweep without counts says so only once.
    report["command"] = json!("sweep");
    report["dryRun"] = json!(false);
    for rule in report["rules"].as_array_mut().unwrap() {
        rule.as_object_mut().unwrap().remove("samples");
        rule["expiredCount"] = Value::Null;
        rule["deletedCount"] = json!(5);
    }
    report["rules"][1]["uncertain"] = json!(true);
    report["totals"]["deletedCount"] = json!(30);
    let html = Html::parse_document(&page(&report));
    assert_eq!(texts(html.root_element(), "h1"), ["at least 25 documents and 5 buckets were deleted"]);
    let heads: Vec<String> = texts(html.root_element(), "section thead th");
    assert_eq!(heads, ["rule", "status", "documents", "deleted", "left", "time"]);
    assert_eq!(rows(html.root_element(), "section table.sortable")[1][3], "≥ 5");
    assert!(text(html.root_element()).contains("were not counted before this sweep"));
}

#[test]
fn the_page_asks_for_nothing_from_elsewhere() {
    let page = page(&audit());
    let markup = page.replace("xmlns=\"http://www.w3.org/2000/svg\"", "").replace("http-equiv", "");
    for reference in ["http", "//", "src=", "@import", "url(", "srcset", "javascript:", "data:"] {
        assert!(!markup.contains(reference), "{reference}");
    }
    let html = Html::parse_document(&page);
    let root = html.root_element();
    assert_eq!(all(root, "link, img, image, iframe, object, embed, form, base, use, video, audio, [onclick], [onload]").len(), 0);
    let ids: HashSet<&str> = all(root, "[id]").into_iter().filter_map(|element| element.attr("id")).collect();
    for link in all(root, "[href]") {
        let href = link.attr("href").unwrap();
        assert!(href.strip_prefix('#').is_some_and(|id| ids.contains(id)), "{href}");
    }
    let policy = all(root, "meta[http-equiv=Content-Security-Policy]")[0].attr("content").unwrap();
    let script: String = all(root, "script")[0].text().collect();
    let hash = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(script));
    assert_eq!(
        policy,
        format!("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'")
    );
}

#[test]
fn warnings_are_counted_and_stand_open_at_the_top_each_once() {
    let mut report = audit();
    for rule in report["rules"].as_array_mut().unwrap() {
        rule["warnings"] = json!([]);
    }
    report["rules"][0]["warnings"] = json!(["of two rules"]);
    report["rules"][2]["warnings"] = json!(["of two rules", "of one"]);
    let html = Html::parse_document(&page(&report));
    let root = html.root_element();
    assert!(texts(root, ".tiles dd").contains(&"3in 2 rules".to_owned()), "{:?}", texts(root, ".tiles dd"));
    assert!(texts(root, "section.attention h2").contains(&"3 warnings".to_owned()));
    let name = |index: usize| report["rules"][index]["name"].as_str().unwrap().to_owned();
    let expected = [format!("{}, {}: of two rules", name(0), name(2)), format!("{}: of one", name(2))];
    assert_eq!(texts(root, "main > section.attention li.note"), expected);
    assert_eq!(all(root, "details section, details li.note").len(), 0, "not folded");
}

#[test]
fn every_cell_of_a_rule_names_its_column_because_a_phone_shows_no_heads() {
    let mut report = audit();
    for dry_run in [true, false] {
        report["dryRun"] = json!(dry_run);
        report["command"] = json!(if dry_run { "audit" } else { "sweep" });
        let html = Html::parse_document(&page(&report));
        let table = all(html.root_element(), "section table.cards")[0];
        let heads = texts(table, "thead th");
        for row in all(table, "tbody tr") {
            let labels: Vec<&str> = all(row, "td").iter().map(|cell| cell.attr("data-l").unwrap_or("none")).collect();
            assert_eq!(labels, heads[1..], "{}", text(row));
        }
        assert_eq!(heads.contains(&"would go".to_owned()), dry_run);
        assert_eq!(heads.contains(&"left".to_owned()), !dry_run);
    }
}

#[test]
fn the_estimate_has_a_row_of_its_own_and_a_chart_of_the_oplog() {
    let mut report = audit();
    report["rules"][0]["estimate"] = json!({
        "documents": 5, "documentsPerSecond": 10.0, "speedSource": "assumption", "oplogBytes": 500, "oplogWindowSeconds": 7200,
        "oplogWindowAfterSeconds": 3600,
    });
    let html = Html::parse_document(&page(&report));
    let rule = all(html.root_element(), "details#rule-1")[0];
    let wide = text(all(rule, ".grid .wide")[0]);
    assert!(wide.contains("the oplog window is 2h 00m now, and 1h 00m after the sweep"), "{wide}");
    assert_eq!(texts(rule, ".grid .wide svg text"), ["oplog now", "2h 00m", "after sweep", "1h 00m"]);
    // An oplog that is not full yet grows by itself.
    report["rules"][0]["estimate"]["oplogWindowSeconds"] = json!(60);
    let html = Html::parse_document(&page(&report));
    let rule = all(html.root_element(), "details#rule-1")[0];
    assert!(text(all(rule, ".grid .wide")[0]).contains("it is not full yet"));
    assert_eq!(texts(rule, ".grid .wide svg text"), [""; 0]);
}
