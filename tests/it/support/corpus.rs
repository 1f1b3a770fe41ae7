//! Documents of every shape around a field path, identical in every run.

use mongodb::bson::oid::ObjectId;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Document, JavaScriptCodeWithScope, Regex, Timestamp, doc};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

/// Makes documents from a seed and the dates that may occur in them.
pub(crate) struct Corpus {
    random: StdRng,
    dates: Vec<DateTime>,
    scalars: Vec<Bson>,
}

impl Corpus {
    pub(crate) fn new(seed: u64, dates: &[DateTime]) -> Self {
        Self { random: StdRng::seed_from_u64(seed), dates: dates.to_vec(), scalars: scalars() }
    }

    /// Returns documents with `_id`s from 0, a `tag` from 0 to 4, and random shapes at the path and around it.
    pub(crate) fn around(&mut self, path: &str, count: i32) -> Vec<Document> {
        let names: Vec<&str> = path.split('.').collect();
        (0..count)
            .map(|id| {
                let mut document = doc! { "_id": id, "tag": self.random.random_range(0..5) };
                if !self.one_in(30) {
                    document.insert(names[0], self.below(&names[1..], 3));
                }
                if names.len() > 1 && self.one_in(20) {
                    document.insert(path, self.date());
                }
                if self.one_in(20) {
                    document.insert(format!("{}x", names[0]), self.date());
                }
                document
            })
            .collect()
    }

    /// Returns a value in which the path continues with `rest`.
    fn below(&mut self, rest: &[&str], depth: u32) -> Bson {
        let Some(name) = rest.first() else { return self.leaf(depth) };
        match self.random.random_range(0..13) {
            0..7 => self.document(rest, depth).into(),
            7..10 if depth > 0 => {
                let length = self.random.random_range(1..4);
                // Some elements end the path, so that reachable and unreachable dates are side by side.
                Bson::Array(
                    (0..length).map(|_| if self.one_in(3) { self.leaf(1) } else { self.below(rest, depth - 1) }).collect(),
                )
            }
            10..12 => {
                let length = name.parse::<usize>().map_or(1, |index| index.min(3) + 1) + self.random.random_range(0..2);
                Bson::Array((0..length).map(|_| self.below(&rest[1..], depth.saturating_sub(1))).collect())
            }
            _ => self.leaf(depth),
        }
    }

    fn document(&mut self, rest: &[&str], depth: u32) -> Document {
        let mut document = Document::new();
        if self.one_in(15) {
            document.insert(rest[0].to_uppercase(), self.date());
        }
        if rest.len() > 1 && self.one_in(15) {
            document.insert(rest.join("."), self.date());
        }
        if !self.one_in(15) {
            document.insert(rest[0], self.below(&rest[1..], depth));
        }
        if self.one_in(15) {
            document.insert("other", self.date());
        }
        document
    }

    fn leaf(&mut self, depth: u32) -> Bson {
        match self.random.random_range(0..10) {
            0..5 => self.date(),
            5 => self.scalars.choose(&mut self.random).cloned().unwrap_or(Bson::Null),
            6..9 if depth > 0 => {
                let length = self.random.random_range(0..4);
                Bson::Array((0..length).map(|_| self.leaf(depth - 1)).collect())
            }
            9 => Bson::Document(doc! { "0": self.date(), "b": self.date() }),
            _ => self.date(),
        }
    }

    fn date(&mut self) -> Bson {
        self.dates.choose(&mut self.random).copied().map_or(Bson::Null, Bson::DateTime)
    }

    fn one_in(&mut self, n: u32) -> bool {
        self.random.random_range(0..n) == 0
    }
}

/// Returns values of every type except Date, Array and Document, several for types with edge cases. None of them, taken for a
/// date, would be in the future.
pub(crate) fn scalars() -> Vec<Bson> {
    let pointer = serde_json::json!({ "$dbPointer": { "$ref": "c", "$id": { "$oid": "3a0000000000000000000000" } } });
    let mut all = vec![
        Bson::Null,
        Bson::Undefined,
        Bson::MinKey,
        Bson::MaxKey,
        true.into(),
        false.into(),
        0_i32.into(),
        i32::MIN.into(),
        978_307_200_i32.into(),
        0_i64.into(),
        978_307_200_000_i64.into(),
        i64::MIN.into(),
        i64::MAX.into(),
        (-0.0_f64).into(),
        978_307_200.5_f64.into(),
        f64::NAN.into(),
        f64::INFINITY.into(),
        f64::NEG_INFINITY.into(),
        "".into(),
        "2001-01-01T00:00:00Z".into(),
        Bson::Symbol("2001-01-01".into()),
        Bson::RegularExpression(Regex { pattern: "2001".try_into().expect("no NUL"), options: "i".try_into().expect("no NUL") }),
        Bson::JavaScriptCode("new Date(0)".into()),
        Bson::JavaScriptCodeWithScope(JavaScriptCodeWithScope {
            code: "d".into(),
            scope: doc! { "d": DateTime::from_millis(0) },
        }),
        Bson::Timestamp(Timestamp { time: 0, increment: 0 }),
        Bson::Timestamp(Timestamp { time: 978_307_200, increment: 1 }),
        ObjectId::from_bytes([0; 12]).into(),
        ObjectId::parse_str("3a4fc8800000000000000000").expect("an ObjectId").into(),
        Bson::try_from(pointer).expect("a DBPointer"),
    ];
    for subtype in [BinarySubtype::Generic, BinarySubtype::Uuid] {
        all.push(Bson::Binary(Binary { subtype, bytes: vec![0; 16] }));
    }
    for decimal in ["0", "-1", "978307200", "NaN", "Infinity", "-Infinity"] {
        all.push(Bson::Decimal128(decimal.parse().expect("a decimal")));
    }
    all
}
