//! `hint` in a rule: refused if the index would miss expired documents or the server rejects it.

use crate::support::faults::{dated, days};
use crate::support::sweeper::{Case, id_set};
use crate::support::version::version;
use mongodb::bson::{Document, doc};

async fn index(case: &Case, name: &str, key: Document, options: Document) {
    let mut spec = doc! { "key": key, "name": name };
    spec.extend(options);
    case.db.run_command(doc! { "createIndexes": "c", "indexes": [spec] }).await.expect("an index");
}

/// Inserts three expired documents and a live one; all but the first have the field `s`.
async fn four(case: &Case) {
    case.fill("c", dated(0..1, days(-3))).await;
    let with = |document: Document| doc! { "_id": document.get_i32("_id").unwrap(), "at": document.get("at").unwrap(), "s": 1 };
    case.fill("c", dated(1..3, days(-3)).chain(dated(3..4, days(3))).map(with)).await;
}

fn rule(hint: &str, extra: &str) -> String {
    format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, hint: {hint}{extra}}}\n")
}

#[tokio::test]
async fn an_index_that_cannot_serve_is_refused_with_the_reason() {
    let case = Case::new().await;
    four(&case).await;
    index(&case, "hidden", doc! { "at": 1 }, doc! { "hidden": true }).await;
    index(&case, "partial", doc! { "at": -1 }, doc! { "partialFilterExpression": { "s": 1 } }).await;
    index(&case, "hashed", doc! { "at": "hashed" }, doc! {}).await;
    index(&case, "text", doc! { "at": "text" }, doc! {}).await;
    for (hint, part) in [
        ("absent", "`absent` does not exist; found `_id_`"),
        ("hidden", "`hidden` is hidden"),
        ("partial", "`partial` is partial"),
        ("hashed", "`hashed`"),
        ("text", "`text`"),
    ] {
        let dry = case.report(&rule(hint, ""), &["--dry-run"]).await;
        assert_eq!(dry.ran.code, Some(0), "{dry:?}");
        assert_eq!(dry.rule(0, "status"), "refused", "{dry:?}");
        let swept = case.report(&rule(hint, ""), &[]).await;
        assert_eq!(swept.ran.code, Some(5), "{swept:?}");
        assert_eq!(swept.rule(0, "reason"), "hint", "{swept:?}");
        let error = swept.rule(0, "error").as_str().unwrap();
        assert!(error.contains(part), "{error}");
        assert_eq!(case.ids("c").await, id_set(0..4), "{hint}");
    }
}

#[tokio::test]
async fn a_partial_index_serves_a_rule_whose_filter_repeats_its_expression() {
    let case = Case::new().await;
    four(&case).await;
    index(&case, "partial", doc! { "at": 1 }, doc! { "partialFilterExpression": { "s": 1 } }).await;
    let swept = case.report(&rule("partial", ", filter: {s: 1}"), &[]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    assert_eq!(swept.rule(0, "index"), "partial");
    assert_eq!(case.ids("c").await, id_set([0, 3]));
}

#[tokio::test]
async fn the_hinted_index_is_the_one_that_is_used() {
    let case = Case::new().await;
    four(&case).await;
    index(&case, "chosen", doc! { "at": 1 }, doc! {}).await;
    index(&case, "longer", doc! { "at": 1, "s": 1 }, doc! {}).await;
    let chosen = case.report("  - {namespace: DB.c, field: at, expireAfter: 1d}\n", &["--dry-run"]).await;
    assert_eq!(chosen.rule(0, "index"), "chosen", "{chosen:?}");
    let swept = case.report(&rule("longer", ""), &[]).await;
    assert_eq!(swept.rule(0, "index"), "longer", "{swept:?}");
    assert_eq!(case.ids("c").await, id_set([3]));
}

#[tokio::test]
async fn no_hinted_index_leaves_expired_documents_behind_in_silence() {
    for (name, key, options) in [
        ("other", doc! { "s": 1 }, doc! {}),
        ("sparse", doc! { "s": 1 }, doc! { "sparse": true }),
        ("wildcard", doc! { "$**": 1 }, doc! {}),
        ("elsewhere", doc! { "s.$**": 1 }, doc! {}),
    ] {
        let case = Case::new().await;
        four(&case).await;
        index(&case, name, key, options).await;
        let swept = case.report(&rule(name, ""), &[]).await;
        let left = case.ids("c").await;
        match swept.rule(0, "status").as_str().unwrap() {
            "complete" => assert_eq!(left, id_set([3]), "{name} {swept:?}"),
            _ => assert_eq!(left, id_set(0..4), "{name} {swept:?}"),
        }
    }
}

#[tokio::test]
async fn a_compound_wildcard_index_that_begins_with_the_date_serves() {
    let case = Case::new().await;
    if version(&case.db).await.major < 7 {
        let refused = doc! { "createIndexes": "c", "indexes": [{ "key": { "at": 1, "x.$**": 1 }, "name": "wild" }] };
        case.db.run_command(refused).await.expect_err("compound wildcard indexes came with 7.0");
        return;
    }
    let below: [Document; 6] = [
        doc! {},
        doc! { "x": {} },
        doc! { "x": null },
        doc! { "x": 5 },
        doc! { "x": { "a": 1, "b": [1, 2] } },
        doc! { "x": [1, { "a": 1 }] },
    ];
    let expired = dated(0..6, days(-3)).zip(below).map(|(document, below)| document.into_iter().chain(below).collect());
    case.fill("c", expired.chain(dated(6..7, days(3))).collect::<Vec<Document>>()).await;
    index(&case, "wild", doc! { "at": 1, "x.$**": 1 }, doc! {}).await;
    index(&case, "other", doc! { "s": 1, "x.$**": 1 }, doc! {}).await;
    let refused = case.report(&rule("other", ""), &[]).await;
    assert_eq!((refused.ran.code, refused.rule(0, "reason")), (Some(5), &"hint".into()), "{refused:?}");
    let swept = case.report(&rule("wild", ", batchSize: 2"), &[]).await;
    assert_eq!((swept.ran.code, swept.rule(0, "index")), (Some(0), &"wild".into()), "{swept:?}");
    assert_eq!(case.ids("c").await, id_set([6]));
}
