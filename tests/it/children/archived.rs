//! Children of a rule with an archive: both are in it before they go, and a restore puts both back, the children first.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::support::archives::{archive, directory, raw, restore};
use crate::support::family::{assert_whole, case, content, entries, fill, lines_of, report_after, rule, short, upload};
use crate::support::faults::{end, start};
use crate::support::sweeper::Case;
use futures_util::io::AsyncReadExt;
use mongodb::bson::{DateTime, doc};
use mongodb::options::GridFsBucketOptions;

fn archiving(case: &Case) -> String {
    std::fs::create_dir_all(directory(case)).unwrap();
    format!(", archive: {{directory: {}}}", directory(case).display())
}

#[tokio::test]
async fn a_file_comes_back_byte_for_byte() {
    let case = case("filed").await;
    let options = GridFsBucketOptions::builder().chunk_size_bytes(1000).build();
    let bucket = case.db.gridfs_bucket(options);
    let files = upload(&bucket, 12).await;
    let old = DateTime::from_millis(DateTime::now().timestamp_millis() - 40 * 86_400_000);
    let update = doc! { "$set": { "uploadDate": old } };
    case.collection("fs.files").update_many(doc! { "_id": { "$in": &files[..9] } }, update).await.unwrap();
    let rule = format!(
        "  - {{namespace: DB.fs.files, gridfs: fs, expireAfter: 30d, batchSize: 4{}}}\njournal: {{collection: DB.journal}}\n",
        archiving(&case)
    );
    let before = (raw(&case, "fs.files").await, raw(&case, "fs.chunks").await);
    let report = case.report(&rule, &[]).await;
    let chunks: usize = (0..9).map(|file| (file * 700_usize).div_ceil(1000)).sum();
    assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(0), &9.into()), "{report:?}");
    assert_eq!((report.rule(0, "archivedCount"), report.rule(0, "childrenDeletedCount")), (&9.into(), &chunks.into()));
    assert_eq!(case.ids("fs.files").await.len(), 3);
    let run = archive(&directory(&case));
    let manifest: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(run.join("manifest.json")).unwrap()).unwrap();
    let totals: BTreeMap<String, (u64, u64)> = manifest["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|of| {
            let count = |key: &str| of[key].as_u64().unwrap();
            (of["namespace"].as_str().unwrap().to_owned(), (count("archivedCount"), count("deletedCount")))
        })
        .collect();
    let chunks = chunks as u64;
    assert_eq!(totals, BTreeMap::from([("filed.fs.chunks".into(), (chunks, chunks)), ("filed.fs.files".into(), (9, 9))]));
    let ran = restore(&case, &run, &[]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!((raw(&case, "fs.files").await, raw(&case, "fs.chunks").await), before);
    for (file, id) in files.iter().enumerate() {
        let mut read = Vec::new();
        bucket.open_download_stream(id.clone()).await.unwrap().read_to_end(&mut read).await.unwrap();
        assert_eq!(read, content(file), "file {file}");
    }
}

#[tokio::test]
async fn a_child_that_cannot_be_archived_stays_and_so_does_the_entry_of_its_parent() {
    let case = case("deep").await;
    fill(&case, 0..5, 5..8).await;
    let nested = (0..40).fold(doc! {}, |inner, _| doc! { "in": inner });
    case.fill("lines", [doc! { "_id": "nested", "order": 2, "in": nested }]).await;
    let rule = rule(&archiving(&case));
    let report = case.report(&rule, &[]).await;
    assert_eq!((report.rule(0, "deletedCount"), report.rule(0, "childrenDeletedCount")), (&5.into(), &15.into()), "{report:?}");
    let warnings = report.rule(0, "warnings").to_string();
    assert!(warnings.contains("1 document kept, and not archived"), "{warnings}");
    assert_eq!(lines_of(&case).await.into_iter().collect::<Vec<_>>(), [(2, 1), (5, 3), (6, 3), (7, 3)]);
    assert_eq!(entries(&case).await.len(), 1, "{report:?}");
    // Once it can be, the next run deletes it, although no parent is left that names it.
    case.collection("lines").update_one(doc! { "_id": "nested" }, doc! { "$unset": { "in": 1 } }).await.unwrap();
    let report = case.report(&rule, &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "childrenDeletedCount")), (Some(0), &1.into()), "{report:?}");
    assert_whole(&case, "").await;
    assert!(entries(&case).await.is_empty());
}

/// Returns the namespaces that a restore puts back, in its order.
async fn order(case: &Case, run: &Path) -> Vec<String> {
    let ran = restore(case, run, &["--dry-run", "--format", "json"]).await;
    let json: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    json["namespaces"].as_array().unwrap().iter().map(|of| of["namespace"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn children_are_restored_first_and_what_a_kill_left_is_in_the_archive_of_the_next_run() {
    let case = case("boxed").await;
    // By name, the parents come first.
    let rule = |more: &str| {
        let rule = rule(&format!("{}{more}", archiving(&case)));
        rule.replace("DB.lines, field: order", "DB.zlines, field: order")
    };
    fill(&case, 0..200, 200..210).await;
    let client = case.client.database("admin");
    let rename = |from: &str, to: &str| doc! { "renameCollection": format!("boxed.{from}"), "to": format!("boxed.{to}") };
    client.run_command(rename("lines", "zlines")).await.unwrap();
    let before = (raw(&case, "orders").await, raw(&case, "zlines").await);
    let mut child = start(short(case.command(&rule(""), &["sweep", "--rate", "400"])));
    while case.ids("zlines").await.len() == 630 && child.try_wait().unwrap().is_none() {}
    child.kill().unwrap();
    end(child).await;
    assert!(case.ids("orders").await.len() > 10, "the first run came to its end");
    let report = report_after(&case, &rule("")).await;
    assert_eq!(report.ran.code, Some(0), "{report:?}");
    assert_eq!((case.ids("orders").await.len(), case.ids("zlines").await.len()), (10, 30));
    let mut runs: Vec<PathBuf> = std::fs::read_dir(directory(&case)).unwrap().map(|entry| entry.unwrap().path()).collect();
    runs.sort();
    assert_eq!(runs.len(), 2, "{runs:?}");
    for run in &runs {
        assert_eq!(order(&case, run).await, ["boxed.zlines", "boxed.orders"], "{run:?}");
        let ran = restore(&case, run, &[]).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
    }
    assert_eq!((raw(&case, "orders").await, raw(&case, "zlines").await), before);
    client.run_command(rename("zlines", "lines")).await.unwrap();
    assert_whole(&case, "").await;
    assert_eq!(lines_of(&case).await.len(), 210);
}
