//! Periods on services that proxies play, and behind a router.

use mongodb::bson::{Bson, doc};

use crate::support::faults::days;
use crate::support::proxied::Proxied;
use crate::support::proxy::Service;
use crate::support::proxy::cosmos::CosmosRu;
use crate::support::proxy::document_db::DocumentDb;
use crate::support::sweeper::{Case, id_set};

#[tokio::test]
async fn each_tenant_has_its_own_time_on_every_service_and_under_a_limit() {
    for service in [|| Service::CosmosRu(CosmosRu::default()), || Service::DocumentDb(DocumentDb::default()), || Service::Mongos]
    {
        for keys in ["", ", maxDeletes: 1000", ", maxDeletePercent: 99"] {
            let case = Case::new().await;
            // Tenant 5 has no period, 6 never, 7 an unclear one; the others 1 to 4 days and 18 others of 8 to 25.
            let tenants = (0..25).filter(|id| *id != 5).map(|id| {
                let days: Bson = match id {
                    6 => (-1).into(),
                    7 => "7".into(),
                    id => (id + 1).into(),
                };
                doc! { "_id": id, "days": days }
            });
            case.fill("tenants", tenants.collect::<Vec<_>>()).await;
            let age = |id: i32| id / 25 * 3 + 1;
            case.fill("c", (0..250).map(|id| doc! { "_id": id, "at": days(-i64::from(age(id))), "t": id % 25 })).await;
            let proxied = Proxied::behind(service(), case).await;
            let rule = format!(
                "  - {{namespace: DB.c, field: at, expireAfter: 10d, periods: {{collection: DB.tenants, key: {{of: t, in: _id}}, value: days, unit: d}}{keys}}}\n"
            );
            let goes = |id: &i32| match id % 25 {
                5 => age(*id) >= 10,
                6 | 7 => false,
                tenant => age(*id) > tenant,
            };
            let gone = (0..250).filter(goes).count();
            let dry = proxied.case.report(&rule, &["--dry-run"]).await;
            assert_eq!((dry.ran.code, dry.rule(0, "expiredCount")), (Some(0), &gone.into()), "{keys}: {dry:?}");
            let swept = proxied.case.report(&rule, &[]).await;
            assert_eq!((swept.ran.code, swept.rule(0, "deletedCount")), (Some(0), &gone.into()), "{keys}: {swept:?}");
            assert_eq!(proxied.case.ids("c").await, id_set((0..250).filter(|id| !goes(id))), "{keys}");
        }
    }
}
