//! `sweeper restore`: inserts what is missing, overwrites nothing unless told to, and says what it did.

mod support;

use std::path::PathBuf;

use mongodb::bson::doc;
use support::archives::{Documents, archive, directory, into, raw, restore, restored};
use support::faults::{dated, days};
use support::sweeper::{Case, id_set, run, sweeper};

/// A case whose collections `c` and `d` were archived, and what was in `c`.
async fn swept() -> (Case, PathBuf, Documents) {
    let case = Case::new().await;
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

#[tokio::test]
async fn what_is_there_is_kept_and_said_and_replaced_only_on_demand() {
    let (case, run, before) = swept().await;
    let only = format!("{}.c", case.db.name());
    // The same, different, different by a type alone, and one that is no part of the archive.
    case.fill("c", [doc! { "_id": 50, "v": 50, "u": 50 }]).await;
    let (json, _) = restored(&case, &run, &["--only", &only]).await;
    assert_eq!(json["namespaces"][0]["insertedCount"], 10, "{json}");
    case.collection("c").update_one(doc! { "_id": 1 }, doc! { "$set": { "v": "mine" } }).await.unwrap();
    case.collection("c").delete_one(doc! { "_id": 2 }).await.unwrap();
    case.collection("c").delete_one(doc! { "_id": 3 }).await.unwrap();
    case.fill("c", [doc! { "_id": 3_i64, "at": days(-3), "v": 3, "u": 3 }]).await;
    let mine = raw(&case, "c").await;

    for args in [&["--only", &only, "--dry-run"][..], &["--only", &only]] {
        let (json, ran) = restored(&case, &run, args).await;
        let counts = &json["namespaces"][0];
        // A dry run does not try to insert: that an `_id` of another type is the same one it does not see.
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
    assert_eq!((same, now.len()), (10, 11));
}

#[tokio::test]
async fn a_conflict_in_a_unique_index_is_said_and_the_rest_is_inserted() {
    let (case, run, _) = swept().await;
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
async fn namespaces_are_selected_and_moved() {
    let (case, run, before) = swept().await;
    let ran = restore(&case, &run, &["--only", "*.c", "--namespace", &into(&case, "c", "e.f g")]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("10 inserted") && ran.stdout.contains("expired still"), "{}", ran.stdout);
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
    let (case, archived, _) = swept().await;
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
