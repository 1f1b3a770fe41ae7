//! A real mongod for a test, the demo or a benchmark. Server tests are never skipped: without a mongod they fail and explain what
//! to do.

pub(crate) mod binary;
mod data;

use std::collections::BTreeSet;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use mongodb::Client;
use mongodb::bson::doc;
use tempfile::TempDir;

/// A mongod on a free loopback port with a temporary directory; dropping the value removes both.
pub(crate) struct Mongod {
    pub child: Child,
    pub port: u16,
    pub dir: TempDir,
    /// Options of its connection string, such as `tls=true`.
    pub options: String,
    /// Arguments in addition to the arguments of every server.
    pub extra: Vec<String>,
}

impl Mongod {
    /// Starts a standalone server that accepts fail points and whose TTL monitor is off.
    pub(crate) fn start(extra: &[&str]) -> Self {
        let mongod = Self::spawn(extra);
        let uri = mongod.uri();
        block_on(async move {
            let client = Client::with_uri_str(&uri).await.expect("a client");
            client.database("admin").run_command(doc! { "ping": 1 }).await.expect("mongod answers");
        });
        mongod
    }

    /// Starts a server without waiting for an answer, for servers that ask for a certificate or a user.
    pub(crate) fn spawn(extra: &[&str]) -> Self {
        let extra: Vec<String> = extra.iter().map(|arg| (*arg).to_owned()).collect();
        let mut failures = Vec::new();
        for _ in 0..5 {
            let dir = data::directory();
            let port = free_port();
            let child = launch(dir.path(), port, &extra);
            let mut mongod = Self { child, port, dir, options: String::new(), extra: extra.clone() };
            if mongod.listens() {
                return mongod;
            }
            failures.push(mongod.last_words());
        }
        panic!("mongod did not start in five tries:\n{}", failures.join("\n"));
    }

    /// Waits until the server listens; returns false if the process ends first, or five minutes pass: a busy machine is slow.
    pub(crate) fn listens(&mut self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(300) {
            // Another process, of a second run of the tests, may have taken the port and answer.
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() && self.log().contains("Waiting for connections") {
                return true;
            }
            if self.child.try_wait().expect("the child's state").is_some() {
                return false;
            }
            sleep(Duration::from_millis(50));
        }
        false
    }

    /// Returns the end of the log, with the arguments and the port of this server.
    pub(crate) fn last_words(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().rev().take(5).collect();
        format!("mongod {:?} on port {}, the latest first:\n{}", self.extra, self.port, lines.join("\n"))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    pub(crate) fn uri(&self) -> String {
        let options = if self.options.is_empty() { String::new() } else { format!("&{}", self.options) };
        format!("mongodb://127.0.0.1:{}/?directConnection=true{options}", self.port)
    }

    /// Makes a client of the test's own: it waits for a server that a busy machine keeps from answering, where `sweeper` gives
    /// up.
    pub(crate) async fn client(&self) -> Client {
        let patient = format!("{}&connectTimeoutMS=60000&serverSelectionTimeoutMS=60000", self.uri());
        Client::with_uri_str(patient).await.expect("a client")
    }

    /// Ends the server at once, as a crash would.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Mongod {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Returns a free port that this process has not returned before: another server may be about to listen on that one.
fn free_port() -> u16 {
    static GIVEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("the address of a listener").port();
        if given.insert(port) {
            return port;
        }
    }
}

/// Starts the process of a server.
pub(crate) fn launch(dir: &Path, port: u16, extra: &[String]) -> Child {
    let binary = binary::path();
    Command::new(&binary)
        .args(["--bind_ip", "127.0.0.1", "--port", &port.to_string(), "--dbpath"])
        .arg(dir)
        .args(["--nounixsocket", "--wiredTigerCacheSizeGB", "0.5", "--logappend", "--logpath"])
        .arg(dir.join("log"))
        // Else each server begins with 300 MB of journal files, which takes as long as the rest of its start.
        .args(["--wiredTigerEngineConfigString", "log=(file_max=20MB,prealloc=false)"])
        .args(["--setParameter", "enableTestCommands=1"])
        .args(["--setParameter", "diagnosticDataCollectionEnabled=false"])
        .args(["--setParameter", "ttlMonitorEnabled=false"])
        .args(extra)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|cause| panic!("starting {}: {cause}\n{}", binary.display(), binary::HELP))
}

/// Runs a future to completion on a new runtime, even from within another one.
pub(crate) fn block_on<F: Future<Output: Send> + Send>(future: F) -> F::Output {
    std::thread::scope(|scope| {
        let run = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future);
        scope.spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
