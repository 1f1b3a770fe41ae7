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
    command.arg(format!("--root={}", root.display())).args([
        "--force-not-root",
        "--force-depends",
        "--force-bad-path",
        // The scripts of the package write there, and not into this machine.
        "--force-script-chrootless",
    ]);
    run(command.arg(format!("--log={}/log", root.display())).args(args));
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

fn read(path: PathBuf) -> String {
    std::fs::read_to_string(path).unwrap_or_default()
}

/// Builds the package, and prepares a directory into which `dpkg` installs it.
fn build(dir: &Path) -> (String, PathBuf) {
    let built = run(Command::new(Path::new(ROOT).join("packaging/deb.sh"))
        .arg(env!("CARGO_BIN_EXE_sweeper"))
        .arg(dir)
        .env("DPKG_DEB_COMPRESSOR_TYPE", "none"));
    let package = String::from_utf8(built.stdout).unwrap().trim().to_owned();
    let root = dir.join("root");
    for directory in ["var/lib/dpkg/updates", "var/lib/dpkg/info", "etc"] {
        std::fs::create_dir_all(root.join(directory)).unwrap();
    }
    for (file, text) in [("var/lib/dpkg/status", ""), ("etc/passwd", ""), ("etc/group", "")] {
        std::fs::write(root.join(file), text).unwrap();
    }
    (package, root)
}

/// Puts there what an administrator and the units do.
fn configure(root: &Path) {
    std::fs::write(root.join("etc/sweeper/uri"), "mongodb://user:secret@127.0.0.1\n").unwrap();
    std::fs::write(root.join("etc/sweeper/sweeper.yaml"), "version: 1\n").unwrap();
    std::fs::create_dir_all(root.join("var/lib/sweeper")).unwrap();
    std::fs::write(root.join("var/lib/sweeper/lock"), "").unwrap();
    let wants = root.join("etc/systemd/system/timers.target.wants");
    std::fs::create_dir_all(&wants).unwrap();
    std::os::unix::fs::symlink("/lib/systemd/system/sweeper.timer", wants.join("sweeper.timer")).unwrap();
}

#[test]
fn the_debian_package_installs_runs_and_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (package, root) = build(dir.path());
    dpkg(&root, &["-i", &package]);
    assert!(read(root.join("etc/passwd")).contains("\nsweeper:") || read(root.join("etc/passwd")).starts_with("sweeper:"));

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
        "usr/share/doc/ttl-sweeper/docs/unattended.md",
        "usr/share/doc/ttl-sweeper/packaging/prometheus/alerts.yaml",
        "usr/share/doc/ttl-sweeper/packaging/kubernetes/cronjob.yaml",
    ] {
        assert!(root.join(path).metadata().is_ok_and(|file| file.len() > 0), "{path}");
    }

    configure(&root);
    // An upgrade leaves all of it.
    dpkg(&root, &["-i", &package]);
    let link = root.join("etc/systemd/system/timers.target.wants/sweeper.timer");
    assert!(link.is_symlink() && root.join("etc/sweeper/uri").exists() && root.join("var/lib/sweeper/lock").exists());

    dpkg(&root, &["--remove", "ttl-sweeper"]);
    assert!(!link.is_symlink() || Command::new("systemctl").arg("--version").output().is_err(), "it stays enabled");
    assert!(root.join("etc/sweeper/uri").exists() && root.join("etc/sweeper/sweeper.yaml").exists());
    dpkg(&root, &["--purge", "ttl-sweeper"]);
    assert!(!root.join("etc/sweeper").exists() && !root.join("var/lib/sweeper").exists());
    assert!(!read(root.join("etc/passwd")).contains("sweeper"), "{}", read(root.join("etc/passwd")));
    let kept: Vec<PathBuf> =
        ["usr", "etc"].map(|part| root.join(part)).iter().filter(|part| part.exists()).flat_map(|part| files(part)).collect();
    let others: Vec<&PathBuf> = kept.iter().filter(|path| path.display().to_string().contains("sweeper")).collect();
    assert_eq!(others, Vec::<&PathBuf>::new());
}

#[test]
fn a_purge_leaves_archives_and_their_user() {
    let dir = tempfile::tempdir().unwrap();
    let (package, root) = build(dir.path());
    dpkg(&root, &["-i", &package]);
    configure(&root);
    let archive = root.join("var/lib/sweeper/archives/20260131T020000Z-1a2b3c4d");
    std::fs::create_dir_all(&archive).unwrap();
    std::fs::write(archive.join("journal.jsonl"), "{}\n").unwrap();
    dpkg(&root, &["--purge", "ttl-sweeper"]);
    assert!(archive.join("journal.jsonl").exists() && !root.join("etc/sweeper").exists());
    assert!(read(root.join("etc/passwd")).contains("sweeper:"));
}
