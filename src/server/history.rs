//! The history in the database: one document per run.

use std::io;
use std::time::{Duration, Instant};

use bson::{Document, doc};
use futures_util::TryStreamExt;
use mongodb::Collection;
use mongodb::error::{Error, ErrorKind, Result};
use mongodb::options::WriteConcern;

use super::grant::RecordGrant;
use super::retries::Retries;
use super::{Deployment, answer, error};
use crate::policy::namespace::Namespace;

/// One try to record a run may take so long: a fail-over is waited for, but nothing else keeps the process.
const LONGEST_INSERT: Duration = Duration::from_secs(20);

/// No try begins later.
const LONGEST: Duration = Duration::from_secs(20);

/// Documents of one find where cursors do not last.
const PAGE: i64 = 200;

/// Of a collection that the server cannot sort, no more documents than this are read.
pub const MOST_READ: usize = 10_000;

/// Code of a document that is already there: the reply to an earlier try was lost.
/// Inserts the document of a run.
pub async fn insert(deployment: &Deployment, namespace: &Namespace, document: Document, _grant: &RecordGrant) -> Result<()> {
    let write_concern: WriteConcern = bson::deserialize_from_document(deployment.write_concern.clone())?;
    let (mut retries, begun) = (Retries::default(), Instant::now());
    loop {
        let collection = collection(deployment, namespace);
        let (document, concern, comment) = (document.clone(), write_concern.clone(), deployment.comment());
        let inserted = answer::within(LONGEST_INSERT, async move {
            let insert = collection.insert_one(document).write_concern(concern);
            match comment {
                Some(comment) => insert.comment(comment).await,
                None => insert.await,
            }
        });
        let cause = match inserted.await {
            Err(cause) if error::code(&cause) != Some(error::DUPLICATE_KEY) => cause,
            _ => return Ok(()),
        };
        match retries.wait(&cause) {
            // Who waits for an unreachable server, or for a reply that does not come, has waited long enough.
            Some(wait) if !is_silent(&cause) && begun.elapsed() < LONGEST => tokio::time::sleep(wait).await,
            _ => return Err(cause),
        }
    }
}

fn is_silent(cause: &Error) -> bool {
    error::is_unreachable(cause) || matches!(cause.kind.as_ref(), ErrorKind::Io(io) if io.kind() == io::ErrorKind::TimedOut)
}

/// Reads the newest documents, the newest first, without the rules where they are not asked for. Also gives whether there are too many to
/// know that they are the newest.
pub async fn newest(
    deployment: &Deployment,
    namespace: &Namespace,
    last: usize,
    with_rules: bool,
) -> Result<(Vec<Document>, bool)> {
    if deployment.facts.capabilities.sorts {
        let page = Page { filter: doc! {}, sort: doc! { "startedAt": -1 }, limit: last as i64 };
        return Ok((find(deployment, namespace, page, with_rules).await?, false));
    }
    // Without a sort by date all of them are gone through, in the order of their `_id`s.
    let (mut newest, mut read, mut filter) = (Vec::new(), 0, doc! {});
    loop {
        let page = Page { filter: filter.clone(), sort: doc! { "_id": 1 }, limit: PAGE };
        let documents = find(deployment, namespace, page, with_rules).await?;
        read += documents.len();
        let Some(after) = documents.last().and_then(|document| document.get("_id")).cloned() else {
            return Ok((newest, false));
        };
        newest.extend(documents);
        newest.sort_by_key(|document| std::cmp::Reverse(document.get_datetime("startedAt").ok().copied()));
        newest.truncate(last);
        if read >= MOST_READ {
            return Ok((newest, true));
        }
        filter = doc! { "_id": { "$gt": after } };
    }
}

struct Page {
    filter: Document,
    sort: Document,
    limit: i64,
}

async fn find(deployment: &Deployment, namespace: &Namespace, page: Page, with_rules: bool) -> Result<Vec<Document>> {
    let (mut retries, collection) = (Retries::default(), collection(deployment, namespace));
    loop {
        let mut find = collection.find(page.filter.clone()).sort(page.sort.clone()).limit(page.limit);
        // One reply holds the page, so that no cursor has to last.
        find = find.batch_size(u32::try_from(page.limit).unwrap_or(u32::MAX));
        if !with_rules {
            find = find.projection(doc! { "rules": 0 });
        }
        if let Some(comment) = deployment.comment() {
            find = find.comment(comment);
        }
        let found = match find.await {
            Ok(cursor) => cursor.try_collect().await,
            Err(cause) => Err(cause),
        };
        match found {
            Err(cause) => match retries.wait(&cause) {
                Some(wait) if !error::is_unreachable(&cause) => tokio::time::sleep(wait).await,
                _ => return Err(cause),
            },
            found => return found,
        }
    }
}

fn collection(deployment: &Deployment, namespace: &Namespace) -> Collection<Document> {
    deployment.database(namespace).collection(&namespace.collection)
}
