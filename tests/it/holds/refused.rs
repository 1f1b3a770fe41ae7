//! Holds that cannot be read, or that have no key: the rule is refused, and nothing is deleted.

use mongodb::bson::{Bson, Document, doc};
use serde_json::Value;

use crate::support::faults::{dated, days};
use crate::support::site::{Site, secured};
use crate::support::sweeper::{Case, id_set};

fn rule(holds: &str) -> String {
    format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, holds: {{{holds}}}}}\n")
}

/// Asserts that every command says that the rule is refused, and that a sweep deletes nothing.
async fn assert_refused(case: &Case, rule: &str, reason: &str, part: &str) {
    let before = case.ids("c").await;
    for args in [&["check", "--connect"][..], &["sweep", "--dry-run"], &["audit"], &["sweep"]] {
        let ran = case.run(rule, &[args, &["--format", "json"]].concat()).await;
        let json: Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
        let found = &json["rules"][0];
        assert_eq!((found["status"].as_str(), found["reason"].as_str()), (Some("refused"), Some(reason)), "{rule}: {ran:?}");
        let error = found["error"].as_str().unwrap();
        assert!(error.contains(part), "{rule}: {error:?} does not contain {part:?}");
        assert_eq!(ran.code, Some(if matches!(args[..], ["sweep"] | ["check", _]) { 5 } else { 0 }), "{args:?}: {ran:?}");
        if let ["sweep", "--dry-run"] | ["audit"] = args {
            assert_eq!(found["expiredCount"], before.len(), "all are told of, as if there were no holds: {ran:?}");
        }
        assert_eq!(case.ids("c").await, before, "{rule}");
    }
}

async fn filled() -> Case {
    let case = Case::new().await;
    let document = |mut document: Document| {
        document.insert("t", "x");
        document
    };
    case.fill("c", dated(0..20, days(-3)).map(document)).await;
    case
}

#[tokio::test]
async fn a_collection_that_does_not_exist_refuses_the_rule_and_an_empty_one_holds_nothing() {
    let case = filled().await;
    assert_refused(&case, &rule("collection: DB.holds, key: t"), "holds", "does not exist; expected the collection of the holds")
        .await;
    case.db.create_collection("holds").await.unwrap();
    let swept = case.report(&rule("collection: DB.holds, key: t, filter: {active: true}"), &[]).await;
    assert_eq!((swept.ran.code, swept.rule(0, "deletedCount")), (Some(0), &20.into()), "{swept:?}");
}

#[tokio::test]
async fn a_hold_without_a_key_refuses_the_rule() {
    let malformed: [(Document, &str); 8] = [
        (doc! { "other": 1 }, "`t` is missing"),
        (doc! { "t": Bson::Null }, "`t` is null"),
        (doc! { "t": ["x"] }, "`t` is a list"),
        (doc! { "t": [] }, "`t` is a list"),
        (doc! { "t": f64::NAN }, "`t` is NaN"),
        (doc! { "t": Bson::Undefined }, "`t` is of a type that is no key"),
        (doc! { "t": { "$regularExpression": { "pattern": "x", "options": "" } } }, "`t` is"),
        (doc! { "t": Bson::MinKey }, "`t` is of a type that is no key"),
    ];
    for (hold, part) in malformed {
        let case = filled().await;
        // Before and behind others, which are in order.
        case.fill("holds", [doc! { "t": "y" }, hold, doc! { "t": "z" }]).await;
        assert_refused(&case, &rule("collection: DB.holds, key: t"), "holds", part).await;
    }
    let case = filled().await;
    case.fill("holds", [doc! { "m": [{ "t": "x" }] }]).await;
    assert_refused(&case, &rule("collection: DB.holds, key: {of: t, in: m.t}"), "holds", "`m.t` is missing").await;
}

#[tokio::test]
async fn a_wrong_name_in_the_documents_or_in_the_filter_of_the_holds_refuses_the_rule() {
    let case = filled().await;
    case.fill("holds", [doc! { "t": "x", "active": true }]).await;
    let wrong = rule("collection: DB.holds, key: {of: tt, in: t}");
    assert_refused(&case, &wrong, "unknownField", "no document found has `tt` (`holds`)").await;
    let wrong = rule("collection: DB.holds, key: t, filter: {actve: true}");
    assert_refused(&case, &wrong, "unknownField", "has `actve` (`holds.filter`); a misspelt name would hold nothing").await;
    // Nothing is held, and the name is right.
    let none = case.report(&rule("collection: DB.holds, key: t, filter: {active: false}"), &["--dry-run"]).await;
    assert_eq!((none.rule(0, "status"), none.rule(0, "expiredCount")), (&"complete".into(), &20.into()), "{none:?}");
    let allowed = "  - {namespace: DB.c, field: at, expireAfter: 1d, allowUnknownFields: [actve], holds: {collection: DB.holds, key: t, filter: {actve: true}}}\n";
    let swept = case.report(allowed, &[]).await;
    assert_eq!((swept.ran.code, swept.rule(0, "deletedCount")), (Some(0), &20.into()), "{swept:?}");
}

#[tokio::test]
async fn more_holds_than_a_command_carries_refuse_the_rule() {
    let case = filled().await;
    let large = |id: i32| doc! { "_id": id, "t": format!("{id}{}", "x".repeat(1024 * 1024)) };
    for id in 0..11 {
        case.fill("holds", [large(id)]).await;
    }
    let all = rule("collection: DB.holds, key: t");
    assert_refused(&case, &all, "holds", "more holds than a delete command can carry").await;
    let nine = case.report(&rule("collection: DB.holds, key: t, filter: {_id: {$lt: 9}}"), &[]).await;
    assert_eq!((nine.ran.code, nine.rule(0, "deletedCount")), (Some(0), &20.into()), "{nine:?}");
}

#[tokio::test]
async fn who_may_not_read_the_holds_deletes_nothing_and_the_right_to_find_them_is_enough() {
    let (server, site) = (secured(), Site::new());
    let db = server.root().await.database("held");
    let documents = (0..20).map(|id| doc! { "_id": id, "at": days(-3), "t": id % 2 });
    db.collection::<Document>("c").insert_many(documents).await.unwrap();
    let holds = server.root().await.database("legal").collection::<Document>("holds");
    holds.insert_one(doc! { "t": 1 }).await.unwrap();
    let privilege = |database: &str, collection: &str, actions: &[&str]| {
        doc! { "resource": { "db": database, "collection": collection }, "actions": actions.to_vec() }
    };
    let sweeps = || [privilege("held", "c", &["find", "remove", "listIndexes"]), privilege("held", "", &["listCollections"])];
    let reads = || privilege("legal", "holds", &["find"]);
    for (name, privileges) in
        [("heldBlind", sweeps().to_vec()), ("heldReader", sweeps().into_iter().chain([reads()]).collect::<Vec<_>>())]
    {
        server.admin(doc! { "createRole": name, "privileges": privileges, "roles": [] }).await;
        server.admin(doc! { "createUser": name, "pwd": "password", "roles": [name] }).await;
    }
    let rules = "  - {namespace: held.c, field: at, expireAfter: 1d, holds: {collection: legal.holds, key: t}}\n";
    let checked = site.run(&server.uri("heldBlind", "password"), rules, &["check", "--connect"]).await;
    assert!(checked.stdout.contains("`holds`: the user needs `find` on `legal.holds`"), "{checked:?}");
    let blind = site.report(&server.uri("heldBlind", "password"), rules, &[]).await;
    assert_eq!((blind.ran.code, blind.rule(0, "reason")), (Some(5), &"holds".into()), "{blind:?}");
    let error = blind.rule(0, "error").as_str().unwrap();
    assert!(error.contains("`legal.holds`") && error.contains("find"), "{error}");
    assert_eq!(crate::support::sweeper::ids(&db.collection("c")).await, id_set(0..20));
    let reader = site.report(&server.uri("heldReader", "password"), rules, &[]).await;
    assert_eq!((reader.ran.code, reader.rule(0, "deletedCount")), (Some(0), &10.into()), "{reader:?}");
    assert_eq!(crate::support::sweeper::ids(&db.collection("c")).await, id_set((0..20).filter(|id| id % 2 == 1)));
    // Without the collection, its absence is seen by this user as well.
    holds.drop().await.unwrap();
    let missing = site.report(&server.uri("heldReader", "password"), rules, &[]).await;
    assert_eq!((missing.ran.code, missing.rule(0, "reason")), (Some(5), &"holds".into()), "{missing:?}");
}
