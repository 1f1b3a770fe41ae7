//! Documents with strange `_id`s and with values that are not valid: whatever finds them, they go if they have expired, and stay
//! if not.

use crate::support::faults::days;
use crate::support::proxied::Proxied;
use crate::support::proxy::Service;
use crate::support::proxy::cosmos::CosmosRu;
use crate::support::strange::{Strange, fill, hex_set, left};
use crate::support::sweeper::{Case, Report, sweeper};
use crate::support::terminal::Terminal;
use mongodb::bson::doc;

const INDEX: [&str; 1] = ["at"];

/// Creates a collection with expired documents and live ones; returns the live `_id`s.
async fn filled(case: &Case, index: &[&str], with_invalid_field: bool) -> Vec<Strange> {
    for field in index {
        let spec = doc! { "key": { *field: 1 }, "name": format!("{field}_1") };
        case.db.run_command(doc! { "createIndexes": "c", "indexes": [spec] }).await.unwrap();
    }
    fill(case, "c", &Strange::every(0), days(-3), with_invalid_field).await;
    let live = Strange::every(1);
    fill(case, "c", &live, days(3), with_invalid_field).await;
    live
}

async fn assert_swept(case: &Case, report: &Report, live: &[Strange]) {
    assert_eq!(report.ran.code, Some(0), "{report:?}");
    assert_eq!((report.rule(0, "status"), report.rule(0, "uncertain")), (&"complete".into(), &false.into()), "{report:?}");
    assert_eq!(report.rule(0, "deletedCount"), Strange::every(0).len(), "{report:?}");
    assert_eq!(left(case, "c").await, hex_set(live), "{report:?}");
}

#[tokio::test]
async fn every_way_of_finding_documents_deletes_strange_ones_as_well() {
    let ways: [(&[&str], &str); 12] = [
        // In the order of the index; with more documents of one date than a batch takes.
        (&INDEX, ""),
        (&INDEX, ", batchSize: 3"),
        (&INDEX, ", maxDeletes: 1000"),
        (&INDEX, ", maxDeletes: 1000, batchSize: 1"),
        (&INDEX, ", rate: 100000"),
        (&[], ""),
        (&[], ", batchSize: 3"),
        (&[], ", maxDeletes: 1000"),
        (&INDEX, ", ttlField: text"),
        (&INDEX, ", maxDeletePercent: 60, batchSize: 5"),
        // Strings that the collation folds are deleted one by one.
        (&INDEX, ", collation: {locale: en, strength: 2}, maxDeletes: 1000"),
        (&[], ", collation: {locale: en, strength: 2}"),
    ];
    for (index, keys) in ways {
        let case = Case::new().await;
        let live = filled(&case, index, true).await;
        let rule = format!("  - {{namespace: DB.c, field: at, expireAfter: 1d{keys}}}\n");
        assert_swept(&case, &case.report(&rule, &[]).await, &live).await;
    }
}

#[tokio::test]
async fn an_index_with_arrays_leads_to_strange_ids() {
    for keys in ["", ", batchSize: 4"] {
        let case = Case::new().await;
        let live = filled(&case, &INDEX, true).await;
        let arrays = [
            doc! { "_id": "two dates", "at": [days(3), days(9)] },
            doc! { "_id": "two dates before", "at": [days(-2), days(9)] },
        ];
        case.fill("c", arrays).await;
        let swept = case.report(&format!("  - {{namespace: DB.c, field: at, expireAfter: 1d{keys}}}\n"), &[]).await;
        assert_eq!(
            (swept.ran.code, swept.rule(0, "deletedCount")),
            (Some(0), &(Strange::every(0).len() + 1).into()),
            "{swept:?}"
        );
        case.collection("c").delete_one(doc! { "_id": "two dates" }).await.unwrap();
        assert_eq!(left(&case, "c").await, hex_set(&live), "{keys}");
    }
}

#[tokio::test]
async fn services_without_cursors_and_without_lists_lose_no_strange_id() {
    for flavor in ["cosmosRu", "documentDb"] {
        for keys in ["", ", batchSize: 1", ", batchSize: 2", ", batchSize: 7", ", maxDeletes: 1000, batchSize: 3"] {
            let case = Case::new().await;
            let live = filled(&case, &[], true).await;
            let rule = format!("  - {{namespace: DB.c, field: at, expireAfter: 1d{keys}}}\nconnection: {{flavor: {flavor}}}\n");
            let dry = case.report(&rule, &["--dry-run"]).await;
            assert_eq!(dry.rule(0, "expiredCount"), Strange::every(0).len(), "{dry:?}");
            assert_swept(&case, &case.report(&rule, &[]).await, &live).await;
        }
    }
}

#[tokio::test]
async fn an_account_of_cosmos_db_loses_no_strange_id() {
    let valid = |n| Strange::every(n).into_iter().filter(|id| id.is_valid).collect::<Vec<_>>();
    for keys in [", batchSize: 1, maxDeletes: 1000", ", batchSize: 2, maxDeletes: 1000", ", maxDeletes: 1000", ""] {
        let case = Case::new().await;
        fill(&case, "c", &valid(0), days(-3), false).await;
        fill(&case, "c", &valid(1), days(3), false).await;
        let proxied = Proxied::behind(Service::CosmosRu(CosmosRu::default()), case).await;
        let rule = format!("  - {{namespace: DB.c, field: at, expireAfter: 1d{keys}}}\n");
        let dry = proxied.case.report(&rule, &["--dry-run"]).await;
        assert_eq!(dry.rule(0, "expiredCount"), valid(0).len(), "{dry:?}");
        let swept = proxied.case.report(&rule, &[]).await;
        assert_eq!((swept.ran.code, swept.rule(0, "deletedCount")), (Some(0), &valid(0).len().into()), "{swept:?}");
        assert_eq!(left(&proxied.case, "c").await, hex_set(&valid(1)), "{keys}");
    }
}

#[tokio::test]
async fn an_audit_and_a_dry_run_look_at_strange_documents() {
    for index in [&INDEX[..], &[]] {
        let case = Case::new().await;
        filled(&case, index, true).await;
        let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, ttlField: text}\n";
        let dry = case.report(rule, &["--dry-run"]).await;
        assert_eq!((dry.ran.code, dry.rule(0, "expiredCount")), (Some(0), &Strange::every(0).len().into()), "{dry:?}");
        let ran = case.run(rule, &["audit", "--exact", "--format", "json"]).await;
        let audit = Report { json: serde_json::from_str(&ran.stdout).unwrap(), ran };
        assert_eq!((audit.ran.code, audit.rule(0, "expiredCount")), (Some(0), &Strange::every(0).len().into()), "{audit:?}");
        assert_eq!(audit.rule(0, "samples").as_array().map(Vec::len), Some(10), "{audit:?}");
        let warnings = audit.rule(0, "warnings").to_string();
        assert!(!warnings.contains("not measured"), "{warnings}");
    }
}

#[tokio::test]
async fn documents_that_are_not_valid_are_kept_by_a_rule_that_archives() {
    for (index, keys) in [(&INDEX[..], ""), (&INDEX, ", batchSize: 3"), (&[], ""), (&[], ", maxDeletes: 1000")] {
        let case = Case::new().await;
        let live = filled(&case, index, false).await;
        let directory = case.dir.path().join("archive");
        std::fs::create_dir(&directory).unwrap();
        let archive = format!("archive: {{directory: '{}'}}", directory.display());
        let rule = format!("  - {{namespace: DB.c, field: at, expireAfter: 1d{keys}, {archive}}}\n");
        let swept = case.report(&rule, &[]).await;
        let expired = Strange::every(0);
        let kept: Vec<&Strange> = expired.iter().filter(|id| !id.is_valid).collect();
        assert_eq!(left(&case, "c").await, hex_set(live.iter().chain(kept.iter().copied())), "{swept:?}");
        assert_eq!(swept.ran.code, Some(0), "{swept:?}");
        assert_eq!(swept.rule(0, "deletedCount"), expired.len() - kept.len(), "{swept:?}");
        assert_eq!(swept.rule(0, "remainingCount"), kept.len(), "{swept:?}");
        let warnings = swept.rule(0, "warnings").to_string();
        let said = format!("{} documents kept, and not archived", kept.len());
        assert!(warnings.contains(&said) && warnings.contains("not valid UTF-8"), "{warnings}");
    }
}

#[tokio::test]
async fn a_policy_is_drafted_from_strange_documents() {
    let case = Case::new().await;
    filled(&case, &[], true).await;
    let namespace = format!("{}.c", case.db.name());
    let mut command = sweeper(&["init", "--force", "--expire-after", "1d", "--namespace", &namespace, "--uri", &case.uri, "-o"]);
    command.arg(case.dir.path().join("drafted.yaml"));
    let ran = Terminal::open(&command).types("\n\n\n\n\n").end().await;
    assert!(ran.stdout.contains("at   in 57 documents: dates"), "{}", ran.stdout);
}
