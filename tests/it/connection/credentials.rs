//! Places of the connection string, and the question for a password that it lacks.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::faults::{dated, days, end, signal, start};
use crate::support::said::Said;
use crate::support::site::{Secured, Site, assert_silent_about, encoded, secured};
use crate::support::sweeper::{Case, Ran, id_set, ids, run, sweeper};
use crate::support::terminal::Terminal;
use mongodb::Collection;
use mongodb::bson::{Document, doc};

const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d}\n";
const PASSWORD: &str = "open:Sesame/é@";

/// Returns a case on the shared server with three expired documents.
async fn three() -> Case {
    let case = Case::new().await;
    case.fill("c", dated(0..3, days(-3))).await;
    case
}

/// Returns `sweeper` with a policy of this rule and this connection, and without any other connection string.
fn command(case: &Case, connection: &str, args: &[&str]) -> Command {
    let mut command = sweeper(&["--policy"]);
    command.arg(case.policy(&format!("{RULE}{connection}"))).args(args);
    command
}

#[tokio::test]
async fn a_file_holds_the_connection_string_and_is_named_by_the_option_or_by_the_policy() {
    let elsewhere = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=50";
    for (number, connection) in ["", "connection: {uriFile: '${SWEEPER_TEST_DIR}/uri'}\n"].into_iter().enumerate() {
        let case = three().await;
        let file = case.file("uri", &format!("{}\n", case.uri));
        let mut command = command(&case, connection, &["sweep"]);
        command.env("SWEEPER_TEST_DIR", case.dir.path());
        if number == 0 {
            // The command line wins over the environment.
            command.arg("--uri-file").arg(file).env("MONGODB_URI", elsewhere);
        }
        let ran = run(command).await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert_eq!(case.ids("c").await, id_set::<i32>([]));
    }
    // The environment wins over the policy, whose variable need not be set.
    let case = three().await;
    let mut command = command(&case, "connection: {uriFile: '${SWEEPER_TEST_DIR}/uri'}\n", &["sweep"]);
    command.env("MONGODB_URI", &case.uri);
    assert_eq!(run(command).await.code, Some(0));
    assert_eq!(case.ids("c").await, id_set::<i32>([]));
}

fn assert_refused(ran: &Ran, said: &[&str]) {
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
    assert!(said.iter().all(|part| ran.stderr.contains(part)), "{said:?}: {ran:?}");
    assert_silent_about(ran, &["Sesame"]);
}

#[tokio::test]
async fn an_empty_connection_string_is_not_replaced_by_that_of_the_policy() {
    let case = three().await;
    let connection = format!("connection: {{uri: '{}'}}\nhistory: {{collection: DB.runs}}\n", case.uri);
    for args in [
        &["sweep"][..],
        &["audit"],
        &["check", "--connect"],
        &["import"],
        &["restore", "none"],
        &["history"],
        &["native", "diff"],
    ] {
        let mut by_option = command(&case, &connection, args);
        by_option.args(["--uri", ""]);
        assert_refused(&run(by_option).await, &["--uri is empty; expected a connection string; nothing was contacted"]);
        let mut by_variable = command(&case, &connection, args);
        by_variable.env("MONGODB_URI", "");
        assert_refused(&run(by_variable).await, &["MONGODB_URI is empty; expected a connection string; nothing was contacted"]);
    }
    assert_eq!(case.ids("c").await, id_set(0..3));
    let mut offline = command(&case, &connection, &["check"]);
    offline.env("MONGODB_URI", "");
    assert_eq!(run(offline).await.code, Some(0), "needs no connection string");
    assert_eq!(run(command(&case, &connection, &["sweep"])).await.code, Some(0));
    assert_eq!(case.ids("c").await, id_set::<i32>([]));
}

#[tokio::test]
async fn a_file_that_holds_no_connection_string_is_refused() {
    let case = three().await;
    let lines = case.file("lines", "mongodb://u:Sesame@h\nmongodb://i\n");
    let empty = case.file("empty", "\n");
    let with = |path: &Path| {
        let mut command = command(&case, "", &["sweep", "--uri-file"]);
        command.arg(path);
        command
    };
    assert_refused(&run(with(&lines)).await, &["reading the connection string of --uri-file", "it has 2 lines"]);
    assert_refused(&run(with(&empty)).await, &["it is empty"]);
    assert_refused(&run(with(&case.dir.path().join("absent"))).await, &["absent", "nothing was contacted"]);
    let mut both = with(&lines);
    both.args(["--uri", "mongodb://u:Sesame@h"]);
    assert_refused(&run(both).await, &["--uri and --uri-file are both given"]);
}

#[tokio::test]
async fn a_process_that_stays_reads_the_file_again_for_each_run() {
    let case = three().await;
    let file = case.file("uri", "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=50");
    let mut command = command(&case, "", &["sweep", "--every", "1s", "--uri-file"]);
    command.arg(&file);
    let mut child = start(command);
    let said = Said::by(&mut child);
    said.until("error: connecting to `mongodb://127.0.0.1:1`").await;
    case.file("uri", &case.uri);
    for _ in 0..3000 {
        if case.ids("c").await.is_empty() {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!(case.ids("c").await, id_set::<i32>([]));
    signal(&child, "TERM");
    assert_eq!(end(child).await.code, Some(143));
}

/// Returns the connection string of a new user without the password, a collection with one expired document, and a policy for it.
async fn user(server: &Secured, site: &Site, name: &str) -> (String, Collection<Document>, PathBuf) {
    let roles = vec![doc! { "role": "readWriteAnyDatabase", "db": "admin" }];
    server.admin(doc! { "createUser": name, "pwd": PASSWORD, "roles": roles, "mechanisms": ["SCRAM-SHA-256"] }).await;
    let collection = server.root().await.database(name).collection("c");
    collection.insert_many(dated(0..1, days(-3))).await.expect("an insert");
    let policy = site.policy("", &format!("  - {{namespace: {name}.c, field: at, expireAfter: 1d}}\n"));
    (server.uri(name, PASSWORD).replace(&format!(":{}@", encoded(PASSWORD)), "@"), collection, policy)
}

#[tokio::test]
async fn a_missing_password_is_asked_for_on_a_terminal_and_not_shown() {
    let (server, site) = (secured(), Site::new());
    let (uri, collection, policy) = user(&server, &site, "asked").await;
    let mut command = sweeper(&["sweep", "--yes", "--uri", &uri, "--policy"]);
    command.arg(&policy);
    let asked = || async {
        let terminal = Terminal::open(&command).until_shown("`: ").await;
        let question = format!("password for `mongodb://<redacted>@{}`: ", server.host());
        assert!(terminal.shown.ends_with(&question), "{}", terminal.shown);
        terminal
    };
    for (typed, code, said) in [
        ("wrong\n", 1, "uthentication failed"),
        ("\n", 1, "no password was typed"),
        ("\u{3}", 130, "error: interrupted; nothing was deleted\r\n"),
    ] {
        let ran = asked().await.types(typed).end().await;
        assert_eq!(ran.code, Some(code), "{typed:?}: {ran:?}");
        assert!(ran.stdout.contains(said) && !ran.stdout.contains("wrong"), "{typed:?}: {ran:?}");
        assert!(!ran.stdout.contains("batch in flight"), "{typed:?}: {ran:?}");
        assert_eq!(ids(&collection).await, id_set([0]));
    }
    let ran = asked().await.types(&format!("{PASSWORD}\n")).end().await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_silent_about(&ran, &["Sesame"]);
    assert_eq!(ids(&collection).await, id_set::<i32>([]));
}

#[tokio::test]
async fn a_missing_password_without_a_terminal_is_an_error() {
    let (server, site) = (secured(), Site::new());
    let (uri, collection, policy) = user(&server, &site, "unasked").await;
    let mut command = sweeper(&["sweep", "--uri", &uri, "--policy"]);
    command.arg(&policy);
    let ran = run(command).await;
    assert_refused(
        &ran,
        &["it has a user without a password, and there is no terminal to ask on; nothing was contacted", "hint: "],
    );
    assert_silent_about(&ran, &["unasked@"]);
    assert_eq!(ids(&collection).await, id_set([0]));
}
