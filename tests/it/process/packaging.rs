//! The Debian package: built, installed into a directory of its own, run, and removed.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

fn run(command: &mut Command) -> Output {
    let ran =
        command.output().unwrap_or_else(|cause| panic!("{command:?}: {cause}; the test needs dpkg, of any Debian or Ubuntu"));
    assert!(ran.status.success(), "{command:?}: {}", String::from_utf8_lossy(&ran.stderr));
    ran
}

/// Runs `dpkg` on an installation of its own.
fn dpkg(root: &Path, args: &[&str]) {
    let mut command = Command::new("dpkg");
    command.arg(format!("--root={}", root.display())).args(["--force-not-root", "--force-depends", "--force-bad-path"]);
    run(command.arg(format!("--log={}/log", root.display())).args(args));
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[test]
fn the_debian_package_installs_runs_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let built = run(Command::new(Path::new(ROOT).join("packaging/deb.sh"))
        .arg(env!("CARGO_BIN_EXE_sweeper"))
        .arg(dir.path())
        .env("DPKG_DEB_COMPRESSOR_TYPE", "none"));
    let package = String::from_utf8(built.stdout).unwrap().trim().to_owned();
    let root = dir.path().join("root");
    for directory in ["var/lib/dpkg/updates", "var/lib/dpkg/info"] {
        std::fs::create_dir_all(root.join(directory)).unwrap();
    }
    std::fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
    dpkg(&root, &["-i", &package]);

    let binary = root.join("usr/bin/sweeper");
    let version = run(Command::new(&binary).arg("--version"));
    assert_eq!(String::from_utf8_lossy(&version.stdout).trim(), concat!("sweeper ", env!("CARGO_PKG_VERSION")));
    let example = root.join("usr/share/doc/ttl-sweeper/sweeper.example.yaml");
    run(Command::new(&binary).arg("check").arg("-p").arg(example).env("MONGODB_URI", "mongodb://127.0.0.1:1"));
    for path in [
        "usr/share/man/man1/sweeper.1.gz",
        "usr/share/man/man1/sweeper-sweep.1.gz",
        "usr/share/bash-completion/completions/sweeper",
        "usr/share/zsh/vendor-completions/_sweeper",
        "usr/share/fish/vendor_completions.d/sweeper.fish",
        "usr/lib/systemd/system/sweeper.service",
        "usr/lib/systemd/system/sweeper.timer",
        "usr/lib/systemd/system/sweeperd.service",
        "usr/lib/sysusers.d/sweeper.conf",
        "usr/share/doc/ttl-sweeper/copyright",
    ] {
        assert!(root.join(path).metadata().is_ok_and(|file| file.len() > 0), "{path}");
    }

    dpkg(&root, &["--purge", "ttl-sweeper"]);
    for kept in ["usr", "etc"].map(|part| root.join(part)).into_iter().filter(|part| part.exists()) {
        assert_eq!(files(&kept), Vec::<PathBuf>::new());
    }
}
