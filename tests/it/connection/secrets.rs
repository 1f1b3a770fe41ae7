//! Error messages reveal neither contents of documents nor secrets of connection strings.

use crate::support::sweeper::{Case, run, sweeper};
use mongodb::bson::{DateTime, doc};

#[tokio::test]
async fn an_expression_that_fails_on_a_document_does_not_show_its_value() {
    let case = Case::new().await;
    let old = DateTime::from_millis(1_577_836_800_000);
    case.fill("c", [doc! { "_id": 1, "at": old, "x": "card-hunter2" }]).await;
    for expression in [
        "{$gt: [{$toInt: $x}, 0]}",
        "{$gt: [{$toDate: $x}, 0]}",
        "{$gt: [{$toObjectId: $x}, 0]}",
        "{$gt: [{$dateFromString: {dateString: $x}}, 0]}",
        "{$regexMatch: {input: a, regex: a, options: $x}}",
        "{$gt: [{$add: [$x, 1]}, 0]}",
    ] {
        let rule = format!(
            "  - {{namespace: DB.c, field: at, expireAfter: 1d, allowUnknownTypes: [x], filter: {{$expr: {expression}}}}}\n"
        );
        for args in [&["sweep", "-vv"][..], &["sweep", "--dry-run", "--format", "json", "-vv"]] {
            let ran = case.run(&rule, args).await;
            assert_eq!(ran.code, Some(3), "{ran:?}");
            assert!(ran.stdout.contains("an expression of the filter failed") || ran.stdout.contains("(code "), "{ran:?}");
            assert!(!format!("{ran:?}").contains("hunter2"), "{ran:?}");
        }
    }
    assert_eq!(case.ids("c").await.len(), 1);
}

#[tokio::test]
async fn no_value_of_a_connection_string_is_quoted() {
    let case = Case::new().await;
    let policy = case.policy("  - {namespace: a.b, field: at, expireAfter: 1d}\n");
    for options in [
        "authMechanismProperties=hunter2",
        "authMechanismProperties=AWS_SESSION_TOKEN=hunter2",
        "authMechanismProperties=CANONICALIZE_HOST_NAME:hunter2",
        "authMechanism=hunter2",
        "replicaSet=a&tlsCertificateKeyFilePassword=hunter2",
    ] {
        let mut command =
            sweeper(&["sweep", "-vv", "--uri", &format!("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=50&{options}")]);
        command.arg("--policy").arg(&policy);
        let ran = run(command).await;
        assert!(matches!(ran.code, Some(1 | 2)), "{ran:?}");
        assert!(!format!("{ran:?}").contains("hunter2"), "{ran:?}");
    }
}

/// Connection strings with a password that is not percent-encoded, without a scheme, or with another one.
#[tokio::test]
async fn no_part_of_a_password_is_shown_wherever_the_string_is_broken() {
    let case = Case::new().await;
    let policy = case.policy("  - {namespace: a.b, field: at, expireAfter: 1d}\n");
    for uri in [
        "u:hunter2@127.0.0.1:1/?tlsCAFile=file:///x",
        "u:hunter2@127.0.0.1:1",
        "hunter2",
        "mongo://u:hunter2@127.0.0.1:1",
        "MONGODB://u:hunter2@127.0.0.1:1",
        "http://hunter2/?x=mongodb://127.0.0.1:1",
        "mongodb://u:hunter2/x@127.0.0.1:1",
        "mongodb://u:x/hunter2@127.0.0.1:1",
        "mongodb://u:x@hunter2@127.0.0.1:1",
        "mongodb://u:x@hunter2/y@127.0.0.1:1",
        "mongodb://u:x@hunter2/?a=b@127.0.0.1:1",
        "mongodb://u:hunter2?x@127.0.0.1:1",
        "mongodb://u:x?hunter2@127.0.0.1:1",
        "mongodb://u:hunter2#x@127.0.0.1:1",
        "mongodb://u:%hunter2@127.0.0.1:1",
        "mongodb://u:[hunter2]@127.0.0.1:1",
        "mongodb://u:hunter2",
        "mongodb://u:hunter2:99999/",
        "mongodb://u:x@y:hunter2/",
        "mongodb://u:hunter2@h:99999/",
        "mongodb+srv://u:x@hunter2@127.0.0.1/?a=b",
        "mongodb+srv://u:hunter2/x@127.0.0.1",
        "mongodb://u:hunter2@127.0.0.1:1/?serverSelectionTimeoutMS=50",
        "mongodb://u:hunter2@127.0.0.1:1/?serverSelectionTimeoutMS=hunter2",
        "mongodb://u:x?tlsCAFile=/hunter2@127.0.0.1:1",
        "mongodb://u:hunter2@127.0.0.1:1/?hunter2",
    ] {
        for args in [&["sweep", "-vv"][..], &["check", "--connect"], &["audit", "--format", "json"], &["import"], &["history"]] {
            for in_environment in [false, true] {
                let mut command = sweeper(args);
                command.arg("--policy").arg(&policy);
                if in_environment {
                    command.env("MONGODB_URI", uri)
                } else {
                    command.args(["--uri", uri])
                };
                let ran = run(command).await;
                assert!(matches!(ran.code, Some(1 | 2)), "{uri} {args:?}: {ran:?}");
                assert!(!format!("{ran:?}").contains("hunter2"), "{uri} {args:?}: {ran:?}");
            }
        }
    }
}
