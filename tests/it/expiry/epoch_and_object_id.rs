//! Dates stored as numbers since 1970, and dates inside ObjectIds.

use std::fmt::Write;

use crate::support::corpus::scalars;
use crate::support::server::{Server, on_servers};
use crate::support::sweeper::id_set;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};

/// The current time of the runs; the threshold of one hour is 1714561200.123 s.
const AS_OF: &str = "2024-05-01T12:00:00.123Z";
const S: i64 = 1_714_561_200;
const T: i64 = S * 1000 + 123;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Goes,
    Stays,
    /// Stays, and is counted as a number in the wrong unit.
    WrongUnit,
}
use Verdict::{Goes, Stays, WrongUnit};

fn decimal(text: &str) -> Bson {
    Bson::Decimal128(text.parse().expect("a decimal"))
}

/// Returns values that no epoch rule deletes: NaN, other types, and numbers in a list within a list, in a document or in text.
fn never() -> Vec<Bson> {
    let mut all = scalars();
    all.retain(|value| !matches!(value, Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Decimal128(_)));
    all.extend([
        f64::NAN.into(),
        decimal("NaN"),
        vec![f64::NAN].into(),
        DateTime::from_millis(0).into(),
        Bson::Array(vec![]),
        vec![Bson::from(vec![-1])].into(),
        vec![Bson::from(vec![S])].into(),
        vec![Bson::from(vec![T])].into(),
        doc! { "x": S, "b": T }.into(),
        S.to_string().into(),
    ]);
    all
}

fn seconds() -> Vec<(Bson, Verdict)> {
    let mut table: Vec<(Bson, Verdict)> = vec![
        (S.into(), Goes),
        ((S as i32).into(), Goes),
        ((S as f64).into(), Goes),
        ((S - 1).into(), Goes),
        ((S + 1).into(), Stays),
        ((S as i32 + 1).into(), Stays),
        ((S as f64 + 0.122).into(), Goes),
        ((S as f64 + 0.123).into(), Goes),
        ((S as f64 + 0.124).into(), Stays),
        (0.into(), Goes),
        (0_i64.into(), Goes),
        ((-0.0).into(), Goes),
        (0.5.into(), Goes),
        ((-1).into(), Goes),
        (i32::MIN.into(), Goes),
        (i32::MAX.into(), Stays),
        (99_999_999_999_i64.into(), Stays),
        (99_999_999_999.9.into(), Stays),
        (100_000_000_000_i64.into(), WrongUnit),
        (1e11.into(), WrongUnit),
        (T.into(), WrongUnit),
        ((T as f64).into(), WrongUnit),
        ((-99_999_999_999_i64).into(), Goes),
        ((-100_000_000_000_i64).into(), WrongUnit),
        (i64::MIN.into(), WrongUnit),
        (i64::MAX.into(), WrongUnit),
        (1e300.into(), WrongUnit),
        (vec![S + 1, S].into(), Goes),
        (vec![S + 1, S + 2].into(), Stays),
        (vec![Bson::from("s"), S.into(), Bson::Null].into(), Goes),
        (vec![Bson::from(f64::NAN), (S + 1).into()].into(), Stays),
        (vec![Bson::from(f64::NAN), S.into()].into(), Goes),
        (vec![Bson::from(DateTime::from_millis(0)), (S + 1).into()].into(), Stays),
        (vec![Bson::from(vec![S]), (S + 1).into()].into(), Stays),
        (vec![S, T].into(), WrongUnit),
        (vec![S + 1, -T].into(), WrongUnit),
        (decimal("0"), Stays),
        (decimal("1714561200"), Stays),
        (vec![decimal("0"), (S + 1).into()].into(), Stays),
    ];
    table.extend(never().into_iter().map(|value| (value, Stays)));
    table
}

fn millis() -> Vec<(Bson, Verdict)> {
    let mut table: Vec<(Bson, Verdict)> = vec![
        (T.into(), Goes),
        ((T as f64).into(), Goes),
        ((T - 1).into(), Goes),
        ((T + 1).into(), Stays),
        ((T as f64 - 0.5).into(), Goes),
        ((T as f64 + 0.5).into(), Stays),
        (100_000_000_000_i64.into(), Goes),
        (1e11.into(), Goes),
        (99_999_999_999_i64.into(), WrongUnit),
        (99_999_999_999.5.into(), WrongUnit),
        (S.into(), WrongUnit),
        ((S as i32).into(), WrongUnit),
        ((S as f64).into(), WrongUnit),
        (0.into(), WrongUnit),
        ((-0.0).into(), WrongUnit),
        ((-1).into(), WrongUnit),
        (i32::MIN.into(), WrongUnit),
        (i32::MAX.into(), WrongUnit),
        ((-99_999_999_999_i64).into(), WrongUnit),
        ((-100_000_000_000_i64).into(), Goes),
        ((-8_640_000_000_000_000_i64).into(), Goes),
        ((-8_640_000_000_000_001_i64).into(), WrongUnit),
        (8_640_000_000_000_000_i64.into(), Stays),
        (i64::MIN.into(), WrongUnit),
        ((-1e300).into(), WrongUnit),
        (i64::MAX.into(), Stays),
        (vec![T + 1, T].into(), Goes),
        (vec![T + 1, T + 2].into(), Stays),
        (vec![Bson::from("s"), T.into(), Bson::Null].into(), Goes),
        (vec![Bson::from(f64::NAN), (T + 1).into()].into(), Stays),
        (vec![Bson::from(f64::NAN), T.into()].into(), Goes),
        (vec![Bson::from(vec![T]), (T + 1).into()].into(), Stays),
        (vec![S, T].into(), WrongUnit),
        (decimal("1714561200123"), Stays),
        (vec![decimal("1714561200123"), (T + 1).into()].into(), Stays),
    ];
    table.extend(never().into_iter().map(|value| (value, Stays)));
    table
}

/// Compares a table with sweeps, with and without an index, on the field itself and on a path through an array.
async fn compare(server: &Server, format: &str, table: &[(Bson, Verdict)], as_of: &str, counts_wrong_unit: bool) {
    let case = server.case().await;
    let table: Vec<(Bson, Verdict)> = table.iter().filter(|(value, _)| server.indexes(value)).cloned().collect();
    let with = |wanted: Verdict| table.iter().filter(|(_, verdict)| *verdict == wanted).count();
    let stay = (0..).zip(&table).filter(|(_, (_, verdict))| *verdict != Goes).map(|(id, _)| id);
    let expected = id_set(stay.collect::<Vec<i32>>());
    let mut rules = String::new();
    let mut names = Vec::new();
    for (field, key) in [("x", 0), ("x", 1), ("x", -1), ("a.b", 0), ("a.b", 1), ("a.b", -1)] {
        let name = format!("c{}", names.len());
        let documents = (0_i32..).zip(&table).map(|(id, (value, _))| match (field, value) {
            ("x", _) => doc! { "_id": id, "x": value.clone() },
            // For the path, each element becomes a subdocument in an array.
            (_, Bson::Array(items)) => {
                let items: Vec<Document> = items.iter().map(|item| doc! { "b": [item.clone()] }).collect();
                doc! { "_id": id, "a": items }
            }
            _ => doc! { "_id": id, "a": [5, { "b": value.clone() }, { "c": -1 }] },
        });
        case.fill(&name, documents.collect::<Vec<_>>()).await;
        if key != 0 {
            let index = doc! { "createIndexes": &name, "indexes": [{ "name": "i", "key": { field: key } }] };
            case.db.run_command(index).await.expect("an index");
        }
        writeln!(rules, "  - {{namespace: DB.{name}, field: {field}, expireAfter: 1h, dateFormat: {format}}}").expect("a string");
        names.push((name, field, key));
    }
    let dry = case.report(&rules, &["--dry-run", "--as-of", as_of]).await;
    let swept = case.report(&rules, &["--as-of", as_of]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    for (n, (name, field, key)) in names.iter().enumerate() {
        let what = format!("{format}, {field}, index {key}");
        let left = case.ids(name).await;
        let differing: Vec<_> = (0_i32..)
            .zip(&table)
            .filter(|(id, _)| left.is_superset(&id_set([*id])) != expected.is_superset(&id_set([*id])))
            .collect();
        assert!(differing.is_empty(), "{what}: wrong for {differing:?}");
        assert_eq!(dry.rule(n, "expiredCount"), with(Goes), "{what}");
        assert_eq!(swept.rule(n, "deletedCount"), with(Goes), "{what}");
        if counts_wrong_unit {
            assert_eq!(dry.rule(n, "neverExpires")["implausibleEpoch"], with(WrongUnit), "{what}");
            assert_eq!(swept.rule(n, "neverExpires")["implausibleEpoch"], with(WrongUnit), "{what}");
        }
    }
}

async fn epoch_seconds_expire_to_the_unit(server: &Server) {
    compare(server, "epochSeconds", &seconds(), AS_OF, true).await;
}

async fn epoch_millis_expire_to_the_unit(server: &Server) {
    compare(server, "epochMillis", &millis(), AS_OF, true).await;
}

async fn infinities_and_decimals_are_no_dates(server: &Server) {
    let mut table = [f64::INFINITY, f64::NEG_INFINITY].map(|value| (value.into(), Stays)).to_vec();
    table.extend(["Infinity", "-Infinity", "-1", "1e30", "-1e30"].map(|text| (decimal(text), Stays)));
    for format in ["epochSeconds", "epochMillis"] {
        compare(server, format, &table, AS_OF, false).await;
    }
}

async fn a_decimal_is_no_number_in_the_wrong_unit(server: &Server) {
    compare(server, "epochSeconds", &[(decimal("1714561200123"), Stays), (S.into(), Goes)], AS_OF, true).await;
    compare(server, "epochMillis", &[(decimal("1714561200"), Stays), (T.into(), Goes)], AS_OF, true).await;
}

async fn a_list_that_spans_1970_in_milliseconds_is_not_in_the_wrong_unit(server: &Server) {
    let table = [
        (vec![-200_000_000_000_i64, T - 1].into(), Goes),
        (vec![-200_000_000_000_i64, T + 1].into(), Goes),
        (vec![-200_000_000_000_i64, 5, T].into(), WrongUnit),
    ];
    compare(server, "epochMillis", &table, AS_OF, true).await;
}

async fn a_threshold_before_1970_compares_as_any_other(server: &Server) {
    // The threshold is half a second before 1970.
    let as_of = "1970-01-01T00:59:59.500Z";
    let table = [
        ((-1).into(), Goes),
        ((-0.5).into(), Goes),
        ((-0.499).into(), Stays),
        (0.into(), Stays),
        (1.into(), Stays),
        (Bson::Null, Stays),
    ];
    compare(server, "epochSeconds", &table, as_of, true).await;
}

/// Returns an ObjectId of this second whose other eight bytes are all `byte`.
fn object_id(seconds: i64, byte: u8) -> ObjectId {
    let mut bytes = [byte; 12];
    bytes[..4].copy_from_slice(&u32::try_from(seconds).expect("a second that fits").to_be_bytes());
    ObjectId::from_bytes(bytes)
}

async fn the_second_inside_an_object_id_decides(server: &Server) {
    let (past, future) = (object_id(S, 0xff), object_id(S + 1, 0));
    let mut table: Vec<(Bson, Verdict)> = vec![
        (past.into(), Goes),
        (object_id(S, 0).into(), Goes),
        (object_id(S - 1, 0xff).into(), Goes),
        (object_id(0, 0).into(), Goes),
        (future.into(), Stays),
        (object_id(0x7fff_ffff, 0).into(), Stays),
        (object_id(0x8000_0000, 0).into(), Stays),
        (object_id(0xffff_ffff, 0xff).into(), Stays),
        (vec![future, past].into(), Goes),
        (vec![future, object_id(0xffff_ffff, 0)].into(), Stays),
        (vec![Bson::Null, past.into(), "s".into()].into(), Goes),
        (vec![Bson::from(vec![past])].into(), Stays),
        (doc! { "x": past, "b": past }.into(), Stays),
        (past.to_hex().into(), Stays),
        (DateTime::from_millis(0).into(), Stays),
    ];
    table.extend(scalars().into_iter().filter(|value| value.as_object_id().is_none()).map(|value| (value, Stays)));
    compare(server, "objectId", &table, AS_OF, false).await;
}

async fn object_ids_at_a_whole_second_and_before_1970(server: &Server) {
    let whole = [(object_id(S, 0xff).into(), Goes), (object_id(S + 1, 0).into(), Stays)];
    compare(server, "objectId", &whole, "2024-05-01T12:00:00Z", false).await;
    compare(server, "objectId", &whole, "2024-05-01T12:00:00.999Z", false).await;
    let first = [(object_id(0, 0xff).into(), Goes), (object_id(1, 0).into(), Stays)];
    compare(server, "objectId", &first, "1970-01-01T01:00:00Z", false).await;
    let none = [(object_id(0, 0).into(), Stays), (object_id(0xffff_ffff, 0xff).into(), Stays)];
    compare(server, "objectId", &none, "1970-01-01T00:59:59.999Z", false).await;
}

on_servers!(
    epoch_seconds_expire_to_the_unit,
    epoch_millis_expire_to_the_unit,
    infinities_and_decimals_are_no_dates,
    a_decimal_is_no_number_in_the_wrong_unit,
    a_list_that_spans_1970_in_milliseconds_is_not_in_the_wrong_unit,
    a_threshold_before_1970_compares_as_any_other,
    the_second_inside_an_object_id_decides,
    object_ids_at_a_whole_second_and_before_1970
);
