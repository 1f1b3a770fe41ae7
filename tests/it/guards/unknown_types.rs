//! The guard against a wrong type: a filter with a string where a date, an id or a number was meant deletes nothing.

mod filters;

use std::fmt::Write;

use self::filters::{HONEST, WRONG, systematic};
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
