//! A resolver that fails for a moment, at the start of a run and in the middle, and a name that never resolves.

use std::path::Path;
use std::time::Duration;

use crate::support::faults::{dated, days, end, start};
use crate::support::proxied::Proxied;
use crate::support::proxy::Service;
use crate::support::proxy::fault::{Fault, Gate};
use crate::support::shim::Shim;
use crate::support::sweeper::{Case, Ran, id_set};

const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d, batchSize: 5, concurrency: 1}\n";

/// Creates ten expired and three live documents on a server that is reached by a name.
async fn named() -> Proxied {
    let mut proxied = Proxied::new(Service::Mongos, 10).await;
    proxied.case.fill("c", dated(10..13, days(3))).await;
    proxied.case.uri = proxied.case.uri.replace("127.0.0.1", "localhost");
    assert!(proxied.case.uri.contains("localhost:"), "{}", proxied.case.uri);
    proxied
}

/// Waits until a name was asked for in vain at least twice, and lets names resolve again.
async fn asked_in_vain(down: &Path) {
    while std::fs::read_to_string(down).unwrap().lines().count() < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    std::fs::remove_file(down).unwrap();
}

async fn assert_swept(case: &Case, ran: &Ran) {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(case.ids("c").await, id_set(10..13), "{ran:?}");
}

#[tokio::test]
async fn a_name_that_does_not_resolve_at_first_is_asked_for_again() {
    let Proxied { case, proxy: _proxy, .. } = named().await;
    let down = case.file("down", "");
    let mut command = case.command(RULE, &["sweep", "--format", "json"]);
    Shim::resolver(&case).resolve_unless(&mut command, &down);
    let child = start(command);
    asked_in_vain(&down).await;
    assert_swept(&case, &end(child).await).await;
}

#[tokio::test]
async fn a_name_that_does_not_resolve_for_a_moment_does_not_end_a_run() {
    let Proxied { case, proxy, .. } = named().await;
    let down = case.dir.path().join("down");
    let mut command = case.command(RULE, &["sweep", "--format", "json"]);
    Shim::resolver(&case).resolve_unless(&mut command, &down);
    let gate = Gate::new();
    proxy.faults().next("delete", 1, Fault::Hold(gate.clone()));
    proxy.faults().next("delete", 1, Fault::Close { done: false });
    let child = start(command);
    while proxy.requests_of("delete").is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    std::fs::write(&down, "").unwrap();
    gate.open().await;
    asked_in_vain(&down).await;
    let ran = end(child).await;
    assert_swept(&case, &ran).await;
    assert!(ran.stderr.contains("trying again in"), "{ran:?}");
}

#[tokio::test]
async fn a_name_that_never_resolves_is_an_error_that_says_so() {
    let mut case = Case::new().await;
    case.uri = "mongodb://nowhere.invalid/?serverSelectionTimeoutMS=500".into();
    let ran = case.run(RULE, &["sweep"]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
    assert!(ran.stderr.starts_with("error: connecting to `mongodb://nowhere.invalid"), "{ran:?}");
    assert!(
        ran.stderr.contains("nowhere.invalid:27017: the name cannot be resolved") && ran.stderr.contains("nothing was deleted"),
        "{ran:?}"
    );
}
