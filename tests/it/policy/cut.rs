//! A policy that is read while it is being written: cut at every byte, it never deletes more than the whole.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::Stdio;

use mongodb::bson::{Document, doc};
use ttl_sweeper::core::policy::parse;

use crate::support::faults::{days, end, signal, start};
use crate::support::said::Said;
use crate::support::sweeper::{Case, id_set, sweeper};

/// With this key order each part of the last rule that is missing means more documents.
const RULES: &str = "  - name: carts
    namespace: DB.carts
    field: at
    expireAfterSeconds: 7776000
  - name: jobs
    namespace: DB.jobs
    field: at
    expireAfterSeconds: 7776000
    filter:
      status: done
      owner: {$ne: legal}
";

/// Ids of the documents that the whole policy leaves.
const LEFT: std::ops::Range<i32> = 10..60;

fn jobs() -> impl Iterator<Item = Document> {
    (0..60).map(|id| {
        let (age, status, owner) = match id {
            0..10 => (-200, "done", "app"),
            10..20 => (-200, "done", "legal"),
            20..30 => (-200, "open", "app"),
            // Expired by each of the periods that a part of the number says.
            _ => (-1, "done", "app"),
        };
        doc! { "_id": id, "at": days(age), "status": status, "owner": owner }
    })
}

async fn case() -> Case {
    let case = Case::new().await;
    case.fill("jobs", jobs()).await;
    case
}

fn whole(case: &Case) -> String {
    std::fs::read_to_string(case.policy(RULES)).unwrap()
}

/// Returns every part of the text up to a byte before its end that is a valid policy.
fn valid_parts(whole: &str) -> Vec<&str> {
    (0..whole.len()).map(|end| &whole[..end]).filter(|text| parse::parse("p", text, &|_| None, true).is_ok()).collect()
}

#[tokio::test]
async fn a_part_that_does_not_end_with_a_line_is_refused_and_the_others_are_counted() {
    let case = case().await;
    let text = whole(&case);
    let parts = valid_parts(&text);
    let mut left_by_lines = BTreeMap::new();
    let mut refused = 0;
    for part in &parts {
        let policy = case.file("cut.yaml", part);
        let mut command = sweeper(&["sweep", "--yes", "--uri", &case.uri]);
        command.arg("-p").arg(policy);
        let ran = end(start(command)).await;
        if part.ends_with('\n') {
            assert_eq!(ran.code, Some(0), "{part} {ran:?}");
            left_by_lines.insert(part.lines().count(), case.ids("jobs").await);
            case.collection("jobs").delete_many(doc! {}).await.unwrap();
            case.fill("jobs", jobs()).await;
        } else {
            refused += 1;
            assert_eq!(ran.code, Some(2), "{part} {ran:?}");
            assert!(ran.stderr.contains("has no newline at its end") && ran.stderr.contains("rename it"), "{ran:?}");
            assert_eq!(case.ids("jobs").await, id_set(0..60), "{part}");
        }
    }
    // Cut before the second rule, before its filter, and before the last line of the filter: no run of its own can know these
    // from a whole policy.
    assert_eq!(left_by_lines.keys().copied().collect::<Vec<_>>(), [6, 10, 12]);
    assert_eq!(left_by_lines[&6], id_set(0..60));
    assert_eq!(left_by_lines[&10], id_set(30..60));
    assert_eq!(left_by_lines[&12], id_set(20..60).into_iter().collect());
    assert!(refused >= 10, "{refused}");
}

#[tokio::test]
async fn a_policy_from_standard_input_may_be_cut_as_well() {
    let case = case().await;
    let text = whole(&case);
    let mut command = sweeper(&["sweep", "--policy", "-", "--uri", &case.uri]);
    command.stdin(Stdio::piped());
    let mut child = start(command);
    child.stdin.take().unwrap().write_all(text.trim_end().as_bytes()).unwrap();
    let ran = end(child).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("policy `-`: line 13, the last one, has no newline"), "{ran:?}");
    assert_eq!(case.ids("jobs").await, id_set(0..60));
}

#[tokio::test]
async fn a_process_that_stays_does_not_take_a_part_for_the_policy() {
    let case = case().await;
    let text = whole(&case);
    let parts = valid_parts(&text);
    let mut child = start(case.command(RULES, &["sweep", "--every", "1s"]));
    let said = Said::by(&mut child);
    said.until("the next run begins at").await;
    assert_eq!(case.ids("jobs").await, id_set(LEFT));
    // The first part has no second rule, and is accepted: it deletes less.
    let cut: Vec<&str> =
        parts.into_iter().filter(|part| part.contains("expireAfterSeconds: 77") && part.contains("name: jobs")).collect();
    assert!(cut.len() >= 10);
    for (number, part) in cut.iter().enumerate() {
        case.file("policy.yaml", part);
        signal(&child, "HUP");
        said.until_times("the runs keep using the previous policy", number + 1).await;
    }
    said.until("rule `jobs`: `filter`, or a part of it, is gone").await;
    said.until_times(
        "the next run begins at",
        said.lines().iter().filter(|line| line.contains("the next run begins at")).count() + 2,
    )
    .await;
    signal(&child, "TERM");
    assert_eq!(end(child).await.code, Some(143));
    assert_eq!(case.ids("jobs").await, id_set(LEFT));
}
