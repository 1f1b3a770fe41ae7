//! Random values of documents: `_id`s, dates of every format, own ttls, and the fields of filters and holds.

use fastrand::Rng;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Timestamp, doc};

use super::databases::AS_OF_MS;
use super::filters::{self, AGES};
use crate::support::corpus::scalars;

/// Returns an `_id`; no two of different `n` are equal numbers.
pub(super) fn id(n: usize, instants: &[i64], random: &mut Rng) -> Bson {
    let number = n as i32;
    match random.u8(0..14) {
        0..4 => number.into(),
        4 => i64::from(number).into(),
        5 => (f64::from(number) + 0.5).into(),
        6 => number.to_string().into(),
        // A collation that ignores case takes two of these for one.
        7 | 8 => format!("{}{}", if n.is_multiple_of(2) { "k" } else { "K" }, n / 2).into(),
        9 => doc! { "a": number, "b": [1, "x"] }.into(),
        10 => Binary { subtype: BinarySubtype::Uuid, bytes: vec![u8::try_from(n % 256).expect("a byte"); 16] }.into(),
        11 => DateTime::from_millis(n as i64).into(),
        _ => object_id(instants[random.usize(0..instants.len())], n).into(),
    }
}

/// Returns an ObjectId of an instant, in whole seconds.
pub(super) fn object_id(ms: i64, n: usize) -> ObjectId {
    let mut bytes = [u8::try_from(n % 256).expect("a byte"); 12];
    let seconds = u32::try_from(ms.div_euclid(1000).max(0)).unwrap_or(u32::MAX);
    bytes[..4].copy_from_slice(&seconds.to_be_bytes());
    ObjectId::from_bytes(bytes)
}

/// Returns a value of a date that is no BSON date.
pub(super) fn other_date(format: &str, instants: &[i64], random: &mut Rng) -> Bson {
    if random.u8(0..8) == 0 {
        let strange: Vec<Bson> = scalars().into_iter().filter(|value| filters::number(value).is_none()).collect();
        return strange[random.usize(0..strange.len())].clone();
    }
    let one = |random: &mut Rng| {
        let ms = instants[random.usize(0..instants.len())];
        match format {
            "epochSeconds" => match random.u8(0..4) {
                0 => Bson::Int32(i32::try_from(ms / 1000).unwrap_or(i32::MAX)),
                // Halves are exact in a double.
                1 => (ms.div_euclid(1000) as f64 + 0.5).into(),
                _ => (ms.div_euclid(1000)).into(),
            },
            "epochMillis" => match random.u8(0..3) {
                0 => (ms as f64).into(),
                _ => ms.into(),
            },
            "objectId" => object_id(ms, random.usize(0..256)).into(),
            _ => match random.u8(0..8) {
                0 => "2001-01-01T00:00:00".into(),
                1 => "2001-01-01".into(),
                2 => DateTime::from_millis(ms).try_to_rfc3339_string().unwrap_or_default().replace('Z', "+00:00").into(),
                _ => DateTime::from_millis(ms).try_to_rfc3339_string().unwrap_or_default().into(),
            },
        }
    };
    match random.u8(0..6) {
        0 => Bson::Array((0..random.usize(0..3)).map(|_| one(random)).collect()),
        // In the other unit.
        1 if format == "epochSeconds" => AS_OF_MS.into(),
        1 if format == "epochMillis" => (AS_OF_MS / 1000).into(),
        _ => one(random),
    }
}

pub(super) fn own_ttl(random: &mut Rng) -> Option<Bson> {
    Some(match random.u8(0..28) {
        0..8 => return None,
        8..11 => 60.into(),
        11 => 3600_i64.into(),
        12 => 60.0.into(),
        13 => (-1).into(),
        14 => (-1_i64).into(),
        15 => (-1.0).into(),
        16 => 0.into(),
        17 => (-5).into(),
        18 => 20.5.into(),
        19 => 2_147_483_648_i64.into(),
        20 => f64::NAN.into(),
        21 => "60".into(),
        22 => Bson::Null,
        23 => Bson::Decimal128("60".parse().expect("a decimal")),
        24 => vec![Bson::from(60)].into(),
        25 => i64::MIN.into(),
        26 => true.into(),
        _ => i32::MAX.into(),
    })
}

pub(super) fn text(random: &mut Rng) -> Option<Bson> {
    Some(match random.u8(0..10) {
        0 => return None,
        1 => Bson::Null,
        2 => 3.into(),
        3 | 4 => "done".into(),
        5 => "X".into(),
        6 => "Done".into(),
        _ => ["x", "y"][random.usize(0..2)].into(),
    })
}

pub(super) fn amount(random: &mut Rng) -> Option<Bson> {
    let n = random.i32(0..6);
    Some(match random.u8(0..10) {
        0 => return None,
        1 => Bson::Null,
        2 => i64::from(n).into(),
        3 => f64::from(n).into(),
        4 => (f64::from(n) + 0.5).into(),
        5 => vec![Bson::from(n), Bson::from("x")].into(),
        6 => "3".into(),
        _ => n.into(),
    })
}

/// Returns a second date of a document, around those of relative dates, or a value of another type.
pub(super) fn seen(random: &mut Rng) -> Option<Bson> {
    let date = |random: &mut Rng| DateTime::from_millis(AS_OF_MS - AGES[random.usize(0..AGES.len())].1 + random.i64(-1..2));
    Some(match random.u8(0..12) {
        0 => return None,
        1 => Bson::Null,
        2 => "done".into(),
        3 => random.i32(0..6).into(),
        4 => Bson::Timestamp(Timestamp { time: 1_000_000_000, increment: 1 }),
        5 => vec![Bson::from(date(random)), Bson::from(date(random))].into(),
        6 => vec![Bson::from("x"), Bson::from(date(random))].into(),
        7 => object_id(AS_OF_MS, 1).into(),
        8 => vec![Bson::from(vec![Bson::from(date(random))])].into(),
        _ => date(random).into(),
    })
}

/// Returns a value that a hold and a document may share.
pub(super) fn key(random: &mut Rng) -> Bson {
    let n = random.i32(0..8);
    match random.u8(0..6) {
        0 => f64::from(n).into(),
        1 => i64::from(n).into(),
        2 | 3 => format!("t{n}").into(),
        _ => n.into(),
    }
}

/// Returns the value of `num`: two parents share one, few have none or several.
pub(super) fn number(n: usize, random: &mut Rng) -> Option<Bson> {
    match random.u8(0..16) {
        0 => None,
        1 => Some(Bson::Null),
        2 => Some(vec![Bson::from((n / 2) as i32), Bson::from(-1)].into()),
        _ => Some(((n / 2) as i32).into()),
    }
}
