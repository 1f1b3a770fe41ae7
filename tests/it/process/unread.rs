//! Standard error that is not read, as the standard error of a service whose journal has stopped, and standard output that is
//! not.

use std::io::{PipeReader, Read, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::support::faults::{alone, dated, days, end, fill_many, pause_deletes, resume_deletes, send, signal, until_running};
use crate::support::sweeper::{Case, Ran, id_set, run};

const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 5, concurrency: 1, targetBatchMs: 30000}\n";

/// Bytes that a pipe holds (pipe(7)).
const PIPE: usize = 65_536;

/// Maximum number of waits, five minutes in total: on a busy machine a sweep of small batches takes longer than one.
const MAX_WAITS: usize = 3_000;

/// Returns both ends of a pipe that has no room left.
fn full_pipe() -> (PipeReader, std::io::PipeWriter) {
    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&vec![b'\n'; PIPE]).unwrap();
    (reader, writer)
}

/// Waits for the end of a process, and kills one that hangs.
async fn end_in_time(mut child: Child) -> Ran {
    for _ in 0..MAX_WAITS {
        if child.try_wait().unwrap().is_some() {
            return end(child).await;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    send(child.id(), "KILL");
    panic!("the process hangs: {:?}", end(child).await);
}

async fn until_swept(case: &Case) {
    for _ in 0..MAX_WAITS {
        if case.ids("c").await.is_empty() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("not swept in time");
}

/// Returns the status of an answer.
async fn status(url: &str) -> String {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--max-time", "60", "--noproxy", "*", "--output", "/dev/null", "--write-out", "%{http_code}", url]);
    run(curl).await.stdout
}

async fn until_status(url: &str, expected: &str) {
    for _ in 0..MAX_WAITS {
        if status(url).await == expected {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("{url} is not {expected}");
}

/// Returns an address at which nothing listens.
fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[tokio::test]
async fn one_signal_ends_a_sweep_whose_log_is_not_read_after_the_batch_in_flight() {
    for more in [&[][..], &["-vv", "--log-format", "json"], &["-q"]] {
        let (_mongod, case) = alone().await;
        case.fill("c", dated(0..100, days(-3))).await;
        pause_deletes(&case.client).await;
        let (_unread, writer) = full_pipe();
        let report = case.dir.path().join("report.json");
        let mut command = case.command(RULE, &[&["sweep", "-o", report.to_str().unwrap()], more].concat());
        let child = command.stderr(writer).stdout(Stdio::piped()).spawn().unwrap();
        until_running(&case.client, "delete").await;
        signal(&child, "TERM");
        // Nothing can be read that says that the signal was heard.
        tokio::time::sleep(Duration::from_secs(2)).await;
        resume_deletes(&case.client).await;
        let ran = end_in_time(child).await;
        assert_eq!(ran.code, Some(143), "{more:?} {ran:?}");
        assert_eq!(case.ids("c").await, id_set(5..100), "{more:?}");
        let report: Value = serde_json::from_str(&std::fs::read_to_string(report).unwrap()).unwrap();
        let rule = &report["rules"][0];
        assert_eq!(
            (&rule["deletedCount"], &rule["reason"], &rule["uncertain"]),
            (&5.into(), &"interrupted".into(), &false.into())
        );
    }
}

#[tokio::test]
async fn runs_go_on_while_the_log_is_not_read_and_say_afterwards_how_many_lines_were_lost() {
    let (_mongod, case) = alone().await;
    fill_many(&case, "c", 6_000, days(-3)).await;
    let (mut reader, writer) = full_pipe();
    let (report, address) = (case.dir.path().join("report.json"), free_address());
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 1, concurrency: 4}\n";
    let args = ["sweep", "-vv", "--log-format", "json", "--every", "1s", "--listen", &address, "-o", report.to_str().unwrap()];
    let child = case.command(rule, &args).stderr(writer).stdout(Stdio::piped()).spawn().unwrap();
    until_swept(&case).await;
    // Further runs.
    case.fill("c", dated(0..3, days(-3))).await;
    until_swept(&case).await;
    assert_eq!(status(&format!("http://{address}/healthz")).await, "200");
    let mut text = String::new();
    let mut buffer = vec![0; PIPE];
    // Until the next run logs again.
    while text.split_once("were dropped").is_none_or(|(_, rest)| rest.lines().count() < 3) {
        let read = reader.read(&mut buffer).unwrap();
        text.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
        assert!(read > 0, "the log ends without a word about lost lines");
    }
    signal(&child, "TERM");
    let ran = tokio::task::spawn_blocking(move || (reader.read_to_string(&mut text).map(|_| text), child));
    let (text, child) = ran.await.unwrap();
    assert_eq!(end_in_time(child).await.code, Some(143));
    let lines = text.unwrap();
    let lines: Vec<Value> =
        lines.lines().filter(|line| !line.is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect();
    let lost = lines.iter().filter_map(|line| line["droppedLines"].as_u64()).collect::<Vec<_>>();
    assert!(lost.len() == 1 && lost[0] > 0, "{lost:?}");
    let at = lines.iter().position(|line| line["droppedLines"].is_u64()).unwrap();
    assert_eq!(lines[at]["level"], "ERROR");
    assert!(lines.len() > at + 1, "the log goes on");
}

#[tokio::test]
async fn a_process_whose_runs_are_held_up_is_not_alive_until_they_move_again() {
    let case = Case::new().await;
    case.fill("c", dated(0..3, days(-3))).await;
    let (mut reader, writer) = full_pipe();
    let address = free_address();
    let mut command =
        case.command(RULE, &["sweep", "-q", "--format", "json", "-o", "/dev/stdout", "--every", "1s", "--listen", &address]);
    command.env("SWEEPER_TEST_STALL_SECONDS", "3");
    let child = command.stdout(writer).stderr(Stdio::piped()).spawn().unwrap();
    // It holds the end to write to as well.
    drop(command);
    let url = format!("http://{address}/healthz");
    until_status(&url, "503").await;
    assert_eq!(case.ids("c").await, id_set::<i32>([]));
    let drained = tokio::task::spawn_blocking(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        text
    });
    until_status(&url, "200").await;
    signal(&child, "TERM");
    assert_eq!(end_in_time(child).await.code, Some(143));
    assert!(drained.await.unwrap().contains("\"deletedCount\": 3"));
}
