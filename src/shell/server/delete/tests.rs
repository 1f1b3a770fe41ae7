use bson::{DateTime, doc};

use super::*;
use crate::core::facts::ServerFacts;
use crate::core::flavor::Flavor;
use crate::shell::server::delete::grant::Consent;
use crate::testing::made_up::planned;
use crate::testing::made_up::sweep::ids_of;
use crate::testing::scripted::{Script, ScriptedReply};

#[tokio::test]
async fn a_delete_under_a_lease_says_by_when_it_has_to_be_done() {
    let rule = planned("", 3).decision.countable().unwrap().clone();
    let restriction = Restriction::one(RawValue::of(7).unwrap());
    let fence = Fence { begins_before: DateTime::from_millis(9_000), max_time: Some(Duration::from_secs(20)) };
    for (flavor, fence, is_fenced, max_time) in [
        (Flavor::MongoDb, Some(&fence), true, Some(20_000)),
        // `$$NOW` is refused there.
        (Flavor::DocumentDb, Some(&fence), false, Some(20_000)),
        (Flavor::CosmosRu, Some(&fence), false, None),
        (Flavor::AmazonDocumentDb, Some(&fence), false, None),
        (Flavor::MongoDb, None, false, None),
    ] {
        let script = Script::new([ScriptedReply::Reply(doc! { "n": 1, "ok": 1.0 })]);
        let mut deployment = script.deployment();
        deployment.facts.capabilities = flavor.capabilities(21);
        let grant = DeleteGrant::new(false, Consent::NotAsked).unwrap();
        let reply = delete(&deployment, &rule.selection, &restriction, &doc! {}, fence, &grant).await;
        assert_eq!(reply.deleted, 1);
        let sent = &script.sent()[0];
        let query = sent.get_array("deletes").unwrap()[0].as_document().unwrap().get_document("q").unwrap().to_string();
        let predicate = doc! { "$and": [{ "_id": 7 }, &rule.selection.predicate] }.to_string();
        assert!(query.contains(&predicate), "{query}");
        assert_eq!(query.contains("\"$$NOW\""), is_fenced, "{query}");
        assert_eq!(sent.get("maxTimeMS"), max_time.map(Bson::Int64).as_ref(), "{flavor:?}");
    }
}

#[test]
fn a_delete_that_its_lease_cuts_short_is_told_from_one_that_fails() {
    let rule = planned("", 3).decision.countable().unwrap().clone();
    // A whole command that was cut says nothing of what it deleted (seen with 6.0.5); a smaller one may be done in time.
    let cut = ServerError::reported(codes::MAX_TIME_MS_EXPIRED, "operation exceeded time limit", "");
    let error = DeleteError::of_command(&cut, &rule.selection);
    assert_eq!((error.overload, error.retryable, error.reply_lost), (Some(Overload::TimedOut), true, true));
    assert!(!error.unanswered && !error.confirmation_cut);
    let waiting = |code| {
        let concern = doc! { "code": code, "errmsg": "operation exceeded time limit" };
        read(&doc! { "n": 7, "ok": 1.0, "writeConcernError": concern })
    };
    let unconfirmed = waiting(codes::MAX_TIME_MS_EXPIRED);
    let error = unconfirmed.error.unwrap();
    assert_eq!((unconfirmed.deleted, unconfirmed.unconfirmed, error.confirmation_cut), (7, true, true));
    assert!(!error.reply_lost && error.overload.is_none() && !error.confirmation_timed_out);
    assert!(!waiting(codes::WRITE_CONCERN_TIMEOUT).error.unwrap().confirmation_cut);
    // A mongos reports so that it lost a shard, where the delete may go on.
    let of_shard = doc! { "index": 0, "code": codes::SOCKET_EXCEPTION, "errmsg": "connection reset by peer" };
    let of_shard = read(&doc! { "n": 3, "ok": 1.0, "writeErrors": [of_shard] });
    let error = of_shard.error.unwrap();
    assert_eq!((of_shard.deleted, error.unanswered, error.reply_lost), (3, true, true));
    let lost = DeleteError::of_command(&ServerError::timeout(Duration::from_secs(1)), &rule.selection);
    assert!(lost.unanswered && lost.reply_lost && lost.retryable && !lost.given_up);
    for reply in [Reply::given_up(Duration::from_secs(10)), Reply::out_of_lease()] {
        let error = reply.error.unwrap();
        assert!(error.unanswered && error.given_up && error.reply_lost && !error.retryable, "{error:?}");
    }
}

#[tokio::test]
async fn a_command_that_no_server_takes_is_not_sent_and_may_pass_in_parts() {
    let rule = planned("", 3).decision.countable().unwrap().clone();
    let script = Script::new([ScriptedReply::Reply(doc! { "n": 1, "ok": 1.0 })]);
    let (deployment, grant) = (script.deployment(), DeleteGrant::new(false, Consent::NotAsked).unwrap());
    let of_size = |bytes: usize| Restriction::one(RawValue::of("x".repeat(bytes)).unwrap());
    let around = command(&deployment, &rule.selection, &of_size(0), &doc! {}, None).unwrap().as_bytes().len();
    for (bytes, is_sent) in [(MAX_COMMAND_BYTES + 1, false), (MAX_COMMAND_BYTES, true)] {
        let reply = delete(&deployment, &rule.selection, &of_size(bytes - around), &doc! {}, None, &grant).await;
        assert_eq!((script.sent().len(), reply.deleted), (usize::from(is_sent), u64::from(is_sent)));
        assert_eq!(reply.error.and_then(|error| error.overload), (!is_sent).then_some(Overload::TooLarge));
    }
}

#[test]
fn every_statement_has_the_collation_of_its_rule_and_the_hint_that_the_service_takes() {
    let mut rule = planned("", 3).decision.countable().unwrap().clone();
    rule.selection.collation = Some(doc! { "locale": "en", "strength": 2 });
    let restriction = ids_of([1, 2]);
    for (flavor, statements, has_hint) in
        [(Flavor::MongoDb, 1, true), (Flavor::CosmosRu, 1, false), (Flavor::DocumentDb, 2, false)]
    {
        let deployment = Deployment { facts: ServerFacts::made_up(flavor, "7.0.0", 21), ..Script::new([]).deployment() };
        let command = command(&deployment, &rule.selection, &restriction, &doc! { "w": "majority" }, None).unwrap();
        let command = Document::try_from(&*command).unwrap();
        let deletes: Vec<_> = command.get_array("deletes").unwrap().iter().map(|one| one.as_document().unwrap()).collect();
        assert_eq!(deletes.len(), statements, "{flavor:?}");
        for delete in deletes {
            assert_eq!(delete.get_document("collation").ok(), rule.selection.collation.as_ref(), "{flavor:?}");
            assert_eq!((delete.contains_key("hint"), delete.get_i32("limit").unwrap()), (has_hint, 0), "{flavor:?}");
        }
        // One that fails keeps the others from being carried out only where there are no others.
        assert_eq!(command.get_bool("ordered").unwrap(), statements == 1, "{flavor:?}");
        assert_eq!(command.get_document("writeConcern").unwrap(), &doc! { "w": "majority" });
    }
}

#[test]
fn a_delete_names_the_uuid_of_the_collection_to_which_its_rule_is_bound() {
    let rule = planned("", 3).decision.countable().unwrap().clone();
    let restriction = Restriction::one(RawValue::of(7).unwrap());
    let deployment = Script::new([]).deployment();
    for (deployment, uuid) in [(deployment.bound_to(&rule), rule.selection.uuid), (deployment, None)] {
        let command = command(&deployment, &rule.selection, &restriction, &doc! {}, None).unwrap();
        let command = Document::try_from(&*command).unwrap();
        assert_eq!(command.get("collectionUUID"), uuid.map(Bson::from).as_ref());
    }
}

#[test]
fn n_counts_in_every_reply() {
    let plain = read(&doc! { "n": 3, "ok": 1.0 });
    assert_eq!(plain, Reply { deleted: 3, unconfirmed: false, election: None, error: None });
    let election = ObjectId::from_bytes([7; 12]);
    assert_eq!(read(&doc! { "n": 3, "electionId": election, "ok": 1.0 }).election, Some(election));
    for unclear in [doc! { "ok": 1.0 }, doc! { "n": "3", "ok": 1.0 }] {
        let reply = read(&unclear);
        let error = reply.error.unwrap();
        assert!(reply.deleted == 0 && error.reply_lost && !error.retryable, "{error:?}");
        assert!(error.message.contains("does not say how much was deleted"), "{error:?}");
    }
    let half = read(&doc! { "n": 2.0, "ok": 1.0, "writeErrors": [{ "index": 0, "code": 189, "errmsg": "stepped down" }] });
    assert_eq!(half.deleted, 2);
    let error = half.error.unwrap();
    assert_eq!((error.message.as_str(), error.retryable, error.reply_lost), ("stepped down (code 189)", true, true));
    let several = [(9, "cannot be parsed"), (16_777_220, "could not serialize"), (2, "bad value"), (16_908_292, "deadlock")];
    for (skipped, message, retryable) in
        [(0, "cannot be parsed (code 9)", false), (1, "bad value (code 2)", false), (3, "deadlock (SQLSTATE 40P01)", true)]
    {
        let errors = several[skipped..].iter().map(|(code, why)| doc! { "index": 0, "code": *code, "errmsg": *why });
        let reply = read(&doc! { "n": 7, "ok": 1.0, "writeErrors": errors.collect::<Vec<_>>() });
        let error = reply.error.unwrap();
        assert_eq!((reply.deleted, error.message.as_str(), error.retryable), (7, message, retryable));
    }
    let refused = read(&doc! { "n": 0, "ok": 1.0, "writeErrors": [{ "index": 0, "code": 10107, "errmsg": "not primary" }] });
    assert!(!refused.error.unwrap().reply_lost);
    let unconfirmed = read(
        &doc! { "n": 7_i64, "ok": 1.0, "writeConcernError": { "code": 64, "codeName": "WriteConcernTimeout", "errmsg": "waiting" } },
    );
    assert_eq!((unconfirmed.deleted, unconfirmed.unconfirmed, half.unconfirmed), (7, true, false));
    let error = unconfirmed.error.unwrap();
    assert!(error.message.contains("WriteConcernTimeout") && !error.retryable && error.confirmation_timed_out, "{error:?}");
}

#[test]
fn a_command_that_no_server_takes_may_go_in_parts_and_one_without_room_is_not_counted() {
    let error = DeleteError::too_large(MAX_COMMAND_BYTES + 1);
    assert_eq!((error.overload, error.retryable, error.reply_lost), (Some(Overload::TooLarge), false, false));
    assert_eq!(error.message, "a delete command of 16.00 MiB is too large, 16.00 MiB are allowed");
    let rule = planned("", 3).decision.countable().unwrap().clone();
    let of = |code, message: &str| DeleteError::of_command(&ServerError::reported(code, message, ""), &rule.selection);
    let statement = |code, message: &str| DeleteError::of_statement(&ServerError::reported(code, message, ""));
    for (code, message, retryable, reply_lost) in [
        (189, "stepped down", true, true),
        (codes::BAD_VALUE, "bad value", false, true),
        (codes::MAX_TIME_MS_EXPIRED, "operation exceeded time limit", true, true),
        (16_500, "Request rate is large", true, false),
    ] {
        let error = statement(code, message);
        assert_eq!((error.retryable, error.reply_lost, error.unanswered), (retryable, reply_lost, false), "{message}");
    }
    let late = "Failed to parse number 'sweeper: the time of this delete is over' in $convert with no onError value";
    assert!(of(codes::CONVERSION_FAILURE, late).too_late);
    for (code, message, uncounted) in
        [(16_500, "Request rate is large", true), (50, "Request timed out.", false), (codes::UNAUTHORIZED, "no", false)]
    {
        assert_eq!((of(code, message).uncounted, of(code, message).too_late), (uncounted, false), "{code}");
    }
}
