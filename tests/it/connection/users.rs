//! Users, passwords and hosts: who connects, and which errors are shown if the connection fails. No output ever contains the
//! password.

use crate::support::ports::{ClosedPort, listener};
use crate::support::site::{Secured, Site, assert_silent_about, encoded, secured};
use crate::support::sweeper::{Ran, id_set, ids, run, sweeper};
use mongodb::Database;
use mongodb::bson::{DateTime, doc};

const PASSWORD: &str = "open:Sesame/é?&%@#";
const VERBOSE: [&str; 4] = ["sweep", "-vv", "--format", "json"];

/// Inserts one expired and one live document, and returns the rule for them.
async fn filled(server: &Secured, database: &str) -> (Database, String) {
    let db = server.root().await.database(database);
    let now = DateTime::now().timestamp_millis();
    let documents = [0, -86_400_000].map(|ago| doc! { "_id": ago, "at": DateTime::from_millis(now + ago) });
    db.collection("c").insert_many(documents).await.expect("an insert");
    (db, format!("  - {{namespace: {database}.c, field: at, expireAfter: 1h}}\n"))
}

async fn user(server: &Secured, name: &str, mechanism: &str) {
    let roles = vec![doc! { "role": "readWriteAnyDatabase", "db": "admin" }];
    let user = doc! { "createUser": name, "pwd": PASSWORD, "roles": roles, "mechanisms": [mechanism] };
    server.admin(user).await;
}

/// Returns strings that no output may contain: the password, its encoded form, and its readable parts.
fn secrets() -> Vec<String> {
    vec![PASSWORD.to_owned(), encoded(PASSWORD), "Sesame".to_owned()]
}

fn assert_no_password(ran: &Ran) {
    let secrets = secrets();
    assert_silent_about(ran, &secrets.iter().map(String::as_str).collect::<Vec<_>>());
}

#[tokio::test]
async fn users_of_both_scram_mechanisms_sweep() {
    let (server, site) = (secured(), Site::new());
    for (name, mechanism) in [("sha1", "SCRAM-SHA-1"), ("sha256", "SCRAM-SHA-256")] {
        user(&server, name, mechanism).await;
        let uri = server.uri(name, PASSWORD);
        for (database, uri) in [
            (format!("{name}found"), uri.clone()),
            (format!("{name}named"), format!("{uri}&authMechanism={mechanism}&authSource=admin")),
        ] {
            let (db, rules) = filled(&server, &database).await;
            let ran = site.run(&uri, &rules, &VERBOSE).await;
            assert_eq!(ran.code, Some(0), "{ran:?}");
            assert_eq!(ids(&db.collection("c")).await, id_set([0_i64]), "{mechanism}");
            assert!(ran.stderr.contains("command delete"), "-vv names commands: {ran:?}");
            assert_no_password(&ran);
        }
    }
}

#[tokio::test]
async fn a_wrong_password_is_explained_and_not_shown() {
    let (server, site) = (secured(), Site::new());
    let (db, rules) = filled(&server, "wrong").await;
    user(&server, "someone", "SCRAM-SHA-256").await;
    let wrong = server.uri("someone", "Sesame:open");
    let nobody = server.uri("nobody", PASSWORD);
    let elsewhere = format!("{}&authSource=wrong", server.uri("someone", PASSWORD));
    for uri in [&wrong, &nobody, &elsewhere] {
        for args in [
            &VERBOSE[..],
            &["sweep", "-q"],
            &["sweep", "--dry-run", "--log-format", "json", "-vv"],
            &["check", "--connect", "-vv"],
        ] {
            let ran = site.run(uri, &rules, args).await;
            assert_eq!(ran.code, Some(1), "{ran:?}");
            assert_eq!(ran.stdout, "", "no report, because nothing was run");
            let said = ["connecting to", &server.host(), "uthentication failed", "nothing was deleted", "authSource"];
            assert!(said.iter().all(|part| ran.stderr.contains(part)), "{ran:?}");
            assert_no_password(&ran);
            assert_silent_about(&ran, &["someone", "nobody", "Sesame", "Kind:", "ErrorKind", "labels"]);
        }
    }
    assert_eq!(ids(&db.collection("c")).await, id_set([0_i64, -86_400_000]));
}

#[tokio::test]
async fn a_server_that_asks_for_a_user_is_not_swept_without_one() {
    let (server, site) = (secured(), Site::new());
    let (db, rules) = filled(&server, "nouser").await;
    let ran = site.run(&server.mongod.uri(), &rules, &["sweep"]).await;
    assert_eq!(ids(&db.collection("c")).await, id_set([0_i64, -86_400_000]));
    assert_eq!(ran.code, Some(1), "without a user nothing can be run: {ran:?}");
    assert!(ran.stderr.contains("hint:") && ran.stderr.contains("user"), "{ran:?}");
}

#[tokio::test]
async fn a_password_that_is_not_encoded_is_not_shown() {
    let site = Site::new();
    let rules = "  - {namespace: a.b, field: at, expireAfter: 1h}\n";
    // Together these separators break the string at every place where a parser could mistake part of the password for something
    // else.
    for separator in ["/", "?", "@", ":", "%", "%zz", "#", "[", "]", "/?", "?&", "?w=0&", "?timeoutMS=", "@/", " ", ","] {
        for rest in ["@127.0.0.1:1/?serverSelectionTimeoutMS=50", "@127.0.0.1:1/a?w=1&w=2"] {
            let uri = format!("mongodb://user:First{separator}Second{rest}");
            let ran = site.run(&uri, rules, &VERBOSE).await;
            assert!(matches!(ran.code, Some(1 | 2)), "{uri}: {ran:?}");
            assert!(ran.stderr.contains("error: "), "{uri}: {ran:?}");
            assert_silent_about(&ran, &["First", "Second"]);
        }
    }
    for uri in [
        "user:FirstSecond@127.0.0.1",
        "mongodb//user:FirstSecond@127.0.0.1",
        "mongodb://user:FirstSecond@",
        "mongodb://user:FirstSecond@127.0.0.1:99999",
        "mongodb://user:FirstSecond@127.0.0.1/?authMechanism=FirstSecond",
        "mongodb://user:FirstSecond@127.0.0.1/?readPreference=FirstSecond",
        "mongodb://user:Other@127.0.0.1/?tlsCertificateKeyFilePasswort=FirstSecond",
        "mongodb://user:Other@127.0.0.1/?tls=true&tlsCertificateKeyFile=/none&tlsCertificateKeyFilePassword=FirstSecond",
    ] {
        let ran = site.run(uri, rules, &VERBOSE).await;
        assert_eq!(ran.code, Some(2), "{uri}: {ran:?}");
        assert!(ran.stderr.contains("reading the connection string"), "{uri}: {ran:?}");
        assert_silent_about(&ran, &["First", "Second"]);
    }
}

#[tokio::test]
async fn a_password_is_not_taken_for_a_port() {
    let site = Site::new();
    let rules = "  - {namespace: a.b, field: at, expireAfter: 1h}\n";
    for uri in [
        "mongodb://user:FirstSecond",
        "mongodb://user:FirstSecond/db?w=1",
        "mongodb://:First/Second?x@127.0.0.1:1",
        "mongodb+srv://user:FirstSecond",
    ] {
        let ran = site.run(uri, rules, &VERBOSE).await;
        assert_eq!(ran.code, Some(2), "{uri}: {ran:?}");
        assert_silent_about(&ran, &["First", "Second"]);
    }
}

#[tokio::test]
async fn the_policy_takes_the_connection_string_from_the_environment() {
    let (server, site) = (secured(), Site::new());
    user(&server, "fromenv", "SCRAM-SHA-256").await;
    let (db, rules) = filled(&server, "fromenv").await;
    let policy = site.policy("connection: {uri: \"${SWEEPER_TEST_URI}\"}\n", &rules);
    let command = |args: &[&str]| {
        let mut command = sweeper(args);
        command.arg("--policy").arg(&policy);
        command
    };
    let unset = run(command(&VERBOSE)).await;
    assert_eq!(unset.code, Some(2), "{unset:?}");
    assert!(unset.stderr.contains("SWEEPER_TEST_URI"), "{unset:?}");
    let mut with = command(&VERBOSE);
    with.env("SWEEPER_TEST_URI", server.uri("fromenv", PASSWORD));
    let ran = run(with).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ids(&db.collection("c")).await, id_set([0_i64]));
    assert_no_password(&ran);
}

#[tokio::test]
async fn a_listener_that_is_no_mongodb_is_given_up() {
    let site = Site::new();
    let rules = "  - {namespace: a.b, field: at, expireAfter: 1h}\n";
    let closed = ClosedPort::new();
    let ports = [closed.port, listener(b""), listener(b"HTTP/1.1 400 Bad Request\r\n\r\n")];
    let said_of = ["connection refused: nothing listens there", "something listens there", "does not speak MongoDB's protocol"];
    for ((port, what), why) in ports.into_iter().zip(["closed", "silent", "a web server"]).zip(said_of) {
        // That the run ends at all shows that the wait is bounded.
        let uri = format!(
            "mongodb://user:Sesame@127.0.0.1:{port}/?directConnection=true&serverSelectionTimeoutMS=500&connectTimeoutMS=500"
        );
        let ran = site.run(&uri, rules, &["sweep", "-vv"]).await;
        assert_eq!(ran.code, Some(1), "{what}: {ran:?}");
        let said = ["connecting to", "no suitable server answered in time", why, "nothing was deleted"];
        assert!(said.iter().all(|part| ran.stderr.contains(part)), "{what}: {ran:?}");
        assert_silent_about(&ran, &["Sesame", "user:", "Kind:", "labels"]);
    }
}

#[tokio::test]
async fn a_seed_list_that_cannot_be_resolved_is_no_connection() {
    let site = Site::new();
    let rules = "  - {namespace: a.b, field: at, expireAfter: 1h}\n";
    let ran = site.run("mongodb+srv://user:Sesame@nowhere.invalid/", rules, &["sweep", "-vv"]).await;
    assert_silent_about(&ran, &["Sesame", "user:"]);
    assert!(ran.stderr.contains("nowhere.invalid") && ran.stderr.contains("DNS: "), "{ran:?}");
    assert_eq!(ran.code, Some(1), "the string is valid, but no server answers: {ran:?}");
    assert_silent_about(&ran, &["Query {", "Name("]);
}
