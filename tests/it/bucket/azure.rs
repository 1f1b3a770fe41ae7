//! Archives in Azure Blob Storage, as its emulator plays it.

use mongodb::bson::doc;
use serde_json::{Value, json};

use crate::support::archives::{into, raw};
use crate::support::azurite::{Azurite, CONTAINER};
use crate::support::faults::{dated, days};
use crate::support::sweeper::{Case, Ran, id_set, run, sweeper};

/// Runs a command on the emulator, and reads its report.
async fn told(azurite: &Azurite, mut command: std::process::Command) -> (Value, Ran) {
    azurite.reach(&mut command);
    let ran = run(command).await;
    let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("no report: {cause}\n{ran:?}"));
    (json, ran)
}

#[tokio::test]
async fn what_is_archived_in_a_container_comes_back() {
    let (case, azurite) = (Case::new().await, tokio::task::spawn_blocking(Azurite::start).await.unwrap());
    for name in ["c", "a b%20+é"] {
        case.fill(name, dated(0..50, days(-3)).chain([doc! { "_id": 99, "at": days(0) }])).await;
    }
    let before = raw(&case, "c").await;
    let rule = |name: &str, container: &str| {
        format!(
            "  - {{namespace: 'DB.{name}', field: at, expireAfter: 1d, batchSize: 10, archive: {{url: az://{container}/ttl/deep}}}}\n"
        )
    };
    let rules = rule("c", CONTAINER) + &rule("a b%20+é", CONTAINER) + &rule("c2", "missing");
    case.fill("c2", dated(0..5, days(-3))).await;
    let (report, _) = told(&azurite, case.command(&rules, &["sweep", "--format", "json"])).await;
    for rule in 0..2 {
        assert_eq!(report["rules"][rule]["deletedCount"], 50, "{report:#}");
    }
    let error = report["rules"][2]["error"].as_str().unwrap();
    assert!(
        error.contains("`archive`: listing `az://missing/ttl/deep`: the bucket does not exist (ContainerNotFound"),
        "{error}"
    );
    assert_eq!((case.ids("c").await, case.ids("c2").await.len()), (id_set([99]), 5));

    let place = format!("az://{CONTAINER}/ttl/deep");
    let (verified, ran) = told(&azurite, sweeper(&["archive", "verify", &place, "--format", "json"])).await;
    assert_eq!((ran.code, &verified["archives"][0]["state"]), (Some(0), &json!("complete")), "{verified:#}");
    let archive = report["rules"][0]["archive"].as_str().unwrap();
    let moves = into(&case, "c", "found");
    let restore = sweeper(&["restore", archive, "--uri", &case.uri, "--only", "*.c", "--namespace", &moves, "--format", "json"]);
    let (restored, ran) = told(&azurite, restore).await;
    assert_eq!(ran.code, Some(0), "{restored:#}");
    let mut found = raw(&case, "found").await;
    found.extend(raw(&case, "c").await);
    assert_eq!(found, before);
}
