//! Rules with children that are refused: nothing is deleted where a child would be left behind.

use crate::support::family::{case, fill, orders, rule};
use crate::support::site::{Site, secured};
use crate::support::sweeper::{Case, id_set, ids};
use mongodb::bson::{Document, doc};

async fn assert_refused(case: &Case, rule: &str, guard: &str, part: &str) {
    let before = orders(case).await;
    let report = case.report(rule, &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "reason")), (Some(5), &guard.into()), "{report:?}");
    let error = report.rule(0, "error").as_str().unwrap();
    assert!(error.contains(part), "{error}");
    assert_eq!(orders(case).await, before);
}

#[tokio::test]
async fn a_rule_whose_children_cannot_be_found_is_refused() {
    let case = case("refused").await;
    fill(&case, 0..5, 5..10).await;
    assert_refused(&case, &rule("").replace("DB.lines", "DB.line"), "children", "there is no collection `refused.line`").await;
    let wrong = rule("").replace("field: order}", "field: ordr}");
    assert_refused(&case, &wrong, "unknownField", "no document of `refused.lines` has `ordr`, but some have `order`, which")
        .await;
    let view = doc! { "create": "seen", "viewOn": "lines", "pipeline": [] };
    case.db.run_command(view).await.unwrap();
    assert_refused(&case, &rule("").replace("DB.lines", "DB.seen"), "children", "no ordinary collection").await;
    let folded = doc! { "create": "folded", "collation": { "locale": "en", "strength": 2 } };
    case.db.run_command(folded).await.unwrap();
    assert_refused(&case, &rule("").replace("DB.lines", "DB.folded"), "children", "treats different texts as equal").await;
    let allowed = wrong.replace("batchSize: 10", "batchSize: 10, allowUnknownFields: [ordr]");
    let report = case.report(&allowed, &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(0), &5.into()), "{report:?}");
}

#[tokio::test]
async fn a_user_who_may_not_delete_the_children_deletes_no_parent() {
    let (server, site) = (secured(), Site::new());
    let db = server.root().await.database("family");
    let on_server = Case::at(&server.uri("root", "root-password"), server.root().await, "family");
    fill(&on_server, 0..5, 5..10).await;
    let head = "journal: {collection: family.journal}\n";
    let rules = format!("{}{head}", rule("").replace("DB.", "family.").split("journal:").next().unwrap());
    let all = [
        ("orders", &["find", "remove", "listIndexes"][..]),
        ("lines", &["find", "remove", "listIndexes"]),
        ("journal", &["find", "insert", "update", "remove"]),
    ];
    for (number, (lacks, action)) in
        [("lines", "remove"), ("journal", "insert"), ("journal", "update"), ("journal", "remove"), ("", "")]
            .into_iter()
            .enumerate()
    {
        let privileges: Vec<Document> = all
            .iter()
            .map(|(collection, actions)| {
                let actions: Vec<&str> = actions.iter().copied().filter(|of| (*collection, *of) != (lacks, action)).collect();
                doc! { "resource": { "db": "family", "collection": *collection }, "actions": actions }
            })
            .chain([doc! { "resource": { "db": "family", "collection": "" }, "actions": ["listCollections"] }])
            .collect();
        let name = format!("family{number}");
        server.admin(doc! { "createRole": &name, "privileges": privileges, "roles": [] }).await;
        server.admin(doc! { "createUser": &name, "pwd": "password", "roles": [&name] }).await;
        let report = site.report(&server.uri(&name, "password"), &rules, &[]).await;
        if lacks.is_empty() {
            assert_eq!((report.ran.code, report.rule(0, "childrenDeletedCount")), (Some(0), &15.into()), "{report:?}");
            assert_eq!(ids(&db.collection("orders")).await, id_set(5..10));
            continue;
        }
        assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(3), &0.into()), "{report:?}");
        let error = report.rule(0, "error").as_str().unwrap();
        let [action, place] = [format!("`{action}`"), format!(" on `family.{lacks}`")];
        assert!(error.contains(&action) && error.contains(&place) && error.contains("nothing was deleted"), "{error}");
        assert_eq!(ids(&db.collection("orders")).await, id_set(0..10));
    }
}
