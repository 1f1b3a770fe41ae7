use super::*;
use crate::shell::server::wire::codes;
use crate::testing::scripted::{Script, ScriptedReply};

fn namespace() -> Namespace {
    Namespace { database: "app".into(), collection: "c".into() }
}

#[test]
fn an_index_on_a_path_covers_a_query_without_the_id_unless_the_path_is_in_it() {
    let covered =
        |path: &str| Query::find(&namespace(), Document::new()).covered(path).options.get_document("projection").unwrap().clone();
    assert_eq!(covered("a.at"), doc! { "_id": 0, "a.at": 1 });
    // A projection that leaves the `_id` out and has a part of it is refused by the server.
    assert_eq!([covered("_id"), covered("_id.at")], [doc! { "_id": 1 }, doc! { "_id": 1 }]);
}

fn stepped_down() -> ScriptedReply {
    ScriptedReply::Error(ServerError::reported(codes::PRIMARY_STEPPED_DOWN, "stepped down", ""))
}

#[tokio::test]
async fn a_find_carries_what_the_deployment_adds() {
    let script = Script::new([ScriptedReply::Batch(vec![doc! { "_id": 1 }])]);
    let mut deployment = script.deployment();
    deployment.read_concern = Some(doc! { "level": "majority" });
    let find = Query::find(&namespace(), doc! { "a": 1 }).sort(doc! { "a": 1 }).limit(5).hint(Some("a_1"));
    let found = find.max_time(Some(Duration::from_secs(2))).first_batch(&deployment).await;
    assert_eq!(found, Ok(vec![RawDocumentBuf::try_from(&doc! { "_id": 1 }).unwrap()]));
    let expected = doc! {
        "find": "c", "filter": { "a": 1 }, "sort": { "a": 1 }, "limit": 5_i64, "singleBatch": true, "batchSize": 5_i64,
        "hint": "a_1", "maxTimeMS": 2000_i64, "readConcern": { "level": "majority" }, "comment": "sweeper test",
    };
    assert_eq!(script.sent(), [expected]);

    // A mongod of 8.0 may have a limit for the reads that name none.
    let script = Script::new([ScriptedReply::End, ScriptedReply::End]);
    let mut newer = script.deployment();
    newer.facts.wire_version = 25;
    for query in [Query::find(&namespace(), doc! {}), Query::aggregate(&namespace(), vec![])] {
        query.all(&newer).await.unwrap();
    }
    assert!(script.sent().iter().all(|sent| sent.get("maxTimeMS") == Some(&Bson::Int64(0))), "{:?}", script.sent());

    let script = Script::new([ScriptedReply::End]);
    let skipping = Query::find(&namespace(), doc! {}).skip(1999).limit(2);
    skipping.first_batch(&script.deployment()).await.unwrap();
    assert_eq!(script.sent()[0].get("batchSize"), Some(&Bson::Int64(2001)), "a router fetches what it skips as well");
}

#[tokio::test]
async fn a_service_without_hints_and_comments_gets_none() {
    let script = Script::new([ScriptedReply::End]);
    let mut deployment = script.deployment();
    deployment.facts.capabilities = crate::core::flavor::Flavor::CosmosRu.capabilities(8);
    let aggregate = Query::aggregate(&namespace(), vec![doc! { "$limit": 1 }]).hint(Some("a_1"));
    assert_eq!(aggregate.all(&deployment).await, Ok(Vec::new()));
    assert_eq!(script.sent(), [doc! { "aggregate": "c", "pipeline": [{ "$limit": 1 }], "cursor": {} }]);
}

#[tokio::test(start_paused = true)]
async fn batches_follow_each_other_and_a_retry_begins_anew() {
    let batch = |ids: &[i32]| ScriptedReply::Batch(ids.iter().map(|id| doc! { "_id": *id }).collect());
    let script = Script::new([batch(&[1, 2]), stepped_down(), batch(&[1, 2]), batch(&[]), batch(&[3]), ScriptedReply::End]);
    let found = Query::find(&namespace(), doc! {}).limit(3).batch_size(3).all(&script.deployment()).await.unwrap();
    assert_eq!(found, [doc! { "_id": 1 }, doc! { "_id": 2 }, doc! { "_id": 3 }]);
    let sent = script.sent();
    assert_eq!((sent.len(), sent[0].get("batchSize")), (2, Some(&Bson::Int64(4))));

    let script = Script::new((0..4).map(|_| stepped_down()));
    let failed = Query::find(&namespace(), doc! {}).all(&script.deployment()).await.unwrap_err();
    assert!(failed.has_code(codes::PRIMARY_STEPPED_DOWN) && script.sent().len() == 4);
}

#[tokio::test]
async fn the_plan_of_a_query_is_asked_for_without_the_read_concern() {
    let script = Script::new([ScriptedReply::Reply(doc! { "ok": 1.0 })]);
    let mut deployment = script.deployment();
    deployment.read_concern = Some(doc! { "level": "majority" });
    let find = Query::find(&namespace(), doc! { "a": 1 }).max_time(Some(Duration::from_secs(1)));
    find.explain(&deployment, "queryPlanner").await.unwrap();
    let explained = doc! { "find": "c", "filter": { "a": 1 }, "comment": "sweeper test" };
    assert_eq!(script.sent(), [doc! { "explain": explained, "verbosity": "queryPlanner", "maxTimeMS": 1000_i64 }]);
}
