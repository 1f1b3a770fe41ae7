//! Values and documents of all kinds.

use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Decimal128, Document, JavaScriptCodeWithScope, Regex, Timestamp, doc};
use fastrand::Rng;

use super::one_of;
use crate::core::policy::DateFormat;

/// The instant that all rules take for now.
pub(super) const NOW: i64 = 1_800_000_000_000;

/// Differences of dates to now, in milliseconds: at the bounds of the rules, and far from them.
const OFFSETS: [i64; 16] = [
    0,
    1,
    -1,
    -999,
    -1000,
    -1001,
    -59_999,
    -60_000,
    -60_001,
    -3_599_999,
    -3_600_000,
    -3_600_001,
    -86_400_000,
    60_000,
    -NOW,
    -NOW - 1,
];

fn decimal(text: &str) -> Bson {
    Bson::Decimal128(text.parse::<Decimal128>().expect("a decimal"))
}

pub(super) fn date(random: &mut Rng) -> DateTime {
    let millis = match random.u8(0..20) {
        0 => i64::MIN,
        1 => i64::MAX,
        2 => 253_402_300_800_000,
        _ => NOW + one_of(random, &OFFSETS) + random.i64(0..3) * 10,
    };
    DateTime::from_millis(millis)
}

fn object_id(random: &mut Rng) -> Bson {
    let seconds = u32::try_from((NOW + one_of(random, &OFFSETS)).max(0) / 1000).expect("a time before 2106");
    let mut bytes = [if random.bool() { 0 } else { 0xff }; 12];
    bytes[..4].copy_from_slice(&seconds.to_be_bytes());
    bytes[11] = random.u8(0..4);
    ObjectId::from_bytes(bytes).into()
}

pub(super) fn number(random: &mut Rng) -> Bson {
    let whole = match random.u8(0..6) {
        0 => i64::from(random.i32(-2..70)),
        1 => one_of(random, &[60, 3600, 2_147_483_647, -2_147_483_648]).to_owned(),
        2 => (NOW + one_of(random, &OFFSETS)) / 1000,
        3 => NOW + one_of(random, &OFFSETS),
        4 => *one_of(random, &[100_000_000_000, -100_000_000_000, 99_999_999_999, -8_640_000_000_000_001]),
        _ => *one_of(random, &[i64::MIN, i64::MAX, 9_007_199_254_740_993, -1, 0]),
    };
    match random.u8(0..10) {
        0..3 => i32::try_from(whole).map_or(Bson::Int64(whole), Bson::Int32),
        3..5 => Bson::Int64(whole),
        5..7 => Bson::Double(whole as f64),
        7 => Bson::Double(whole as f64 + *one_of(random, &[0.5, 0.001, -0.25])),
        8 => Bson::Double(*one_of(random, &[f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0, 0.0, 1e300, 5e-324])),
        _ => match random.u8(0..3) {
            0 => decimal(&whole.to_string()),
            1 => decimal(&format!("{whole}.50")),
            _ => {
                const TEXTS: [&str; 11] =
                    ["NaN", "Infinity", "-Infinity", "0", "-0", "0.00", "1.5", "1.50", "1E+3", "1000", "1E-6000"];
                decimal(TEXTS[random.usize(..TEXTS.len())])
            }
        },
    }
}

fn text(random: &mut Rng) -> String {
    (*one_of(random, &["", "x", "y", "a.b", "$x", "2027-01-15", "é", "X"])).to_owned()
}

/// Returns a value without others inside that an `_id` can be.
fn plain(random: &mut Rng) -> Bson {
    match random.u8(0..12) {
        0..4 => number(random),
        4 => text(random).into(),
        5 => object_id(random),
        6 => random.bool().into(),
        7 => date(random).into(),
        8 => Bson::Null,
        9 => Bson::Timestamp(Timestamp { time: random.u32(1..4), increment: random.u32(0..2) }),
        10 => {
            let subtype = *one_of(random, &[BinarySubtype::Generic, BinarySubtype::Uuid, BinarySubtype::UserDefined(0x80)]);
            let bytes = if subtype == BinarySubtype::Uuid {
                vec![random.u8(0..3); 16]
            } else {
                vec![random.u8(0..3); random.usize(0..3)]
            };
            Bson::Binary(Binary { subtype, bytes })
        }
        _ => one_of(random, &[Bson::MinKey, Bson::MaxKey]).clone(),
    }
}

/// Returns a value of any type.
pub(super) fn value(random: &mut Rng, depth: u8) -> Bson {
    match random.u8(0..24) {
        0..8 => plain(random),
        8..16 => date(random).into(),
        16 if depth > 0 => Bson::Document(document_inside(random, depth - 1)),
        17..20 if depth > 0 => {
            let length = random.usize(0..4);
            Bson::Array((0..length).map(|_| value(random, depth - 1)).collect())
        }
        20 => Bson::Symbol(text(random)),
        21 => Bson::JavaScriptCode(text(random)),
        22 => match random.u8(0..3) {
            0 => Bson::Undefined,
            1 => Bson::RegularExpression(Regex {
                pattern: "x".try_into().expect("no NUL"),
                options: "i".try_into().expect("no NUL"),
            }),
            _ => Bson::JavaScriptCodeWithScope(JavaScriptCodeWithScope {
                code: text(random),
                scope: doc! { "x": random.i32(0..2) },
            }),
        },
        _ => plain(random),
    }
}

fn document_inside(random: &mut Rng, depth: u8) -> Document {
    let mut inner = Document::new();
    for _ in 0..random.u8(0..3) {
        let name = *one_of(random, &["b", "c", "0", "k"]);
        inner.insert(name, value(random, depth));
    }
    inner
}

/// Returns a value that can be an operand of a comparison: regular expressions and undefined have a meaning of their own there.
pub(super) fn operand(random: &mut Rng) -> Bson {
    loop {
        let value = value(random, 2);
        let is_odd = |value: &Bson| matches!(value, Bson::RegularExpression(_) | Bson::Undefined);
        if !is_odd(&value) {
            return value;
        }
    }
}

pub(super) fn id(random: &mut Rng) -> Bson {
    match random.u8(0..10) {
        0..4 => random.i32(0..60).into(),
        4 => object_id(random),
        5 => Bson::Document(document_inside(random, 0)),
        6 => format!("s{}", random.u8(0..20)).into(),
        _ => plain(random),
    }
}

/// Returns the `_id` of a document that the beginning has probably inserted.
pub(super) fn likely_id(random: &mut Rng) -> Bson {
    if random.u8(0..8) > 0 { random.i32(0..25).into() } else { id(random) }
}

fn ttl(random: &mut Rng) -> Bson {
    match random.u8(0..6) {
        0 => value(random, 1),
        1 => number(random),
        2 => one_of(random, &[Bson::Double(60.0), Bson::Double(0.5), Bson::Int64(60), Bson::Int64(1 << 40)]).clone(),
        _ => (*one_of(random, &[-1, 0, 1, 60, 3600, -7, 1_000_000_000])).into(),
    }
}

/// The traits that most documents of a sequence share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    /// Format of most dates.
    pub format: DateFormat,
    /// Whether arrays are among the dates, which makes an index multikey.
    pub has_arrays: bool,
}

impl Shape {
    pub(super) fn any(random: &mut Rng) -> Self {
        use DateFormat::{Date, EpochMillis, EpochSeconds, Iso8601, ObjectId};
        Self {
            format: *one_of(random, &[Date, Date, Date, Date, EpochSeconds, EpochMillis, ObjectId, Iso8601]),
            has_arrays: random.bool(),
        }
    }

    /// Returns a date as most documents have it.
    pub(super) fn date(self, random: &mut Rng) -> Bson {
        let at = date(random);
        match self.format {
            DateFormat::Date => at.into(),
            DateFormat::ObjectId => object_id(random),
            DateFormat::EpochMillis => Bson::Int64(at.timestamp_millis()),
            DateFormat::EpochSeconds if random.bool() => Bson::Double(at.timestamp_millis() as f64 / 1000.0),
            DateFormat::EpochSeconds => Bson::Int64(at.timestamp_millis() / 1000),
            DateFormat::Iso8601 => rfc3339(random, at).into(),
        }
    }
}

/// Returns a date as text, mostly by RFC 3339.
fn rfc3339(random: &mut Rng, at: DateTime) -> String {
    let fraction = *one_of(random, &["", ".5", ".999", ".000001", ".123456789", ".1234567890", ".", ".x"]);
    let offset =
        *one_of(random, &["Z", "Z", "z", "+00:00", "-00:00", "+23:59", "-05:30", "+24:00", "+0200", "", "é", " Z", "+02:0Z"]);
    let seconds = chrono::DateTime::from_timestamp_millis(at.timestamp_millis()).unwrap_or_default();
    let format = *one_of(
        random,
        &["%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dt%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-02-30T%H:%M:%S"],
    );
    format!("{}{fraction}{offset}", seconds.format(format))
}

/// Returns a document with the fields that the rules look at.
pub(super) fn document(random: &mut Rng, shape: Shape, id: Bson) -> Document {
    let mut fields = Vec::new();
    let at = match random.u8(0..16) {
        0 => None,
        1 => Some(number(random)),
        2 => Some(object_id(random)),
        3 => Some(date(random).into()),
        4 => Some(value(random, if shape.has_arrays { 2 } else { 0 })),
        5..8 if shape.has_arrays => {
            let length = random.usize(0..4);
            let dates = (0..length).map(|_| if random.u8(0..4) == 0 { value(random, 1) } else { shape.date(random) });
            Some(Bson::Array(dates.collect()))
        }
        _ => Some(shape.date(random)),
    };
    fields.extend(at.map(|at| ("at", at)));
    if random.bool() {
        let below =
            |random: &mut Rng| Bson::from(doc! { "b": if random.bool() { date(random).into() } else { value(random, 2) } });
        let a = match random.u8(0..5) {
            0 => value(random, 2),
            1 => Bson::Array((0..random.usize(0..3)).map(|_| below(random)).collect()),
            2 => Bson::Array(vec![below(random), value(random, 2)]),
            _ => below(random),
        };
        fields.push(("a", a));
    }
    if random.u8(0..3) == 0 {
        let name = *one_of(random, &["ttl", "ttl", "ttl", "Ttl", "TTL"]);
        fields.push((name, ttl(random)));
    }
    if random.u8(0..3) > 0 {
        fields.push(("kind", text(random).into()));
    }
    if random.u8(0..4) == 0 {
        fields.push(("n", value(random, 2)));
    }
    let place = random.usize(0..=fields.len());
    fields.insert(if random.bool() { 0 } else { place }, ("_id", id));
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}
