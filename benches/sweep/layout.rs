//! Layouts of collections: the form of a document, the indexes, and the expired documents.

use mongodb::bson::{DateTime, Document, doc};
use rand::RngExt;
use rand::rngs::StdRng;

use crate::server::date;

/// Seconds after now in which no document expires, because the TTL monitor's clock goes on while it works.
pub(crate) const MARGIN: i64 = 7200;

/// The contents of a collection and the part of it that has expired.
#[derive(Clone, Copy)]
pub(crate) struct Layout {
    pub name: &'static str,
    /// Makes the n-th document; the second number is the number of all documents.
    pub document: fn(&Self, i64, i64, &mut StdRng) -> Document,
    /// Share of the documents that have expired, 0 to 1, unless the layout has a share of its own.
    pub share: f64,
    /// Bytes of a document's longest field.
    pub bytes: usize,
    /// Fields with an ascending index each, named as the field.
    pub indexes: &'static [&'static str],
    /// Whether documents may have a lifetime of their own in the field `ttl`.
    pub own_ttl: bool,
}

impl Layout {
    /// Returns the filter by which one `deleteMany` finds the expired documents.
    pub(crate) fn expired(&self) -> Document {
        if !self.own_ttl {
            return doc! { "at": { "$lte": date(0) } };
        }
        // The filter that people write by hand: safe on every type, 3600 s if the document has no ttl, and bounded on the index.
        let ttl = doc! { "$cond": [{ "$in": [{ "$type": "$ttl" }, ["int", "long"]] }, "$ttl", 3600] };
        doc! { "at": { "$lte": date(-1) }, "$expr": { "$and": [
            { "$eq": [{ "$type": "$at" }, "date"] },
            { "$lte": ["$at", { "$subtract": [date(0), { "$multiply": [ttl, 1000] }] }] },
        ] } }
    }

    /// Returns sweeper's rule for the same documents, as keys of a YAML flow mapping.
    pub(crate) fn rule(&self) -> String {
        let expiry = if self.own_ttl { "expireAfterSeconds: 3600, ttlField: ttl" } else { "expireAfterSeconds: 0" };
        format!("namespace: bench.c, field: at, allowCollectionScan: true, {expiry}")
    }

    /// Returns a random date that has passed in this layout's share of all cases.
    fn random_date(&self, random: &mut StdRng) -> DateTime {
        date(seconds(self.share, random))
    }

    /// Adds three random numbers and the long field.
    fn body(&self, mut document: Document, random: &mut StdRng) -> Document {
        let [a, b, c] = random.random::<[f64; 3]>();
        document.extend(doc! { "a": a, "b": b, "c": c, "p": "x".repeat(self.bytes) });
        document
    }

    /// Makes a document; three in ten have a lifetime of their own.
    fn with_ttl(&self, n: i64, values: i64, random: &mut StdRng) -> Document {
        let mut document = doc! { "at": date(random.random_range(-14_400..14_400)) };
        if n % 10 < 3 {
            document.insert("ttl", i32::try_from(1 + random.random_range(0..values) * (14_400 / values).max(1)).unwrap_or(1));
        }
        self.body(document, random)
    }
}

/// Documents of about 200 bytes with a random date.
pub(crate) const SMALL: Layout = Layout {
    name: "random dates",
    document: |layout, _, _, random| layout.body(doc! { "at": layout.random_date(random) }, random),
    share: 0.5,
    bytes: 150,
    indexes: &["at"],
    own_ttl: false,
};

pub(crate) const ORDERED: Layout = Layout { name: "ordered dates", document: ordered, ..SMALL };

pub(crate) const FOUR_INDEXES: Layout = Layout { name: "random, four indexes", indexes: &["at", "a", "b", "c"], ..SMALL };

pub(crate) const ORDERED_FOUR_INDEXES: Layout = Layout { name: "ordered, four indexes", document: ordered, ..FOUR_INDEXES };

pub(crate) const LARGE: Layout = Layout { name: "random, 4 kB", bytes: 4000, ..SMALL };

pub(crate) const ONE_PERCENT: Layout = Layout { name: "random, 1 % expired", share: 0.01, ..SMALL };

pub(crate) const NINETY_PERCENT: Layout = Layout { name: "random, 90 % expired", share: 0.9, ..SMALL };

pub(crate) const MULTIKEY: Layout = Layout {
    name: "multikey dates",
    document: |layout, _, _, random| {
        let dates = [0, 1].map(|_| layout.random_date(random));
        layout.body(doc! { "at": dates.to_vec() }, random)
    },
    ..SMALL
};

pub(crate) const ONE_DATE: Layout = Layout {
    name: "one date shared by all",
    document: |layout, n, _, random| layout.body(doc! { "at": date(if n % 2 == 0 { -86_400 } else { 86_400 }) }, random),
    ..SMALL
};

pub(crate) const NO_INDEX: Layout = Layout { name: "no index", indexes: &[], ..SMALL };

pub(crate) const FEW_TTLS: Layout =
    Layout { name: "own ttl, 3 values", document: |layout, n, _, random| layout.with_ttl(n, 3, random), own_ttl: true, ..SMALL };

pub(crate) const MANY_TTLS: Layout = Layout {
    name: "own ttl, 100 000 values",
    document: |layout, n, _, random| layout.with_ttl(n, 100_000, random),
    own_ttl: true,
    ..SMALL
};

/// Documents with nothing but a date: millions of them are inserted quickly, and each costs the server the least.
pub(crate) const TINY: Layout =
    Layout { name: "tiny", document: |layout, _, _, random| doc! { "at": layout.random_date(random) }, ..SMALL };

/// Documents with a number as `_id`. The odd ones do not expire; each has a small field that the foreground updates in place.
pub(crate) const NUMBERED: Layout = Layout { name: "numbered", document: numbered, ..SMALL };

/// Returns a random instant in seconds from now, with this probability in the past.
fn seconds(expired: f64, random: &mut StdRng) -> i64 {
    if random.random_bool(expired) { random.random_range(-1_000_000..=0) } else { random.random_range(MARGIN..1_000_000) }
}

fn ordered(layout: &Layout, n: i64, of: i64, random: &mut StdRng) -> Document {
    let since_now = (n - of / 2) * 5;
    layout.body(doc! { "at": date(if since_now > 0 { since_now + MARGIN } else { since_now }) }, random)
}

fn numbered(layout: &Layout, n: i64, _: i64, random: &mut StdRng) -> Document {
    let at = date(seconds(if n % 2 == 0 { 1.0 } else { 0.0 }, random));
    layout.body(doc! { "_id": n, "at": at, "seen": 0_i64 }, random)
}
