//! Odd contents and names of real collections: only expired documents are deleted, and no oddity stops a sweep.

use crate::support::faults::{dated, days};
use crate::support::mongod::Mongod;
use crate::support::sweeper::{Case, Report, id_set};
use futures_util::TryStreamExt;
use futures_util::{StreamExt, stream};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Decimal128, Document, Timestamp, doc};
use mongodb::options::Hint;

fn assert_swept(report: &Report, index: usize, deleted: u64) {
    assert_eq!(report.ran.code, Some(0), "{report:?}");
    assert_eq!(report.rule(index, "status"), "complete", "{report:?}");
    assert_eq!(report.rule(index, "deletedCount"), deleted, "{report:?}");
}

fn warnings(report: &Report, index: usize) -> String {
    report.rule(index, "warnings").to_string()
}

#[tokio::test]
async fn a_namespace_that_does_not_exist_is_a_warning() {
    let case = Case::new().await;
    case.fill("there", dated(0..2, days(-3))).await;
    let rules = "  - {namespace: DB.absent, field: at, expireAfter: 1d}
  - {namespace: 'DB.absent_*', field: at, expireAfter: 1d}
  - {namespace: nosuchdatabase.c, field: at, expireAfter: 1d}
  - {namespace: DB.there, field: at, expireAfter: 1d}\n";
    for args in [&["--dry-run"][..], &[]] {
        let report = case.report(rules, args).await;
        assert_eq!(report.ran.code, Some(0), "{report:?}");
        for index in 0..3 {
            assert_eq!(report.rule(index, "status"), "skipped", "{report:?}");
            assert!(warnings(&report, index).contains("no such namespace"), "{report:?}");
        }
        assert_eq!(report.rule(3, "status"), "complete");
    }
    let names = case.db.list_collection_names().await.unwrap();
    assert_eq!(names, ["there"], "a sweep creates nothing");
}

#[tokio::test]
async fn a_field_that_no_document_has_is_a_warning_that_names_it() {
    let case = Case::new().await;
    case.fill("c", dated(0..3, days(-3))).await;
    let rules = "  - {namespace: DB.c, field: createdAt, expireAfter: 1d}\n";
    for args in [&["--dry-run"][..], &[]] {
        let report = case.report(rules, args).await;
        assert_swept(&report, 0, 0);
        assert!(warnings(&report, 0).contains("`createdAt`"), "{report:?}");
    }
    let table = case.run(rules, &["sweep"]).await;
    assert!(table.stdout.contains("createdAt"), "{table:?}");
    assert_eq!(case.ids("c").await, id_set(0..3));
}

#[tokio::test]
async fn dates_that_are_strings_or_numbers_never_expire() {
    let case = Case::new().await;
    let old = days(-3);
    let values = [
        Bson::from("2001-01-01T00:00:00Z"),
        Bson::from("2001-01-01"),
        Bson::from(""),
        Bson::from(old.timestamp_millis()),
        Bson::from(0),
        Bson::Null,
        Bson::Timestamp(Timestamp { time: 1, increment: 1 }),
        Bson::from(doc! { "at": old }),
        Bson::from(vec![Bson::from("2001-01-01"), Bson::from(days(3))]),
    ];
    let kept = values.len() as i32;
    let documents = values.into_iter().zip(0..).map(|(at, id)| doc! { "_id": id, "at": at });
    case.fill("c", documents.chain(dated(kept..kept + 2, old))).await;
    let report = case.report("  - {namespace: DB.c, field: at, expireAfter: 1d}\n", &[]).await;
    assert_swept(&report, 0, 2);
    assert_eq!(case.ids("c").await, id_set(0..kept));
}

/// Returns `_id`s of every type allowed for them; `n` makes two sets distinct.
fn mixed_ids(n: i32) -> Vec<Bson> {
    let text = format!("é\u{0} {n}");
    vec![
        Bson::from(n),
        Bson::from(i64::from(n) + (1 << 40)),
        Bson::from(f64::from(n) + 0.5),
        Bson::from(if n == 0 { f64::NAN } else { f64::NEG_INFINITY }),
        Bson::Decimal128(format!("{n}.25").parse::<Decimal128>().unwrap()),
        Bson::from(text.as_str()),
        Bson::Symbol(format!("symbol {n}")),
        Bson::ObjectId(ObjectId::new()),
        Bson::from(n == 0),
        Bson::DateTime(DateTime::from_millis(i64::from(n) - 1)),
        Bson::Timestamp(Timestamp { time: 1, increment: u32::try_from(n).unwrap() }),
        Bson::Binary(Binary { subtype: if n == 0 { BinarySubtype::Uuid } else { BinarySubtype::UuidOld }, bytes: vec![7; 16] }),
        Bson::JavaScriptCode(format!("f({n})")),
        if n == 0 { Bson::MinKey } else { Bson::MaxKey },
        if n == 0 { Bson::Null } else { Bson::from("") },
        // Subdocuments are equal only if their keys are in the same order.
        Bson::from(if n == 0 {
            doc! { "a": 1, "b": 2 }
        } else {
            doc! { "b": 2, "a": 1 }
        }),
        Bson::from(doc! { "a": { "b": [1, { "n": n }] } }),
        Bson::from(doc! { "tenant": "x", "at": days(-9), "n": n }),
        Bson::from(if n == 0 {
            doc! {}
        } else {
            doc! { "": "" }
        }),
    ]
}

/// Returns the `_id`s in the order of insertion, with the order of their keys.
async fn all_ids(case: &Case) -> Vec<Bson> {
    let cursor = case.collection("c").find(doc! {}).hint(Hint::Keys(doc! { "$natural": 1 })).await.unwrap();
    let documents: Vec<Document> = cursor.try_collect().await.unwrap();
    documents.iter().map(|document| document.get("_id").unwrap().clone()).collect()
}

#[tokio::test]
async fn ids_of_every_type_are_deleted_and_kept_exactly() {
    for batch_size in [1, 5, 2000] {
        let case = Case::new().await;
        let documents = |n, at| mixed_ids(n).into_iter().map(move |id| doc! { "_id": id, "at": at });
        case.fill("c", documents(0, days(-3))).await;
        case.fill("c", documents(1, days(3))).await;
        let kept: Vec<Bson> = all_ids(&case).await.split_off(19);
        assert_eq!(kept.len(), 19);
        let rule = format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, batchSize: {batch_size}}}\n");
        let report = case.report(&rule, &[]).await;
        assert_swept(&report, 0, 19);
        assert_eq!(all_ids(&case).await, kept);
    }
}

#[tokio::test]
async fn documents_of_sixteen_megabytes_are_swept() {
    let case = Case::new().await;
    let pad = "x".repeat(16 * 1024 * 1024 - 100);
    for (id, at) in [(0, days(-3)), (1, days(3)), (2, days(-3))] {
        case.fill("c", [doc! { "_id": id, "at": at, "pad": &pad }]).await;
    }
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, maxDeletePercent: 90}\n";
    let report = case.report(rule, &["--dry-run"]).await;
    assert_eq!(report.rule(0, "expiredCount"), 2, "{report:?}");
    assert!(report.rule(0, "estimatedBytes").as_u64().unwrap() > 33_000_000, "{report:?}");
    assert_swept(&case.report(rule, &[]).await, 0, 2);
    assert_eq!(case.ids("c").await, id_set([1]));
}

#[tokio::test]
async fn ids_of_many_megabytes_go_into_commands_that_the_server_takes() {
    let case = Case::new().await;
    for (n, megabytes) in [3, 14, 3, 3, 3, 15, 1, 14].into_iter().enumerate() {
        let id = format!("{n}{}", "x".repeat(megabytes << 20));
        case.fill("c", [doc! { "_id": id, "at": days(-3) }]).await;
    }
    case.fill("c", dated(0..1, days(3))).await;
    let report = case.report("  - {namespace: DB.c, field: at, expireAfter: 1d}\n", &[]).await;
    assert_swept(&report, 0, 8);
    assert_eq!(case.ids("c").await, id_set([0]));
}

#[tokio::test]
async fn names_with_dots_blanks_and_any_letter_are_swept() {
    let case = Case::new().await;
    let names = ["a.b.c", "a b", "日本.é", "it's \"quoted\"", "#{x}", "a\u{202e}b", "-", "emoji 🦀", "[1]", "back\\slash"];
    for name in names {
        case.fill(name, dated(0..2, days(-3)).chain(dated(2..3, days(3)))).await;
    }
    let rule = |namespace: &str| format!("  - {{namespace: {namespace:?}, field: at, expireAfter: 1d}}\n");
    let rules: String =
        names.iter().map(|name| rule(&format!("DB.{name}")).replace("\\u{202e}", "\\u202e").replace("\\'", "'")).collect();
    let report = case.report(&rules, &[]).await;
    for (index, name) in names.iter().enumerate() {
        assert_swept(&report, index, 2);
        assert_eq!(report.rule(index, "namespace"), &format!("{}.{name}", case.db.name()));
        assert_eq!(case.ids(name).await, id_set([2]), "{name}");
    }
    let table = case.run("  - {namespace: 'DB.*', field: at, expireAfter: 1d}\n", &["sweep", "--dry-run"]).await;
    assert_eq!(table.code, Some(0), "{table:?}");
    assert!(!table.stdout.contains('\u{202e}'), "a name reverses the text of the terminal: {table:?}");
}

#[tokio::test]
async fn an_empty_collection_is_complete_without_a_warning() {
    let case = Case::new().await;
    case.db.create_collection("c").await.unwrap();
    for args in [&["--dry-run"][..], &[]] {
        let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, maxDeletePercent: 1}\n";
        let report = case.report(rule, args).await;
        assert_swept(&report, 0, 0);
        assert_eq!(report.rule(0, "documentCount"), 0);
        assert_eq!(report.rule(0, "expiredCount"), 0);
        assert_eq!(warnings(&report, 0), "[]");
    }
}

#[tokio::test]
async fn a_thousand_collections_behind_one_glob_are_swept_but_for_those_excluded() {
    let mongod = tokio::task::spawn_blocking(|| Mongod::start(&[])).await.unwrap();
    let mut case = Case::new().await;
    case.uri = mongod.uri();
    case.client = mongod.client().await;
    case.db = case.client.database("t");
    let fill = async |n: i32| {
        let name = if n % 100 == 0 { format!("keep_{n}") } else { format!("s_{n}") };
        case.fill(&name, [doc! { "_id": 0, "at": days(-3) }, doc! { "_id": 1, "at": days(3) }]).await;
    };
    stream::iter(0..1000).for_each_concurrent(32, fill).await;
    let rules = "  - {name: many, namespace: 'DB.*', exclude: ['DB.keep_*', DB.s_7], field: at, expireAfter: 1d}
  - {name: one, namespace: DB.s_7, field: at, expireAfter: 1d}\n";
    let one = case.report(rules, &["--only", "o*", "-vv"]).await;
    assert_swept(&one, 0, 1);
    assert_eq!(one.ran.stderr.matches("command collStats").count(), 1, "the other rules are not examined");
    assert_eq!(one.json["totals"]["rules"], 1);
    let only_elsewhere = case.report(rules, &["--only", "*.s_7"]).await;
    assert_eq!(only_elsewhere.json["totals"]["rules"], 1, "--only takes a rule's namespace as well");
    case.fill("s_7", [doc! { "_id": 2, "at": days(-3) }]).await;

    let many = case.report(rules, &["--only", "many"]).await;
    assert_eq!(many.ran.code, Some(0), "{}", many.ran.stderr);
    assert_eq!(many.json["totals"]["rules"], 989);
    assert_eq!(many.json["totals"]["deletedCount"], 989);
    let look = async |n: i32| {
        let (name, left) = match n {
            7 => ("s_7".to_owned(), 1..3),
            n if n % 100 == 0 => (format!("keep_{n}"), 0..2),
            n => (format!("s_{n}"), 1..2),
        };
        assert_eq!(case.ids(&name).await, id_set(left), "{name}");
    };
    stream::iter(0..1000).for_each_concurrent(32, look).await;
    let none = case.run(rules, &["sweep", "--only", "nothing"]).await;
    assert_eq!(none.code, Some(2), "{none:?}");
    assert!(none.stderr.contains("`many`, `one`"), "{none:?}");
}
