//! Writes an archive. Everything in here blocks.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bson::DateTime;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};
use tempfile::NamedTempFile;

use super::frame;
use super::manifest::{FORMAT, FileRecord, FileTotals, Line, Manifest, RuleTotals, Segment};
use super::name::{self, JOURNAL, MANIFEST};
use super::tracked::{Tracked, create_directory, sync_directory};
use crate::instant::rfc3339;
use crate::policy::namespace::Namespace;
use crate::policy::{ArchiveTo, Compression};
use crate::text;

/// What one run writes into one directory of the policy. Nothing is there before the first document is.
pub struct Archive {
    /// The directory of the run.
    path: PathBuf,
    run_id: String,
    started_at: DateTime,
    begun: Mutex<Option<Begun>>,
}

struct Begun {
    journal: Arc<Mutex<Journal>>,
    /// One file per namespace, whichever rules delete there: their order in it tells which state of a document is the later one.
    files: BTreeMap<Namespace, SharedFile>,
}

/// The file of one namespace. Whoever holds it reads documents and writes them, so that in the file they are in the order in which they
/// were read.
pub type SharedFile = Arc<tokio::sync::Mutex<ArchiveFile>>;

impl Archive {
    pub fn new(directory: &Path, run_id: &str, started_at: DateTime) -> Self {
        let path = directory.join(name::of_run(started_at, run_id));
        Self { path, run_id: run_id.to_owned(), started_at, begun: Mutex::new(None) }
    }

    /// The directory of the run.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file of a namespace, where it has been begun.
    pub fn file(&self, namespace: &Namespace) -> Option<SharedFile> {
        self.begun.lock().as_ref()?.files.get(namespace).cloned()
    }

    /// Begins the file of a namespace, where nobody has yet. `metadata` is what mongodump writes beside the documents.
    pub fn begin(&self, namespace: &Namespace, to: &ArchiveTo, metadata: &str) -> io::Result<SharedFile> {
        let mut begun = self.begun.lock();
        let begun = match &mut *begun {
            Some(begun) => begun,
            none => none.insert(Begun { journal: self.begin_journal()?, files: BTreeMap::new() }),
        };
        if let Some(file) = begun.files.get(namespace) {
            return Ok(file.clone());
        }
        let file = ArchiveFile::begin(&self.path, namespace, to.compression, metadata, begun.journal.clone())?;
        let file = Arc::new(tokio::sync::Mutex::new(file));
        begun.files.insert(namespace.clone(), file.clone());
        Ok(file)
    }

    fn begin_journal(&self) -> io::Result<Arc<Mutex<Journal>>> {
        create_directory(&self.path)?;
        let file = Tracked::create(self.path.join(JOURNAL))?;
        // Tells other runs that this one has not been cut off. One that looks just now is done at once.
        file.file.lock()?;
        let mut journal = Journal(file);
        journal.append(&Line::Run { format: FORMAT, run_id: self.run_id.clone(), started_at: rfc3339(self.started_at) })?;
        journal.0.file.sync_all()?;
        Ok(Arc::new(Mutex::new(journal)))
    }

    /// Writes the manifest, when all rules have ended; `None` where no document was archived.
    ///
    /// Errors: it could not be written. The archive can be read without it.
    pub fn end(&self, rules: Vec<RuleTotals>) -> io::Result<Option<()>> {
        let Some(begun) = self.begun.lock().take() else { return Ok(None) };
        let mut complete = true;
        let mut files = Vec::new();
        for file in begun.files.values() {
            // All sweeps have ended: nobody else holds it.
            let file = file.try_lock().map_err(io::Error::other)?;
            complete &= !file.has_rest;
            files.push(file.totals());
        }
        let manifest = Manifest {
            format: FORMAT,
            run_id: self.run_id.clone(),
            started_at: rfc3339(self.started_at),
            complete,
            files,
            rules,
        };
        begun.journal.lock().0.file.sync_all()?;
        // Readable by its owner alone, as `tempfile` makes it.
        let mut temporary = NamedTempFile::new_in(&self.path)?;
        let mut text = serde_json::to_vec_pretty(&manifest)?;
        text.push(b'\n');
        temporary.write_all(&text)?;
        temporary.as_file().sync_all()?;
        temporary.persist(self.path.join(MANIFEST))?;
        sync_directory(&self.path)?;
        Ok(Some(()))
    }
}

/// The documents of one namespace, in segments.
pub struct ArchiveFile {
    file: Tracked,
    record: FileRecord,
    compression: Compression,
    journal: Arc<Mutex<Journal>>,
    segments: u64,
    documents: u64,
    bytes: u64,
    sha256: Sha256,
    /// Why nothing more may be written, once something could not be.
    broken: Option<String>,
    /// Whether bytes of a segment that could not be written are left.
    has_rest: bool,
}

impl ArchiveFile {
    fn begin(
        run: &Path,
        namespace: &Namespace,
        compression: Compression,
        metadata: &str,
        journal: Arc<Mutex<Journal>>,
    ) -> io::Result<Self> {
        let (file, metadata_file) = name::of_collection(namespace, compression);
        let directory = run.join(&namespace.database);
        if !directory.exists() {
            create_directory(&directory)?;
        }
        let metadata = match compression {
            Compression::Zstd => metadata.as_bytes().to_vec(),
            Compression::Gzip => frame::compress(metadata.as_bytes(), compression)?,
        };
        let mut beside = Tracked::create(run.join(&metadata_file))?;
        beside.append(&metadata)?;
        beside.file.sync_all()?;
        let tracked = Tracked::create(run.join(&file))?;
        tracked.file.sync_all()?;
        sync_directory(&directory)?;
        let record = FileRecord {
            file,
            metadata: metadata_file,
            database: namespace.database.clone(),
            collection: namespace.collection.clone(),
            compression: compression.name().to_owned(),
        };
        journal.lock().append(&Line::File(record.clone()))?;
        Ok(Self {
            file: tracked,
            record,
            compression,
            journal,
            segments: 0,
            documents: 0,
            bytes: 0,
            sha256: Sha256::new(),
            broken: None,
            has_rest: false,
        })
    }

    /// Writes documents that one rule is about to delete. When it returns they are on the disk, in a file that is still there under its
    /// name.
    ///
    /// Errors: what went wrong, in words. The documents must not be deleted then, and nothing more can be written.
    pub fn append<'a>(&mut self, rule: &str, documents: impl Iterator<Item = &'a [u8]>) -> Result<(), String> {
        if let Some(why) = &self.broken {
            return Err(why.clone());
        }
        self.try_append(rule, documents).map_err(|cause| {
            // What a failed fsync has lost nobody knows: the file is not written to again.
            self.has_rest = self.file.cut().is_err();
            let why = format!("archiving to `{}`: {cause}", self.file.path.display());
            self.broken.insert(why).clone()
        })
    }

    fn try_append<'a>(&mut self, rule: &str, documents: impl Iterator<Item = &'a [u8]>) -> io::Result<()> {
        let documents: Vec<&[u8]> = documents.collect();
        let content = documents.concat();
        let segment = frame::compress(&content, self.compression)?;
        let offset = self.file.length;
        self.file.write(&segment)?;
        self.file.file.sync_data()?;
        self.file.check(offset + segment.len() as u64)?;
        let line = Segment {
            file: self.record.file.clone(),
            rule: rule.to_owned(),
            offset,
            length: segment.len() as u64,
            documents: documents.len() as u64,
            bytes: content.len() as u64,
            sha256: text::sha256(&segment),
        };
        self.journal.lock().append(&Line::Segment(line))?;
        self.file.length += segment.len() as u64;
        self.segments += 1;
        self.documents += documents.len() as u64;
        self.bytes += content.len() as u64;
        self.sha256.update(&segment);
        Ok(())
    }

    fn totals(&self) -> FileTotals {
        FileTotals {
            record: self.record.clone(),
            segments: self.segments,
            documents: self.documents,
            bytes: self.bytes,
            compressed_bytes: self.file.length,
            sha256: text::hex(&self.sha256.clone().finalize()),
        }
    }
}

/// Appended to without fsync: what it says of a segment can be found out from the segment itself.
struct Journal(Tracked);

impl Journal {
    fn append(&mut self, line: &Line) -> io::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        self.0.append(&text).inspect_err(|_| {
            // A line that was begun would spoil the next one.
            let _ = self.0.cut();
        })
    }
}
