//! Children that name their parent by another field than the `_id`, here orders by their `number`.

use crate::support::archives::{archive, directory, raw, restore};
use crate::support::family::{case, entries, entry, order, rule};
use crate::support::faults::{end, pause_deletes, resume_deletes, start, until_deleting_from};
use crate::support::pool::Alone;
use crate::support::replica_set::ReplicaSet;
use crate::support::sweeper::{Case, id_set, run, sweeper};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, Regex, doc};

/// Returns the rule for the orders, with further keys.
fn by_number(more: &str) -> String {
    rule(more).replace("field: order}", "field: order, parentField: number}")
}

/// Returns an order with a number.
fn numbered(id: i32, is_expired: bool, number: impl Into<Bson>) -> Document {
    let mut order = order(id, is_expired);
    order.insert("number", number);
    order
}

fn line(id: &str, order: impl Into<Bson>) -> Document {
    doc! { "_id": id, "order": order }
}

async fn fill(case: &Case, orders: Vec<Document>, lines: Vec<Document>) {
    index(case, "orders", &["at", "number"]).await;
    index(case, "lines", &["order"]).await;
    case.fill("lines", lines).await;
    case.fill("orders", orders).await;
}

/// Creates an index on each of these fields.
async fn index(case: &Case, collection: &str, fields: &[&str]) {
    let indexes: Vec<Document> = fields.iter().map(|field| doc! { "key": { *field: 1 }, "name": *field }).collect();
    case.db.run_command(doc! { "createIndexes": collection, "indexes": indexes }).await.unwrap();
}

#[tokio::test]
async fn children_go_with_the_last_parent_that_has_their_key() {
    let case = case("numbered").await;
    let pattern = Regex { pattern: "^1".try_into().unwrap(), options: "".try_into().unwrap() };
    let gone = vec![
        numbered(1, true, 101),
        // Both have gone once the second batch has.
        numbered(2, true, "twice"),
        numbered(3, true, "shared"),
        numbered(4, true, Bson::Null),
        order(5, true),
        numbered(6, true, 7_i64),
        numbered(7, true, doc! { "a": 1, "b": 2 }),
        numbered(8, true, 105),
        numbered(30, true, "twice"),
    ];
    let kept = vec![
        numbered(20, false, "shared"),
        numbered(21, false, 102),
        // Of these it is unclear which children they have.
        numbered(22, true, vec![103, 104]),
        numbered(23, true, pattern.clone()),
        numbered(24, false, vec![Bson::from(1), vec![2].into(), 105.into()]),
    ];
    let gone_lines = vec![
        line("of 1", 101),
        line("of 1 as well", 101.0),
        line("of 2", "twice"),
        line("of 6", 7),
        line("of 7", doc! { "a": 1, "b": 2 }),
    ];
    let kept_lines = vec![
        line("of 3 and 20", "shared"),
        line("of 21", 102),
        line("by its _id", 1),
        line("of 22", 103),
        line("of 8 and 24", 105),
        line("a list", vec![101, 102]),
        line("null", Bson::Null),
        doc! { "_id": "missing" },
        line("of none", "none"),
        line("another order", doc! { "b": 2, "a": 1 }),
        line("a pattern", pattern),
    ];
    fill(&case, [gone.clone(), kept.clone()].concat(), [gone_lines.clone(), kept_lines.clone()].concat()).await;
    std::fs::create_dir_all(directory(&case)).unwrap();
    let rules = by_number(&format!(", archive: {{directory: {}}}", directory(&case).display()));
    let before = (raw(&case, "orders").await, raw(&case, "lines").await);

    let dry = case.report(&rules, &["--dry-run"]).await;
    // The lines of shared numbers and the list count as well.
    assert_eq!((dry.rule(0, "expiredCount"), dry.rule(0, "childrenCount")), (&9.into(), &8.into()), "{dry:?}");
    assert_eq!((raw(&case, "orders").await, raw(&case, "lines").await), before);
    let report = case.report(&rules, &[]).await;
    assert_eq!((report.rule(0, "deletedCount"), report.rule(0, "childrenDeletedCount")), (&9.into(), &5.into()), "{report:?}");
    let ids = |documents: &[Document]| id_set(documents.iter().map(|document| document.get("_id").unwrap().clone()));
    assert_eq!(case.ids("orders").await, ids(&kept));
    assert_eq!(case.ids("lines").await, ids(&kept_lines));
    assert!(entries(&case).await.is_empty());

    let ran = restore(&case, &archive(&directory(&case)), &[]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!((raw(&case, "orders").await, raw(&case, "lines").await), before);
}

#[tokio::test]
async fn a_parent_whose_key_changes_before_it_is_deleted_stays() {
    let set = Alone::<ReplicaSet>::take().await;
    let case = Case::at(&set.uri(), set.client().await, "renumbered");
    let lines = vec![line("of 1", 101), line("of 2", 102), line("new", 103), line("of 3", 104)];
    fill(&case, vec![numbered(1, true, 101), numbered(2, true, 102), numbered(3, true, 104)], lines).await;
    pause_deletes(&case.client).await;
    let child = start(case.command(&by_number(""), &["sweep"]));
    until_deleting_from(&case.collection("orders")).await;
    // The journal does not know these numbers.
    for (id, number) in [(1, Bson::from(103)), (3, vec![104, 106].into())] {
        case.collection("orders").update_one(doc! { "_id": id }, doc! { "$set": { "number": number } }).await.unwrap();
    }
    resume_deletes(&case.client).await;
    let ran = end(child).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(case.ids("orders").await, id_set([1, 3]), "{ran:?}");
    // No order has number 101 any more, and none that had it has gone: its line may be about to get another one.
    assert_eq!(case.ids("lines").await, id_set(["of 1", "new", "of 3"].map(str::to_owned)), "{ran:?}");
    assert!(entries(&case).await.is_empty());
    let report = case.report(&by_number(""), &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "childrenDeletedCount")), (Some(0), &1.into()), "{report:?}");
    assert_eq!((case.ids("orders").await, case.ids("lines").await), (id_set([3]), id_set(["of 1", "of 3"].map(str::to_owned))));
}

#[tokio::test]
async fn the_next_run_goes_on_by_the_key_in_the_journal() {
    let case = case("continued").await;
    let old = |id: u8| {
        let mut bytes = [id; 12];
        bytes[..4].copy_from_slice(&1_000_000_000_u32.to_be_bytes());
        ObjectId::from_bytes(bytes)
    };
    let orphan = doc! { "_id": old(1), "order": 79 };
    let lines = vec![line("of 77", 77), line("of 78", 78), line("80", 80), line("81", 81), orphan];
    fill(&case, vec![numbered(1, false, 78)], lines).await;
    // Order 1 is there, and had number 81 when it was to be deleted.
    let with_ids = |id, field, parents, ids: Vec<i32>| {
        let mut entry = entry(&case, id, field, parents);
        entry.insert("ids", ids);
        entry
    };
    let of_numbers = with_ids(1, "number", vec![77, 81], vec![4, 1]);
    case.fill("journal", [of_numbers, with_ids(2, "other", vec![80], vec![4]), entry(&case, 3, "_id", vec![80])]).await;
    let report = case.report(&by_number(""), &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "childrenDeletedCount")), (Some(0), &1.into()), "{report:?}");
    assert_eq!(case.ids("lines").await, id_set([Bson::from("of 78"), "80".into(), "81".into(), old(1).into()]), "{report:?}");
    // Children by other keys are not the children of this rule.
    assert_eq!(entries(&case).await, id_set([2, 3]));
    let warned = report.rule(0, "warnings").to_string();
    assert!(warned.contains("no rule of this run has these children"), "{warned}");
    let report = case.report(&by_number(", orphans: true"), &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "childrenDeletedCount")), (Some(0), &1.into()), "{report:?}");
    assert_eq!(case.ids("lines").await, id_set(["of 78", "80", "81"].map(str::to_owned)), "{report:?}");
}

#[tokio::test]
async fn a_key_that_no_parent_has_is_refused() {
    let case = case("misnumbered").await;
    fill(&case, vec![numbered(1, true, 101)], vec![line("of 1", 101)]).await;
    let wrong = by_number("").replace("parentField: number", "parentField: numbr");
    let report = case.report(&wrong, &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "reason")), (Some(5), &"unknownField".into()), "{report:?}");
    let error = report.rule(0, "error").as_str().unwrap();
    assert!(error.contains("no document of `misnumbered.orders` has `numbr`, but some have `number`, which"), "{error}");
    assert_eq!((case.ids("orders").await.len(), case.ids("lines").await.len()), (1, 1));
}

#[tokio::test]
async fn why_finds_parent_and_children_by_the_key() {
    let case = case("whynumber").await;
    fill(&case, vec![numbered(1, true, 101), order(2, true)], vec![line("of 1", 101), line("by its _id", 1)]).await;
    let explained = async |collection: &str, id: &str| {
        let mut command = sweeper(&["why", "--format", "json", "--uri", &case.uri, "--policy"]);
        command.arg(case.policy(&by_number(""))).arg(format!("whynumber.{collection}")).arg(id);
        let ran = run(command).await;
        serde_json::from_str::<serde_json::Value>(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"))
    };
    for (id, count) in [("1", 1), ("2", 0)] {
        let json = explained("orders", id).await;
        assert_eq!(json["rules"][0]["children"][0]["count"], count, "{json}");
    }
    for (id, is_there) in [("'of 1'", true), ("'by its _id'", false)] {
        let json = explained("lines", id).await;
        let child_of = &json["childOf"][0];
        assert_eq!((&child_of["parentField"], &child_of["parentExists"]), (&"number".into(), &is_there.into()), "{json}");
        assert_eq!(child_of["taken"], is_there, "{json}");
    }
}

#[tokio::test]
async fn parents_of_which_the_children_are_unclear_are_named_and_neither_promised_nor_called_done() {
    let case = case("unclear").await;
    let pattern = Regex { pattern: "^1".try_into().unwrap(), options: "".try_into().unwrap() };
    let of_kind = |order: Document, kind: &str| order.into_iter().chain([("kind".to_owned(), kind.into())]).collect::<Document>();
    let orders = [
        of_kind(numbered(1, true, 101), "a"),
        of_kind(numbered(2, true, vec![102, 103]), "a"),
        of_kind(numbered(3, true, pattern), "a"),
        of_kind(numbered(4, true, Vec::<Bson>::new()), "a"),
        // These stay anyway.
        of_kind(numbered(5, false, vec![105]), "a"),
        of_kind(numbered(6, true, vec![106]), "b"),
        of_kind(numbered(7, false, 107), "a"),
    ];
    let lines = [101, 102, 103, 105, 106, 107].map(|number| line(&format!("of {number}"), number));
    fill(&case, orders.to_vec(), lines.to_vec()).await;
    let rules = by_number(", filter: {kind: a}");
    for is_indexed in [true, false] {
        if !is_indexed {
            case.collection("orders").drop_index("at").await.unwrap();
        }
        let dry = case.report(&rules, &["--dry-run"]).await;
        assert_eq!((dry.rule(0, "expiredCount"), dry.rule(0, "wouldDeleteCount")), (&1.into(), &1.into()), "{dry:?}");
        assert_eq!(dry.rule(0, "neverExpires"), &serde_json::json!({ "parentField": 3 }), "{dry:?}");
        let audit = case.run(&rules, &["audit", "--format", "json"]).await;
        let audit: serde_json::Value = serde_json::from_str(&audit.stdout).unwrap();
        let rule = &audit["rules"][0];
        assert_eq!((&rule["expiredCount"], &rule["neverExpires"]["parentField"]), (&1.into(), &3.into()), "{audit}");
    }
    for format in ["table", "html", "markdown", "csv"] {
        let ran = case.run(&rules, &["sweep", "--dry-run", "--format", format]).await;
        assert!(ran.stdout.contains("parentField"), "{ran:?}");
    }
    let why = async |id: &str| {
        let policy = case.policy(&rules);
        run(sweeper(&["why", "unclear.orders", id, "--uri", &case.uri, "--policy", policy.to_str().unwrap()])).await.stdout
    };
    for id in ["2", "3", "4"] {
        let said = why(id).await;
        let part = "unclear.orders: stays, because an array or a regular expression is in the field by which children name it";
        assert!(said.contains(part) && !said.contains("the filter keeps it") && !said.contains("$not"), "{said}");
    }
    for (id, part) in [("1", "the next sweep deletes it"), ("5", "stays until"), ("6", "the filter does not select it")] {
        let said = why(id).await;
        assert!(said.contains(part), "{said}");
    }
    let report = case.report(&rules, &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "status")), (Some(0), &"complete".into()), "{report:?}");
    assert_eq!((report.rule(0, "deletedCount"), report.rule(0, "remainingCount")), (&1.into(), &0.into()), "{report:?}");
    assert_eq!(report.rule(0, "neverExpires"), &serde_json::json!({ "parentField": 3 }), "{report:?}");
    assert_eq!(case.ids("orders").await, id_set(2..8));
    assert_eq!(case.ids("lines").await, id_set([102, 103, 105, 106, 107].map(|number| format!("of {number}"))));
}

#[tokio::test]
async fn children_of_more_than_a_million_documents_are_not_counted_and_that_is_said() {
    let case = case("many").await;
    fill(&case, vec![numbered(0, false, 0)], vec![line("of 7", 7)]).await;
    let numbers = doc! { "$unwind": "$n" };
    let orders = doc! { "$project": { "_id": "$n", "number": "$n", "at": Bson::DateTime(DateTime::from_millis(0)) } };
    let million = doc! { "$project": { "n": { "$range": [1, 1_000_002] } } };
    case.collection("orders").drop_indexes().await.unwrap();
    case.collection("lines").aggregate([million, numbers, orders, doc! { "$out": "orders" }]).await.unwrap();
    index(&case, "orders", &["at", "number"]).await;
    let warning = "the children of the expired documents were not counted: these are more than 1,000,000 documents";
    let audit = case.run(&by_number(""), &["audit", "--format", "json"]).await;
    let audit: serde_json::Value = serde_json::from_str(&audit.stdout).unwrap_or_else(|_| panic!("{audit:?}"));
    for json in [case.report(&by_number(""), &["--dry-run"]).await.json, audit] {
        let rule = &json["rules"][0];
        assert_eq!((&rule["expiredCount"], &rule["childrenCount"]), (&1_000_001.into(), &serde_json::Value::Null), "{rule}");
        let warnings = rule["warnings"].as_array().unwrap();
        assert_eq!(warnings.iter().filter(|said| **said == warning).count(), 1, "{rule}");
    }
}
