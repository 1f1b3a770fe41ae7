//! `sweeper init`: a few answers make a policy that a sweep accepts; it never overwrites another file and contains no secret.

use std::path::Path;
use std::process::Command;

use crate::support::faults::{alone, dated, days, fail_commands, slow_down};
use crate::support::native::{command, index, ttl};
use crate::support::pool::Alone;
use crate::support::replica_set::ReplicaSet;
use crate::support::sweeper::{Ran, id_set, ids, run, sweeper};
use crate::support::terminal::Terminal;
use mongodb::Client;
use mongodb::bson::{DateTime, Document, doc};
use ttl_sweeper::core::policy::{DateFormat, Policy, parse};

/// Options without which `init` asks questions.
const NEEDED: [&str; 6] = ["--namespace", "app.c", "--field", "at", "--expire-after", "1d"];

fn policy(text: &str) -> Policy {
    let env = |name: &str| (name == "MONGODB_URI").then(|| "mongodb://h".to_owned());
    parse::parse("p", text, &env, false).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

/// Runs `init` on a terminal with these answers; returns the policy and the text shown.
async fn answered(uri: &str, file: &Path, options: &[&str], answers: &str) -> (String, String) {
    let mut command = sweeper(&["init", "--force"]);
    command.args(options).args(["--uri", uri]).arg("-o").arg(file);
    let ran = Terminal::open(&command).types(answers).end().await;
    assert_eq!(ran.code, Some(0), "{}", ran.stdout);
    (std::fs::read_to_string(file).unwrap(), ran.stdout)
}

fn in_directory(dir: &Path, args: &[&str]) -> Command {
    let mut command = sweeper(args);
    command.current_dir(dir);
    command
}

async fn filled(client: &Client) {
    let db = client.database("app");
    let sessions = db.collection::<Document>("sessions");
    sessions.insert_many(dated(0..3, days(-3)).chain(dated(3..9, days(3)))).await.unwrap();
    let numbers = (0..5).map(|n| doc! { "_id": n, "ts": DateTime::now().timestamp_millis() - i64::from(n) * 86_400_000 });
    db.collection::<Document>("events").insert_many(numbers).await.unwrap();
    let carts = db.collection::<Document>("carts");
    carts.insert_one(doc! { "made": { "at": days(0) }, "seen": days(0) }).await.unwrap();
    index(&db, "carts", doc! { "seen": 1 }, "seen_1", ttl(7200)).await;
    command(&db, doc! { "create": "weather", "timeseries": { "timeField": "time" } }).await;
    command(&db, doc! { "create": "shown", "viewOn": "sessions", "pipeline": [] }).await;
    command(&db, doc! { "create": "capped", "capped": true, "size": 4096 }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_answers_of_a_new_user_become_a_policy_that_sweeps() {
    let set = Alone::<ReplicaSet>::take().await;
    let (uri, client) = (set.uri(), set.client().await);
    filled(&client).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("sweeper.yaml");

    // The largest collection comes first, and its dates come before its other fields; invalid answers are asked for again.
    let answers = "shown_is_no_namespace\n1\n\nsoon\n30 days\n1d\n\n0\n40 %\n";
    let (text, shown) = answered(&uri, &file, &[], answers).await;
    for part in [
        "  1  app.sessions  9 documents",
        "  2  app.events    5 documents",
        "  3  app.carts     1 document, TTL on seen",
        "  4  app.weather   0 buckets",
        "has no collection; expected `database.collection`",
        "  1  at  in 9 documents: dates",
        "[at]: ",
        "not a duration: \"soon\"",
        "expected `30d`?",
        "found the number 0; expected a number above 0 and at most 100",
        "[50]: ",
        "The file does not contain the connection string",
        "sweeper sweep --dry-run",
    ] {
        // Long lines are wrapped.
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words(&shown).contains(&words(part)), "{part}: {shown}");
    }
    assert!(!shown.contains("app.shown"), "a view cannot be swept: {shown}");
    let written = policy(&text);
    assert_eq!(written.connection.uri.as_deref(), Some("mongodb://h"), "${{MONGODB_URI}} is written there");
    assert_eq!(written.connection.expect.replica_set, client_set_name(&client).await);
    let rule = &written.rules[0];
    assert_eq!((rule.namespace.to_string().as_str(), rule.field.as_deref()), ("app.sessions", Some("at")));
    assert_eq!((rule.expire_after_seconds, rule.date_format), (Some(86_400), None));
    assert_eq!((rule.limits.max_delete_percent, rule.limits.max_deletes), (Some(40.0), Some(1_000_000)));
    assert!(text.starts_with("# yaml-language-server: $schema=sweeper.schema.json\n"), "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");

    for (args, part) in [
        (&["check"][..], "no problem found"),
        (&["check", "--connect"], "1 ready to sweep"),
        (&["sweep", "--dry-run"], "would delete 3 documents"),
        (&["sweep"], "deleted 3 documents"),
    ] {
        let mut command = in_directory(dir.path(), args);
        command.env("MONGODB_URI", &uri);
        let ran = run(command).await;
        assert_eq!(ran.code, Some(0), "{args:?} {ran:?}");
        assert!(ran.stdout.contains(part), "{args:?} {ran:?}");
    }
    assert_eq!(ids(&client.database("app").collection("sessions")).await, id_set(3..9));

    // A collection without its database, a field by its number; numbers that are dates must be declared as such.
    let (text, _) = answered(&uri, &file, &[], "events\n1\n90d\n\n\n").await;
    let rule = &policy(&text).rules[0];
    assert_eq!((rule.namespace.to_string().as_str(), rule.field.as_deref()), ("app.events", Some("ts")));
    assert_eq!((rule.date_format, rule.limits.max_delete_percent), (Some(DateFormat::EpochMillis), Some(50.0)));

    // The defaults match the native TTL setting of the collection.
    let (text, shown) = answered(&uri, &file, &["--max-delete-percent", "10"], "app.carts\n\n\n\n").await;
    let rule = &policy(&text).rules[0];
    assert_eq!((rule.field.as_deref(), rule.expire_after_seconds), (Some("seen"), Some(7200)));
    assert_eq!(rule.limits.max_delete_percent, Some(10.0));
    assert!(shown.contains("`sweeper import`"), "{shown}");

    // A time-series collection has its own field.
    let (text, shown) = answered(&uri, &file, &[], "4\n2w\n\n\n").await;
    assert_eq!(policy(&text).rules[0].field, None, "{shown}");

    // One collection after another makes one rule each; views and capped collections make none.
    let answers = "app.shown\napp.capped\n1\n\n1d\nsessions\ny\n2\n1\n90d\n4\n2w\n\n20\n";
    let (text, shown) = answered(&uri, &file, &[], answers).await;
    let rules = policy(&text).rules;
    let rules: Vec<_> = rules.iter().map(|rule| (rule.namespace.to_string(), rule.field.as_deref(), rule.date_format)).collect();
    assert_eq!(
        rules,
        [
            ("app.sessions".to_owned(), Some("at"), None),
            ("app.events".to_owned(), Some("ts"), Some(DateFormat::EpochMillis)),
            ("app.weather".to_owned(), None, None),
        ],
        "{shown}"
    );
    for part in [
        "`app.shown` is a view",
        "`app.capped` is a capped collection",
        "`app.sessions` has a rule already",
        "Add another collection (Enter to finish): ",
        "which one? expected its number, or database.collection",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }

    // Missing collections and patterns are accepted as well.
    let (text, _) = answered(&uri, &file, &["--ttl-field", "ttl"], "tenant_*.jobs\nmeta.done\n1h\n\n\n").await;
    let rule = &policy(&text).rules[0];
    assert_eq!((rule.namespace.to_string().as_str(), rule.field.as_deref()), ("tenant_*.jobs", Some("meta.done")));
    assert_eq!(rule.ttl_field.as_deref(), Some("ttl"));
}

async fn client_set_name(client: &Client) -> Option<String> {
    let hello = client.database("admin").run_command(doc! { "hello": 1 }).await.unwrap();
    Some(hello.get_str("setName").unwrap().to_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_does_not_answer_keeps_nobody_from_answering_and_no_secret_is_shown() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.yaml");
    let uri = "mongodb://somebody:hunter2@127.0.0.1:1/?serverSelectionTimeoutMS=100";
    let (text, shown) = answered(uri, &file, &[], "app.c\nat\n1d\n\n\n").await;
    assert!(shown.contains("no collections to choose from"), "{shown}");
    assert_eq!(policy(&text).rules[0].field.as_deref(), Some("at"));
    assert_eq!(policy(&text).connection.expect.replica_set, None);
    for secret in ["hunter2", "somebody"] {
        assert!(!text.contains(secret) && !shown.contains(secret), "{shown}\n{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn collections_that_are_not_counted_in_time_can_be_chosen_and_only_those_that_are_named_are_looked_at() {
    let (_mongod, case) = alone().await;
    filled(&case.client).await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.yaml");
    slow_down(&case.client, "count", 20_000).await;
    let (text, shown) = answered(&case.uri, &file, &[], "4\n1\n1d\n\n\n").await;
    assert!(shown.contains("  4  app.weather   not counted") && !shown.contains("warning"), "{shown}");
    assert_eq!(policy(&text).rules[0].namespace.to_string(), "app.weather", "{shown}");

    let data =
        doc! { "failCommands": ["listIndexes"], "namespace": "app.events", "blockConnection": true, "blockTimeMS": 20_000 };
    fail_commands(&case.client, "alwaysOn", data).await;
    let options = ["--namespace", "app.sessions", "--expire-after", "1d"];
    let (text, shown) = answered(&case.uri, &file, &options, "1\n\n").await;
    assert!(shown.contains("at  in 9 documents: dates") && !shown.contains("warning"), "{shown}");
    assert_eq!(policy(&text).rules[0].field.as_deref(), Some("at"), "{shown}");
}

#[tokio::test]
async fn without_a_terminal_it_takes_options_and_names_those_that_are_missing() {
    let dir = tempfile::tempdir().unwrap();
    for (given, missing) in [
        (&NEEDED[..0], "also expected --namespace, --field, --expire-after; nothing was written"),
        (&NEEDED[..2], "also expected --field, --expire-after; nothing"),
        (&NEEDED[2..], "also expected --namespace; nothing"),
    ] {
        let ran = run(in_directory(dir.path(), &[&["init"], given].concat())).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.contains(missing), "{ran:?}");
    }
    for (option, value, part) in [
        ("--namespace", "sessions", "--namespace: \"sessions\" has no collection"),
        ("--namespace", "admin.users", "never swept"),
        ("--field", "a..b", "--field: \"a..b\" has an empty part"),
        ("--expire-after", "3 months", "--expire-after: an unknown unit"),
        ("--ttl-field", "a.b", "--ttl-field: \"a.b\" is not a root-level field name"),
        ("--ttl-field", "at", "holds the date itself"),
        ("--date-format", "epochMilis", "expected `epochMillis`?"),
        ("--max-delete-percent", "0", "--max-delete-percent: "),
        ("--max-delete-percent", "NaN", "above 0 and at most 100"),
    ] {
        let mut args = vec!["init"];
        args.extend(NEEDED.chunks(2).filter(|pair| pair[0] != option).flatten());
        let ran = run(in_directory(dir.path(), &[&args[..], &[option, value]].concat())).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.contains(part), "{option} {value}: {ran:?}");
    }
    for (more, part) in [
        (&["--field", "x"][..], "--field: 2 values for 1 --namespace; expected one for all rules, or one for each"),
        (
            &["--namespace", "app.d", "--namespace", "app.e", "--ttl-field", "a", "--ttl-field", "b"],
            "--ttl-field: 2 values for 3 --namespaces",
        ),
    ] {
        let ran = run(in_directory(dir.path(), &[&["init"], &NEEDED[..], more].concat())).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.contains(part) && ran.stderr.contains("nothing was written"), "{ran:?}");
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");

    let ran = run(in_directory(dir.path(), &[&["init", "--date-format", "epochSeconds"], &NEEDED[..]].concat())).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{ran:?}");
    assert!(ran.stderr.contains("wrote sweeper.yaml") && ran.stderr.contains("export MONGODB_URI"), "{ran:?}");
    let rule = &policy(&std::fs::read_to_string(dir.path().join("sweeper.yaml")).unwrap()).rules[0];
    assert_eq!((rule.expire_after_seconds, rule.date_format), (Some(86_400), Some(DateFormat::EpochSeconds)));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_terminal_it_looks_at_what_the_options_name() {
    let set = Alone::<ReplicaSet>::take().await;
    let (uri, client) = (set.uri(), set.client().await);
    filled(&client).await;
    let imports = client.database("app").collection("imports");
    imports
        .insert_many((0..3).map(|n| doc! { "_id": n, "at": if n == 0 { "2024-01-01" } else { "2024-01-01T00:00:00+02:00" } }))
        .await
        .unwrap();
    let dir = tempfile::tempdir().unwrap();
    for (namespace, field, format, warned) in [
        ("app.sessions", "at", None, ""),
        ("app.events", "ts", Some(DateFormat::EpochMillis), ""),
        ("app.imports", "at", Some(DateFormat::Iso8601), ""),
        ("app.sessions", "ta", None, "has a date in `ta` of `app.sessions`"),
        ("app.sesions", "at", None, "no collection `app.sesions` was found"),
        ("ap*.sessions", "at", None, ""),
    ] {
        let args = ["init", "-o", "-", "--uri", &uri, "--namespace", namespace, "--field", field, "--expire-after", "1d"];
        let ran = run(in_directory(dir.path(), &args)).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let policy = policy(&ran.stdout);
        assert_eq!(policy.rules[0].date_format, format, "{ran:?}");
        assert_eq!(policy.connection.expect.replica_set.as_deref(), Some("rs0"), "{ran:?}");
        assert_eq!(ran.stderr.contains("warning: "), !warned.is_empty(), "{ran:?}");
        assert!(ran.stderr.contains(warned), "{ran:?}");
    }
    // One rule for each namespace: an option that is given once is for all of them.
    let two = ["init", "-o", "-", "--uri", &uri, "--namespace", "app.sessions", "--namespace", "app.events"];
    let ran =
        run(in_directory(dir.path(), &[&two[..], &["--field", "at", "--field", "ts", "--expire-after", "9d"]].concat())).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let rules = policy(&ran.stdout).rules;
    let rules: Vec<_> = rules.iter().map(|rule| (rule.field.as_deref(), rule.date_format, rule.expire_after_seconds)).collect();
    assert_eq!(rules, [(Some("at"), None, Some(777_600)), (Some("ts"), Some(DateFormat::EpochMillis), Some(777_600))]);
    for (namespace, why) in [("app.shown", "is a view"), ("app.capped", "is a capped collection")] {
        let args = ["init", "--uri", &uri, "--namespace", namespace, "--field", "at", "--expire-after", "1d"];
        let ran = run(in_directory(dir.path(), &args)).await;
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(
            ran.stderr.contains(&format!("--namespace: `{namespace}` {why}")) && ran.stderr.contains("nothing was written"),
            "{ran:?}"
        );
    }
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
}

#[tokio::test]
async fn a_file_that_is_there_stays_as_it_is_but_with_force() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sweeper.yaml");
    let init = async |more: &[&str]| -> Ran { run(in_directory(dir.path(), &[&["init"], &NEEDED[..], more].concat())).await };
    std::fs::write(&path, "mine").unwrap();
    let ran = init(&[]).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("it already exists; nothing was written") && ran.stderr.contains("--force"), "{ran:?}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");

    let link = dir.path().join("link.yaml");
    std::os::unix::fs::symlink("nowhere.yaml", &link).unwrap();
    assert_eq!(init(&["-o", "link.yaml"]).await.code, Some(2));
    assert!(!dir.path().join("nowhere.yaml").exists());

    let ran = init(&["-o", "-"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(policy(&ran.stdout).rules[0].name, "app.c");
    let ran = init(&["-p", "other.yaml", "-q"]).await;
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(0), ""), "{ran:?}");
    assert_eq!(std::fs::read_to_string(dir.path().join("other.yaml")).unwrap(), init(&["-o", "-"]).await.stdout);
    assert_eq!(init(&["--force"]).await.code, Some(0));
    assert_eq!(policy(&std::fs::read_to_string(&path).unwrap()).rules[0].name, "app.c");
}

#[tokio::test]
async fn answers_that_end_early_write_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("p.yaml");
    let mut command = sweeper(&["init"]);
    command.arg("-o").arg(&file);
    for answers in ["\u{4}", "app.c\nat\n\u{4}", "\u{3}"] {
        let ran = Terminal::open(&command).until_shown("database.collection: ").await.types(answers).end().await;
        assert_ne!(ran.code, Some(0), "{answers:?} {ran:?}");
        assert!(!file.exists(), "{answers:?}");
    }
}

#[tokio::test]
async fn a_sweep_without_a_policy_says_how_to_get_one() {
    let dir = tempfile::tempdir().unwrap();
    for args in [&["sweep"][..], &["check"], &["native", "diff"]] {
        let ran = run(in_directory(dir.path(), args)).await;
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("`sweeper init`") && ran.stderr.contains("`sweeper import`"), "{ran:?}");
    }
}
