//! The directory that a policy names for archives: the names of the files in it, and the state in which earlier runs left it.
//!
//! Files have the names that mongodump gives them, so that mongorestore can read an archive.

use std::io;
use std::path::{Path, PathBuf};

use bson::DateTime;

use super::disk::{Disk, ReadFile};
use super::manifest::Manifest;
use crate::policy::Compression;
use crate::policy::namespace::Namespace;
use crate::text::sha256;

/// Name of the journal in the directory of a run.
pub const JOURNAL: &str = "journal.jsonl";
/// Name of the manifest in the directory of a run.
pub const MANIFEST: &str = "manifest.json";
/// Name of the manifest while it is written.
pub const NEW_MANIFEST: &str = "manifest.json.new";

/// Maximum length of an escaped name: leaves room for `.metadata.json.gz` in a file name of 255 bytes.
const MAX_NAME_BYTES: usize = 238;

/// Characters kept of a longer name; `%24` and [`DIGEST`] characters follow.
const CUT: usize = 208;
/// Characters kept of the digest of the full name.
const DIGEST: usize = 27;

/// Returns the name of the directory of a run. Names sort in the order in which the runs started.
pub fn run_name(started_at: DateTime, run_id: &str) -> String {
    let at = chrono::DateTime::<chrono::Utc>::from_timestamp_millis(started_at.timestamp_millis()).unwrap_or_default();
    let short: String = run_id.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
    format!("{}-{short}", at.format("%Y%m%dT%H%M%SZ"))
}

/// Returns the paths of a collection's documents and metadata, relative to the directory of the run.
pub fn collection_files(namespace: &Namespace, compression: Compression) -> (String, String) {
    let Namespace { database, collection } = namespace;
    let stem = format!("{database}/{}", escape(collection));
    match compression {
        // `.metadata.json.zst` could be one byte too long for a file name.
        Compression::Zstd => (format!("{stem}.bson.zst"), format!("{stem}.metadata.json")),
        Compression::Gzip => (format!("{stem}.bson.gz"), format!("{stem}.metadata.json.gz")),
    }
}

/// Escapes the name of a collection for a file name.
///
/// Source: mongo-tools `mongodump/prepare.go`, `outputPath`: the query escape of Go, cut if it is too long. mongorestore recognises a name that
/// was cut only by its length, and takes the full name from the metadata.
fn escape(collection: &str) -> String {
    let mut escaped = String::new();
    for byte in collection.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => escaped.push(char::from(byte)),
            b' ' => escaped.push('+'),
            byte => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    if escaped.len() <= MAX_NAME_BYTES {
        return escaped;
    }
    format!("{}%24{}", &escaped[..CUT], &sha256(collection.as_bytes())[..DIGEST])
}

/// Returns the archives of runs that were cut off, oldest first. Archives that another process is writing are left out.
pub fn leftovers(disk: &dyn Disk, directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = disk.entries(directory) else { return Vec::new() };
    entries.into_iter().map(|entry| directory.join(entry.name)).filter(|path| was_cut_off(disk, path)).collect()
}

/// Whether a run has a journal but no manifest of a complete archive, and no process is writing to it.
fn was_cut_off(disk: &dyn Disk, run: &Path) -> bool {
    let Ok(journal) = disk.open(&run.join(JOURNAL)) else { return false };
    !journal.is_locked() && !matches!(manifest(disk, run), Ok(Some(Manifest { complete: true, .. })))
}

/// Reads the manifest of a run; `None` if it has none.
///
/// Errors: the manifest cannot be read.
pub fn manifest(disk: &dyn Disk, run: &Path) -> io::Result<Option<Manifest>> {
    match disk.open(&run.join(MANIFEST)) {
        Ok(file) => Ok(Some(serde_json::from_slice(&whole(file.as_ref())?)?)),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(cause),
    }
}

/// Reads a whole file.
pub(super) fn whole(file: &dyn ReadFile) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(file.length()?).map_err(io::Error::other)?];
    file.read_at(&mut bytes, 0)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_mongodump() {
        for (collection, escaped) in [
            ("a.b-c_d~1", "a.b-c_d~1"),
            ("a b/c\\d", "a+b%2Fc%5Cd"),
            ("../../etc", "..%2F..%2Fetc"),
            ("100%é\n+*", "100%25%C3%A9%0A%2B%2A"),
            (&"x".repeat(238), &"x".repeat(238)),
        ] {
            assert_eq!(escape(collection), escaped);
        }
        let long = [escape(&"é".repeat(100)), escape(&format!("{}x", "é".repeat(99)))];
        assert!(long.iter().all(|name| name.len() == 238 && name.contains("%24")) && long[0] != long[1]);
    }

    #[test]
    fn runs_are_named_by_their_beginning() {
        let name = run_name(DateTime::from_millis(1_769_824_800_123), "1a2b3c4d-0000-4000-8000-000000000000");
        assert_eq!(name, "20260131T020000Z-1a2b3c4d");
    }
}
