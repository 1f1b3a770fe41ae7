//! Random documents, tenants and periods of every type: what is left is what a `$lookup` of the server says.

use std::collections::BTreeSet;

use fastrand::Rng;
use futures_util::TryStreamExt;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};
use serde_json::Value;

use crate::support::faults::days;
use crate::support::sweeper::{Case, id_set};

/// Documents of one collection. More: `SWEEPER_TEST_PERIOD_DOCUMENTS=200000`.
fn documents() -> usize {
    std::env::var("SWEEPER_TEST_PERIOD_DOCUMENTS").ok().and_then(|number| number.parse().ok()).unwrap_or(1500)
}

const HOUR: i64 = 3600;

/// Different periods that are usual.
const PERIODS: i32 = 40;

/// Returns the key of a tenant.
fn key(random: &mut Rng, tenants: i32) -> Bson {
    let n = random.i32(0..tenants);
    match n % 5 {
        0 => n.into(),
        1 => format!("t{n}").into(),
        2 => doc! { "a": n }.into(),
        3 => ObjectId::from_bytes([n.to_be_bytes(), [7; 4], [7; 4]].concat().try_into().unwrap()).into(),
        _ => (f64::from(n) + 0.5).into(),
    }
}

/// Returns what a tenant has as its period; `None` for no value.
fn period(random: &mut Rng) -> Option<Bson> {
    let usual = random.i32(1..=PERIODS);
    Some(match random.u8(0..40) {
        0 => return None,
        1 => (-1).into(),
        2 => 0.into(),
        3 => (-7).into(),
        4 => (f64::from(usual) + 0.5).into(),
        5 => usual.to_string().into(),
        6 => Bson::Null,
        7 => vec![usual].into(),
        8 => f64::NAN.into(),
        9 => true.into(),
        10 => Bson::Decimal128(usual.to_string().parse().unwrap()),
        11 => doc! { "d": usual }.into(),
        12 => DateTime::from_millis(usual.into()).into(),
        13 => (1_i64 << 60).into(),
        14..=18 => i64::from(usual).into(),
        19..=22 => f64::from(usual).into(),
        _ => usual.into(),
    })
}

/// Returns a document that is about as old as one of the periods.
fn document(random: &mut Rng, id: i32, tenants: i32, as_of: DateTime) -> Document {
    let age = i64::from(random.i32(1..=PERIODS + 2)) * HOUR * 1000 + random.i64(-1..=1);
    let at = DateTime::from_millis(as_of.timestamp_millis() - age);
    let mut document = doc! { "_id": id, "at": at };
    let keys = match random.u8(0..12) {
        0 => None,
        1 => Some(Bson::Null),
        2 => Some("unknown".into()),
        3 => Some((0..random.usize(0..4)).map(|_| key(random, tenants)).collect::<Vec<_>>().into()),
        4 => Some(vec![key(random, tenants), "unknown".into()].into()),
        _ => Some(key(random, tenants)),
    };
    document.extend(keys.map(|keys| ("t".to_owned(), keys)));
    if random.u8(0..4) == 0 {
        let hours = random.i32(1..PERIODS) * 3600;
        let ttl: [Bson; 7] =
            [hours.into(), i64::from(hours).into(), f64::from(hours).into(), (-1).into(), 0.into(), "x".into(), 2.5.into()];
        document.insert("ttl", ttl[random.usize(0..ttl.len())].clone());
    }
    document
}

/// Returns the `_id`s of the documents that stay, by the server.
async fn expected(case: &Case, as_of: DateTime, own: Option<i64>, has_ttl: bool) -> BTreeSet<i32> {
    let never = f64::INFINITY;
    let own = own.map_or(never, |seconds| seconds as f64);
    let value = "$$one.hours";
    let is_whole = doc! { "$in": [{ "$type": value }, ["int", "long", "double"]] };
    let seconds = doc! { "$switch": { "branches": [
        { "case": { "$eq": [{ "$type": value }, "missing"] }, "then": own },
        { "case": { "$not": [is_whole] }, "then": never },
        { "case": { "$and": [{ "$gt": [value, 0] }, { "$eq": [value, { "$trunc": value }] }] }, "then": { "$multiply": [value, HOUR as f64] } },
    ], "default": never } };
    let of_key = doc! { "$max": { "$map": { "input": "$p", "as": "one", "in": seconds } } };
    let is_own = doc! { "$and": [
        { "$in": [{ "$type": "$ttl" }, ["int", "long", "double"]] },
        { "$eq": [{ "$cond": [{ "$isNumber": "$ttl" }, { "$trunc": "$ttl" }, Bson::Null] }, "$ttl"] },
    ] };
    let of_ttl =
        doc! { "$cond": [{ "$gt": ["$ttl", 0] }, { "$toDouble": { "$cond": [{ "$isNumber": "$ttl" }, "$ttl", 0] } }, never] };
    let life = if has_ttl {
        doc! { "$cond": [is_own, of_ttl, "$life"] }
    } else {
        doc! { "$max": ["$life"] }
    };
    let stages = vec![
        doc! { "$set": { "k": { "$cond": [{ "$and": [{ "$isArray": "$t" }, { "$ne": ["$t", []] }] }, "$t", ["$t"]] } } },
        doc! { "$unwind": "$k" },
        doc! { "$lookup": { "from": "tenants", "localField": "k", "foreignField": "_id", "as": "p" } },
        doc! { "$group": {
            "_id": "$_id", "at": { "$first": "$at" }, "t": { "$first": "$t" }, "ttl": { "$first": "$ttl" },
            "life": { "$max": { "$cond": [{ "$eq": ["$p", []] }, own, of_key] } },
        } },
        doc! { "$set": { "life": life, "age": { "$divide": [{ "$subtract": [as_of, "$at"] }, 1000] } } },
        doc! { "$lookup": { "from": "holds", "localField": "t", "foreignField": "key", "as": "held" } },
        doc! { "$match": { "$or": [{ "held": { "$ne": [] } }, { "$expr": { "$lt": ["$age", "$life"] } }] } },
        doc! { "$project": { "_id": 1 } },
    ];
    let command = doc! { "aggregate": "c", "pipeline": stages, "cursor": { "batchSize": 1_000_000 }, "allowDiskUse": true };
    let cursor = case.db.run_cursor_command(command).await.unwrap();
    let found: Vec<Document> = cursor.try_collect().await.unwrap();
    found.iter().map(|document| document.get_i32("_id").unwrap()).collect()
}

/// Keys of a rule with holds and children.
const HELD_WITH_CHILDREN: &str =
    ", ttlField: ttl, holds: {collection: DB.holds, key: {of: t, in: key}}, children: [{namespace: DB.lines, field: of}]";

#[tokio::test]
async fn what_is_left_is_what_a_lookup_of_the_server_says() {
    let seed = std::env::var("SWEEPER_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(7);
    let mut random = Rng::with_seed(seed);
    for (keys, own, has_ttl, is_indexed) in [
        ("", Some(20 * HOUR), false, true),
        ("", None, false, true),
        (", ttlField: ttl", Some(HOUR), true, true),
        (", ttlField: ttl, order: storage", None, true, true),
        (", maxDeletePercent: 100, batchSize: 7", Some(45 * HOUR), false, false),
        (", archive: {directory: DIR}", Some(5 * HOUR), false, true),
        (HELD_WITH_CHILDREN, Some(30 * HOUR), true, true),
    ] {
        let case = Case::new().await;
        let as_of = days(-1);
        let count = i32::try_from(documents()).unwrap();
        let tenants = count / 40;
        let mut with_period: Vec<(Bson, Document)> = Vec::new();
        for _ in 0..tenants {
            let id = key(&mut random, tenants);
            if with_period.iter().any(|(known, _)| *known == id) {
                continue;
            }
            let mut tenant = doc! { "_id": id.clone() };
            tenant.extend(period(&mut random).map(|period| ("hours".to_owned(), period)));
            with_period.push((id, tenant));
        }
        case.fill("tenants", with_period.into_iter().map(|(_, tenant)| tenant)).await;
        case.fill("c", (0..count).map(|id| document(&mut random, id, tenants, as_of)).collect::<Vec<_>>()).await;
        if is_indexed {
            case.db
                .run_command(doc! { "createIndexes": "c", "indexes": [{ "key": { "at": 1 }, "name": "at_1" }] })
                .await
                .unwrap();
        }
        if keys == HELD_WITH_CHILDREN {
            let held = (0..tenants / 10).map(|id| doc! { "_id": id, "key": key(&mut random, tenants) });
            case.fill("holds", held.collect::<Vec<_>>()).await;
            case.fill("lines", (0..count).map(|of| doc! { "_id": of, "of": of })).await;
            case.db
                .run_command(doc! { "createIndexes": "lines", "indexes": [{ "key": { "of": 1 }, "name": "of_1" }] })
                .await
                .unwrap();
        }
        let expected = expected(&case, as_of, own, has_ttl).await;
        let keys = keys.replace("DIR", &case.dir.path().display().to_string());
        let rule = format!(
            "  - {{namespace: DB.c, field: at, expireAfterSeconds: {}, periods: {{collection: DB.tenants, key: {{of: t, in: _id}}, value: hours, unit: h}}{keys}}}\njournal: {{collection: DB.journal}}\n",
            own.unwrap_or(-1)
        );
        let at = as_of.try_to_rfc3339_string().unwrap();
        let dry = case.report(&rule, &["--dry-run", "--as-of", &at]).await;
        let gone = u64::from(count.unsigned_abs()) - expected.len() as u64;
        assert!(gone > 100 && !expected.is_empty(), "{gone} of {count}");
        assert_eq!(dry.rule(0, "expiredCount"), &Value::from(gone), "seed {seed} {keys}: {dry:?}");
        let swept = case.report(&rule, &["--as-of", &at]).await;
        assert_eq!(
            (swept.ran.code, swept.rule(0, "deletedCount")),
            (Some(0), &Value::from(gone)),
            "seed {seed} {keys}: {swept:?}"
        );
        assert_eq!(case.ids("c").await, id_set(expected.iter().copied()), "seed {seed} {keys}");
        if keys.contains("children") {
            assert_eq!(case.ids("lines").await, id_set(expected), "seed {seed}");
        }
    }
}
