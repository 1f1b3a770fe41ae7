//! Runs `sweeper` against servers other than the shared one: with users, with TLS, or several.

use std::fmt::Write;
use std::path::PathBuf;
use std::process::Command;

use mongodb::Client;
use mongodb::bson::{Document, doc};
use tempfile::TempDir;

use super::mongod::{Mongod, block_on};
use super::pool::{Kept, Shared};
use super::sweeper::{Ran, Report, policy_file, run, sweeper};

/// A directory for policies, for tests with their own servers.
pub(crate) struct Site {
    pub dir: TempDir,
}

impl Site {
    pub(crate) fn new() -> Self {
        Self { dir: tempfile::tempdir().expect("a temporary directory") }
    }

    /// Writes a policy with this YAML under `collections` and `head` before it.
    pub(crate) fn policy(&self, head: &str, collections: &str) -> PathBuf {
        policy_file(self.dir.path(), &format!("version: 1\n{head}collections:\n{collections}"))
    }

    /// Returns `sweeper` with a connection string.
    pub(crate) fn command(&self, uri: &str, collections: &str, args: &[&str]) -> Command {
        let mut command = sweeper(args);
        command.arg("--policy").arg(self.policy("", collections)).args(["--uri", uri]);
        command
    }

    /// Runs `sweeper` with a connection string and waits for its end.
    pub(crate) async fn run(&self, uri: &str, collections: &str, args: &[&str]) -> Ran {
        run(self.command(uri, collections, args)).await
    }

    /// Runs `sweeper sweep` and reads its JSON report.
    pub(crate) async fn report(&self, uri: &str, collections: &str, args: &[&str]) -> Report {
        let ran = self.run(uri, collections, &[&["sweep", "--format", "json"], args].concat()).await;
        let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("no report: {cause}\n{ran:?}"));
        Report { json, ran }
    }
}

/// A server with access control and a user with all privileges.
pub(crate) struct Secured {
    pub mongod: Mongod,
}

const ROOT: &str = "root";
const ROOT_PASSWORD: &str = "root-password";

impl Secured {
    /// Starts a server with `--auth` and creates the first user, which the server allows from its own machine. `options` are the
    /// options of the connection string that such a server needs.
    pub(crate) fn start(extra: &[&str], options: &str) -> Self {
        let mut mongod = Mongod::spawn(&[&["--auth"], extra].concat());
        mongod.options = options.to_owned();
        let uri = mongod.uri();
        block_on(async move {
            let admin = Client::with_uri_str(uri).await.expect("a client").database("admin");
            let user = doc! { "createUser": ROOT, "pwd": ROOT_PASSWORD, "roles": ["root"] };
            admin.run_command(user).await.expect("the first user");
        });
        Self { mongod }
    }

    pub(crate) fn host(&self) -> String {
        format!("127.0.0.1:{}", self.mongod.port)
    }

    /// Returns a connection string for a user of the database `admin`; name and password are percent-encoded.
    pub(crate) fn uri(&self, user: &str, password: &str) -> String {
        let options = match self.mongod.options.as_str() {
            "" => String::new(),
            options => format!("&{options}"),
        };
        format!("mongodb://{}:{}@{}/?directConnection=true{options}", encoded(user), encoded(password), self.host())
    }

    pub(crate) async fn root(&self) -> Client {
        Client::with_uri_str(self.uri(ROOT, ROOT_PASSWORD)).await.expect("a client")
    }

    /// Runs a command in the database `admin` as the user with all privileges.
    pub(crate) async fn admin(&self, command: Document) {
        let done = self.root().await.database("admin").run_command(command).await;
        done.expect("a command as root");
    }
}

/// Returns the server with users of all tests that can share one.
pub(crate) fn secured() -> Kept<Secured> {
    static SECURED: Shared<Secured> = Shared::new();
    SECURED.get(|| Secured::start(&[], ""))
}

/// Percent-encodes all characters except letters and digits.
pub(crate) fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() {
            encoded.push(char::from(byte));
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}

/// Asserts that no output contains one of the secrets.
pub(crate) fn assert_silent_about(ran: &Ran, secrets: &[&str]) {
    for secret in secrets {
        assert!(!ran.stdout.contains(secret) && !ran.stderr.contains(secret), "{secret:?} was printed: {ran:?}");
    }
}
