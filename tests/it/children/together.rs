//! Children go with their parents, and nothing else does.

use crate::support::family::{assert_whole, case, content, entries, fill, lines_of, order, orders, rule, upload};
use crate::support::sweeper::{Case, id_set};
use futures_util::io::{AsyncReadExt, AsyncWriteExt};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::options::GridFsBucketOptions;

async fn index(case: &Case, collection: &str, field: &str) {
    let index = doc! { "key": { field: 1 }, "name": field };
    case.db.run_command(doc! { "createIndexes": collection, "indexes": [index] }).await.unwrap();
}

#[tokio::test]
async fn exactly_the_children_of_parents_that_are_gone_go() {
    let case = case("together").await;
    fill(&case, 0..45, 45..60).await;
    let date = order(0, true).get_datetime("at").unwrap().to_owned();
    case.fill("orders", [doc! { "_id": Bson::Null, "at": date }, doc! { "_id": "1", "at": DateTime::now() }]).await;
    let later = DateTime::from_millis(DateTime::now().timestamp_millis() + 3_600_000);
    let new = ObjectId::parse_str(format!("{:08x}0000000000000000", later.timestamp_millis() / 1000)).unwrap();
    let gone = [
        doc! { "_id": "long", "order": 1_i64 },
        doc! { "_id": "double", "order": 2.0 },
        doc! { "_id": ObjectId::new(), "order": 3 },
    ];
    let kept = [
        doc! { "_id": "a list", "order": [1, 50] },
        doc! { "_id": "null", "order": Bson::Null },
        doc! { "_id": "missing" },
        doc! { "_id": "text", "order": "1" },
        doc! { "_id": "none", "order": 999 },
        doc! { "_id": "within", "order": { "order": 1 } },
        doc! { "_id": new, "order": 4 },
    ];
    case.fill("lines", gone.iter().chain(&kept).cloned()).await;

    let dry = case.report(&rule(""), &["--dry-run"]).await;
    // The list and the new one are counted, because the index does not tell them.
    assert_eq!(
        (dry.rule(0, "childrenCount"), dry.rule(0, "childrenDeletedCount")),
        (&(45 * 3 + 5).into(), &Bson::Null.into_relaxed_extjson())
    );
    assert_eq!((dry.rule(0, "expiredCount"), orders_left(&case).await), (&46.into(), 62));
    let audit = case.run(&rule(""), &["audit", "--format", "json"]).await;
    let audit: serde_json::Value = serde_json::from_str(&audit.stdout).unwrap();
    assert_eq!((&audit["rules"][0]["childrenCount"], &audit["rules"][0]["orphanCount"]), (&140.into(), &2.into()), "{audit}");

    let report = case.report(&rule(""), &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "status")), (Some(0), &"complete".into()), "{report:?}");
    assert_eq!((report.rule(0, "deletedCount"), report.rule(0, "childrenDeletedCount")), (&46.into(), &(45 * 3 + 3).into()));
    let live = (45..60).map(Bson::from).chain(["1".into()]);
    assert_eq!(case.ids("orders").await, id_set(live));
    let of_live = (45..60).flat_map(|order| (0..3).map(move |line| Bson::from(format!("{order}-{line}"))));
    let kept = kept.iter().map(|line| line.get("_id").unwrap().clone());
    assert_eq!(case.ids("lines").await, id_set(of_live.chain(kept)));
    assert!(entries(&case).await.is_empty());
}

async fn orders_left(case: &Case) -> usize {
    case.ids("orders").await.len()
}

#[tokio::test]
async fn children_go_by_the_ttl_of_their_own_parent() {
    let case = case("ttls").await;
    fill(&case, 0..36, 0..0).await;
    let ttl = async |from: i32, to: i32, ttl: Bson| {
        let update = doc! { "$set": { "ttl": ttl } };
        case.collection("orders").update_many(doc! { "_id": { "$gte": from, "$lt": to } }, update).await.unwrap();
    };
    // They are three days old. From 20 on they have none, and go by the day of the rule.
    ttl(0, 5, 10.into()).await;
    ttl(5, 10, (10 * 86_400_i64).into()).await;
    ttl(10, 15, (-1).into()).await;
    ttl(15, 20, 0.into()).await;
    let rule = rule(", ttlField: ttl");
    let dry = case.report(&rule, &["--dry-run"]).await;
    assert_eq!((dry.rule(0, "expiredCount"), dry.rule(0, "childrenCount")), (&21.into(), &63.into()), "{dry:?}");
    let report = case.report(&rule, &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(0), &21.into()), "{report:?}");
    assert_eq!(report.rule(0, "childrenDeletedCount"), 63);
    assert_eq!(orders(&case).await, (5..20).collect());
    assert_whole(&case, "").await;
}

#[tokio::test]
async fn a_path_through_a_list_names_no_parent() {
    let case = case("paths").await;
    fill(&case, 0..5, 5..6).await;
    index(&case, "notes", "of.order").await;
    let child = |id: &str, of: Bson| doc! { "_id": id, "of": of };
    let list = vec![doc! { "order": 1 }, doc! { "order": 5 }];
    case.fill("notes", [child("one", doc! { "order": 1 }.into()), child("list", list.into())]).await;
    let rule = rule("").replace("children: [", "children: [{namespace: DB.notes, field: of.order}, ");
    let report = case.report(&rule, &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "childrenDeletedCount")), (Some(0), &16.into()), "{report:?}");
    assert_eq!(case.ids("notes").await, id_set(["list"]));
    assert_whole(&case, "").await;
}

#[tokio::test]
async fn the_chunks_of_a_file_go_with_it_and_the_others_stay_byte_for_byte() {
    let case = case("gridfs").await;
    let options = GridFsBucketOptions::builder().chunk_size_bytes(1000).build();
    let bucket = case.db.gridfs_bucket(options);
    let files = upload(&bucket, 30).await;
    // An upload that has not ended has chunks and no file.
    let mut unfinished = bucket.open_upload_stream("unfinished").await.unwrap();
    unfinished.write_all(&content(20)).await.unwrap();
    let old = DateTime::from_millis(DateTime::now().timestamp_millis() - 40 * 86_400_000);
    let (expired, live) = files.split_at(20);
    let update = doc! { "$set": { "uploadDate": old } };
    case.collection("fs.files").update_many(doc! { "_id": { "$in": expired } }, update).await.unwrap();
    let in_flight = case.collection("fs.chunks").count_documents(doc! { "files_id": unfinished.id() }).await.unwrap();
    assert!(in_flight > 0);

    let rule = "  - {namespace: DB.fs.files, gridfs: fs, expireAfter: 30d, batchSize: 7}\njournal: {collection: DB.journal}\n";
    let report = case.report(rule, &[]).await;
    let chunks: usize = (0..20).map(|file| (file * 700_usize).div_ceil(1000)).sum();
    assert_eq!((report.ran.code, report.rule(0, "field")), (Some(0), &"uploadDate".into()), "{report:?}");
    assert_eq!((report.rule(0, "deletedCount"), report.rule(0, "childrenDeletedCount")), (&20.into(), &chunks.into()));
    assert_eq!(case.ids("fs.files").await, id_set(live.iter().cloned()));
    let of_gone: Document = doc! { "files_id": { "$in": expired } };
    assert_eq!(case.collection("fs.chunks").count_documents(of_gone).await.unwrap(), 0);
    unfinished.close().await.unwrap();
    for (file, id) in live.iter().enumerate().map(|(n, id)| (n + 20, id)).chain([(20, unfinished.id())]) {
        let mut read = Vec::new();
        bucket.open_download_stream(id.clone()).await.unwrap().read_to_end(&mut read).await.unwrap();
        assert_eq!(read, content(file), "file {file}");
    }
}

#[tokio::test]
async fn limits_are_those_of_the_parents() {
    let case = case("limits").await;
    fill(&case, 0..50, 50..60).await;
    let report = case.report(&rule(", maxDeletes: 25, maxDeletePercent: 90"), &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "reason")), (Some(4), &"maxDeletes".into()), "{report:?}");
    assert_eq!((report.rule(0, "deletedCount"), report.rule(0, "childrenDeletedCount")), (&25.into(), &75.into()));
    assert_eq!(orders(&case).await.len(), 35);
    assert_whole(&case, "after the first limit").await;
    let report = case.report(&rule(""), &["--max-deletes", "10"]).await;
    assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(4), &10.into()), "{report:?}");
    assert_eq!(report.rule(0, "childrenDeletedCount"), 30);
    let report = case.report(&rule(", maxDeletePercent: 30"), &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "reason")), (Some(5), &"maxDeletePercent".into()), "{report:?}");
    let report = case.report(&rule(", rate: 60, filter: {_id: {$lt: 40}}"), &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "remainingCount")), (Some(0), &0.into()), "{report:?}");
    assert_whole(&case, "after all").await;
    assert!(lines_of(&case).await.keys().all(|order| *order >= 40));
}

#[tokio::test]
async fn children_without_a_parent_go_only_if_the_rule_says_so_and_all_of_them_are_a_day_old() {
    let case = case("orphans").await;
    fill(&case, 0..5, 5..10).await;
    let hours = |ago: i64| DateTime::now().timestamp_millis() / 1000 - ago * 3600;
    let id = |ago: i64, n: u8| ObjectId::parse_str(format!("{:08x}00000000000000{n:02x}", hours(ago))).unwrap();
    let line = |id: Bson, order: i32| doc! { "_id": id, "order": order };
    let old = [line(id(30, 1).into(), 100), line(id(48, 2).into(), 100), line(id(25, 3).into(), 101)];
    let kept = [
        // An upload that is still going on.
        line(id(30, 4).into(), 102),
        line(id(2, 5).into(), 102),
        // What tells no time.
        line("old".into(), 103),
        line(id(30, 6).into(), 103),
        line(id(30, 7).into(), 7),
    ];
    case.fill("lines", old.iter().chain(&kept).cloned()).await;
    let report = case.report(&rule(""), &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "childrenDeletedCount")), (Some(0), &15.into()), "{report:?}");
    let dry = case.report(&rule(", orphans: true"), &["--dry-run"]).await;
    assert_eq!((dry.rule(0, "orphanCount"), dry.rule(0, "childrenCount")), (&7.into(), &0.into()), "{dry:?}");
    let report = case.report(&rule(", orphans: true"), &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "childrenDeletedCount")), (Some(0), &3.into()), "{report:?}");
    let of_live = (5..10).flat_map(|order| (0..3).map(move |line| Bson::from(format!("{order}-{line}"))));
    assert_eq!(case.ids("lines").await, id_set(of_live.chain(kept.iter().map(|line| line.get("_id").unwrap().clone()))));
}
