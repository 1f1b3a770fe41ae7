//! A batch that is archived before it is deleted: read, written out, made sure of, and only then deleted, in the state that was read.

use std::sync::Arc;
use std::time::Duration;

use crate::server::error::Result;
use bson::raw::RawBson;
use bson::{Bson, Document, RawArrayBuf, RawDocumentBuf, doc};
use tokio::sync::OwnedMutexGuard;
use tracing::warn;

use super::attempts::Tally;
use super::batch::{self, Aim, Sent};
use super::source::explain;
use crate::archive::blocking;
use crate::archive::writer::{Archive, ArchiveFile};
use crate::plan::Selection;
use crate::policy::ArchiveTo;
use crate::report::outcome::Archived;
use crate::server::delete::{Restriction, Trouble, aims, with_predicate};
use crate::server::exact::{self, Along, Exact};
use crate::server::find::Query;
use crate::server::retry::Retries;
use crate::server::{error, metadata};

/// Bytes of documents that are read, written and made sure of at a time: an fsync for so many is little, and so is the memory.
const PART_BYTES: usize = 4 * 1024 * 1024;

/// Documents that turn out larger than the collection's are on average are read in smaller parts from here on.
const MOST_BYTES: usize = 2 * PART_BYTES;

/// Where one rule writes what it is about to delete.
pub struct RuleArchive {
    pub archive: Arc<Archive>,
    pub to: ArchiveTo,
    /// The rule, as the archive's records call it.
    pub rule: String,
}

/// Documents that are archived at a time at most, by what one takes on average: a stretch of more would be read twice.
pub fn batch_limit(selection: &Selection) -> Option<u64> {
    // A cast from float saturates.
    selection.average_bytes.map(|average| ((PART_BYTES as f64 / average.max(1.0)) as u64).max(1))
}

/// Archives and deletes what a restriction names.
///
/// `asked`: documents that it had at most when it was made.
pub async fn run(aim: &Aim, archive: &RuleArchive, restriction: Restriction, asked: u64) -> (Archived, Sent) {
    let mut archived = Archived::default();
    let mut total = Sent { is_sent: true, latency: Some(Duration::ZERO), tally: Tally::default() };
    let mut is_first = true;
    let mut parts = vec![restriction];
    while let Some(part) = parts.pop() {
        let stretch = along(&part);
        let documents = match next(aim, archive, part, &mut archived).await {
            Ok(Read::TooMuch(halves)) => {
                parts.extend(halves.into_iter().rev());
                continue;
            }
            Ok(Read::Archived(documents)) => documents,
            Err(why) => {
                let why = format!("{why}; nothing of that part was deleted");
                total.tally.trouble =
                    Some(Trouble { why, retryable: false, reply_lost: false, unconfirmed: false, overload: None });
                break;
            }
        };
        // Where many were passed over, the delete need not pass over them again.
        let stretch = stretch.filter(|_| documents.len() as u64 * 2 >= asked);
        for restriction in exact::restrictions(documents, stretch.as_ref()) {
            let sent = batch::send(aim, Box::new(restriction)).await;
            if !sent.is_sent {
                // The lease is over: what went before still counts.
                return (archived, Sent { is_sent: !is_first, ..total });
            }
            is_first = false;
            total.latency = total.latency.zip(sent.latency).map(|(before, took)| before + took);
            total.tally.add(sent.tally);
            if total.tally.trouble.is_some() {
                return (archived, total);
            }
        }
    }
    // Where nothing was deleted, the server's time is not known either.
    total.latency = total.latency.filter(|latency| !latency.is_zero());
    (archived, total)
}

/// The index along which a stretch is read.
fn along(part: &Restriction) -> Option<Along> {
    match part {
        Restriction::Range { bounds, hint } => {
            bounds.keys().next().map(|field| Along { field: field.clone(), hint: hint.clone() })
        }
        _ => None,
    }
}

/// What became of one part.
enum Read {
    /// Nothing yet: these name the same documents, and are to be tried one after the other.
    TooMuch(Vec<Restriction>),
    /// These are in the archive, and may be deleted as they are there.
    Archived(Vec<Exact>),
}

/// Reads and writes one part.
///
/// Errors: why nothing of it may be deleted.
async fn next(aim: &Aim, archive: &RuleArchive, part: Restriction, archived: &mut Archived) -> std::result::Result<Read, String> {
    let average = aim.selection.average_bytes.unwrap_or(0.0);
    let halves = part.halves().map(|(first, second)| vec![first, second]);
    let halves = match halves {
        Some(halves) if average * part.most() as f64 > PART_BYTES as f64 => return Ok(Read::TooMuch(halves)),
        halves => halves,
    };
    let is_stretch = matches!(part, Restriction::Range { .. });
    let file = file(aim, archive).await?;
    // Held from before the documents are read until they are written: of two states of one document the later one comes later in the file.
    let file = file.lock_owned().await;
    let most = if halves.is_some() || is_stretch { MOST_BYTES } else { usize::MAX };
    let documents = match (read(aim, &part, &Document::new(), most).await.map_err(|cause| explain(&cause))?, halves) {
        (None, Some(halves)) => return Ok(Read::TooMuch(halves)),
        // How many documents are in a stretch nobody knows: their `_id`s can be halved.
        (None, None) if is_stretch => return Ok(Read::TooMuch(vec![ids(aim, &part).await.map_err(|cause| explain(&cause))?])),
        (documents, _) => documents.unwrap_or_default(),
    };
    let found = documents.len();
    let exact: Vec<Exact> = documents.into_iter().filter_map(Exact::new).collect();
    archived.incomparable += (found - exact.len()) as u64;
    if exact.is_empty() {
        return Ok(Read::Archived(exact));
    }
    let exact = write(file, archive.rule.clone(), exact).await?;
    archived.documents += exact.len() as u64;
    Ok(Read::Archived(exact))
}

/// The file of the rule's namespace, begun where it has not been.
async fn file(aim: &Aim, archive: &RuleArchive) -> std::result::Result<Arc<tokio::sync::Mutex<ArchiveFile>>, String> {
    let (of_run, namespace, to) = (archive.archive.clone(), aim.selection.namespace.clone(), archive.to.clone());
    if let Some(file) = of_run.file(&namespace) {
        return Ok(file);
    }
    let metadata = metadata::of(&aim.deployment, &namespace).await;
    let metadata =
        metadata.map_err(|cause| format!("reading the collection's options and indexes: {}", error::explain(&cause)))?;
    let begun = blocking(move || {
        let path = of_run.path().display().to_string();
        of_run.begin(&namespace, &to, &metadata).map_err(|cause| format!("archiving to `{path}`: {cause}"))
    });
    begun.await
}

/// Writes documents; gives them back when they are on the disk.
async fn write(
    mut file: OwnedMutexGuard<ArchiveFile>,
    rule: String,
    documents: Vec<Exact>,
) -> std::result::Result<Vec<Exact>, String> {
    blocking(move || file.append(&rule, documents.iter().map(|exact| exact.document.as_bytes())).map(|()| documents)).await
}

/// The `_id`s of what is in a stretch and has expired.
async fn ids(aim: &Aim, part: &Restriction) -> Result<Restriction> {
    let mut ids = RawArrayBuf::new();
    for document in read(aim, part, &doc! { "_id": 1 }, usize::MAX).await?.unwrap_or_default() {
        document.get("_id")?.into_iter().for_each(|id| ids.push(id));
    }
    Ok(Restriction::Ids(ids))
}

/// The documents that a restriction names and that have expired, whole where there is no projection; `None` where they come to more bytes.
async fn read(aim: &Aim, part: &Restriction, projection: &Document, most: usize) -> Result<Option<Vec<RawDocumentBuf>>> {
    let mut retries = Retries::patient();
    loop {
        let cause = match try_read(aim, part, projection, most).await {
            Ok(documents) => return Ok(documents),
            Err(cause) => cause,
        };
        let Some(wait) = retries.wait(&cause) else { return Err(cause) };
        let why = error::explain(&cause);
        warn!("{}: reading: {why}; trying again in {} ms", aim.namespace, wait.as_millis());
        tokio::time::sleep(wait).await;
    }
}

async fn try_read(aim: &Aim, part: &Restriction, projection: &Document, most: usize) -> Result<Option<Vec<RawDocumentBuf>>> {
    let mut documents = Vec::new();
    for find in finds(aim, part, projection)? {
        let mut cursor = find.cursor(&aim.deployment).await?;
        let mut bytes = 0;
        while let Some(document) = cursor.next().await? {
            bytes += document.as_bytes().len();
            if bytes > most {
                return Ok(None);
            }
            documents.push(document);
        }
    }
    Ok(Some(documents))
}

/// Queries with the same conditions as the delete.
fn finds(aim: &Aim, part: &Restriction, projection: &Document) -> Result<Vec<Query>> {
    let Aim { deployment, selection, .. } = aim;
    let batch = u32::try_from(part.most()).unwrap_or(i32::MAX as u32).clamp(1, i32::MAX as u32);
    let find = |(of_part, limit, hint): (RawDocumentBuf, i32, RawBson)| {
        let find = Query::find(&selection.namespace, with_predicate(of_part, selection)?)
            .batch_size(batch)
            .hint(Some(Bson::try_from(hint)?))
            .collation(selection.collation.as_ref())
            .time_limit(deployment.command_timeout);
        let find = if limit > 0 { find.limit(limit.unsigned_abs().into()) } else { find };
        Ok(if projection.is_empty() { find } else { find.projection(projection.clone()) })
    };
    aims(part, selection)?.into_iter().map(find).collect()
}
