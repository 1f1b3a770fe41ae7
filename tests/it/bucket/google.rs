//! Archives in Google Cloud Storage, which a server of S3 plays: of its own protocol only the part that both share is seen.

use serde_json::{Value, json};

use crate::support::archives::{into, raw};
use crate::support::faults::{dated, days};
use crate::support::s3::{BUCKET, S3};
use crate::support::sweeper::{Case, run, sweeper};

/// Runs a command on the server, and reads its report.
async fn told(server: &S3, mut command: std::process::Command) -> Value {
    server.reach_as_google(&mut command);
    let ran = run(command).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("no report: {cause}\n{ran:?}"))
}

#[tokio::test]
async fn what_is_archived_by_the_protocol_of_google_comes_back() {
    let (case, server) = (Case::new().await, S3::unsigned().await);
    case.fill("c", dated(0..50, days(-3))).await;
    let before = raw(&case, "c").await;
    let rules =
        format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, batchSize: 10, archive: {{url: gs://{BUCKET}/ttl}}}}\n");
    let report = told(&server, case.command(&rules, &["sweep", "--format", "json"])).await;
    assert_eq!(report["rules"][0]["deletedCount"], 50, "{report:#}");
    let place = format!("gs://{BUCKET}/ttl");
    let verified = told(&server, sweeper(&["archive", "verify", &place, "--format", "json"])).await;
    assert_eq!(verified["archives"][0]["state"], json!("complete"), "{verified:#}");
    let archive = report["rules"][0]["archive"].as_str().unwrap();
    let moves = into(&case, "c", "found");
    told(&server, sweeper(&["restore", archive, "--uri", &case.uri, "--namespace", &moves, "--format", "json"])).await;
    assert_eq!(raw(&case, "found").await, before);
}
