//! Leases on services compatible with MongoDB and on a replica set, all with the same commands.

use crate::support::faults::{dated, days};
use crate::support::proxied::Proxied;
use crate::support::proxy::Service;
use crate::support::proxy::cosmos::CosmosRu;
use crate::support::proxy::document_db::DocumentDb;
use crate::support::replica_set::ReplicaSet;
use crate::support::site::Site;
use crate::support::sweeper::{Case, id_set};
use mongodb::bson::{DateTime, doc};

const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d}\nlock: {collection: DB.locks}\n";

async fn expires_at(case: &Case) -> i64 {
    let lease = case.collection("locks").find_one(doc! {}).await.unwrap().expect("a lease");
    lease.get_datetime("expiresAt").unwrap().timestamp_millis()
}

#[tokio::test]
async fn services_without_updates_by_pipeline_have_leases() {
    for service in [Service::CosmosRu(CosmosRu::default()), Service::DocumentDb(DocumentDb::default()), Service::Mongos] {
        let proxied = Proxied::new(service, 20).await;
        let case = &proxied.case;
        let swept = case.report(RULE, &[]).await;
        assert_eq!(swept.ran.code, Some(0), "{swept:?}");
        assert_eq!(case.ids("c").await, id_set::<i32>([]));
        assert!(expires_at(case).await <= DateTime::now().timestamp_millis());

        case.fill("c", dated(0..5, days(-3))).await;
        let held = doc! { "$set": { "runId": "another", "expiresAt": days(1) } };
        case.collection("locks").update_one(doc! {}, held).await.unwrap();
        let refused = case.report(RULE, &[]).await;
        assert_eq!((refused.ran.code, refused.rule(0, "reason")), (Some(6), &"lock".into()), "{refused:?}");
        assert_eq!(case.ids("c").await, id_set(0..5));
        let past = doc! { "$set": { "expiresAt": days(-1) } };
        case.collection("locks").update_one(doc! {}, past).await.unwrap();
        let swept = case.report(RULE, &[]).await;
        assert_eq!((swept.ran.code, swept.rule(0, "deletedCount")), (Some(0), &5.into()), "{swept:?}");
        for request in proxied.proxy.requests_of("update") {
            let update = request.body.get_array("updates").unwrap()[0].as_document().unwrap();
            assert!(update.get_document("u").is_ok(), "no pipeline: {update}");
        }
    }
}

#[tokio::test]
async fn a_lease_is_known_to_a_majority_and_survives_a_change_of_the_primary() {
    let set = tokio::task::spawn_blocking(|| ReplicaSet::start(3, &[])).await.unwrap();
    let (client, site) = (set.client().await, Site::new());
    client.database("app").collection("c").insert_many(dated(0..5, days(-3))).await.unwrap();
    let held = doc! { "_id": "app.c", "runId": "another", "host": "h", "pid": 5_i64, "since": days(-1), "expiresAt": days(1) };
    let majority = mongodb::options::WriteConcern::majority();
    client.database("ops").collection("locks").insert_one(held).write_concern(majority).await.unwrap();
    let rules = "  - {namespace: app.c, field: at, expireAfter: 1d}\nlock: {collection: ops.locks}\n";
    let refused = site.report(&set.uri(), rules, &[]).await;
    assert_eq!(refused.ran.code, Some(6), "{refused:?}");
    let down = doc! { "replSetStepDown": 10, "force": true };
    let _ = set.members[0].client().await.database("admin").run_command(down).await;
    let refused = site.report(&set.uri(), rules, &[]).await;
    assert_eq!(refused.ran.code, Some(6), "{refused:?}");
    assert!(refused.rule(0, "error").as_str().unwrap().contains("run another on h, process 5"), "{refused:?}");
    let past = doc! { "$set": { "expiresAt": days(-1) } };
    set.primary(&client).await;
    client.database("ops").collection::<bson::Document>("locks").update_one(doc! {}, past).await.unwrap();
    let swept = site.report(&set.uri(), rules, &[]).await;
    assert_eq!((swept.ran.code, swept.rule(0, "deletedCount")), (Some(0), &5.into()), "{swept:?}");
}
