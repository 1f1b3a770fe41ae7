//! Writing of reports: to a file that is replaced as a whole, or to standard output.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fd::AsFd;
use rustix::fs::{OFlags, StatVfs, fcntl_getfl, fcntl_setfl, statvfs};
use rustix::io::Errno;
use rustix::termios::tcgetwinsize;
use tempfile::NamedTempFile;

use crate::base::terminal;
use crate::base::text::MAIL_WIDTH;

/// Minimum and maximum width of text on a terminal: a narrower one breaks its lines by itself, and longer lines are hard to
/// read.
const WIDTHS: (usize, usize) = (40, 200);

/// Minimum and maximum height of a terminal that is made use of, in lines.
const HEIGHTS: (usize, usize) = (20, 100);

/// Bytes that a disk must have room for before a run begins: more than most reports need.
const MOST_REPORTS: u64 = 64 << 10;

/// Time in which a process has to read a pipe that a report goes to.
const MAX_READER_WAIT: Duration = Duration::from_secs(5);

/// Returns the width of text for a stream: the width of its terminal, or the width of a mail.
pub(crate) fn terminal_width(stream: impl AsFd) -> usize {
    let columns = tcgetwinsize(stream).ok().map(|size| usize::from(size.ws_col)).filter(|columns| *columns > 0);
    columns.map_or(MAIL_WIDTH, |columns| columns.clamp(WIDTHS.0, WIDTHS.1))
}

/// Returns the height of a stream's terminal in lines, within what a person takes in at a glance.
pub(crate) fn terminal_height(stream: impl AsFd) -> usize {
    let rows = tcgetwinsize(stream).ok().map(|size| usize::from(size.ws_row)).filter(|rows| *rows > 0);
    rows.map_or(HEIGHTS.0, |rows| rows.clamp(HEIGHTS.0, HEIGHTS.1))
}

/// Users who may read a file that was not there before, as far as the umask lets them. An existing file keeps its permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readers {
    /// Owner and group: a report may hold `_id`s and keys of holds.
    Group,
    /// All users: a file without anything from a database.
    All,
}

impl Readers {
    fn permissions(self) -> Permissions {
        Permissions::from_mode(match self {
            Self::Group => 0o640,
            Self::All => 0o666,
        })
    }
}

/// A place to write to, found writable before anything is contacted.
pub(crate) enum OutputTarget {
    Stdout,
    /// A file that is replaced as a whole at the end.
    Replace(PathBuf, Readers),
    /// A file that must not exist yet.
    Create(PathBuf, Readers),
    /// A pipe or a device: written to directly.
    Direct(File),
}

impl OutputTarget {
    /// Opens a place and checks, without changing it, that it can be written. `-` is standard output.
    ///
    /// Errors: the operating system's, if the directory or the file cannot be written.
    pub(crate) fn open(path: &Path, readers: Readers) -> io::Result<Self> {
        if is_stdout(path) {
            return Ok(OutputTarget::Stdout);
        }
        if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(io::Error::other("it is the name of a directory; expected a file"));
        }
        let path = behind_link(path)?;
        if path.exists() && !path.is_file() {
            return Ok(OutputTarget::Direct(open_directly(&path)?));
        }
        if path.exists() {
            // Replacing needs write permission on the directory only, but a file that was made read-only is meant to stay.
            OpenOptions::new().write(true).open(&path)?;
        }
        drop(temporary(&path, readers)?);
        // A full disk takes an empty file.
        if is_full(&statvfs(directory(&path))?) {
            return Err(Errno::NOSPC.into());
        }
        Ok(OutputTarget::Replace(path, readers))
    }

    /// Opens a place as [`OutputTarget::open`] does, but for a file that must not exist yet.
    ///
    /// Errors: the operating system's; `AlreadyExists` for a file or a link, even for a link to nothing.
    pub(crate) fn create(path: &Path, readers: Readers) -> io::Result<Self> {
        if !is_stdout(path) && path.symlink_metadata().is_ok() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        Ok(match Self::open(path, readers)? {
            OutputTarget::Replace(path, readers) => OutputTarget::Create(path, readers),
            target => target,
        })
    }

    /// Writes the text. A closed reader of standard output is not an error.
    pub(crate) fn write(self, text: &str) -> io::Result<()> {
        match self {
            OutputTarget::Stdout => to_stdout(text),
            OutputTarget::Replace(path, readers) => replace(temporary(&path, readers)?, &path, text),
            OutputTarget::Create(path, readers) => {
                filled(temporary(&path, readers)?, text)?.persist_noclobber(path)?;
                Ok(())
            }
            OutputTarget::Direct(mut file) => file.write_all(text.as_bytes()),
        }
    }
}

/// Whether a file system has too little room for a report. Some file systems do not tell their size.
fn is_full(system: &StatVfs) -> bool {
    system.f_blocks > 0 && system.f_bavail.saturating_mul(system.f_frsize) < MOST_REPORTS
}

/// Opens a pipe or a device. A pipe without a reader is waited for, but not without end as the operating system would.
fn open_directly(path: &Path) -> io::Result<File> {
    let (begun, nonblocking) = (Instant::now(), i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default());
    loop {
        let opened = OpenOptions::new().write(true).custom_flags(nonblocking).open(path);
        match opened {
            Ok(file) => {
                fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
                return Ok(file);
            }
            Err(cause) if cause.raw_os_error() != Some(Errno::NXIO.raw_os_error()) => return Err(cause),
            Err(_) if begun.elapsed() >= MAX_READER_WAIT => {
                return Err(io::Error::other(format!(
                    "no process reads the pipe; expected one within {} s",
                    MAX_READER_WAIT.as_secs()
                )));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

/// Whether a path stands for standard output.
pub(crate) fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Writes a file that another user's process reads: replaces it as a whole, and makes a new one readable for all users.
pub(crate) fn replace_readable(path: &Path, text: &str) -> io::Result<()> {
    match OutputTarget::open(path, Readers::All)? {
        OutputTarget::Replace(path, readers) => {
            let temporary = temporary(&path, readers)?;
            if !path.exists() {
                // The umask of a service may deny it.
                temporary.as_file().set_permissions(Permissions::from_mode(0o644))?;
            }
            replace(temporary, &path, text)
        }
        target => target.write(text),
    }
}

/// Replaces a file as a whole. A file that can be written, but not replaced, is written in its place. Such is a file that is
/// mounted by itself, or a file of another user in a directory with the sticky bit.
fn replace(temporary: NamedTempFile, path: &Path, text: &str) -> io::Result<()> {
    let Err(cause) = filled(temporary, text)?.persist(path) else { return Ok(()) };
    overwrite(path, text).map_err(|_| cause.error)
}

fn overwrite(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.write_all(text.as_bytes())?;
    file.set_len(text.len() as u64)?;
    file.sync_all()
}

/// Returns the canonical path of a file, even if the file does not exist yet. Two paths with the same canonical path name one
/// file.
pub(crate) fn canonical(path: &Path) -> PathBuf {
    if let Ok(path) = path.canonicalize() {
        return path;
    }
    let path = behind_link(path).unwrap_or_else(|_| path.to_owned());
    let directory = directory(&path).canonicalize();
    match (directory, path.file_name()) {
        (Ok(directory), Some(name)) => directory.join(name),
        _ => path,
    }
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Returns the target of a symbolic link, even if the target does not exist yet. The target is replaced, not the link.
fn behind_link(path: &Path) -> io::Result<PathBuf> {
    if path.exists() {
        // A pipe behind `/dev/stdout` has no name of its own.
        return if path.is_file() { path.canonicalize() } else { Ok(path.to_owned()) };
    }
    match path.read_link() {
        Ok(target) => Ok(path.parent().unwrap_or(Path::new("")).join(target)),
        Err(_) => Ok(path.to_owned()),
    }
}

/// Creates a temporary file next to a file, with its permissions, or for these readers if it does not exist.
fn temporary(path: &Path, readers: Readers) -> io::Result<NamedTempFile> {
    let directory = directory(path);
    if !directory.is_dir() {
        return Err(io::Error::new(ErrorKind::NotFound, format!("there is no directory `{}`", directory.display())));
    }
    let mut builder = tempfile::Builder::new();
    let existing = std::fs::metadata(path).map(|metadata| metadata.permissions());
    let file = builder.prefix(".sweeper-").permissions(readers.permissions()).tempfile_in(directory);
    let file = file.map_err(|cause| without_path(&cause))?;
    if let Ok(permissions) = existing {
        file.as_file().set_permissions(permissions)?;
    }
    Ok(file)
}

/// Returns an error of the operating system without the path of the temporary file that `tempfile` adds to it.
pub(crate) fn without_path(cause: &io::Error) -> io::Error {
    let text = cause.to_string();
    io::Error::new(cause.kind(), text.split(" at path ").next().unwrap_or(&text))
}

fn filled(mut temporary: NamedTempFile, text: &str) -> io::Result<NamedTempFile> {
    temporary.write_all(text.as_bytes())?;
    temporary.as_file().sync_all()?;
    Ok(temporary)
}

/// Writes to standard output, after what was logged before: both may be one terminal. A closed reader is not an error.
pub(crate) fn to_stdout(text: &str) -> io::Result<()> {
    terminal::settle();
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(cause) if cause.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn write(path: &Path, text: &str) -> io::Result<()> {
        OutputTarget::open(path, Readers::Group)?.write(text)
    }

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_file_stays_as_it_is_until_it_is_replaced_as_a_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.json");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let reader = File::open(&path).unwrap();
        let target = OutputTarget::open(&path, Readers::Group).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "old");
        target.write("new").unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("new", 0o640));
        assert_eq!(io::read_to_string(reader).unwrap(), "old", "who had opened it goes on reading the old one");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file stays");
    }

    #[test]
    fn a_file_that_cannot_be_replaced_is_written_in_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.json");
        fs::write(&path, "an older and longer one").unwrap();
        let reader = File::open(&path).unwrap();
        let lost = temporary(&path, Readers::Group).unwrap();
        fs::remove_file(lost.path()).unwrap();
        replace(lost, &path, "new").unwrap();
        assert_eq!(io::read_to_string(reader).unwrap(), "new");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
        let nowhere = dir.path().join("absent");
        let lost = temporary(&nowhere, Readers::Group).unwrap();
        fs::remove_file(lost.path()).unwrap();
        assert!(replace(lost, &nowhere, "new").is_err() && !nowhere.exists());
    }

    #[test]
    fn a_link_stays_a_link() {
        let dir = tempfile::tempdir().unwrap();
        let (link, file) = (dir.path().join("link"), dir.path().join("file"));
        symlink("file", &link).unwrap();
        write(&link, "a").unwrap();
        write(&link, "b").unwrap();
        assert_eq!((fs::read_to_string(&file).unwrap().as_str(), link.is_symlink()), ("b", true));
        assert_eq!(canonical(&link), canonical(&file));
        fs::remove_file(&file).unwrap();
        assert_eq!(canonical(&link), canonical(&dir.path().join("./file")));
    }

    #[test]
    fn what_cannot_be_written_is_found_before() {
        let dir = tempfile::tempdir().unwrap();
        let kind = |path: &str| OutputTarget::open(&dir.path().join(path), Readers::Group).err().map(|cause| cause.kind());
        assert_eq!(kind("missing/report.json"), Some(ErrorKind::NotFound));
        assert_eq!(kind("report.json/"), Some(ErrorKind::Other));
        assert_eq!(kind("report.json"), None);
        // Nobody writes there, not even root.
        let said = OutputTarget::open(Path::new("/proc/report.json"), Readers::Group).err().map(|cause| cause.to_string());
        assert!(said.as_ref().is_some_and(|said| !said.contains(".sweeper-")), "{said:?}");
        assert!(!dir.path().join("report.json").exists());
    }

    #[test]
    fn what_must_not_exist_is_never_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("policy.yaml"), dir.path().join("link"));
        symlink("nowhere", &link).unwrap();
        let target = OutputTarget::create(&path, Readers::All).unwrap();
        fs::write(&path, "another's").unwrap();
        assert!(target.write("ours").is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "another's");
        for path in [&path, &link] {
            assert_eq!(OutputTarget::create(path, Readers::All).err().map(|cause| cause.kind()), Some(ErrorKind::AlreadyExists));
        }
    }

    #[test]
    fn a_new_file_for_others_can_be_read_by_them_and_an_old_one_keeps_its_permissions() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sweeper.prom");
        replace_readable(&path, "a").unwrap();
        assert_eq!(mode(&path), 0o644);
        fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        replace_readable(&path, "b").unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("b", 0o600));
    }

    #[test]
    fn a_new_report_is_not_for_all_users_and_an_old_one_keeps_its_permissions() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report.json");
        write(&path, "a").unwrap();
        assert_eq!(mode(&path) & 0o137, 0, "{:o}", mode(&path));
        fs::set_permissions(&path, Permissions::from_mode(0o664)).unwrap();
        write(&path, "b").unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("b", 0o664));
        let schema = dir.path().join("schema.json");
        OutputTarget::open(&schema, Readers::All).unwrap().write("{}").unwrap();
        assert_eq!(mode(&schema) & 0o111, 0, "{:o}", mode(&schema));
    }

    #[test]
    fn a_disk_without_room_is_full_and_one_that_tells_no_size_is_not() {
        let system = |f_blocks, f_bavail| StatVfs { f_blocks, f_bavail, f_frsize: 4096, ..statvfs("/").unwrap() };
        assert!(is_full(&system(1000, 0)) && is_full(&system(1000, 15)));
        assert!(!is_full(&system(1000, 16)) && !is_full(&system(0, 0)) && !is_full(&system(1000, u64::MAX)));
    }

    #[test]
    fn a_pipe_without_a_reader_is_not_waited_for_without_end_and_one_with_a_reader_gets_all() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pipe");
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        let unread = OutputTarget::open(&path, Readers::Group).err().unwrap();
        assert_eq!(unread.to_string(), "no process reads the pipe; expected one within 5 s");
        let pipe = path.clone();
        let reader = std::thread::spawn(move || fs::read(pipe));
        // More than a pipe holds: the writer waits for the reader.
        let text = "x".repeat(1 << 20);
        write(&path, &text).unwrap();
        assert_eq!(reader.join().unwrap().unwrap().len(), text.len());
    }

    #[test]
    fn devices_are_written_to_directly() {
        let null = Path::new("/dev/null");
        assert!(matches!(OutputTarget::open(null, Readers::Group), Ok(OutputTarget::Direct(_))));
        write(null, "a").unwrap();
        assert!(is_stdout(Path::new("-")) && !is_stdout(Path::new("./-")));
    }
}
