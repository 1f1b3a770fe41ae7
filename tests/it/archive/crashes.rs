//! Archives as a crash or a damaged disk leaves them: what was deleted is restored, and what is not there is said.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::support::archives::{
    Documents, archive, archives, assert_archived, directory, into, raw, restore, restored, rules, swept,
};
use crate::support::faults::{dated, days, end, start, until_deleted_from};
use crate::support::shim::Shim;
use crate::support::sweeper::{Case, id_set, run};
use mongodb::bson::{Binary, RawDocumentBuf, doc, spec::BinarySubtype};
use ttl_sweeper::core::policy::Compression;
use ttl_sweeper::shell::archive::frame;
use ttl_sweeper::shell::archive::seal::Seal;

/// Copies the files of a directory that is being written to, as they are at this moment.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    let mut paths: Vec<PathBuf> = std::fs::read_dir(from).unwrap().flatten().map(|entry| entry.path()).collect();
    // A sweep writes the documents, then the journal, then the manifest. Copied in the other order, nothing is told of that the
    // copy does not have.
    paths.sort_by_key(|path| (path.is_dir(), std::cmp::Reverse(path.clone())));
    for path in paths {
        let to = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &to);
        } else {
            std::fs::copy(path, to).unwrap();
        }
    }
}

/// Asserts that a restore into another collection brings back what was deleted.
async fn assert_restored(case: &Case, run: &Path, before: &Documents, after: &Documents) {
    case.collection("d").drop().await.unwrap();
    let ran = restore(case, run, &["--namespace", &into(case, "c", "d")]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_archived(before, after, &raw(case, "d").await);
}

#[tokio::test]
async fn a_copy_in_mid_run_has_everything_that_was_deleted_before_it() {
    let case = Case::new().await;
    case.fill("c", dated(0..2000, days(-3))).await;
    let before = raw(&case, "c").await;
    let child = start(case.command(&rules(&case, ", batchSize: 20, rate: 400"), &["sweep"]));
    until_deleted_from(&case, "c", 2000).await;
    let mut copies = Vec::new();
    for number in 0..8 {
        let after = raw(&case, "c").await;
        let to = case.dir.path().join(format!("copy{number}"));
        copy(&archive(&directory(&case)), &to);
        copies.push((to, after));
    }
    assert_eq!(end(child).await.code, Some(0));
    assert!(copies.iter().any(|(copy, after)| !copy.join("manifest.json").exists() && !after.is_empty()), "the run was over");
    for (copy, after) in copies {
        assert_restored(&case, &copy, &before, &after).await;
        // After a loss of power the end of the journal may be NULs, or the journal may be gone.
        let journal = std::fs::read(copy.join("journal.jsonl")).unwrap();
        let lines = journal.split_inclusive(|byte| *byte == b'\n');
        let first: usize = lines.take(2).map(<[u8]>::len).sum();
        let mut nuls = journal[..first].to_vec();
        nuls.resize(journal.len() + 100, 0);
        let _ = std::fs::remove_file(copy.join("manifest.json"));
        std::fs::write(copy.join("journal.jsonl"), nuls).unwrap();
        assert_restored(&case, &copy, &before, &after).await;
        std::fs::remove_file(copy.join("journal.jsonl")).unwrap();
        assert_restored(&case, &copy, &before, &after).await;
    }
}

/// Returns the paths of a directory and of everything in it.
fn everything(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let within = entries.flat_map(|path| if path.is_dir() { everything(&path) } else { vec![path] });
    [directory.to_owned()].into_iter().chain(within).collect()
}

#[tokio::test]
async fn every_file_and_directory_of_an_archive_is_brought_to_the_disk() {
    let case = Case::new().await;
    case.fill("c", dated(0..10, days(-3))).await;
    let synced = case.dir.path().join("synced");
    let mut command = case.command(&rules(&case, ""), &["sweep"]);
    Shim::syncs(&case).record_syncs(&mut command, &synced);
    let ran = run(command).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let synced = std::fs::read_to_string(synced).unwrap();
    let synced: BTreeSet<&Path> = synced.lines().map(Path::new).collect();
    for path in everything(&directory(&case)) {
        // It is written under another name first.
        let path = if path.ends_with("manifest.json") { path.with_extension("json.new") } else { path };
        assert!(synced.contains(path.canonicalize().unwrap_or(path.clone()).as_path()), "{path:?} is not in {synced:?}");
    }
}

#[tokio::test]
async fn what_an_archive_lost_is_said_even_if_nothing_else_is() {
    let (case, run) = swept().await;
    let journal = std::fs::read(run.join("journal.jsonl")).unwrap();
    let quiet = restore(&case, &run, &["-q", "--dry-run"]).await;
    assert_eq!((quiet.code, quiet.stderr.as_str()), (Some(0), ""));
    let says = async |what: &str, code: i32, part: &str| {
        let quiet = restore(&case, &run, &["-q", "--dry-run"]).await;
        assert_eq!((quiet.code, quiet.stdout.as_str()), (Some(code), ""), "{what}: {quiet:?}");
        assert!(quiet.stderr.contains(part), "{what}: {quiet:?}");
        let (json, ran) = restored(&case, &run, &["--dry-run"]).await;
        assert_eq!((ran.code, &json["namespaces"][0]["insertedCount"]), (Some(code), &50.into()), "{what}: {json}");
        json
    };
    std::fs::write(run.join("notes.txt"), "?").unwrap();
    let json = says("a stray file", 3, "`notes.txt` is in no record").await;
    assert_eq!(json["strays"], serde_json::json!(["notes.txt"]));
    std::fs::remove_file(run.join("notes.txt")).unwrap();
    std::fs::remove_file(run.join("journal.jsonl")).unwrap();
    says("no journal, but a manifest", 0, "`journal.jsonl` is missing").await;
    std::fs::remove_file(run.join("manifest.json")).unwrap();
    let json = says("no records", 0, "its name says that it is of").await;
    assert_eq!((&json["runId"], &json["namespaces"][0]["unlistedCount"]), (&serde_json::Value::Null, &50.into()), "{json}");
    std::fs::write(run.join("journal.jsonl"), vec![0; journal.len()]).unwrap();
    says("a journal of NULs", 0, "`journal.jsonl` is cut off or damaged at its end").await;
    std::fs::write(run.join("journal.jsonl"), journal).unwrap();
    says("no manifest", 0, "did not end").await;
    assert!(case.ids("c").await.is_empty());
}

#[tokio::test]
async fn an_empty_archive_is_no_obstacle_and_is_named_by_the_next_run() {
    let case = Case::new().await;
    case.fill("c", dated(0..5, days(-3))).await;
    let empty = directory(&case).join("20260131T020000Z-1a2b3c4d");
    std::fs::create_dir(&empty).unwrap();
    let (json, ran) = restored(&case, &empty, &[]).await;
    assert_eq!((ran.code, &json["namespaces"]), (Some(0), &serde_json::json!([])), "{json}");
    assert!(ran.stdout.contains("nothing is in it"), "{json}");
    let report = case.report(&rules(&case, ""), &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "deletedCount").as_u64()), (Some(0), Some(5)), "{report:?}");
    let warning = report.rule(0, "warnings")[0].as_str().unwrap().to_owned();
    assert!(warning.contains("1a2b3c4d` is empty") && warning.contains("rmdir"), "{warning}");
    std::fs::remove_dir(&empty).unwrap();
    assert_eq!(archives(&directory(&case)).len(), 1);
}

#[tokio::test]
async fn a_forged_archive_ends_in_an_error() {
    let (case, run) = swept().await;
    std::fs::remove_file(run.join("manifest.json")).unwrap();
    let file = run.join(case.db.name()).join("c.bson.zst");
    let kept = (std::fs::read(&file).unwrap(), std::fs::read(run.join("journal.jsonl")).unwrap());
    let refused = async |what: &str| {
        let ran = restore(&case, &run, &["--yes"]).await;
        assert_eq!(ran.code, Some(1), "{what}: {ran:?}");
        assert!(ran.stderr.contains("nothing was inserted"), "{what}: {ran:?}");
        assert!(case.ids("c").await.is_empty(), "{what}");
    };
    // Each line says so in its checksum.
    for (from, to) in [
        ("\"length\":", "\"length\":1844674407370955"),
        ("\"offset\":0", "\"offset\":18446744073709551615"),
        ("\"documents\":", "\"documents\":9"),
        ("\"bytes\":", "\"bytes\":9"),
        ("\"metadataSha256\":\"", "\"metadataSha256\":\"0"),
        ("\"database\":\"", "\"database\":\"../"),
        ("\"format\":2", "\"format\":1"),
        ("\"format\":2", "\"format\":3"),
    ] {
        let journal = String::from_utf8(kept.1.clone()).unwrap();
        let forged = journal.split_inclusive('\n').flat_map(|line| {
            let opened = String::from_utf8(Seal::LINE.open(line.as_bytes()).unwrap()).unwrap();
            Seal::LINE.close(&opened.replace(from, to))
        });
        std::fs::write(run.join("journal.jsonl"), forged.collect::<Vec<u8>>()).unwrap();
        refused(to).await;
    }
    std::fs::write(run.join("journal.jsonl"), &kept.1).unwrap();

    // Files without a journal: a document of 5000 levels, a bomb, and noise.
    std::fs::remove_file(run.join("journal.jsonl")).unwrap();
    let mut deep = RawDocumentBuf::new().into_bytes();
    for _ in 0..5000 {
        let length = i32::try_from(4 + 3 + deep.len() + 1).unwrap();
        deep = [&length.to_le_bytes()[..], &[3, b'0', 0], &deep, &[0]].concat();
    }
    let bomb = vec![0; 200_000_000];
    for (what, content) in [("levels", &deep), ("a bomb", &bomb)] {
        std::fs::write(&file, frame::compress(content, Compression::Zstd).unwrap()).unwrap();
        let (json, ran) = restored(&case, &run, &["--yes"]).await;
        assert_eq!((ran.code, &json["namespaces"][0]["insertedCount"]), (Some(3), &0.into()), "{what}: {json}");
        assert!(json["namespaces"][0]["error"].as_str().unwrap().contains("damaged"), "{what}: {json}");
    }
    std::fs::write(&file, &kept.0).unwrap();
    std::fs::write(run.join("journal.jsonl"), &kept.1).unwrap();
    let (json, ran) = restored(&case, &run, &["--yes"]).await;
    assert_eq!((ran.code, &json["namespaces"][0]["insertedCount"]), (Some(0), &50.into()), "{json}");
    assert_eq!(case.ids("c").await, id_set(0..50));
}

/// Returns the most memory that a process has had at once, in MB, or 0 once it has ended.
fn memory(process: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let most = status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().split(' ').next());
    most.map_or(0, |kilobytes| kilobytes.parse::<u64>().unwrap() / 1024)
}

#[tokio::test]
async fn large_and_deep_documents_take_little_memory() {
    let case = Case::new().await;
    for id in 0..6 {
        let mut bytes = vec![0; 7_000_000];
        rand::fill(&mut bytes[..]);
        let noise = Binary { subtype: BinarySubtype::Generic, bytes };
        case.fill("c", [doc! { "_id": id, "at": days(-3), "noise": noise, "p": "x".repeat(7_000_000) }]).await;
    }
    let deep = (0..170).fold(doc! {}, |inner, _| doc! { "a": inner });
    case.fill("c", [doc! { "_id": 6, "at": days(-3), "v": deep }]).await;
    let mut child = start(case.command(&rules(&case, ""), &["sweep", "--format", "json"]));
    let mut most = 0;
    while child.try_wait().unwrap().is_none() {
        most = most.max(memory(child.id()));
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let ran = end(child).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(case.ids("c").await, id_set([6]));
    assert!(most > 0 && most < 110, "{most} MB");
}
