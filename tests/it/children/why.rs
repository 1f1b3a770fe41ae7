//! `why` says of a document how many children it has, and of a child whose it is.

use crate::support::family::{case, entries, entry, fill, order, rule};
use crate::support::sweeper::{Case, Ran, id_set, run, sweeper};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};
use serde_json::{Value, json};

async fn why(case: &Case, rules: &str, collection: &str, id: &Bson, args: &[&str]) -> Ran {
    let mut command = sweeper(&["why", "--uri", &case.uri, "--policy"]);
    command.arg(case.policy(rules)).arg(format!("{}.{collection}", case.db.name()));
    command.arg(id.clone().into_canonical_extjson().to_string()).args(args);
    run(command).await
}

async fn explained(case: &Case, rules: &str, collection: &str, id: impl Into<Bson>) -> Value {
    let ran = why(case, rules, collection, &id.into(), &["--format", "json"]).await;
    serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"))
}

fn hours_ago(hours: i64) -> DateTime {
    DateTime::from_millis(DateTime::now().timestamp_millis() - hours * 3_600_000)
}

/// Returns an ObjectId that was created so many hours ago.
fn id(hours: i64) -> ObjectId {
    let seconds = hours_ago(hours).timestamp_millis() / 1000;
    ObjectId::parse_str(format!("{seconds:08x}0000000000000001")).unwrap()
}

#[tokio::test]
async fn a_parent_has_its_children_counted_and_nothing_is_written() {
    let case = case("whyparent").await;
    fill(&case, 0..3, 3..6).await;
    case.fill("orders", [doc! { "_id": Bson::Null, "at": hours_ago(90) }, order(9, false)]).await;
    case.fill("lines", [doc! { "_id": "list", "order": [0, 5] }, doc! { "_id": "none" }, doc! { "_id": "9", "order": 9.0 }])
        .await;
    let rules = rule("");
    let before = (case.ids("orders").await, case.ids("lines").await);
    for (of, count, taken) in [(Bson::from(0), 3, true), (3.into(), 3, false), (9.into(), 1, false), (Bson::Null, 0, true)] {
        let json = explained(&case, &rules, "orders", of.clone()).await;
        let children = json!([{"namespace": "whyparent.lines", "field": "order", "count": count, "more": false}]);
        assert_eq!((&json["rules"][0]["children"], &json["rules"][0]["taken"]), (&children, &taken.into()), "{of}: {json}");
        assert_eq!(json["childOf"], json!([]), "{json}");
    }
    for (of, fact) in [(Bson::from(0), "3 in"), (9.into(), "1 in"), (Bson::Null, "none in")] {
        let ran = why(&case, &rules, "orders", &of, &[]).await;
        let line = ran.stdout.lines().find(|line| line.contains("children")).unwrap_or_else(|| panic!("{ran:?}"));
        assert!(line.contains(fact) && line.contains("`whyparent.lines` (`order`)"), "{line}");
        assert_eq!(line.contains("after it"), of != Bson::Null, "{line}");
    }
    assert_eq!((case.ids("orders").await, case.ids("lines").await), before);
    assert!(entries(&case).await.is_empty());
}

#[tokio::test]
async fn a_child_goes_as_the_sweep_does_it() {
    let case = case("whychild").await;
    fill(&case, 0..3, 3..6).await;
    // Parents 50 and 51 went in a run that was cut off.
    let mut entry = entry(&case, 1, "_id", vec![50, 51]);
    entry.insert("at", hours_ago(1));
    case.fill("journal", [entry]).await;
    let line = |id: Bson, order: Bson| doc! { "_id": id, "order": order };
    // The child, the parent that it names, whether that is there, and whether the child goes without and with `orphans`.
    let cases: Vec<(Document, Value, Value, [bool; 2], &str)> = vec![
        (line("0-0".into(), 0.into()), json!({"$numberInt": "0"}), json!(true), [true, true], "the next sweep deletes it"),
        (line("5-0".into(), 5.into()), json!({"$numberInt": "5"}), json!(true), [false, false], "stays until"),
        (line("long".into(), 1_i64.into()), json!({"$numberLong": "1"}), json!(true), [true, true], "the next sweep deletes it"),
        (line("list".into(), vec![0, 1].into()), Value::Null, Value::Null, [false, false], "names no parent"),
        (line("null".into(), Bson::Null), Value::Null, Value::Null, [false, false], "names no parent"),
        (doc! { "_id": "missing" }, Value::Null, Value::Null, [false, false], "names no parent"),
        (line("50".into(), 50.into()), json!({"$numberInt": "50"}), json!(false), [true, true], "as the journal says"),
        (line(id(2).into(), 50.into()), json!({"$numberInt": "50"}), json!(false), [true, true], "as the journal says"),
        (line(id(0).into(), 51.into()), json!({"$numberInt": "51"}), json!(false), [false, false], "created later"),
        (line(id(30).into(), 60.into()), json!({"$numberInt": "60"}), json!(false), [false, true], "is not there"),
        (line(id(31).into(), 61.into()), json!({"$numberInt": "61"}), json!(false), [false, false], "is not there"),
        (line("young".into(), 61.into()), json!({"$numberInt": "61"}), json!(false), [false, false], "is not there"),
    ];
    let there = |document: &Document| document.get_str("_id").is_ok_and(|id| ["0-0", "5-0"].contains(&id));
    case.fill("lines", cases.iter().map(|(document, ..)| document.clone()).filter(|document| !there(document))).await;
    for (orphans, rules) in [rule(""), rule(", orphans: true")].iter().enumerate() {
        for (document, parent, exists, goes, says) in &cases {
            let id = document.get("_id").unwrap();
            let json = explained(&case, rules, "lines", id.clone()).await;
            let child = &json["childOf"][0];
            assert_eq!((&child["parent"], &child["parentExists"]), (parent, exists), "{json}");
            assert_eq!(
                (&child["taken"], json["takenBy"] == json!(["whychild.orders"])),
                (&goes[orphans].into(), goes[orphans]),
                "{json}"
            );
            assert!(child["verdict"].as_str().unwrap().contains(says), "{says}: {json}");
            assert_eq!(
                (&child["parents"], &child["field"], &json["rules"]),
                (&"whychild.orders".into(), &"order".into(), &json!([]))
            );
        }
    }
    // A sweep without `orphans`, and then one with it, does what `why` has said.
    for (orphans, rules) in [rule(""), rule(", orphans: true")].iter().enumerate() {
        let report = case.report(rules, &[]).await;
        assert_eq!(report.ran.code, Some(0), "{report:?}");
        let left = case.ids("lines").await;
        for (document, _, _, goes, _) in &cases {
            let id = document.get("_id").unwrap().clone();
            assert_eq!(left.is_disjoint(&id_set([id.clone()])), goes[orphans], "{id}: {report:?}");
        }
    }
}

#[tokio::test]
async fn a_child_is_explained_in_words_and_by_each_rule_that_knows_it() {
    let case = case("whywords").await;
    fill(&case, 0..3, 3..6).await;
    let child = Bson::from("1-0");
    let ran = why(&case, &rule(""), "lines", &child, &[]).await;
    for part in [
        "whywords.lines with the `_id` \"1-0\"",
        "whywords.orders: goes once its parent is gone, and not before; of the parent: expired at ",
        ": the next sweep deletes it",
        "child of    whywords.orders with the `_id` 1 (`order`)",
        "the parent  there",
    ] {
        assert!(ran.stdout.contains(part), "{part}: {ran:?}");
    }
    // Its own rule comes first. A rule that does nothing leaves the child with its parent.
    let own = "  - {name: own, namespace: DB.lines, field: at, expireAfter: 1d}\n";
    let json = explained(&case, &format!("{own}{}", rule(", enabled: false")), "lines", child.clone()).await;
    assert_eq!((&json["rules"][0]["rule"], &json["rules"][0]["taken"]), (&"own".into(), &false.into()), "{json}");
    assert_eq!((&json["childOf"][0]["taken"], &json["takenBy"]), (&false.into(), &json!([])), "{json}");
    let verdict = json["childOf"][0]["verdict"].as_str().unwrap();
    assert!(verdict.ends_with("of the parent: the rule does nothing here: disabled in the policy"), "{verdict}");
    let ran = why(&case, &rule(""), "notes", &child, &[]).await;
    let none = "\
error: why: no rule covers `whywords.notes`, and none has it as children; expected `whywords.lines`?
hint: the rules cover `whywords.lines`, `whywords.orders`
";
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(2), none));
}
