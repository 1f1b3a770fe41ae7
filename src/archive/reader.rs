//! Reads an archive after verifying all of it. All functions block.

use std::collections::BTreeMap;
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use bson::RawDocumentBuf;
use sha2::{Digest, Sha256};

use super::directory::{self, JOURNAL, MANIFEST};
use super::disk::{Disk, ReadFile};
use super::frame;
use super::manifest::{FORMAT, FileRecord, FileTotals, Line, Segment};
use crate::policy::Compression;
use crate::policy::namespace::{Namespace, why_never_swept};
use crate::text::{self, plural};

/// Maximum number of bytes read at a time; no segment is longer.
const MAX_READ: u64 = 64 * 1024 * 1024;

/// An archive as its journal and manifest describe it.
pub struct Stored {
    pub run_id: String,
    pub started_at: String,
    /// Whether the run that wrote the archive has ended.
    pub complete: bool,
    pub files: Vec<StoredFile>,
}

/// A file of an archive that is not verified yet.
pub struct StoredFile {
    pub namespace: Namespace,
    disk: Arc<dyn Disk>,
    path: PathBuf,
    compression: Compression,
    /// Segments that the journal lists.
    journal: Vec<Segment>,
    /// Totals from the manifest of a complete archive.
    totals: Option<FileTotals>,
}

/// A file whose segments were all verified.
pub struct Verified {
    pub namespace: Namespace,
    pub documents: u64,
    /// Bytes at the end that are missing or do not form a whole segment; 0 for a complete archive.
    pub cut: u64,
    /// Documents that the journal lists but that are missing at the end of the file. They may have been deleted from the
    /// collection.
    pub missing: u64,
    pub segments: Vec<SegmentPlace>,
    disk: Arc<dyn Disk>,
    path: PathBuf,
    compression: Compression,
}

/// Position and checksum of a segment.
#[derive(Debug)]
pub struct SegmentPlace {
    offset: u64,
    length: u64,
    sha256: String,
}

/// Reads the journal and the manifest of an archive.
///
/// Errors: the directory is not an archive, or the archive is damaged.
pub fn open(disk: Arc<dyn Disk>, path: &Path) -> Result<Stored, String> {
    let text = |file: Box<dyn ReadFile>| String::from_utf8(directory::whole(file.as_ref())?).map_err(io::Error::other);
    let journal = match disk.open(&path.join(JOURNAL)).and_then(text) {
        Ok(journal) => journal,
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Err(not_a_run(disk.as_ref(), path)),
        Err(cause) => return Err(format!("`{}`: {cause}", JOURNAL)),
    };
    let manifest = directory::manifest(disk.as_ref(), path).map_err(|cause| format!("`{}`: {cause}", MANIFEST))?;
    let manifest = manifest.filter(|manifest| manifest.complete);
    let complete = manifest.is_some();
    // Only the last line can be unfinished.
    let whole = journal.rfind('\n').map_or("", |end| &journal[..=end]);
    let mut lines = whole.lines().enumerate().map(|(index, line)| {
        serde_json::from_str::<Line>(line).map_err(|_| format!("`{}`: line {} is damaged", JOURNAL, index + 1))
    });
    let (run_id, started_at) = match lines.next().transpose()? {
        Some(Line::Run { format, run_id, started_at }) if format <= FORMAT => (run_id, started_at),
        Some(Line::Run { format, .. }) => return Err(format!("it has the format {format}; this version reads up to {FORMAT}")),
        _ => return Err(format!("`{}` does not begin like a journal", JOURNAL)),
    };
    let mut files: Vec<(FileRecord, Vec<Segment>)> = Vec::new();
    for line in lines {
        match line? {
            Line::File(record) => files.push((record, Vec::new())),
            Line::Segment(segment) => match files.iter_mut().find(|(record, _)| record.file == segment.file) {
                Some((_, segments)) => segments.push(segment),
                None => return Err(format!("`{}`: a segment of `{}`, which was not begun", JOURNAL, segment.file)),
            },
            Line::Run { .. } => return Err(format!("`{}` begins twice", JOURNAL)),
        }
    }
    let mut totals: BTreeMap<String, FileTotals> = manifest
        .map(|manifest| manifest.files.into_iter().map(|totals| (totals.record.file.clone(), totals)).collect())
        .unwrap_or_default();
    let files: Result<Vec<StoredFile>, String> = files
        .into_iter()
        .map(|(record, journal)| {
            let totals = totals.remove(&record.file);
            let inside = Path::new(&record.file).components().all(|part| matches!(part, Component::Normal(_)));
            // Collections that are never swept are never archived: a journal that names one was forged to write to the server's
            // own collections.
            let swept = why_never_swept(&record.database, &record.collection).is_none();
            match record.compression() {
                Some(compression) if inside && swept && (totals.is_some() || !complete) => {
                    let path = path.join(&record.file);
                    Ok(StoredFile { namespace: record.namespace(), disk: disk.clone(), path, compression, journal, totals })
                }
                _ => Err(format!("`{}`: the entry of `{}` is invalid", JOURNAL, record.file)),
            }
        })
        .collect();
    let mut files = files?;
    files.sort_by(|a, b| a.namespace.cmp(&b.namespace));
    match totals.keys().next() {
        Some(file) => Err(format!("`{}` does not have `{file}`, which `{}` has", JOURNAL, MANIFEST)),
        None => Ok(Stored { run_id, started_at, complete, files }),
    }
}

fn not_a_run(disk: &dyn Disk, path: &Path) -> String {
    let entries = disk.entries(path).unwrap_or_default().into_iter().map(|entry| path.join(entry.name));
    let runs: Vec<PathBuf> = entries.filter(|run| disk.open(&run.join(JOURNAL)).is_ok()).collect();
    match runs.last() {
        Some(last) => {
            let runs = plural(runs.len() as u64, "run");
            format!("it holds the archives of {runs}; expected the directory of one, such as `{}`", last.display())
        }
        None => format!("no `{}` in it; expected the directory of one run, as the report names it", JOURNAL),
    }
}

impl StoredFile {
    /// Reads the whole file and compares it with the journal and the manifest.
    ///
    /// Errors: the file is damaged, or it is too short although its archive is complete.
    pub fn verify(self) -> Result<Verified, String> {
        let shown = self.path.display().to_string();
        let damaged = |why: &str| format!("`{shown}` is damaged: {why}");
        let file = self.disk.open(&self.path).map_err(|cause| format!("`{shown}`: {cause}"))?;
        let length = file.length().map_err(|cause| format!("`{shown}`: {cause}"))?;
        let Self { namespace, disk, path, compression, journal, totals } = self;
        let mut whole = Sha256::new();
        let mut verified =
            Verified { namespace, documents: 0, cut: 0, missing: 0, segments: Vec::new(), disk, path, compression };
        let mut end = 0;
        for (index, segment) in journal.iter().enumerate() {
            if segment.offset != end {
                return Err(damaged("its segments do not follow each other"));
            }
            end += segment.length;
            if end > length {
                if totals.is_some() {
                    return Err(damaged(&format!("it has {length} bytes, and more were written")));
                }
                // The disk has lost the end of the file. Only whole segments can be read.
                verified.cut = journal.iter().map(|segment| segment.length).sum::<u64>() - segment.offset;
                verified.missing = journal[index..].iter().map(|segment| segment.documents).sum();
                return Ok(verified);
            }
            let place = SegmentPlace { offset: segment.offset, length: segment.length, sha256: segment.sha256.clone() };
            let (bytes, documents) = verified.read_bytes(file.as_ref(), &place).map_err(|why| damaged(&why))?;
            if documents.len() as u64 != segment.documents {
                return Err(damaged(&format!("the segment at {} has {} documents", segment.offset, documents.len())));
            }
            whole.update(&bytes);
            verified.documents += segment.documents;
            verified.segments.push(place);
        }
        let Some(totals) = totals else {
            verified.take_rest(file.as_ref(), end, length, MAX_READ).map_err(|cause| format!("`{shown}`: {cause}"))?;
            verified.cut = length - verified.segments.last().map_or(0, |place| place.offset + place.length);
            return Ok(verified);
        };
        if length != totals.compressed_bytes || end != length {
            return Err(damaged(&format!("it has {length} bytes, and {} were written", totals.compressed_bytes)));
        }
        if verified.documents != totals.documents || text::hex(&whole.finalize()) != totals.sha256 {
            return Err(damaged(&format!("it does not match `{}`", MANIFEST)));
        }
        Ok(verified)
    }
}

impl Verified {
    /// Adds the whole segments after the last one in the journal. There may be many, because the journal is not synced with each
    /// segment and a crash of the machine loses its last lines. Bytes from `end` on are not read, because a run may be writing
    /// there.
    fn take_rest(&mut self, file: &dyn ReadFile, mut offset: u64, end: u64, at_once: u64) -> io::Result<()> {
        loop {
            let begin = offset;
            let mut bytes = vec![0; usize::try_from(at_once.min(end - begin)).map_err(io::Error::other)?];
            file.read_at(&mut bytes, begin)?;
            let mut bytes = bytes.as_slice();
            while let Some((length, content)) = frame::first(bytes, self.compression) {
                let Ok(documents) = frame::documents(&content) else { return Ok(()) };
                let (segment, after) = bytes.split_at(length);
                let place = SegmentPlace { offset, length: length as u64, sha256: text::sha256(segment) };
                self.segments.push(place);
                self.documents += documents.len() as u64;
                offset += length as u64;
                bytes = after;
            }
            if offset == begin {
                return Ok(());
            }
        }
    }

    /// Returns the documents of one segment, in the order in which they were written.
    ///
    /// Errors: the segment has changed since it was verified.
    pub fn read(&self, place: &SegmentPlace) -> Result<Vec<RawDocumentBuf>, String> {
        let shown = self.path.display();
        let file = self.disk.open(&self.path).map_err(|cause| format!("`{shown}`: {cause}"))?;
        self.read_bytes(file.as_ref(), place)
            .map(|(_, documents)| documents)
            .map_err(|why| format!("`{shown}` is damaged: {why}"))
    }

    fn read_bytes(&self, file: &dyn ReadFile, place: &SegmentPlace) -> Result<(Vec<u8>, Vec<RawDocumentBuf>), String> {
        let at = place.offset;
        let length = usize::try_from(place.length).ok().filter(|_| place.length <= MAX_READ);
        let mut bytes = vec![0; length.ok_or_else(|| format!("the segment at {at} is too long"))?];
        file.read_at(&mut bytes, at).map_err(|cause| format!("the segment at {at}: {cause}"))?;
        if text::sha256(&bytes) != place.sha256 {
            return Err(format!("the segment at {at} has another checksum"));
        }
        let content = match frame::first(&bytes, self.compression) {
            Some((length, content)) if length == bytes.len() => content,
            _ => return Err(format!("the segment at {at} cannot be decompressed")),
        };
        let documents = frame::documents(&content).map_err(|why| format!("the segment at {at}: {why}"))?;
        Ok((bytes, documents))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;
    use crate::archive::disk::RealDisk;

    #[test]
    fn segments_that_the_journal_has_lost_are_all_found_up_to_the_end_that_was_seen() {
        for compression in [Compression::Zstd, Compression::Gzip] {
            let mut file = tempfile::NamedTempFile::new().unwrap();
            let mut ends = vec![0];
            for id in 0..50 {
                let document = RawDocumentBuf::try_from(&bson::doc! { "_id": id, "p": "x" }).unwrap();
                let segment = frame::compress(document.as_bytes(), compression).unwrap();
                file.write_all(&segment).unwrap();
                ends.push(ends[ends.len() - 1] + segment.len() as u64);
            }
            let mut verified = Verified {
                namespace: Namespace { database: "a".into(), collection: "c".into() },
                documents: 0,
                cut: 0,
                missing: 0,
                segments: Vec::new(),
                disk: Arc::new(RealDisk),
                path: file.path().to_owned(),
                compression,
            };
            verified.take_rest(RealDisk.open(file.path()).unwrap().as_ref(), ends[2], ends[49] + 3, 200).unwrap();
            assert_eq!(verified.documents, 47);
            assert_eq!(verified.segments.iter().map(|place| place.offset).collect::<Vec<_>>(), ends[2..49]);
        }
    }
}
