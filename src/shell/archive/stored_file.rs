//! The file of one namespace in an archive: verified as a whole, and then read segment by segment. All functions block.

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bson::RawDocumentBuf;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::directory::{self, MANIFEST, Metadata};
use super::disk::{Disk, ReadFile};
use super::frame::{self, Decoder, MAX_SEGMENT};
use super::manifest::{FileTotals, Segment};
use super::names;
use crate::base::text;
use crate::core::policy::Compression;
use crate::core::policy::namespace::Namespace;

/// Maximum number of bytes read at a time. A compressor adds little to what it cannot shrink.
const MAX_READ: u64 = MAX_SEGMENT as u64 + 1024 * 1024;

/// NULs at the end of a file that a loss of power has left. A whole segment of gzip ends with a few as well.
const MIN_NULS: usize = 8;

/// A file of an archive that is not verified yet.
pub struct StoredFile {
    pub namespace: Namespace,
    /// Whether its documents are children of the documents of another file.
    pub(super) of_children: bool,
    pub(super) disk: Arc<dyn Disk>,
    pub(super) path: PathBuf,
    pub(super) compression: Compression,
    /// The metadata file and its checksum, if the journal or the manifest knows them.
    pub(super) metadata: Option<(PathBuf, String)>,
    /// Segments that the journal lists.
    pub(super) journal: Vec<Segment>,
    /// Whether these must be all segments.
    pub(super) is_listed: bool,
    /// Totals from the manifest of a complete archive.
    pub(super) totals: Option<FileTotals>,
}

/// A file whose segments were all verified.
pub struct Verified {
    pub namespace: Namespace,
    /// Paths of the shard key with which the `_id` was unique only together; empty if the `_id` was unique.
    pub shard_key: Vec<String>,
    pub documents: u64,
    /// Documents of segments that the journal does not list.
    pub unlisted: u64,
    /// Bytes at the end that are missing or do not form a whole segment; 0 for a complete archive.
    pub cut: u64,
    /// Whether these bytes are not what a process leaves that was ended while it wrote, but may be a segment that was damaged
    /// later.
    pub is_damaged: bool,
    /// Documents that the journal lists but that are missing at the end of the file. They may have been deleted from the
    /// collection.
    pub missing: u64,
    pub segments: Vec<SegmentPlace>,
    disk: Arc<dyn Disk>,
    path: PathBuf,
    compression: Compression,
    /// The file while its segments are read again, opened once for all of them.
    opened: Mutex<Option<Opened>>,
}

/// A file that is open, and what decompresses it.
struct Opened {
    file: Box<dyn ReadFile>,
    decoder: Decoder,
}

/// Position and checksum of a segment.
#[derive(Debug)]
pub struct SegmentPlace {
    offset: u64,
    length: u64,
    sha256: [u8; 32],
}

/// The records of a file: its documents, and their size before and after compression.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recorded {
    /// The rules that deleted the documents.
    pub rules: BTreeSet<String>,
    pub documents: u64,
    pub bytes: u64,
    pub compressed_bytes: u64,
}

impl StoredFile {
    /// Returns what the records say of the file; `None` if it is in none.
    pub fn recorded(&self) -> Option<Recorded> {
        self.metadata.as_ref()?;
        let sum = |of: fn(&Segment) -> u64| self.journal.iter().map(of).fold(0, u64::saturating_add);
        let totals = self.totals.as_ref();
        Some(Recorded {
            rules: self.journal.iter().map(|segment| segment.rule.clone()).collect(),
            documents: totals.map_or_else(|| sum(|segment| segment.documents), |totals| totals.documents),
            bytes: totals.map_or_else(|| sum(|segment| segment.bytes), |totals| totals.bytes),
            compressed_bytes: totals.map_or_else(|| sum(|segment| segment.length), |totals| totals.compressed_bytes),
        })
    }

    /// Reads the whole file and compares it with the journal and the manifest.
    ///
    /// Errors: the file is damaged, or it is too short although its archive is complete.
    pub fn verify(self) -> Result<Verified, String> {
        let shard_key = self.verify_metadata()?.shard_key;
        let shown = self.path.display().to_string();
        let damaged = |why: &str| format!("`{shown}` is damaged: {why}");
        let mut opened = Opened::open(self.disk.as_ref(), &self.path, self.compression)?;
        let length = opened.file.length().map_err(|cause| format!("`{shown}`: {cause}"))?;
        let Self { namespace, disk, path, compression, journal, is_listed, totals, .. } = self;
        let mut whole = Sha256::new();
        let mut verified = Verified { shard_key, ..Verified::new(namespace, disk, path, compression) };
        let mut end = 0;
        for (index, segment) in journal.iter().enumerate() {
            if segment.offset != end || segment.length > MAX_READ {
                return Err(damaged("its segments do not follow each other"));
            }
            end += segment.length;
            if end > length {
                if totals.is_some() {
                    return Err(damaged(&format!("it has {length} bytes, and more were written")));
                }
                // The disk has lost the end of the file. Only whole segments can be read.
                let lost = &journal[index..];
                verified.cut = lost.iter().fold(0, |sum, segment| segment.length.saturating_add(sum));
                verified.missing = lost.iter().fold(0, |sum, segment| segment.documents.saturating_add(sum));
                return Ok(verified);
            }
            let (at, length) = (segment.offset, segment.length);
            let bytes =
                read(opened.file.as_ref(), at, length).map_err(|cause| damaged(&format!("the segment at {at}: {cause}")))?;
            let sha256 = Sha256::digest(&bytes);
            if hex::encode(sha256) != segment.sha256 {
                return Err(damaged(&format!("the segment at {at} has another checksum")));
            }
            let place = SegmentPlace { offset: at, length, sha256: sha256.into() };
            let content = opened.content(&bytes, at).map_err(|why| damaged(&why))?;
            let documents = frame::count(&content).map_err(|why| damaged(&format!("the segment at {at}: {why}")))?;
            if documents != segment.documents || content.len() as u64 != segment.bytes {
                return Err(damaged(&format!("the segment at {at} is not the one that was written")));
            }
            whole.update(&bytes);
            verified.documents += segment.documents;
            verified.segments.push(place);
        }
        if !is_listed {
            let documents = verified.documents;
            end = verified
                .take_rest(&mut opened, end, length, MAX_READ, &mut whole)
                .map_err(|cause| format!("`{shown}`: {cause}"))?;
            verified.unlisted = verified.documents - documents;
            verified.cut = length - end;
            verified.is_damaged =
                !verified.is_torn(opened.file.as_ref(), end, length).map_err(|cause| format!("`{shown}`: {cause}"))?;
        }
        let Some(totals) = totals else { return Ok(verified) };
        if length != totals.compressed_bytes || end != length {
            return Err(damaged(&format!("it has {length} bytes, and {} were written", totals.compressed_bytes)));
        }
        let is_same = verified.documents == totals.documents && verified.segments.len() as u64 == totals.segments;
        if !is_same || hex::encode(whole.finalize()) != totals.sha256 {
            return Err(damaged(&format!("it does not match `{MANIFEST}`")));
        }
        Ok(verified)
    }

    /// Reads the metadata, and compares it with the records. Of a file that is in none, it is read as it is.
    fn verify_metadata(&self) -> Result<Metadata, String> {
        let Some((path, sha256)) = &self.metadata else {
            let beside = |metadata: &Path| Some(self.path.parent()?.join(metadata.file_name()?));
            let path = beside(Path::new(&names::collection_files(&self.namespace, self.compression).1));
            let file = path.and_then(|path| self.disk.open(&path).ok());
            let bytes = file.and_then(|file| directory::whole(file.as_ref()).ok());
            return Ok(bytes.and_then(|bytes| Metadata::read(&bytes, self.compression)).unwrap_or_default());
        };
        let shown = path.display();
        let read = self.disk.open(path).and_then(|file| directory::whole(file.as_ref()));
        let bytes = read.map_err(|cause| format!("`{shown}`: {cause}"))?;
        match text::sha256(&bytes) == *sha256 {
            true => Ok(Metadata::read(&bytes, self.compression).unwrap_or_default()),
            false => Err(format!("`{shown}` is damaged: it has another checksum")),
        }
    }
}

impl Opened {
    /// Opens a file.
    ///
    /// Errors: it cannot be opened.
    fn open(disk: &dyn Disk, path: &Path, compression: Compression) -> Result<Self, String> {
        let file = disk.open(path).map_err(|cause| format!("`{}`: {cause}", path.display()))?;
        Ok(Self { file, decoder: Decoder::new(compression) })
    }

    /// Decompresses the bytes of the segment at an offset.
    ///
    /// Errors: they are not one segment.
    fn content(&mut self, bytes: &[u8], at: u64) -> Result<Vec<u8>, String> {
        match self.decoder.first(bytes) {
            Some((length, content)) if length == bytes.len() => Ok(content),
            _ => Err(format!("the segment at {at} cannot be decompressed")),
        }
    }

    /// Reads the documents of a segment.
    ///
    /// Errors: it is not the one that was verified.
    fn documents(&mut self, place: &SegmentPlace) -> Result<Vec<RawDocumentBuf>, String> {
        let at = place.offset;
        let bytes = read(self.file.as_ref(), at, place.length).map_err(|cause| format!("the segment at {at}: {cause}"))?;
        if <[u8; 32]>::from(Sha256::digest(&bytes)) != place.sha256 {
            return Err(format!("the segment at {at} has another checksum"));
        }
        let content = self.content(&bytes, at)?;
        frame::documents(&content).map_err(|why| format!("the segment at {at}: {why}"))
    }
}

impl Verified {
    /// Returns what the file has lost of documents that may have been deleted, in words; `None` if it has lost nothing of them.
    pub fn lost(&self) -> Option<String> {
        match (self.missing, self.is_damaged) {
            (0, false) => None,
            (0, true) => Some(format!(
                "the last {} bytes of the file are damaged: nothing of them was deleted if the run was ended while it wrote them",
                self.cut
            )),
            (missing, _) => {
                let documents = text::plural(missing, "document");
                Some(format!("{documents} that the journal knows are missing: the file was cut off"))
            }
        }
    }

    fn new(namespace: Namespace, disk: Arc<dyn Disk>, path: PathBuf, compression: Compression) -> Self {
        Self {
            namespace,
            shard_key: Vec::new(),
            documents: 0,
            unlisted: 0,
            cut: 0,
            is_damaged: false,
            missing: 0,
            segments: Vec::new(),
            disk,
            path,
            compression,
            opened: Mutex::new(None),
        }
    }

    /// Adds the whole segments after the last one in the journal, and returns their end. There may be many, because the journal
    /// is not synced with each segment and a loss of power loses its last lines. Bytes from `end` on are not read, because a run
    /// may be writing there.
    fn take_rest(&mut self, opened: &mut Opened, mut offset: u64, end: u64, at_once: u64, whole: &mut Sha256) -> io::Result<u64> {
        loop {
            let begin = offset;
            let bytes = read(opened.file.as_ref(), begin, at_once.min(end - begin))?;
            let mut bytes = bytes.as_slice();
            while let Some((length, content)) = opened.decoder.first(bytes) {
                let Ok(documents) = frame::count(&content) else { return Ok(offset) };
                let (segment, after) = bytes.split_at(length);
                let place = SegmentPlace { offset, length: length as u64, sha256: Sha256::digest(segment).into() };
                whole.update(segment);
                self.segments.push(place);
                self.documents += documents;
                offset += length as u64;
                bytes = after;
            }
            if offset == begin {
                return Ok(offset);
            }
        }
    }

    /// Tells whether the bytes of a file from `offset` on are what remains of a segment that was not written to its end.
    fn is_torn(&self, file: &dyn ReadFile, offset: u64, end: u64) -> io::Result<bool> {
        let bytes = read(file, offset, (end - offset).min(MAX_READ))?;
        let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let has_nuls = bytes.len() - written >= MIN_NULS;
        let is_begun = |bytes: &[u8]| bytes.is_empty() || frame::is_begun(bytes, self.compression);
        Ok(bytes.len() as u64 == end - offset && (is_begun(&bytes) || has_nuls && is_begun(&bytes[..written])))
    }

    /// Returns the documents of one segment, in the order in which they were written.
    ///
    /// Errors: the segment has changed since it was verified.
    pub fn read(&self, place: &SegmentPlace) -> Result<Vec<RawDocumentBuf>, String> {
        let mut opened = self.opened.lock();
        let opened = match &mut *opened {
            Some(opened) => opened,
            none => none.insert(Opened::open(self.disk.as_ref(), &self.path, self.compression)?),
        };
        opened.documents(place).map_err(|why| format!("`{}` is damaged: {why}", self.path.display()))
    }
}

fn read(file: &dyn ReadFile, offset: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    file.read_at(&mut bytes, offset)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests;
