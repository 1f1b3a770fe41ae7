//! A rule with `archive` deletes exactly what it has archived, and a restore brings back the same bytes.

use crate::support::archives::{archive, assert_archived, directory, raw, restore, restored, unpacked};
use crate::support::corpus::scalars;
use crate::support::faults::{dated, days};
use crate::support::proxied::Proxied;
use crate::support::proxy::Service;
use crate::support::server::{Server, on_servers};
use crate::support::sweeper::{Case, id_set};
use mongodb::IndexModel;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, RawDocumentBuf, Timestamp, doc, rawdoc};
use ttl_sweeper::core::flavor::Flavor;

/// Returns a rule for the collection `c` that archives to the directory of the case; `more` is added to its keys.
fn rule(case: &Case, more: &str) -> String {
    format!("  - {{namespace: DB.c, field: at, expireAfter: 1d{more}, archive: {{directory: {}}}}}\n", directory(case).display())
}

/// Returns documents with every type at the top level, in a subdocument, in arrays, and as part of an `_id`.
fn every_type() -> impl Iterator<Item = Document> {
    let mut values = scalars();
    values.extend([
        Bson::Array(vec![]),
        Bson::Document(doc! {}),
        Bson::Array(scalars()),
        doc! { "a": [{ "b": [[{ "c": 1_i64, "": 0.0, "$d": -0.0, "e.f": "x" }]] }] }.into(),
        days(1).into(),
        Bson::Decimal128("1.00".parse().unwrap()),
        Bson::Decimal128("-0E+3".parse().unwrap()),
        Bson::Decimal128("9.999999999999999999999999999999999E+6144".parse().unwrap()),
        Bson::Decimal128("1E-6176".parse().unwrap()),
    ]);
    values.into_iter().enumerate().map(|(n, value)| {
        doc! { "_id": { "n": n as i64 }, "v": { "v": &value }, "l": [&value, [&value, { "x": &value }]], "v2": value, "at": days(-3) }
    })
}

async fn every_type_is_archived_deleted_and_restored_byte_by_byte(server: &Server) {
    for compression in ["zstd", "gzip"] {
        let case = server.case().await;
        let empty = doc! { "_id": 1, "at": days(-3), "t": Timestamp { time: 0, increment: 0 } };
        if server.flavor() == Flavor::DocumentDb {
            // The DocumentDB engine keeps an empty timestamp, and does not find undefined values again that it holds within
            // others.
            let found = |document: &Document| document.get("v2") != Some(&Bson::Undefined);
            case.fill("c", every_type().filter(found).chain([empty])).await;
        } else {
            case.fill("c", every_type()).await;
            // The server keeps an empty timestamp only when it is written in this way. The condition has all shard keys.
            let key = doc! { "_id": 1, "at": empty.get("at"), "tenant": null };
            let written = vec![doc! { "$replaceWith": { "$literal": empty } }];
            case.collection("c").update_one(key, written).upsert(true).await.unwrap();
        }
        let expired = raw(&case, "c").await;
        case.fill("c", dated(10..15, days(3))).await;
        let rules = format!(
            "  - {{namespace: DB.c, field: at, expireAfter: 1d, archive: {{directory: {}, compression: {compression}}}}}\n",
            directory(&case).display()
        );
        let report = case.report(&rules, &[]).await;
        assert_eq!(report.ran.code, Some(0), "{report:?}");
        assert_eq!(case.ids("c").await, id_set(10..15), "{report:?}");
        assert_eq!(
            (report.rule(0, "archivedCount"), report.rule(0, "deletedCount")),
            (&expired.len().into(), &expired.len().into())
        );
        assert_eq!(report.rule(0, "warnings"), &serde_json::json!([]));
        assert_eq!(case.ids("c").await, id_set(10..15));

        let run = archive(&directory(&case));
        assert_eq!(report.rule(0, "archive"), run.to_str().unwrap());
        assert_eq!(unpacked(&case, std::slice::from_ref(&run), "c", "d").await, expired);
        // Restore to the original collection, too.
        let (json, ran) = restored(&case, &run, &[]).await;
        assert_eq!((ran.code, &json["namespaces"][0]["insertedCount"]), (Some(0), &expired.len().into()), "{ran:?}");
        let mut back = raw(&case, "c").await;
        back.retain(|id, _| expired.contains_key(id));
        assert_eq!(back, expired);
    }
}

async fn documents_of_every_size_and_depth_go_or_are_kept_and_named(server: &Server) {
    fn nested(levels: usize, lists: bool) -> Bson {
        (0..levels).fold(Bson::Int64(1), |inner, _| if lists { vec![inner].into() } else { doc! { "a": inner }.into() })
    }
    let case = server.case().await;
    let large = |id: i32, bytes: usize| doc! { "_id": id, "at": days(-3), "p": "x".repeat(bytes) };
    // By their number, all of them would fit into one batch.
    case.fill("c", (0..6).map(|id| large(id, 3_000_000))).await;
    case.fill("c", [large(6, 14_000_000)]).await;
    case.fill("c", [large(7, 16_000_000)]).await;
    case.fill("c", (0..300).map(|n| large(100 + n, 1))).await;
    let deep = |id: i32, levels, lists| doc! { "_id": id, "at": days(-3), "v": nested(levels, lists) };
    case.fill("c", [deep(10, 30, false), deep(11, 30, true), deep(12, 31, false), deep(13, 31, true), deep(14, 175, true)]).await;
    // The server compares only the first of two fields with the same name. The router of the tests passes only one on.
    let twins: &[(i32, bool)] = if server.is_router() { &[] } else { &[(15, false), (16, true)] };
    for &(id, inside) in twins {
        let mut twice = rawdoc! { "x": 1, "x": 2 };
        if inside {
            twice = rawdoc! { "v": [twice] };
        }
        let mut document = rawdoc! { "_id": id, "at": days(-3) };
        for (name, value) in twice.iter().map(|element| element.unwrap()) {
            document.append(name, value);
        }
        case.db.collection::<RawDocumentBuf>("c").insert_one(document).await.unwrap();
    }
    // The types take more bytes than the values.
    case.fill("c", [doc! { "_id": 20, "at": days(-3), "v": vec![true; 300_000] }]).await;
    let report = case.report(&rule(&case, ""), &[]).await;
    assert_eq!(report.ran.code, Some(0), "{report:?}");
    let kept: Vec<i32> = [7, 12, 13, 14].into_iter().chain(twins.iter().map(|(id, _)| *id)).collect();
    assert_eq!(case.ids("c").await, id_set(kept.iter().copied()), "{report:?}");
    assert_eq!(report.rule(0, "deletedCount"), 6 + 1 + 300 + 2 + 1, "{report:?}");
    assert!(
        report.rule(0, "warnings")[0].as_str().unwrap().starts_with(&format!("{} documents kept, and not archived", kept.len())),
        "{report:?}"
    );
}

async fn batches_of_several_statements_go_whole(server: &Server) {
    let case = server.case().await;
    for (name, indexed) in [("c", false), ("d", true)] {
        // Shuffled; many documents share a date, and one in seven has not expired.
        let at = |n: i32| match n % 7 {
            0 => days(1),
            1 | 2 => days(-3),
            _ => DateTime::from_millis(1_000_000_000_000 + i64::from(n * 7919 % 1000)),
        };
        if indexed {
            case.collection(name).create_index(IndexModel::builder().keys(doc! { "at": 1 }).build()).await.unwrap();
        }
        case.fill(name, (0..1000).map(|n| doc! { "_id": n, "at": at(n), "v": n })).await;
        let before = raw(&case, name).await;
        let report = case.report(&rule(&case, "").replace("DB.c", &format!("DB.{name}")), &[]).await;
        assert_eq!(report.ran.code, Some(0), "{report:?}");
        assert_eq!(case.ids(name).await, id_set((0..1000).filter(|n| n % 7 == 0)), "{report:?}");
        let after = raw(&case, name).await;
        let run = archive(&directory(&case));
        assert_eq!(assert_archived(&before, &after, &unpacked(&case, std::slice::from_ref(&run), name, "e").await), 857);
        std::fs::remove_dir_all(run).unwrap();
    }
}

async fn rules_on_one_namespace_share_a_file_and_globs_have_one_for_each_name(server: &Server) {
    let case = server.case().await;
    let names = ["a/b", "sp ace", "100%", "ünï\n\t", "..", "x=y=z", "a.b..c", &"long".repeat(50)];
    let mut before = Vec::new();
    for name in names {
        case.fill(&format!("g{name}"), dated(0..3, days(-3)).chain(dated(3..5, days(3)))).await;
        before.push(raw(&case, &format!("g{name}")).await);
    }
    case.fill("c", (0..20).map(|id| doc! { "_id": id, "at": days(-3), "k": id % 2 })).await;
    let c = raw(&case, "c").await;
    let to = directory(&case);
    let rules = format!(
        "  - {{name: even, namespace: DB.c, field: at, expireAfter: 1d, filter: {{k: 0}}}}
  - {{name: odd, namespace: DB.c, field: at, expireAfter: 1d, filter: {{k: 1}}, batchSize: 3, archive: {{directory: {to}, compression: gzip}}}}
  - {{name: globbed, namespace: 'DB.g*', field: at, expireAfter: 1d}}
defaults: {{archive: {{directory: {to}}}}}\n",
        to = to.display()
    );
    let report = case.report(&rules, &[]).await;
    assert_eq!(report.ran.code, Some(0), "{report:?}");
    assert!(case.ids("c").await.is_empty());
    let run = archive(&to);
    let manifest: serde_json::Value = serde_json::from_slice(&std::fs::read(run.join("manifest.json")).unwrap()).unwrap();
    assert_eq!(manifest["files"].as_array().unwrap().len(), names.len() + 1, "{manifest}");
    assert_eq!(manifest["rules"].as_array().unwrap().len(), names.len() + 2, "{manifest}");

    let (json, ran) = restored(&case, &run, &[]).await;
    assert_eq!(ran.code, Some(0), "{json}");
    assert_eq!(raw(&case, "c").await, c);
    for (name, before) in names.iter().zip(before) {
        assert_eq!(raw(&case, &format!("g{name}")).await, before, "{name}");
        let from = format!("{}.g{name}", case.db.name());
        let moved = restore(&case, &run, &["--only", &from, "--namespace", &format!("{from}={from}2")]).await;
        assert_eq!(moved.code, Some(0), "{moved:?}");
        assert_eq!(case.ids(&format!("g{name}2")).await, id_set(0..3), "{name}");
    }
}

#[tokio::test]
async fn files_are_for_their_owner_alone_and_name_what_mongodump_names() {
    use std::os::unix::fs::PermissionsExt;
    let case = Case::new().await;
    case.fill("c", dated(0..3, days(-3))).await;
    case.db.run_command(doc! { "createIndexes": "c", "indexes": [{ "key": { "at": 1 }, "name": "x" }] }).await.unwrap();
    case.report(&rule(&case, ""), &[]).await;
    let run = archive(&directory(&case));
    let database = run.join(case.db.name());
    for (path, mode) in [
        (run.clone(), 0o700),
        (database.clone(), 0o700),
        (database.join("c.bson.zst"), 0o600),
        (database.join("c.metadata.json"), 0o600),
        (run.join("journal.jsonl"), 0o600),
        (run.join("manifest.json"), 0o600),
    ] {
        let found = std::fs::metadata(&path).unwrap_or_else(|cause| panic!("{}: {cause}", path.display())).permissions().mode();
        assert_eq!(found & 0o777, mode, "{}", path.display());
    }
    let metadata: serde_json::Value = serde_json::from_slice(&std::fs::read(database.join("c.metadata.json")).unwrap()).unwrap();
    assert_eq!(metadata["collectionName"], "c");
    assert_eq!(metadata["indexes"][1]["key"], serde_json::json!({ "at": { "$numberInt": "1" } }));
    assert_eq!(metadata["uuid"].as_str().unwrap().len(), 32);
}

async fn a_dry_run_or_nothing_expired_writes_nothing(server: &Server) {
    let case = server.case().await;
    case.fill("c", dated(0..3, days(-3))).await;
    let rules = rule(&case, "");
    let dry = case.report(&rules, &["--dry-run"]).await;
    assert_eq!(dry.ran.code, Some(0), "{dry:?}");
    assert_eq!(dry.rule(0, "archive"), directory(&case).to_str().unwrap());
    assert_eq!(dry.rule(0, "archivedCount"), &serde_json::Value::Null);
    case.collection("c").drop().await.unwrap();
    case.fill("c", dated(0..3, days(3))).await;
    let idle = case.report(&rules, &[]).await;
    assert_eq!((idle.rule(0, "archivedCount"), idle.rule(0, "archive")), (&0.into(), &serde_json::Value::Null));
    assert_eq!(std::fs::read_dir(directory(&case)).unwrap().count(), 0);
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_fails_its_rule_alone() {
    let case = Case::new().await;
    let file = case.file("file", "");
    for (directory, why) in [
        ("/nonexistent/archives", "No such file or directory"),
        (file.to_str().unwrap(), "is not a directory"),
        // Not even root can create a file there.
        ("/proc/self", "cannot be written"),
    ] {
        case.collection("c").drop().await.unwrap();
        case.collection("d").drop().await.unwrap();
        case.fill("c", dated(0..3, days(-3))).await;
        case.fill("d", dated(0..3, days(-3))).await;
        let rules = format!(
            "  - {{namespace: DB.c, field: at, expireAfter: 1d, archive: {{directory: {directory}}}}}
  - {{namespace: DB.d, field: at, expireAfter: 1d}}\n"
        );
        for args in [&["--dry-run"][..], &[]] {
            let report = case.report(&rules, args).await;
            assert_eq!(report.ran.code, Some(3), "{report:?}");
            assert_eq!(report.rule(0, "status"), "failed");
            let error = report.rule(0, "error").as_str().unwrap();
            assert!(error.contains(why) && error.ends_with("nothing was deleted there"), "{error}");
        }
        assert_eq!(case.ids("c").await, id_set(0..3));
        assert!(case.ids("d").await.is_empty());
    }
}

#[tokio::test]
async fn what_cannot_be_compared_exactly_is_refused() {
    let case = Case::new().await;
    let collated = doc! { "create": "c", "collation": { "locale": "en", "strength": 2 } };
    case.db.run_command(collated).await.unwrap();
    case.db.run_command(doc! { "create": "t", "timeseries": { "timeField": "at" } }).await.unwrap();
    for name in ["c", "d", "t"] {
        case.fill(name, [doc! { "_id": ObjectId::new(), "at": days(-3) }]).await;
    }
    let rules = format!(
        "  - {{namespace: DB.c, field: at, expireAfter: 1d}}
  - {{namespace: DB.d, field: at, expireAfter: 1d, collation: {{locale: de}}}}
  - {{namespace: DB.t, expireAfter: 1d}}
defaults: {{archive: {{directory: {}}}}}\n",
        directory(&case).display()
    );
    let report = case.report(&rules, &[]).await;
    assert_eq!(report.ran.code, Some(5), "{report:?}");
    for (index, why) in ["the collection's collation", "with `collation`", "time-series"].iter().enumerate() {
        assert_eq!(
            (report.rule(index, "status").as_str(), report.rule(index, "reason").as_str()),
            (Some("refused"), Some("archive"))
        );
        assert!(report.rule(index, "error").as_str().unwrap().contains(why), "{report:?}");
    }
    for name in ["c", "d", "t"] {
        assert_eq!(case.ids(name).await.len(), 1);
    }
    let simple = rule(&case, ", collation: {locale: simple}").replace("DB.c", "DB.d");
    let report = case.report(&simple, &[]).await;
    assert_eq!((report.ran.code, case.ids("d").await.len()), (Some(0), 0), "{report:?}");
}

#[tokio::test]
async fn a_service_whose_deletes_cannot_compare_is_refused() {
    let proxied = Proxied::new(Service::CosmosRu(Default::default()), 5).await;
    let report = proxied.case.report(&rule(&proxied.case, ""), &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "reason").as_str()), (Some(5), Some("archive")), "{report:?}");
    assert_eq!(proxied.left().await, 5);
}

async fn limits_hold_with_an_archive_and_count_what_was_deleted(server: &Server) {
    let case = server.case().await;
    case.fill("c", dated(0..50, days(-3))).await;
    let report = case.report(&rule(&case, ", maxDeletes: 20, batchSize: 7"), &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "deletedCount").as_u64()), (Some(4), Some(20)), "{report:?}");
    assert_eq!(report.rule(0, "archivedCount"), 20);
    assert_eq!(case.ids("c").await.len(), 30);
}

on_servers!(
    every_type_is_archived_deleted_and_restored_byte_by_byte,
    documents_of_every_size_and_depth_go_or_are_kept_and_named,
    batches_of_several_statements_go_whole,
    rules_on_one_namespace_share_a_file_and_globs_have_one_for_each_name,
    a_dry_run_or_nothing_expired_writes_nothing,
    limits_hold_with_an_archive_and_count_what_was_deleted
);
