//! What an archive says of itself: a line of the journal for each step while it is written, the manifest when the run has ended.

use serde::{Deserialize, Serialize};

use crate::policy::Compression;
use crate::policy::namespace::Namespace;

/// Raised when older programs could not read what newer ones write.
pub const FORMAT: u32 = 1;

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Line {
    /// The first.
    Run { format: u32, run_id: String, started_at: String },
    /// A file was begun.
    File(FileRecord),
    /// A segment is on the disk.
    Segment(Segment),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileRecord {
    /// Relative to the directory of the run.
    pub file: String,
    pub metadata: String,
    pub database: String,
    pub collection: String,
    /// `zstd` or `gzip`.
    pub compression: String,
}

impl FileRecord {
    pub fn namespace(&self) -> Namespace {
        Namespace { database: self.database.clone(), collection: self.collection.clone() }
    }

    pub fn compression(&self) -> Option<Compression> {
        [Compression::Zstd, Compression::Gzip].into_iter().find(|compression| compression.name() == self.compression)
    }
}

/// A part of a file that is complete in itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Segment {
    pub file: String,
    /// The rule that deletes its documents.
    pub rule: String,
    /// Bytes of the file before it.
    pub offset: u64,
    /// Its own bytes, compressed.
    pub length: u64,
    pub documents: u64,
    /// Bytes of its documents.
    pub bytes: u64,
    /// Of the compressed bytes.
    pub sha256: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    pub format: u32,
    pub run_id: String,
    pub started_at: String,
    /// False where a file has bytes after its last segment.
    pub complete: bool,
    pub files: Vec<FileTotals>,
    pub rules: Vec<RuleTotals>,
}

/// What a whole file came to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileTotals {
    #[serde(flatten)]
    pub record: FileRecord,
    pub segments: u64,
    pub documents: u64,
    /// Bytes of the documents.
    pub bytes: u64,
    pub compressed_bytes: u64,
    /// Of the compressed bytes.
    pub sha256: String,
}

/// What one rule did in one namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleTotals {
    pub rule: String,
    pub namespace: String,
    /// At least as many as were deleted: a document that changed in between is in the archive and not deleted.
    pub archived_count: u64,
    pub deleted_count: u64,
    /// Whether a reply was lost: `deletedCount` is then a lower bound.
    pub uncertain: bool,
}
