//! Where the report goes: a file that is replaced as a whole, or standard output.

use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::NamedTempFile;

/// A place for the report, known to be writable before anything is contacted.
pub enum Target {
    Stdout,
    /// A new file beside the old one, which it replaces at the end.
    Replace {
        temporary: NamedTempFile,
        path: PathBuf,
    },
    /// A pipe or a device: written to as it is.
    Direct {
        file: File,
    },
}

impl Target {
    /// Opens the place. `None` and `-` are standard output.
    ///
    /// Errors: the operating system's, where the directory or the file cannot be written.
    pub fn open(path: Option<&Path>) -> io::Result<Self> {
        let Some(path) = path.filter(|path| path.as_os_str() != "-") else {
            return Ok(Target::Stdout);
        };
        // A symbolic link stays one: what it points to is replaced.
        let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        if path.exists() && !path.is_file() {
            let file = OpenOptions::new().write(true).open(&path)?;
            return Ok(Target::Direct { file });
        }
        if path.exists() {
            // Replacing asks for the directory's permission only; a file that was made read-only is meant to stay.
            OpenOptions::new().write(true).open(&path)?;
        }
        let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // The permissions that any new file gets: the umask is taken off.
        let temporary =
            tempfile::Builder::new().prefix(".sweeper-").permissions(Permissions::from_mode(0o666)).tempfile_in(directory)?;
        Ok(Target::Replace { temporary, path })
    }

    /// Writes the report. A reader of standard output that went away is no error.
    pub fn write(self, report: &str) -> io::Result<()> {
        match self {
            Target::Stdout => to_stdout(report),
            Target::Replace { mut temporary, path } => {
                temporary.write_all(report.as_bytes())?;
                temporary.as_file().sync_all()?;
                temporary.persist(path)?;
                Ok(())
            }
            Target::Direct { mut file } => file.write_all(report.as_bytes()),
        }
    }
}

pub fn to_stdout(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Err(cause) if cause.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result,
    }
}
