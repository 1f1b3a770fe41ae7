//! Documents with dates around the threshold, and with whatever else collections hold.

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, Timestamp, doc};

use super::oracle::{Format, Rule};
use super::scenario::{START, SweptRule};

/// A source of documents.
pub(super) struct Documents<'a> {
    pub random: &'a mut fastrand::Rng,
    /// The instant at which the runs judge expiry, or about so.
    pub as_of: i64,
}

impl Documents<'_> {
    /// Returns the documents that the namespace of a rule has at the start.
    pub(super) fn fill(&mut self, swept: &SweptRule) -> Vec<Document> {
        (0..swept.documents).map(|number| self.first(swept, number)).collect()
    }

    fn first(&mut self, swept: &SweptRule, number: u32) -> Document {
        let id = self.id(swept, number);
        self.with_id(&swept.rule, id)
    }

    fn id(&mut self, swept: &SweptRule, number: u32) -> Bson {
        if swept.has_object_ids && swept.rule.field != "_id" {
            return object_id(START / 1000 - i64::from(number), number).into();
        }
        if swept.rule.field == "_id" {
            let seconds = self.moment(&swept.rule, None).div_euclid(1000);
            return object_id(seconds, number).into();
        }
        match self.random.u8(..20) {
            0 => format!("n{number}").into(),
            1 => object_id(START / 1000, number).into(),
            2 => doc! { "n": number }.into(),
            3 => Bson::Int64(i64::from(number)),
            4 => Bson::Double(f64::from(number) + 0.5),
            _ => Bson::Int32(i32::try_from(number).expect("few documents")),
        }
    }

    /// Returns a document with an `_id`.
    pub(super) fn with_id(&mut self, rule: &Rule, id: Bson) -> Document {
        let mut document = doc! { "_id": id };
        let ttl = rule.ttl_field.map(|field| (field, self.ttl()));
        if rule.field != "_id" {
            let own = ttl.as_ref().and_then(|(_, ttl)| ttl.as_ref()).and_then(seconds);
            if let Some(value) = self.value(rule, own) {
                document.insert(rule.field, value);
            }
        }
        if let Some((field, Some(ttl))) = ttl {
            document.insert(field, ttl);
        }
        match self.random.u8(..4) {
            0 => drop(document.insert("status", "held")),
            1 => {}
            _ => drop(document.insert("status", "done")),
        }
        // Two states of one document are told apart by it.
        document.insert("v", self.random.i32(0..));
        document
    }

    fn ttl(&mut self) -> Option<Bson> {
        Some(match self.random.u8(..14) {
            0 => (-1).into(),
            1 => 0.into(),
            2 => Bson::Double(20.5),
            3 => Bson::Int64(2_147_483_648),
            4 => f64::NAN.into(),
            5 => "60".into(),
            6 => Bson::Null,
            7 => Bson::Double(f64::from(self.random.u16(1..))),
            8 => Bson::Int64(self.random.i64(1..100_000)),
            9 | 10 => return None,
            _ => Bson::Int32(self.random.i32(1..100_000)),
        })
    }

    /// Returns an instant near the one from which on the documents of a rule have expired.
    fn moment(&mut self, rule: &Rule, own_ttl: Option<i64>) -> i64 {
        let threshold = self.as_of - own_ttl.or(rule.expire_after).unwrap_or(1000) * 1000;
        match self.random.u8(..12) {
            0 => threshold - 1,
            1 => threshold,
            2 => threshold + 1,
            3 => threshold + self.random.i64(-2000..2000),
            4 => self.as_of + self.random.i64(..1_000_000),
            5 if rule.format == Format::Date => -self.random.i64(..1_000_000_000),
            6 | 7 => threshold + self.random.i64(1..1_000_000_000),
            _ => threshold - self.random.i64(1..1_000_000_000),
        }
    }

    /// Returns a value of the rule's field; `None` if the document lacks it.
    fn value(&mut self, rule: &Rule, own_ttl: Option<i64>) -> Option<Bson> {
        let date = self.date(rule, own_ttl);
        Some(match self.random.u8(..24) {
            0 => vec![date, self.date(rule, own_ttl)].into(),
            1 => vec![Bson::from("x"), date, Bson::Null].into(),
            2 => Bson::Array(Vec::new()),
            3 => vec![Bson::from(vec![date])].into(),
            4 => doc! { "d": date }.into(),
            5 => "2001-01-01".into(),
            6 => Bson::Null,
            7 => self.other_type(rule),
            8 => return None,
            _ => date,
        })
    }

    /// Returns a date in the format of a rule.
    pub(super) fn date(&mut self, rule: &Rule, own_ttl: Option<i64>) -> Bson {
        let moment = self.moment(rule, own_ttl);
        in_format(rule.format, moment, self.random.u8(..))
    }

    /// Returns a value with the type or the magnitude of another format.
    fn other_type(&mut self, rule: &Rule) -> Bson {
        let long_ago = self.as_of - 10_000_000_000;
        match (rule.format, self.random.u8(..4)) {
            (_, 0) => Bson::Boolean(true),
            (_, 1) => Timestamp { time: 5, increment: 1 }.into(),
            (Format::Date, _) => Bson::Int64(long_ago),
            (Format::EpochSeconds, _) => Bson::Int64(long_ago),
            (Format::EpochMillis, _) => Bson::Int64(long_ago / 1000),
            (Format::ObjectId, _) | (Format::Iso8601, 2) => DateTime::from_millis(long_ago).into(),
            (Format::Iso8601, _) => "2001-01-01T00:00:00".into(),
        }
    }
}

/// Returns an instant as documents of a format hold it; `how` chooses among the types.
pub(super) fn in_format(format: Format, moment: i64, how: u8) -> Bson {
    match (format, how % 4) {
        (Format::Date, _) => DateTime::from_millis(moment).into(),
        (Format::ObjectId, _) => object_id(moment.div_euclid(1000), u32::from(how)).into(),
        (Format::EpochSeconds, 0) => Bson::Double(moment.div_euclid(500) as f64 / 2.0),
        (Format::EpochSeconds, 1) => Bson::Int32(i32::try_from(moment.div_euclid(1000)).unwrap_or(0)),
        (Format::EpochSeconds, _) => Bson::Int64(moment.div_euclid(1000)),
        (Format::EpochMillis, 0) => Bson::Double(moment as f64),
        (Format::EpochMillis, _) => Bson::Int64(moment),
        (Format::Iso8601, how) => text(moment, how).into(),
    }
}

/// Returns an instant by RFC 3339, in one of four ways.
fn text(moment: i64, how: u8) -> String {
    let written = |offset: i64, format: &str| {
        let at = chrono::DateTime::from_timestamp_millis(moment + offset * 60_000).unwrap_or_default();
        at.format(format).to_string()
    };
    match how {
        0 => written(0, "%Y-%m-%dT%H:%M:%S%.3fZ"),
        1 => written(330, "%Y-%m-%dt%H:%M:%S%.6f+05:30"),
        2 => written(-1439, "%Y-%m-%dT%H:%M:%S%.9f-23:59"),
        _ => written(0, "%Y-%m-%dT%H:%M:%S%.3fz"),
    }
}

/// Returns an ObjectId of a second, one of many.
pub(super) fn object_id(seconds: i64, number: u32) -> ObjectId {
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&u32::try_from(seconds).unwrap_or(0).to_be_bytes());
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    ObjectId::from_bytes(bytes)
}

/// Returns a ttl that counts.
fn seconds(ttl: &Bson) -> Option<i64> {
    match ttl {
        Bson::Int32(n) if *n > 0 => Some(i64::from(*n)),
        Bson::Int64(n) if *n > 0 && *n < 1 << 31 => Some(*n),
        Bson::Double(n) if *n > 0.0 && n.fract() == 0.0 => Some(*n as i64),
        _ => None,
    }
}
