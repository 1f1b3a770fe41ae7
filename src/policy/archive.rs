//! `archive`: where documents are written before they are deleted.

use std::path::PathBuf;

use super::reader::{Entry, Mapping};

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

impl ArchiveTo {
    /// Reads the mapping; `None` where something in it is wrong, with the reasons among the context's problems.
    pub fn read<'a>(rule: &Mapping<'a>, entry: Entry<'a>) -> Option<Self> {
        let known = ["directory", "compression"];
        let map = Mapping::read(rule.context(), entry.node, entry.path, rule.rule(), "`archive`", &known)?;
        let directory = map.parsed("directory", |text| match text {
            "" => Err("an empty path; expected a directory that exists, such as `/backups/ttl`".into()),
            text if text.contains('\0') => Err("a path cannot hold NUL".into()),
            text => Ok(PathBuf::from(text)),
        });
        if !map.has("directory") {
            map.problem_here("`archive`: no `directory`; expected one such as `/backups/ttl`");
        }
        let compression = map.one_of("compression", &[("zstd", Compression::Zstd), ("gzip", Compression::Gzip)]);
        Some(Self { directory: directory?, compression: compression.unwrap_or_default() })
    }
}
