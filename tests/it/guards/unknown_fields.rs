//! The guard against a wrong name: a rule that would delete documents for the lack of a field that none has is refused.

use crate::support::faults::{alone, dated, days, fail_commands};
use crate::support::proxied::Proxied;
use crate::support::proxy::Service;
use crate::support::proxy::cosmos::CosmosRu;
use crate::support::server::{Server, on_servers};
use crate::support::sweeper::{Case, Report, id_set};
use crate::support::terminal::Terminal;
use mongodb::bson::{Bson, Document, doc};
use serde_json::Value;

/// Runs a command and reads its JSON report.
async fn report(case: &Case, rules: &str, args: &[&str]) -> Report {
    let ran = case.run(rules, &[args, &["--format", "json"]].concat()).await;
    let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    Report { json, ran }
}

/// Asserts that every command says that this rule is refused, that a sweep ends with 5, and that nothing is deleted.
async fn assert_refused(case: &Case, rules: &str, part: &str) {
    let before = case.ids("c").await;
    for args in [&["check", "--connect"][..], &["sweep", "--dry-run"], &["audit"], &["sweep"]] {
        let report = report(case, rules, args).await;
        assert_eq!(
            (report.rule(0, "status"), report.rule(0, "reason")),
            (&"refused".into(), &"unknownField".into()),
            "{report:?}"
        );
        let error = report.rule(0, "error").as_str().unwrap();
        assert!(error.contains(part) && error.contains("allowUnknownFields"), "{rules}: {error:?} does not contain {part:?}");
        if args == ["sweep"] {
            assert_eq!((report.ran.code, report.json["totals"]["refused"].as_u64()), (Some(5), Some(1)), "{report:?}");
        } else if args[0] != "check" {
            assert_eq!(report.ran.code, Some(0), "{report:?}");
        }
        assert_eq!(case.ids("c").await, before, "{args:?}");
    }
}

/// Asserts that a sweep leaves these documents, and warns if and only if a part of a warning is given.
async fn assert_left<T: Into<Bson>>(case: &Case, rules: &str, left: impl IntoIterator<Item = T>, warning: Option<&str>) {
    let swept = case.report(rules, &[]).await;
    assert_eq!((swept.ran.code, swept.rule(0, "status")), (Some(0), &"complete".into()), "{swept:?}");
    assert_eq!(case.ids("c").await, id_set(left), "{swept:?}");
    let warnings = swept.rule(0, "warnings").to_string();
    match warning {
        Some(part) => assert!(warnings.contains(part), "{warnings}"),
        None => assert!(!warnings.contains("no document found"), "{warnings}"),
    }
}

/// Carts of three days, some of which are to stay forever.
fn carts() -> Vec<Document> {
    let ttl = |id: i32| if id % 4 == 0 { Some(-1) } else { None };
    let cart = |id: i32| {
        let mut cart = doc! { "_id": id, "at": days(-3) };
        cart.extend(ttl(id).map(|ttl| ("ttl".to_owned(), ttl.into())));
        cart
    };
    (0..20).map(cart).collect()
}

/// Finished and open jobs, some of them under a legal hold.
fn jobs() -> Vec<Document> {
    let job = |id: i32| {
        let status = if id % 2 == 0 { "done" } else { "open" };
        doc! { "_id": id, "at": days(-3), "status": status, "legalHold": id % 5 == 0, "meta": { "held": id % 3 == 0 } }
    };
    (0..30).map(job).collect()
}

async fn a_misspelt_ttl_field_deletes_nothing(server: &Server) {
    let case = server.case().await;
    case.fill("c", carts()).await;
    let rule = |keys: &str| format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, {keys}}}\n");
    assert_refused(&case, &rule("ttlField: tll"), "no document found has `tll` (`ttlField`), but some have `ttl`").await;
    // Nothing expires without a ttl, so that there is nothing to refuse.
    let own = "  - {namespace: DB.c, field: at, expireAfterSeconds: -1, ttlField: tll}\n";
    let dry = case.report(own, &["--dry-run"]).await;
    assert_eq!((dry.rule(0, "status"), dry.rule(0, "expiredCount")), (&"complete".into(), &0.into()), "{dry:?}");
    assert!(dry.rule(0, "warnings").to_string().contains("no document found has `tll`"), "{dry:?}");
    assert_left(&case, &rule("ttlField: ttl"), (0..20).filter(|id| id % 4 == 0), None).await;
}

async fn a_misspelt_field_of_a_filter_deletes_nothing(server: &Server) {
    let case = server.case().await;
    case.fill("c", jobs()).await;
    let rule = |filter: &str| format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, filter: {filter}}}\n");
    let wrong = rule("{status: done, legalHolld: {$ne: true}}");
    assert_refused(&case, &wrong, "no document found has `legalHolld` (`filter`), but some have `legalHold`").await;
    let right = rule("{status: done, legalHold: {$ne: true}}");
    assert_left(&case, &right, (0..30).filter(|id| id % 2 == 1 || id % 5 == 0), None).await;
}

async fn what_no_document_needs_to_have_is_named_by_the_rule(server: &Server) {
    let case = server.case().await;
    case.fill("c", jobs()).await;
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, ttlField: ttl, filter: {status: done, paused: {$ne: true}}";
    assert_refused(&case, &format!("{rule}}}\n"), "allowUnknownFields: [ttl, paused]").await;
    assert_refused(&case, &format!("{rule}, allowUnknownFields: [ttl]}}\n"), "allowUnknownFields: [paused]").await;
    let allowed = format!("{rule}, allowUnknownFields: [paused, ttl]}}\n");
    assert_left(&case, &allowed, (0..30).filter(|id| id % 2 == 1), None).await;
}

on_servers!(
    a_misspelt_ttl_field_deletes_nothing,
    a_misspelt_field_of_a_filter_deletes_nothing,
    what_no_document_needs_to_have_is_named_by_the_rule
);

#[tokio::test]
async fn every_condition_that_a_document_without_the_field_may_meet_is_guarded() {
    let case = Case::new().await;
    let lists = jobs().into_iter().map(|mut job| {
        job.insert("items", vec![doc! { "held": true, "n": 1 }]);
        job
    });
    case.fill("c", lists).await;
    for (filter, path) in [
        ("{legalHolld: {$nin: [true]}}", "legalHolld"),
        ("{legalHolld: {$not: {$eq: true}}}", "legalHolld"),
        ("{$nor: [{legalHolld: true}]}", "legalHolld"),
        ("{legalHolld: {$exists: false}}", "legalHolld"),
        ("{legalHolld: null}", "legalHolld"),
        ("{meta.heldd: {$ne: true}}", "meta.heldd"),
        ("{items: {$elemMatch: {heldd: {$ne: true}}}}", "items.heldd"),
        ("{$or: [{status: open}, {$and: [{status: done}, {legalHolld: {$ne: true}}]}]}", "legalHolld"),
        ("{$expr: {$ne: [$legalHolld, true]}}", "legalHolld"),
        ("{$jsonSchema: {properties: {legalHolld: {enum: [false]}}}}", "legalHolld"),
    ] {
        let rule = format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, filter: {filter}}}\n");
        assert_refused(&case, &rule, &format!("no document found has `{path}` (`filter`)")).await;
    }
    // Without the field nothing matches: it is said and not refused.
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, filter: {stauts: done}}\n";
    let dry = case.report(rule, &["--dry-run"]).await;
    assert_eq!((dry.rule(0, "status"), dry.rule(0, "expiredCount")), (&"complete".into(), &0.into()), "{dry:?}");
    let warnings = dry.rule(0, "warnings").to_string();
    assert!(warnings.contains("no document found has `stauts` (`filter`), but some have `status`"), "{warnings}");
    assert_left(&case, "  - {namespace: DB.c, field: att, expireAfter: 1d}\n", 0..30, Some("`att` (`field`)")).await;
}

#[tokio::test]
async fn a_field_that_only_late_documents_have_is_found() {
    for place in [1200, 2999] {
        let case = Case::new().await;
        let documents = dated(0..3000, days(-3)).map(|mut document| {
            if document.get_i32("_id").ok() == Some(place) {
                document.insert("ttl", -1);
            }
            document
        });
        case.fill("c", documents).await;
        let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, ttlField: ttl}\n";
        assert_left(&case, rule, [place], None).await;
    }
}

#[tokio::test]
async fn a_name_is_right_if_one_of_many_namespaces_has_it() {
    let case = Case::new().await;
    for name in ["c", "tenant_1", "tenant_2", "tenant_3"] {
        let held = name == "tenant_2";
        case.fill(
            name,
            (0..6).map(|id| {
                if held {
                    doc! { "_id": id, "at": days(-3), "hold": id == 4 }
                } else {
                    doc! { "_id": id, "at": days(-3) }
                }
            }),
        )
        .await;
    }
    let rule =
        |path: &str| format!("  - {{namespace: 'DB.tenant_*', field: at, expireAfter: 1d, filter: {{{path}: {{$ne: true}}}}}}\n");
    let wrong = case.report(&rule("holdd"), &[]).await;
    assert_eq!((wrong.ran.code, wrong.json["totals"]["refused"].as_u64()), (Some(5), Some(3)), "{wrong:?}");
    // Nor is a wrong name right because another one is found.
    let both = rule("hold").replace("}}}", "}, holdd: {$ne: true}}}");
    let half = case.report(&both, &[]).await;
    assert_eq!((half.ran.code, half.json["totals"]["refused"].as_u64()), (Some(5), Some(3)), "{half:?}");
    assert_eq!(case.ids("tenant_1").await, id_set(0..6));
    let said = |report: &Report| -> Vec<bool> {
        let rules = report.json["rules"].as_array().unwrap();
        rules.iter().map(|rule| rule["warnings"].to_string().contains("in other namespaces of the rule have it")).collect()
    };
    let dry = case.report(&rule("hold"), &["--dry-run"]).await;
    assert_eq!((dry.ran.code, said(&dry)), (Some(0), vec![true, false, true]), "{dry:?}");
    let swept = case.report(&rule("hold"), &[]).await;
    assert_eq!((swept.ran.code, said(&swept)), (Some(0), vec![false; 3]), "{swept:?}");
    for (name, left) in [("tenant_1", vec![]), ("tenant_2", vec![4]), ("tenant_3", vec![]), ("c", (0..6).collect())] {
        assert_eq!(case.ids(name).await, id_set::<i32>(left), "{name}");
    }
    // By itself a namespace without the field is no evidence.
    case.fill("tenant_1", dated(0..2, days(-3))).await;
    let only = case.report(&rule("hold"), &["--only", "*.tenant_1"]).await;
    assert_eq!((only.ran.code, only.rule(0, "reason")), (Some(5), &"unknownField".into()), "{only:?}");
    assert_eq!(case.ids("tenant_1").await, id_set(0..2));
}

#[tokio::test]
async fn the_meta_field_of_a_time_series_collection_is_looked_for_in_its_buckets() {
    let case = Case::new().await;
    case.db.run_command(doc! { "create": "c", "timeseries": { "timeField": "t", "metaField": "m" } }).await.unwrap();
    case.fill("c", (0..4).map(|id| doc! { "_id": id, "t": days(-3), "m": { "id": id, "held": id == 2 } })).await;
    let rule = |path: &str| format!("  - {{namespace: DB.c, expireAfter: 1d, filter: {{{path}: {{$ne: true}}}}}}\n");
    assert_refused(&case, &rule("m.heldd"), "no document found has `m.heldd` (`filter`)").await;
    assert_left(&case, &rule("m.held"), [2], None).await;
}

#[tokio::test]
async fn no_name_is_judged_by_a_collection_without_documents() {
    let case = Case::new().await;
    case.db.create_collection("c").await.unwrap();
    let rule = "  - {namespace: DB.c, field: att, expireAfter: 1d, ttlField: tll, filter: {hold: {$ne: true}}}\n";
    for args in [&["sweep"][..], &["sweep", "--dry-run"], &["audit"], &["check", "--connect"]] {
        let report = report(&case, rule, args).await;
        assert_eq!((report.ran.code, report.rule(0, "status")), (Some(0), &"complete".into()), "{report:?}");
        assert!(!report.rule(0, "warnings").to_string().contains("no document found"), "{report:?}");
    }
}

#[tokio::test]
async fn the_question_says_which_fields_no_document_has() {
    let case = Case::new().await;
    case.fill("c", jobs()).await;
    case.fill("d", jobs()).await;
    let rules = "  - {namespace: DB.c, field: at, expireAfter: 1d, filter: {$or: [{status: done}, {stauts: failed}]}}
  - {namespace: DB.d, field: at, expireAfter: 1d, filter: {legalHolld: {$ne: true}}}\n";
    let terminal = Terminal::open(&case.command(rules, &["sweep"])).until_asked().await;
    let shown: String = terminal.shown.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in ["no document found has `stauts`", "no document found has `legalHolld`"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let ran = terminal.types("yes\n").end().await;
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert_eq!(case.ids("c").await, id_set((0..30).filter(|id| id % 2 == 1)));
    assert_eq!(case.ids("d").await, id_set(0..30));
}

#[tokio::test]
async fn a_look_on_cosmos_db_loads_a_hundred_documents_and_searches_no_further_under_a_limit() {
    let old = || (0..400).map(|id| doc! { "_id": id, "at": days(-3), "ttl": if id == 300 { -1 } else { 60 } });
    for (keys, deepest) in [("", true), (", maxRequestUnits: 1000", false)] {
        let case = Case::new().await;
        case.fill("c", old()).await;
        let proxied = Proxied::behind(Service::CosmosRu(CosmosRu::default()), case).await;
        let wrong = format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, ttlField: tll{keys}}}\n");
        let refused = proxied.case.report(&wrong, &[]).await;
        assert_eq!((refused.ran.code, refused.rule(0, "reason")), (Some(5), &"unknownField".into()), "{refused:?}");
        assert_eq!(proxied.case.ids("c").await.len(), 400);
        let looks = proxied.proxy.requests_of("aggregate");
        assert!(!looks.is_empty());
        for look in looks {
            let first = look.body.get_array("pipeline").unwrap()[0].as_document().unwrap().get_i64("$limit").unwrap();
            assert!(first <= 100, "{:?}", look.body);
        }
        let searches = proxied
            .proxy
            .requests_of("find")
            .into_iter()
            .filter(|find| find.body.get_document("filter").is_ok_and(|filter| filter.contains_key("tll")));
        assert_eq!(searches.count() > 0, deepest, "{keys}");
        let right = format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, ttlField: ttl{keys}}}\n");
        let swept = proxied.case.report(&right, &[]).await;
        assert_eq!(swept.ran.code, Some(0), "{swept:?}");
        assert_eq!(proxied.case.ids("c").await, id_set([300]));
    }
}

#[tokio::test]
async fn a_look_that_fails_keeps_the_rule_from_running() {
    let (_mongod, case) = alone().await;
    case.fill("c", carts()).await;
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, ttlField: ttl}\n";
    fail_commands(&case.client, "alwaysOn", doc! { "failCommands": ["aggregate"], "errorCode": 2 }).await;
    let failed = case.report(rule, &[]).await;
    assert_eq!((failed.ran.code, failed.rule(0, "status")), (Some(3), &"failed".into()), "{failed:?}");
    assert!(
        failed.rule(0, "error").as_str().unwrap().starts_with("looking for the fields that the policy names: "),
        "{failed:?}"
    );
    assert_eq!(failed.rule(0, "deletedCount"), &Value::from(0));
    assert_eq!(case.ids("c").await, id_set(0..20));
}
