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
        writeln!(policy, "  - {{namespace: DB.c{number}, name: r{number}, field: at, expireAfter: 1d, filter: {filter}{keys}}}")
            .unwrap();
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
const WRONG: [&str; 106] = [
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
    // Epoch numbers next to a date.
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
    // A regular expression in a string, and one next to numbers.
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
    // What is null elsewhere, and an array that is none.
    "{rare: {$not: {$gt: '2026-11-24'}}}",
    "{nothing: {$not: {$gt: '2026-11-24'}}}",
    "{held: {$not: {$elemMatch: {$eq: true}}}}",
    "{ref: {$not: {$elemMatch: {id: 5}}}}",
    "{keepUntil: {$in: ['2026-11-24', null]}}",
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
    "{$expr: {$lt: [$keepUntil, {$toString: $$NOW}]}}",
    "{$expr: {$lt: [{$toString: $keepUntil}, $$NOW]}}",
    "{$expr: {$gt: [{$add: [$keepUntil, 86400000]}, 1795478400000]}}",
    "{$expr: {$gt: [{$max: $stamps}, '2026-11-24']}}",
    "{$expr: {$gt: [$scores, 5]}}",
    "{$expr: {$ne: [$ref, {id: '5', kind: job}]}}",
    "{$expr: {$ne: [[$n, $status], ['5', open]]}}",
    "{$expr: {$lt: [{$arrayElemAt: [$stamps, 0]}, 1795478400]}}",
    "{$expr: {$lt: [$keepUntil, {date: '2026-11-24'}]}}",
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
        let code = if ["sweep", "check"].contains(&args[0]) && args != ["sweep", "--dry-run"] { 5 } else { 0 };
        assert_eq!(report.ran.code, Some(code), "{args:?}");
    }
    for (number, filter) in WRONG.iter().enumerate() {
        assert_eq!(case.ids(&format!("c{number}")).await, id_set(0..DOCUMENTS), "{filter}");
    }
}

/// Filters that compare each field with a type that some of its values have.
const HONEST: [&str; 76] = [
    "{status: open}",
    "{status: {$ne: closed}}",
    "{status: {$nin: [closed, failed]}}",
    "{status: {$not: {$regex: '^cl'}}}",
    "{status: {$not: {$regularExpression: {pattern: '^cl', options: i}}}}",
    "{route: /api/v1/x}",
    "{route: {$ne: /api/v1/x}}",
    "{route: {$nin: [/api/v1, /api/v2/i]}}",
    "{slashes: {$ne: /etc/}}",
    "{call: {$ne: 'Date (approximate)'}}",
    "{call: {$ne: 'see ISODate(5)'}}",
    "{iso: {$not: {$gt: '2026-11-05T00:00:00Z'}}}",
    "{iso: {$lt: '2026-11-05'}}",
    "{day: {$ne: 2026-11-24}}",
    "{hex: {$ne: '0123456789abcdef01234567'}}",
    "{number: {$ne: '42'}}",
    "{number: {$nin: ['1', '2']}}",
    "{n: {$ne: 5}}",
    "{n: {$ne: {$numberLong: '5'}}}",
    "{n: {$ne: {$numberDouble: '5.0'}}}",
    "{n: {$nin: [{$numberDecimal: '5'}, 7]}}",
    "{big: {$not: {$lt: 5}}}",
    "{price: {$not: {$gt: 2}}}",
    "{held: {$ne: true}}",
    "{held: {$nin: [true, null]}}",
    "{owner: {$ne: {$oid: '0123456789abcdef01234568'}}}",
    "{uuid: {$ne: {$uuid: c8edabc3-f738-4ca3-b68d-ab92a91478a4}}}",
    "{legacy: {$ne: {$binary: {base64: 'yO2rw/c4TKO2jauSqRR4ow==', subType: '03'}}}}",
    "{bin: {$ne: {$binary: {base64: 'AQI=', subType: '00'}}}}",
    "{ts: {$not: {$gt: {$timestamp: {t: 5, i: 1}}}}}",
    "{keepUntil: {$not: {$gt: {$date: '2026-11-24T00:00:00Z'}}}}",
    "{$nor: [{keepUntil: {$gt: {$date: '2026-11-24T00:00:00Z'}}}, {held: true}]}",
    "{keepUntil: {$not: {$gt: null}}}",
    "{keepUntil: {$ne: null}}",
    "{keepUntil: {$not: {$gte: {$minKey: 1}}}}",
    "{keepUntil: {$not: {$type: string}}}",
    "{keepUntil: {$exists: true}, rare: {$exists: 1}}",
    "{tags: {$not: {$size: 3}}}",
    "{tags: {$ne: c}}",
    "{tags: {$ne: [a, b]}}",
    "{tags: {$nin: [[a], [b]]}}",
    "{tags: {$not: {$all: [a, c]}}}",
    "{scores: {$not: {$elemMatch: {$gt: 100}}}}",
    "{scores: {$ne: 100}}",
    "{scores: {$not: {$mod: [100, 99]}}}",
    "{stamps: {$not: {$gt: {$date: '2030-01-01T00:00:00Z'}}}}",
    "{items: {$not: {$elemMatch: {until: {$gt: {$date: '2030-01-01T00:00:00Z'}}}}}}",
    "{'items.qty': {$ne: 100}}",
    "{'items.0.qty': {$ne: 100}}",
    "{items: {$elemMatch: {by: {$ne: {$oid: '0123456789abcdef01234568'}}}}}",
    "{items: {$not: {$all: [{$elemMatch: {qty: 2, sku: z}}]}}}",
    "{matrix: {$not: {$elemMatch: {$elemMatch: {$gte: 100}}}}}",
    "{matrix: {$ne: [1, 2, 3]}}",
    "{matrix: {$ne: [[1], [2]]}}",
    "{groups: {$not: {$elemMatch: {parts: {$elemMatch: {n: 7}}}}}}",
    "{ref: {$ne: {id: 7, kind: job}}}",
    "{meta: {$ne: {tenant: t2, until: null}}}",
    "{'meta.deep.n': {$nin: [1, 2]}}",
    "{mixed: {$ne: '2026-11-24'}}",
    "{mixed: {$nin: [5, true, x, {$date: '2026-11-24T00:00:00Z'}]}}",
    "{rare: {$not: {$gt: {$date: '2030-01-01T00:00:00Z'}}}}",
    "{nothing: {$ne: true}}",
    "{nothing: {$nin: [1, x]}}",
    "{empty: {$ne: x}}",
    "{_id: {$ne: 400}}",
    "{$expr: {$lt: [$keepUntil, $$NOW]}}",
    "{$expr: {$ne: [$n, 5]}}",
    "{$expr: {$and: [{$isArray: $items}, {$gt: [{$size: $items}, 1]}, {$ne: [$status, closed]}]}}",
    "{$expr: {$not: [{$in: [$status, [closed, failed]]}]}}",
    "{$expr: {$not: [{$in: [c, $tags]}]}}",
    "{$expr: {$lt: [$at, {$dateSubtract: {startDate: $$NOW, unit: day, amount: 1}}]}}",
    "{$expr: {$lt: [{$toLong: $keepUntil}, 1795478400000]}}",
    "{$expr: {$ne: [{$ifNull: [$held, false]}, true]}}",
    "{$expr: {$let: {vars: {n: $n}, in: {$gt: [$$n, 3]}}}}",
    "{$expr: {$not: [{$anyElementTrue: [{$map: {input: $items, as: i, in: {$gt: [$$i.qty, 100]}}}]}]}}",
    "{$jsonSchema: {properties: {n: {minimum: 0}, status: {enum: [open, closed]}}}}",
];

/// Returns honest filters with every operator on every field, whose values are of its own type.
fn systematic() -> Vec<String> {
    let values = [
        ("n", "5"),
        ("big", "5"),
        ("price", "{$numberDecimal: '1'}"),
        ("held", "true"),
        ("status", "'2026-11-24'"),
        ("iso", "/x/"),
        ("owner", "{$oid: '0123456789abcdef01234567'}"),
        ("uuid", "{$uuid: c8edabc3-f738-4ca3-b68d-ab92a91478a3}"),
        ("keepUntil", "{$date: '2026-11-24T00:00:00Z'}"),
        ("ts", "{$timestamp: {t: 5, i: 1}}"),
        ("tags", "a"),
        ("scores", "1"),
        ("stamps", "{$date: '2026-11-24T00:00:00Z'}"),
        ("'items.until'", "{$date: '2026-11-24T00:00:00Z'}"),
        ("'meta.deep.n'", "3"),
        ("mixed", "5"),
        ("mixed", "x"),
        ("rare", "{$date: '2026-11-24T00:00:00Z'}"),
        ("nothing", "7"),
    ];
    let forms: [fn(&str, &str) -> String; 8] = [
        |field, value| format!("{{{field}: {value}}}"),
        |field, value| format!("{{{field}: {{$ne: {value}}}}}"),
        |field, value| format!("{{{field}: {{$gte: {value}}}}}"),
        |field, value| format!("{{{field}: {{$not: {{$lt: {value}}}}}}}"),
        |field, value| format!("{{$nor: [{{{field}: {{$gt: {value}}}}}]}}"),
        |field, value| format!("{{{field}: {{$nin: [{value}, null]}}}}"),
        |field, value| format!("{{{field}: {{$not: {{$in: [{value}]}}}}}}"),
        |field, value| format!("{{$or: [{{status: gone}}, {{{field}: {{$not: {{$elemMatch: {{$gt: {value}}}}}}}}}]}}"),
    ];
    let arrays = ["tags", "scores", "stamps"];
    let is_fitting = |field: &str, form: usize| form != 7 || arrays.contains(&field);
    values
        .iter()
        .flat_map(|(field, value)| {
            forms
                .iter()
                .enumerate()
                .filter(|(form, _)| is_fitting(field, *form))
                .map(|(_, form)| form(field, value))
                .collect::<Vec<_>>()
        })
        .collect()
}

#[tokio::test]
async fn an_honest_filter_is_never_refused() {
    let case = filled(1).await;
    let systematic = systematic();
    let filters: Vec<&str> = HONEST.into_iter().chain(systematic.iter().map(String::as_str)).collect();
    assert!(filters.len() >= 200, "{}", filters.len());
    let rules = policy(&filters, "").lines().fold(String::new(), |rules, rule| {
        let (before, after) = rule.split_once("DB.c").unwrap();
        let (_, after) = after.split_once(',').unwrap();
        rules + before + "DB.c0," + after + "\n"
    });
    for args in [&["check", "--connect"][..], &["sweep", "--dry-run"]] {
        let report = report(&case, &rules, args).await;
        for (number, filter) in filters.iter().enumerate() {
            assert_eq!(report.rule(number, "status"), "complete", "{args:?} {filter}: {}", report.json["rules"][number]);
            let warnings = report.rule(number, "warnings").to_string();
            assert!(!warnings.contains("no document found"), "{args:?} {filter}: {warnings}");
        }
    }
}

#[tokio::test]
async fn a_constructor_in_a_string_is_refused_before_anything_is_contacted() {
    let filters = [
        "{keepUntil: {$not: {$gt: ISODate('2026-11-24T00:00:00Z')}}}",
        "{$nor: [{keepUntil: {$gt: ISODate(\"2026-11-24T00:00:00Z\")}}]}",
        "{_id: {$ne: ObjectId('0123456789abcdef01234567')}}",
        "{big: {$nin: [NumberLong(5)]}}",
        "{uuid: {$ne: UUID('c8edabc3-f738-4ca3-b68d-ab92a91478a3')}}",
        "{ts: {$not: {$gt: 'Timestamp(5, 1)'}}}",
        "{keepUntil: {$ne: new Date()}}",
        "{owner: {$ne: '{\"$oid\": \"0123456789abcdef01234567\"}'}}",
        "{$expr: {$lt: [$keepUntil, ISODate()]}}",
        "{held: {$exists: 'false'}}",
    ];
    let case = filled(1).await;
    let rules = policy(&filters, "");
    for args in [&["check"][..], &["sweep"], &["sweep", "--dry-run"]] {
        let ran = case.run(&rules, args).await;
        assert_eq!(ran.code, Some(2), "{ran:?}");
        for (number, filter) in filters.iter().enumerate() {
            assert!(ran.stderr.contains(&format!("collections[{number}] `r{number}`")), "{filter}: {ran:?}");
        }
        for part in [
            "write {$date: \"2026-11-24T00:00:00Z\"}; ",
            "write {$oid: \"0123456789abcdef01234567\"}",
            "set `allowUnknownTypes: [keepUntil]`",
        ] {
            assert!(ran.stderr.contains(part), "{part}: {}", ran.stderr);
        }
    }
    assert_eq!(case.ids("c0").await, id_set(0..DOCUMENTS));
}

#[tokio::test]
async fn a_type_that_no_document_has_is_allowed_by_the_rule_and_otherwise_said() {
    let case = filled(4).await;
    // Named by the rule, at the path or above it.
    let allowed = policy(&["{keepUntil: {$ne: '2026-11-24'}}", "{ref: {$ne: {id: '5'}}}"], "")
        .replace("'2026-11-24'}}}", "'2026-11-24'}}, allowUnknownTypes: [keepUntil]}");
    let allowed = allowed.replace("{id: '5'}}}}", "{id: '5'}}}, allowUnknownTypes: [ref]}");
    let swept = report(&case, &allowed, &["sweep"]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    for name in ["c0", "c1"] {
        assert_eq!(case.ids(name).await, id_set::<i32>([]));
    }
    // Without a negation nothing more is deleted: it is said, and refused by a strict run.
    let rules = "  - {namespace: DB.c2, field: at, expireAfter: 1d, filter: {$or: [{n: {$lt: 3}}, {n: '5'}]}}\n";
    let finding = "no document found has a string in `n`, with which `filter` compares it; if another type was meant, write the number without quotes";
    for args in [&["check", "--connect"][..], &["sweep", "--dry-run"], &["audit"]] {
        let said = report(&case, rules, args).await;
        assert!(said.rule(0, "warnings").to_string().contains(finding), "{args:?} {said:?}");
        assert_eq!(said.rule(0, "status"), "complete");
        let strict = report(&case, rules, &[args, &["--strict"]].concat()).await;
        assert_eq!(
            (strict.rule(0, "status"), strict.rule(0, "reason")),
            (&"refused".into(), &"unknownType".into()),
            "{strict:?}"
        );
    }
    let swept = report(&case, rules, &["sweep"]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    assert_eq!(case.ids("c2").await, id_set(3..DOCUMENTS));
    // A date, without a negation, next to a field without strings is refused all the same.
    let rules = "  - {namespace: DB.c3, field: at, expireAfter: 1d, filter: {keepUntil: {$lt: 2026-11-24}}}\n";
    let refused = report(&case, rules, &["sweep"]).await;
    assert_eq!((refused.ran.code, refused.rule(0, "reason")), (Some(5), &"unknownType".into()), "{refused:?}");
    assert!(refused.rule(0, "error").as_str().unwrap().contains("write {$date: \"2026-11-24T00:00:00Z\"}"));
    // What the name is wrong of is said once.
    let rules = "  - {namespace: DB.c3, field: at, expireAfter: 1d, filter: {keepUntill: {$not: {$gt: 2026-11-24}}}}\n";
    let refused = report(&case, rules, &["sweep"]).await;
    assert_eq!((refused.ran.code, refused.rule(0, "reason")), (Some(5), &"unknownField".into()), "{refused:?}");
    assert!(!refused.json["rules"][0].to_string().contains("a string in"), "{refused:?}");
    // A field that no document needs to have may come to be compared with anything.
    let rules = "  - {namespace: DB.c3, field: at, expireAfter: 1d, filter: {hold: {$ne: true}}, allowUnknownFields: [hold]}\n";
    let swept = report(&case, rules, &["sweep"]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    assert_eq!(case.ids("c3").await, id_set::<i32>([]));
}

#[tokio::test]
async fn a_type_that_only_late_documents_have_is_found_also_in_other_namespaces() {
    let case = Case::new().await;
    let documents = |late: Option<i32>| {
        (0..3000).map(move |id| {
            let hold: Bson = if late == Some(id) { true.into() } else { "no".into() };
            doc! { "_id": id, "at": days(-3), "hold": hold }
        })
    };
    case.fill("c", documents(Some(1700))).await;
    case.fill("tenant_1", documents(Some(1700))).await;
    case.fill("tenant_2", documents(None)).await;
    let rule = |namespace: &str| {
        format!("  - {{namespace: 'DB.{namespace}', field: at, expireAfter: 1d, filter: {{hold: {{$ne: true}}}}}}\n")
    };
    let swept = report(&case, &rule("c"), &["sweep"]).await;
    assert_eq!((swept.ran.code, case.ids("c").await), (Some(0), id_set([1700])), "{swept:?}");
    let only = report(&case, &rule("tenant_2"), &["sweep"]).await;
    assert_eq!((only.ran.code, only.rule(0, "reason")), (Some(5), &"unknownType".into()), "{only:?}");
    let swept = report(&case, &rule("tenant_*"), &["sweep"]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    assert_eq!((case.ids("tenant_1").await, case.ids("tenant_2").await), (id_set([1700]), id_set::<i32>([])));
}

#[tokio::test]
async fn the_meta_field_and_the_holds_are_compared_with_types_that_they_have() {
    let case = Case::new().await;
    case.db.run_command(doc! { "create": "c", "timeseries": { "timeField": "t", "metaField": "m" } }).await.unwrap();
    case.fill("c", (0..4).map(|id| doc! { "_id": id, "t": days(-3), "m": { "id": id, "until": days(id.into()) } })).await;
    case.fill("d", documents()).await;
    case.fill("holds", [doc! { "tenant": 3, "active": true, "until": days(9) }, doc! { "tenant": 4, "active": false }]).await;
    let rules = "  - {namespace: DB.c, expireAfter: 1d, filter: {m.id: {$ne: '2'}}}
  - {namespace: DB.c, name: until, expireAfter: 1d, filter: {m.until: {$not: {$gt: '2026-11-24'}}}}
  - {namespace: DB.d, name: held, field: at, expireAfter: 1d, holds: {collection: holds, key: {of: n, in: tenant}, filter: {active: 'true'}}}
  - {namespace: DB.d, name: some, field: at, expireAfter: 1d, holds: {collection: holds, key: {of: n, in: tenant}, filter: {$or: [{active: false}, {until: {$gt: '2020-01-01'}}]}}}\n";
    for args in [&["check", "--connect"][..], &["sweep", "--dry-run"], &["audit"], &["sweep"]] {
        let refused = report(&case, rules, args).await;
        for number in 0..4 {
            let found = (refused.rule(number, "status"), refused.rule(number, "reason"));
            assert_eq!(found, (&"refused".into(), &"unknownType".into()), "{args:?} {number} {refused:?}");
        }
    }
    assert_eq!((case.ids("c").await, case.ids("d").await), (id_set(0..4), id_set(0..DOCUMENTS)));
    let rules = "  - {namespace: DB.c, expireAfter: 1d, filter: {m.id: {$ne: 2}}}
  - {namespace: DB.d, name: held, field: at, expireAfter: 1d, holds: {collection: holds, key: {of: n, in: tenant}, filter: {active: true, until: {$gt: {$date: '2020-01-01T00:00:00Z'}}}}}\n";
    let swept = report(&case, rules, &["sweep"]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    assert_eq!((case.ids("c").await, case.ids("d").await), (id_set([2]), id_set([3])));
}

#[tokio::test]
async fn a_check_lets_the_server_plan_every_predicate() {
    let case = filled(2).await;
    let rules = policy(&["{n: {$gte2: 5}}", "{n: {$gte: 5}}", "{n: {$mod: ['a', 0]}}", "{$expr: {$foo: [$n, 5]}}"], "")
        .replace("DB.c2", "DB.c0")
        .replace("DB.c3", "DB.c1");
    let check = report(&case, &rules, &["check", "--connect"]).await;
    assert_eq!(check.ran.code, Some(3), "{check:?}");
    for (number, part) in [(0, "$gte2"), (2, "mod"), (3, "Unrecognized expression")] {
        assert_eq!(check.rule(number, "status"), "failed", "{check:?}");
        let error = check.rule(number, "error").as_str().unwrap();
        assert!(error.starts_with("the server does not take the predicate: ") && error.contains(part), "{error}");
    }
    assert_eq!(check.rule(1, "status"), "complete", "{check:?}");
    let text = case.run(&rules, &["check", "--connect"]).await;
    assert!(text.stdout.contains("r0") && text.stdout.contains(&format!("{}.c0", case.db.name())), "{text:?}");
}

#[tokio::test]
async fn no_field_is_judged_by_documents_that_say_nothing_of_its_type() {
    let case = Case::new().await;
    case.fill("c", [doc! { "_id": 1, "at": days(-3), "hold": Bson::Null }, doc! { "_id": 2, "at": days(-3), "hold": [] }]).await;
    case.db.create_collection("empty").await.unwrap();
    let rules = "  - {namespace: DB.c, field: at, expireAfter: 1d, filter: {hold: {$ne: true}}}
  - {namespace: DB.empty, field: at, expireAfter: 1d, filter: {hold: {$ne: true}}}\n";
    let swept = report(&case, rules, &["sweep"]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    assert_eq!(case.ids("c").await, id_set::<i32>([]));
    let uuid = Uuid::parse_str(UUID).unwrap();
    let dated = DateTime::now();
    case.fill("c", [doc! { "_id": uuid, "at": days(-3), "hold": dated }]).await;
    let refused = report(&case, &rules[..rules.find('\n').unwrap() + 1], &["sweep"]).await;
    assert_eq!((refused.ran.code, refused.rule(0, "reason")), (Some(5), &"unknownType".into()), "{refused:?}");
}
