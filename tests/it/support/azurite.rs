//! Azurite, Microsoft's emulator of Azure Blob Storage, which the tests fetch from npm.

// The test harness holds back the output of a test until it fails, but a download must be announced.
#![allow(clippy::print_stderr)]

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use tempfile::TempDir;

use super::mongod::binary::target_dir;

/// The package that holds Azurite.
const PACKAGE: &str = "azurite@3.35.0";

const HELP: &str = "the tests of Azure Blob Storage need node and npm, and fetch the npm package azurite 3.35.0 into target/";

/// Account and key of every emulator (Microsoft, "Use the Azurite emulator", "Well-known storage account and key").
const ACCOUNT: &str = "devstoreaccount1";
const KEY: &str = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";

/// Name of the container.
pub(crate) const CONTAINER: &str = "container";

/// Creates a container, signed with the key (Microsoft, "Authorize with Shared Key").
const CREATE: &str = "const [url, account, key, container] = process.argv.slice(1);
    const [date, version] = [new Date().toUTCString(), '2021-12-02'];
    const text = 'PUT' + '\\n'.repeat(12) + `x-ms-date:${date}\\nx-ms-version:${version}\\n/${account}/${account}/${container}\\nrestype:container`;
    const sign = require('crypto').createHmac('sha256', Buffer.from(key, 'base64')).update(text).digest('base64');
    const headers = { 'x-ms-date': date, 'x-ms-version': version, Authorization: `SharedKey ${account}:${sign}` };
    fetch(`${url}/${account}/${container}?restype=container`, { method: 'PUT', headers }).then(async (answer) => {
        if (answer.status != 201) { console.error(answer.status, await answer.text()); process.exit(1); }
    });";

/// A running emulator with one container.
pub(crate) struct Azurite {
    port: u16,
    process: Child,
    _directory: TempDir,
}

impl Azurite {
    /// Starts an emulator that keeps its data in memory.
    pub(crate) fn start() -> Self {
        let script = package();
        let directory = tempfile::tempdir().expect("a temporary directory");
        let mut command = Command::new("node");
        command.arg(script).args(["--blobHost", "127.0.0.1", "--blobPort", "0"]);
        command.args(["--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--disableTelemetry"]);
        command.current_dir(directory.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn().unwrap_or_else(|cause| panic!("running node: {cause}\n{HELP}"));
        // It says which port it has found.
        let mut said = BufReader::new(process.stdout.take().expect("its output")).lines().map_while(Result::ok);
        let port = said.find_map(|line| line.split_once("successfully listens on http://127.0.0.1:")?.1.trim().parse().ok());
        let port = port.unwrap_or_else(|| panic!("Azurite does not listen\n{HELP}"));
        // The emulator would wait if its further output were not read. The thread ends with the emulator.
        std::thread::spawn(move || said.for_each(drop));
        let azurite = Self { port, process, _directory: directory };
        let created =
            Command::new("node").args(["-e", CREATE, &azurite.url(), ACCOUNT, KEY, CONTAINER]).output().expect("node starts");
        assert!(created.status.success(), "creating a container: {}", String::from_utf8_lossy(&created.stderr));
        azurite
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Adds the environment that leads to the emulator.
    pub(crate) fn reach(&self, command: &mut Command) {
        command.env("AZURE_STORAGE_USE_EMULATOR", "true");
        command.env("AZURITE_BLOB_STORAGE_URL", self.url());
    }
}

impl Drop for Azurite {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Returns the program of the package, which is fetched if it is not there yet.
fn package() -> PathBuf {
    let cache = target_dir().join(PACKAGE.replace('@', "-"));
    fs::create_dir_all(&cache).expect("target/ is writable");
    let script = cache.join("node_modules/azurite/dist/src/blob/main.js");
    // Test programs may run in parallel; only one of them downloads.
    let lock = File::create(cache.join("lock")).expect("target/ is writable");
    lock.lock().expect("a lock on a file");
    if !cache.join("whole").is_file() {
        eprintln!("fetching {PACKAGE} into {}", cache.display());
        let mut command = Command::new("npm");
        command.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--silent", "--prefix"]).arg(&cache).arg(PACKAGE);
        let output = command.output().unwrap_or_else(|cause| panic!("running npm: {cause}\n{HELP}"));
        assert!(output.status.success(), "npm: {}\n{HELP}", String::from_utf8_lossy(&output.stderr));
        File::create(cache.join("whole")).expect("target/ is writable");
    }
    script
}
