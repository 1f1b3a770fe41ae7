//! A lock of the operating system on a file. It ends with the process, even if the process is killed.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{Attempt, Holder, Occupant};

/// Maximum size of a holder's line, more than the longest host name needs.
const MAX_LINE_BYTES: u64 = 4096;

/// Maximum number of times in a row that the file may be deleted between being opened and being locked.
const MAX_DELETED: u32 = 100;

/// A lock that is held until the value is dropped.
///
/// The file is never deleted: a run that waits for the lock may have opened it, and would then lock a file that no other run
/// finds.
#[derive(Debug)]
pub(crate) struct FileLock {
    _file: File,
}

/// Takes the lock if it is free, and writes its new holder into the file.
///
/// Errors: the file cannot be created, read or written, or has other contents, which are never overwritten.
pub(crate) fn attempt(path: &Path, me: &Holder) -> io::Result<Attempt<FileLock>> {
    for _ in 0..MAX_DELETED {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is not a regular file"));
        }
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let holder = read(&mut file)?.flatten();
                return Ok(Attempt::Held(Occupant { holder, expires_at: None }));
            }
            Err(TryLockError::Error(cause)) => return Err(cause),
        }
        if !is_still_there(&file, path) {
            continue;
        }
        if read(&mut file)?.is_none() {
            let bytes = file.metadata()?.len();
            return Err(io::Error::other(format!(
                "it is no lock file but another one of {bytes} bytes, and no run holds it; expected a lock file, an empty file or none"
            )));
        }
        let mut line = serde_json::to_vec(me)?;
        line.push(b'\n');
        // The file is cut only after it was written, so that a reader never finds it empty.
        file.rewind()?;
        file.write_all(&line)?;
        file.set_len(line.len() as u64)?;
        return Ok(Attempt::Taken(FileLock { _file: file }));
    }
    Err(io::Error::other("other processes keep deleting it"))
}

/// Whether the path still names this file, which may have been deleted since it was opened.
fn is_still_there(file: &File, path: &Path) -> bool {
    let same = |(a, b): (std::fs::Metadata, std::fs::Metadata)| (a.dev(), a.ino()) == (b.dev(), b.ino());
    file.metadata().and_then(|opened| Ok((opened, path.metadata()?))).is_ok_and(same)
}

/// Beginning of a holder's line, by which one that a loss of power has cut off is told from another file.
const BEGINNING: &[u8] = b"{\"runId\":\"";

/// Returns the holder that the file names: `None` if it is not the file of a lock, `Some(None)` if it is empty or was damaged by
/// a loss of power.
fn read(file: &mut File) -> io::Result<Option<Option<Holder>>> {
    let mut bytes = Vec::new();
    file.rewind()?;
    Read::take(&mut *file, MAX_LINE_BYTES).read_to_end(&mut bytes)?;
    // A loss of power leaves zeros in place of what was not written yet.
    if bytes.iter().all(|byte| *byte == 0 || byte.is_ascii_whitespace()) {
        return Ok(Some(None));
    }
    // The end of a longer line, of an earlier holder, may not be cut off yet.
    let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
    match serde_json::from_slice(first) {
        Ok(holder) => Ok(Some(Some(holder))),
        Err(_) => Ok(first.starts_with(BEGINNING).then_some(None)),
    }
}

#[cfg(test)]
mod tests {
    use bson::DateTime;

    use super::*;

    fn me(run: &str) -> Holder {
        Holder::me(run, DateTime::from_millis(0))
    }

    #[test]
    fn the_second_is_told_who_was_first_and_gets_it_afterwards() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let Attempt::Taken(first) = attempt(&path, &me("a much longer run id")).unwrap() else { panic!("it is free") };
        match attempt(&path, &me("b")).unwrap() {
            Attempt::Held(occupant) => assert_eq!(occupant.holder, Some(me("a much longer run id"))),
            Attempt::Taken(_) => panic!("it is held"),
        }
        drop(first);
        let Attempt::Taken(_second) = attempt(&path, &me("b")).unwrap() else { panic!("it is free") };
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(serde_json::from_str::<Holder>(&text).unwrap(), me("b"));
        assert_eq!(text.lines().count(), 1);
    }

    #[test]
    fn a_deleted_file_is_no_lock_for_those_who_come_later() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let file = File::create(&path).unwrap();
        assert!(is_still_there(&file, &path));
        std::fs::remove_file(&path).unwrap();
        assert!(!is_still_there(&file, &path));
        let _other = File::create(&path).unwrap();
        assert!(!is_still_there(&file, &path));
    }

    #[test]
    fn a_lock_file_that_a_loss_of_power_has_damaged_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let line = serde_json::to_string(&me("an earlier run")).unwrap();
        for bytes in [vec![0; 200], vec![0, b'\n'], line.as_bytes()[..line.len() / 2].to_vec(), line.as_bytes()[..20].to_vec()] {
            std::fs::write(&path, &bytes).unwrap();
            assert!(matches!(attempt(&path, &me("b")).unwrap(), Attempt::Taken(_)), "{bytes:?}");
            assert_eq!(serde_json::from_slice::<Holder>(&std::fs::read(&path).unwrap()).unwrap(), me("b"));
        }
    }

    #[test]
    fn a_file_that_holds_something_else_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("policy.yaml");
        for text in ["version: 1\n".to_owned(), "{}\n".to_owned(), "x".repeat(5000)] {
            std::fs::write(&path, &text).unwrap();
            let refused = attempt(&path, &me("a")).unwrap_err();
            let bytes = text.len();
            let said = format!(
                "it is no lock file but another one of {bytes} bytes, and no run holds it; expected a lock file, an empty file or none"
            );
            assert_eq!(refused.to_string(), said);
            assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
        }
        assert!(attempt(dir.path(), &me("a")).is_err());
        assert!(attempt(Path::new("/dev/null"), &me("a")).unwrap_err().to_string().contains("regular"));
    }
}
