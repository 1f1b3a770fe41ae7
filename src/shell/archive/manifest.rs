//! Records of an archive: the journal, with one line for each step, and the manifest, written at the end of the run. Both have
//! checksums of their own.

use serde::{Deserialize, Serialize};

use crate::core::policy::Compression;
use crate::core::policy::namespace::Namespace;

/// Version of the format. A program reads only its own.
pub const FORMAT: u32 = 2;

/// One line of the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Line {
    /// First line of a journal.
    Run { format: u32, run_id: String, started_at: String },
    /// A file was begun.
    File(FileRecord),
    /// A segment is on the disk.
    Segment(Segment),
}

/// A file with the documents of one collection.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileRecord {
    /// Path relative to the directory of the run, like `metadata`.
    pub file: String,
    pub metadata: String,
    /// Checksum of the metadata file.
    pub metadata_sha256: String,
    pub database: String,
    pub collection: String,
    /// `zstd` or `gzip`.
    pub compression: String,
    /// Whether its documents are children of the documents of another file, before which they are restored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub of_children: bool,
}

impl FileRecord {
    pub fn namespace(&self) -> Namespace {
        Namespace { database: self.database.clone(), collection: self.collection.clone() }
    }

    /// Returns the compression; `None` if this version does not know it.
    pub fn compression(&self) -> Option<Compression> {
        [Compression::Zstd, Compression::Gzip].into_iter().find(|compression| compression.name() == self.compression)
    }
}

/// A part of a file that can be decompressed on its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Segment {
    pub file: String,
    /// The rule that deletes its documents.
    pub rule: String,
    /// Bytes of the file before the segment.
    pub offset: u64,
    /// Compressed bytes of the segment.
    pub length: u64,
    pub documents: u64,
    /// Bytes of the documents before compression.
    pub bytes: u64,
    /// Checksum of the compressed bytes.
    pub sha256: String,
}

/// Totals of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    pub format: u32,
    pub run_id: String,
    pub started_at: String,
    /// False if a file has bytes after its last segment, or was begun and has none, or if the journal may not be whole.
    pub complete: bool,
    pub files: Vec<FileTotals>,
    pub rules: Vec<RuleTotals>,
}

/// Totals of one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileTotals {
    #[serde(flatten)]
    pub record: FileRecord,
    pub segments: u64,
    pub documents: u64,
    /// Bytes of the documents before compression.
    pub bytes: u64,
    pub compressed_bytes: u64,
    /// Checksum of the compressed bytes.
    pub sha256: String,
}

/// Totals of one rule in one namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleTotals {
    pub rule: String,
    pub namespace: String,
    /// At least `deleted_count`: a document that changes after it was archived is not deleted.
    pub archived_count: u64,
    pub deleted_count: u64,
    /// Whether a reply was lost, so that `deletedCount` is a lower bound.
    pub uncertain: bool,
}
