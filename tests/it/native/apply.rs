//! `sweeper native apply` changes settings to match the policy after a confirmation, and changes nothing else.

use crate::support::native::{RULES, column, command, deployment, index, indexes, native, own_ttl, ttl};
use crate::support::site::{Site, secured};
use crate::support::sweeper::{Case, Ran, run, sweeper};
use crate::support::terminal::Terminal;
use mongodb::bson::{Bson, Document, doc};
use serde_json::{Value, json};

#[tokio::test]
async fn changes_are_shown_counted_and_made() {
    let case = deployment().await;
    let db = &case.db;
    let name = db.name();
    let (dry, planned) = native(&case, RULES, &["apply", "--dry-run"]).await;
    assert_eq!(dry.code, Some(0), "{dry:?}");
    assert_eq!(
        column(&planned, "/change/command")[1..8],
        [
            "{collMod: \"differs\", index: {name: \"by date\", expireAfterSeconds: 86400}}",
            "{collMod: \"plain\", index: {name: \"plain\", expireAfterSeconds: 86400}}",
            "{createIndexes: \"made\", indexes: [{key: {at: 1}, name: \"at_1_ttl1\", expireAfterSeconds: 86400, \
             partialFilterExpression: {s: \"a\", n: {$gte: 5}}, collation: {locale: \"en\", strength: 2}}]}",
            "{createIndexes: \"made\", indexes: [{key: {at: 1}, name: \"at_1_ttl2\", expireAfterSeconds: 172800}]}",
            "{collMod: \"clustered\", expireAfterSeconds: 86400}",
            "{collMod: \"series\", expireAfterSeconds: 86400}",
            "{collMod: \"seriesOff\", expireAfterSeconds: \"off\"}",
        ]
        .map(|command| json!(format!("db.getSiblingDB(\"{name}\").runCommand({command})")))
    );
    let count = |value: u64| json!(value);
    assert_eq!(
        column(&planned, "/change/expiredCount")[1..8],
        [count(0), count(3), count(0), count(0), count(1), count(0), Value::Null]
    );
    assert_eq!(planned["rows"][2]["change"]["documentCount"], 4);
    assert_eq!(indexes(db, "made").await, [doc! { "key": { "s": 1 }, "name": "at_1" }], "a dry run changes nothing");

    let table = case.run(RULES, &["native", "apply", "--yes"]).await;
    assert_eq!(table.code, Some(0), "{table:?}");
    assert!(
        table.stdout.contains("\n            the server would delete 3 of 4 documents at once\n            applied\n"),
        "{}",
        table.stdout
    );
    assert!(table.stdout.ends_with("1 same, 3 differs, 4 missing, 2 extra; 7 applied\n"), "{}", table.stdout);
    assert_eq!(indexes(db, "differs").await, [doc! { "key": { "at": 1 }, "name": "by date", "expireAfterSeconds": 86400 }]);
    let plain = indexes(db, "plain").await;
    assert_eq!(plain[2], doc! { "key": { "at": 1 }, "name": "plain", "sparse": true, "expireAfterSeconds": 86400 });
    assert!(plain[..2].iter().all(|index| !index.contains_key("expireAfterSeconds")), "{plain:?}");
    let made = indexes(db, "made").await;
    assert_eq!(made[1].get_document("partialFilterExpression").unwrap(), &doc! { "s": "a", "n": { "$gte": 5 } });
    assert_eq!(made[1].get_document("collation").unwrap().get_i32("strength").unwrap(), 2);
    assert_eq!(made[2], doc! { "key": { "at": 1 }, "name": "at_1_ttl2", "expireAfterSeconds": 172_800 });
    assert_eq!(own_ttl(db, "clustered").await, Some(Bson::Int64(86400)));
    assert_eq!(own_ttl(db, "series").await, Some(Bson::Int64(86400)));
    assert_eq!(own_ttl(db, "seriesOff").await, None);
    assert_eq!(indexes(db, "same").await.len(), 3, "settings without a rule are left alone");

    let (again, after) = native(&case, RULES, &["apply", "--yes"]).await;
    assert_eq!(again.code, Some(0));
    let states = ["same"; 8].into_iter().chain(["extra"; 2]);
    assert_eq!(column(&after, "/state"), states.map(Value::from).collect::<Vec<_>>(), "{after:#}");
}

#[tokio::test]
async fn a_guard_of_the_rule_and_an_error_of_the_server_leave_the_others_alone() {
    let case = deployment().await;
    let rules = "  - {namespace: DB.plain, field: at, expireAfter: 1d, maxDeletePercent: 50}
  - {namespace: DB.clustered, field: _id, expireAfterSeconds: 2147483646}
  - {namespace: DB.differs, field: at, expireAfter: 1d}\n";
    let (dry, _) = native(&case, rules, &["apply", "--dry-run"]).await;
    assert_eq!(dry.code, Some(0), "{dry:?}");
    let (ran, report) = native(&case, rules, &["apply", "--yes"]).await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    let statuses = [json!("refused"), json!("failed"), json!("applied")];
    assert_eq!(column(&report, "/change/status")[..3], statuses, "{report:#}");
    let said = column(&report, "/change/error");
    assert!(said[0].as_str().unwrap().starts_with("3 of 4 documents have expired, 75.00 %"), "{said:?}");
    let refused = said[1].as_str().unwrap();
    assert!(refused.contains("code 72, InvalidOptions"), "{refused}");
    assert!(refused.contains("at most the seconds since 1970") && refused.ends_with("nothing was changed there"), "{refused}");
    assert_eq!(indexes(&case.db, "plain").await[2].get("expireAfterSeconds"), None);
    let guarded = native(&case, rules, &["apply", "--yes", "--only", "*.plain"]).await;
    assert_eq!(guarded.0.code, Some(5), "{guarded:?}");
}

#[tokio::test]
async fn a_missing_right_is_named() {
    let (server, site) = (secured(), Site::new());
    let db = server.root().await.database("rights");
    index(&db, "c", doc! { "at": 1 }, "at_1", ttl(60)).await;
    command(&db, doc! { "create": "d" }).await;
    let roles = vec![doc! { "role": "read", "db": "rights" }];
    server.admin(doc! { "createUser": "differ", "pwd": "password", "roles": roles }).await;
    let rules = "  - {namespace: rights.c, field: at, expireAfter: 1d}\n  - {namespace: rights.d, field: at, expireAfter: 1d}\n";
    let uri = server.uri("differ", "password");
    let diff = site.run(&uri, rules, &["native", "diff"]).await;
    assert_eq!(diff.code, Some(5), "{diff:?}");
    let ran = site.run(&uri, rules, &["native", "apply", "--yes"]).await;
    assert_eq!(ran.code, Some(3), "{ran:?}");
    for (action, name) in [("collMod", "c"), ("createIndex", "d")] {
        let grant = format!(
            "the user needs `{action}` on `rights.{name}`; grant to one of its roles, such as `sweeper`: db.getSiblingDB(\"admin\").grantPrivilegesToRole"
        );
        assert!(ran.stdout.contains(&grant), "{action}: {ran:?}");
    }
    assert_eq!(indexes(&db, "c").await, [doc! { "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": 60 }]);
}

#[tokio::test]
async fn nothing_is_changed_without_a_yes() {
    let case = deployment().await;
    let rules = "  - {namespace: DB.differs, field: at, expireAfter: 1d}\n";
    let nobody = case.run(rules, &["native", "apply"]).await;
    assert_eq!((nobody.code, nobody.stdout.as_str()), (Some(2), ""), "{nobody:?}");
    assert!(nobody.stderr.contains("standard input is not a terminal; nothing was contacted"), "{nobody:?}");
    let unknown = case.run(rules, &["native", "diff", "--format", "csv"]).await;
    assert_eq!((unknown.code, unknown.stdout.as_str()), (Some(2), ""), "{unknown:?}");
    for (answer, code, seconds) in [("no\n", 1, 60), ("y\n", 1, 60), ("\u{3}", 130, 60), ("yes\n", 0, 86400)] {
        let shown = at_terminal(&case, rules, answer, None).await;
        assert_eq!(shown.code, Some(code), "{answer:?} {shown:?}");
        assert!(shown.stdout.contains("the server would delete 0 of 0 documents at once"), "{shown:?}");
        assert!(shown.stdout.contains("apply 1 change? [yes/no] "), "{shown:?}");
        assert_eq!(shown.stdout.contains("nothing was changed"), code != 0, "{shown:?}");
        assert_eq!(indexes(&case.db, "differs").await[0].get_i32("expireAfterSeconds").unwrap(), seconds, "{answer:?}");
    }
    let drop = doc! { "dropIndexes": "differs", "index": "by date" };
    let drifted = at_terminal(&case, "  - {namespace: DB.differs, field: at, expireAfter: 2d}\n", "yes\n", Some(drop)).await;
    assert_eq!(drifted.code, Some(5), "{drifted:?}");
    assert!(drifted.stdout.contains("the deployment changed after it was shown; nothing was changed"), "{drifted:?}");
    assert_eq!(indexes(&case.db, "differs").await, []);
    let expecting = format!(
        "version: 1\nconnection: {{expect: {{replicaSet: rs0}}}}\ncollections: [{{namespace: {}.differs, field: at, expireAfter: 2d}}]\n",
        case.db.name()
    );
    let mut command = sweeper(&["native", "apply", "--yes", "--uri", &case.uri, "--policy"]);
    command.arg(case.file("expecting.yaml", &expecting));
    let elsewhere = run(command).await;
    assert_eq!(elsewhere.code, Some(5), "{elsewhere:?}");
    assert!(
        elsewhere.stderr.contains("expects the replica set `rs0`; connected to no replica set; nothing was changed"),
        "{elsewhere:?}"
    );
}

/// Runs `native apply` on a terminal, and answers the question once it is shown and the command `meanwhile` has run.
async fn at_terminal(case: &Case, rules: &str, answer: &str, meanwhile: Option<Document>) -> Ran {
    let terminal = Terminal::open(&case.command(rules, &["native", "apply"])).until_asked().await;
    if let Some(meanwhile) = meanwhile {
        command(&case.db, meanwhile).await;
    }
    let mut terminal = terminal.types(answer);
    let before = std::mem::take(&mut terminal.shown);
    let ran = terminal.end().await;
    Ran { stdout: before + &ran.stdout, ..ran }
}
