//! Azure Cosmos DB for MongoDB (RU) outside of the deleting: connecting, listing, checking, locking, recording and restoring,
//! under throttling and with the commands that the service does not have.

use std::time::Duration;

use crate::support::archives::{archive, directory, into, raw, restored};
use crate::support::faults::{dated, days};
use crate::support::proxied::Proxied;
use crate::support::proxy::cosmos::CosmosRu;
use crate::support::proxy::fault::Fault;
use crate::support::proxy::{Service, errors};
use crate::support::sweeper::{Case, Ran, id_set, run, sweeper};
use mongodb::bson::doc;
use serde_json::Value;

const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d}\n";

/// The commands that every subcommand may send about collections.
const LOOKS: [&str; 7] = ["buildInfo", "listDatabases", "listCollections", "listIndexes", "count", "collStats", "customAction"];

/// A rule with a lease and a history.
fn locked() -> String {
    format!("{RULE}lock: {{collection: DB.locks}}\nhistory: {{collection: DB.runs}}\n")
}

/// Returns an account with 20 expired documents and 5 live ones.
async fn account(settings: CosmosRu) -> Proxied {
    let case = Case::new().await;
    case.fill("c", dated(0..20, days(-3)).chain(dated(20..25, days(3)))).await;
    Proxied::behind(Service::CosmosRu(settings), case).await
}

/// Plans trouble that passes for the next commands of these names: throttled twice, timed out, and a connection that is dropped.
fn trouble(proxied: &Proxied, commands: &[&str]) {
    for command in commands {
        let answer = |reply| Fault::Answer { reply, done: false };
        proxied.proxy.faults().next(command, 2, answer(errors::throttled_metadata(Some(Duration::from_millis(30)))));
        proxied.proxy.faults().next(command, 1, answer(errors::timed_out()));
        proxied.proxy.faults().next(command, 1, Fault::Close { done: false });
    }
}

fn json(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"))
}

#[tokio::test]
async fn every_look_at_a_collection_waits_for_trouble_to_pass() {
    for args in [&["check", "--connect"][..], &["audit"], &["native", "diff"], &["sweep", "--dry-run"], &["sweep"]] {
        let proxied = account(CosmosRu::default()).await;
        // A glob needs the list of the databases as well.
        let rule =
            "  - {namespace: \"DB*.c\", field: at, expireAfter: 1d}\n".replace("DB*", &format!("{}*", proxied.case.db.name()));
        let only = format!("{}.c", proxied.case.db.name());
        let args = [args, &["--only", &only]].concat();
        let calm = proxied.case.run(&rule, &args).await.code;
        trouble(&proxied, &LOOKS);
        if args == ["sweep"] {
            proxied.case.fill("c", dated(0..20, days(-3))).await;
        }
        let ran = proxied.case.run(&rule, &args).await;
        assert!(ran.code.is_some() && ran.code == calm, "{args:?}: {calm:?} {ran:?}");
        assert_eq!(proxied.left().await, if args[..1] == ["sweep"] && args.len() == 3 { 5 } else { 25 }, "{args:?}: {ran:?}");
    }
}

#[tokio::test]
async fn import_waits_for_trouble_to_pass() {
    let proxied = account(CosmosRu::default()).await;
    trouble(&proxied, &LOOKS);
    let name = proxied.case.db.name();
    let ran = run(sweeper(&["import", "--uri", &proxied.case.uri, "--only", &format!("{name}.*")])).await;
    assert!(ran.code == Some(1) && ran.stderr.contains("no TTL setting in 1 collection; nothing was written"), "{ran:?}");
}

/// "Azure Cosmos DB service quotas": an account has 240 units a second for metadata; here it has so many in a shorter second.
#[tokio::test]
async fn many_collections_are_looked_at_within_the_units_for_metadata() {
    let case = Case::new().await;
    for n in 0..24 {
        case.fill(&format!("c{n}"), dated(0..2, days(-3))).await;
    }
    let second = Duration::from_millis(100);
    // Fewer units than the commands that are sent at once.
    let settings = CosmosRu { metadata_units_per_second: Some(4.0), second, ..CosmosRu::default() };
    let proxied = Proxied::behind(Service::CosmosRu(settings), case).await;
    let report = proxied.case.report("  - {namespace: \"DB.*\", field: at, expireAfter: 1d}\n", &[]).await;
    assert_eq!(report.ran.code, Some(0), "{report:?}");
    let rules = report.json["rules"].as_array().unwrap();
    assert!(rules.len() == 24 && rules.iter().all(|rule| rule["deletedCount"] == 2), "{report:?}");
    assert!(proxied.proxy.usage().refused > 0, "nothing was refused");
}

#[tokio::test]
async fn a_check_says_that_privileges_are_unknown_where_the_service_does_not_show_them() {
    let proxied = account(CosmosRu::default()).await;
    let ran = proxied.case.run(&locked(), &["check", "--connect", "--format", "json"]).await;
    assert_eq!((ran.code, &json(&ran)["rules"][0]["status"]), (Some(0), &"complete".into()), "{ran:?}");
    assert!(ran.stderr.contains("the user's privileges are unknown") && ran.stderr.contains("connectionStatus"), "{ran:?}");
    assert!(proxied.proxy.requests_of("connectionStatus").is_empty(), "the service refuses it");
}

/// eclipse-basyx/basyx-java-server-sdk#452, MicrosoftDocs/azure-databases-docs#180.
#[tokio::test]
async fn an_account_without_hello_is_swept_locked_and_recorded() {
    let proxied = account(CosmosRu { api_version: "7.0", refuses_hello: true, ..CosmosRu::default() }).await;
    let report = proxied.case.report(&locked(), &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(0), &20.into()), "{report:?}");
    assert_eq!(report.json["server"]["recognisedBy"], "the type of its hello", "{report:?}");
    assert_eq!(proxied.case.ids("c").await, id_set(20..25));
    assert_eq!(proxied.case.ids("runs").await.len(), 1);
    // Once, as nothing else tells which service it is. The policy says it, as the name of its host would.
    assert_eq!(proxied.proxy.requests_of("hello").len(), 1);
    let ran = proxied.case.run(&format!("{}connection: {{flavor: cosmosRu}}\n", locked()), &["sweep"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(proxied.proxy.requests_of("hello").len(), 1, "the service refuses it");
}

/// Nothing in the connection string says that the service refuses retryable writes (microsoft/vscode-cosmosdb#1296).
#[tokio::test]
async fn a_service_known_only_by_its_hello_gets_no_transaction_number() {
    let mut proxied = account(CosmosRu::default()).await;
    proxied.case.uri = proxied.case.uri.replace("retrywrites=false&", "");
    assert!(!proxied.case.uri.contains("retry"), "{}", proxied.case.uri);
    let report = proxied.case.report(&locked(), &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(0), &20.into()), "{report:?}");
    assert_eq!(proxied.case.ids("runs").await.len(), 1, "{report:?}");
    let requests = proxied.proxy.requests();
    // The history and the lease, each at the beginning and at the end.
    assert_eq!(requests.iter().filter(|request| request.name == "update").count(), 4);
    assert!(requests.iter().all(|request| !request.body.contains_key("txnNumber")));
}

#[tokio::test]
async fn leases_and_the_history_wait_for_trouble_to_pass() {
    let proxied = account(CosmosRu::default()).await;
    // The beginning is recorded, the lease taken and later given back, the end recorded.
    for _ in 0..4 {
        trouble(&proxied, &["update"]);
        proxied.proxy.faults().next("update", 1, Fault::Delay(Duration::ZERO));
    }
    let report = proxied.case.report(&locked(), &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(0), &20.into()), "{report:?}");
    assert_eq!(proxied.case.ids("runs").await.len(), 1, "{report:?}");
    let now = proxied.case.run(&locked(), &["history", "--format", "json"]).await;
    assert_eq!(now.code, Some(0), "{now:?}");
    assert_eq!(proxied.proxy.requests_of("update").len(), 20, "{report:?}");
    assert!(!report.ran.stderr.contains("giving the leases back"), "{report:?}");
}

#[tokio::test]
async fn restoring_goes_on_where_the_units_ended() {
    let case = Case::new().await;
    case.fill("c", (0..500).map(|id| doc! { "_id": id, "at": days(-3), "text": "x".repeat(900) })).await;
    let before = raw(&case, "c").await;
    let archives = directory(&case);
    let rule = format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, archive: {{directory: {}}}}}\n", archives.display());
    assert_eq!(case.run(&rule, &["sweep"]).await.code, Some(0));
    // Fewer than ten inserts in each of the service's seconds.
    let settings = CosmosRu { units_per_second: Some(50.0), second: Duration::from_millis(50), ..CosmosRu::default() };
    let proxied = Proxied::behind(Service::CosmosRu(settings), case).await;
    proxied.proxy.faults().next("insert", 1, Fault::Close { done: true });
    let (report, ran) = restored(&proxied.case, &archive(&archives), &["--namespace", &into(&proxied.case, "c", "back")]).await;
    // The first insert has a lost reply, and none is known to have inserted its documents.
    let counts = &report["namespaces"][0];
    let of_lost = counts["sameCount"].as_u64().unwrap();
    assert_eq!(
        (ran.code, &counts["uncertain"], &counts["insertedCount"]),
        (Some(0), &true.into(), &(500 - of_lost).into()),
        "{ran:?}"
    );
    assert!(of_lost > 0, "{ran:?}");
    assert_eq!(raw(&proxied.case, "back").await, before);
    assert!(proxied.proxy.usage().refused > 0, "nothing was refused");
}
