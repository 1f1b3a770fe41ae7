//! `archive list` and `archive verify`: what a directory holds, and every kind of damage, without a server.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::support::archives::{archives, directory};
use crate::support::faults::{dated, days, end, start, until_deleted_from};
use crate::support::sweeper::{Case, Ran, run, sweeper};

fn rules(case: &Case) -> String {
    let to = directory(case).display().to_string();
    let rule = |name: &str, c: &str| {
        format!(
            "  - {{name: {name}, namespace: DB.{c}, field: at, expireAfter: 1d, batchSize: 10, archive: {{directory: {to}}}}}\n"
        )
    };
    [rule("first", "c"), rule("second", "d")].concat()
}

async fn archive(args: &[&str], directory: &Path) -> Ran {
    let mut command = sweeper(&[&["archive"], args].concat());
    command.arg(directory);
    run(command).await
}

/// Runs a command, and returns its JSON report.
async fn reported(args: &[&str], directory: &Path) -> (Value, Ran) {
    let ran = archive(&[args, &["--format", "json"]].concat(), directory).await;
    (serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}")), ran)
}

#[tokio::test]
async fn archives_are_listed_by_their_records() {
    let case = Case::new().await;
    case.fill("c", dated(0..50, days(-3))).await;
    case.fill("d", dated(0..7, days(-3))).await;
    assert_eq!(case.run(&rules(&case), &["sweep"]).await.code, Some(0));
    case.fill("c", dated(100..101, days(-3))).await;
    assert_eq!(case.run(&rules(&case), &["sweep"]).await.code, Some(0));
    let runs = archives(&directory(&case));
    std::fs::create_dir(directory(&case).join("lost+found")).unwrap();

    let (json, ran) = reported(&["list"], &directory(&case)).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""));
    let first = &json["archives"][0];
    assert_eq!((&first["state"], &first["error"], &first["strays"]), (&json!("complete"), &Value::Null, &json!([])));
    let run = Path::new(first["archive"].as_str().unwrap());
    assert!(runs.len() == 2 && runs.iter().any(|one| one == run), "{runs:?}");
    let manifest: Value = serde_json::from_slice(&std::fs::read(run.join("manifest.json")).unwrap()).unwrap();
    assert_eq!((&first["runId"], &first["startedAt"]), (&manifest["runId"], &manifest["startedAt"]));
    for (n, documents, rule) in [(0, 50, "first"), (1, 7, "second")] {
        let (listed, written) = (&first["namespaces"][n], &manifest["files"][n]);
        assert_eq!((&listed["documentCount"], &listed["rules"]), (&json!(documents), &json!([rule])), "{json}");
        assert_eq!((&listed["bytes"], &listed["compressedBytes"]), (&written["bytes"], &written["compressedBytes"]));
        assert_eq!(listed["whole"], Value::Null);
    }

    let only = reported(&["list", "--only", "*.d"], &directory(&case)).await.0;
    assert_eq!(
        (only["archives"].as_array().unwrap().len(), &only["archives"][0]["namespaces"][0]["documentCount"]),
        (1, &json!(7))
    );
    let one = reported(&["list"], &runs[1]).await.0;
    assert_eq!(
        (one["archives"].as_array().unwrap().len(), &one["archives"][0]["archive"]),
        (1, &json!(runs[1].display().to_string()))
    );
    let table = archive(&["list"], &directory(&case)).await;
    let namespace = case.collection("c").namespace().to_string();
    assert!(table.stdout.contains(&namespace) && table.stdout.contains("2 archives with 58 documents"), "{table:?}");
    assert_eq!(archive(&["list", "--only", "nope"], &directory(&case)).await.code, Some(2));
    assert_eq!(archive(&["list"], &directory(&case).join("lost+found")).await.code, Some(1));
    assert_eq!(archive(&["verify"], &directory(&case).join("nothing")).await.code, Some(1));
}

#[tokio::test]
async fn every_damage_is_found_and_the_other_archives_are_verified_all_the_same() {
    let case = Case::new().await;
    for first in [0, 100] {
        case.fill("c", dated(first..first + 50, days(-3))).await;
        assert_eq!(case.run(&rules(&case), &["sweep"]).await.code, Some(0));
    }
    let (json, ran) = reported(&["verify"], &directory(&case)).await;
    // The older one: both may have begun in one second, and their names do not tell then.
    let run = PathBuf::from(json["archives"][0]["archive"].as_str().expect("a path"));
    assert_eq!((ran.code, &json["archives"][1]["namespaces"][0]["whole"]), (Some(0), &json!(true)), "{json}");
    let quiet = archive(&["verify", "-q"], &directory(&case)).await;
    assert_eq!((quiet.code, quiet.stdout.as_str(), quiet.stderr.as_str()), (Some(0), "", ""));

    let (database, _) =
        case.collection("c").namespace().to_string().split_once('.').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    for (file, is_listed) in [("journal.jsonl", false), ("manifest.json", false), ("c.bson.zst", true), ("c.metadata.json", true)]
    {
        let path = if file.starts_with('c') { run.join(&database).join(file) } else { run.join(file) };
        let kept = std::fs::read(&path).unwrap();
        let mut flipped = kept.clone();
        flipped[kept.len() / 2] ^= 1;
        for damaged in [&flipped[..], &kept[..kept.len() - 1]] {
            std::fs::write(&path, damaged).unwrap();
            let (json, ran) = reported(&["verify"], &directory(&case)).await;
            let (first, second) = (&json["archives"][0], &json["archives"][1]);
            assert_eq!((ran.code, first["error"].is_string()), (Some(3), true), "{file}: {json}");
            assert_eq!(first["namespaces"][0]["whole"] == false, is_listed, "{file}: {json}");
            assert_eq!((&second["error"], &second["namespaces"][0]["whole"]), (&Value::Null, &json!(true)), "{file}: {json}");
            let quiet = archive(&["verify", "-q"], &directory(&case)).await;
            assert_eq!((quiet.code, quiet.stderr.lines().count()), (Some(3), 1), "{quiet:?}");
            assert!(quiet.stderr.contains(&run.display().to_string()), "{quiet:?}");
        }
        std::fs::write(&path, kept).unwrap();
    }

    std::fs::write(run.join(&database).join("other.bson.zst"), "?").unwrap();
    let (json, ran) = reported(&["verify"], &run).await;
    assert_eq!((ran.code, &json["archives"][0]["strays"]), (Some(3), &json!([format!("{database}/other.bson.zst")])), "{json}");
}

#[tokio::test]
async fn the_archive_of_a_run_that_was_cut_off_is_whole_and_one_that_is_written_is_left_alone() {
    let case = Case::new().await;
    case.fill("c", dated(0..2000, days(-3))).await;
    let slow = rules(&case).replace("batchSize: 10", "batchSize: 20, rate: 100");
    let mut child = start(case.command(&slow, &["sweep"]));
    until_deleted_from(&case, "c", 2000).await;
    let (json, ran) = reported(&["verify"], &directory(&case)).await;
    assert_eq!((ran.code, &json["archives"][0]["state"]), (Some(0), &json!("beingWritten")), "{json}");
    child.kill().unwrap();
    end(child).await;
    let (json, ran) = reported(&["verify"], &directory(&case)).await;
    let archive = &json["archives"][0];
    assert_eq!((ran.code, &archive["state"], &archive["error"]), (Some(0), &json!("unfinished"), &Value::Null), "{json}");
    let archived = archive["namespaces"][0]["documentCount"].as_u64().unwrap() as usize;
    assert!(archived >= 2000 - case.ids("c").await.len(), "{json}");

    // Segments that the journal lists are gone: those documents may have been deleted.
    let (database, _) =
        case.collection("c").namespace().to_string().split_once('.').map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
    let file = archives(&directory(&case)).remove(0).join(database).join("c.bson.zst");
    std::fs::write(&file, "").unwrap();
    let (json, ran) = reported(&["verify"], &directory(&case)).await;
    assert_eq!((ran.code, &json["archives"][0]["namespaces"][0]["whole"]), (Some(3), &json!(false)), "{json}");
}
