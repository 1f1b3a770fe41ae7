//! A wrong clock for one process.

use std::path::PathBuf;
use std::process::Command;

use super::sweeper::Case;

/// A library that shifts every reading of the time of day by `SHIFT` seconds.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int) syscall(SYS_clock_gettime, clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec += atol(getenv("SHIFT"));
    return result;
}
"#;

pub(crate) struct Shim(PathBuf);

impl Shim {
    /// Builds the library in the directory of a case.
    pub(crate) fn new(case: &Case) -> Self {
        let source = case.file("shim.c", SHIM);
        let shim = case.dir.path().join("shim.so");
        // Rust needs a C compiler for linking, so `cc` is installed.
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-o"]).arg(&shim).arg(&source);
        assert!(cc.status().expect("cc, which rustc needs as well").success());
        Self(shim)
    }

    /// Shifts the clock of a command by this many seconds.
    pub(crate) fn shift(&self, command: &mut Command, seconds: &str) {
        command.env("LD_PRELOAD", &self.0).env("SHIFT", seconds);
    }
}
