//! Runs that delete orphans, while others write.

use bson::oid::ObjectId;
use bson::{Document, doc};
use server_model::Model;

use super::case::{CHILDREN, Case, PARENTS, add_child, nobody, target};
use crate::core::plan::Status;

/// Whether a command looks for the pages of the children of some parents.
fn is_of_pages(command: &Document) -> bool {
    target(command, "find") == Some("d") && command.get_document("filter").is_ok_and(|filter| filter.contains_key("$and"))
}

#[tokio::test(start_paused = true)]
async fn a_child_that_comes_when_the_orphans_of_its_parent_are_already_listed_stays() {
    let case = Case::new(&[], &[1], &[(3, 7), (3, 1)]);
    let mut is_listed = false;
    let upload = move |model: &_, command: &_| {
        if is_of_pages(command) && !std::mem::replace(&mut is_listed, true) {
            add_child(model, 0, 7);
        }
    };
    let rule = case.sweep("    orphans: true\n", &[], upload).await;
    assert_eq!((rule.status, rule.orphans_deleted_count, rule.error), (Status::Complete, Some(1), None));
    // The new one is there.
    assert_eq!(case.parents_of_children(), [1, 7]);
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_goes_on_once_its_children_were_counted_as_old_keeps_them() {
    let case = Case::new(&[], &[1], &[(3, 7), (3, 8), (3, 1)]);
    let mut looks = 0;
    let upload = move |model: &_, command: &Document| {
        // The ages of siblings: once when orphans are found, and once more before they go.
        if target(command, "aggregate") == Some("d") && command.to_string().contains("\"last\"") {
            looks += 1;
            if looks == 2 {
                add_child(model, 0, 7);
            }
        }
    };
    let rule = case.sweep("    orphans: true\n", &[], upload).await;
    assert_eq!((rule.status, rule.orphans_deleted_count, rule.error), (Status::Complete, Some(1), None));
    assert_eq!(case.parents_of_children(), [1, 7, 7]);
}

#[tokio::test(start_paused = true)]
async fn no_orphan_goes_if_so_many_parents_go_meanwhile_that_the_share_is_too_large() {
    let children = [(3, 7), (3, 7), (3, 1), (3, 1), (3, 2)];
    let case = Case::new(&[5], &[1, 2], &children);
    let keys = "    orphans: true\n    maxDeletePercent: 50\n";
    let loses_a_parent = |model: &Model, command: &_| {
        if target(command, "delete") == Some("c") {
            model.put(PARENTS, &1.into(), None);
        }
    };
    let rule = case.sweep(keys, &[], loses_a_parent).await;
    assert_eq!((rule.status, rule.deleted_count, rule.orphans_deleted_count), (Status::Failed, 1, Some(0)));
    assert!(rule.error.unwrap().contains("4 of 5 documents of `app.d` have no parent"));
    assert_eq!(case.parents_of_children(), [1, 1, 2, 7, 7]);
}

#[tokio::test(start_paused = true)]
async fn no_orphan_goes_if_the_last_parent_goes_meanwhile() {
    let case = Case::new(&[], &[1], &[(3, 7), (3, 1)]);
    let loses_the_parent = |model: &Model, command: &Document| {
        if target(command, "aggregate") == Some("d") && command.to_string().contains("\"last\"") {
            model.put(PARENTS, &1.into(), None);
        }
    };
    let rule = case.sweep("    orphans: true\n", &[], loses_the_parent).await;
    assert_eq!((rule.status, rule.orphans_deleted_count), (Status::Failed, Some(0)));
    assert!(rule.error.unwrap().contains("`app.c` has no document"));
    assert_eq!(case.parents_of_children(), [1, 7]);
}

#[tokio::test(start_paused = true)]
async fn orphans_go_within_what_the_parents_leave_of_a_limit_whichever_it_is() {
    for (keys, args) in [("    maxDeletes: 5\n", &[][..]), ("", &["--max-deletes", "5"][..])] {
        let case = Case::new(&[1, 2, 3], &[4], &[(3, 1), (3, 1), (3, 4), (3, 6), (3, 7), (3, 8), (3, 9)]);
        let rule = case.sweep(&format!("    orphans: true\n{keys}"), args, nobody).await;
        assert_eq!((rule.status, rule.deleted_count), (Status::Partial, 3), "{keys}");
        // Two of the four, besides both children of the first parent.
        assert_eq!((rule.orphans_deleted_count, rule.children_deleted_count), (Some(2), Some(4)), "{keys}");
        assert_eq!(case.parents_of_children(), [4, 8, 9], "{keys}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_child_that_names_no_parent_is_no_orphan_and_neither_is_one_whose_sibling_tells_no_time() {
    let case = Case::new(&[], &[1], &[(3, 7), (3, 8), (3, 1)]);
    case.model.put(CHILDREN, &1.into(), Some(doc! { "_id": 1, "p": 8 }));
    for byte in 0..2 {
        // Both are older than a day.
        let id = ObjectId::from_bytes([byte; 12]);
        let child = if byte == 0 {
            doc! { "_id": id, "p": null }
        } else {
            doc! { "_id": id }
        };
        case.model.put(CHILDREN, &id.into(), Some(child));
    }
    let rule = case.sweep("    orphans: true\n", &[], nobody).await;
    assert_eq!((rule.status, rule.orphans_deleted_count, rule.error), (Status::Complete, Some(1), None));
    let left = case.model.documents(CHILDREN);
    let parents: Vec<_> = left.iter().map(|child| child.get_i32("p").ok()).collect();
    assert_eq!(parents, [Some(8), Some(1), Some(8), None, None]);
}
