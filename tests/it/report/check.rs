//! The output of `sweeper check`: one line for each rule, its problems below, and at most 80 columns where possible.

use crate::support::faults::{dated, days};
use crate::support::native::command;
use crate::support::sweeper::{Case, run, sweeper};
use crate::support::version::version;
use mongodb::bson::doc;

const RULES: &str = "  - {name: good, namespace: DB.c, field: at, expireAfter: 1d, maxDeletes: 5}
  - {namespace: DB.c, field: made, expireAfter: 1d}
  - {name: gone, namespace: DB.gone, field: at, expireAfter: 1d, maxDeletes: 5}
  - {name: view, namespace: DB.view, field: at, expireAfter: 1d, maxDeletes: 5}
  - {name: hinted, namespace: DB.c, field: at, expireAfter: 1d, maxDeletes: 5, hint: nope_1}
  - {name: off, namespace: DB.c, field: at, expireAfter: 1d, enabled: false}
  - {name: \"long \\u202e name, one word after the other, until it has no room in a column of its own any more\", namespace: DB.c, field: at, expireAfter: 1d, maxDeletes: 5}\n";

/// Returns a case in a database of this name: names decide the width of columns.
async fn case(database: &str) -> Case {
    let case = Case::named(database).await;
    case.fill("c", dated(0..3, days(-3))).await;
    command(&case.db, doc! { "createIndexes": "c", "indexes": [{ "key": { "at": 1 }, "name": "at_1" }] }).await;
    command(&case.db, doc! { "create": "view", "viewOn": "c", "pipeline": [] }).await;
    case
}

#[tokio::test]
async fn each_rule_has_a_line_and_what_is_wrong_stands_below_it() {
    let case = case("DB").await;
    let ran = case.run(RULES, &["check", "--connect", "--color", "never"]).await;
    assert_eq!(ran.code, Some(5), "{ran:?}");
    let shown = ran.stdout.replace(case.dir.path().to_str().unwrap(), "DIR");
    let expected = "\
ok       good    DB.c, 3 documents, index at_1
         warning: `DB.c`, `long \\u{202e} name, one word after the other, until
         it has no room in a column of its own any more` are for the same
         collection: a document that has expired by both is counted by each, and
         deleted once
ok       DB.c    3 documents, no index: goes through the collection
         warning: neither `maxDeletes` nor `maxDeletePercent`: no limit would
         stop a wrong date or filter
         warning: no document found has `made` (`field`); is its name right?
         warning: `good`, `long \\u{202e} name, one word after the other, until
         it has no room in a column of its own any more` are for the same
         collection: a document that has expired by both is counted by each, and
         deleted once
skipped  gone    DB.gone
         warning: no such namespace: `DB.gone`
refused  view    DB.view
         view: a view holds no documents of its own; name the collection behind
         it, or put it under `exclude`
refused  hinted  DB.c, 3 documents, no index: goes through the collection
         hint: the hinted index `nope_1` does not exist; found `_id_`, `at_1`
skipped  off     DB.c
         disabled in the policy
ok       long \\u{202e} name, one word after the other, until it has no room in a
         column of its own any more
         DB.c, 3 documents, index at_1
         warning: `good`, `DB.c` are for the same collection: a document that
         has expired by both is counted by each, and deleted once
";
    assert!(shown.starts_with(expected), "{shown}");
    let last = shown[expected.len()..].split_whitespace().collect::<Vec<_>>().join(" ");
    let version = version(&case.db).await.text;
    assert_eq!(
        last,
        format!("DIR/policy.yaml: 7 rules on mongodb {version} standalone: 3 ready to sweep, 2 would not run, 2 skipped")
    );
}

#[tokio::test]
async fn a_check_of_the_policy_alone_says_that_nothing_was_contacted() {
    let dir = tempfile::tempdir().unwrap();
    let policy = "version: 1\ncollections:\n  - {namespace: app.c, field: at, expireAfter: 1d, maxDeletes: 5}\n  \
                  - {name: series, namespace: app.weather, expireAfterSeconds: 0, maxDeletes: 5}\n";
    std::fs::write(dir.path().join("sweeper.yaml"), policy).unwrap();
    let mut command = sweeper(&["check"]);
    command.current_dir(dir.path());
    let ran = run(command).await;
    let expected = "\
ok       app.c
ok       series  app.weather
         warning: a lifetime of 0: documents expire at the very date in the
         field
         warning: no `field`: only a time-series collection can do without

sweeper.yaml: 2 rules, no problem found; nothing was contacted: `--connect`
  looks at the deployment as well
";
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), expected));
}

#[tokio::test]
async fn colours_are_for_those_who_ask() {
    let case = case("colours").await;
    let plain = case.run(RULES, &["check", "--connect"]).await.stdout;
    let coloured = case.run(RULES, &["check", "--connect", "--color", "always"]).await.stdout;
    assert!(!plain.contains('\u{1b}'), "{plain}");
    assert!(coloured.contains("\u{1b}[33mrefused\u{1b}[0m  view"), "{coloured:?}");
}

#[tokio::test]
async fn a_check_of_the_file_needs_no_secret() {
    let case = Case::named("DB_secret").await;
    let rules = "collections: [{namespace: a.b, field: at, expireAfter: 1d, maxDeletes: 5}]";
    let text = format!("version: 1\nconnection: {{uri: \"${{NOT_SET_ANYWHERE}}\"}}\n{rules}\n");
    let policy = case.file("secret.yaml", &text);
    for (args, code) in [(&["check"][..], 0), (&["check", "--connect"], 2)] {
        let mut command = sweeper(args);
        command.arg("--policy").arg(&policy);
        let ran = run(command).await;
        assert_eq!(ran.code, Some(code), "{ran:?}");
        assert_eq!(ran.stderr.contains("`NOT_SET_ANYWHERE` is not set"), code == 2, "{ran:?}");
    }
    let wrong = case.file("wrong.yaml", &text.replace("uri: \"${NOT_SET_ANYWHERE}\"", "uri: 5"));
    let mut command = sweeper(&["check", "--policy"]);
    command.arg(wrong);
    assert_eq!(run(command).await.code, Some(2));
}
