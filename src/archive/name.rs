//! Names of files. They are those of mongodump, so that mongorestore can read an archive.

use bson::DateTime;

use crate::policy::Compression;
use crate::policy::namespace::Namespace;
use crate::text::sha256;

pub const JOURNAL: &str = "journal.jsonl";
pub const MANIFEST: &str = "manifest.json";

/// Length of an escaped name that leaves room for `.metadata.json.gz` in a file name of 255 bytes.
const MAX_LENGTH: usize = 238;

/// Characters that are kept of a longer name; `%24` and [`DIGEST`] characters follow.
const CUT: usize = 208;
const DIGEST: usize = 27;

/// Returns the name of the directory of a run. The order of the names is that of the starts.
pub fn of_run(started_at: DateTime, run_id: &str) -> String {
    let at = chrono::DateTime::<chrono::Utc>::from_timestamp_millis(started_at.timestamp_millis()).unwrap_or_default();
    let short: String = run_id.chars().filter(char::is_ascii_alphanumeric).take(8).collect();
    format!("{}-{short}", at.format("%Y%m%dT%H%M%SZ"))
}

/// Returns the paths of a collection's documents and metadata, relative to the directory of the run.
pub fn of_collection(namespace: &Namespace, compression: Compression) -> (String, String) {
    let Namespace { database, collection } = namespace;
    let stem = format!("{database}/{}", escape(collection));
    match compression {
        // The name of a compressed metadata file could become one byte too long.
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
    if escaped.len() <= MAX_LENGTH {
        return escaped;
    }
    format!("{}%24{}", &escaped[..CUT], &sha256(collection.as_bytes())[..DIGEST])
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
        let name = of_run(DateTime::from_millis(1_769_824_800_123), "1a2b3c4d-0000-4000-8000-000000000000");
        assert_eq!(name, "20260131T020000Z-1a2b3c4d");
    }
}
