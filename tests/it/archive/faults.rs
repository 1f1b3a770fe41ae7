//! Full disks, vanishing directories and `kill -9`: no deleted document is ever missing from the archive.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::support::archives::{Documents, archive, archives, assert_archived, directory, raw, restore, restored, unpacked};
use crate::support::faults::{dated, days, end, start};
use crate::support::sweeper::{Case, Ran, Report, id_set};
use mongodb::bson::{Binary, Bson, Document, doc, spec::BinarySubtype};
use rand::RngExt;

/// Returns documents that no compressor can shrink.
fn noise(ids: std::ops::Range<i32>) -> impl Iterator<Item = Document> {
    ids.map(|id| {
        let bytes: Vec<u8> = (0..200).map(|_| rand::random()).collect();
        let noise = Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes });
        doc! { "_id": id, "at": days(-3), "noise": noise }
    })
}

fn rules(case: &Case) -> String {
    format!(
        "  - {{namespace: DB.c, field: at, expireAfter: 1d, batchSize: 50, archive: {{directory: {}}}}}\n",
        directory(case).display()
    )
}

/// Reads the report of a run that may have failed.
fn report(ran: Ran) -> Report {
    let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    Report { json, ran }
}

/// Asserts that every deleted document is in the archives; returns the number of deleted documents.
async fn assert_safe(case: &Case, before: &Documents, runs: &[std::path::PathBuf]) -> usize {
    let after = raw(case, "c").await;
    let archived = unpacked(case, runs, "c", "unpacked").await;
    assert_archived(before, &after, &archived)
}

#[tokio::test]
async fn a_full_disk_fails_the_rule_before_the_delete() {
    let case = Case::new().await;
    case.fill("c", noise(0..3000)).await;
    let before = raw(&case, "c").await;
    let sweeper = case.command(&rules(&case), &["sweep", "--format", "json"]);
    // `ulimit` allows files of 200 kB; the whole archive would take more than 600 kB.
    let mut limited = Command::new("sh");
    limited.args(["-c", "trap '' XFSZ; ulimit -f 400; exec \"$0\" \"$@\""]).arg(sweeper.get_program()).args(sweeper.get_args());
    let report = report(end(start(limited)).await);
    assert_eq!(report.ran.code, Some(3), "{report:?}");
    let error = report.rule(0, "error").as_str().unwrap();
    assert!(
        error.contains("archiving to") && error.contains("File too large") && error.contains("nothing of that part"),
        "{error}"
    );
    let runs = archives(&directory(&case));
    let gone = assert_safe(&case, &before, &runs).await;
    assert_eq!(report.rule(0, "deletedCount"), gone, "{report:?}");
    assert!(gone > 0 && gone < 3000, "{gone}");
    // The part that was begun has been removed again: the archive is whole.
    let (json, _) = restored(&case, &runs[0], &["--dry-run"]).await;
    assert_eq!((&json["complete"], &json["namespaces"][0]["cutBytes"]), (&true.into(), &0.into()), "{json}");
    assert_eq!(json["namespaces"][0]["documentCount"], gone);
}

/// Sweeps slowly, calls `disturb` once the sweep has begun, and waits for the end.
async fn disturbed(case: &Case, disturb: impl FnOnce(&Path)) -> Report {
    let slow = rules(case).replace("batchSize: 50", "batchSize: 5, rate: 300");
    let child = start(case.command(&slow, &["sweep", "--format", "json"]));
    let to = directory(case);
    let journal = || archives(&to).first().and_then(|run| std::fs::read_to_string(run.join("journal.jsonl")).ok());
    while !journal().is_some_and(|journal| journal.contains("\"segment\"")) {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    disturb(&archive(&to));
    report(end(child).await)
}

#[tokio::test]
async fn an_archive_that_is_moved_or_replaced_fails_the_rule_before_the_delete() {
    for how in ["moved", "replaced", "truncated", "journal"] {
        let case = Case::new().await;
        case.fill("c", noise(0..1500)).await;
        let before = raw(&case, "c").await;
        let elsewhere = case.dir.path().join("elsewhere");
        let file = format!("{}/c.bson.zst", case.db.name());
        let report = disturbed(&case, |run| match how {
            "moved" => std::fs::rename(run, &elsewhere).unwrap(),
            "replaced" => {
                let beside = run.join("beside");
                std::fs::copy(run.join(&file), &beside).unwrap();
                std::fs::rename(beside, run.join(&file)).unwrap();
            }
            "truncated" => std::fs::File::options().write(true).open(run.join(&file)).unwrap().set_len(3).unwrap(),
            _ => std::fs::remove_file(run.join("journal.jsonl")).unwrap(),
        })
        .await;
        assert_eq!((report.ran.code, report.rule(0, "status").as_str()), (Some(3), Some("failed")), "{how}: {report:?}");
        let error = report.rule(0, "error").as_str().unwrap();
        assert!(error.contains("archiving to") && error.contains("nothing of that part was deleted"), "{how}: {error}");
        let left = case.ids("c").await.len() as u64;
        assert!(left > 0, "{how}");
        assert_eq!(report.rule(0, "deletedCount"), 1500 - left, "{how}: {report:?}");
        if how == "moved" {
            assert_safe(&case, &before, &[elsewhere]).await;
        }
    }
}

#[tokio::test]
async fn whenever_a_run_is_killed_what_is_gone_is_in_the_archive() {
    let case = Case::new().await;
    case.fill("c", noise(0..4000).chain(dated(4000..4010, days(3)))).await;
    let before = raw(&case, "c").await;
    let to = directory(&case);
    let mut cut_off = 0;
    for _ in 0..12 {
        let mut child = start(case.command(&rules(&case), &["sweep"]));
        let begun = archives(&to).len();
        if rand::rng().random_range(0..4) > 0 {
            // Mostly, begin the delay when the run begins to write.
            while archives(&to).len() == begun && child.try_wait().unwrap().is_none() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        tokio::time::sleep(Duration::from_millis(rand::rng().random_range(0..250))).await;
        // The run may already have ended.
        child.kill().unwrap();
        end(child).await;
        let journal = |run: &Path| std::fs::read_to_string(run.join("journal.jsonl")).ok();
        // A run with a manifest was complete before it was killed.
        cut_off = archives(&to).iter().filter(|run| journal(run).is_some() && !run.join("manifest.json").exists()).count();
        // A run whose journal does not yet name a file has deleted nothing.
        let has_file = |run: &std::path::PathBuf| journal(run).is_some_and(|journal| journal.contains("\"event\":\"file\""));
        let begun: Vec<_> = archives(&to).into_iter().filter(has_file).collect();
        assert_safe(&case, &before, &begun).await;
    }
    assert!(cut_off > 0, "no run was killed in time");
    let rerun = case.report(&rules(&case), &[]).await;
    assert_eq!(rerun.ran.code, Some(0), "{rerun:?}");
    assert_eq!(case.ids("c").await, id_set(4000..4010));
    let warnings = rerun.rule(0, "warnings").as_array().unwrap();
    let said = warnings.iter().filter(|warning| warning.as_str().unwrap().contains("was not finished by the run")).count();
    assert_eq!(said, cut_off, "{warnings:?}");
}

/// Returns a case whose archive looks as after a crash, the archive, its file, and the documents.
async fn cut_off() -> (Case, std::path::PathBuf, std::path::PathBuf, Documents) {
    let case = Case::new().await;
    case.fill("c", noise(0..200)).await;
    let before = raw(&case, "c").await;
    assert_eq!(case.run(&rules(&case), &["sweep"]).await.code, Some(0));
    let run = archive(&directory(&case));
    let file = run.join(case.db.name()).join("c.bson.zst");
    (case, run, file, before)
}

#[tokio::test]
async fn a_cut_off_archive_is_read_up_to_its_last_whole_segment() {
    let (case, run, file, before) = cut_off().await;
    std::fs::remove_file(run.join("manifest.json")).unwrap();
    let journal = std::fs::read_to_string(run.join("journal.jsonl")).unwrap();
    let lines: Vec<&str> = journal.lines().collect();
    let bytes = std::fs::read(&file).unwrap();
    let segments: Vec<serde_json::Value> = lines[2..].iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let end = |whole: usize| segments[..whole].iter().map(|segment| segment["length"].as_u64().unwrap()).sum::<u64>();
    assert!(segments.len() >= 4, "{journal}");
    for (kept, known) in [(segments.len(), 2), (3, 3), (3, segments.len()), (0, 0), (1, 0)] {
        // The file ends with part of a segment. The journal lists `known` segments and ends with part of a line.
        let rest = if kept < segments.len() { 10 } else { 0 };
        std::fs::write(&file, &bytes[..usize::try_from(end(kept)).unwrap() + rest]).unwrap();
        let text = format!("{}\n{{\"event\":\"seg", lines[..2 + known].join("\n"));
        std::fs::write(run.join("journal.jsonl"), text).unwrap();
        let documents: u64 = segments[..kept].iter().map(|segment| segment["documents"].as_u64().unwrap()).sum();
        case.collection("d").drop().await.unwrap();
        let namespace = crate::support::archives::into(&case, "c", "d");
        let (json, ran) = restored(&case, &run, &["--namespace", &namespace]).await;
        // Segments in the journal may have been deleted from the database, so if one is missing the restore must not succeed.
        let code = if known > kept { 3 } else { 0 };
        assert_eq!((ran.code, &json["complete"]), (Some(code), &false.into()), "{ran:?}");
        assert_eq!(json["namespaces"][0]["insertedCount"], documents, "{kept} {known}: {json}");
        assert_eq!(json["namespaces"][0]["cutBytes"].as_u64().unwrap() > 0, kept < segments.len(), "{kept} {known}: {json}");
        let back = raw(&case, "d").await;
        assert!(back.iter().all(|(id, document)| before.get(id) == Some(document)));
    }
}

#[tokio::test]
async fn a_damaged_archive_is_refused_before_the_first_insert() {
    let (case, run, file, _) = cut_off().await;
    let manifest = run.join("manifest.json");
    let journal = run.join("journal.jsonl");
    let refused = async |what: &str| {
        let ran = restore(&case, &run, &[]).await;
        assert_eq!(ran.code, Some(1), "{what}: {ran:?}");
        assert!(ran.stderr.contains("nothing was inserted"), "{what}: {ran:?}");
        assert!(case.ids("c").await.is_empty(), "{what}");
    };
    for complete in [true, false] {
        let bytes = std::fs::read(&file).unwrap();
        for at in [0, 5, bytes.len() / 3, bytes.len() / 2, bytes.len() - 1] {
            let mut flipped = bytes.clone();
            flipped[at] ^= 0x10;
            std::fs::write(&file, flipped).unwrap();
            refused(&format!("byte {at}")).await;
        }
        for path in [&file, &journal] {
            let kept = std::fs::read(path).unwrap();
            std::fs::remove_file(path).unwrap();
            assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
            refused("a pipe, which has no end").await;
            std::fs::remove_file(path).unwrap();
            std::fs::write(path, kept).unwrap();
        }
        std::fs::write(&file, &bytes).unwrap();
        let text = std::fs::read_to_string(&journal).unwrap();
        std::fs::write(&journal, text.replacen("\"offset\":0", "\"offset\":1", 1)).unwrap();
        refused("an offset").await;
        std::fs::write(&journal, text.replacen("{\"event\":\"segment\"", "{\"event\":\"other\"", 1)).unwrap();
        refused("a line").await;
        std::fs::write(&journal, text.replace(&format!("{}/c.bson.zst", case.db.name()), "../c.bson.zst")).unwrap();
        refused("a path to elsewhere").await;
        std::fs::write(&journal, &text).unwrap();
        if complete {
            for (what, bytes) in [("shorter", &bytes[..bytes.len() - 1]), ("longer", &[&bytes[..], &[0]].concat())] {
                std::fs::write(&file, bytes).unwrap();
                refused(what).await;
            }
            let fewer: Vec<&str> = text.lines().collect();
            std::fs::write(&file, &bytes).unwrap();
            std::fs::write(&journal, fewer[..fewer.len() - 1].join("\n") + "\n").unwrap();
            refused("a segment that the journal does not know").await;
            std::fs::write(&journal, &text).unwrap();
            std::fs::remove_file(&manifest).unwrap();
        } else {
            std::fs::remove_file(&file).unwrap();
            refused("no file").await;
        }
    }
}
