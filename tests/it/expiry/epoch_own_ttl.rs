//! Documents with their own ttl whose date is an epoch number.

use std::fmt::Write;

use crate::support::server::{Server, on_servers};
use crate::support::sweeper::id_set;
use mongodb::bson::{Bson, doc};

const AS_OF: &str = "2024-05-01T12:00:00Z";
/// The current time of the runs, in seconds.
const NOW: i64 = 1_714_564_800;

/// A number, the ttl, whether a rule of one hour deletes the document, and whether the number is in the wrong unit.
type Row = (Bson, Option<Bson>, bool, bool);

fn rows(unit: i64, step: f64) -> Vec<Row> {
    let at = |seconds: i64| (NOW - seconds) * unit;
    let near = |seconds: i64, steps: f64| Bson::from(at(seconds) as f64 + steps * step);
    let ttl = |n: i32| Some(Bson::from(n));
    let wrong = if unit == 1 { NOW * 1000 } else { NOW };
    vec![
        (at(20).into(), ttl(20), true, false),
        ((at(20) - 1).into(), ttl(20), true, false),
        ((at(20) + 1).into(), ttl(20), false, false),
        (near(20, 0.0), Some(20_i64.into()), true, false),
        (near(20, 1.0), Some(20_i64.into()), false, false),
        (near(20, -1.0), Some(20.0.into()), true, false),
        (at(3600).into(), None, true, false),
        ((at(3600) + 1).into(), None, false, false),
        (at(3600).into(), Some(20.5.into()), true, false),
        (near(3600, 1.0), Some("20".into()), false, false),
        (at(7200).into(), ttl(7200), true, false),
        ((at(7200) + 1).into(), ttl(7200), false, false),
        (at(7200).into(), ttl(-1), false, false),
        (at(7200).into(), ttl(0), false, false),
        (at(7200).into(), ttl(-5), false, false),
        (at(1).into(), ttl(1), true, false),
        ((at(1) + 1).into(), ttl(1), false, false),
        (at(7200).into(), ttl(i32::MAX), false, false),
        (vec![at(0), at(20)].into(), ttl(20), true, false),
        (vec![at(0), at(19)].into(), ttl(20), false, false),
        (vec![Bson::from(f64::NAN), at(19).into()].into(), ttl(20), false, false),
        (vec![Bson::from(f64::NAN), at(20).into()].into(), ttl(20), true, false),
        (f64::NAN.into(), ttl(20), false, false),
        (f64::INFINITY.into(), None, false, unit == 1),
        (Bson::Null, ttl(20), false, false),
        ("0".into(), ttl(20), false, false),
        (wrong.into(), ttl(20), false, true),
        (wrong.into(), None, false, true),
        // Kept for its unit, and not for its ttl.
        (wrong.into(), ttl(0), false, true),
        ((-wrong).into(), ttl(0), false, true),
        (vec![at(20), wrong].into(), ttl(20), false, true),
        (vec![Bson::from(vec![at(20)])].into(), ttl(20), false, false),
    ]
}

async fn compare(server: &Server, format: &str, rows: &[Row]) {
    let case = server.case().await;
    let mut rules = String::new();
    for (name, key) in [("plain", 0), ("asc", 1), ("desc", -1)] {
        let documents = (0_i32..).zip(rows).map(|(id, (x, ttl, ..))| {
            let mut document = doc! { "_id": id, "x": x.clone() };
            document.extend(ttl.clone().map(|ttl| ("ttl".to_owned(), ttl)));
            document
        });
        case.fill(name, documents.collect::<Vec<_>>()).await;
        if key != 0 {
            let index = doc! { "createIndexes": name, "indexes": [{ "name": "i", "key": { "x": key } }] };
            case.db.run_command(index).await.expect("an index");
        }
        writeln!(rules, "  - {{namespace: DB.{name}, field: x, expireAfter: 1h, dateFormat: {format}, ttlField: ttl}}")
            .expect("a string");
    }
    let dry = case.report(&rules, &["--dry-run", "--as-of", AS_OF]).await;
    let swept = case.report(&rules, &["--as-of", AS_OF]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    let kept = (0_i32..).zip(rows).filter(|(_, (.., goes, _))| !goes).map(|(id, _)| id);
    let expected = id_set(kept);
    let going = rows.len() - expected.len();
    for (n, name) in ["plain", "asc", "desc"].into_iter().enumerate() {
        let left = case.ids(name).await;
        let wrong: Vec<_> = left.symmetric_difference(&expected).collect();
        assert!(wrong.is_empty(), "{format}, {name}: wrong for {wrong:?} of {rows:?}");
        assert_eq!(dry.rule(n, "expiredCount"), going, "{format}, {name}");
        assert_eq!(swept.rule(n, "deletedCount"), going, "{format}, {name}");
        let never = dry.rule(n, "neverExpires");
        assert_eq!(never["ttlNotPositive"], 2, "{format}, {name}");
        let wrong_unit = rows.iter().filter(|(.., wrong_unit)| *wrong_unit).count();
        assert_eq!(never["implausibleEpoch"], wrong_unit, "{format}, {name}");
    }
}

async fn epoch_seconds_with_an_own_ttl(server: &Server) {
    // One millisecond is the resolution of the clock of a run.
    compare(server, "epochSeconds", &rows(1, 0.001)).await;
}

async fn epoch_millis_with_an_own_ttl(server: &Server) {
    compare(server, "epochMillis", &rows(1000, 1.0)).await;
}

on_servers!(epoch_seconds_with_an_own_ttl, epoch_millis_with_an_own_ttl);
