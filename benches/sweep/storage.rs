//! The work of the server's storage engine, by its own counters.

use std::ops::Sub;

use mongodb::bson::Document;

/// Counters since the start of the server, or what was added to them.
#[derive(Clone, Copy)]
pub(crate) struct Work {
    /// Changed pages that were written because the cache needed their room.
    pub modified_evicted: f64,
    /// Pages that the threads of clients had to evict, which wait meanwhile.
    pub evicted_by_clients: f64,
    /// Bytes written from the cache.
    pub written: f64,
}

impl Work {
    /// Reads the counters from a reply to `serverStatus`.
    pub(crate) fn of(status: &Document) -> Self {
        let counter = |name| number(status, &["wiredTiger", "cache", name]).expect("a counter of the cache");
        Self {
            modified_evicted: counter("modified pages evicted"),
            evicted_by_clients: counter("pages evicted by application threads"),
            written: counter("bytes written from cache"),
        }
    }

    pub(crate) fn written_mib(&self) -> f64 {
        self.written / 1024.0 / 1024.0
    }
}

impl Sub for Work {
    type Output = Self;

    fn sub(self, before: Self) -> Self {
        Self {
            modified_evicted: self.modified_evicted - before.modified_evicted,
            evicted_by_clients: self.evicted_by_clients - before.evicted_by_clients,
            written: self.written - before.written,
        }
    }
}

/// Returns the number at a path, of whatever type it is.
pub(crate) fn number(document: &Document, path: &[&str]) -> Option<f64> {
    let (last, parents) = path.split_last()?;
    let parent = parents.iter().try_fold(document, |document, name| document.get_document(name).ok())?;
    let value = parent.get(last)?;
    value.as_f64().or_else(|| value.as_i64().map(|value| value as f64)).or_else(|| value.as_i32().map(f64::from))
}
