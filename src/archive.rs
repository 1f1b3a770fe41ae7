//! What a sweep writes out before it deletes, and how it is read again.
//!
//! ```text
//! DIRECTORY/20260131T020000Z-1a2b3c4d/     one run; only its user may read it
//!     journal.jsonl                        what was written, line by line, each before its documents are deleted
//!     manifest.json                        the same summed up, when the run has ended; without it the run was cut off
//!     app/sessions.bson.zst                documents as mongodump writes them: one frame or member per segment
//!     app/sessions.metadata.json           options and indexes as mongodump writes them
//! ```
//!
//! A segment counts as written when it is on the disk under its name: only then are its documents deleted. Within a file the later of two
//! states of one document is the one that was deleted last.

pub mod directory;
pub mod frame;
pub mod manifest;
pub mod name;
pub mod reader;
mod tracked;
pub mod writer;

/// Does what blocks, such as reading or writing an archive, beside everything else.
///
/// Errors: those of the work, and its panic.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, String> + Send + 'static) -> Result<T, String> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|panic| Err(format!("an internal error: {panic}")))
}
