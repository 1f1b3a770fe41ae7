//! `history` of the policy: the recorded runs, their contents, and the needed privileges.

use crate::support::faults::{
    alone, dated, days, end, fail_commands, pause_deletes, resume_deletes, signal, slow_down, start, until_heard, until_running,
};
use crate::support::proxied::Proxied;
use crate::support::proxy::Service;
use crate::support::proxy::cosmos::CosmosRu;
use crate::support::proxy::fault::Fault;
use crate::support::site::{Secured, secured};
use crate::support::sweeper::{Case, Ran, id_set, ids, run, sweeper};
use crate::support::terminal::Terminal;
use mongodb::bson::{Bson, Document, doc};
use serde_json::Value;
use ttl_sweeper::core::report::Report;
use ttl_sweeper::core::report::history::document;

/// Rules and a history in the database of the case.
const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d}\nhistory: {collection: DB.runs}\n";

async fn filled() -> Case {
    let case = Case::new().await;
    case.fill("c", dated(0..7, days(-3)).chain(dated(7..9, days(3)))).await;
    case
}

async fn recorded(case: &Case) -> Vec<Document> {
    use futures_util::TryStreamExt;
    let found = case.collection("runs").find(doc! {}).sort(doc! { "startedAt": 1 }).await.expect("the history");
    found.try_collect().await.expect("the history")
}

fn status(document: &Document) -> &str {
    document.get_str("status").expect("a status")
}

async fn only_one(case: &Case) -> Document {
    let mut recorded = recorded(case).await;
    assert_eq!(recorded.len(), 1, "{recorded:?}");
    recorded.remove(0)
}

/// Converts a value to its form in the report: dates as text.
fn as_json(value: &Bson) -> Value {
    match value {
        Bson::DateTime(at) => ttl_sweeper::base::instant::rfc3339(*at).into(),
        Bson::Document(document) => document.iter().map(|(key, value)| (key.clone(), as_json(value))).collect(),
        Bson::Array(items) => items.iter().map(as_json).collect(),
        other => other.clone().into_relaxed_extjson(),
    }
}

#[tokio::test]
async fn a_sweep_leaves_its_report_as_a_document_with_dates() {
    let case = filled().await;
    case.fill("d", dated(0..5, days(-3))).await;
    let rules = format!(
        "  - {{namespace: DB.d, field: at, expireAfter: 1d, maxDeletePercent: 10, ttlField: ttl, allowUnknownFields: [ttl]}}\n{RULE}"
    );
    let report = case.report(&rules, &[]).await;
    assert_eq!(report.ran.code, Some(5), "{report:?}");
    let mut document = only_one(&case).await;
    assert_eq!(document.remove("_id").as_ref().and_then(Bson::as_str), report.json["runId"].as_str());
    assert_eq!(document.remove("version"), Some(env!("CARGO_PKG_VERSION").into()));
    assert_eq!((document.remove("error"), document.remove("rulesOmitted")), (Some(Bson::Null), Some(Bson::Int64(0))));
    assert!(document.remove("host").is_some_and(|host| host.as_str().is_some_and(|host| !host.is_empty())));
    assert!(document.remove("pid").is_some_and(|pid| pid.as_i64().is_some_and(|pid| pid > 1)));
    for key in ["asOf", "startedAt"] {
        assert!(document.get_datetime(key).is_ok(), "{key}: {document}");
    }
    let refused = document.get_array("rules").unwrap()[0].as_document().unwrap();
    for key in ["threshold", "oldestExpired", "oldestRemaining"] {
        assert!(refused.get_datetime(key).is_ok(), "{key}: {refused}");
    }
    let mut expected = report.json.clone();
    expected.as_object_mut().unwrap().remove("runId");
    for rule in expected["rules"].as_array_mut().unwrap() {
        assert!(rule.as_object_mut().unwrap().remove("predicate").is_some(), "{rule}");
    }
    assert_eq!(as_json(&document.into()), expected);
    assert_eq!(case.ids("c").await, id_set(7..9));
    assert_eq!(case.ids("d").await, id_set(0..5));
}

#[tokio::test]
async fn what_does_not_sweep_records_nothing() {
    let case = filled().await;
    for args in [&["sweep", "--dry-run", "-vv"][..], &["check", "-vv"], &["check", "--connect", "-vv"], &["history", "-vv"]] {
        let ran = case.run(RULE, args).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let writes = ran.stderr.contains("command insert") || ran.stderr.contains("command update");
        assert!(!writes && !ran.stderr.contains("warning"), "{ran:?}");
    }
    assert_eq!(recorded(&case).await, [] as [Document; 0]);
}

#[tokio::test]
async fn runs_that_fail_or_are_interrupted_are_recorded_where_there_is_a_connection() {
    let broken = RULE.replace("1d", "1d, filter: {at: {$nonsense: 1}}");
    let case = filled().await;
    assert_eq!(case.run(&broken, &["sweep"]).await.code, Some(3));
    let document = as_json(&only_one(&case).await.into());
    assert_eq!((&document["exitCode"], &document["status"]), (&3.into(), &"failed".into()));

    // The question on a terminal is answered with no.
    let case = filled().await;
    let ran = Terminal::open(&case.command(RULE, &["sweep"])).until_asked().await.types("no\n").end().await;
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let document = as_json(&only_one(&case).await.into());
    assert_eq!(document["error"], "not confirmed: only the word `yes` confirms; nothing was deleted");
    assert_eq!(document["exitCode"], 1);

    let (_mongod, case) = alone().await;
    case.fill("c", dated(0..100, days(-3))).await;
    pause_deletes(&case.client).await;
    let rules = RULE.replace("1d", "1d, batchSize: 5, concurrency: 1");
    let mut child = start(case.command(&rules, &["sweep"]));
    until_running(&case.client, "delete").await;
    signal(&child, "INT");
    until_heard(&mut child);
    resume_deletes(&case.client).await;
    assert_eq!(end(child).await.code, Some(130));
    let document = as_json(&only_one(&case).await.into());
    assert_eq!((&document["exitCode"], &document["status"]), (&130.into(), &"partial".into()));
    let left = case.ids("c").await.len();
    assert_eq!(document["totals"]["deletedCount"], 100 - left);

    let (_mongod, case) = alone().await;
    slow_down(&case.client, "listCollections", 60_000).await;
    let child = start(case.command(RULE, &["sweep"]));
    until_running(&case.client, "listCollections").await;
    signal(&child, "TERM");
    assert_eq!(end(child).await.code, Some(143));
    let document = as_json(&only_one(&case).await.into());
    assert_eq!((&document["exitCode"], &document["status"]), (&143.into(), &"partial".into()));
    assert_eq!((&document["rules"][0]["reason"], &document["rules"][0]["deletedCount"]), (&"interrupted".into(), &0.into()));
    for key in ["expiredCount", "remainingCount"] {
        assert_eq!(document["totals"][key], Value::Null, "not counted: {document}");
    }
    let shown = case.run(RULE, &["history"]).await;
    assert!(shown.stdout.contains("partial"), "{shown:?}");
}

#[tokio::test]
async fn another_deployment_than_the_expected_one_is_not_written_to() {
    let case = filled().await;
    let rules = format!("{RULE}connection: {{expect: {{replicaSet: other}}}}\n");
    let ran = case.run(&rules, &["sweep"]).await;
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert!(ran.stderr.contains("not recorded"), "{ran:?}");
    assert!(!case.db.list_collection_names().await.unwrap().contains(&"runs".to_owned()));
    let shown = case.run(&rules, &["history"]).await;
    assert_eq!((shown.code, shown.stdout.as_str()), (Some(5), ""), "{shown:?}");
}

#[tokio::test]
async fn a_history_that_cannot_be_written_is_a_warning_and_trouble_that_passes_is_none() {
    for (data, times, of_beginning, of_end) in [
        // A document that is refused at the beginning is inserted at the end.
        (doc! { "errorCode": 13 }, 1, false, true),
        (doc! { "errorCode": 7 }, 3, true, true),
        (doc! { "closeConnection": true }, 1, true, true),
        (doc! { "errorCode": 7 }, 50, false, true),
        (doc! { "errorCode": 7, "failCommands": ["update", "insert"] }, 50, false, false),
    ] {
        let (_mongod, case) = alone().await;
        case.fill("c", dated(0..7, days(-3))).await;
        let mut data = data;
        if !data.contains_key("failCommands") {
            data.insert("failCommands", ["update"].as_slice());
        }
        fail_commands(&case.client, doc! { "times": times }, data.clone()).await;
        let ran = case.run(RULE, &["sweep"]).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.stdout.contains("deleted 7 documents"), "{ran:?}");
        let said = "warning: recording the beginning of the run in `t.runs`";
        assert_eq!(ran.stderr.contains(said), !of_beginning, "{data}: {ran:?}");
        assert_eq!(ran.stderr.contains("warning: recording the run in `t.runs`"), !of_end, "{data}: {ran:?}");
        let recorded = recorded(&case).await;
        assert_eq!(recorded.len(), usize::from(of_end), "{data}");
        assert!(recorded.iter().all(|run| status(run) == "complete"), "{recorded:?}");
        assert_eq!(case.ids("c").await, id_set::<i32>([]));
    }
}

/// Creates a user with these privileges in the database `ops`, who may also sweep `DB.c`; returns the connection string.
async fn user(server: &Secured, name: &str, actions: &[&str]) -> String {
    let in_app =
        doc! { "resource": { "db": name, "collection": "c" }, "actions": ["find", "remove", "listIndexes", "collStats"] };
    let list = doc! { "resource": { "db": name, "collection": "" }, "actions": ["listCollections"] };
    let in_ops = doc! { "resource": { "db": "ops", "collection": name }, "actions": actions };
    let privileges: Vec<Document> = [in_app, list, in_ops].into_iter().take(if actions.is_empty() { 2 } else { 3 }).collect();
    server.admin(doc! { "createRole": name, "privileges": privileges, "roles": [] }).await;
    server.admin(doc! { "createUser": name, "pwd": "password", "roles": [name] }).await;
    server.uri(name, "password")
}

async fn as_user(case: &Case, uri: &str, name: &str, args: &[&str]) -> Ran {
    let rules = format!(
        "version: 1\ncollections:\n  - {{namespace: {name}.c, field: at, expireAfter: 1d, maxDeletes: 100}}\nhistory: {{collection: ops.{name}}}\n"
    );
    let mut command = sweeper(args);
    command.arg("-p").arg(case.file("policy.yaml", &rules)).args(["--uri", uri]);
    run(command).await
}

#[tokio::test]
async fn insert_is_enough_to_record_the_end_and_find_to_show_and_check_names_what_is_missing() {
    let (server, case) = (secured(), Case::new().await);
    for (name, actions, missing) in [
        ("nothing", &[][..], vec!["`insert`", "`update`", "`find`"]),
        ("recorder", &["insert"], vec!["`update`", "`find`"]),
        ("reader", &["find"], vec!["`insert`", "`update`"]),
        ("all", &["find", "insert", "update"], vec![]),
    ] {
        let uri = user(&server, name, actions).await;
        let root = server.root().await;
        let (c, runs) = (root.database(name).collection("c"), root.database("ops").collection::<Document>(name));
        c.insert_many(dated(0..7, days(-3)).chain(dated(7..9, days(3)))).await.unwrap();

        let check = as_user(&case, &uri, name, &["check", "--connect"]).await;
        assert_eq!(check.code, Some(0), "{check:?}");
        // This user may not ask either whether the standalone is a member of a set.
        let said: Vec<&str> = check.stderr.lines().filter(|line| !line.contains("runs without its set")).collect();
        let said = said.join("\n");
        assert_eq!(said.is_empty(), missing.is_empty(), "{check:?}");
        for word in ["`insert`", "`update`", "`find`"] {
            assert_eq!(said.contains(word), missing.contains(&word), "{check:?}");
        }
        assert_eq!(said.contains("grantPrivilegesToRole"), !missing.is_empty(), "{check:?}");

        let swept = as_user(&case, &uri, name, &["sweep"]).await;
        assert_eq!(swept.code, Some(0), "{swept:?}");
        assert_eq!(ids(&c).await, id_set(7..9));
        let may_insert = actions.contains(&"insert");
        assert_eq!(swept.stderr.contains("recording the run"), !may_insert, "{swept:?}");
        assert_eq!(swept.stderr.contains("recording the beginning of the run"), !actions.contains(&"update"), "{swept:?}");
        assert_eq!(runs.count_documents(doc! {}).await.unwrap(), u64::from(may_insert));

        let shown = as_user(&case, &uri, name, &["history", "-vv"]).await;
        let may_find = actions.contains(&"find");
        assert_eq!(shown.code, Some(if may_find { 0 } else { 1 }), "{shown:?}");
        assert!(may_find || shown.stderr.contains(&format!("reading `ops.{name}`")), "{shown:?}");
        assert!(!shown.stderr.contains("command insert") && !shown.stderr.contains("command create"), "{shown:?}");
    }
}

#[tokio::test]
async fn a_run_whose_reply_was_lost_is_recorded_once() {
    let proxied = Proxied::behind(Service::CosmosRu(CosmosRu::default()), filled().await).await;
    // The first is the update of the beginning.
    for nth in [1, 2] {
        proxied.proxy.faults().next("update", nth, Fault::Close { done: true });
    }
    let ran = proxied.case.run(RULE, &["sweep"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    let document = only_one(&proxied.case).await;
    assert_eq!(status(&document), "complete");
}

#[tokio::test]
async fn a_run_of_very_many_rules_fits_and_leaves_out_what_had_nothing_to_do() {
    let case = Case::new().await;
    let rule = |n: i64| {
        let (status, deleted) = match n % 1000 {
            0 => ("failed", 0),
            1..=99 => ("complete", n),
            _ => ("complete", 0),
        };
        serde_json::json!({
            "name": format!("rule {n}"), "namespace": format!("tenant_{n}.c"), "expireAfterSeconds": 3600, "status": status,
            "deletedCount": deleted, "uncertain": false, "batches": 0, "durationMs": 5, "warnings": [],
        })
    };
    let report = |rules: i64| -> Report {
        let rules: Vec<Value> = (0..rules).map(rule).collect();
        let json = serde_json::json!({
            "schemaVersion": 1, "command": "sweep", "dryRun": false, "runId": "r", "startedAt": "2026-01-31T02:00:00.000Z",
            "durationMs": 5, "exitCode": 3, "status": "failed", "policy": { "path": "p", "sha256": "0" }, "rules": rules,
            "totals": { "rules": rules.len(), "deletedCount": 5, "failed": 1, "refused": 0 },
        });
        serde_json::from_value(json).unwrap()
    };
    for (rules, omitted) in [(1000, 0..=0), (10_000, 5000..=9010), (100_000, 90_000..=99_900)] {
        let document = document(&report(rules), None).unwrap();
        let length = bson::serialize_to_vec(&document).unwrap().len();
        assert!(length <= 2_000_000, "{length}");
        let kept = document.get_array("rules").unwrap();
        let left_out = document.get_i64("rulesOmitted").unwrap();
        assert!(omitted.contains(&left_out), "{left_out}");
        assert_eq!(i64::try_from(kept.len()).unwrap() + left_out, rules);
        let number = |entry: &Bson| entry.as_document().unwrap().get_str("name").unwrap()[5..].parse::<i64>().unwrap();
        let numbers: Vec<i64> = kept.iter().map(number).collect();
        assert!(numbers.is_sorted(), "in the order of the policy");
        let failed = numbers.iter().filter(|n| *n % 1000 == 0).count();
        assert_eq!(failed as i64, rules / 1000, "no failed rule is left out");
        if rules <= 10_000 {
            let busy = numbers.iter().filter(|n| (1..=99).contains(&(*n % 1000))).count();
            assert_eq!(busy as i64, 99 * rules / 1000, "no rule that deleted is left out");
        }
        case.collection("runs").insert_one(document).await.expect("an insert");
        case.collection("runs").delete_many(doc! {}).await.unwrap();
    }
}

/// A run that is killed has a document that says so.
#[tokio::test]
async fn a_run_that_never_ends_is_in_the_history() {
    let (_mongod, case) = alone().await;
    case.fill("c", dated(0..100, days(-3))).await;
    pause_deletes(&case.client).await;
    let child = start(case.command(RULE, &["sweep"]));
    until_running(&case.client, "delete").await;
    let document = only_one(&case).await;
    assert_eq!(status(&document), "running", "{document}");
    assert_eq!(document.get_i64("pid").unwrap(), i64::from(child.id()));
    assert!(document.get_document("policy").is_ok_and(|policy| policy.get_str("sha256").is_ok_and(|sha256| sha256.len() == 64)));
    for key in ["exitCode", "durationMs", "totals", "error"] {
        assert_eq!(document.get(key), Some(&Bson::Null), "{key}: {document}");
    }
    signal(&child, "KILL");
    end(child).await;
    resume_deletes(&case.client).await;
    assert_eq!(only_one(&case).await, document);

    let shown = case.run(RULE, &["history"]).await;
    let id = document.get_str("_id").unwrap();
    assert_eq!((shown.code, shown.stderr.as_str()), (Some(0), ""), "{shown:?}");
    // The line may be folded.
    let words = shown.stdout.split_whitespace().collect::<Vec<_>>().join(" ");
    let process = format!("process {} has not ended: it still runs, or it was killed", document.get_i64("pid").unwrap());
    assert!(words.contains(&format!("run {id} on ")) && words.contains(&process), "{shown:?}");
    // A run that has ended has its numbers; the other one has none.
    let next = case.run(RULE, &["sweep"]).await;
    assert_eq!(next.code, Some(0), "{next:?}");
    let json = case.run(RULE, &["history", "--format", "json", "--only", "*.c"]).await.stdout;
    let json: Value = serde_json::from_str(&json).unwrap();
    let of = |key: &str| json["runs"].as_array().unwrap().iter().map(|run| run[key].clone()).collect::<Vec<_>>();
    assert_eq!(of("status"), ["complete", "running"]);
    assert_eq!((of("exitCode"), of("deletedCount")[1].clone()), (vec![0.into(), Value::Null], Value::Null));
    assert_eq!(json["median"]["deletedCount"].as_f64(), of("deletedCount")[0].as_f64());
    assert_eq!(case.run(RULE, &["history", "--format", "csv"]).await.code, Some(0));
}

#[tokio::test]
async fn each_run_of_a_process_that_stays_has_a_document_of_its_own() {
    let (_mongod, case) = alone().await;
    case.fill("c", dated(0..7, days(-3))).await;
    let child = start(case.command(RULE, &["sweep", "--every", "1s", "--yes"]));
    let mut ended = 0;
    while ended < 2 {
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        ended = recorded(&case).await.iter().filter(|run| status(run) == "complete").count();
    }
    signal(&child, "TERM");
    assert_eq!(end(child).await.code, Some(143));
    assert_eq!(case.ids("c").await, id_set::<i32>([]));
}
