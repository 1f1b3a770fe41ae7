//! The units of systemd that are shipped: their commands, what they are allowed, and which exit codes are no failure.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::commands::{accepted, words};
use super::pages::root;

/// Exposure above which a unit is too open, in tenths: 0 is closed, and 100 is what a unit without any restriction has.
const MAX_EXPOSURE: u32 = 25;

const SERVICES: [&str; 2] = ["sweeper.service", "sweeperd.service"];

/// A unit, as pairs of a setting and its value.
struct Unit {
    name: &'static str,
    text: String,
}

impl Unit {
    fn read(name: &'static str) -> Self {
        let path = root().join("packaging/systemd").join(name);
        Self { name, text: std::fs::read_to_string(path).expect("a unit") }
    }

    /// Returns the values of a setting, in their order.
    fn all(&self, key: &str) -> Vec<&str> {
        let settings = self.text.lines().filter_map(|line| line.split_once('='));
        settings.filter(|(name, _)| *name == key).map(|(_, value)| value).collect()
    }

    fn one(&self, key: &str) -> &str {
        let values = self.all(key);
        assert_eq!(values.len(), 1, "{}: {key}: {values:?}", self.name);
        values[0]
    }

    /// Returns the arguments of the command of a service.
    fn arguments(&self) -> Vec<String> {
        words(self.one("ExecStart").strip_prefix("/usr/bin/sweeper ").expect("the path of the Debian package"))
    }

    /// Returns the value of an option of that command.
    fn option(&self, name: &str) -> String {
        let arguments = self.arguments();
        let at = arguments.iter().position(|argument| argument == name).unwrap_or_else(|| panic!("{}: no {name}", self.name));
        arguments[at + 1].clone()
    }
}

#[test]
fn the_units_run_commands_that_sweeper_accepts_and_record_how_they_ended() {
    for service in SERVICES.map(Unit::read) {
        accepted(service.name, &service.arguments());
        assert_eq!(service.option("--uri-file"), "%d/uri", "no connection string on a command line");
        assert_eq!((service.one("StateDirectory"), service.one("RuntimeDirectory")), ("sweeper", "sweeper"));
        for option in ["-o", "--metrics-file"] {
            assert!(service.option(option).starts_with("%S/sweeper/"), "{}: {option}", service.name);
        }
        // A lock that a loss of power can damage is not to last longer than the machine runs. The end of one service must not
        // take it from the other.
        assert_eq!((service.option("--lock").as_str(), service.one("RuntimeDirectoryPreserve")), ("%t/sweeper/lock", "yes"));
    }
}

#[test]
fn a_limit_and_a_stop_are_no_failure_and_a_mistake_is_not_tried_again() {
    let [once, again] = SERVICES.map(Unit::read);
    let codes = |unit: &Unit| unit.one("SuccessExitStatus").split(' ').map(str::to_owned).collect::<BTreeSet<_>>();
    assert_eq!(codes(&once), ["143", "4"].map(str::to_owned).into());
    assert_eq!(codes(&again), ["143"].map(str::to_owned).into());
    // The service tells systemd when SIGHUP no longer ends it.
    assert_eq!(again.one("Type"), "notify");
    assert_eq!((again.one("Restart"), again.one("RestartPreventExitStatus")), ("on-failure", "2"));
}

#[test]
fn a_night_that_was_missed_is_made_up_for_and_no_change_of_the_clock_leaves_one_out() {
    let timer = Unit::read("sweeper.timer");
    assert_eq!(timer.one("Persistent"), "yes");
    assert!(timer.one("OnCalendar").ends_with(" UTC"));
    assert!(timer.one("RandomizedDelaySec").ends_with("min"));
}

#[test]
fn the_services_may_no_more_than_they_need() {
    for service in SERVICES.map(Unit::read) {
        for key in ["NoNewPrivileges", "PrivateTmp", "ProtectHome", "MemoryDenyWriteExecute", "RestrictNamespaces"] {
            assert_eq!(service.one(key), "yes", "{}: {key}", service.name);
        }
        assert_eq!((service.one("User"), service.one("ProtectSystem"), service.one("UMask")), ("sweeper", "strict", "0027"));
        assert_eq!((service.one("CapabilityBoundingSet"), service.all("AmbientCapabilities")), ("", vec![]));
        // Without netlink no name is found.
        assert_eq!(service.one("RestrictAddressFamilies"), "AF_INET AF_INET6 AF_NETLINK AF_UNIX");
    }
}

/// Writes the units with a program that is there in place of the program of the package, so that systemd does not look for the
/// latter.
fn written(dir: &Path) -> Vec<std::path::PathBuf> {
    let units = ["sweeper.service", "sweeper.timer", "sweeperd.service"].map(Unit::read);
    let write = |unit: &Unit| {
        let path = dir.join(unit.name);
        std::fs::write(&path, unit.text.replace("/usr/bin/sweeper", env!("CARGO_BIN_EXE_sweeper"))).expect("a unit");
        path
    };
    units.iter().map(write).collect()
}

#[test]
fn systemd_takes_the_units_and_finds_them_closed() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let files = written(dir.path());
    // Without systemd, only the checks of single settings above apply.
    let Ok(verified) = Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&files).output() else { return };
    let said = String::from_utf8_lossy(&verified.stderr);
    let about_units: Vec<&str> = said.lines().filter(|line| line.contains("sweeper")).collect();
    assert!(about_units.is_empty(), "{said}");

    for file in files.iter().filter(|file| file.extension().is_some_and(|extension| extension == "service")) {
        let judged = Command::new("systemd-analyze")
            .args(["security", "--offline=yes", "--no-pager", &format!("--threshold={MAX_EXPOSURE}")])
            .arg(file)
            .output()
            .expect("it was there just now");
        let table = String::from_utf8_lossy(&judged.stdout);
        assert!(judged.status.success(), "{table}{}", String::from_utf8_lossy(&judged.stderr));
        assert!(table.contains("Overall exposure level"), "{table}");
    }
}
