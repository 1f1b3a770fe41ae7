//! Others work on parents and children during a sweep.

use std::collections::BTreeSet;
use std::process::Child;
use std::time::Duration;

use crate::support::archives::{archive, directory, restore};
use crate::support::family::{case, content, entries, fill, lines_of, order, orders, rule, upload};
use crate::support::faults::{end, heal, pause_deletes, resume_deletes, set_alone, start, until_deleting_from};
use crate::support::sweeper::{Case, Ran, id_set};
use futures_util::TryStreamExt;
use futures_util::io::{AsyncReadExt, AsyncWriteExt};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::gridfs::GridFsBucket;
use mongodb::options::GridFsBucketOptions;

const EXPIRED: i32 = 300;

/// Lets others work one step after the other, in turns, until a sweep ends.
async fn until_end(mut child: Child, mut step: impl AsyncFnMut()) -> Ran {
    while child.try_wait().unwrap().is_none() {
        step().await;
    }
    end(child).await
}

/// Creates an order again if it is gone, with lines of other `_id`s. Returns whether it did.
async fn create_again(case: &Case, id: i32) -> bool {
    if case.collection("orders").insert_one(order(id, false)).await.is_err() {
        return false;
    }
    case.fill("lines", (0..3).map(|line| doc! { "_id": format!("again {id}-{line}"), "order": id })).await;
    true
}

#[tokio::test]
async fn parents_that_come_back_keep_what_came_after_them_and_others_may_delete_too() {
    let case = case("racing").await;
    fill(&case, 0..EXPIRED, 1000..1020).await;
    let child = start(case.command(&rule(""), &["sweep", "--rate", "400"]));
    let (mut again, mut by_others) = (BTreeSet::new(), 0);
    let mut turn = 0;
    let ran = until_end(child, async || {
        let id = turn * 77 % EXPIRED;
        turn += 1;
        match id % 3 {
            0 if !again.contains(&id) && create_again(&case, id).await => drop(again.insert(id)),
            1 => {
                case.collection("lines").delete_many(doc! { "order": id }).await.unwrap();
                by_others += case.collection("orders").delete_one(doc! { "_id": id }).await.unwrap().deleted_count;
            }
            _ => {}
        }
    })
    .await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!again.is_empty() && by_others > 0, "nobody worked during the sweep: {again:?} {by_others}");
    let report = case.report(&rule(""), &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "status")), (Some(0), &"complete".into()), "{report:?}");
    assert_eq!(orders(&case).await, again.iter().copied().chain(1000..1020).collect(), "{ran:?}");
    let lines: Vec<Document> = case.collection("lines").find(doc! {}).await.unwrap().try_collect().await.unwrap();
    let new = |id: i32| (0..3).map(move |line| format!("again {id}-{line}"));
    let of_live = |id: i32| (0..3).map(move |line| format!("{id}-{line}"));
    let must: BTreeSet<String> = again.iter().copied().flat_map(new).chain((1000..1020).flat_map(of_live)).collect();
    // Those that were found before their order was created again went, and the others stay.
    let may: BTreeSet<String> = again.iter().copied().flat_map(of_live).chain(must.iter().cloned()).collect();
    let left: BTreeSet<String> = lines.iter().map(|line| line.get_str("_id").unwrap().to_owned()).collect();
    assert!(left.is_superset(&must), "lost: {:?} {ran:?}", &must - &left);
    assert!(left.is_subset(&may), "orphans: {:?} {ran:?}", &left - &may);
    assert!(entries(&case).await.is_empty());
}

async fn assert_file(bucket: &GridFsBucket, id: &Bson, file: usize) {
    let mut read = Vec::new();
    bucket.open_download_stream(id.clone()).await.unwrap().read_to_end(&mut read).await.unwrap();
    assert_eq!(read, content(file), "file {file}");
}

#[tokio::test]
async fn uploads_during_a_sweep_lose_no_chunk() {
    let case = case("uploads").await;
    let bucket = case.db.gridfs_bucket(GridFsBucketOptions::builder().chunk_size_bytes(500).build());
    let expired = upload(&bucket, 60).await;
    let old = DateTime::from_millis(DateTime::now().timestamp_millis() - 40 * 86_400_000);
    case.collection("fs.files").update_many(doc! {}, doc! { "$set": { "uploadDate": old } }).await.unwrap();
    // This one begins before the sweep and ends after it.
    let mut long = bucket.open_upload_stream("long").await.unwrap();
    long.write_all(&content(20)).await.unwrap();
    let rule = "  - {namespace: DB.fs.files, gridfs: fs, expireAfter: 30d, batchSize: 5, orphans: true}\n\
                journal: {collection: DB.journal}\n";
    let child = start(case.command(rule, &["sweep", "--rate", "900"]));
    let mut uploaded = Vec::new();
    let ran = until_end(child, async || {
        let file = 1 + uploaded.len() % 12;
        let mut stream = bucket.open_upload_stream(format!("file {file}")).await.unwrap();
        // Piece by piece, so that batches of the sweep come in between.
        for piece in content(file).chunks(500) {
            stream.write_all(piece).await.unwrap();
            stream.flush().await.unwrap();
        }
        stream.close().await.unwrap();
        uploaded.push((file, stream.id().clone()));
    })
    .await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(!uploaded.is_empty(), "nothing was uploaded during the sweep: {ran:?}");
    long.close().await.unwrap();
    uploaded.push((20, long.id().clone()));
    assert_eq!(case.ids("fs.files").await, id_set(uploaded.iter().map(|(_, id)| id.clone())), "{ran:?}");
    for (file, id) in &uploaded {
        assert_file(&bucket, id, *file).await;
    }
    let of_gone = doc! { "files_id": { "$in": expired } };
    assert_eq!(case.collection("fs.chunks").count_documents(of_gone).await.unwrap(), 0, "{ran:?}");
}

/// Starts a sweep, and returns once it is about to find children to delete, where it stays until the server is healed.
async fn start_up_to_children(case: &Case, rules: &str) -> Child {
    // The first of these commands looks for the field.
    let finds = doc! { "failCommands": ["find"], "namespace": "t.lines", "errorCode": 11_602, "appName": "sweeper" };
    let admin = case.client.database("admin");
    let set = doc! { "configureFailPoint": "failCommand", "mode": { "skip": 1 }, "data": finds };
    let count = admin.run_command(set).await.unwrap().get_i32("count").unwrap();
    let child = start(case.command(rules, &["sweep"]));
    let wait = doc! { "waitForFailPoint": "failCommand", "timesEntered": count + 1, "maxTimeMS": 60_000 };
    admin.run_command(wait).await.expect("the sweep comes to the children");
    child
}

/// Returns the lines of the orders before this one, by their `_id`s.
async fn lines_before(case: &Case, order: i32) -> Vec<Document> {
    let lines = case.collection("lines").find(doc! { "order": { "$lt": order } }).sort(doc! { "_id": 1 }).await.unwrap();
    lines.try_collect().await.unwrap()
}

#[tokio::test]
async fn a_child_that_moves_to_another_parent_after_it_was_found_stays() {
    let (_set, case) = set_alone().await;
    fill(&case, 0..3, 3..6).await;
    let child = start_up_to_children(&case, &rule("")).await;
    pause_deletes(&case.client).await;
    heal(&case.client).await;
    until_deleting_from(&case.collection("lines")).await;
    case.collection("lines").update_many(doc! { "order": 1 }, doc! { "$set": { "order": 5 } }).await.unwrap();
    resume_deletes(&case.client).await;
    let ran = end(child).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(lines_of(&case).await.into_iter().collect::<Vec<_>>(), [(3, 3), (4, 3), (5, 6)], "{ran:?}");
    assert!(entries(&case).await.is_empty());
}

#[tokio::test]
async fn a_child_that_changes_after_it_was_archived_is_archived_again_and_goes_in_the_same_run() {
    let (_set, case) = set_alone().await;
    fill(&case, 0..3, 3..6).await;
    std::fs::create_dir_all(directory(&case)).unwrap();
    let rule = rule(&format!(", archive: {{directory: {}}}", directory(&case).display()));
    let child = start_up_to_children(&case, &rule).await;
    pause_deletes(&case.client).await;
    heal(&case.client).await;
    until_deleting_from(&case.collection("lines")).await;
    case.collection("lines").update_one(doc! { "_id": "1-2" }, doc! { "$set": { "changed": true } }).await.unwrap();
    let before = lines_before(&case, 3).await;
    resume_deletes(&case.client).await;
    let ran = end(child).await;
    assert_eq!((ran.code, lines_of(&case).await.into_keys().collect()), (Some(0), vec![3, 4, 5]), "{ran:?}");
    assert!(entries(&case).await.is_empty());
    assert_eq!(restore(&case, &archive(&directory(&case)), &[]).await.code, Some(0));
    assert_eq!(lines_before(&case, 3).await, before, "{ran:?}");
}

#[tokio::test]
async fn a_chunk_that_comes_once_its_upload_was_taken_for_an_old_one_stays() {
    let (_set, case) = set_alone().await;
    fill(&case, 0..0, 0..3).await;
    let id = |hours: i64| {
        let seconds = DateTime::now().timestamp_millis() / 1000 - hours * 3600;
        ObjectId::parse_str(format!("{seconds:08x}0000000000000001")).unwrap()
    };
    let (old, new) = (id(30), id(0));
    case.fill("lines", [doc! { "_id": old, "order": 50 }]).await;
    // The aggregations by which the children are old come before.
    let child = start_up_to_children(&case, &rule(", orphans: true")).await;
    case.fill("lines", [doc! { "_id": new, "order": 50 }]).await;
    heal(&case.client).await;
    let ran = end(child).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lines = case.ids("lines").await;
    let [old, new] = [old, new].map(|id| id_set([id]).into_iter().next().unwrap());
    assert!(lines.contains(&new) && !lines.contains(&old), "{lines:?} {ran:?}");
}

/// Waits until the number of lines no longer changes, and returns it.
async fn lines_at_rest(case: &Case) -> u64 {
    let mut before = u64::MAX;
    loop {
        let lines = case.collection("lines").count_documents(doc! {}).await.unwrap();
        if lines == before {
            return lines;
        }
        before = lines;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

#[tokio::test]
async fn a_parent_that_comes_back_while_the_run_is_paused_keeps_every_child_that_is_there() {
    const LINES: u64 = 20_000;
    let case = case("paused").await;
    fill(&case, 0..0, 1..2).await;
    case.collection("orders").insert_one(order(0, true)).await.unwrap();
    case.fill("lines", (0..LINES).map(|line| doc! { "_id": format!("0-{line}"), "order": 0 })).await;
    let directory = tempfile::tempdir().unwrap();
    let pause = directory.path().join("pause");
    let mut child = start(case.command(&rule(""), &["sweep", "--pause-file", pause.to_str().unwrap()]));
    while case.collection("lines").count_documents(doc! {}).await.unwrap() > LINES {
        assert!(child.try_wait().unwrap().is_none(), "the run ended before it came to the lines: {:?}", end(child).await);
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    std::fs::write(&pause, "").unwrap();
    let left = lines_at_rest(&case).await;
    assert!(left > 2_000, "the run was to be paused in the midst of the lines: {left}");
    case.collection("orders").insert_one(order(0, false)).await.unwrap();
    std::fs::remove_file(&pause).unwrap();
    let ran = end(child).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(case.collection("lines").count_documents(doc! {}).await.unwrap(), left, "{ran:?}");
    assert_eq!(orders(&case).await, [0, 1].into(), "{ran:?}");
    assert!(entries(&case).await.is_empty());
}
