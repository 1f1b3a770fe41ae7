//! Runs that delete children: what limits and holds back the sweep of the parents does so for them, too, but for the limits on
//! the count.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};
use server_model::{BEGINNING, Faults, Model};

use super::case::{CHILDREN, Case, JOURNAL, PARENTS, nobody, target};
use crate::base::watch;
use crate::core::plan::Status;
use crate::core::report::rule::RuleReport;
use crate::shell::archive::reader;

/// Returns a child of so many levels that it cannot be compared with what was archived.
fn deep_child(parent: i32) -> Document {
    let deep = (0..40).fold(Bson::Null, |inner, _| doc! { "a": inner }.into());
    doc! { "_id": "deep", "p": parent, "a": deep }
}

/// Children of one parent that has expired.
fn of_one_parent(number: usize) -> Case {
    Case::new(&[1], &[2], &vec![(3, 1); number])
}

#[tokio::test(start_paused = true)]
async fn children_do_not_count_towards_the_limits_of_deletes() {
    for (keys, args) in [("    maxDeletes: 2\n", &[][..]), ("", &["--max-deletes", "2"][..])] {
        let children = [(3, 1), (3, 1), (3, 2), (3, 2), (3, 3)];
        let case = Case::new(&[1, 2], &[3], &children);
        let rule = case.sweep(keys, args, nobody).await;
        assert_eq!((rule.status, rule.deleted_count, rule.children_deleted_count), (Status::Complete, 2, Some(4)), "{keys}");
        assert_eq!(case.parents_of_children(), [3], "{keys}");
    }
}

#[tokio::test(start_paused = true)]
async fn children_keep_to_the_rate_of_the_rule_and_to_that_of_the_run() {
    for (keys, args) in [("    rate: 10\n", &[][..]), ("", &["--rate", "10"][..])] {
        let case = of_one_parent(60);
        let rule = case.sweep(keys, args, nobody).await;
        assert_eq!((rule.status, case.parents_of_children().len()), (Status::Complete, 0), "{keys}");
        // A second's worth may go at once.
        assert!(rule.paused_ms.unwrap().rate >= 4000, "{keys}{rule:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_window_closes_between_batches_of_children() {
    let case = of_one_parent(200);
    // The clock begins at 8 o'clock.
    let keys = "    rate: 1\n    window: {start: '00:00', end: '08:01', timezone: UTC}\n";
    let rule = case.sweep(keys, &[], nobody).await;
    assert_eq!((rule.status, rule.deleted_count), (Status::Partial, 1));
    assert!((1..200).contains(&case.parents_of_children().len()), "{rule:?}");
}

#[tokio::test(start_paused = true)]
async fn a_pause_file_holds_back_batches_of_children() {
    let case = of_one_parent(60);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pause");
    let created = path.clone();
    let pause = move |_: &_, command: &_| {
        if target(command, "delete") == Some("d") && !created.exists() {
            std::fs::write(&created, "").unwrap();
        }
    };
    let left = || case.model.documents(CHILDREN).len();
    let goes_on = async {
        // By then a child has gone, and the file was seen.
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert!(path.exists());
        let paused = left();
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert_eq!(left(), paused);
        assert!(paused > 0);
    };
    let args = ["--pause-file", path.to_str().unwrap(), "--max-duration", "5m"];
    let (rule, ()) = tokio::join!(case.sweep("    rate: 1\n", &args, pause), goes_on);
    assert_eq!((rule.status, rule.deleted_count), (Status::Partial, 1));
}

#[tokio::test(start_paused = true)]
async fn a_pause_file_that_comes_with_any_look_at_the_parents_is_waited_for_before_the_children_go() {
    for last in 1..=4 {
        let (file, pause) = watch::channel(None);
        let case = Case { pause: Some(pause), ..of_one_parent(60) };
        let file = Arc::new(file);
        let (appears, mut looks) = (file.clone(), 0);
        let others = move |_: &_, command: &Document| {
            let level = command.get_document("readConcern").and_then(|concern| concern.get_str("level"));
            if target(command, "find") == Some("c") && level.is_ok_and(|level| level == "linearizable") {
                looks += 1;
                if looks == last {
                    appears.send_replace(Some("it is there".into()));
                }
            }
        };
        let goes_on = async {
            tokio::time::sleep(Duration::from_secs(100)).await;
            let is_there = file.borrow().is_some();
            file.send_replace(None);
            is_there
        };
        let (rule, was_there) = tokio::join!(case.sweep("", &[], others), goes_on);
        assert_eq!((rule.status, rule.children_deleted_count), (Status::Complete, Some(60)), "{last}");
        let paused = rule.paused_ms.unwrap().pause_file;
        assert_eq!(was_there, paused > 90_000, "{last}: {paused}");
        assert!(was_there || last > 2, "each child waits for two looks at least");
    }
}

#[tokio::test(start_paused = true)]
async fn an_archive_says_which_documents_are_children_and_is_restored_with_them_first() {
    let case = Case::new(&[1], &[2], &[(3, 1)]);
    let rule = case.sweep("    archive: {directory: /}\n", &[], nobody).await;
    assert_eq!((rule.status, rule.archived_count), (Status::Complete, Some(1)));
    let stored = reader::open(Arc::new(case.disk.clone()), Path::new(&rule.archive.unwrap())).unwrap();
    assert_eq!(stored.files.iter().map(|file| file.namespace.to_string()).collect::<Vec<_>>(), [CHILDREN, PARENTS]);
}

#[tokio::test(start_paused = true)]
async fn a_child_that_cannot_be_archived_stays_and_so_does_the_entry_of_its_parent() {
    let case = Case::new(&[1], &[2], &[(3, 1)]);
    case.model.put(CHILDREN, &"deep".into(), Some(deep_child(1)));
    let rule = case.sweep("    archive: {directory: /}\n", &[], nobody).await;
    assert_eq!((rule.deleted_count, rule.children_deleted_count), (1, Some(1)));
    assert_eq!((case.parents_of_children(), in_journal(&case)), (vec![1], vec![1.into()]));
    assert_eq!(told_as_left(&rule), ["children of up to 1 parent"]);
}

/// Returns the parents in the entries of the journal.
fn in_journal(case: &Case) -> Vec<Bson> {
    case.entries().iter().flat_map(|entry| entry.get_array("parents").unwrap().clone()).collect()
}

/// Returns how the warnings begin that tell of children which may be left.
fn told_as_left(rule: &RuleReport) -> Vec<&str> {
    rule.warnings.iter().filter_map(|warning| Some(warning.split_once(" may be left")?.0)).collect()
}

#[tokio::test(start_paused = true)]
async fn a_child_that_stays_keeps_the_entry_of_its_own_parent_only() {
    let case = Case::new(&[1, 2, 3], &[4], &[(3, 1), (3, 1), (3, 2), (3, 3)]);
    case.model.put(CHILDREN, &"deep".into(), Some(deep_child(2)));
    let rule = case.sweep("    archive: {directory: /}\n    batchSize: 1\n", &[], nobody).await;
    assert_eq!((rule.status, rule.deleted_count, rule.children_deleted_count), (Status::Complete, 3, Some(4)));
    assert_eq!((case.parents_of_children(), in_journal(&case)), (vec![2], vec![2.into()]));
    assert_eq!(told_as_left(&rule), ["children of up to 1 parent"]);
}

#[tokio::test(start_paused = true)]
async fn a_child_that_changes_whenever_it_was_archived_stays_and_its_parent_stays_in_the_journal() {
    let case = Case::new(&[1, 2], &[3], &[(3, 1), (3, 1)]);
    let mut changes = 0;
    let child = |changes: i32| Some(doc! { "_id": "x", "p": 2, "n": changes });
    case.model.put(CHILDREN, &"x".into(), child(0));
    let is_changed = move |model: &Model, command: &_| {
        if target(command, "delete") == Some("d") {
            changes += 1;
            model.put(CHILDREN, &"x".into(), child(changes));
        }
    };
    let rule = case.sweep("    archive: {directory: /}\n    batchSize: 1\n", &[], is_changed).await;
    assert_eq!((rule.deleted_count, rule.children_deleted_count), (2, Some(2)));
    assert_eq!((case.parents_of_children(), in_journal(&case)), (vec![2], vec![2.into()]));
    assert_eq!(told_as_left(&rule), ["children of up to 1 parent"]);
}

#[tokio::test(start_paused = true)]
async fn an_entry_of_an_earlier_run_is_finished_as_far_as_its_parents_and_its_children_are_those_of_the_rule() {
    let case = Case::new(&[], &[2], &[(3, 1), (3, 5), (3, 8)]);
    case.add_entry(PARENTS, 1, &[CHILDREN]);
    let in_other_collections = case.add_entry(PARENTS, 5, &["app.e", CHILDREN]);
    // No parent has this `_id` in the collection of the rule, but one may have in the other.
    let of_others = case.add_entry("app.other", 8, &[CHILDREN]);
    let rule = case.sweep("", &[], nobody).await;
    assert_eq!((rule.status, rule.children_deleted_count, rule.error), (Status::Complete, Some(2), None));
    assert_eq!(case.parents_of_children(), [8]);
    let mut left = in_other_collections;
    left.insert("children", vec![doc! { "namespace": "app.e", "field": "p" }]);
    assert_eq!(case.entries(), [left, of_others]);
    let [warning] = &rule.warnings[..] else { panic!("{:?}", rule.warnings) };
    assert!(
        warning.starts_with("the journal `ops.j` names parents whose children in `app.e` (`p`) are yet to be deleted"),
        "{warning}"
    );
}

#[tokio::test(start_paused = true)]
async fn no_parent_goes_while_another_run_holds_the_lease_on_them_in_the_journal() {
    let case = Case::new(&[1], &[2], &[(3, 1)]);
    let end = DateTime::from_millis(BEGINNING + 3_600_000);
    case.model.put(JOURNAL, &PARENTS.into(), Some(doc! { "_id": PARENTS, "runId": "other", "expiresAt": end }));
    let rule = case.sweep("", &[], nobody).await;
    assert_eq!((rule.status, rule.deleted_count), (Status::Refused, 0));
    assert_eq!((case.model.documents(PARENTS).len(), case.parents_of_children()), (2, vec![1]));
}

#[tokio::test(start_paused = true)]
async fn an_entry_stays_while_a_delete_of_its_parent_that_had_no_answer_may_still_take_effect() {
    let case = Case::new(&[1], &[2], &[(3, 1)]);
    let mut deletes = 0;
    let is_changed = move |model: &Model, command: &_| {
        let is_of_parents = target(command, "delete") == Some("c");
        deletes += i32::from(is_of_parents);
        // The first delete finds nothing, and its reply is lost.
        let is_lost = is_of_parents && deletes == 1;
        if is_lost {
            model.put(PARENTS, &1.into(), Some(doc! { "_id": 1, "at": DateTime::from_millis(BEGINNING) }));
        }
        model.set_faults(Faults { cut_after: f64::from(is_lost), ..Faults::default() });
    };
    let rule = case.sweep("", &[], is_changed).await;
    assert_eq!((rule.deleted_count, rule.uncertain, case.parents_of_children()), (0, true, vec![1]));
    assert_eq!((in_journal(&case), told_as_left(&rule)), (vec![1.into()], vec!["children of up to 1 parent"]));
}
