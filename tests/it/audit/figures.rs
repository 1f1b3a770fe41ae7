//! The figures of an audit, compared with a reference that looks at each document, with dry runs at later instants, and with a
//! real sweep.

use std::collections::{BTreeMap, BTreeSet};

use crate::support::audit::{Fate, assert_is_account_of, audit, fate, never, sum};
use crate::support::corpus::{Corpus, scalars};
use crate::support::server::{Server, on_servers};
use crate::support::sweeper::{Case, id_set};
use mongodb::IndexModel;
use mongodb::bson::{Bson, DateTime, Document, doc};
use ttl_sweeper::core::flavor::Flavor;

const DAY: i64 = 86_400_000;
const NOW: &str = "2026-01-31T02:00:00.000Z";
const NOW_MILLIS: i64 = 1_769_824_800_000;

fn now() -> DateTime {
    DateTime::from_millis(NOW_MILLIS)
}

fn at(millis: i64) -> DateTime {
    DateTime::from_millis(NOW_MILLIS + millis)
}

/// Returns dates at, before and after every boundary: age ranges, the threshold of one hour, the days of the forecast, both ends
/// of time.
fn dates() -> Vec<DateTime> {
    let mut dates: Vec<DateTime> =
        [i64::MIN, i64::MIN + 1, -62_167_219_200_001, -2_208_988_800_000, -1, 0, 253_402_300_800_000, i64::MAX]
            .map(DateTime::from_millis)
            .to_vec();
    let hour = 3_600_000;
    for edge in [0, 60_000, 10 * 60_000, hour, 6 * hour, DAY, 30 * DAY, 365 * DAY, 3650 * DAY] {
        dates.extend([-1, 0, 1].into_iter().flat_map(|near| [at(edge + near), at(-edge + near), at(edge - hour + near)]));
    }
    dates.extend((0..=31).map(|day| at(day * DAY - hour)));
    dates
}

fn fates(documents: &[Document], path: &str, with_ttl: bool, default: Option<i64>) -> BTreeMap<i32, Fate> {
    documents.iter().map(|document| (document.get_i32("_id").unwrap(), fate(document, path, with_ttl, default, now()))).collect()
}

fn expired_ids(fates: &BTreeMap<i32, Fate>) -> BTreeSet<String> {
    id_set(fates.iter().filter(|(_, fate)| matches!(fate, Fate::Expired(_))).map(|(id, _)| *id))
}

async fn index(case: &Case, name: &str, key: Document) {
    case.collection(name).create_index(IndexModel::builder().keys(key).build()).await.expect("an index");
}

/// Returns valid and invalid values of a ttl, some long enough to expire on a day of the forecast.
fn ttls() -> Vec<Option<Bson>> {
    let mut all: Vec<Option<Bson>> = scalars().into_iter().map(Some).collect();
    let numbers = [1, 20, 3600, 86_400, 90_000, 2_592_000, i32::MAX];
    all.extend(numbers.into_iter().flat_map(|n| [Some(n.into()), Some(i64::from(n).into()), Some(f64::from(n).into())]));
    all.extend([Some((-1).into()), Some((-1_i64).into()), Some((-1.0).into()), Some((-2).into()), Some(20.5.into())]);
    all.extend([Some(Bson::Array(vec![20.into()])), Some(doc! { "a": 1 }.into()), None, None, None]);
    all
}

async fn every_document_has_one_class_and_what_has_expired_is_what_a_sweep_deletes(server: &Server) {
    // Path, use of `ttlField`, expireAfterSeconds, use of a filter, index key.
    let variants = [
        ("x", false, Some(3600), false, doc! {}),
        ("x", false, Some(3600), true, doc! { "x": 1 }),
        ("x", true, Some(3600), false, doc! { "x": -1 }),
        ("x", true, None, true, doc! {}),
        ("a.b", false, Some(3600), false, doc! { "a.b": 1 }),
        ("a.b", true, Some(86_400), false, doc! {}),
        ("a.0", false, Some(3600), false, doc! {}),
        ("a.0.b", true, Some(3600), true, doc! {}),
    ];
    let case = server.case().await;
    let ttls = ttls();
    for (n, (path, with_ttl, seconds, filtered, key)) in variants.into_iter().enumerate() {
        let name = format!("c{n}");
        let mut documents = server.indexable(&Corpus::new(n as u64, &dates()).around(path, 1500));
        for (k, document) in documents.iter_mut().enumerate() {
            if let Some(ttl) = ttls[k % ttls.len()].clone().filter(|_| with_ttl) {
                document.insert("ttl", ttl);
            }
        }
        case.fill(&name, documents.clone()).await;
        if !key.is_empty() {
            index(&case, &name, key).await;
        }
        let rule = format!(
            "  - {{namespace: DB.{name}, field: {path}, expireAfterSeconds: {}{}{}}}\n",
            seconds.unwrap_or(-1),
            if with_ttl { ", ttlField: ttl" } else { "" },
            if filtered { ", filter: {tag: {$gt: 0}}" } else { "" },
        );
        if filtered {
            documents.retain(|document| document.get_i32("tag").unwrap() > 0);
        }
        let fates = fates(&documents, path, with_ttl, seconds);
        let report = audit(&case, &rule, &["--as-of", NOW]).await;
        assert_eq!((report.ran.code, report.rule(0, "status")), (Some(0), &"complete".into()), "{report:?}");
        assert_is_account_of(&report.json["rules"][0], &fates, now(), !path.contains('.'));

        // Dry runs at the same instant and one and two days later agree with the forecast.
        let mut before = 0;
        for (days, instant) in [NOW, "2026-02-01T02:00:00Z", "2026-02-02T02:00:00Z"].into_iter().enumerate() {
            let dry = case.report(&rule, &["--dry-run", "--as-of", instant]).await;
            let count = dry.rule(0, "expiredCount").as_u64().unwrap();
            if let Some(day) = days.checked_sub(1) {
                assert_eq!(report.rule(0, "forecast")[day]["count"], count - before, "{path}: day {day}");
            } else {
                // The DocumentDB engine estimates sizes, each time from other statistics.
                let bytes = (server.flavor() != Flavor::DocumentDb).then_some("estimatedBytes");
                let keys = ["expiredCount", "oldestExpired", "documentCount", "expiredPercent", "index", "strategy"];
                for key in keys.into_iter().chain(bytes) {
                    assert_eq!(report.rule(0, key), dry.rule(0, key), "{path}: {key}");
                }
            }
            before = count;
        }

        let all = case.ids(&name).await;
        let swept = case.report(&rule, &["--as-of", NOW]).await;
        assert_eq!(swept.rule(0, "deletedCount"), report.rule(0, "expiredCount"));
        let gone: BTreeSet<String> = all.difference(&case.ids(&name).await).cloned().collect();
        assert_eq!(gone, expired_ids(&fates), "{path}");
        assert!(gone.len() > 30 && gone.len() < documents.len() - 100, "{path}: {} of {}", gone.len(), documents.len());
    }
}

async fn every_type_never_expires_by_its_own_reason(server: &Server) {
    let case = server.case().await;
    let mut values: Vec<Option<Bson>> = scalars().into_iter().map(Some).collect();
    let list = |items: Vec<Bson>| Some(Bson::Array(items));
    let date = || Bson::from(at(-10 * DAY));
    values.extend([
        None,
        list(vec![]),
        list(vec!["x".into(), 5.into()]),
        list(vec![Bson::Array(vec![date()])]),
        Some(doc! { "x": date() }.into()),
    ]);
    values.extend([Some(date()), list(vec!["x".into(), date()]), Some(at(0).into())]);
    let documents: Vec<Document> = (0..)
        .zip(values)
        .map(|(id, value)| {
            let mut document = doc! { "_id": id };
            document.extend(value.map(|value| ("x".to_owned(), value)));
            document
        })
        .collect();
    case.fill("c", documents.clone()).await;
    let report = audit(&case, "  - {namespace: DB.c, field: x, expireAfter: 1h}\n", &["--as-of", NOW]).await;
    let rule = &report.json["rules"][0];
    assert_is_account_of(rule, &fates(&documents, "x", false, Some(3600)), now(), true);
    let reasons: Vec<&String> = rule["neverExpires"].as_object().unwrap().keys().collect();
    let expected = ["arrayWithoutDate", "emptyArray", "missing", "null", "number", "otherType", "string", "timestamp"];
    assert_eq!(reasons, expected);
    assert_eq!((&rule["neverExpires"]["null"], &rule["neverExpires"]["number"]), (&2.into(), &18.into()), "{rule}");
}

#[tokio::test]
async fn strings_by_rfc_3339_are_dates_and_others_have_their_own_reasons() {
    let case = Case::new().await;
    let texts = |texts: &[&str]| Bson::from(texts.iter().map(|text| Bson::from(*text)).collect::<Vec<_>>());
    // The run is at 02:00 UTC on 31 January 2026.
    let expired: [Bson; 3] = [
        "2026-01-30T03:00:00+01:00".into(),
        "2025-01-01T00:00:00Z".into(),
        texts(&["2027-01-01T00:00:00Z", "2025-01-01T00:00:00z"]),
    ];
    let due: [Bson; 3] = [
        "2026-01-30T02:00:00.0000001Z".into(),
        "2026-01-31T02:00:00Z".into(),
        texts(&["2026-01-31T00:00:00-02:00", "2020-01-01"]),
    ];
    let others: [(Bson, &str); 6] = [
        ("2020-01-01".into(), "string"),
        ("".into(), "string"),
        (texts(&["2020-01-01"]), "arrayWithoutDate"),
        (at(-10 * DAY).into(), "date"),
        (5.into(), "number"),
        (Bson::Null, "null"),
    ];
    let values = expired.iter().chain(&due).chain(others.iter().map(|(value, _)| value));
    case.fill("c", (0..).zip(values).map(|(id, value)| doc! { "_id": id, "x": value })).await;
    let rule = "  - {namespace: DB.c, field: x, expireAfter: 1d, dateFormat: iso8601}\n";
    let report = audit(&case, rule, &["--as-of", NOW]).await;
    let audited = &report.json["rules"][0];
    assert_eq!(
        (&audited["expiredCount"], &audited["oldestExpired"]),
        (&3.into(), &"2025-01-01T00:00:00.000Z".into()),
        "{report:?}"
    );
    assert_eq!(sum(&audited["ageHistogram"], "notExpiredCount"), 3);
    assert_eq!(audited["forecast"][0]["count"], 3);
    let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
    others.iter().for_each(|(_, reason)| *reasons.entry(reason).or_default() += 1);
    assert_eq!(audited["neverExpires"], serde_json::json!(reasons));
    assert_eq!(audited["samples"].as_array().unwrap().len(), 3);
    assert_eq!(case.report(rule, &["--as-of", NOW]).await.rule(0, "deletedCount"), 3);
    assert_eq!(case.ids("c").await, id_set(3..12));
}

async fn epoch_numbers_and_object_ids_have_their_own_reasons(server: &Server) {
    let (day, now_s) = (DAY / 1000, NOW_MILLIS / 1000);
    let oid = |seconds: i64| {
        let mut bytes = [7; 12];
        bytes[..4].copy_from_slice(&u32::try_from(seconds).unwrap().to_be_bytes());
        Bson::from(bson::oid::ObjectId::from_bytes(bytes))
    };
    let decimal: Bson = Bson::Decimal128(now_s.to_string().parse().unwrap());
    let both = Bson::Array(vec![(now_s - 10 * day).into(), decimal.clone()]);
    let millis = |ms: i64| Bson::from(NOW_MILLIS + ms);
    // Format, expired dates, due on the first day, due on the second, and invalid values with their reasons.
    type Others = Vec<(Bson, &'static str)>;
    let tables: [(&str, [Vec<Bson>; 3], Others); 3] = [
        (
            "epochSeconds",
            [
                vec![(now_s - day).into(), ((now_s - day) as f64 - 0.001).into(), i32::try_from(now_s - 5 * day).unwrap().into()],
                vec![((now_s - day) as f64 + 0.001).into(), now_s.into()],
                vec![(now_s as f64 + 0.001).into(), (now_s + day).into()],
            ],
            vec![
                (millis(0), "implausibleEpoch"),
                (f64::INFINITY.into(), "implausibleEpoch"),
                (f64::NAN.into(), "number"),
                (decimal.clone(), "decimal"),
                (both, "decimal"),
                (at(-10 * DAY).into(), "date"),
                ("x".into(), "string"),
                (Bson::Array(vec![]), "emptyArray"),
            ],
        ),
        (
            "epochMillis",
            [
                vec![millis(-DAY), millis(-9 * DAY)],
                vec![millis(-DAY + 1), ((NOW_MILLIS - DAY) as f64 + 0.5).into(), millis(0)],
                vec![millis(1), millis(DAY)],
            ],
            vec![
                (now_s.into(), "implausibleEpoch"),
                (0.into(), "implausibleEpoch"),
                (Bson::Array(vec![millis(-9 * DAY), now_s.into()]), "implausibleEpoch"),
                (decimal, "decimal"),
                (at(0).into(), "date"),
                (oid(now_s), "otherType"),
            ],
        ),
        (
            "objectId",
            [vec![oid(now_s - day), oid(0)], vec![oid(now_s - day + 1), oid(now_s)], vec![oid(now_s + 1), oid(now_s + day)]],
            vec![(at(0).into(), "date"), (now_s.into(), "number"), (Bson::Null, "null"), (doc! {}.into(), "otherType")],
        ),
    ];
    for (format, [expired, first, second], others) in tables {
        let case = server.case().await;
        let values = expired.iter().chain(&first).chain(&second).chain(others.iter().map(|(value, _)| value));
        case.fill("c", (0..).zip(values).map(|(id, value)| doc! { "_id": id, "x": value })).await;
        let rule = format!("  - {{namespace: DB.c, field: x, expireAfter: 1d, dateFormat: {format}}}\n");
        let report = audit(&case, &rule, &["--as-of", NOW]).await;
        let audited = &report.json["rules"][0];
        assert_eq!(audited["expiredCount"], expired.len(), "{format}: {report:?}");
        assert_eq!(sum(&audited["ageHistogram"], "expiredCount"), expired.len() as u64, "{format}");
        assert_eq!(sum(&audited["ageHistogram"], "notExpiredCount"), (first.len() + second.len()) as u64, "{format}");
        let days: Vec<_> = audited["forecast"].as_array().unwrap().iter().map(|day| day["count"].as_u64().unwrap()).collect();
        assert_eq!((days[0], days[1], days[2..].iter().sum()), (first.len() as u64, second.len() as u64, 0), "{format}");
        let mut reasons: BTreeMap<&str, u64> = BTreeMap::new();
        others.iter().for_each(|(_, reason)| *reasons.entry(reason).or_default() += 1);
        assert_eq!(audited["neverExpires"], serde_json::json!(reasons), "{format}");
        assert_eq!(never(audited) as usize, others.len());
        // Dry runs one and two days later agree.
        for (instant, more) in [("2026-02-01T02:00:00Z", first.len()), ("2026-02-02T02:00:00Z", first.len() + second.len())] {
            let dry = case.report(&rule, &["--dry-run", "--as-of", instant]).await;
            assert_eq!(dry.rule(0, "expiredCount"), expired.len() + more, "{format}, {instant}");
        }
        let swept = case.report(&rule, &["--as-of", NOW]).await;
        assert_eq!(swept.rule(0, "deletedCount"), expired.len());
        assert_eq!(
            case.ids("c").await,
            id_set(expired.len() as i32..(expired.len() + first.len() + second.len() + others.len()) as i32)
        );
    }
}

on_servers!(
    every_document_has_one_class_and_what_has_expired_is_what_a_sweep_deletes,
    every_type_never_expires_by_its_own_reason,
    epoch_numbers_and_object_ids_have_their_own_reasons
);
