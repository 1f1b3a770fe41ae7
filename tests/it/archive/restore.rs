//! `sweeper restore` inserts what is missing, overwrites only on request, and reports what it did.

use std::path::PathBuf;

use crate::support::archives::{Documents, archive, directory, into, raw, restore, restored};
use crate::support::faults::{dated, days};
use crate::support::server::{Server, on_servers};
use crate::support::sweeper::{Case, id_set, run, sweeper};
use crate::support::terminal::Terminal;
use mongodb::bson::raw::{CStr, RawBson, cstr};
use mongodb::bson::{RawDocumentBuf, Timestamp, doc};
use ttl_sweeper::core::flavor::Flavor;
use ttl_sweeper::core::policy::Compression;
use ttl_sweeper::core::policy::namespace::Namespace;
use ttl_sweeper::shell::archive::seal::Seal;
use ttl_sweeper::shell::archive::writer::Archive;

/// Returns a case whose collections `c` and `d` were archived, the archive, and the documents that were in `c`.
async fn swept(server: &Server) -> (Case, PathBuf, Documents) {
    let case = server.case().await;
    for name in ["c", "d"] {
        case.fill(name, (0..10).map(|id| doc! { "_id": id, "at": days(-3), "v": id, "u": id })).await;
    }
    let before = raw(&case, "c").await;
    let rules = format!(
        "  - {{namespace: DB.c, field: at, expireAfter: 1d, batchSize: 3}}
  - {{namespace: DB.d, field: at, expireAfter: 1d}}
defaults: {{archive: {{directory: {}}}}}\n",
        directory(&case).display()
    );
    assert_eq!(case.run(&rules, &["sweep"]).await.code, Some(0));
    let run = archive(&directory(&case));
    (case, run, before)
}

async fn what_is_there_is_kept_and_said_and_replaced_only_on_demand(server: &Server) {
    let (case, run, before) = swept(server).await;
    let only = format!("{}.c", case.db.name());
    // One document is not in the archive; after a first restore one is changed, one is missing and one has an `_id` of another
    // type.
    case.fill("c", [doc! { "_id": 50, "v": 50, "u": 50 }]).await;
    let (json, _) = restored(&case, &run, &["--only", &only]).await;
    assert_eq!(json["namespaces"][0]["insertedCount"], 10, "{json}");
    case.collection("c").update_one(doc! { "_id": 1 }, doc! { "$set": { "v": "mine" } }).await.unwrap();
    case.collection("c").delete_one(doc! { "_id": 2 }).await.unwrap();
    // Its date may be a part of the shard key.
    let three = case.collection("c").find_one(doc! { "_id": 3 }).await.unwrap().unwrap();
    case.collection("c").delete_one(doc! { "_id": 3 }).await.unwrap();
    case.fill("c", [doc! { "_id": 3_i64, "at": three.get_datetime("at").unwrap(), "v": 3, "u": 3 }]).await;
    let mine = raw(&case, "c").await;

    for args in [&["--only", &only, "--dry-run"][..], &["--only", &only]] {
        let (json, ran) = restored(&case, &run, args).await;
        let counts = &json["namespaces"][0];
        // A dry run inserts nothing, so it cannot notice that an `_id` of another type is equal.
        let tried = args.len() == 2;
        assert_eq!((ran.code, &json["dryRun"]), (Some(0), &(!tried).into()), "{json}");
        assert_eq!(counts["insertedCount"], if tried { 1 } else { 2 }, "{json}");
        assert_eq!((&counts["sameCount"], &counts["differentCount"]), (&7.into(), &(if tried { 2 } else { 1 }).into()), "{json}");
        let mut now = raw(&case, "c").await;
        now.retain(|id, _| mine.contains_key(id));
        assert_eq!(now, mine);
    }
    assert_eq!(case.ids("c").await.len(), 11);
    assert!(case.ids("d").await.is_empty());

    let (json, ran) = restored(&case, &run, &["--only", &only, "--replace"]).await;
    assert_eq!((ran.code, &json["namespaces"][0]["replacedCount"]), (Some(0), &2.into()), "{json}");
    let now = raw(&case, "c").await;
    let same = before.iter().filter(|(id, document)| now.get(*id) == Some(*document)).count();
    // The DocumentDB engine replaces a document and keeps its `_id`, here with another type of number.
    assert_eq!((same, now.len()), (if server.flavor() == Flavor::DocumentDb { 9 } else { 10 }, 11));
}

#[tokio::test]
async fn a_conflict_in_a_unique_index_is_said_and_the_rest_is_inserted() {
    let (case, run, _) = swept(&Server::mongod()).await;
    case.fill("c", [doc! { "_id": 100, "u": 4 }]).await;
    case.db
        .run_command(doc! { "createIndexes": "c", "indexes": [{ "key": { "u": 1 }, "name": "u", "unique": true }] })
        .await
        .unwrap();
    let (json, ran) = restored(&case, &run, &[]).await;
    assert_eq!(ran.code, Some(3), "{json}");
    assert_eq!(
        (&json["namespaces"][0]["insertedCount"], &json["namespaces"][0]["conflictCount"]),
        (&9.into(), &1.into()),
        "{json}"
    );
    assert_eq!(json["namespaces"][1]["insertedCount"], 10, "{json}");
    assert_eq!(case.ids("c").await, id_set((0..10).filter(|id| *id != 4).chain([100])));
    let validator = doc! { "collMod": "c", "validator": { "v": { "$lt": 5 } } };
    case.db.run_command(validator).await.unwrap();
    case.collection("c").delete_many(doc! {}).await.unwrap();
    let (json, ran) = restored(&case, &run, &[]).await;
    assert_eq!((ran.code, &json["namespaces"][0]["refusedCount"]), (Some(3), &5.into()), "{json}");
    assert!(json["namespaces"][0]["error"].as_str().unwrap().contains("refused"), "{json}");
}

#[tokio::test]
async fn indexes_are_spoken_of_only_for_a_collection_that_the_restore_makes() {
    let (case, run, _) = swept(&Server::mongod()).await;
    let expired = "restored documents are still expired: the next sweep deletes them again, and a TTL index at once";
    let bare = format!(
        "new collections have no indexes and options yet: `{}.new`; `mongorestore` restores them from the metadata files of the archive",
        case.db.name()
    );
    let (json, _) = restored(&case, &run, &["--namespace", &into(&case, "c", "new")]).await;
    assert_eq!(json["warnings"], serde_json::json!([expired, bare]));
    // Both collections are there, and nothing is missing in one of them.
    let (json, _) = restored(&case, &run, &[]).await;
    assert_eq!(json["warnings"], serde_json::json!([expired]));
    let (json, _) = restored(&case, &run, &[]).await;
    assert_eq!(json["warnings"], serde_json::json!([]));
}

async fn namespaces_are_selected_and_moved(server: &Server) {
    let (case, run, before) = swept(server).await;
    let ran = restore(&case, &run, &["--only", "*.c", "--namespace", &into(&case, "c", "e.f g")]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("10 inserted") && ran.stdout.contains("still expired"), "{}", ran.stdout);
    assert_eq!(raw(&case, "e.f g").await, before);
    assert!(case.ids("c").await.is_empty() && case.ids("d").await.is_empty());
    for args in [
        &["--only", "nothing"][..],
        &["--namespace", "x.y=a.b"],
        &["--namespace", &format!("{}.c=admin.x", case.db.name())],
        &["--namespace", &format!("{}.c=a.*", case.db.name())],
        &["--namespace", &format!("{}.c", case.db.name())],
        &["--format", "csv"],
    ] {
        let ran = restore(&case, &run, args).await;
        assert_eq!(ran.code, Some(2), "{args:?}: {ran:?}");
    }
    for path in [directory(&case), case.dir.path().to_owned(), case.dir.path().join("nowhere")] {
        let ran = restore(&case, &path, &[]).await;
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stderr.contains("reading the archive") && ran.stderr.contains("nothing was inserted"), "{ran:?}");
    }
    assert!(case.ids("c").await.is_empty());
}

#[tokio::test]
async fn the_connection_may_come_from_the_policy_and_the_report_goes_to_a_file() {
    let (case, archived, _) = swept(&Server::mongod()).await;
    let policy = format!(
        "version: 1\nconnection: {{uri: '{}'}}\ncollections: [{{namespace: a.b, field: c, expireAfter: 1d}}]\n",
        case.uri
    );
    let policy = case.file("own.yaml", &policy);
    let output = case.dir.path().join("report.json");
    let mut command = sweeper(&["restore", "-q", "--policy"]);
    command.arg(policy).arg("--output").arg(&output).arg(&archived);
    let ran = run(command).await;
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (Some(0), "", ""));
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(output).unwrap()).unwrap();
    assert_eq!(report["namespaces"][1]["insertedCount"], 10, "{report}");
    assert_eq!(case.ids("c").await, id_set(0..10));
    case.fill("other", dated(0..1, days(0))).await;
}

#[tokio::test]
async fn a_document_with_a_name_twice_is_put_in_the_place_of_another() {
    let case = Case::new().await;
    // mongod 6.0 crashes if an update takes such a document out of an expression.
    let mut twice = RawDocumentBuf::new();
    twice.append(cstr!("x"), 1);
    twice.append(cstr!("x"), 2);
    let with = |id: i32, more: &[(&CStr, RawBson)]| {
        let mut document = RawDocumentBuf::new();
        document.append(cstr!("_id"), id);
        document.append(cstr!("at"), days(-3));
        for (name, value) in more {
            document.append(*name, value.clone());
        }
        document
    };
    let empty = RawBson::Timestamp(Timestamp { time: 0, increment: 0 });
    let documents = [
        with(1, &[(cstr!("x"), 1.into()), (cstr!("x"), 1.into())]),
        with(2, &[(cstr!("v"), twice.clone().into())]),
        with(3, &[(cstr!("$x"), 1.into())]),
        with(4, &[(cstr!("t"), empty.clone())]),
        with(5, &[(cstr!("v"), twice.into()), (cstr!("t"), empty)]),
    ];
    // A sweep never archives documents with a duplicate field name, so the archive is written here.
    let archive = Archive::new(&directory(&case), "11111111-1111-1111-1111-111111111111", days(-1));
    let namespace = Namespace { database: case.db.name().into(), collection: "c".into() };
    let file = archive.begin(&namespace, Compression::Zstd, "{}", false).unwrap();
    file.lock().await.append("DB.c", documents.iter().map(|document| document.as_bytes())).unwrap();
    drop(file);
    archive.end(Vec::new()).unwrap();
    let run = archive.path();
    case.fill("c", (1..6).map(|id| doc! { "_id": id, "v": {}, "t": 1 })).await;

    let (json, ran) = restored(&case, run, &["--replace"]).await;
    let counts = &json["namespaces"][0];
    assert_eq!((ran.code, &counts["replacedCount"], &counts["refusedCount"]), (Some(3), &4.into(), &1.into()), "{json}");
    let mut now = raw(&case, "c").await;
    now.retain(|_, now| documents.iter().any(|document| document.as_bytes() == now));
    assert_eq!(now.len(), 4);
}

#[tokio::test]
async fn an_archive_that_speaks_of_the_servers_own_collections_is_refused() {
    let (case, run, _) = swept(&Server::mongod()).await;
    std::fs::remove_file(run.join("manifest.json")).unwrap();
    let journal = std::fs::read_to_string(run.join("journal.jsonl")).unwrap();
    let own = case.db.name();
    for (database, collection) in [("admin", "c"), ("config", "c"), ("local", "c"), (own, "system.js"), (own, "e")] {
        // Each line says so in its checksum, and the files have the names.
        let forged = journal.split_inclusive('\n').flat_map(|line| {
            let mut opened = String::from_utf8(Seal::LINE.open(line.as_bytes()).unwrap()).unwrap();
            if opened.contains(&format!("{own}/c.")) {
                opened = opened.replace(&format!("{own}/c."), &format!("{database}/{collection}."));
                opened = opened.replace(&format!("\"database\":\"{own}\""), &format!("\"database\":\"{database}\""));
                opened = opened.replace("\"collection\":\"c\"", &format!("\"collection\":\"{collection}\""));
            }
            Seal::LINE.close(&opened)
        });
        std::fs::write(run.join("journal.jsonl"), forged.collect::<Vec<u8>>()).unwrap();
        std::fs::create_dir_all(run.join(database)).unwrap();
        let file = |database: &str, collection: &str, end: &str| run.join(database).join(format!("{collection}.{end}"));
        let ends = ["bson.zst", "metadata.json"];
        ends.iter().for_each(|end| std::fs::rename(file(own, "c", end), file(database, collection, end)).unwrap());
        let ran = restore(&case, &run, &["--yes"]).await;
        ends.iter().for_each(|end| std::fs::rename(file(database, collection, end), file(own, "c", end)).unwrap());
        // The last name is one that a sweep may have archived.
        assert_eq!(ran.code, Some(if collection == "e" { 0 } else { 1 }), "{database}.{collection}: {ran:?}");
        assert_eq!(ran.stderr.contains("nothing was inserted"), collection != "e", "{ran:?}");
        assert_eq!(case.ids("d").await.len(), if collection == "e" { 10 } else { 0 });
    }
    assert_eq!((case.ids("c").await, case.ids("e").await), (id_set::<i32>([]), id_set(0..10)));
}

#[tokio::test]
async fn collections_that_would_drop_or_change_documents_take_none() {
    let (case, run, _) = swept(&Server::mongod()).await;
    let create = |options: bson::Document| case.db.run_command(options);
    create(doc! { "create": "capped", "capped": true, "size": 4096, "max": 1 }).await.unwrap();
    create(doc! { "create": "series", "timeseries": { "timeField": "at" } }).await.unwrap();
    create(doc! { "create": "view", "viewOn": "d", "pipeline": [] }).await.unwrap();
    case.fill("capped", [doc! { "_id": "mine" }]).await;
    let from = format!("{}.c", case.db.name());
    for (to, why) in [("capped", "is capped"), ("series", "time-series"), ("view", "a view")] {
        let moved = format!("{from}={}.{to}", case.db.name());
        let (json, ran) = restored(&case, &run, &["--only", &from, "--namespace", &moved]).await;
        assert_eq!(ran.code, Some(3), "{ran:?}");
        assert!(json["namespaces"][0]["error"].as_str().unwrap().contains(why), "{json}");
        assert_eq!(json["namespaces"][0]["insertedCount"], 0);
    }
    assert_eq!(case.ids("capped").await, id_set(["mine"]));
    assert_eq!(case.ids("series").await, id_set::<i32>([]));
}

on_servers!(what_is_there_is_kept_and_said_and_replaced_only_on_demand, namespaces_are_selected_and_moved);

#[tokio::test]
async fn another_deployment_than_the_policy_expects_gets_no_document() {
    let case = Case::new().await;
    case.fill("c", dated(0..3, days(-3))).await;
    let rules =
        format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, archive: {{directory: {}}}}}\n", directory(&case).display());
    assert_eq!(case.run(&rules, &["sweep"]).await.code, Some(0));
    let run = archive(&directory(&case));
    // The connection string comes from the command line, as in a restore that reads no policy.
    for expect in ["{replicaSet: other}", "{hosts: ['db1.example.com:27017']}"] {
        let ran = case.run(&format!("{rules}connection: {{expect: {expect}}}\n"), &["restore", run.to_str().unwrap()]).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(5), ""), "{ran:?}");
        assert!(ran.stderr.contains("the policy expects") && ran.stderr.contains("nothing was inserted"), "{ran:?}");
        assert_eq!(case.ids("c").await, id_set::<i32>([]));
    }
    let ran = case.run(&rules, &["restore", run.to_str().unwrap()]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let host = case.uri.trim_start_matches("mongodb://").split(['/', '?']).next().unwrap();
    assert!(ran.stdout.contains(&format!(" at {host}\n")), "{ran:?}");
    assert_eq!(case.ids("c").await, id_set(0..3));
    // The question names it too.
    let terminal = Terminal::open(&case.command(&rules, &["restore", run.to_str().unwrap()])).until_asked().await;
    assert!(terminal.shown.contains(&format!("into 1 collection of {host}?")), "{}", terminal.shown);
    assert_eq!(terminal.types("no\n").end().await.code, Some(1));
}
