//! Real reports match the JSON Schema, show the same values in every format, and neutralize hostile names.

use crate::support::sweeper::{Case, Ran};
use mongodb::bson::{DateTime, Document, doc};

fn schema() -> jsonschema::Validator {
    let schema = serde_json::from_str(&ttl_sweeper::core::report::json::schema::<ttl_sweeper::core::report::Report>())
        .expect("the schema is JSON");
    jsonschema::options().build(&schema).expect("the schema is a schema")
}

fn validate(ran: &Ran) -> serde_json::Value {
    let report = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    let errors: Vec<String> = schema().iter_errors(&report).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:#?}\n{}", ran.stdout);
    report
}

fn dated(days_old: impl IntoIterator<Item = i64>) -> Vec<Document> {
    let now = DateTime::now().timestamp_millis();
    days_old
        .into_iter()
        .map(|days| doc! { "at": DateTime::from_millis(now - days * 86_400_000), "pad": "x".repeat(100) })
        .collect()
}

/// Returns a rule for each outcome: complete, partial, refused, failed, skipped.
async fn every_fate(case: &Case) -> String {
    case.fill("plain", dated(0..20)).await;
    case.fill("capped_by_rule", dated(5..15)).await;
    case.fill("too_much", dated(5..15)).await;
    case.fill("broken", dated(5..15)).await;
    case.fill(
        "ttl",
        dated(5..15).into_iter().map(|mut document| {
            document.insert("ttl", 0);
            document
        }),
    )
    .await;
    [
        "  - {name: plain, namespace: DB.plain, field: at, expireAfter: 10d}",
        "  - {namespace: DB.capped_by_rule, field: at, expireAfter: 1d, maxDeletes: 3}",
        "  - {namespace: DB.too_much, field: at, expireAfter: 1d, maxDeletePercent: 10}",
        "  - {namespace: DB.broken, field: at, expireAfter: 1d, filter: {at: {$nonsense: 1}}}",
        "  - {namespace: DB.nowhere, field: at, expireAfter: 1d}",
        "  - {namespace: DB.ttl, field: at, ttlField: ttl, expireAfterSeconds: -1}",
        "  - {name: off, namespace: DB.plain, field: at, expireAfter: 1d, enabled: false}",
        "",
    ]
    .join("\n")
}

#[tokio::test]
async fn real_reports_are_as_the_schema_says() {
    let case = Case::new().await;
    let rules = every_fate(&case).await;
    let offline = case.run(&rules, &["check", "--format", "json"]).await;
    assert_eq!(validate(&offline)["server"], serde_json::Value::Null);
    validate(&case.run(&rules, &["check", "--connect", "--format", "json"]).await);
    let dry = validate(&case.run(&rules, &["sweep", "--dry-run", "--format", "json"]).await);
    let statuses = |report: &serde_json::Value| {
        report["rules"].as_array().unwrap().iter().map(|rule| rule["status"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(statuses(&dry), ["complete", "complete", "refused", "failed", "skipped", "complete", "skipped"]);
    assert_eq!(dry["rules"][5]["neverExpires"]["ttlNotPositive"], 10);
    let swept = case.run(&rules, &["sweep", "--format", "json"]).await;
    let report = validate(&swept);
    assert_eq!(statuses(&report), ["complete", "partial", "refused", "failed", "skipped", "complete", "skipped"]);
    assert_eq!((swept.code, &report["exitCode"], &report["status"]), (Some(3), &3.into(), &"failed".into()));
    assert_eq!(report["totals"]["deletedCount"], 13);
    assert_eq!(report["totals"]["refused"], 1);
    assert_eq!(report["rules"][0]["expiredCount"], serde_json::Value::Null, "a sweep counts only if asked to");
}

#[tokio::test]
async fn every_format_shows_the_same_values() {
    let case = Case::new().await;
    case.fill("c", dated(0..1200)).await;
    let rules = "  - {name: old ones, namespace: DB.c, field: at, expireAfter: 1d, maxDeletePercent: 100}\n";
    let as_of = "2026-01-31T02:00:00Z";
    let now = chrono::DateTime::parse_from_rfc3339(as_of).unwrap().timestamp_millis();
    let expected =
        case.collection("c").count_documents(doc! { "at": { "$lte": DateTime::from_millis(now - 86_400_000) } }).await.unwrap();
    assert!(expected > 0);
    // One run for all of them: the free space in the server's files differs from run to run.
    let files = ["json", "csv", "md", "txt", "html"].map(|extension| case.dir.path().join(format!("report.{extension}")));
    let outputs = files.iter().flat_map(|file| ["-o", file.to_str().unwrap()]);
    let args: Vec<&str> = ["sweep", "--dry-run", "-v", "--as-of", as_of].into_iter().chain(outputs).collect();
    let ran = case.run(rules, &args).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let texts = files.map(|file| std::fs::read_to_string(file).unwrap());
    let json: serde_json::Value = serde_json::from_str(&texts[0]).unwrap();
    let rule = &json["rules"][0];
    assert_eq!(rule["expiredCount"], expected);
    assert_eq!(rule["documentCount"], 1200);

    let mut reader = csv::Reader::from_reader(texts[1].as_bytes());
    let header = reader.headers().unwrap().clone();
    let record = reader.records().next().unwrap().unwrap();
    for (key, value) in header.iter().zip(&record) {
        let same = match rule.get(key).or_else(|| json.get(key)).unwrap_or_else(|| panic!("`{key}` is not in the JSON report")) {
            serde_json::Value::Null => String::new(),
            serde_json::Value::String(text) => text.clone(),
            serde_json::Value::Array(items) => items.iter().map(|item| item.as_str().unwrap()).collect::<Vec<_>>().join("; "),
            serde_json::Value::Object(fields) if key == "estimate" => {
                let known = fields.iter().filter(|(_, value)| !value.is_null());
                let text = |value: &serde_json::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                known.map(|(name, value)| format!("{name}={}", text(value))).collect::<Vec<_>>().join("; ")
            }
            // A whole number has no decimals in a CSV file.
            serde_json::Value::Number(number) if number.is_f64() => number.as_f64().unwrap().to_string(),
            other => other.to_string(),
        };
        assert_eq!(value, same, "{key}");
    }
    let percent = format!("{:.1} %", rule["expiredPercent"].as_f64().unwrap());
    for text in &texts[2..] {
        for value in
            ["old ones", "ready", "1,200", &percent, rule["threshold"].as_str().unwrap(), rule["oldestExpired"].as_str().unwrap()]
        {
            assert!(text.contains(value), "{value} is not in:\n{text}");
        }
        assert!(text.contains(&ttl_sweeper::base::text::count(expected)), "{text}");
        assert!(text.contains("nothing was deleted (dry run)"), "{text}");
    }
    let widest = texts[3].lines().map(|line| line.chars().count()).max();
    assert!(widest <= Some(80), "the table is {widest:?} wide:\n{}", texts[3]);
}

#[tokio::test]
async fn names_from_outside_cannot_change_what_a_reader_sees() {
    let case = Case::new().await;
    let hostile = "a|b<script>\u{202e}[x](y)`*";
    case.fill(hostile, dated(5..6)).await;
    let rules =
        format!("  - {{namespace: {:?}, field: at, expireAfter: 1d}}\n", format!("DB.{hostile}").replace('\u{202e}', "*"));
    let table = case.run(&rules, &["sweep", "--dry-run", "-v"]).await;
    assert!(table.stdout.contains("\\u{202e}") && !table.stdout.contains('\u{202e}'), "{table:?}");
    let markdown = case.run(&rules, &["sweep", "--dry-run", "--format", "markdown"]).await;
    assert!(markdown.stdout.contains("a\\|b&lt;script&gt;") && !markdown.stdout.contains("<script>"), "{markdown:?}");
    let row = markdown.stdout.lines().find(|line| line.contains("ready") && line.starts_with('|')).unwrap();
    assert_eq!(row.replace("\\|", "").matches('|').count(), 9, "{row}");
    validate(&case.run(&rules, &["sweep", "--dry-run", "--format", "json"]).await);
}
