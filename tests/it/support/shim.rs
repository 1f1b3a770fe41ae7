//! Libraries that are loaded into one process, and play what its machine does wrong.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::sweeper::Case;

/// A library that shifts every reading of the time of day by `SHIFT` seconds.
const CLOCK: &str = r#"
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

/// A library in which names do not resolve for a moment while the file `DOWN` exists. Each name that was asked for then is a line
/// in that file.
const RESOLVER: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef int Resolve(const char *, const char *, const struct addrinfo *, struct addrinfo **);
int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    int down = open(getenv("DOWN"), O_WRONLY | O_APPEND);
    if (down < 0) return ((Resolve *) dlsym(RTLD_NEXT, "getaddrinfo"))(name, service, hints, found);
    int written = write(down, name, strlen(name)) + write(down, "\n", 1);
    close(down);
    return written > 0 ? EAI_AGAIN : EAI_FAIL;
}
"#;

/// A library that adds the path of each file and directory whose changes it brings to the disk to the file `SYNCED`.
const SYNCS: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>
int fsync(int file) {
    char link[64], path[4097];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    int result = (int) syscall(SYS_fsync, file);
    if (result == 0 && length > 0) {
        int synced = open(getenv("SYNCED"), O_WRONLY | O_APPEND | O_CREAT, 0600);
        path[length] = '\n';
        if (write(synced, path, length + 1) != length + 1) abort();
        close(synced);
    }
    return result;
}
"#;

pub(crate) struct Shim(PathBuf);

impl Shim {
    /// Builds the library of a wrong clock in the directory of a case.
    pub(crate) fn clock(case: &Case) -> Self {
        Self::new(case, CLOCK)
    }

    /// Builds the library of a resolver that fails in the directory of a case.
    pub(crate) fn resolver(case: &Case) -> Self {
        Self::new(case, RESOLVER)
    }

    /// Builds the library that records what is brought to the disk in the directory of a case.
    pub(crate) fn syncs(case: &Case) -> Self {
        Self::new(case, SYNCS)
    }

    fn new(case: &Case, source: &str) -> Self {
        let source = case.file("shim.c", source);
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

    /// Records what a command brings to the disk in a file.
    pub(crate) fn record_syncs(&self, command: &mut Command, synced: &Path) {
        command.env("LD_PRELOAD", &self.0).env("SYNCED", synced);
    }

    /// Lets no name resolve in a command while this file exists.
    pub(crate) fn resolve_unless(&self, command: &mut Command, down: &Path) {
        command.env("LD_PRELOAD", &self.0).env("DOWN", down);
    }
}
