//! The guard against a wrong type: a filter with a string where a date, an id or a number was meant deletes nothing.

use std::fmt::Write;

use crate::support::faults::days;
use crate::support::sweeper::{Case, Report, id_set};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Decimal128, Document, Regex, Timestamp, Uuid, doc};

/// Documents in each collection, all of them expired.
const DOCUMENTS: i32 = 12;

const OWNER: &str = "0123456789abcdef01234567";
const UUID: &str = "c8edabc3-f738-4ca3-b68d-ab92a91478a3";

/// Returns documents with every type, in fields, arrays, sub-documents and arrays of them.
fn documents() -> Vec<Document> {
    let document = |id: i32| {
        let uuid = Uuid::parse_str(UUID).unwrap();
        let legacy = Binary { subtype: BinarySubtype::UuidOld, bytes: vec![u8::try_from(id).unwrap(); 16] };
        let mixed: Bson = match id % 4 {
            0 => "2026-11-24".into(),
            1 => 5.into(),
            2 => days(5).into(),
            _ => true.into(),
        };
        let price: Bson = if id % 2 == 0 { 1.5.into() } else { "2.5".parse::<Decimal128>().unwrap().into() };
        let mut document = doc! {
            "_id": id, "at": days(-3), "keepUntil": days(if id % 2 == 0 { 30 } else { -1 }), "owner": ObjectId::parse_str(OWNER).unwrap(),
            "uuid": uuid, "legacy": legacy, "n": id, "big": 5_000_000_000_i64, "price": price, "held": id % 3 == 0, "status": "open",
            "iso": format!("2026-11-{:02}T00:00:00Z", id + 1), "day": "2026-11-24", "route": "/api/v1/x", "slashes": "/etc/",
            "call": "Date (approximate)", "hex": OWNER, "number": "42", "tags": ["a", "b"], "scores": [1, 2 + id], "stamps": [days(-1), days(4)],
            "items": [{ "sku": "x", "qty": 2, "until": days(9), "by": ObjectId::parse_str(OWNER).unwrap() }, { "sku": "y" }],
            "meta": { "tenant": "t1", "until": days(9), "deep": { "n": 3 } }, "ref": { "id": 5, "kind": "job" }, "mixed": mixed,
            "ts": Timestamp { time: 5, increment: 1 }, "bin": Binary { subtype: BinarySubtype::Generic, bytes: vec![1, 2] },
            "rx": Regex { pattern: "a".try_into().unwrap(), options: "".try_into().unwrap() },
            "nothing": Bson::Null, "empty": [], "matrix": [[1, 2], [3]], "groups": [{ "parts": [{ "n": 1 }] }],
        };
        if id == 7 {
            document.insert("rare", days(1));
        } else if id % 2 == 0 {
            document.insert("rare", Bson::Null);
        }
        document
    };
    (0..DOCUMENTS).map(document).collect()
}

/// Returns a policy with a rule for each filter, each in a collection of its own.
fn policy(filters: &[&str], keys: &str) -> String {
    filters.iter().enumerate().fold(String::new(), |mut policy, (number, filter)| {
        writeln!(policy, "  - {{namespace: DB.c{number}, name: r{number}, field: at, expireAfter: 1d, filter: {filter}{keys}}}").unwrap();
        policy
    })
}

async fn filled(collections: usize) -> Case {
    let case = Case::new().await;
    for number in 0..collections {
        case.fill(&format!("c{number}"), documents()).await;
    }
    case
}

async fn report(case: &Case, rules: &str, args: &[&str]) -> Report {
    let ran = case.run(rules, &[args, &["--format", "json"]].concat()).await;
    let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    Report { json, ran }
}

/// Filters that compare a field with a type that none of its values has, so that they take documents that they are to keep.
const WRONG: [&str; 92] = [
    // A stranger's first hour.
    "{keepUntil: {$not: {$gt: 2026-11-24}}}",
    "{keepUntil: {$not: {$gt: '2026-11-24T00:00:00Z'}}}",
    "{$nor: [{keepUntil: {$gt: '2026-11-24 10:00'}}]}",
    "{_id: {$ne: '0123456789abcdef01234567'}}",
    // Under every negation, and in every form of it.
    "{keepUntil: {$ne: '2026-11-24'}}",
    "{keepUntil: {$nin: ['2026-11-24']}}",
    "{keepUntil: {$not: {$gte: '2026-11-24', $lt: '2027-11-24'}}}",
    "{keepUntil: {$not: {$not: {$not: {$gt: '2026-11-24'}}}}}",
    "{$nor: [{$nor: [{$nor: [{keepUntil: {$gt: '2026/11/24'}}]}]}]}",
    "{$and: [{$or: [{keepUntil: {$not: {$gte: '24.11.2026'}}}]}]}",
    "{$or: [{status: gone}, {keepUntil: {$not: {$gt: '2026-11'}}}]}",
    "{keepUntil: {$not: {$gt: '20261124T000000Z'}}}",
    "{keepUntil: {$not: {$in: ['2026-11-24']}}}",
    "{keepUntil: {$not: {$gt: now}}}",
    "{keepUntil: {$not: {$gt: '$$NOW'}}}",
    "{keepUntil: {$exists: true, $not: {$gt: '2026-11-24'}}}",
    // Epoch numbers beside a date.
    "{keepUntil: {$not: {$gt: 1795478400}}}",
    "{keepUntil: {$not: {$gt: 1795478400000}}}",
    "{$nor: [{keepUntil: {$gte: {$numberDouble: '1795478400.5'}}}]}",
    "{keepUntil: {$not: {$gt: {$timestamp: {t: 1795478400, i: 1}}}}}",
    "{n: {$not: {$gt: {$date: '2020-01-01T00:00:00Z'}}}}",
    // Ids, numbers, booleans and UUIDs as strings.
    "{owner: {$ne: '0123456789abcdef01234567'}}",
    "{owner: {$nin: ['0123456789abcdef01234567', {$oid: '0123456789abcdef01234568'}]}}",
    "{uuid: {$ne: c8edabc3-f738-4ca3-b68d-ab92a91478a3}}",
    "{uuid: {$ne: {$binary: {base64: 'yO2rw/c4TKO2jauSqRR4ow==', subType: '03'}}}}",
    "{legacy: {$ne: {$uuid: c8edabc3-f738-4ca3-b68d-ab92a91478a3}}}",
    "{uuid: {$ne: {$binary: {base64: 'yO2rw/c4TKO2jauSqRR4ow==', subType: '00'}}}}",
    "{bin: {$ne: 'AQI='}}",
    "{n: {$ne: '5'}}",
    "{n: {$not: {$gte: '5'}}}",
    "{big: {$nin: ['5000000000']}}",
    "{price: {$not: {$gt: '1'}}}",
    "{held: {$ne: 'true'}}",
    "{held: {$ne: 1}}",
    "{held: {$nin: ['yes', 'true']}}",
    "{ts: {$not: {$gt: {$date: '2020-01-01T00:00:00Z'}}}}",
    "{number: {$ne: 42}}",
    "{status: {$ne: true}}",
    "{hex: {$ne: {$oid: '0123456789abcdef01234567'}}}",
    "{iso: {$not: {$gt: {$date: '2020-01-01T00:00:00Z'}}}}",
    // A regular expression in a string, and one beside numbers.
    "{n: {$ne: /^5/}}",
    "{n: {$not: {$regex: '^1'}}}",
    "{n: {$not: {$regularExpression: {pattern: '^1', options: ''}}}}",
    "{owner: {$nin: [{$regularExpression: {pattern: '^01', options: i}}]}}",
    "{status: {$not: {$mod: [2, 0]}}}",
    "{status: {$not: {$bitsAllSet: 1}}}",
    // Sub-documents, some of which are misspelt Extended JSON.
    "{keepUntil: {$ne: {date: '2026-11-24T00:00:00Z'}}}",
    "{owner: {$ne: {oid: '0123456789abcdef01234567'}}}",
    "{n: {$nin: [{numberLong: '5'}]}}",
    "{ref: {$ne: {id: '5', kind: job}}}",
    "{ref: {$nin: [{id: 5, kind: 7}]}}",
    "{ref: {$ne: 5}}",
    "{meta: {$ne: {tenant: t1, deep: {n: '3'}}}}",
    // Arrays, dotted paths, and elements.
    "{tags: {$ne: 5}}",
    "{scores: {$nin: ['1', '2']}}",
    "{scores: {$ne: ['1', '2']}}",
    "{scores: {$not: {$all: ['1']}}}",
    "{scores: {$not: {$elemMatch: {$gt: '1'}}}}",
    "{stamps: {$not: {$gt: '2026-11-24'}}}",
    "{stamps: {$not: {$elemMatch: {$gt: '2026-11-24'}}}}",
    "{items: {$not: {$elemMatch: {until: {$gt: '2026-11-24'}}}}}",
    "{$nor: [{items: {$elemMatch: {qty: {$gt: '1'}}}}]}",
    "{$nor: [{items: {$elemMatch: {$or: [{qty: '2'}, {sku: {$ne: 5}}]}}}]}",
    "{items: {$elemMatch: {by: {$ne: '0123456789abcdef01234567'}}}}",
    "{groups: {$not: {$elemMatch: {parts: {$elemMatch: {n: '1'}}}}}}",
    "{matrix: {$not: {$elemMatch: {$elemMatch: {$gte: '1'}}}}}",
    "{items: {$not: {$all: [{$elemMatch: {qty: '2'}}]}}}",
    "{'items.until': {$not: {$gt: '2026-11-24'}}}",
    "{'items.0.qty': {$ne: '2'}}",
    "{'meta.until': {$not: {$gt: '2026-11-24'}}}",
    "{'meta.deep.n': {$ne: '3'}}",
    "{mixed: {$not: {$gt: {$oid: '0123456789abcdef01234567'}}}}",
    // Expressions, where a wrong type takes everything without a negation.
    "{$expr: {$lt: [$keepUntil, '2026-11-24']}}",
    "{$expr: {$gt: ['2026-11-24', $keepUntil]}}",
    "{$expr: {$gt: [$keepUntil, 1795478400]}}",
    "{$expr: {$lt: [$n, $$NOW]}}",
    "{$expr: {$ne: [$owner, '0123456789abcdef01234567']}}",
    "{$expr: {$not: [{$eq: [$n, '5']}]}}",
    "{$expr: {$not: [{$in: [$n, ['5', '6']]}]}}",
    "{$expr: {$not: [{$in: ['1', $scores]}]}}",
    "{$expr: {$lt: [$n, {$literal: '5'}]}}",
    "{$expr: {$cond: [{$gt: [$price, '1']}, false, true]}}",
    "{$expr: {$let: {vars: {until: '2026-11-24', of: $keepUntil}, in: {$lt: [$$of, $$until]}}}}",
    "{$expr: {$not: [{$anyElementTrue: [{$map: {input: $items, as: i, in: {$gt: [$$i.qty, '1']}}}]}]}}",
    "{$expr: {$eq: [{$size: {$filter: {input: $items, cond: {$gt: [$$this.until, '2026-11-24']}}}}, {$size: $items}]}}",
    "{$expr: {$lt: [$iso, {$dateSubtract: {startDate: $$NOW, unit: day, amount: 1}}]}}",
    "{$expr: {$lt: [{$year: $keepUntil}, '2020']}}",
    "{$expr: {$ne: [{$ifNull: [$held, false]}, 'true']}}",
    "{$expr: {$and: [{$or: [{$lt: [$meta.until, '2026-11-24']}]}]}}",
    "{$expr: {$setIsSubset: [['1'], $tags]}, $nor: [{$expr: {$setIsSubset: [['1'], $scores]}}]}",
    // Schemas.
    "{$jsonSchema: {properties: {keepUntil: {maximum: 1795478400}}}}",
    "{$nor: [{$jsonSchema: {properties: {n: {enum: ['5']}}}}]}",
];

#[tokio::test]
async fn a_filter_with_a_wrong_type_deletes_nothing() {
    let case = filled(WRONG.len()).await;
    let rules = policy(&WRONG, "");
    for args in [&["check", "--connect"][..], &["sweep", "--dry-run"], &["audit"], &["sweep"]] {
        let report = report(&case, &rules, args).await;
        for (number, filter) in WRONG.iter().enumerate() {
            let found = (report.rule(number, "status"), report.rule(number, "reason"));
            assert_eq!(found, (&"refused".into(), &"unknownType".into()), "{args:?} {filter}: {}", report.json["rules"][number]);
            let error = report.rule(number, "error").as_str().unwrap();
            assert!(error.contains("no document found has a") && error.contains("allowUnknownTypes: ["), "{filter}: {error}");
        }
        let code = if args == ["sweep"] { Some(5) } else { report.ran.code };
        assert_eq!(report.ran.code, code);
        assert_eq!(report.ran.code == Some(5), args == ["sweep"], "{args:?} {:?}", report.ran.code);
    }
    for (number, filter) in WRONG.iter().enumerate() {
        assert_eq!(case.ids(&format!("c{number}")).await, id_set(0..DOCUMENTS), "{filter}");
    }
}
