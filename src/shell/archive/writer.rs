//! Writes an archive. All functions block.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, IntoInnerError};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bson::DateTime;
use parking_lot::Mutex;
use sha2::{Digest, Sha256};

use super::directory::{JOURNAL, MANIFEST, NEW_MANIFEST};
use super::disk::{Disk, RealDisk};
use super::frame;
use super::journal::ArchiveJournal;
use super::manifest::{FORMAT, FileRecord, FileTotals, Line, Manifest, RuleTotals, Segment};
use super::names;
use super::seal::Seal;
use super::tracked::{FilePart, Tracked, create_directory};
use crate::base::instant::rfc3339;
use crate::base::text;
use crate::core::policy::Compression;
use crate::core::policy::namespace::Namespace;

/// Bytes of a segment that are written at a time.
const WRITE_BYTES: usize = 256 * 1024;

/// The archive of one run in one directory of the policy. Its directory is created with its first document.
pub struct Archive {
    disk: Arc<dyn Disk>,
    /// The directory of the run.
    path: PathBuf,
    run_id: String,
    started_at: DateTime,
    begun: Mutex<Option<Begun>>,
}

struct Begun {
    journal: Arc<Mutex<ArchiveJournal>>,
    /// One file for each namespace, shared by all rules: the position in the file tells which of two states of a document is the
    /// later one.
    files: BTreeMap<Namespace, SharedFile>,
    /// Whether the journal may name a file that could not be begun.
    has_rest: bool,
}

/// The file of one namespace. The lock is held from the reading of documents until they are written, so that the file has them in
/// the order in which they were read.
pub type SharedFile = Arc<tokio::sync::Mutex<ArchiveFile>>;

impl Archive {
    /// Returns the archive of a run. Nothing is created on the disk yet.
    pub fn new(directory: &Path, run_id: &str, started_at: DateTime) -> Self {
        Self::on(Arc::new(RealDisk::below(directory)), directory, run_id, started_at)
    }

    /// Returns the archive of a run on a certain disk.
    pub(crate) fn on(disk: Arc<dyn Disk>, directory: &Path, run_id: &str, started_at: DateTime) -> Self {
        let path = directory.join(names::run_name(started_at, run_id));
        Self { disk, path, run_id: run_id.to_owned(), started_at, begun: Mutex::new(None) }
    }

    /// Returns the directory of the run.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the file of a namespace, if it was begun.
    pub fn file(&self, namespace: &Namespace) -> Option<SharedFile> {
        self.begun.lock().as_ref()?.files.get(namespace).cloned()
    }

    /// Begins the file of a namespace, if it was not begun yet. `metadata` is the text that mongodump writes next to the
    /// documents. `of_children` if they go with the documents of another namespace.
    pub fn begin(
        &self,
        namespace: &Namespace,
        compression: Compression,
        metadata: &str,
        of_children: bool,
    ) -> io::Result<SharedFile> {
        let mut begun = self.begun.lock();
        let begun = match &mut *begun {
            Some(begun) => begun,
            none => none.insert(Begun { journal: self.begin_journal()?, files: BTreeMap::new(), has_rest: false }),
        };
        if let Some(file) = begun.files.get(namespace) {
            return Ok(file.clone());
        }
        let journal = begun.journal.clone();
        let file = ArchiveFile::begin(self.disk.as_ref(), &self.path, namespace, compression, metadata, of_children, journal);
        begun.has_rest |= file.is_err();
        let file = file?;
        let file = Arc::new(tokio::sync::Mutex::new(file));
        begun.files.insert(namespace.clone(), file.clone());
        Ok(file)
    }

    fn begin_journal(&self) -> io::Result<Arc<Mutex<ArchiveJournal>>> {
        create_directory(self.disk.as_ref(), &self.path)?;
        let mut journal = ArchiveJournal::create(self.disk.as_ref(), self.path.join(JOURNAL))?;
        journal.append(&Line::Run { format: FORMAT, run_id: self.run_id.clone(), started_at: rfc3339(self.started_at) })?;
        Ok(Arc::new(Mutex::new(journal)))
    }

    /// Writes the manifest, after all rules have ended; `None` if no document was archived.
    ///
    /// Errors: the manifest could not be written. The archive can be read without it.
    pub fn end(&self, rules: Vec<RuleTotals>) -> io::Result<Option<()>> {
        let Some(begun) = self.begun.lock().take() else { return Ok(None) };
        let mut journal = begun.journal.lock();
        let mut complete = !begun.has_rest && !journal.is_broken;
        let mut files = Vec::new();
        for file in begun.files.values() {
            // All sweeps have ended, so the lock is free.
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
        journal.sync()?;
        let text = Seal::INDENTED.close(&serde_json::to_string_pretty(&manifest)?);
        self.disk.publish(&self.path.join(MANIFEST), &self.path.join(NEW_MANIFEST), &text)?;
        Ok(Some(()))
    }
}

/// The documents of one namespace, in segments.
pub struct ArchiveFile {
    file: Tracked,
    record: FileRecord,
    compression: Compression,
    journal: Arc<Mutex<ArchiveJournal>>,
    segments: u64,
    documents: u64,
    bytes: u64,
    sha256: Sha256,
    /// The first failure, after which nothing more may be written.
    broken: Option<String>,
    /// Whether the file still has bytes of a segment that could not be written.
    has_rest: bool,
}

impl ArchiveFile {
    /// Creates the file. On return everything is on the disk that a restore needs to know about the file. That is the file
    /// itself, its metadata and its line in the journal, with all directories that lead to them.
    fn begin(
        disk: &dyn Disk,
        run: &Path,
        namespace: &Namespace,
        compression: Compression,
        metadata: &str,
        of_children: bool,
        journal: Arc<Mutex<ArchiveJournal>>,
    ) -> io::Result<Self> {
        let (file, metadata_file) = names::collection_files(namespace, compression);
        let directory = run.join(&namespace.database);
        match disk.create_directory(&directory) {
            // Of another collection.
            Err(cause) if cause.kind() == io::ErrorKind::AlreadyExists => {}
            created => created?,
        }
        let metadata = match compression {
            Compression::Zstd => metadata.as_bytes().to_vec(),
            Compression::Gzip => frame::compress(metadata.as_bytes(), compression)?,
        };
        let mut written = Tracked::create(disk, run.join(&metadata_file))?;
        written.append(&metadata)?;
        written.sync()?;
        let tracked = Tracked::create(disk, run.join(&file))?;
        tracked.sync()?;
        // The directory of the run has the names of the journal and of the database's directory. The journal names only files
        // that are there.
        disk.sync_directory(&directory)?;
        disk.sync_directory(run)?;
        let record = FileRecord {
            file,
            metadata: metadata_file,
            metadata_sha256: text::sha256(&metadata),
            database: namespace.database.clone(),
            collection: namespace.collection.clone(),
            compression: compression.name().to_owned(),
            of_children,
        };
        let mut of_run = journal.lock();
        of_run.append(&Line::File(record.clone()))?;
        of_run.sync()?;
        drop(of_run);
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

    /// Writes documents that one rule is about to delete. On return they are on the disk, in a file that still has its name.
    ///
    /// Errors: the failure in words. The documents must then not be deleted, and nothing more can be written.
    pub fn append<'a>(&mut self, rule: &str, documents: impl Iterator<Item = &'a [u8]>) -> Result<(), String> {
        if let Some(why) = &self.broken {
            return Err(why.clone());
        }
        self.try_append(rule, documents).map_err(|cause| {
            // A failed fsync may have lost any of the bytes, so the file is not written to again.
            self.has_rest = self.file.cut().and_then(|()| self.file.sync()).is_err();
            let why = format!("archiving to `{}`: {cause}", self.file.path.display());
            self.broken.insert(why).clone()
        })
    }

    fn try_append<'a>(&mut self, rule: &str, documents: impl Iterator<Item = &'a [u8]>) -> io::Result<()> {
        let documents: Vec<&[u8]> = documents.collect();
        // No reader takes a segment without documents.
        if documents.is_empty() {
            return Ok(());
        }
        let bytes: usize = documents.iter().map(|document| document.len()).sum();
        let offset = self.file.length;
        let mut part = BufWriter::with_capacity(WRITE_BYTES, self.file.part(self.sha256.clone())?);
        frame::compress_into(&documents, self.compression, &mut part)?;
        let FilePart { length, sha256, whole, .. } = part.into_inner().map_err(IntoInnerError::into_error)?;
        self.file.sync()?;
        self.file.check(offset + length)?;
        let sha256 = hex::encode(sha256.finalize());
        let line = Segment {
            file: self.record.file.clone(),
            rule: rule.to_owned(),
            offset,
            length,
            documents: documents.len() as u64,
            bytes: bytes as u64,
            sha256,
        };
        self.journal.lock().append(&Line::Segment(line))?;
        self.file.length += length;
        self.segments += 1;
        self.documents += documents.len() as u64;
        self.bytes += bytes as u64;
        self.sha256 = whole;
        Ok(())
    }

    fn totals(&self) -> FileTotals {
        FileTotals {
            record: self.record.clone(),
            segments: self.segments,
            documents: self.documents,
            bytes: self.bytes,
            compressed_bytes: self.file.length,
            sha256: hex::encode(self.sha256.clone().finalize()),
        }
    }
}
