//! The connection string of a command: where it stands, and the password that it lacks.

use std::io::{IsTerminal, Read};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use super::password;
use crate::base::failure::Failure;
use crate::base::stop::Stop;
use crate::commands::cli::Common;
use crate::core::policy::Connection;
use crate::shell::server::connect::uri;

/// Maximum length of a file with a connection string; a longer file is another one.
const MAX_BYTES: u64 = 64 << 10;

/// The connection string of a command. A file is read each time that it is needed, so that a run of `--every` uses what is there
/// by then.
#[derive(Clone)]
pub(crate) struct Uri {
    place: UriSource,
    /// The password that a person has typed, for this run and the next ones.
    typed: Arc<OnceLock<String>>,
}

/// Place of a connection string.
#[derive(Clone)]
enum UriSource {
    Text(String),
    /// A file, and the option or key that names it.
    File(PathBuf, &'static str),
    /// The option, variable or key that is there and empty.
    Empty(&'static str),
    /// A policy that has none.
    Missing(String),
}

impl Uri {
    /// Returns the connection string that the command line or the environment gives.
    pub(crate) fn given(options: &Common) -> Option<Self> {
        if let Some(path) = &options.uri_file {
            return Some(Self::at(UriSource::File(path.clone(), "--uri-file")));
        }
        let uri = options.uri.as_ref()?;
        let of_environment = || std::env::var_os("MONGODB_URI").is_some_and(|uri| uri.is_empty());
        Some(Self::text(uri, if of_environment() { "MONGODB_URI" } else { "--uri" }))
    }

    /// Returns the connection string of a policy.
    pub(crate) fn of_policy(path: &str, connection: &Connection) -> Self {
        match (&connection.uri, &connection.uri_file) {
            (Some(uri), _) => Self::text(uri, "`connection.uri` of the policy"),
            (None, Some(path)) => Self::at(UriSource::File(path.clone(), "connection.uriFile")),
            (None, None) => Self::at(UriSource::Missing(path.to_owned())),
        }
    }

    fn text(uri: &str, name: &'static str) -> Self {
        Self::at(if uri.is_empty() { UriSource::Empty(name) } else { UriSource::Text(uri.to_owned()) })
    }

    fn at(place: UriSource) -> Self {
        Self { place, typed: Arc::default() }
    }

    /// Returns the connection string as it is written.
    ///
    /// Errors: no connection string was given; its file cannot be read; or its password is missing, and there is no terminal to
    /// ask at.
    pub(crate) fn require(&self) -> Result<String, Failure> {
        let uri = match &self.place {
            UriSource::Text(uri) => uri.clone(),
            UriSource::File(path, name) => read(path).map_err(|why| {
                Failure::usage(format!(
                    "reading the connection string of {name} from `{}`: {why}; nothing was contacted",
                    path.display()
                ))
            })?,
            UriSource::Empty(name) => {
                let failure =
                    Failure::usage(format!("connecting: {name} is empty; expected a connection string; nothing was contacted"));
                return Err(failure.hint("is the shell variable unset? the policy's connection string is used only if --uri and MONGODB_URI are left out"));
            }
            UriSource::Missing(policy) => {
                let failure =
                    Failure::usage(format!("connecting: policy `{policy}` has no `connection.uri`; nothing was contacted"));
                return Err(
                    failure.hint("pass --uri or --uri-file, set MONGODB_URI, or write `connection: {uri: ...}` into the policy")
                );
            }
        };
        if uri::lacks_password(&uri) && !std::io::stdin().is_terminal() {
            let shown = uri::redacted(&uri);
            let failure = Failure::usage(format!(
                "reading the connection string `{shown}`: it has a user without a password, and there is no terminal to ask on; nothing was contacted"
            ));
            return Err(failure.hint("write `user:password@`, and keep the string in a file for --uri-file or in MONGODB_URI"));
        }
        Ok(uri)
    }

    /// Returns the connection string with its password, which is asked for on a terminal if it is missing.
    ///
    /// Errors: as for [`Uri::require`], or no answer.
    pub(crate) async fn with_password(&self, stop: &Stop) -> Result<String, Failure> {
        let uri = self.require()?;
        if !uri::lacks_password(&uri) {
            return Ok(uri);
        }
        let typed = match self.typed.get() {
            Some(typed) => typed.clone(),
            None => password::ask(stop, &uri::redacted(&uri)).await?,
        };
        let _ = self.typed.set(typed.clone());
        Ok(uri::with_password(&uri, &typed))
    }
}

/// Reads the one line of a file.
fn read(path: &Path) -> Result<String, String> {
    let mut text = String::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(MAX_BYTES).read_to_string(&mut text));
    read.map_err(|cause| match cause.kind() {
        std::io::ErrorKind::InvalidData => "it is not UTF-8".to_owned(),
        _ => cause.to_string(),
    })?;
    let line = text.trim_start_matches('\u{feff}').trim();
    match line.lines().count() {
        0 => Err("it is empty; expected a connection string".into()),
        1 => Ok(line.to_owned()),
        lines => Err(format!("it has {lines} lines; expected a connection string and nothing else")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_back(bytes: &[u8]) -> Result<String, String> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), bytes).unwrap();
        read(file.path())
    }

    #[test]
    fn a_file_holds_one_line_with_or_without_its_end() {
        for text in ["mongodb://h", "mongodb://h\n", "\u{feff}mongodb://h\r\n", "\n  mongodb://h \n\n"] {
            assert_eq!(read_back(text.as_bytes()), Ok("mongodb://h".to_owned()), "{text:?}");
        }
        for (bytes, why) in [(&b"\n"[..], "empty"), (b"mongodb://h\nmongodb://i\n", "2 lines"), (b"\xff", "UTF-8")] {
            assert!(read_back(bytes).is_err_and(|found| found.contains(why)), "{why}");
        }
    }
}
