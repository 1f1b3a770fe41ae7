//! Archives in a bucket of S3: written, listed, verified, restored, and read without sweeper.

use std::fs;
use std::path::Path;

use mongodb::bson::doc;
use serde_json::{Value, json};

use crate::support::archives::{into, raw};
use crate::support::faults::{dated, days};
use crate::support::s3::{BUCKET, S3};
use crate::support::sweeper::{Case, Ran, Report, id_set, run, sweeper};

/// Returns a rule that archives to a bucket.
pub(super) fn rules(more: &str) -> String {
    format!("  - {{namespace: DB.c, field: at, expireAfter: 1d{more}, archive: {{url: s3://{BUCKET}/ttl}}}}\n")
}

/// Sweeps, and reads the report.
pub(super) async fn swept(case: &Case, s3: &S3, rules: &str, args: &[&str]) -> Report {
    let mut command = case.command(rules, &[&["sweep", "--format", "json"], args].concat());
    s3.reach(&mut command);
    let ran = run(command).await;
    let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("no report: {cause}\n{ran:?}"));
    Report { json, ran }
}

/// Runs a command on archives, and reads its report.
pub(super) async fn told(s3: &S3, args: &[&str]) -> (Value, Ran) {
    let ran = run(s3.sweeper(&[args, &["--format", "json"]].concat())).await;
    let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("no report: {cause}\n{ran:?}"));
    (json, ran)
}

/// Puts the parts of each file together, as a user does who has fetched an archive.
fn put_together(archive: &Path) {
    for entry in fs::read_dir(archive).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        if !path.is_dir() {
            continue;
        }
        if name != "journal.jsonl" && !name.contains(".bson.") {
            put_together(&path);
            continue;
        }
        let mut parts: Vec<_> = fs::read_dir(&path).unwrap().map(|part| part.unwrap().path()).collect();
        parts.sort();
        let whole: Vec<u8> = parts.iter().flat_map(|part| fs::read(part).unwrap()).collect();
        fs::remove_dir_all(&path).unwrap();
        fs::write(&path, whole).unwrap();
    }
}

#[tokio::test]
async fn what_is_archived_in_a_bucket_comes_back() {
    for compression in ["zstd", "gzip"] {
        let (case, s3) = (Case::new().await, S3::start().await);
        case.fill("c", dated(0..50, days(-3)).chain([doc! { "_id": 99, "at": days(0) }])).await;
        let before = raw(&case, "c").await;
        let rules = rules(", batchSize: 10").replace("/ttl}", &format!("/ttl, compression: {compression}}}"));
        let dry = swept(&case, &s3, &rules, &["--dry-run"]).await;
        assert_eq!((dry.ran.code, dry.rule(0, "archive")), (Some(0), &json!("s3://bucket/ttl")), "{dry:?}");
        assert!(s3.asked().iter().all(|asked| asked.method != "PUT"), "a dry run writes nothing");
        let report = swept(&case, &s3, &rules, &[]).await;
        assert_eq!(report.ran.code, Some(0), "{report:?}");
        assert_eq!((report.rule(0, "deletedCount"), report.rule(0, "archivedCount")), (&json!(50), &json!(50)));
        assert_eq!(case.ids("c").await, id_set([99]));
        let puts: Vec<_> = s3.asked().into_iter().filter(|asked| asked.method == "PUT").collect();
        assert!(puts.iter().all(|put| put.has_checksum), "{puts:?}");
        assert!(s3.asked().iter().all(|asked| ["PUT", "GET", "HEAD"].contains(&asked.method.as_str())), "nothing is removed");

        let archive = report.rule(0, "archive").as_str().unwrap().to_owned();
        assert!(archive.starts_with("s3://bucket/ttl/2"), "{archive}");
        let (listed, _) = told(&s3, &["archive", "list", "s3://bucket/ttl/"]).await;
        assert_eq!((&listed["archives"][0]["archive"], &listed["archives"][0]["state"]), (&json!(archive), &json!("complete")));
        assert_eq!(listed["archives"][0]["namespaces"][0]["documentCount"], 50, "{listed:#}");
        let (verified, ran) = told(&s3, &["archive", "verify", "s3://bucket/ttl"]).await;
        assert_eq!((ran.code, &verified["archives"][0]["namespaces"][0]["whole"]), (Some(0), &json!(true)), "{verified:#}");

        let moves = into(&case, "c", "found");
        let (restored, ran) = told(&s3, &["restore", &archive, "--uri", &case.uri, "--namespace", &moves]).await;
        assert_eq!((ran.code, &restored["complete"]), (Some(0), &json!(true)), "{restored:#}");
        let mut found = raw(&case, "found").await;
        found.extend(raw(&case, "c").await);
        assert_eq!(found, before);

        // Once fetched and put together it is an archive in a directory.
        let fetched = s3.objects("ttl");
        fs::read_dir(&fetched).unwrap().for_each(|run| put_together(&run.unwrap().path()));
        let local = run(sweeper(&["archive", "verify", fetched.to_str().unwrap()])).await;
        assert_eq!(local.code, Some(0), "{local:?}");
        assert!(local.stdout.contains("50"), "{local:?}");
    }
}

#[tokio::test]
async fn rules_and_children_share_the_archive_of_a_run() {
    let (case, s3) = (Case::new().await, S3::start().await);
    for name in ["a b", "c%d+é"] {
        case.fill(name, dated(0..20, days(-3))).await;
    }
    case.fill("lines", (0..40).map(|id| doc! { "_id": id, "of": id % 20 })).await;
    let to = format!("archive: {{url: s3://{BUCKET}/deep/er}}");
    let children = "children: [{namespace: DB.lines, field: of}]";
    let rules = format!(
        "  - {{namespace: 'DB.a b', field: at, expireAfter: 1d, {to}, {children}}}\n  \
         - {{namespace: 'DB.c%d+é', field: at, expireAfter: 1d, {to}}}\njournal: {{collection: DB.journal}}\n"
    );
    let report = swept(&case, &s3, &rules, &[]).await;
    assert_eq!(report.ran.code, Some(0), "{report:?}");
    assert_eq!(report.rule(0, "archive"), report.rule(1, "archive"));
    assert_eq!((case.ids("a b").await.len(), case.ids("lines").await.len(), case.ids("c%d+é").await.len()), (0, 0, 0));
    let archive = report.rule(0, "archive").as_str().unwrap();
    let (restored, ran) = told(&s3, &["restore", archive, "--uri", &case.uri]).await;
    assert_eq!(ran.code, Some(0), "{restored:#}");
    assert_eq!(restored["namespaces"][0]["namespace"], format!("{}.lines", case.db.name()), "children first");
    assert_eq!((case.ids("a b").await.len(), case.ids("lines").await.len(), case.ids("c%d+é").await.len()), (20, 40, 20));
}

#[tokio::test]
async fn a_file_of_ten_thousand_objects_is_listed_and_read() {
    let (case, s3) = (Case::new().await, S3::start().await);
    case.fill("c", dated(0..10, days(-3))).await;
    let report = swept(&case, &s3, &rules(""), &[]).await;
    assert_eq!(report.rule(0, "deletedCount"), 10, "{report:?}");
    let archive = report.rule(0, "archive").as_str().unwrap();
    let file = s3.objects("ttl").join(archive.rsplit('/').next().unwrap()).join(case.db.name()).join("c.bson.zst");
    // As a run leaves it that was cut off: of each segment only its object is known.
    for record in ["manifest.json", "journal.jsonl"] {
        let path = file.parent().unwrap().parent().unwrap().join(record);
        let _ = fs::remove_dir_all(&path).or_else(|_| fs::remove_file(&path));
    }
    for number in 2..=10_000 {
        fs::copy(file.join("00000001"), file.join(format!("{number:08}"))).unwrap();
    }
    let (verified, ran) = told(&s3, &["archive", "verify", archive]).await;
    let namespace = &verified["archives"][0]["namespaces"][0];
    assert_eq!(
        (ran.code, &namespace["documentCount"], &namespace["whole"]),
        (Some(0), &json!(100_000), &json!(true)),
        "{verified:#}"
    );
}
