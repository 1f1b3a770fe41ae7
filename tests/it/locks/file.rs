//! `--lock`: one run at a time on a machine. The lock is taken before any server is contacted and ends with the process.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::Duration;

use crate::support::faults::{dated, days, end, signal, start};
use crate::support::sweeper::{Case, Ran, id_set, run, sweeper};

const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d}\n";

async fn filled() -> (Case, PathBuf) {
    let case = Case::new().await;
    case.fill("c", dated(0..100, days(-3)).chain(dated(100..103, days(3)))).await;
    let lock = case.dir.path().join("lock");
    (case, lock)
}

fn locked(case: &Case, lock: &Path, args: &[&str]) -> Command {
    let mut command = case.command(RULE, &[&["sweep", "--format", "json"], args].concat());
    command.arg("--lock").arg(lock);
    command
}

/// Starts a run that holds the lock and deletes one document per second.
async fn holder(case: &Case, lock: &Path) -> Child {
    let mut child = start(locked(case, lock, &["--rate", "1"]));
    while case.ids("c").await.len() == 103 {
        assert!(child.try_wait().unwrap().is_none(), "the process ended");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    child
}

async fn kill(child: Child) {
    signal(&child, "KILL");
    end(child).await;
}

/// Like [`locked`], but with a server that cannot be reached.
fn elsewhere(case: &Case, lock: &Path, args: &[&str]) -> Command {
    let mut command = sweeper(&[&["sweep", "--uri", "mongodb://127.0.0.1:1"], args].concat());
    command.arg("--policy").arg(case.policy(RULE)).arg("--lock").arg(lock);
    command
}

fn deleted(ran: &Ran) -> u64 {
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    report["totals"]["deletedCount"].as_u64().expect("a number")
}

/// Returns the first line that a process writes to stderr.
async fn first_line(child: &mut Child) -> String {
    let stderr = child.stderr.take().expect("a pipe");
    let read = move || BufReader::new(stderr).lines().next().expect("a line").expect("UTF-8");
    tokio::task::spawn_blocking(read).await.expect("a line")
}

#[tokio::test]
async fn who_comes_second_is_told_who_has_the_lock_and_contacts_nobody() {
    let (case, lock) = filled().await;
    let first = holder(&case, &lock).await;
    for (args, lines) in [(&[][..], 2), (&["-q"], 1)] {
        let second = run(elsewhere(&case, &lock, args)).await;
        assert_eq!((second.code, second.stdout.as_str()), (Some(6), ""), "{second:?}");
        let pid = format!("process {}, since 2", first.id());
        for part in [&pid, "nothing was contacted", lock.to_str().unwrap(), "--lock-wait"] {
            assert!(second.stderr.contains(part), "{part}: {second:?}");
        }
        assert_eq!(second.stderr.lines().count(), lines, "{second:?}");
    }
    kill(first).await;
    assert!(case.ids("c").await.len() > 50, "the other runs deleted nothing");
}

#[tokio::test]
async fn a_lock_ends_with_its_process_even_if_that_is_killed() {
    let (case, lock) = filled().await;
    let first = holder(&case, &lock).await;
    kill(first).await;
    let second = run(locked(&case, &lock, &[])).await;
    assert_eq!(second.code, Some(0), "{second:?}");
    assert_eq!(case.ids("c").await, id_set(100..103));
    assert!(lock.is_file(), "a run that deleted the file would break the lock of a waiting run");
}

#[tokio::test]
async fn who_waits_goes_on_when_the_other_has_ended() {
    let (case, lock) = filled().await;
    let first = holder(&case, &lock).await;
    let mut second = start(locked(&case, &lock, &["--lock-wait", "1h"]));
    let said = first_line(&mut second).await;
    assert!(said.starts_with("info: waiting for at most") && said.contains(&format!("process {}", first.id())), "{said}");
    kill(first).await;
    let left = case.ids("c").await.len() as u64;
    let second = end(second).await;
    assert_eq!(second.code, Some(0), "{second:?}");
    assert!(left > 53 && deleted(&second) > 50, "{second:?}");
    assert_eq!(case.ids("c").await, id_set(100..103));
}

#[tokio::test]
async fn a_wait_ends_with_its_time_or_at_a_signal() {
    let (case, lock) = filled().await;
    let mut first = holder(&case, &lock).await;
    let late = run(elsewhere(&case, &lock, &["--lock-wait", "1s", "-q"])).await;
    assert_eq!((late.code, late.stderr.lines().count()), (Some(6), 1), "{late:?}");
    for (name, code) in [("INT", 130), ("TERM", 143), ("HUP", 143)] {
        let mut waits = start(elsewhere(&case, &lock, &["--lock-wait", "1h"]));
        first_line(&mut waits).await;
        signal(&waits, name);
        let ran = end(waits).await;
        assert_eq!(ran.code, Some(code), "{ran:?}");
        let said = ran.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains("partial: deleted 0 documents by 1 rule") && said.contains("partial (interrupted)"), "{ran:?}");
        assert!(first.try_wait().unwrap().is_none(), "the lock is still held");
    }
    kill(first).await;
}

#[tokio::test]
async fn a_dry_run_neither_waits_nor_keeps_others_waiting() {
    let case = Case::new().await;
    case.fill("c", dated(0..5, days(-3))).await;
    let lock = case.dir.path().join("lock");
    let held = std::fs::File::create(&lock).unwrap();
    held.lock().unwrap();
    let dry = run(locked(&case, &lock, &["--dry-run"])).await;
    assert_eq!(dry.code, Some(0), "{dry:?}");
    let sweep = run(locked(&case, &lock, &[])).await;
    assert_eq!(sweep.code, Some(6), "{sweep:?}");
    assert!(sweep.stderr.contains("an unidentified run"), "{sweep:?}");
    drop(held);
    std::fs::remove_file(&lock).unwrap();
    let dry = run(locked(&case, &lock, &["--dry-run"])).await;
    assert_eq!((dry.code, lock.exists()), (Some(0), false), "{dry:?}");
    assert_eq!(case.ids("c").await, id_set(0..5));
}

#[tokio::test]
async fn a_place_where_there_can_be_no_lock_is_an_error_before_anything_is_contacted() {
    let case = Case::new().await;
    let dir = case.dir.path();
    for lock in [Path::new("/absent/lock"), Path::new("/proc/version"), Path::new("/dev/null"), dir] {
        let ran = run(elsewhere(&case, lock, &[])).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
        let part = format!("taking the lock `{}`: ", lock.display());
        assert!(ran.stderr.contains(&part) && ran.stderr.contains("nothing was contacted"), "{ran:?}");
    }
    // A typing error must not cost the policy.
    let policy = case.policy(RULE);
    let text = std::fs::read_to_string(&policy).unwrap();
    let ran = run(elsewhere(&case, &policy, &[])).await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(std::fs::read_to_string(&policy).unwrap(), text);
}

#[tokio::test]
async fn two_names_of_one_file_are_one_lock() {
    let case = Case::new().await;
    case.fill("c", dated(0..5, days(-3))).await;
    let (lock, link) = (case.dir.path().join("lock"), case.dir.path().join("link"));
    std::os::unix::fs::symlink(&lock, &link).unwrap();
    let held = std::fs::File::create(&lock).unwrap();
    held.lock().unwrap();
    assert_eq!(run(locked(&case, &link, &[])).await.code, Some(6));
    drop(held);
    assert_eq!(run(locked(&case, &link, &[])).await.code, Some(0));
    assert!(std::fs::read_to_string(&lock).unwrap().contains("\"runId\""));
    assert!(link.is_symlink());
    assert_eq!(case.ids("c").await, id_set::<i32>([]));
}

#[tokio::test]
async fn waiting_for_no_lock_at_all_is_a_wrong_command_line() {
    let case = Case::new().await;
    let ran = case.run(RULE, &["sweep", "--lock-wait", "5m"]).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("--lock FILE"), "{ran:?}");
}
