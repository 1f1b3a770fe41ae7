//! Holds on the services of Azure, which the proxy simulates.

use mongodb::bson::doc;

use crate::support::faults::days;
use crate::support::proxied::Proxied;
use crate::support::proxy::Service;
use crate::support::proxy::cosmos::CosmosRu;
use crate::support::proxy::document_db::DocumentDb;
use crate::support::sweeper::{Case, id_set};

#[tokio::test]
async fn what_is_held_stays_on_every_service_and_under_a_limit() {
    for service in [|| Service::CosmosRu(CosmosRu::default()), || Service::DocumentDb(DocumentDb::default()), || Service::Mongos]
    {
        for keys in ["", ", maxDeletes: 1000", ", maxDeletePercent: 99"] {
            let case = Case::new().await;
            let document = |id: i32| doc! { "_id": id, "at": days(if id < 100 { -3 } else { 3 }), "t": id % 10 };
            case.fill("c", (0..110).map(document)).await;
            case.fill("holds", [doc! { "t": 3, "active": true }, doc! { "t": 4, "active": false }]).await;
            let proxied = Proxied::behind(service(), case).await;
            let rule = format!(
                "  - {{namespace: DB.c, field: at, expireAfter: 1d, holds: {{collection: DB.holds, key: t, filter: {{active: true}}}}{keys}}}\n"
            );
            let dry = proxied.case.report(&rule, &["--dry-run"]).await;
            assert_eq!((dry.ran.code, dry.rule(0, "expiredCount")), (Some(0), &90.into()), "{keys}: {dry:?}");
            let swept = proxied.case.report(&rule, &[]).await;
            assert_eq!((swept.ran.code, swept.rule(0, "deletedCount")), (Some(0), &90.into()), "{keys}: {swept:?}");
            assert_eq!(proxied.case.ids("c").await, id_set((0..110).filter(|id| *id >= 100 || id % 10 == 3)), "{keys}");
        }
    }
}
