//! Tests of putting documents back, against scripts of replies.

use std::sync::Arc;

use bson::{Document, doc};

use super::*;
use crate::shell::server::wire::error::ServerError;
use crate::testing::scripted::{Script, ScriptedReply};

fn documents(ids: &[i32]) -> Vec<RawDocumentBuf> {
    ids.iter().map(|id| RawDocumentBuf::try_from(&doc! { "_id": *id }).unwrap()).collect()
}

fn found(ids: &[i32]) -> [ScriptedReply; 2] {
    [ScriptedReply::Batch(ids.iter().map(|id| doc! { "_id": *id }).collect()), ScriptedReply::End]
}

fn throttled() -> Document {
    doc! { "code": 16500, "errmsg": "Error=16500, RetryAfterMs=30, Details=" }
}

fn reply(n: i32, errors: Vec<(i32, Document)>) -> ScriptedReply {
    let errors = errors.into_iter().map(|(index, mut error)| {
        error.insert("index", index);
        error
    });
    ScriptedReply::Reply(doc! { "n": n, "ok": 1.0, "writeErrors": errors.collect::<Vec<_>>() })
}

/// Restores the documents against a script; returns the outcome, and the `_id`s of each insert.
async fn restored(ids: &[i32], answers: Vec<ScriptedReply>) -> (Result<Put>, Vec<Vec<i32>>) {
    let script = Script::new(found(&[]).into_iter().chain(answers));
    let namespace = Namespace { database: "app".into(), collection: "c".into() };
    let mut outcome = Put::default();
    let deployment = script.deployment();
    let mut target = RestoreTarget::unsharded(&deployment, &namespace, Present::Keep, false);
    let ended = target.put(&documents(ids), &mut outcome).await;
    let inserts = script.sent().into_iter().filter_map(|sent| {
        let documents = sent.get_array("documents").ok()?.iter();
        Some(documents.map(|document| document.as_document().unwrap().get_i32("_id").unwrap()).collect())
    });
    (ended.map(|()| outcome), inserts.collect())
}

#[tokio::test(start_paused = true)]
async fn documents_that_the_service_had_no_room_for_are_sent_again() {
    let answers = vec![
        ScriptedReply::Error(ServerError::read(&throttled())),
        reply(1, vec![(1, throttled()), (2, throttled())]),
        reply(1, vec![(1, throttled())]),
        reply(1, vec![]),
    ];
    let (put, inserts) = restored(&[1, 2, 3], answers).await;
    assert_eq!(put, Ok(Put { inserted: 3, ..Put::default() }));
    assert_eq!(inserts, [vec![1, 2, 3], vec![1, 2, 3], vec![2, 3], vec![3]]);
}

#[tokio::test(start_paused = true)]
async fn documents_of_which_nothing_is_said_are_sent_again_and_not_called_inserted() {
    let duplicate = || doc! { "code": codes::DUPLICATE_KEY, "errmsg": "E11000 duplicate key error" };
    let lost = ServerError::new(crate::shell::server::wire::error::FailureStage::Network, "reset".into());
    let mut answers = vec![reply(1, vec![(1, throttled())]), ScriptedReply::Error(lost)];
    answers.push(reply(1, vec![(0, duplicate()), (2, doc! { "code": 121, "errmsg": "Document failed validation" })]));
    answers.extend(found(&[1]));
    let (put, inserts) = restored(&[1, 2, 3], answers).await;
    let why = Some("Document failed validation (code 121)".to_owned());
    assert_eq!(put, Ok(Put { inserted: 1, same: 1, refused: 1, why, is_uncertain: true, ..Put::default() }));
    assert_eq!(inserts, [vec![1, 2, 3], vec![1, 2, 3], vec![1, 2, 3]]);
}

#[tokio::test(start_paused = true)]
async fn documents_that_the_next_primary_may_lack_are_inserted_again_before_anything_follows() {
    let unconfirmed = |code: i32| {
        let concern = doc! { "code": code, "errmsg": "Primary stepped down while waiting for replication" };
        ScriptedReply::Reply(doc! { "n": 2, "ok": 1.0, "writeConcernError": concern })
    };
    let duplicate = doc! { "code": codes::DUPLICATE_KEY, "errmsg": "E11000 duplicate key error" };
    let again = reply(1, vec![(0, duplicate)]);
    let answers = vec![unconfirmed(codes::PRIMARY_STEPPED_DOWN), again].into_iter().chain(found(&[1])).collect();
    let (put, inserts) = restored(&[1, 2], answers).await;
    assert_eq!(put, Ok(Put { inserted: 1, same: 1, is_uncertain: true, ..Put::default() }));
    assert_eq!(inserts, [vec![1, 2], vec![1, 2]]);

    let answers = (0..10).map(|_| unconfirmed(codes::SHUTDOWN_IN_PROGRESS)).collect();
    let (ended, inserts) = restored(&[1, 2], answers).await;
    assert!(ended.is_err() && inserts.len() < 10, "{ended:?}");

    // The primary stays, and has them.
    let (put, inserts) = restored(&[1, 2], vec![unconfirmed(codes::WRITE_CONCERN_TIMEOUT)]).await;
    let put = put.unwrap();
    assert!(put.inserted == 2 && put.unconfirmed.is_some_and(|why| why.contains("code 64")) && inserts.len() == 1);
}

#[tokio::test(start_paused = true)]
async fn what_was_inserted_before_an_error_stays_counted() {
    let script = Script::new(found(&[]).into_iter().chain([
        reply(1, vec![(1, throttled()), (2, throttled())]),
        ScriptedReply::Error(ServerError::reported(codes::UNAUTHORIZED, "no", "")),
    ]));
    let namespace = Namespace { database: "app".into(), collection: "c".into() };
    let mut outcome = Put::default();
    let deployment = script.deployment();
    let mut target = RestoreTarget::unsharded(&deployment, &namespace, Present::Keep, false);
    let ended = target.put(&documents(&[1, 2, 3]), &mut outcome).await;
    assert!(ended.is_err_and(|cause| cause.has_code(codes::UNAUTHORIZED)));
    assert_eq!(outcome, Put { inserted: 1, ..Put::default() });
}

#[tokio::test(start_paused = true)]
async fn a_document_that_is_gone_after_a_lost_reply_may_have_been_replaced() {
    let lost =
        || ScriptedReply::Error(ServerError::new(crate::shell::server::wire::error::FailureStage::Network, "reset".into()));
    let mut outcome = Put::default();
    for (n, is_uncertain) in [(1, false), (0, true)] {
        let there = [ScriptedReply::Batch(vec![doc! { "_id": 1, "other": true }]), ScriptedReply::End];
        let script = Script::new(there.into_iter().chain([lost(), reply(n, vec![])]).chain(found(&[])).chain([reply(1, vec![])]));
        outcome = replaced(&script).await;
        assert_eq!((outcome.replaced, outcome.is_uncertain), (u64::try_from(n).unwrap(), is_uncertain));
    }
    // It is missing now, and so inserted.
    assert_eq!(outcome, Put { inserted: 1, is_uncertain: true, ..Put::default() });
}

/// Restores a document that is there in another state, with `--replace`.
async fn replaced(script: &Arc<Script>) -> Put {
    let (deployment, namespace) = (script.deployment(), Namespace { database: "app".into(), collection: "c".into() });
    let mut outcome = Put::default();
    let mut target = RestoreTarget::unsharded(&deployment, &namespace, Present::Replace, false);
    target.put(&documents(&[1]), &mut outcome).await.unwrap();
    outcome
}

#[tokio::test(start_paused = true)]
async fn a_replacement_that_found_nothing_ends_in_one_count() {
    let other = || [ScriptedReply::Batch(vec![doc! { "_id": 1, "other": true }]), ScriptedReply::End];
    let none = || reply(0, vec![]);
    let duplicate = || reply(0, vec![(0, doc! { "code": codes::DUPLICATE_KEY, "errmsg": "E11000 duplicate key error" })]);
    let unchanged = ScriptedReply::Reply(doc! { "n": 1, "nModified": 0, "ok": 1.0 });
    let counted = |put: Put| (put.counted(), put);
    for (answers, expected) in [
        (vec![none()].into_iter().chain(found(&[1])).collect(), Put { same: 1, ..Put::default() }),
        (vec![none()].into_iter().chain(other()).chain([reply(1, vec![])]).collect(), Put { replaced: 1, ..Put::default() }),
        (
            vec![none()].into_iter().chain(found(&[])).chain([duplicate()]).chain(found(&[])).collect(),
            Put { conflicts: 1, ..Put::default() },
        ),
        (
            vec![none()].into_iter().chain(found(&[])).chain([duplicate()]).chain(other()).chain([reply(1, vec![])]).collect(),
            Put { replaced: 1, ..Put::default() },
        ),
        (vec![unchanged], Put { same: 1, ..Put::default() }),
    ] as [(Vec<ScriptedReply>, Put); 5]
    {
        assert_eq!(counted(replaced(&Script::new(other().into_iter().chain(answers))).await), (1, expected));
    }
    let again = (0..MAX_ROUNDS).flat_map(|_| [none()].into_iter().chain(other()));
    let put = replaced(&Script::new(other().into_iter().chain(again))).await;
    assert_eq!((put.counted(), put.refused), (1, 1), "{put:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reply_that_does_not_add_up_is_an_error() {
    let (put, _) = restored(&[1, 2, 3], vec![reply(2, vec![])]).await;
    assert!(put.is_err_and(|cause| cause.to_string().contains("counts 2 as inserted")));
}

#[tokio::test]
async fn a_dry_run_counts_a_document_that_comes_twice_as_a_restore_does() {
    let raw = |v: i32| RawDocumentBuf::try_from(&doc! { "_id": 1, "v": v }).unwrap();
    let namespace = Namespace { database: "app".into(), collection: "c".into() };
    for (present, is_there, expected) in [
        (Present::Keep, false, Put { inserted: 1, same: 1, different: 1, ..Put::default() }),
        (Present::Keep, true, Put { same: 2, different: 1, ..Put::default() }),
        (Present::Replace, false, Put { inserted: 1, same: 1, replaced: 1, ..Put::default() }),
        (Present::Replace, true, Put { same: 2, replaced: 1, ..Put::default() }),
    ] {
        let there = || [ScriptedReply::Batch(vec![doc! { "_id": 1, "v": 1 }; usize::from(is_there)]), ScriptedReply::End];
        let script = Script::new(there().into_iter().chain(there()));
        let deployment = script.deployment();
        let mut target = RestoreTarget::unsharded(&deployment, &namespace, present, true);
        let mut outcome = Put::default();
        target.put(&[raw(1), raw(1)], &mut outcome).await.unwrap();
        target.put(&[raw(2)], &mut outcome).await.unwrap();
        assert_eq!(outcome, expected, "{present:?} {is_there}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_takes_nothing_is_given_up() {
    let refusals = (0..100).map(|_| reply(0, vec![(0, throttled())])).collect();
    let (put, inserts) = restored(&[1], refusals).await;
    assert!(put.is_err() && inserts.len() == 21, "{put:?} {inserts:?}");
}
