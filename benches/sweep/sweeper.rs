//! Runs the real sweeper and measures its process.

use std::process::{Command, Stdio};

use ttl_sweeper::base::exit;

use crate::deletion::{Deletion, Usage};
use crate::process;
use crate::server::{NOW, Server};

/// Runs `sweeper sweep` with one rule, given as keys of a YAML flow mapping.
///
/// Panics if the exit code is not 0.
pub(crate) async fn sweep(server: &Server, rule: &str, options: &[&str]) -> Deletion {
    run(server, rule, options, &[exit::DONE]).await
}

/// Runs `sweeper sweep` with one rule, which may be refused or cut short.
///
/// Panics at any other exit code than those.
pub(crate) async fn sweep_in_part(server: &Server, rule: &str, options: &[&str]) -> Deletion {
    run(server, rule, options, &[exit::DONE, exit::LIMIT, exit::REFUSED]).await
}

async fn run(server: &Server, rule: &str, options: &[&str], codes: &[u8]) -> Deletion {
    let path = server.file("bench.yaml");
    let journal = "journal: {collection: ops.journal}";
    std::fs::write(&path, format!("version: 1\n{journal}\ncollections: [{{{rule}}}]\n")).expect("a policy");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sweeper"));
    command.args(["sweep", "--as-of", NOW, "--format", "json", "--uri", server.uri(), "--policy"]).arg(path);
    command.args(options).stdin(Stdio::null());
    let before = server.cpu();
    let ended = tokio::task::spawn_blocking(|| process::run(command)).await.expect("sweeper ends");
    let usage = Usage { peak: ended.peak, client_cpu: ended.cpu, server_cpu: server.cpu().saturating_sub(before) };
    let output = ended.output;
    let expected = output.status.code().is_some_and(|code| codes.iter().any(|allowed| i32::from(*allowed) == code));
    assert!(expected, "{}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    let report = serde_json::from_slice(&output.stdout).expect("a report in JSON");
    let log = String::from_utf8_lossy(&output.stderr).lines().map(str::to_owned).collect();
    Deletion { begun: ended.begun, ended: ended.ended, usage: Some(usage), report, log }
}
