//! Archives: the documents that a sweep writes out before it deletes them, and their way back.
//!
//! ```text
//! DIRECTORY/20260131T020000Z-1a2b3c4d/     one run; only its user may read it
//!     journal.jsonl                        one line for each segment, written before its documents are deleted
//!     manifest.json                        totals, written at the end of the run; an archive without it was cut off
//!     app/sessions.bson.zst                documents as mongodump writes them: one frame or member per segment
//!     app/sessions.metadata.json           options and indexes as mongodump writes them
//! ```
//!
//! A segment counts as written once it is on disk under its name; only then are its documents deleted. If a file has two states
//! of one document, the later one was deleted last.

pub mod directory;
pub mod disk;
pub mod frame;
mod journal;
pub mod manifest;
mod names;
pub mod objects;
pub mod reader;
pub mod seal;
mod stored_file;
mod tracked;
pub mod writer;

/// Runs blocking work, such as reading or writing an archive, on tokio's blocking pool; in a simulation on the caller's thread,
/// because threads make one run differ from the next.
///
/// Errors: as for the work, or its panic.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, String> + Send + 'static) -> Result<T, String> {
    #[cfg(test)]
    if crate::testing::machines::current().is_some() {
        return work();
    }
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|panic| Err(format!("an internal error: {panic}")))
}

#[cfg(test)]
mod tests {
    mod bucket;
    pub(super) mod damage;
    pub(super) mod power_loss;
}
