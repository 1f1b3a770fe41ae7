//! The per-document ttl, for all values and shapes, compared with a slow reference.

use std::collections::BTreeSet;

use crate::support::corpus::{Corpus, scalars};
use crate::support::reference::{Ttl, earliest, has_expired, own_ttl};
use crate::support::server::{Server, on_servers};
use crate::support::sweeper::{Report, id_set};
use mongodb::bson::{Bson, DateTime, Document, doc};

const AS_OF: &str = "2024-05-01T12:00:00.123Z";
const NOW: i64 = 1_714_564_800_123;
const DEFAULTS: [i64; 3] = [3600, 0, -1];

fn at(millis: i64) -> DateTime {
    DateTime::from_millis(millis)
}

/// Returns values of the ttl field; `None` is a missing field.
fn ttls() -> Vec<Option<Bson>> {
    let mut all: Vec<Option<Bson>> = scalars().into_iter().map(Some).collect();
    all.push(None);
    for n in [0, 1, 20, -1, -2, -20, 3600, i32::MAX, i32::MIN] {
        all.push(Some(n.into()));
        all.push(Some(i64::from(n).into()));
        all.push(Some(f64::from(n).into()));
        all.push(Some(Bson::Decimal128(n.to_string().parse().expect("a decimal"))));
        all.push(Some(n.to_string().into()));
        all.push(Some(vec![n].into()));
        all.push(Some(doc! { "ttl": n }.into()));
    }
    for n in [i64::from(i32::MAX) + 1, i64::from(i32::MIN) - 1, 2_147_483_649, 4_294_967_316, -4_294_967_297] {
        all.push(Some(n.into()));
        all.push(Some((n as f64).into()));
    }
    for n in [20.5, -20.5, 0.5, -0.5, 0.999_999, -1.000_001, 1e300, -1e300, 5e-324] {
        all.push(Some(n.into()));
    }
    all.extend([
        Some(Bson::Array(vec![])),
        Some(Bson::Array(vec![vec![20].into()])),
        Some(Bson::Document(doc! {})),
        Some(at(NOW).into()),
        Some(at(-1).into()),
    ]);
    all
}

/// Returns dates one millisecond before, at, and one after each instant at which the result may change.
fn edges() -> Vec<DateTime> {
    let mut all = vec![at(i64::MIN), at(i64::MAX), at(0), at(-1)];
    for seconds in [-1, 0, 1, 20, 3600, i64::from(i32::MAX), i64::from(i32::MAX) + 1] {
        all.extend([-1, 0, 1].map(|millis| at(NOW - seconds * 1000 + millis)));
    }
    all
}

/// The expected effect of one rule, according to the reference.
struct Expected {
    kept: BTreeSet<String>,
    deleted: u64,
    ttl_not_positive: u64,
    oldest: Option<DateTime>,
}

fn expect(documents: &[Document], path: &str, default: i64) -> Expected {
    let default = (default >= 0).then_some(default);
    // A newer date is too young for every ttl, so the ttl of its document is not counted as invalid.
    let latest = default.into_iter().fold(1, |least, seconds| seconds.min(least)) * 1000;
    let mut expected = Expected { kept: BTreeSet::new(), deleted: 0, ttl_not_positive: 0, oldest: None };
    for document in documents {
        let date = earliest(document, path);
        let ttl = own_ttl(document.get("ttl"));
        if has_expired(date, ttl, default, at(NOW)) {
            expected.deleted += 1;
            expected.oldest = expected.oldest.into_iter().chain(date).min();
        } else {
            expected.kept.extend(id_set(document.get("_id").cloned()));
        }
        if ttl == Ttl::Kept && date.is_some_and(|date| date <= at(NOW - latest)) {
            expected.ttl_not_positive += 1;
        }
    }
    expected
}

/// Sweeps copies of the documents with every default, with and without an index, first as a dry run, and compares the results
/// with the reference.
async fn compare(server: &Server, documents: &[Document], path: &str) {
    let case = server.case().await;
    case.fill("all", documents.to_vec()).await;
    for default in DEFAULTS {
        let expected = expect(documents, path, default);
        assert!(expected.deleted > 0 && !expected.kept.is_empty(), "{path}: the test shows little");
        for key in [doc! {}, doc! { path: 1 }, doc! { path: -1, "tag": 1 }] {
            let what = format!("{path}, expireAfterSeconds {default}, index {key}");
            let _ = case.collection("c").drop().await;
            let copy = case.collection("all").aggregate([doc! { "$out": "c" }]).await;
            copy.expect("the copy");
            if !key.is_empty() {
                let index = doc! { "createIndexes": "c", "indexes": [{ "name": "i", "key": key }] };
                case.db.run_command(index).await.expect("an index");
            }
            let rules = format!("  - {{namespace: DB.c, field: {path}, ttlField: ttl, expireAfterSeconds: {default}}}\n");
            let dry = case.report(&rules, &["--dry-run", "--as-of", AS_OF]).await;
            assert_eq!(dry.rule(0, "expiredCount"), expected.deleted, "{what}: {dry:?}");
            assert_eq!(ttl_not_positive(&dry), expected.ttl_not_positive, "{what}: {dry:?}");
            let oldest = expected.oldest.filter(|date| (at(-1)..at(NOW)).contains(date));
            if let Some(oldest) = oldest.and_then(|date| date.try_to_rfc3339_string().ok()) {
                let found = dry.rule(0, "oldestExpired").as_str().unwrap_or_default();
                let parsed = DateTime::parse_rfc3339_str(found).map(DateTime::try_to_rfc3339_string);
                assert_eq!(parsed.ok().and_then(Result::ok), Some(oldest), "{what}");
            }
            let swept = case.report(&rules, &["--as-of", AS_OF]).await;
            assert_eq!(swept.ran.code, Some(0), "{what}: {swept:?}");
            assert_eq!(swept.rule(0, "deletedCount"), expected.deleted, "{what}");
            assert_eq!(ttl_not_positive(&swept), expected.ttl_not_positive, "{what}");
            let left = case.ids("c").await;
            let differing: Vec<_> = documents
                .iter()
                .filter(|document| {
                    let id = id_set(document.get("_id").cloned());
                    left.is_superset(&id) != expected.kept.is_superset(&id)
                })
                .take(5)
                .collect();
            assert!(differing.is_empty(), "{what}: wrong for {differing:?}");
        }
    }
}

fn ttl_not_positive(report: &Report) -> &serde_json::Value {
    &report.rule(0, "neverExpires")["ttlNotPositive"]
}

/// Makes documents from every ttl and date with `shapes`, and numbers them.
fn of_every_ttl(dates: &[DateTime], shapes: impl Fn(DateTime) -> Vec<Document>) -> Vec<Document> {
    let mut all = Vec::new();
    for ttl in ttls() {
        for shape in dates.iter().flat_map(|date| shapes(*date)) {
            let mut document = doc! { "_id": all.len() as i32 };
            document.extend(ttl.clone().map(|ttl| ("ttl".to_owned(), ttl)));
            document.extend(shape);
            all.push(document);
        }
    }
    all
}

async fn every_ttl_value_at_every_boundary(server: &Server) {
    compare(server, &of_every_ttl(&edges(), |date| vec![doc! { "x": date }]), "x").await;
}

async fn every_ttl_value_with_dates_in_arrays_and_without_a_date(server: &Server) {
    let (old, new) = (at(NOW - 20_000), at(NOW - 19_999));
    let documents = of_every_ttl(&[old, new], |date| {
        vec![
            doc! { "x": [at(NOW + 1), date] },
            doc! { "x": [date, "s", Bson::Null, -1, { "x": at(0) }] },
            doc! { "x": [[at(0)], date] },
        ]
    });
    let without = of_every_ttl(&[old], |_| {
        [Bson::Null, 1.into(), "s".into(), Bson::Array(vec![]), Bson::MinKey]
            .map(|value| doc! { "x": value })
            .into_iter()
            .chain([doc! {}, doc! { "x": [[at(0)]] }, doc! { "x": { "x": at(0) } }])
            .collect()
    });
    let first = documents.len() as i32;
    let without = without.into_iter().enumerate().map(|(n, mut document)| {
        document.insert("_id", first + n as i32);
        document
    });
    compare(server, &documents.into_iter().chain(without).collect::<Vec<_>>(), "x").await;
}

async fn every_ttl_value_with_a_date_behind_a_path(server: &Server) {
    let dates = [at(NOW - 20_000), at(NOW - 19_999), at(NOW - 3_600_000)];
    let documents = of_every_ttl(&dates, |date| {
        vec![
            doc! { "a": { "b": date } },
            doc! { "a": [{ "b": at(NOW) }, 5, { "b": [at(NOW), date] }, [{ "b": at(0) }]] },
            doc! { "a": { "b": [[date]] } },
            doc! { "a": { "b": { "b": date } }, "a.b": date },
        ]
    });
    compare(server, &documents, "a.b").await;
    let documents = of_every_ttl(&dates, |date| {
        vec![
            doc! { "a": [date, at(0)] },
            doc! { "a": [[at(0)], date] },
            doc! { "a": { "0": [at(NOW), date] } },
            doc! { "a": [at(NOW), date] },
        ]
    });
    compare(server, &documents, "a.0").await;
}

async fn dates_are_found_where_the_server_finds_them(server: &Server) {
    const PATHS: [&str; 14] =
        ["x", "a.b", "a.b.c", "a.0", "a.1", "a.00", "a.0.b", "a.b.0", "a.0.0", "a.0.0.b", "0", "0.0", "a.a", "a.-1"];
    let dates = [0, 1000, 10_000, 19_999, 20_000, 20_001, 3_600_000].map(|millis| at(NOW - millis));
    let dates: Vec<DateTime> = dates.into_iter().chain([at(NOW + 1), at(-1)]).collect();
    let case = server.case().await;
    let mut rules = String::new();
    for (n, path) in PATHS.into_iter().enumerate() {
        let mut documents = Corpus::new(n as u64, &dates).around(path, 500);
        documents.iter_mut().for_each(|document| {
            document.insert("ttl", 20);
        });
        case.fill(&format!("c{n}"), documents).await;
        let others = doc! { "$nor": [{ path: { "$lte": at(NOW - 20_000) } }] };
        let out = [doc! { "$match": others }, doc! { "$out": format!("kept{n}") }];
        case.collection(&format!("c{n}")).aggregate(out).await.expect("the server's answer");
        for default in [1, -1] {
            rules += &format!(
                "  - {{name: r{n}{default}, namespace: DB.c{n}, field: '{path}', ttlField: ttl, expireAfterSeconds: {default}}}\n"
            );
        }
    }
    let swept = case.report(&rules, &["--as-of", AS_OF]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    for (n, path) in PATHS.into_iter().enumerate() {
        let expected = case.ids(&format!("kept{n}")).await;
        assert!((20..490).contains(&expected.len()), "{path}: {} kept, so the test shows little", expected.len());
        assert_eq!(case.ids(&format!("c{n}")).await, expected, "{path}");
    }
}

async fn a_filter_and_an_own_ttl_must_both_agree(server: &Server) {
    let case = server.case().await;
    let documents = [("done", 20), ("open", 20), ("done", -1), ("done", 3600), ("done", 0)];
    case.fill(
        "c",
        documents
            .iter()
            .enumerate()
            .map(|(id, (status, ttl))| doc! { "_id": id as i32, "status": *status, "ttl": *ttl, "x": at(NOW - 60_000) })
            .chain([doc! { "_id": 5, "status": "open", "ttl": 0, "x": at(0) }]),
    )
    .await;
    let rules = "  - {namespace: DB.c, field: x, ttlField: ttl, expireAfterSeconds: 10, filter: {status: done}}\n";
    let swept = case.report(rules, &["--as-of", AS_OF]).await;
    assert_eq!(swept.rule(0, "deletedCount"), 1);
    assert_eq!(ttl_not_positive(&swept), 1);
    assert_eq!(case.ids("c").await, id_set([1, 2, 3, 4, 5]));
}

async fn unusual_names_are_read_as_they_are(server: &Server) {
    let case = server.case().await;
    let names = ["two words", "\u{e9}", "0", "7", "-1", "a$b", "ROOT", "v", "e", "ttl'\"", "Ttl"];
    let mut rules = String::new();
    for (n, name) in names.into_iter().enumerate() {
        let date = |id: i32, at: DateTime, ttl: i32| doc! { "_id": id, name: ttl, "d": { name: [{ name: at }] } };
        let documents = [date(0, at(NOW - 20_000), 20), date(1, at(NOW - 19_999), 20), date(2, at(0), -1)];
        case.fill(&format!("c{n}"), documents).await;
        let quoted = serde_json::to_string(name).expect("a JSON string");
        let field = serde_json::to_string(&format!("d.{name}.{name}")).expect("a JSON string");
        rules += &format!("  - {{namespace: DB.c{n}, field: {field}, ttlField: {quoted}, expireAfter: 1h}}\n");
    }
    let swept = case.report(&rules, &["--as-of", AS_OF]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    for (n, name) in names.into_iter().enumerate() {
        assert_eq!(case.ids(&format!("c{n}")).await, id_set([1, 2]), "{name}");
    }
}

async fn a_number_with_a_leading_zero_or_beyond_all_arrays_is_no_position(server: &Server) {
    let case = server.case().await;
    let (old, newer) = (at(NOW - 20_000), at(NOW - 19_999));
    let mut rules = String::new();
    let names = ["00", "01", "2147483648", "18446744073709551616"];
    for (n, name) in names.into_iter().enumerate() {
        let documents = [
            doc! { "_id": 0, "ttl": 20, "a": [newer, { name: old }] },
            doc! { "_id": 1, "ttl": 20, "a": { name: [newer, old] } },
            doc! { "_id": 2, "ttl": 20, "a": [old, { name: newer }] },
            doc! { "_id": 3, "ttl": 20, "a": [{ name: newer }, old] },
            doc! { "_id": 4, "ttl": 20, "a": [old, old] },
        ];
        case.fill(&format!("c{n}"), documents).await;
        rules += &format!("  - {{namespace: DB.c{n}, field: a.{name}, ttlField: ttl, expireAfter: 1h}}\n");
    }
    case.report(&rules, &["--as-of", AS_OF]).await;
    for (n, name) in names.into_iter().enumerate() {
        assert_eq!(case.ids(&format!("c{n}")).await, id_set([2, 3, 4]), "{name}");
    }
}

on_servers!(
    every_ttl_value_at_every_boundary,
    every_ttl_value_with_dates_in_arrays_and_without_a_date,
    every_ttl_value_with_a_date_behind_a_path,
    dates_are_found_where_the_server_finds_them,
    a_filter_and_an_own_ttl_must_both_agree,
    unusual_names_are_read_as_they_are,
    a_number_with_a_leading_zero_or_beyond_all_arrays_is_no_position
);
