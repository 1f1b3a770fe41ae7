//! Where the report goes: a file that is replaced as a whole, or standard output.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// A place for the report, known to be writable before anything is contacted.
pub enum Target {
    Stdout,
    /// A file that is replaced as a whole at the end.
    Replace(PathBuf),
    /// A file that must not be there yet.
    Create(PathBuf),
    /// A pipe or a device: written to as it is.
    Direct(File),
}

impl Target {
    /// Finds the place and tries whether it can be written. `-` is standard output.
    ///
    /// Errors: the operating system's, where the directory or the file cannot be written.
    pub fn open(path: &Path) -> io::Result<Self> {
        if is_stdout(path) {
            return Ok(Target::Stdout);
        }
        if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
            return Err(io::Error::other("it is the name of a directory; expected a file"));
        }
        let path = behind_link(path)?;
        if path.exists() && !path.is_file() {
            return Ok(Target::Direct(OpenOptions::new().write(true).open(&path)?));
        }
        if path.exists() {
            // Replacing asks for the directory's permission only; a file that was made read-only is meant to stay.
            OpenOptions::new().write(true).open(&path)?;
        }
        drop(beside(&path)?);
        Ok(Target::Replace(path))
    }

    /// As [`Target::open`], for a file that is not there yet.
    ///
    /// Errors: the operating system's; `AlreadyExists` where there is one, or a link to one.
    pub fn create(path: &Path) -> io::Result<Self> {
        if !is_stdout(path) && path.symlink_metadata().is_ok() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        Ok(match Self::open(path)? {
            Target::Replace(path) => Target::Create(path),
            target => target,
        })
    }

    /// Writes the report. A reader of standard output that went away is no error.
    pub fn write(self, report: &str) -> io::Result<()> {
        match self {
            Target::Stdout => to_stdout(report),
            Target::Replace(path) => replace(beside(&path)?, &path, report),
            Target::Create(path) => {
                filled(beside(&path)?, report)?.persist_noclobber(path)?;
                Ok(())
            }
            Target::Direct(mut file) => file.write_all(report.as_bytes()),
        }
    }
}

pub fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Writes a file that another user's process reads: it is replaced as a whole, and a new one can be read by everybody.
pub fn replace_readable(path: &Path, text: &str) -> io::Result<()> {
    match Target::open(path)? {
        Target::Replace(path) => {
            let temporary = beside(&path)?;
            if !path.exists() {
                // Whatever the umask of a service says.
                temporary.as_file().set_permissions(Permissions::from_mode(0o644))?;
            }
            replace(temporary, &path, text)
        }
        target => target.write(text),
    }
}

fn replace(temporary: NamedTempFile, path: &Path, text: &str) -> io::Result<()> {
    filled(temporary, text)?.persist(path)?;
    Ok(())
}

/// One name for each file, also where it does not exist yet: two paths with one such name are one file.
pub fn resolved(path: &Path) -> PathBuf {
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

/// The file behind a symbolic link, which is what is replaced, also where it does not exist yet.
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

/// A new file in the directory of another, with its permissions; where there is none, with those that any new file gets.
fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let directory = directory(path);
    if !directory.is_dir() {
        return Err(io::Error::new(ErrorKind::NotFound, format!("there is no directory `{}`", directory.display())));
    }
    let mut builder = tempfile::Builder::new();
    let existing = std::fs::metadata(path).map(|metadata| metadata.permissions());
    let file = builder.prefix(".sweeper-").permissions(Permissions::from_mode(0o666)).tempfile_in(directory)?;
    if let Ok(permissions) = existing {
        file.as_file().set_permissions(permissions)?;
    }
    Ok(file)
}

fn filled(mut temporary: NamedTempFile, text: &str) -> io::Result<NamedTempFile> {
    temporary.write_all(text.as_bytes())?;
    temporary.as_file().sync_all()?;
    Ok(temporary)
}

pub fn to_stdout(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(cause) if cause.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}
