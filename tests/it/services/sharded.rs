//! Sharded collections: the commands that a sweep sends to a server that only calls itself a mongos.

use crate::support::faults::days;
use crate::support::proxied::Proxied;
use crate::support::proxy::Service;
use crate::support::sweeper::{Case, id_set};
use mongodb::bson::{Bson, Document, doc};

/// Returns a proxy with 60 documents, every third of them live; one has no shard key.
async fn sharded() -> Proxied {
    let case = Case::new().await;
    let documents = (0..60).map(|n| {
        let at = days(if n % 3 == 0 { 3 } else { -3 });
        match n {
            7 => doc! { "_id": n, "at": at },
            _ => doc! { "_id": n, "at": at, "tenant": { "name": format!("t{}", n % 5) }, "n": n },
        }
    });
    case.fill("c", documents).await;
    let entry = doc! { "_id": format!("{}.c", case.db.name()), "key": { "tenant.name": 1, "n": "hashed" } };
    case.client.database("config").collection::<Document>("collections").insert_one(entry).await.unwrap();
    Proxied::behind(Service::Mongos, case).await
}

#[tokio::test]
async fn deletes_by_id_carry_the_shard_key() {
    for keys in ["batchSize: 7", "maxDeletes: 1000", "rate: 100000", "batchSize: 7, concurrency: 4"] {
        let proxied = sharded().await;
        let rule = format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, {keys}}}\n");
        let report = proxied.case.report(&rule, &[]).await;
        assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(0), &40.into()), "{keys}: {report:?}");
        assert_eq!(report.json["server"]["topology"], "sharded", "{report:?}");
        assert_eq!(proxied.case.ids("c").await, id_set((0..60).filter(|n| n % 3 == 0)));
        let deletes = proxied.proxy.requests_of("delete");
        assert!(!deletes.is_empty());
        for delete in deletes {
            for statement in delete.body.get_array("deletes").unwrap() {
                let all = statement.as_document().unwrap().get_document("q").unwrap().get_array("$and").unwrap();
                let aim = all[0].as_document().unwrap();
                assert_eq!(aim.keys().collect::<Vec<_>>(), ["tenant.name", "n", "_id"], "{aim}");
                let ids = aim.get_document("_id").unwrap().get_array("$in").unwrap();
                let values = |path: &str| aim.get_document(path).unwrap().get_array("$in").unwrap().clone();
                assert!(ids.contains(&Bson::Int32(7)) == values("n").contains(&Bson::Null), "{aim}");
                assert!(values("tenant.name").len() <= 6, "each value once: {aim}");
            }
        }
    }
}

#[tokio::test]
async fn stretches_of_an_index_go_to_every_shard() {
    let proxied = sharded().await;
    let index = doc! { "key": { "at": 1 }, "name": "at_1" };
    proxied.case.db.run_command(doc! { "createIndexes": "c", "indexes": [index] }).await.unwrap();
    let report = proxied.case.report("  - {namespace: DB.c, field: at, expireAfter: 1d}\n", &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(0), &40.into()), "{report:?}");
    assert_eq!(proxied.case.ids("c").await, id_set((0..60).filter(|n| n % 3 == 0)));
}
