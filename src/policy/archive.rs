//! `archive`: where documents are written before they are deleted.

use std::path::PathBuf;

/// Where and how a rule writes out what it deletes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveTo {
    /// Exists already; each run makes a directory of its own in it. A relative one is relative to the working directory.
    pub directory: PathBuf,
    pub compression: Compression,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    #[default]
    Zstd,
    /// What `mongorestore --gzip` reads.
    Gzip,
}

impl Compression {
    /// As the policy and the archive's own records write it.
    pub fn name(self) -> &'static str {
        match self {
            Compression::Zstd => "zstd",
            Compression::Gzip => "gzip",
        }
    }
}
