//! A batch that is archived before it is deleted: read, written to the disk, and only then deleted, in the state that was read.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use bson::{Document, RawDocumentBuf, doc};
use tokio::sync::OwnedMutexGuard;

use super::attempts::BatchResult;
use super::reading::{read, read_ids};
use super::send::{self, Sent};
use crate::core::plan::Selection;
use crate::core::plan::outcome::Archived;
use crate::core::policy::Compression;
use crate::shell::archive::blocking;
use crate::shell::archive::writer::{Archive, ArchiveFile};
use crate::shell::server::delete::DeleteError;
use crate::shell::server::delete::document_match::{DocumentState, IndexRange};
use crate::shell::server::delete::restriction::Restriction;
use crate::shell::server::delete::statement::bytes_of_one;
use crate::shell::server::look::metadata;
use crate::shell::sweep::RuleSweep;

/// Size of the parts that are read, written and synced, in bytes: large enough for an fsync to cost little in comparison, and
/// small enough for the memory.
const PART_BYTES: usize = 4 * 1024 * 1024;

/// Maximum size of a part in bytes. If its documents are larger than the collection's average, so that it exceeds this, it is
/// divided further.
const MAX_PART_BYTES: usize = 2 * PART_BYTES;

/// The archive of one rule.
pub(crate) struct RuleArchive {
    pub archive: Arc<Archive>,
    pub compression: Compression,
    /// The name of the rule in the archive's records.
    pub rule: String,
}

/// Returns the maximum number of documents to archive at a time, by their average size: a range with more of them would be read
/// twice.
pub(crate) fn batch_limit(selection: &Selection) -> Option<u64> {
    // A cast from float saturates.
    selection.size.average_bytes.map(|average| ((PART_BYTES as f64 / average.max(1.0)) as u64).max(1))
}

/// Archives and deletes the documents that a restriction names. `asked` is their maximum number at the time the restriction was
/// made.
pub(crate) async fn run(sweep: &RuleSweep, archive: &RuleArchive, restriction: Restriction, asked: u64) -> (Archived, Sent) {
    let one_by_one = !sweep.deployment.facts.capabilities.deletes_by_id_list;
    let mut archived = Archived::default();
    let mut total = Sent {
        is_sent: true,
        is_cut_short: false,
        out_of_lease: false,
        latency: Some(Duration::ZERO),
        result: BatchResult::default(),
    };
    let parents = restriction.parents();
    let mut is_first = true;
    let mut parts = vec![restriction];
    while let Some(part) = parts.pop() {
        let range = index_range(&part);
        // The file, if it is kept until the part is deleted.
        let (documents, _file) = match archive_part(sweep, archive, part, &mut archived).await {
            Ok(PartRead::TooMuch(halves)) => {
                parts.extend(halves.into_iter().rev());
                continue;
            }
            Ok(PartRead::Archived(documents, file)) => (documents, file),
            Ok(PartRead::Ended) => return (archived, Sent { is_sent: !is_first, is_cut_short: true, ..total }),
            Err(why) => {
                let why = format!("{why}; nothing of that part was deleted");
                total.result.error = Some(DeleteError::fatal(why));
                break;
            }
        };
        // If the read passed over many other documents, deleting by `_id` avoids passing over them again.
        let range = range.filter(|_| documents.len() as u64 * 2 >= asked);
        let documents = in_order(documents, range.as_ref());
        let bytes_of = |state: &DocumentState| match one_by_one {
            true => bytes_of_one(state, &sweep.rule.selection),
            false => state.size(),
        };
        for restriction in Restriction::of_states(documents, range.as_ref(), bytes_of) {
            let sent = send::send(sweep, Box::new(restriction), parents.as_deref()).await;
            total.out_of_lease |= sent.out_of_lease;
            total.is_cut_short |= sent.is_cut_short;
            if !sent.is_sent {
                // The lease or the sweep is over, or the holds cannot be read any more; the earlier commands still count.
                total.result.error = sent.result.error;
                return (archived, Sent { is_sent: !is_first, ..total });
            }
            is_first = false;
            total.latency = total.latency.zip(sent.latency).map(|(before, took)| before + took);
            total.result.add(sent.result);
            if total.result.error.is_some() {
                return (archived, total);
            }
        }
    }
    // If nothing was deleted, the server's speed is unknown.
    total.latency = total.latency.filter(|latency| !latency.is_zero());
    (archived, total)
}

/// Returns the index along which a part is read, if it is a range.
fn index_range(part: &Restriction) -> Option<IndexRange> {
    match part {
        Restriction::Range { bounds, hint } => {
            bounds.keys().next().map(|field| IndexRange { field: field.clone(), hint: hint.clone(), stretch: None })
        }
        Restriction::Stretch(stretch) => {
            let (field, hint) = (stretch.field().to_owned(), doc! { stretch.field(): 1 }.into());
            Some(IndexRange { field, hint, stretch: Some(stretch.clone()) })
        }
        _ => None,
    }
}

/// Returns the documents that belong to a part. Another stretch archives and deletes those that belong to it.
fn of_part(part: &Restriction, mut documents: Vec<RawDocumentBuf>) -> Vec<RawDocumentBuf> {
    if let Restriction::Stretch(stretch) = part {
        documents.retain(|document| !stretch.is_before(document));
    }
    documents
}

/// Returns documents in the order of the index. A stretch is read in any order.
fn in_order(mut documents: Vec<DocumentState>, range: Option<&IndexRange>) -> Vec<DocumentState> {
    if let Some(range) = range.filter(|range| range.stretch.is_some()) {
        documents.sort_by_cached_key(|state| range.key(&state.document));
    }
    documents
}

/// The result of reading one part.
enum PartRead {
    /// The part was too large, and none of it was archived. These restrictions name the same documents, and are to be tried one
    /// after the other.
    TooMuch(Vec<Restriction>),
    /// These documents are in the archive, and may be deleted in the state in which they were archived. The file is kept until
    /// then if they are large: a command with them is in memory several times, so none is read ahead.
    Archived(Vec<DocumentState>, Option<OwnedMutexGuard<ArchiveFile>>),
    /// The sweep ended before anything was written.
    Ended,
}

/// Reads and writes one part.
///
/// Errors: the reason why nothing of the part may be deleted.
async fn archive_part(
    sweep: &RuleSweep,
    archive: &RuleArchive,
    part: Restriction,
    archived: &mut Archived,
) -> Result<PartRead, String> {
    let average = sweep.rule.selection.size.average_bytes.unwrap_or(0.0);
    let is_range = matches!(part, Restriction::Range { .. } | Restriction::Stretch(_));
    let is_large = !is_range && average * part.max_documents() as f64 > PART_BYTES as f64;
    let halves = part.halves().map(|(first, second)| vec![first, second]);
    let halves = match halves {
        Some(halves) if is_large => return Ok(PartRead::TooMuch(halves)),
        halves => halves,
    };
    let Some(file) = file(sweep, archive).await? else { return Ok(PartRead::Ended) };
    // The lock is held from before the documents are read until they are written, so that of two states of one document the later
    // one comes later in the file.
    let file = file.lock_owned().await;
    let max_bytes = if halves.is_some() || is_range { MAX_PART_BYTES } else { usize::MAX };
    let Some(documents) = sweep.unless_ended(read(sweep, &part, &Document::new(), max_bytes)).await else {
        return Ok(PartRead::Ended);
    };
    let documents = match (documents.map_err(|cause| sweep.explain_read(&cause))?, halves) {
        (None, Some(halves)) => return Ok(PartRead::TooMuch(halves)),
        // A range with an unknown number of documents cannot be halved, but the list of their `_id`s can.
        (None, None) if is_range => {
            let Some(ids) = sweep.unless_ended(read_ids(sweep, &part)).await else { return Ok(PartRead::Ended) };
            return Ok(PartRead::TooMuch(vec![ids.map_err(|cause| sweep.explain_read(&cause))?]));
        }
        (documents, _) => documents.unwrap_or_default(),
    };
    let documents = of_part(&part, documents);
    let found = documents.len();
    let states: Vec<DocumentState> = documents.into_iter().filter_map(DocumentState::new).collect();
    archived.incomparable += (found - states.len()) as u64;
    if states.is_empty() {
        return Ok(PartRead::Archived(states, None));
    }
    let (states, file) = write(file, archive.rule.clone(), states).await?;
    archived.documents += states.len() as u64;
    let bytes: usize = states.iter().map(|state| state.document.as_bytes().len()).sum();
    Ok(PartRead::Archived(states, (bytes > MAX_PART_BYTES).then_some(file)))
}

/// Returns the archive file of the rule's namespace, which is begun if necessary; `None` if the sweep ended before.
async fn file(sweep: &RuleSweep, archive: &RuleArchive) -> Result<Option<Arc<tokio::sync::Mutex<ArchiveFile>>>, String> {
    let Selection { namespace, uuid, shard_key, .. } = &sweep.rule.selection;
    let (of_run, namespace, compression) = (archive.archive.clone(), namespace.clone(), archive.compression);
    // Another batch may be beginning a file. A bucket answers by the threads that would wait for it here.
    let begun = {
        let (of_run, namespace) = (of_run.clone(), namespace.clone());
        blocking(move || Ok(of_run.file(&namespace))).await?
    };
    if begun.is_some() {
        return Ok(begun);
    }
    let metadata = metadata::of(&sweep.deployment, &namespace, *uuid, shard_key);
    let Some(metadata) = sweep.unless_ended(metadata).await else { return Ok(None) };
    let metadata = metadata.map_err(|cause| format!("reading the collection's options and indexes: {cause}"))?;
    let of_children = sweep.is_of_children;
    let begun = blocking(move || {
        let path = of_run.path().display().to_string();
        of_run.begin(&namespace, compression, &metadata, of_children).map_err(|cause| format!("archiving to `{path}`: {cause}"))
    });
    begun.await.map(Some)
}

/// Writes documents, and returns them and the file once they are on the disk.
async fn write(
    mut file: OwnedMutexGuard<ArchiveFile>,
    rule: String,
    documents: Vec<DocumentState>,
) -> Result<(Vec<DocumentState>, OwnedMutexGuard<ArchiveFile>), String> {
    let written = move || {
        file.append(&rule, documents.iter().map(|state| state.document.as_bytes()))?;
        Ok((documents, file))
    };
    blocking(written).await
}
