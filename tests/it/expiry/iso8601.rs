//! Dates stored as strings: exactly those by RFC 3339 with `Z` or an offset expire, and no text, valid or not, stops a sweep.

use chrono::{NaiveDate, NaiveTime};
use mongodb::bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};

use crate::support::corpus::scalars;
use crate::support::sweeper::{Case, id_set};

/// The current time of the runs, and the threshold of one hour in milliseconds.
const AS_OF: &str = "2024-05-01T12:00:00.123Z";
const T: i64 = 1_714_561_200_123;

/// Returns the milliseconds since 1970 of a text by RFC 3339, rounded up; `None` for any other text.
fn reference(text: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?.to_ascii_uppercase();
    let number = |from: usize, to: usize| -> Option<u32> {
        let part = text.get(from..to).filter(|part| part.bytes().all(|byte| byte.is_ascii_digit()))?;
        part.parse().ok()
    };
    for (place, byte) in [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')] {
        if text.as_bytes().get(place) != Some(&byte) {
            return None;
        }
    }
    let date = NaiveDate::from_ymd_opt(number(0, 4)?.try_into().ok()?, number(5, 7)?, number(8, 10)?)?;
    let time = NaiveTime::from_hms_opt(number(11, 13)?, number(14, 16)?, number(17, 19)?)?;
    let zone_at = text.get(19..)?.find(['Z', '+', '-'])? + 19;
    let nanos: i64 = match text[19..zone_at].strip_prefix('.') {
        None if zone_at == 19 => 0,
        Some(digits) if (1..=9).contains(&digits.len()) && number(20, zone_at).is_some() => {
            format!("{digits:0<9}").parse().ok()?
        }
        _ => return None,
    };
    let minutes = match &text[zone_at..] {
        "Z" => 0,
        zone if zone.len() == 6 && zone.as_bytes()[3] == b':' && !zone.starts_with('Z') => {
            let (hours, minutes) = (number(zone_at + 1, zone_at + 3)?, number(zone_at + 4, zone_at + 6)?);
            let offset = i64::from(hours * 60 + minutes);
            (hours < 24 && minutes < 60).then_some(if zone.starts_with('+') { offset } else { -offset })?
        }
        _ => return None,
    };
    Some(date.and_time(time).and_utc().timestamp_millis() - minutes * 60_000 + (nanos + 999_999) / 1_000_000)
}

/// Makes texts that are dates, or almost.
struct Texts(StdRng);

impl Texts {
    fn one<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of.choose(&mut self.0).copied().unwrap_or_default()
    }

    fn text(&mut self) -> Vec<u8> {
        let second = match self.0.random_range(0..4) {
            0 => self.any_second(),
            _ => self.near(),
        };
        let mut text = second.into_bytes();
        if self.0.random_range(0..3) == 0 {
            let place = self.0.random_range(0..=text.len());
            let byte = if self.0.random() { self.0.random() } else { *b"0123456789+-:.TtZz \0,".choose(&mut self.0).unwrap() };
            match self.0.random_range(0..3) {
                0 => text.insert(place, byte),
                1 if place < text.len() => text[place] = byte,
                _ => text.truncate(place),
            }
        }
        text
    }

    /// Returns a text whose instant is near the threshold, if it is one.
    fn near(&mut self) -> String {
        let offset = self.0.random_range(-1439..1440_i64);
        let millis = T + *[0, 0, 1, -1, 1000, -1000, 86_400_000, -86_400_000].choose(&mut self.0).unwrap() + offset * 60_000;
        let at = chrono::DateTime::from_timestamp_millis(millis).unwrap();
        let separator = self.one(&["T", "T", "T", "T", "t", " ", "_"]);
        let more = self.one(&["", "", "", "0", "000", "000000", "1", "001", "000001", "0000001", "x"]);
        let point = self.one(&[".", ".", ".", ".", ","]);
        let mut zone = format!("{}{:02}:{:02}", if offset < 0 { '-' } else { '+' }, offset.abs() / 60, offset.abs() % 60);
        if self.0.random_range(0..6) == 0 {
            zone = self.one(&["Z", "z", "+0200", "+02", "", "UTC", " Z", "-00:00", "+24:00", "+01:60", "EST"]).to_owned();
        }
        format!(
            "{}{separator}{}{point}{:03}{more}{zone}",
            at.format("%Y-%m-%d"),
            at.format("%H:%M:%S"),
            at.timestamp_subsec_millis()
        )
    }

    /// Returns a text that may name an impossible date or time.
    fn any_second(&mut self) -> String {
        let mut within = |last: u32, beyond: u32| {
            let most = if self.0.random_range(0..6) == 0 { beyond } else { last };
            self.0.random_range(0..=most)
        };
        let (year, month, day) = (within(9999, 9999), within(11, 12) + 1, within(27, 31) + 1);
        let (hour, minute, second) = (within(23, 25), within(59, 61), within(59, 61));
        let fraction = self.one(&["", "", ".5", ".123456789", ".1234567890", "."]);
        let zone = self.one(&["Z", "z", "+00:00", "+23:59", "-23:59", "-00:00", ""]);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}{zone}")
    }
}

/// Returns a document whose value is a text that need not be valid UTF-8, in a place of one of four kinds.
fn raw(id: i32, text: &[u8], place: usize) -> Vec<u8> {
    let string = |name: &str| string(name, text);
    let value = match place {
        0 => string("x"),
        // An array: a number, the text, null and another text.
        1 => inside(4, "x", &[&b"\x100\0\x05\0\0\0"[..], &string("1"), b"\x0a2\0\x023\0\x03\0\0\0no\0"].concat()),
        // A path through an array of documents.
        2 => inside(4, "a", &[&inside(3, "0", &string("b"))[..], b"\x0a1\0"].concat()),
        // An array in an array, which no index enters.
        _ => inside(4, "x", &inside(4, "0", &string("0"))),
    };
    framed(&[b"\x10_id\0", &id.to_le_bytes()[..], &value].concat())
}

fn framed(body: &[u8]) -> Vec<u8> {
    let length = i32::try_from(body.len() + 5).unwrap();
    [&length.to_le_bytes()[..], body, &[0]].concat()
}

fn string(name: &str, text: &[u8]) -> Vec<u8> {
    let length = i32::try_from(text.len() + 1).unwrap();
    [&[2], name.as_bytes(), &[0], &length.to_le_bytes()[..], text, &[0]].concat()
}

fn inside(kind: u8, name: &str, body: &[u8]) -> Vec<u8> {
    [&[kind], name.as_bytes(), &[0], &framed(body)[..]].concat()
}

/// Inserts documents whose text the driver would not decode.
async fn insert(case: &Case, name: &str, documents: &[Vec<u8>]) {
    let list = (0..)
        .zip(documents)
        .flat_map(|(place, document): (usize, _)| [&[3], place.to_string().as_bytes(), &[0], document].concat());
    let list: Vec<u8> = list.collect();
    let command = framed(&[string("insert", name.as_bytes()), inside(4, "documents", &list)].concat());
    let inserted = case.db.run_raw_command(RawDocumentBuf::from_bytes(command).unwrap()).await.expect("a reply");
    assert_eq!(inserted.get_i32("n").ok(), i32::try_from(documents.len()).ok(), "{inserted}");
}

#[tokio::test]
async fn thousands_of_texts_go_or_stay_as_a_plain_reader_says() {
    let case = Case::new().await;
    let mut texts = Texts(StdRng::seed_from_u64(16));
    let mut all: Vec<Vec<u8>> = (0..4000).map(|_| texts.text()).collect();
    // Each byte at each place of a date that has long expired.
    let old = b"2020-01-31T12:34:56.789+01:30";
    for place in 0..old.len() {
        all.extend((0..=255).step_by(5).chain(0x7f..0x82).map(|byte| {
            let mut text = old.to_vec();
            text[place] = byte;
            text
        }));
    }
    let dates = all.iter().filter(|text| reference(text).is_some()).count();
    assert!(dates > 500 && all.len() - dates > 500, "{dates} of {} texts are dates", all.len());
    let expected = id_set((0_i32..).zip(&all).filter(|(_, text)| reference(text).is_none_or(|at| at > T)).map(|(id, _)| id));
    let mut rules = String::new();
    let weak = "collation: {locale: en, strength: 1, numericOrdering: true}";
    let cases =
        [("x", 0, "batchSize: 700"), ("x", 0, weak), ("x", 1, "rate: 100000"), ("a.b", 2, "batchSize: 50"), ("x", 3, "rate: 9")];
    for (number, (field, place, key)) in cases.into_iter().enumerate() {
        let documents: Vec<Vec<u8>> = (0_i32..).zip(&all).map(|(id, text)| raw(id, text, place)).collect();
        insert(&case, &format!("c{number}"), &documents).await;
        rules += &format!("  - {{namespace: DB.c{number}, field: {field}, expireAfter: 1h, dateFormat: iso8601, {key}}}\n");
    }
    let dry = case.report(&rules, &["--dry-run", "--as-of", AS_OF]).await;
    let swept = case.report(&rules, &["--as-of", AS_OF]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    for (number, (.., place, key)) in cases.into_iter().enumerate() {
        let left = case.ids(&format!("c{number}")).await;
        if place == 3 {
            assert_eq!(left.len(), all.len(), "nothing in an array in an array is a date");
            continue;
        }
        let differs = (0_i32..).zip(&all).find(|(id, _)| {
            let id = id_set([*id]);
            left.is_superset(&id) != expected.is_superset(&id)
        });
        let text = differs.map(|(id, text)| (id, text.escape_ascii().to_string(), reference(text)));
        assert_eq!(text, None, "{number}, {key}");
        let going = all.len() - expected.len();
        assert_eq!((dry.rule(number, "expiredCount"), swept.rule(number, "deletedCount")), (&going.into(), &going.into()));
        // Of the other places the value of the field is not a string itself.
        let unread = if place == 0 { all.len() - dates } else { 0 };
        for report in [&dry, &swept] {
            assert_eq!(report.rule(number, "neverExpires"), &serde_json::json!({ "string": unread }), "{number}");
        }
    }
}

/// Fills collections with values, with and without an index, sweeps them, and compares what is left.
async fn compare(table: &[(Bson, bool)], rule: &str, document: impl Fn(i32, &Bson) -> Document) {
    let case = Case::new().await;
    let mut rules = String::new();
    for key in [0, 1, -1] {
        let name = format!("c{key}");
        case.fill(&name, (0..).zip(table).map(|(id, (value, _))| document(id, value))).await;
        if key != 0 {
            let index = doc! { "createIndexes": &name, "indexes": [{ "name": "i", "key": { "x": key } }] };
            case.db.run_command(index).await.expect("an index");
        }
        rules += &format!("  - {{namespace: DB.{name}, field: x, dateFormat: iso8601, {rule}}}\n");
    }
    let dry = case.run(&rules, &["sweep", "--dry-run", "-v", "--as-of", AS_OF]).await;
    let said = dry.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    assert_eq!(said.matches("collection scan (no index serves dates in strings)").count(), 3, "{dry:?}");
    let swept = case.report(&rules, &["--as-of", AS_OF]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    for (number, key) in [0, 1, -1].into_iter().enumerate() {
        let left = case.ids(&format!("c{key}")).await;
        let wrong: Vec<_> = (0_i32..).zip(table).filter(|(id, (_, goes))| left.is_superset(&id_set([*id])) == *goes).collect();
        assert!(wrong.is_empty(), "{rule}, index {key}: {wrong:?}");
        let (found, why) = (swept.rule(number, "strategy"), swept.rule(number, "orderReason"));
        assert_eq!((found, why), (&"collectionScan".into(), &"no index serves dates in strings".into()), "{swept:?}");
    }
}

#[tokio::test]
async fn strings_expire_to_the_millisecond_and_no_other_value_does() {
    let mut table: Vec<(Bson, bool)> = Vec::new();
    for (text, goes) in [
        ("2024-05-01T11:00:00.123Z", true),
        ("2024-05-01T11:00:00.122999999Z", true),
        ("2024-05-01T11:00:00.1230Z", true),
        ("2024-05-01T11:00:00.123000Z", true),
        ("2024-05-01T11:00:00.123001Z", false),
        ("2024-05-01T11:00:00.123000001Z", false),
        ("2024-05-01T11:00:00.124Z", false),
        ("2024-05-01T11:00:00Z", true),
        ("2024-05-01T11:00:01Z", false),
        ("2024-05-01T13:00:00.123+02:00", true),
        ("2024-05-01T13:00:00.124+02:00", false),
        ("2024-05-01T05:30:00.123-05:30", true),
        ("2024-05-01T05:30:00.124-05:30", false),
        ("2024-05-02T10:59:00.123+23:59", true),
        ("2024-05-02T10:59:00.124+23:59", false),
        ("2024-04-30T11:01:00.123-23:59", true),
        ("2024-05-01t11:00:00z", true),
        ("2024-05-01T11:00:00-00:00", true),
        ("0000-01-01T00:00:00Z", true),
        ("0000-01-01T00:00:00+23:59", true),
        ("0000-02-29T00:00:00Z", true),
        ("1969-12-31T23:59:59.999Z", true),
        ("2020-02-29T00:00:00Z", true),
        ("9999-12-31T23:59:59Z", false),
        ("9999-12-31T23:59:59-23:59", false),
        // No offset, another offset or another form.
        ("2020-01-01", false),
        ("2020-01-01T00:00:00", false),
        ("2020-01-01T00:00Z", false),
        ("2020-01-01 00:00:00Z", false),
        ("2020-01-01T00:00:00+0100", false),
        ("2020-01-01T00:00:00+01", false),
        ("2020-01-01T00:00:00+1:00", false),
        ("2020-01-01T00:00:00 Z", false),
        ("2020-01-01T00:00:00UTC", false),
        ("2020-01-01T00:00:00.Z", false),
        ("2020-01-01T00:00:00,5Z", false),
        ("2020-01-01T00:00:00.0000000001Z", false),
        ("20200101T000000Z", false),
        ("2020-001T00:00:00Z", false),
        ("2020-W01-1T00:00:00Z", false),
        ("+2020-01-01T00:00:00Z", false),
        ("-2020-01-01T00:00:00Z", false),
        ("02020-01-01T00:00:00Z", false),
        (" 2020-01-01T00:00:00Z", false),
        ("2020-01-01T00:00:00Z ", false),
        ("2020-01-01T00:00:00Z\n", false),
        ("2020-01-01T00:00:00Z\0", false),
        ("2020-01-01T00:00:00\0Z", false),
        ("Jan 1 2020", false),
        ("1577836800", false),
        ("@1577836800000000000", false),
        ("now", false),
        ("", false),
        ("Z", false),
        // Impossible dates, and a second that BSON dates do not have.
        ("2021-02-29T00:00:00Z", false),
        ("2020-04-31T00:00:00Z", false),
        ("2020-13-01T00:00:00Z", false),
        ("2020-00-01T00:00:00Z", false),
        ("2020-01-00T00:00:00Z", false),
        ("2020-01-01T24:00:00Z", false),
        ("2020-01-01T00:60:00Z", false),
        ("2016-12-31T23:59:60Z", false),
        ("2020-01-01T00:00:00+24:00", false),
        ("2020-01-01T00:00:00+01:60", false),
        // Digits and signs of other scripts.
        ("２０２０-01-01T00:00:00Z", false),
        ("2020-01-01T00:00:00−01:00", false),
        ("2020‐01‐01T00:00:00Z", false),
    ] {
        table.push((text.into(), goes));
    }
    let (past, future) = ("2024-05-01T11:00:00Z", "2024-05-01T11:00:01Z");
    let long = format!("{past}{}", "x".repeat(100_000));
    table.extend(scalars().into_iter().map(|value| (value.clone(), value.as_str() == Some("2001-01-01T00:00:00Z"))));
    table.extend([
        (vec![future, past].into(), true),
        (vec![future, future].into(), false),
        (vec![Bson::from(future), "2020-01-01".into(), "".into(), Bson::Null, 5.into()].into(), false),
        (vec![Bson::from("2030-01-01"), past.into(), DateTime::from_millis(T + 1).into()].into(), true),
        (vec![Bson::from(vec![past])].into(), false),
        (Bson::Array(Vec::new()), false),
        (doc! { "x": past }.into(), false),
        (DateTime::from_millis(0).into(), false),
        (long.into(), false),
    ]);
    compare(&table, "expireAfter: 1h", |id, value| doc! { "_id": id, "x": value.clone() }).await;
}

#[tokio::test]
async fn a_ttl_of_its_own_counts_from_the_date_in_the_string() {
    let ttl = |text: &str, ttl: Bson, goes: bool| (vec![Bson::from(text), ttl].into(), goes);
    // The run is at 12:00:00.123.
    let table: [(Bson, bool); 10] = [
        ttl("2024-05-01T11:59:40.123Z", 20.into(), true),
        ttl("2024-05-01T11:59:40.124Z", 20.into(), false),
        ttl("2024-05-01T11:59:40.1230001Z", 20.into(), false),
        ttl("2024-05-01T13:59:40.123+02:00", 20_i64.into(), true),
        ttl("2024-05-01T11:00:00.123Z", "20".into(), true),
        ttl("2024-05-01T11:00:00.124Z", "20".into(), false),
        ttl("2024-05-01T10:00:00.123Z", 7200.into(), true),
        ttl("2024-05-01T10:00:00.124Z", 7200.into(), false),
        ttl("2000-01-01T00:00:00Z", (-1).into(), false),
        ttl("2000-01-01", 20.into(), false),
    ];
    let document = |id: i32, value: &Bson| {
        let parts = value.as_array().unwrap();
        doc! { "_id": id, "x": parts[0].clone(), "ttl": parts[1].clone() }
    };
    compare(&table, "expireAfter: 1h, ttlField: ttl", document).await;
    let own = table.clone().map(|(value, goes)| {
        let has_own = value.as_array().unwrap()[1].as_str().is_none();
        (value, goes && has_own)
    });
    compare(&own, "expireAfterSeconds: -1, ttlField: ttl", document).await;
}

#[tokio::test]
async fn an_index_on_the_strings_is_no_hint_and_one_for_the_filter_is() {
    let case = Case::new().await;
    let texts = ["2020-01-01T00:00:00Z", "2020-01-01", "2030-01-01T00:00:00Z", "2021-01-01T00:00:00+01:00"];
    case.fill("c", (0..).zip(texts).map(|(id, text)| doc! { "_id": id, "x": text, "s": if id == 3 { 2 } else { 1 } })).await;
    let indexes = [doc! { "name": "x_1", "key": { "x": 1 } }, doc! { "name": "s_1_x_1", "key": { "s": 1, "x": 1 } }];
    case.db.run_command(doc! { "createIndexes": "c", "indexes": indexes.to_vec() }).await.expect("indexes");
    let rule = |hint: &str| {
        format!("  - {{namespace: DB.c, field: x, dateFormat: iso8601, expireAfter: 1h, hint: {hint}, filter: {{s: 1}}}}\n")
    };
    let refused = case.report(&rule("x_1"), &["--as-of", AS_OF]).await;
    assert_eq!((refused.ran.code, refused.rule(0, "reason")), (Some(5), &"hint".into()), "{refused:?}");
    assert!(refused.rule(0, "error").to_string().contains("not in the order of their dates"), "{refused:?}");
    assert_eq!(case.ids("c").await, id_set(0..4));
    let swept = case.report(&rule("s_1_x_1"), &["--as-of", AS_OF]).await;
    assert_eq!((swept.ran.code, swept.rule(0, "index")), (Some(0), &"s_1_x_1".into()), "{swept:?}");
    assert_eq!(case.ids("c").await, id_set(1..4));
}
