//! The directories in which the servers of the tests keep their data.

use std::fs;
use std::path::Path;
use std::process;
use std::sync::Once;

use tempfile::TempDir;

/// The file system in memory that Linux has.
const MEMORY: &str = "/dev/shm";
/// Bytes that have to be free there: the servers of a whole run of the tests use up to five gigabytes.
const ROOM: u64 = 8 << 30;
/// Beginning of the name of a directory; the process id of the test run follows.
const PREFIX: &str = "sweeper-mongod-";

/// Creates a directory for a server, which is removed when the value is dropped.
///
/// For a test it is in memory where that has room: no test waits for a disk then, or fails because the disk is slow. The demo and
/// the benchmark use the disk, as servers in production do.
pub(super) fn directory() -> TempDir {
    let mut builder = tempfile::Builder::new();
    let prefix = format!("{PREFIX}{}-", process::id());
    builder.prefix(&prefix);
    if cfg!(test) && room(MEMORY) >= ROOM {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| remove_left(Path::new(MEMORY)));
        return builder.tempdir_in(MEMORY).expect("a directory in memory");
    }
    builder.tempdir().expect("a temporary directory")
}

/// Returns the free bytes of the file system at a path; 0 if the path does not exist.
fn room(path: &str) -> u64 {
    rustix::fs::statvfs(path).map_or(0, |found| found.f_bavail * found.f_frsize)
}

/// Removes what runs of the tests left that were killed: it would keep memory until the machine restarts.
fn remove_left(directory: &Path) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(PREFIX)?.split('-').next()?.parse::<u32>().ok());
        if owner.is_some_and(|owner| !Path::new("/proc").join(owner.to_string()).exists()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}
