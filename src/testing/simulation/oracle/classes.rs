//! The classes into which an audit puts documents, as the model of a server evaluates them: one for each document, with the words
//! and numbers that the report shows.

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, Timestamp, doc};

use crate::core::expiry::Expiry;
use crate::core::policy::DateFormat;

/// Noon of 1 March 2024, at which expiry is judged.
const AS_OF: i64 = 1_709_294_400_000;

const HOUR: i64 = 3_600_000;

const DAY: i64 = 24 * HOUR;

/// A rule whose documents expire after an hour.
fn expiry(format: DateFormat) -> Expiry {
    Expiry {
        field: "at".into(),
        format,
        expire_after_seconds: Some(3600),
        ttl_field: None,
        not_before_1970: false,
        checks_path: false,
        filter: None,
        as_of: DateTime::from_millis(AS_OF),
    }
}

fn with_ttl(expire_after_seconds: Option<u32>) -> Expiry {
    Expiry { ttl_field: Some("ttl".into()), expire_after_seconds, ..expiry(DateFormat::Date) }
}

/// Returns the one class of a document, and its group.
fn class(expiry: &Expiry, bounds: &[i64], document: &Document) -> (String, Document) {
    let facets = expiry.classes(None, bounds, &doc! { "sum": { "$ifNull": ["$weight", 1] } });
    let found = server_model::aggregated(&[doc! { "$facet": facets }], std::slice::from_ref(document)).remove(0);
    let mut groups = found.iter().flat_map(|(name, groups)| groups.as_array().unwrap().iter().map(move |group| (name, group)));
    let (name, group) = groups.next().unwrap_or_else(|| panic!("{document} is in no class"));
    assert!(groups.next().is_none(), "{document} is in several classes: {found}");
    let group = group.as_document().unwrap().clone();
    assert_eq!(group.get("n").and_then(crate::base::values::integer), Some(1), "{document}");
    (name.clone(), group)
}

/// Returns the key of the group of a document.
fn key(expiry: &Expiry, bounds: &[i64], document: &Document) -> (String, Document) {
    let (name, group) = class(expiry, bounds, document);
    let key = group.get_document("_id").cloned().unwrap_or_default();
    (name, key)
}

fn date(millis: i64) -> Bson {
    DateTime::from_millis(millis).into()
}

#[test]
fn an_expired_document_has_the_place_of_its_age_its_month_and_what_is_summed() {
    let bounds: Vec<i64> = (0..7).map(|hours| hours * HOUR).collect();
    for (age, place) in [(HOUR, 2), (HOUR + 1, 2), (2 * HOUR - 1, 2), (2 * HOUR, 3), (5 * HOUR, 6), (6 * HOUR, 7), (50 * DAY, 7)]
    {
        let document = doc! { "_id": 1, "at": date(AS_OF - age), "weight": 5 };
        let (name, group) = class(&expiry(DateFormat::Date), &bounds, &document);
        let month = if age == 50 * DAY { 0 } else { 2 };
        let key = group.get_document("_id").unwrap();
        let whole = |name: &str| key.get(name).and_then(crate::base::values::integer);
        assert_eq!((name.as_str(), whole("a"), whole("m")), ("expired", Some(place), Some(12 * 2024 + month)), "{age}");
        let found = ["oldest", "newest", "sum"].map(|name| group.get(name).unwrap());
        assert_eq!(found, [&date(AS_OF - age), &date(AS_OF - age), &Bson::Int32(5)], "{age}");
    }
    // The same instant in every format.
    let at = AS_OF - 2 * HOUR;
    for (format, value) in [
        (DateFormat::EpochMillis, Bson::Int64(at)),
        (DateFormat::EpochSeconds, Bson::Int64(at / 1000)),
        (DateFormat::EpochSeconds, Bson::Double(at as f64 / 1000.0)),
        (DateFormat::Iso8601, "2024-03-01T10:00:00Z".into()),
        (DateFormat::Iso8601, "2024-03-01T15:30:00.000+05:30".into()),
        (DateFormat::ObjectId, ObjectId::from_parts(u32::try_from(at / 1000).unwrap(), [0; 5], [0; 3]).into()),
    ] {
        let (name, key) = key(&expiry(format), &bounds, &doc! { "_id": 1, "at": value.clone() });
        assert_eq!((name.as_str(), key), ("expired", doc! { "a": 3, "m": 12 * 2024 + 2 }), "{value}");
    }
}

#[test]
fn a_document_that_will_expire_has_the_day_on_which_it_does() {
    let rule = expiry(DateFormat::Date);
    let of = |expiry: &Expiry, document: Document| {
        let (name, key) = key(expiry, &[0], &document);
        assert_eq!((name.as_str(), key.get("r")), ("rest", Some(&Bson::Null)), "{document}");
        (key.get("d").and_then(crate::base::values::integer), key.get_bool("f").unwrap())
    };
    for (left, day) in [
        (1, Some(1)),
        (DAY, Some(1)),
        (DAY + 1, Some(2)),
        (29 * DAY + 1, Some(30)),
        (30 * DAY, Some(30)),
        (30 * DAY + 1, None),
        (2000 * DAY, None),
    ] {
        assert_eq!(of(&rule, doc! { "_id": 1, "at": date(AS_OF - HOUR + left) }), (day, false), "{left}");
        // By a ttl of its own.
        let own = doc! { "_id": 1, "at": date(AS_OF - 60_000 + left), "ttl": 60 };
        assert_eq!(of(&with_ttl(Some(3600)), own), (day, false), "{left}");
    }
    let far = 100_000_000_000_000;
    for (at, is_far) in [(far - 1, false), (far, true)] {
        assert_eq!(of(&rule, doc! { "_id": 1, "at": date(at) }), (None, is_far), "{at}");
    }
}

#[test]
fn a_document_that_never_expires_has_the_reason_and_is_named() {
    let (seconds, millis) = (AS_OF / 1000, AS_OF);
    let past = || date(AS_OF - 10 * DAY);
    let reason = |expiry: &Expiry, value: Option<Bson>, ttl: Option<Bson>| {
        let fields = [("_id", Some(7.into())), ("at", value), ("ttl", ttl)];
        let document: Document = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        let (name, group) = class(expiry, &[0], &document);
        if name == "expired" {
            return name;
        }
        assert!(["first", "last", "least", "greatest"].iter().all(|end| group.get(end) == Some(&7.into())), "{group}");
        let key = group.get_document("_id").ok().and_then(|key| key.get_str("r").ok());
        key.map_or(name, str::to_owned)
    };
    let rule = expiry(DateFormat::Date);
    for (value, expected) in [
        (None, "missing"),
        (Some(Bson::Null), "null"),
        (Some(Bson::Undefined), "null"),
        (Some("x".into()), "string"),
        (Some("2024-01-01T00:00:00Z".into()), "stringDate"),
        (Some(Bson::Int64(seconds)), "numberSeconds"),
        (Some(100_000_000.into()), "numberSeconds"),
        (Some(99_999_999.into()), "number"),
        (Some(Bson::Int64(100_000_000_000)), "numberMillis"),
        (Some(Bson::Int64(99_999_999_999)), "numberSeconds"),
        (Some(Bson::Int64(millis)), "numberMillis"),
        (Some(Bson::Int64(100_000_000_000_000)), "number"),
        (Some(Timestamp { time: 5, increment: 1 }.into()), "timestamp"),
        (Some(Bson::Array(Vec::new())), "emptyArray"),
        (Some(vec![Bson::from(5)].into()), "arrayWithoutDate"),
        (Some(vec![Bson::from(vec![past()])].into()), "otherType"),
        (Some(true.into()), "otherType"),
        (Some(doc! { "at": past() }.into()), "otherType"),
    ] {
        assert_eq!(reason(&rule, value.clone(), None), expected, "{value:?}");
    }
    for (format, value, expected) in [
        (DateFormat::EpochMillis, Bson::Int64(seconds), "wrongUnit"),
        (DateFormat::EpochSeconds, Bson::Int64(millis), "wrongUnit"),
        (DateFormat::EpochSeconds, Bson::Decimal128("5".parse().unwrap()), "decimal"),
        (DateFormat::EpochSeconds, past(), "date"),
        (DateFormat::EpochSeconds, "2024-01-01T00:00:00Z".into(), "string"),
        (DateFormat::Iso8601, "2024-01-01".into(), "string"),
        (DateFormat::Iso8601, past(), "date"),
        (DateFormat::Iso8601, 5.into(), "number"),
        (DateFormat::ObjectId, past(), "date"),
    ] {
        assert_eq!(reason(&expiry(format), Some(value.clone()), None), expected, "{format:?} {value}");
    }
    for (expire_after, ttl, expected) in [
        (Some(3600), Some(Bson::Int32(-1)), "ttlNever"),
        (Some(3600), Some(Bson::Double(-1.0)), "ttlNever"),
        (Some(3600), Some(0.into()), "ttlNotPositive"),
        (Some(3600), Some((-2).into()), "ttlNotPositive"),
        (Some(3600), Some("5".into()), "expired"),
        (Some(3600), None, "expired"),
        (None, None, "noTtl"),
        (None, Some("5".into()), "noTtl"),
        (None, Some((-1).into()), "ttlNever"),
        (None, Some(5.into()), "expired"),
    ] {
        assert_eq!(reason(&with_ttl(expire_after), Some(past()), ttl.clone()), expected, "{expire_after:?} {ttl:?}");
    }
    let clustered = Expiry { not_before_1970: true, ..rule.clone() };
    assert_eq!([-1, 0].map(|at| reason(&clustered, Some(date(at)), None)), ["before1970", "expired"]);
    assert_eq!(reason(&rule, Some(date(-1)), None), "expired");
}

#[test]
fn the_values_that_decide_are_read_of_some_expired_documents() {
    let documents = [
        doc! { "_id": 1, "at": date(AS_OF), "ttl": 5 },
        doc! { "_id": 2, "at": [date(AS_OF - DAY), date(AS_OF - 2 * DAY), "x"], "ttl": 5 },
        doc! { "_id": 3, "at": date(AS_OF - DAY), "ttl": "5" },
        doc! { "_id": 4, "at": date(AS_OF - DAY) },
    ];
    let found = server_model::aggregated(&with_ttl(Some(3600)).samples(2), &documents);
    let expected = [
        doc! { "_id": 2, "date": date(AS_OF - 2 * DAY), "dates": 2, "ttl": 5 },
        doc! { "_id": 3, "date": date(AS_OF - DAY), "dates": 1, "ttl": Bson::Null },
    ];
    assert_eq!(found, expected);
    assert_eq!(server_model::aggregated(&expiry(DateFormat::Date).samples(1), &documents)[0].get("ttl"), Some(&Bson::Null));
}

#[test]
fn a_word_tells_what_a_path_leads_to() {
    let rule = Expiry { field: "a.b".into(), ..expiry(DateFormat::Date) };
    let indexed = Expiry { field: "a.1".into(), ..expiry(DateFormat::Date) };
    let past = || date(AS_OF - DAY);
    for (expiry, value, expected) in [
        (&rule, Bson::from(doc! { "b": 5 }), "number"),
        (&rule, doc! { "c": 5 }.into(), "missing"),
        (&rule, 5.into(), "missing"),
        (&rule, vec![Bson::from(doc! { "b": 5 })].into(), "arrayWithoutDate"),
        (&rule, vec![Bson::from(doc! { "c": 5 })].into(), "missing"),
        (&rule, doc! { "b": past() }.into(), "expired"),
        (&rule, vec![Bson::from(doc! { "b": past() })].into(), "expired"),
        (&indexed, vec![past(), "x".into()].into(), "string"),
        (&indexed, vec![past()].into(), "missing"),
        (&indexed, vec!["x".into(), past()].into(), "expired"),
        (&indexed, doc! { "1": true }.into(), "otherType"),
    ] {
        let (name, key) = key(expiry, &[0], &doc! { "_id": 1, "a": value.clone() });
        assert_eq!(key.get_str("r").unwrap_or(&name), expected, "{} {value}", expiry.field);
    }
}

#[test]
fn strings_that_are_no_dates_are_told_of_rules_for_strings_alone() {
    let rule = Expiry { filter: Some(doc! { "kept": true }), ..expiry(DateFormat::Iso8601) };
    let documents = [
        doc! { "at": "x", "kept": true },
        doc! { "at": "2024-01-01T00:00:00", "kept": true },
        doc! { "at": ["x", "y"], "kept": true },
        doc! { "at": "2024-01-01T00:00:00Z", "kept": true },
        doc! { "at": ["x", "2024-01-01T00:00:00Z"], "kept": true },
        doc! { "at": 5, "kept": true },
        doc! { "at": "x", "kept": false },
        doc! { "kept": true },
    ];
    let found = server_model::selected(&rule.unreadable_string().unwrap(), &documents);
    assert_eq!(found[..2], [true, true]);
    assert_eq!(found[3..], [false; 5]);
    for format in [DateFormat::Date, DateFormat::EpochMillis, DateFormat::EpochSeconds, DateFormat::ObjectId] {
        assert_eq!(expiry(format).unreadable_string(), None, "{format:?}");
    }
}
