//! The names of the files in an archive, which are the names that mongodump gives, so that mongorestore can read an archive.

use std::path::Path;

use bson::DateTime;

use crate::base::text::sha256;
use crate::core::policy::Compression;
use crate::core::policy::namespace::Namespace;

/// Maximum length of an escaped name: leaves room for `.metadata.json.gz` in a file name of 255 bytes.
const MAX_NAME_BYTES: usize = 238;

/// Characters kept of a longer name; `%24` and [`DIGEST`] characters follow.
const CUT: usize = 208;
/// Characters kept of the digest of the full name.
const DIGEST: usize = 27;

/// Returns the name of the directory of a run. Names sort in the order in which the runs started.
pub(super) fn run_name(started_at: DateTime, run_id: &str) -> String {
    let at = chrono::DateTime::<chrono::Utc>::from_timestamp_millis(started_at.timestamp_millis()).unwrap_or_default();
    let short: String = run_id.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
    format!("{}-{short}", at.format("%Y%m%dT%H%M%SZ"))
}

/// Returns the paths of a collection's documents and metadata, relative to the directory of the run.
pub(super) fn collection_files(namespace: &Namespace, compression: Compression) -> (String, String) {
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
/// Source: mongo-tools `mongodump/prepare.go`, `outputPath`: the query escape of Go, cut if it is too long. The tool
/// mongorestore recognises a name that was cut only by its length, and takes the full name from the metadata.
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

/// Whether a directory has the name of a run.
pub(super) fn is_run_name(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let shape = |byte: u8| if byte.is_ascii_digit() { b'0' } else { byte };
    let (at, id) = name.split_once('-').unwrap_or_default();
    at.bytes().map(shape).eq(*b"00000000T000000Z") && !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Ends of the names of files with metadata.
pub(super) const METADATA: [&str; 2] = [".metadata.json", ".metadata.json.gz"];

/// Returns the name of a file with documents without its end, and the compression that the end stands for.
pub(super) fn stem(name: &str) -> Option<(&str, Compression)> {
    let zstd = name.strip_suffix(".bson.zst").map(|stem| (stem, Compression::Zstd));
    zstd.or_else(|| Some((name.strip_suffix(".bson.gz")?, Compression::Gzip)))
}

/// Returns the name of the collection whose files have this stem; `None` if its name was cut, or if it is no stem.
pub(super) fn collection_of(stem: &str) -> Option<String> {
    let collection = (stem.len() < MAX_NAME_BYTES).then(|| unescape(stem))??;
    is_stem_of(stem, &collection).then_some(collection)
}

/// Whether the files of a collection have this stem.
pub(super) fn is_stem_of(stem: &str, collection: &str) -> bool {
    escape(collection) == stem
}

/// Returns the name of a collection from a name that [`escape`] has not cut.
fn unescape(escaped: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = escaped.as_bytes();
    while let [first, after @ ..] = rest {
        let byte;
        (rest, byte) = match first {
            b'+' => (after, b' '),
            b'%' => {
                let (digits, after) = after.split_at_checked(2)?;
                (after, u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?)
            }
            other => (after, *other),
        };
        bytes.push(byte);
    }
    String::from_utf8(bytes).ok()
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
            assert_eq!(collection_of(escaped).as_deref(), (escaped.len() < 238).then_some(collection));
        }
        let long = [escape(&"é".repeat(100)), escape(&format!("{}x", "é".repeat(99)))];
        assert!(long.iter().all(|name| name.len() == 238 && name.contains("%24")) && long[0] != long[1]);
    }

    #[test]
    fn runs_are_named_by_their_beginning() {
        let name = run_name(DateTime::from_millis(1_769_824_800_123), "1a2b3c4d-0000-4000-8000-000000000000");
        assert_eq!(name, "20260131T020000Z-1a2b3c4d");
    }

    #[test]
    fn names_that_no_run_writes_are_told_apart() {
        for name in ["20260131T020000Z-1a2b3c4d", "/a/20260131T020000Z-x"] {
            assert!(is_run_name(Path::new(name)), "{name}");
        }
        for name in
            ["", "20260131T020000Z-", "20260131T020000Z", "2026-01-31T02", "20260131T020000Z-1a/c", "20260131T020000Z-a.b"]
        {
            assert!(!is_run_name(Path::new(name)), "{name}");
        }
        for stem in ["a%2", "a%zz", "a%2fb", "%FF", "a b", "é", "a%41"] {
            assert_eq!(collection_of(stem), None, "{stem}");
        }
    }
}
