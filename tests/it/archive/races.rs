//! Documents that change between archiving and deleting are kept as they are; every deleted document is archived in its last
//! state.

use std::path::Path;

use crate::support::archives::{archive, assert_archived, directory, raw, restored, unpacked};
use crate::support::faults::{alone, days, end, pause_deletes, resume_deletes, start, until_running};
use crate::support::proxy::document_db::DocumentDb;
use crate::support::proxy::{Proxy, Service};
use crate::support::sweeper::{Case, id_set};
use mongodb::IndexModel;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, JavaScriptCodeWithScope, doc};
use serde_json::Value;

/// Returns pairs of values, before and after a change: most are equal to the server, and most have the same length.
fn look_alikes() -> Vec<(Bson, Bson)> {
    let decimal = |text: &str| Bson::Decimal128(text.parse().unwrap());
    let code = |scope| Bson::JavaScriptCodeWithScope(JavaScriptCodeWithScope { code: "f".into(), scope });
    vec![
        (5_i64.into(), 5.0.into()),
        (5_i64.into(), vec![5_i64].into()),
        ("s".into(), vec!["s"].into()),
        (5.0.into(), 5_i64.into()),
        (0.0.into(), (-0.0).into()),
        (0_i64.into(), 0.0.into()),
        (decimal("1.0"), decimal("1.00")),
        (decimal("0"), decimal("-0")),
        ("s".into(), Bson::Symbol("s".into())),
        (1_i32.into(), 1_i64.into()),
        (vec![Bson::Int32(7), Bson::Int64(7)].into(), vec![Bson::Int64(7), Bson::Int32(7)].into()),
        (doc! { "a": [{ "b": [[1_i64]] }] }.into(), doc! { "a": [{ "b": [[1.0]] }] }.into()),
        (Bson::Array(vec![doc! { "x": 3.0 }.into(); 9]), {
            let mut changed = vec![Bson::from(doc! { "x": 3.0 }); 9];
            changed[8] = doc! { "x": 3_i64 }.into();
            changed.into()
        }),
        // Types in the scope of code are not compared, but its length is.
        (code(doc! { "n": 1_i32 }), code(doc! { "n": 1_i64 })),
        // Obvious changes as well.
        ("a".into(), "b".into()),
        (doc! { "a": 1, "b": 2 }.into(), doc! { "b": 2, "a": 1 }.into()),
        (Bson::Null, Bson::Undefined),
        (true.into(), false.into()),
        (vec![1, 2].into(), vec![2, 1].into()),
    ]
}

/// Whether a value is neither zero nor a decimal nor a document or array.
fn is_plain(value: &Bson) -> bool {
    match value {
        Bson::Document(_) | Bson::Array(_) | Bson::Decimal128(_) => false,
        Bson::Double(value) => *value != 0.0,
        value => *value != Bson::Int64(0),
    }
}

/// The common shape of the documents in one command, which decides how the sweep compares them.
#[derive(Clone, Copy)]
enum Shape {
    SameNames,
    OtherNames,
    /// Unchanged documents have values of the same types as the documents that change.
    SameTypes,
}

fn document(id: i32, value: &Bson, shape: Shape) -> Document {
    let name = match shape {
        Shape::SameNames | Shape::SameTypes => "v".to_owned(),
        Shape::OtherNames => format!("v{id}"),
    };
    doc! { "_id": id, "at": DateTime::from_millis(1_000_000_000_000 + i64::from(id)), name: value }
}

fn replacement(id: i32, value: &Bson, shape: Shape) -> Vec<Document> {
    // `$literal`, because `$set` takes some of these values for equal and writes nothing.
    vec![doc! { "$replaceWith": { "$literal": document(id, value, shape) } }]
}

#[tokio::test]
async fn a_change_of_a_type_alone_is_seen_among_documents_of_the_same_fields() {
    let (_mongod, case) = alone().await;
    type_changes(&case, &look_alikes(), Shape::SameNames).await;
}

#[tokio::test]
async fn a_change_of_a_type_alone_is_seen_among_documents_of_other_fields() {
    let (_mongod, case) = alone().await;
    type_changes(&case, &look_alikes(), Shape::OtherNames).await;
}

#[tokio::test]
async fn a_change_of_a_type_alone_is_seen_among_documents_of_plain_values() {
    let (_mongod, case) = alone().await;
    let plain: Vec<_> = look_alikes().into_iter().filter(|(before, after)| is_plain(before) && is_plain(after)).collect();
    assert!(plain.len() > 4);
    type_changes(&case, &plain, Shape::SameNames).await;
}

#[tokio::test]
async fn a_change_of_a_type_alone_is_seen_among_documents_of_the_same_types() {
    let (_mongod, case) = alone().await;
    for pair in look_alikes() {
        type_changes(&case, &vec![pair; 3], Shape::SameTypes).await;
    }
}

#[tokio::test]
async fn a_change_of_a_type_alone_is_seen_by_statements_that_name_one_document_each() {
    let (mongod, mut case) = alone().await;
    let proxy = Proxy::start(mongod.port, Service::DocumentDb(DocumentDb::default())).await;
    case.uri = proxy.uri();
    let directory = directory(&case);
    type_changes_in(&case, &directory, &look_alikes(), Shape::OtherNames).await;
    let statements = proxy.requests_of("delete")[0].body.get_array("deletes").unwrap().len();
    assert_eq!(statements, 2 * look_alikes().len());
}

/// Changes documents between archiving and deleting: once with batches found by `_id`, once with batches found along the index on
/// the date.
async fn type_changes(case: &Case, pairs: &[(Bson, Bson)], shape: Shape) {
    for indexed in [false, true] {
        case.collection("c").drop().await.unwrap();
        if indexed {
            case.collection("c").create_index(IndexModel::builder().keys(doc! { "at": 1 }).build()).await.unwrap();
        }
        let directory = directory(case).join(ObjectId::new().to_hex());
        std::fs::create_dir(&directory).unwrap();
        type_changes_in(case, &directory, pairs, shape).await;
    }
}

async fn type_changes_in(case: &Case, directory: &Path, pairs: &[(Bson, Bson)], shape: Shape) {
    let count = pairs.len() as i32;
    case.fill("c", pairs.iter().zip(1..).map(|((before, _), id)| document(id, before, shape))).await;
    let unchanged = pairs.iter().map(|(before, after)| if matches!(shape, Shape::SameTypes) { before } else { after });
    case.fill("c", unchanged.zip(1000..).map(|(value, id)| document(id, value, shape))).await;
    let before = raw(case, "c").await;
    // The documents must fill one batch exactly, otherwise the index is not used.
    let rules = format!(
        "  - {{namespace: DB.c, field: at, expireAfter: 1d, batchSize: {}, archive: {{directory: {}}}}}\n",
        2 * count,
        directory.display()
    );
    pause_deletes(&case.client).await;
    let child = start(case.command(&rules, &["sweep", "--format", "json"]));
    until_running(&case.client, "delete").await;
    for ((_, after), id) in pairs.iter().zip(1..) {
        // Change to a third value first: the server ignores an update to an equal value.
        for value in [&"other".into(), after] {
            case.collection("c").update_one(doc! { "_id": id }, replacement(id, value, shape)).await.unwrap();
        }
    }
    // Within the range of the delete in flight, but not archived.
    let mut another = document(2, &pairs[0].0, shape);
    another.insert("_id", 0);
    case.fill("c", [another]).await;
    let changed = raw(case, "c").await;
    resume_deletes(&case.client).await;
    let ran = end(child).await;
    let report: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(case.ids("c").await, id_set(0..=count), "{report}");
    let after = raw(case, "c").await;
    assert!(after.iter().all(|(id, document)| changed[id] == *document));
    let rule = &report["rules"][0];
    assert_eq!(
        (ran.code, &rule["deletedCount"], &rule["archivedCount"]),
        (Some(0), &count.into(), &(2 * count).into()),
        "{report}"
    );
    assert!(rule["warnings"][0].as_str().unwrap().contains("archived and not deleted"), "{report}");
    // Along an index they are counted.
    assert!([Value::Null, (count + 1).into()].contains(&rule["remainingCount"]), "{report}");

    let archived = unpacked(case, &[archive(directory)], "c", "d").await;
    assert_eq!(assert_archived(&before, &after, &archived), pairs.len());
    // The next run deletes the documents in their new state.
    let next = case.report(&rules, &[]).await;
    assert_eq!((next.ran.code, next.rule(0, "deletedCount").as_i64()), (Some(0), Some((count + 1).into())), "{next:?}");
}

#[tokio::test]
async fn of_two_archived_states_the_one_that_was_deleted_is_restored() {
    let (_mongod, case) = alone().await;
    case.fill("c", [doc! { "_id": 1, "at": days(-3), "v": "first" }, doc! { "_id": 2, "at": days(-3), "v": "same" }]).await;
    let rules = format!(
        "  - {{name: one, namespace: DB.c, field: at, expireAfter: 1d}}
  - {{name: two, namespace: DB.c, field: at, expireAfter: 2d}}
defaults: {{archive: {{directory: {}}}}}
run: {{concurrency: 1}}\n",
        directory(&case).display()
    );
    pause_deletes(&case.client).await;
    let child = start(case.command(&rules, &["sweep", "--format", "json"]));
    until_running(&case.client, "delete").await;
    case.collection("c").update_one(doc! { "_id": 1 }, doc! { "$set": { "v": "later" } }).await.unwrap();
    resume_deletes(&case.client).await;
    let ran = end(child).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(case.ids("c").await.is_empty(), "{ran:?}");
    let run = archive(&directory(&case));
    for args in [&[][..], &["--replace"]] {
        case.collection("c").drop().await.unwrap();
        let (json, _) = restored(&case, &run, args).await;
        assert_eq!(json["namespaces"][0]["documentCount"], 3, "{json}");
        let back = case.collection("c").find_one(doc! { "_id": 1 }).await.unwrap().unwrap();
        assert_eq!(back.get_str("v").unwrap(), "later", "{args:?}");
        assert_eq!(case.ids("c").await, id_set(1..3));
    }
}

#[tokio::test]
async fn a_document_that_is_always_changing_does_not_keep_the_sweep() {
    let (_mongod, case) = alone().await;
    case.fill("c", (0..400).map(|id| doc! { "_id": id, "at": days(-3), "n": 0 })).await;
    let rules = format!(
        "  - {{namespace: DB.c, field: at, expireAfter: 1d, batchSize: 20, archive: {{directory: {}}}}}\n",
        directory(&case).display()
    );
    let c = case.collection("c");
    let writer = tokio::spawn(async move {
        loop {
            c.update_one(doc! { "_id": 7 }, doc! { "$inc": { "n": 1 } }).await.expect("an update");
        }
    });
    let report = case.report(&rules, &[]).await;
    writer.abort();
    assert_eq!(report.ran.code, Some(0), "{report:?}");
    assert!(case.ids("c").await.is_subset(&id_set([7])), "{report:?}");
}
