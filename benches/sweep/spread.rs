//! Layouts of collections beyond the cache: how far the dates follow the order in which the documents are stored.

use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Document, Uuid, doc};
use rand::RngExt;
use rand::rngs::StdRng;

use crate::layout::{Layout, MARGIN, SMALL};
use crate::server::date;

/// Bytes of a document besides the long field.
const REST: usize = 80;

/// All layouts, with half of the documents expired.
pub(crate) const LAYOUTS: [Layout; 5] = [
    Layout { name: "ordered", document: |layout, n, of, random| layout.aged(n, of, random), ..SMALL },
    Layout {
        name: "random",
        document: |layout, _, of, random| {
            let rank = random.random_range(0..of);
            layout.aged(rank, of, random)
        },
        ..SMALL
    },
    // Half of the documents have the date of another place.
    Layout {
        name: "half ordered",
        document: |layout, n, of, random| {
            let rank = if random.random_bool(0.5) { n } else { random.random_range(0..of) };
            layout.aged(rank, of, random)
        },
        ..SMALL
    },
    // A fifth of the documents got a new date later.
    Layout {
        name: "updated dates",
        document: |layout, n, of, random| {
            let old = of * 4 / 5;
            let rank = if random.random_bool(0.2) { random.random_range(old..of) } else { n * 4 / 5 };
            layout.aged(rank, of, random)
        },
        ..SMALL
    },
    Layout {
        name: "UUID _ids",
        document: |layout, _, of, random| {
            let rank = random.random_range(0..of);
            let mut document = doc! { "_id": Uuid::from_bytes(random.random()) };
            document.extend(layout.aged(rank, of, random));
            document
        },
        ..SMALL
    },
];

impl Layout {
    /// Returns the same layout with documents of this size and this number of indexes, of which this percentage has expired.
    pub(crate) fn sized(self, bytes: usize, indexes: u8, percent: u8) -> Self {
        let indexes: &[&str] = if indexes == 1 { &["at"] } else { &["at", "a", "b"] };
        Self { bytes: bytes.saturating_sub(REST), indexes, share: f64::from(percent) / 100.0, ..self }
    }

    /// Makes a document whose date has this rank among the dates of all.
    fn aged(&self, rank: i64, of: i64, random: &mut StdRng) -> Document {
        let since_now = rank - (of as f64 * self.share) as i64;
        let at = date(if since_now < 0 { since_now } else { since_now + MARGIN });
        let [a, b] = random.random::<[i32; 2]>();
        doc! { "at": at, "a": a, "b": b, "p": noise(self.bytes, random) }
    }
}

/// Returns random bytes, which do not compress.
pub(crate) fn noise(length: usize, random: &mut StdRng) -> Binary {
    let mut bytes = vec![0; length];
    random.fill(bytes.as_mut_slice());
    Binary { subtype: BinarySubtype::Generic, bytes }
}
