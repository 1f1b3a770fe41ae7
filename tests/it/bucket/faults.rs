//! A bucket that fails: no deleted document is missing from it, and nothing is deleted that it did not acknowledge.

use std::time::Duration;

use serde_json::json;

use super::sweeps::{rules, swept, told};
use crate::support::archives::{Documents, assert_archived, into, raw};
use crate::support::faults::{dated, days, end, signal, start};
use crate::support::s3::{Asked, Fault, S3, SECRET};
use crate::support::site::assert_silent_about;
use crate::support::sweeper::{Case, Report};

/// Returns a case with 60 expired documents, which are archived ten at a time, and a server.
async fn filled() -> (Case, S3, Documents) {
    let (case, s3) = (Case::new().await, S3::start().await);
    case.fill("c", dated(0..60, days(-3))).await;
    let before = raw(&case, "c").await;
    (case, s3, before)
}

const IN_TENS: &str = ", batchSize: 10, concurrency: 1";

/// Whether a request puts an object with documents.
fn puts_documents(asked: &Asked) -> bool {
    asked.method == "PUT" && asked.name.contains(".bson.") && !asked.name.ends_with("/00000000")
}

/// Asserts that every deleted document is in the archives of the bucket; returns the number of deleted documents.
async fn assert_safe(case: &Case, s3: &S3, before: &Documents) -> usize {
    s3.fail(|_| None);
    let after = raw(case, "c").await;
    let mut archived = Documents::new();
    if s3.objects("ttl").exists() {
        let (listed, _) = told(s3, &["archive", "list", "s3://bucket/ttl"]).await;
        for archive in listed["archives"].as_array().unwrap() {
            let path = archive["archive"].as_str().unwrap();
            let moves = into(case, "c", "unpacked");
            let (restored, ran) = told(s3, &["restore", path, "--uri", &case.uri, "--namespace", &moves]).await;
            // An object that the store has damaged is at the end, and was not deleted from the collection.
            let errors = restored["namespaces"][0]["error"].as_str().unwrap_or_default().to_owned();
            assert!(ran.code == Some(0) || errors.contains("are damaged: nothing of them was deleted"), "{restored:#}");
            archived.append(&mut raw(case, "unpacked").await);
        }
    }
    assert_archived(before, &after, &archived)
}

/// Asserts that a rule failed for the archive, says so, and what was deleted.
fn assert_failed(report: &Report, gone: usize, why: &str) {
    assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(3), &json!(gone)), "{report:?}");
    let error = report.rule(0, "error").as_str().unwrap();
    assert!(error.starts_with("deleting: archiving to `s3://bucket/ttl/") && error.contains(why), "{error}");
    assert!(error.contains("nothing of that part was deleted"), "{error}");
    assert_silent_about(&report.ran, &[SECRET]);
}

#[tokio::test]
async fn an_object_that_is_not_acknowledged_or_not_the_same_ends_the_rule_before_its_delete() {
    for (fault, why) in [
        (Fault::Answer(400, "ExpiredToken"), "ExpiredToken: Said by the test"),
        (Fault::Answer(403, "AccessDenied"), "the credentials need to list, read and write"),
        (Fault::Damaged, "it has other bytes than were written"),
    ] {
        let (case, s3, before) = filled().await;
        let mut puts = 0;
        s3.fail(move |asked| {
            puts += usize::from(puts_documents(asked));
            (puts_documents(asked) && puts == 4).then_some(fault)
        });
        let report = swept(&case, &s3, &rules(IN_TENS), &[]).await;
        assert_failed(&report, 30, why);
        assert_eq!(assert_safe(&case, &s3, &before).await, 30);
    }
}

#[tokio::test]
async fn what_passes_is_asked_again_and_all_is_archived_once() {
    for fault in [Fault::Answer(503, "SlowDown"), Fault::Answer(500, "InternalError"), Fault::Half, Fault::Unacknowledged] {
        let (case, s3, before) = filled().await;
        let mut number = 0;
        // The first request of each three fails.
        s3.fail(move |_| {
            number += 1;
            (number % 3 == 1).then_some(fault)
        });
        let report = swept(&case, &s3, &rules(IN_TENS), &[]).await;
        assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(0), &json!(60)), "{fault:?}: {report:?}");
        s3.fail(|_| None);
        let (verified, ran) = told(&s3, &["archive", "verify", "s3://bucket/ttl"]).await;
        assert_eq!((ran.code, &verified["archives"][0]["state"]), (Some(0), &json!("complete")), "{fault:?}: {verified:#}");
        assert_eq!(assert_safe(&case, &s3, &before).await, 60);
    }
}

#[tokio::test]
async fn a_bucket_that_cannot_be_used_is_found_before_anything_is_deleted() {
    for (fault, why) in [
        (Fault::Answer(403, "SignatureDoesNotMatch"), "SignatureDoesNotMatch"),
        (Fault::Answer(404, "NoSuchBucket"), "the bucket does not exist (NoSuchBucket"),
    ] {
        let (case, s3, before) = filled().await;
        s3.fail(move |_| Some(fault));
        for args in [&["--dry-run"][..], &[]] {
            let report = swept(&case, &s3, &rules(IN_TENS), args).await;
            let error = report.rule(0, "error").as_str().unwrap();
            assert_eq!(report.ran.code, Some(3), "{report:?}");
            assert!(error.starts_with("`archive`: listing `s3://bucket/ttl`: ") && error.contains(why), "{error}");
            assert!(error.contains("nothing was deleted"), "{error}");
        }
        assert_eq!(raw(&case, "c").await, before);
    }
}

#[tokio::test]
async fn a_bucket_that_takes_no_objects_deletes_nothing() {
    // As for a user who may only read.
    let (case, s3, before) = filled().await;
    s3.fail(|asked| (asked.method == "PUT").then_some(Fault::Answer(403, "AccessDenied")));
    let report = swept(&case, &s3, &rules(IN_TENS), &[]).await;
    assert_failed(&report, 0, "AccessDenied");
    assert_eq!(raw(&case, "c").await, before);
}

/// With object lock S3 takes only objects with a checksum, and lets none be removed before its time. Source: arrow-rs#3725, which
/// quotes "Content-MD5 OR x-amz-checksum- HTTP header is required".
#[tokio::test]
async fn a_bucket_with_object_lock_takes_an_archive() {
    let (case, s3, before) = filled().await;
    s3.fail(|asked| match asked.method.as_str() {
        "PUT" if !asked.has_checksum => Some(Fault::Answer(400, "InvalidRequest")),
        "DELETE" | "POST" => Some(Fault::Answer(403, "AccessDenied")),
        _ => None,
    });
    let report = swept(&case, &s3, &rules(IN_TENS), &[]).await;
    assert_eq!((report.ran.code, report.rule(0, "deletedCount")), (Some(0), &json!(60)), "{report:?}");
    assert_eq!(assert_safe(&case, &s3, &before).await, 60);
}

#[tokio::test]
async fn a_run_that_is_killed_or_ended_leaves_what_it_deleted() {
    for name in ["KILL", "TERM"] {
        let (case, s3, before) = filled().await;
        let mut puts = 0;
        // The fourth object is put, and its acknowledgement never comes.
        s3.fail(move |asked| {
            puts += usize::from(puts_documents(asked));
            (puts_documents(asked) && puts >= 4).then_some(Fault::Silent)
        });
        let mut command = case.command(&rules(IN_TENS), &["sweep", "--format", "json"]);
        s3.reach(&mut command);
        let child = start(command);
        // The delete before it may still be on its way then.
        let waits = || s3.asked().iter().any(|asked| asked.name.ends_with(".bson.zst/00000004"));
        while !waits() || case.ids("c").await.len() > 30 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        signal(&child, name);
        let ran = end(child).await;
        assert_eq!(ran.code, if name == "KILL" { None } else { Some(143) }, "{ran:?}");
        assert!(!ran.stderr.contains("panicked"), "{ran:?}");
        assert_eq!(assert_safe(&case, &s3, &before).await, 30);
        // The next run says that there is such an archive, and goes on.
        let next = swept(&case, &s3, &rules(IN_TENS), &[]).await;
        assert_eq!((next.ran.code, next.rule(0, "deletedCount")), (Some(0), &json!(30)), "{next:?}");
        let warning = next.rule(0, "warnings")[0].as_str().unwrap();
        assert!(warning.contains("is not finished: another run is writing it, or was cut off"), "{warning}");
    }
}

#[tokio::test]
async fn a_manifest_that_cannot_be_written_is_said_and_the_archive_is_read_without() {
    let (case, s3, before) = filled().await;
    s3.fail(|asked| asked.name.ends_with("manifest.json").then_some(Fault::Answer(403, "AccessDenied")));
    let report = swept(&case, &s3, &rules(IN_TENS), &[]).await;
    assert_eq!(report.rule(0, "deletedCount"), 60, "{report:?}");
    let warnings = report.rule(0, "warnings").to_string();
    assert!(warnings.contains("the manifest of the archive `s3://bucket/ttl/"), "{warnings}");
    assert_eq!(assert_safe(&case, &s3, &before).await, 60);
}
