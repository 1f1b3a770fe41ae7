//! Periods that cannot be read, that have no key, or whose names are wrong: the rule is refused, and nothing is deleted.

use mongodb::bson::{Bson, Document, doc};

use crate::support::faults::{dated, days};
use crate::support::sweeper::{Case, id_set};

fn rule(periods: &str) -> String {
    format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, periods: {{{periods}, unit: d}}}}\n")
}

async fn filled(tenants: impl IntoIterator<Item = Document>) -> Case {
    let case = Case::new().await;
    let document = |mut document: Document| {
        document.insert("t", "x");
        document
    };
    case.fill("c", dated(0..20, days(-3)).map(document)).await;
    case.fill("tenants", tenants).await;
    case
}

async fn assert_refused(case: &Case, rule: &str, reason: &str, part: &str) {
    for args in [&["--dry-run"][..], &[]] {
        let ran = case.report(rule, args).await;
        assert_eq!((ran.rule(0, "status"), ran.rule(0, "reason")), (&"refused".into(), &reason.into()), "{rule}: {ran:?}");
        let error = ran.rule(0, "error").as_str().unwrap();
        assert!(error.contains(part), "{rule}: {error:?} does not contain {part:?}");
        assert_eq!(case.ids("c").await, id_set(0..20), "{rule}");
    }
}

#[tokio::test]
async fn what_is_missing_or_has_no_key_refuses_the_rule() {
    let by_name = "collection: DB.tenants, key: {of: t, in: name}, value: days";
    for (tenant, part) in [
        (doc! { "days": 5 }, "`name` is missing"),
        (doc! { "name": Bson::Null, "days": 5 }, "`name` is null"),
        (doc! { "name": ["x"], "days": 5 }, "`name` is a list"),
        (doc! { "name": f64::NAN, "days": 5 }, "`name` is NaN"),
    ] {
        let case = filled([doc! { "name": "x", "days": 5 }, tenant]).await;
        assert_refused(&case, &rule(by_name), "periods", part).await;
    }
    let case = filled([doc! { "_id": "x", "days": 5 }]).await;
    let absent = rule("collection: DB.absent, key: {of: t, in: _id}, value: days");
    assert_refused(&case, &absent, "periods", "does not exist; expected the collection of the periods").await;
}

#[tokio::test]
async fn a_wrong_name_refuses_the_rule_unless_it_is_allowed() {
    let case = filled([doc! { "_id": "x", "days": 5 }]).await;
    let wrong = rule("collection: DB.tenants, key: {of: tt, in: _id}, value: days");
    assert_refused(&case, &wrong, "unknownField", "no document found has `tt` (`periods`)").await;
    let wrong = rule("collection: DB.tenants, key: {of: t, in: _id}, value: day");
    assert_refused(&case, &wrong, "unknownField", "has `day` (`periods.value`); by a misspelt name all documents would expire")
        .await;
    let allowed = wrong.replace("expireAfter: 1d", "expireAfter: 1d, allowUnknownFields: [day]");
    let swept = case.report(&allowed, &[]).await;
    assert_eq!((swept.ran.code, swept.rule(0, "deletedCount")), (Some(0), &20.into()), "{swept:?}");
}

#[tokio::test]
async fn no_orphans_go_by_a_rule_with_periods() {
    let case = filled([doc! { "_id": "x", "days": 5 }]).await;
    case.fill("lines", [doc! { "_id": 1, "of": 1 }]).await;
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, orphans: true, children: [{namespace: DB.lines, field: of}], \
                periods: {collection: DB.tenants, key: {of: t, in: _id}, value: days, unit: d}}\njournal: {collection: DB.j}\n";
    assert_refused(&case, rule, "children", "`orphans` with `periods`").await;
}
