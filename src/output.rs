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
    /// Finds the place and tries whether it can be written. `None` and `-` are standard output.
    ///
    /// Errors: the operating system's, where the directory or the file cannot be written.
    pub fn open(path: Option<&Path>) -> io::Result<Self> {
        let Some(path) = path.filter(|path| path.as_os_str() != "-") else {
            return Ok(Target::Stdout);
        };
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
        if path.as_os_str() != "-" && path.symlink_metadata().is_ok() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        Ok(match Self::open(Some(path))? {
            Target::Replace(path) => Target::Create(path),
            target => target,
        })
    }

    /// Writes the report. A reader of standard output that went away is no error.
    pub fn write(self, report: &str) -> io::Result<()> {
        match self {
            Target::Stdout => to_stdout(report),
            Target::Replace(path) => {
                filled(&path, report)?.persist(path)?;
                Ok(())
            }
            Target::Create(path) => {
                filled(&path, report)?.persist_noclobber(path)?;
                Ok(())
            }
            Target::Direct(mut file) => file.write_all(report.as_bytes()),
        }
    }
}

/// The file behind a symbolic link, which is what is replaced, also where it does not exist yet.
fn behind_link(path: &Path) -> io::Result<PathBuf> {
    if path.exists() {
        return path.canonicalize();
    }
    match path.read_link() {
        Ok(target) => Ok(path.parent().unwrap_or(Path::new("")).join(target)),
        Err(_) => Ok(path.to_owned()),
    }
}

/// A new file in the directory of another, with its permissions; where there is none, with those that any new file gets.
fn beside(path: &Path) -> io::Result<NamedTempFile> {
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    let existing = std::fs::metadata(path).map(|metadata| metadata.permissions());
    let file = builder.prefix(".sweeper-").permissions(Permissions::from_mode(0o666)).tempfile_in(directory)?;
    if let Ok(permissions) = existing {
        file.as_file().set_permissions(permissions)?;
    }
    Ok(file)
}

fn filled(path: &Path, text: &str) -> io::Result<NamedTempFile> {
    let mut temporary = beside(path)?;
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
