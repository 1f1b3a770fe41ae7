//! The oplog that a sweep writes, and the window that it leaves.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Document, Timestamp, Uuid, doc};

use super::{ChildRule, SweepRule};
use crate::base::text::{bytes, duration};
use crate::core::facts::{Oplog, OplogSize};

/// Wire version of MongoDB 6.1, the first that deletes several documents in one write and records them in one entry
/// (`batchUserMultiDeletes`, `featureFlagBatchMultiDeletes`).
const GROUPS_FROM: i32 = 18;

/// Deletes in one entry at most (server parameter `batchedDeletesTargetBatchDocs`).
const MAX_GROUP: f64 = 10.0;

/// Size of the documents from which on no further delete joins an entry (server parameter `batchedDeletesTargetStagedDocBytes`).
const MAX_GROUP_BYTES: f64 = 2_097_152.0;

/// Minimum and maximum number of parts in which the server removes old entries (server parameters `minOplogTruncationPoints`
/// and `maxOplogTruncationPointsAfterStartup`).
const PARTS: (u64, u64) = (10, 100);

/// Size of such a part, as long as their number is within [`PARTS`]: the largest document that the server writes (mongo,
/// `BSONObjMaxInternalSize`).
const PART_BYTES: u64 = (16 << 20) + (16 << 10);

/// Form in which a server records deletes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entries {
    /// One entry for each document. Measured on 6.0.5, and assumed of older versions.
    Single,
    /// One entry for several documents. Measured on 7.0.28, where a server that is not slow fills each; assumed of other versions
    /// from 6.1 on.
    Grouped,
}

impl Entries {
    pub fn of(wire_version: i32) -> Self {
        if wire_version < GROUPS_FROM { Self::Single } else { Self::Grouped }
    }

    /// Returns the bytes that deletes of documents with these `_id`s take in the oplog, on average; `None` without any.
    /// `average_bytes` is the mean size of the documents.
    pub fn bytes_per_document(self, namespace: &str, ids: &[Bson], average_bytes: Option<f64>) -> Option<f64> {
        let sizes = ids.iter().map(|id| self.bytes_of(namespace, id, average_bytes));
        (!ids.is_empty()).then(|| sizes.sum::<f64>() / ids.len() as f64)
    }

    fn bytes_of(self, namespace: &str, id: &Bson, average_bytes: Option<f64>) -> f64 {
        let delete = doc! { "op": "d", "ns": namespace, "ui": uuid(), "o": { "_id": id.clone() } };
        match self {
            Self::Single => size(&stamped(delete)),
            Self::Grouped => {
                let group = MAX_GROUP.min((MAX_GROUP_BYTES / average_bytes.unwrap_or(1.0).max(1.0)).ceil());
                let around = stamped(doc! { "op": "c", "ns": "admin.$cmd", "o": { "applyOps": [] } });
                // An element of an array has a type, a name of one digit, and its end.
                size(&delete) + 3.0 + size(&around) / group
            }
        }
    }
}

impl Entries {
    /// Returns the bytes that the entries of a rule's journal take in the oplog for so many parents. Each batch has one entry for
    /// each key by which children name their parents, inserted before the batch and removed after it. A rule without children has
    /// none.
    ///
    /// Keys that are not the `_id` are taken to be as large as the `_id`s.
    pub fn journal_bytes(self, rule: &SweepRule, ids: &[Bson], documents: u64) -> f64 {
        let batch = u64::from(rule.sizes.batch).max(1);
        let of_batch = |size: u64| if size == 0 { 0.0 } else { self.journal_bytes_of_batch(rule, ids, size as usize) };
        (documents / batch) as f64 * of_batch(batch.min(documents)) + of_batch(documents % batch)
    }

    fn journal_bytes_of_batch(self, rule: &SweepRule, ids: &[Bson], parents: usize) -> f64 {
        let Some(family) = rule.family.as_ref().filter(|_| !ids.is_empty()) else { return 0.0 };
        let list: Vec<Bson> = ids.iter().cycle().take(parents).cloned().collect();
        let bytes = family.parent_keys().into_iter().map(|key| {
            let places = family.children.iter().filter(|child| child.parent_key == *key);
            let place =
                |child: &ChildRule| doc! { "namespace": child.rule.selection.namespace.to_string(), "field": &child.field };
            let mut entry = doc! {
                "_id": ObjectId::from_bytes([0; 12]), "namespace": rule.namespace.to_string(), "rule": &rule.name,
                "run": Uuid::from_bytes([0; 16]).to_string(), "at": DateTime::MIN, "field": &key.field, "parents": list.clone(),
                "children": places.map(place).collect::<Vec<_>>(),
            };
            if !key.is_id() {
                entry.insert("ids", list.clone());
            }
            let journal = family.journal.to_string();
            let inserted =
                doc! { "op": "i", "ns": &journal, "ui": uuid(), "o": entry, "o2": { "_id": ObjectId::from_bytes([0; 12]) } };
            size(&stamped(inserted)) + self.bytes_of(&journal, &ObjectId::from_bytes([0; 12]).into(), None)
        });
        bytes.sum()
    }
}

/// Returns the fields that an entry of the oplog has besides its operation.
fn stamped(mut entry: Document) -> Document {
    entry.extend(doc! { "ts": Timestamp { time: 0, increment: 0 }, "t": 1_i64, "v": 2_i64, "wall": DateTime::MIN });
    entry
}

fn uuid() -> Bson {
    Bson::Binary(Binary { subtype: BinarySubtype::Uuid, bytes: vec![0; 16] })
}

fn size(document: &Document) -> f64 {
    bson::serialize_to_vec(document).map_or(0.0, |entry| entry.len() as f64)
}

impl OplogSize {
    /// Returns the size of the part that the server removes at once. It removes one as soon as the others hold the maximum, so
    /// that less than one part of it may be missing (mongo, `CollectionTruncateMarkers`).
    fn part(self) -> u64 {
        self.max / (self.max / PART_BYTES).clamp(PARTS.0, PARTS.1)
    }

    /// Returns the bytes that the oplog is taken to keep once it is full. One part may be missing at any time. Two more are a
    /// reserve, because the parts are not all of one size after a start of the server, and because others do not write evenly.
    fn kept(self) -> f64 {
        (self.max - 3 * self.part()) as f64
    }
}

impl Oplog {
    /// Tells whether the server removes old entries by now; `None` if the size is unknown.
    pub fn is_full(&self) -> Option<bool> {
        self.size.map(|size| size.used >= size.max - size.part())
    }

    /// Returns the bytes per second that others write, of which `own` bytes in the oplog are not; `None` if the size is unknown.
    fn others(&self, own: u64) -> Option<f64> {
        // Times are in whole seconds, so that the window may be shorter by up to one.
        let seconds = self.window().as_secs().saturating_sub(1).max(1);
        Some(self.size?.used.saturating_sub(own).max(1) as f64 / seconds as f64)
    }

    /// Returns the window, in seconds, that is left once the server has removed what is due, if `own` bytes of the oplog are
    /// the sweep's and it writes `more`. Others are expected to have written evenly, and to go on. `None` if the size is
    /// unknown.
    ///
    /// An oplog that is not full is judged by what it will be once it is.
    pub fn window_left(&self, own: u64, more: u64) -> Option<f64> {
        let left = self.size?.kept() - own as f64 - more as f64;
        Some((left / self.others(own)?).max(self.retained()).max(0.0))
    }

    /// Returns the window that is left, in seconds, by a sweep that writes so many bytes in so many seconds.
    pub fn window_after(&self, bytes: u64, seconds: f64) -> Option<f64> {
        let (kept, others) = (self.size?.kept(), self.others(0)?);
        // The oplog may be shorter than the sweep, and then never holds all of it.
        let of_part = kept / (others + bytes as f64 / seconds.max(1.0));
        let after = if of_part <= seconds { of_part } else { (kept - bytes as f64) / others };
        Some(after.max(self.retained()).max(0.0))
    }

    /// Returns the seconds that a sweep of so many bytes takes at least if the window is not to fall below `least`. Returns
    /// `None` if that is not known, or the sweep would never end.
    pub fn seconds_within(&self, bytes: u64, least: Duration) -> Option<f64> {
        let least = least.as_secs_f64();
        if self.retained() >= least {
            return Some(0.0);
        }
        let room = self.size?.kept() - self.others(0)? * least;
        match bytes as f64 {
            _ if room <= 0.0 => None,
            bytes if bytes <= room => Some(0.0),
            bytes => Some(bytes * least / room),
        }
    }

    /// Says why a window of `least` cannot be kept while batches of so many bytes are deleted; `None` if it can.
    pub fn refusal(&self, least: Duration, batch: u64) -> Option<String> {
        let now = self.window();
        let Some(size) = self.size else {
            return Some(
                "the size of the oplog is unknown: `collStats` of `local.oplog.rs` needs the role `clusterMonitor`".into(),
            );
        };
        let left = self.window_left(0, batch)?;
        (left < least.as_secs_f64()).then(|| {
            format!(
                "the oplog of {} covers {} now, and would cover {} {}; {} have to be kept: a larger oplog keeps them (`replSetResizeOplog`), or a \
                 smaller `minOplogWindow` asks for less",
                bytes(size.max),
                duration(now.as_secs().saturating_mul(1000)),
                duration((left * 1000.0) as u64),
                if self.is_full() == Some(true) { "after the next batches" } else { "once it is full" },
                duration(least.as_secs().saturating_mul(1000)),
            )
        })
    }

    fn retained(&self) -> f64 {
        self.min_retention.map_or(0.0, |time| time.as_secs_f64())
    }
}

/// The bytes of one run in the oplog, by the time at which they were written.
#[derive(Debug, Default)]
pub struct OwnBytes {
    /// Times, and the bytes that had been written by then.
    written: VecDeque<(u32, u64)>,
    /// Bytes that have been removed from the oplog.
    removed: u64,
}

impl OwnBytes {
    /// Records that `total` bytes have been written, and returns how many of them the oplog still has.
    pub fn in_oplog(&mut self, oplog: &Oplog, total: u64) -> u64 {
        while let Some((_, by_then)) = self.written.front().filter(|(time, _)| *time < oplog.first) {
            self.removed = *by_then;
            self.written.pop_front();
        }
        if self.written.back().is_none_or(|(time, _)| *time < oplog.last) {
            self.written.push_back((oplog.last, total));
        }
        total.saturating_sub(self.removed)
    }
}
