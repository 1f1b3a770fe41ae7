use bson::oid::ObjectId;

use super::*;
use crate::testing::portable::assert_portable;

/// 2027-01-15T08:00:00Z.
const NOW: i64 = 1_800_000_000_000;

fn expiry(format: DateFormat) -> Expiry {
    Expiry {
        field: "at".into(),
        format,
        expire_after_seconds: Some(60),
        ttl_field: None,
        not_before_1970: false,
        checks_path: false,
        filter: None,
        as_of: DateTime::from_millis(NOW),
    }
}

fn at(format: DateFormat, as_of: i64) -> Expiry {
    Expiry { as_of: DateTime::from_millis(as_of), ..expiry(format) }
}

fn id(hex: &str) -> Bson {
    ObjectId::parse_str(hex).unwrap().into()
}

#[test]
fn the_bound_on_the_date_moves_with_every_millisecond_as_far_as_the_format_has_them() {
    use DateFormat::{Date, EpochMillis, EpochSeconds, ObjectId};
    let date = |millis: i64| Bson::from(DateTime::from_millis(millis));
    for (format, as_of, key) in [
        (Date, NOW - 1, date(NOW - 60_001)),
        (Date, NOW, date(NOW - 60_000)),
        (Date, NOW + 1, date(NOW - 59_999)),
        (Date, 0, date(-60_000)),
        (EpochMillis, NOW - 1, Bson::Int64(NOW - 60_001)),
        (EpochMillis, NOW, Bson::Int64(NOW - 60_000)),
        (EpochMillis, NOW + 1, Bson::Int64(NOW - 59_999)),
        (EpochSeconds, NOW - 1, Bson::Double(1_799_999_939.999)),
        (EpochSeconds, NOW, Bson::Int64(1_799_999_940)),
        (EpochSeconds, NOW + 1, Bson::Double(1_799_999_940.001)),
        (ObjectId, NOW - 1, id("6b49d1c3ffffffffffffffff")),
        (ObjectId, NOW, id("6b49d1c4ffffffffffffffff")),
        (ObjectId, NOW + 999, id("6b49d1c4ffffffffffffffff")),
        (ObjectId, NOW + 1000, id("6b49d1c5ffffffffffffffff")),
        (ObjectId, 60_000, id("00000000ffffffffffffffff")),
        // No ObjectId was made before 1970, and none can be after 2106.
        (ObjectId, 59_999, Bson::MinKey),
        (ObjectId, 8_000_000_000_000, id("ffffffffffffffffffffffff")),
    ] {
        assert_eq!(at(format, as_of).latest_key(), key, "{format:?} at {as_of}");
    }
}

#[test]
fn predicates_of_dates_and_object_ids_are_one_bound() {
    let threshold = DateTime::from_millis(NOW - 60_000);
    let date = expiry(DateFormat::Date);
    assert_eq!(date.predicate(), doc! { "at": { "$lte": threshold } });
    let clustered = Expiry { field: "_id".into(), not_before_1970: true, ..date.clone() };
    assert_eq!(clustered.predicate(), doc! { "_id": { "$gte": DateTime::from_millis(0), "$lte": threshold } });
    let filtered = Expiry { filter: Some(doc! { "kind": "x" }), ..date };
    assert_eq!(filtered.predicate(), doc! { "$and": [{ "at": { "$lte": threshold } }, { "kind": "x" }] });
    let object_id = expiry(DateFormat::ObjectId).predicate();
    assert_eq!(object_id, doc! { "at": { "$lte": id("6b49d1c4ffffffffffffffff") } });
    assert_eq!(at(DateFormat::ObjectId, 0).predicate(), doc! { "at": { "$in": [] } });
}

#[test]
fn a_path_that_is_checked_is_walked_by_an_expression_beside_its_bound() {
    let checked = Expiry { field: "a.b".into(), checks_path: true, ..expiry(DateFormat::Date) };
    let threshold = DateTime::from_millis(NOW - 60_000);
    let earliest = doc! { "$ifNull": [checked.earliest(), Bson::MaxKey] };
    let found = doc! { "$expr": { "$lte": [earliest, threshold] } };
    assert_eq!(checked.predicate(), doc! { "$and": [{ "a.b": { "$lte": threshold } }, &found] });
    // Every bound has its expression: the bounds of other counts, and the bound of documents without a ttl of their own.
    let own = Expiry { ttl_field: Some("ttl".into()), ..checked };
    let latest = doc! { "$expr": { "$lte": [{ "$ifNull": [own.earliest(), Bson::MaxKey] }, own.latest()] } };
    for predicate in [own.predicate(), own.ttl_not_positive().unwrap(), own.ttl_ignored().unwrap()] {
        assert_eq!(predicate.get_array("$and").unwrap()[1], latest.clone().into());
    }
    let predicate = own.predicate();
    let either = predicate.get_array("$and").unwrap()[2].as_document().unwrap().get_array("$or").unwrap();
    let mut without = doc! { "ttl": { "$exists": false }, "a.b": { "$lte": threshold } };
    without.extend(found);
    assert_eq!(either[0], without.into());
}

#[test]
fn predicates_of_epoch_numbers_leave_out_the_wrong_unit_and_decimals() {
    for (format, bound, ranges) in [
        (
            DateFormat::EpochSeconds,
            Bson::Int64(1_799_999_940),
            [doc! { "$gte": 100_000_000_000_i64 }, doc! { "$lte": -100_000_000_000_i64 }],
        ),
        (
            DateFormat::EpochMillis,
            Bson::Int64(1_799_999_940_000),
            [doc! { "$gt": -100_000_000_000_i64, "$lt": 100_000_000_000_i64 }, doc! { "$lt": -8_640_000_000_000_000_i64 }],
        ),
    ] {
        let predicate = expiry(format).predicate();
        let all = predicate.get_array("$and").unwrap();
        assert_eq!(all[0], Bson::from(doc! { "at": { "$lte": bound } }), "{format:?}");
        let none_of = all[1].as_document().unwrap().get_array("$nor").unwrap();
        let bounds: Vec<_> =
            none_of.iter().map(|wrong| wrong.as_document().unwrap().get_document("at").unwrap().clone()).collect();
        let [first, second] = ranges;
        assert_eq!((all.len(), bounds), (2, vec![first, second, doc! { "$type": "decimal" }]), "{format:?}");
        // One element of a list has to meet both bounds, which only the expression says.
        assert!(none_of[..2].iter().all(|wrong| wrong.as_document().unwrap().contains_key("$expr")));
    }
}

#[test]
fn a_ttl_of_its_own_overrides_the_rule_for_its_document() {
    let own_ttl = Expiry { ttl_field: Some("ttl".into()), ..expiry(DateFormat::Date) };
    let latest = DateTime::from_millis(NOW - 1000);
    let own = doc! { "ttl": { "$exists": true }, "$expr": own_ttl.own_ttl_expired("ttl") };
    let rest = doc! { "ttl": { "$exists": false }, "at": { "$lte": DateTime::from_millis(NOW - 60_000) } };
    assert_eq!(own_ttl.predicate(), doc! { "$and": [{ "at": { "$lte": latest } }, { "$or": [rest, own.clone()] }] });

    let only_own = Expiry { expire_after_seconds: None, ..own_ttl.clone() };
    let own = doc! { "ttl": { "$exists": true }, "$expr": only_own.own_ttl_expired("ttl") };
    assert_eq!(only_own.predicate(), doc! { "$and": [{ "at": { "$lte": latest } }, own] });
    assert_eq!((only_own.threshold(), only_own.latest()), (None, latest));
    let at_once = Expiry { expire_after_seconds: Some(0), ..own_ttl };
    assert_eq!(at_once.latest(), DateTime::from_millis(NOW));
}

#[test]
fn thresholds_are_exact_and_do_not_overflow() {
    let millis = |as_of, seconds| threshold(DateTime::from_millis(as_of), Some(seconds)).unwrap().timestamp_millis();
    assert_eq!([millis(NOW, 0), millis(NOW, 1), millis(-1, 1)], [NOW, NOW - 1000, -1001]);
    assert_eq!(millis(NOW, i32::MAX.cast_unsigned()), NOW - 2_147_483_647_000);
    assert_eq!(millis(i64::MIN, 1), i64::MIN);
    assert_eq!(threshold(DateTime::from_millis(NOW), None), None);
}

#[test]
fn dates_are_read_back_in_the_unit_of_their_format() {
    for (format, value, millis) in [
        (DateFormat::Date, DateTime::from_millis(NOW).into(), Some(NOW)),
        (DateFormat::EpochSeconds, Bson::Int32(1_800_000_000), Some(NOW)),
        (DateFormat::EpochSeconds, Bson::Double(-0.0005), Some(-1)),
        (DateFormat::EpochMillis, Bson::Int64(NOW), Some(NOW)),
        (DateFormat::ObjectId, id("6b49d200ffffffffffffffff"), Some(NOW)),
        (DateFormat::Date, Bson::Null, None),
    ] {
        assert_eq!(expiry(format).instant(&value).map(DateTime::timestamp_millis), millis, "{format:?} {value}");
    }
}

#[test]
fn no_expression_relies_on_what_the_engines_evaluate_in_different_ways() {
    use DateFormat::{Date, EpochMillis, EpochSeconds, Iso8601, ObjectId};
    for format in [Date, EpochSeconds, EpochMillis, ObjectId, Iso8601] {
        for (field, ttl_field) in [("at", None), ("at", Some("ttl")), ("a.0.b", None), ("a.0.b", Some("ttl"))] {
            for expire_after_seconds in [Some(60), None] {
                let (field, ttl_field) = (field.to_owned(), ttl_field.map(str::to_owned));
                let filter = Some(doc! { "kind": "x" });
                let rule = Expiry {
                    field,
                    ttl_field,
                    expire_after_seconds,
                    filter,
                    checks_path: true,
                    not_before_1970: true,
                    ..expiry(format)
                };
                let filters =
                    [Some(rule.predicate()), rule.ttl_not_positive(), rule.implausible_epoch(), rule.unreadable_string()];
                let classes = rule.classes(rule.filter.as_ref(), &[1, 2, 3], &doc! { "n": 1 });
                let stages = [filters.into_iter().flatten().collect(), rule.samples(10)].concat();
                assert_portable(&Bson::from(stages));
                assert_portable(&Bson::from(classes));
                assert_portable(&rule.earliest());
            }
        }
    }
}

#[test]
fn a_name_is_a_position_only_as_the_server_takes_it_for_one() {
    for (name, position) in [
        ("0", Some(0)),
        ("1", Some(1)),
        ("10", Some(10)),
        ("00", None),
        ("01", None),
        ("a", None),
        ("1a", None),
        ("", None),
        ("99999999999", None),
    ] {
        assert_eq!(earliest::position(name), position, "{name}");
    }
}
