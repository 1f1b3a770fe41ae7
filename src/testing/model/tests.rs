use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bson::{DateTime, Document, Timestamp, doc};
use parking_lot::Mutex;
use server_model::{BEGINNING, Deletion, Faults, Model, Observer, Pace};
use tokio::time::Instant;

use super::Client;
use crate::core::policy::namespace::Namespace;
use crate::shell::server::wire::codes;
use crate::shell::server::wire::error::ServerError;
use crate::shell::server::wire::find::Query;
use crate::shell::server::wire::transport::{Patience, ServerCommand, Transport};

/// The deletes that the observer has seen.
#[derive(Default)]
struct Seen {
    /// The `_id`s of the deleted documents, with their writes, the time and the client.
    deleted: Mutex<Vec<(i32, u64, i64, String)>>,
    taken_back: Mutex<BTreeSet<u64>>,
}

impl Observer for Seen {
    fn deleted(&self, deletion: &Deletion<'_>) {
        assert_eq!((deletion.namespace, deletion.comment), ("app.c", "sweeper run"));
        let id = deletion.document.get_i32("_id").unwrap();
        assert_eq!(deletion.server.document("app.c", &id.into()), None);
        // No majority may have the delete yet.
        let has_majority = deletion.server.has_majority("app.c", &|document| document == deletion.document);
        let is_there = deletion.server.documents("app.c").any(|document| document == deletion.document);
        assert!(has_majority >= is_there && !is_there && deletion.begun <= Instant::now());
        let millis = deletion.now.timestamp_millis() - BEGINNING;
        self.deleted.lock().push((id, deletion.write, millis, deletion.client.to_owned()));
    }

    fn taken_back(&self, write: u64) {
        self.taken_back.lock().insert(write);
    }
}

impl Seen {
    fn ids(&self) -> Vec<i32> {
        self.deleted.lock().iter().map(|(id, ..)| *id).collect()
    }
}

fn at(millis: i64) -> DateTime {
    DateTime::from_millis(BEGINNING + millis)
}

/// Creates a server with documents 0 to 9, whose dates are as many milliseconds after the beginning.
fn filled(seed: u64) -> (Arc<Model>, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    let model = Model::new(seed, seen.clone());
    for id in 0..10 {
        model.put("app.c", &id.into(), Some(doc! { "at": at(id.into()), "_id": id }));
    }
    model.create_index("app.c", "at", 1);
    (model, seen)
}

fn command(body: &Document) -> ServerCommand {
    ServerCommand::of("app", body, Patience::WhileRunning(Duration::from_secs(60))).unwrap()
}

fn within(limit: Duration, command: ServerCommand) -> ServerCommand {
    ServerCommand { patience: Patience::Limit(limit), ..command }
}

fn delete(until: i64) -> ServerCommand {
    let statement = doc! { "q": { "at": { "$lte": at(until) } }, "limit": 0, "hint": "at_1" };
    let concern = doc! { "w": "majority" };
    let delete = doc! { "delete": "c", "deletes": [statement], "writeConcern": concern, "comment": "sweeper run" };
    command(&delete)
}

fn ids(model: &Model) -> Vec<i32> {
    model.documents("app.c").iter().map(|document| document.get_i32("_id").unwrap()).collect()
}

/// A pace at which a delete lets others run after every document.
fn slow() -> Pace {
    Pace { latency: 1..=1, yields: 1.0, pause: 10..=10, replication: 0..=0 }
}

#[tokio::test(start_paused = true)]
async fn a_delete_is_shown_to_the_observer_document_by_document() {
    let (model, seen) = filled(1);
    let client = Client::new(&model, "one");
    let reply = client.run(delete(3)).await.unwrap();
    assert_eq!(reply, doc! { "n": 4, "electionId": &reply["electionId"], "ok": 1.0 });
    assert_eq!((seen.ids(), ids(&model)), (vec![0, 1, 2, 3], (4..10).collect()));
    assert!(seen.deleted.lock().iter().all(|(.., client)| client == "one"));
}

#[tokio::test(start_paused = true)]
async fn a_document_that_moves_away_while_a_delete_lets_others_run_survives() {
    let (model, seen) = filled(1);
    model.set_pace(slow());
    let client = Client::new(&model, "one");
    let running = tokio::spawn(async move { client.run(delete(5)).await });
    tokio::time::sleep(Duration::from_millis(15)).await;
    assert_eq!(seen.ids(), [0, 1]);
    for id in [3, 5] {
        model.put("app.c", &id.into(), Some(doc! { "_id": id, "at": at(100) }));
    }
    assert_eq!(running.await.unwrap().unwrap().get_i32("n").unwrap(), 4);
    assert_eq!((seen.ids(), ids(&model)), (vec![0, 1, 2, 4], vec![3, 5, 6, 7, 8, 9]));
}

#[tokio::test(start_paused = true)]
async fn a_fail_over_ends_commands_and_takes_back_only_what_no_majority_has() {
    let mut kept = BTreeSet::new();
    for seed in 0..20 {
        let (model, seen) = filled(seed);
        model.set_pace(slow());
        let client = Client::new(&model, "one");
        let first = client.run(delete(1)).await.unwrap();
        assert_eq!(first, doc! { "n": 2, "electionId": &first["electionId"], "ok": 1.0 });
        model.hold_replication(Duration::from_secs(3600));
        let second = {
            let client = client.clone();
            tokio::spawn(async move { client.run(delete(4)).await })
        };
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(seen.ids(), [0, 1, 2, 3, 4]);
        model.fail_over(Duration::from_secs(5));
        let failed = match second.await.unwrap() {
            Ok(reply) => ServerError::of_write_concern(&reply).unwrap(),
            Err(cause) => cause,
        };
        let expected = [codes::PRIMARY_STEPPED_DOWN, codes::INTERRUPTED_DUE_TO_REPL_STATE_CHANGE];
        assert!(expected.iter().any(|code| failed.has_code(*code)), "{failed:?}");
        let taken_back = seen.taken_back.lock().len();
        let back: BTreeSet<i32> = ids(&model).into_iter().filter(|id| *id < 5).collect();
        assert_eq!(back, (5 - i32::try_from(taken_back).unwrap()..5).collect(), "the last writes go first");
        kept.insert(taken_back);
        // The next command waits for the new primary.
        let begun = Instant::now();
        client.run(delete(4)).await.unwrap();
        assert!(begun.elapsed() >= Duration::from_secs(5));
        assert_eq!(ids(&model), (5..10).collect::<Vec<_>>());
    }
    assert_eq!(kept, (0..=3).collect());
}

#[tokio::test(start_paused = true)]
async fn a_majority_is_waited_for_until_the_time_limit_of_the_write_concern() {
    let (model, _) = filled(1);
    model.hold_replication(Duration::from_secs(3600));
    let client = Client::new(&model, "one");
    let statement = doc! { "q": {}, "limit": 1 };
    let concern = doc! { "w": "majority", "wtimeout": 500 };
    let body = doc! { "delete": "c", "deletes": [statement], "writeConcern": concern, "comment": "sweeper run" };
    let reply = client.run(command(&body)).await.unwrap();
    assert!(ServerError::of_write_concern(&reply).unwrap().has_code(codes::WRITE_CONCERN_TIMEOUT), "{reply}");
    model.heal();
    assert!(ServerError::of_write_concern(&client.run(delete(5)).await.unwrap()).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_command_that_is_late_is_carried_out_after_its_client_has_given_up() {
    let (model, seen) = filled(1);
    model.set_faults(Faults { late: 1.0, max_late: Duration::from_secs(60), ..Faults::default() });
    let client = Client::new(&model, "one");
    let limit = Duration::from_millis(5);
    let mut lost = 0;
    for until in 0..10 {
        let given_up = client.run(within(limit, delete(until))).await;
        lost += i32::from(given_up.is_err_and(|cause| cause.is_timeout() && cause.is_reply_lost()));
    }
    assert!(lost > 5 && seen.ids().len() < 5);
    tokio::time::sleep(Duration::from_secs(61)).await;
    assert_eq!((seen.ids().len(), ids(&model)), (10, vec![]));
}

#[tokio::test(start_paused = true)]
async fn replies_are_lost_after_and_before_the_command_is_carried_out() {
    let limit = Duration::from_secs(60);
    for (faults, deleted, is_reply_lost) in [
        (Faults { cut_after: 1.0, ..Faults::default() }, 4, true),
        (Faults { cut_before: 1.0, ..Faults::default() }, 0, true),
        (Faults { silent: 1.0, ..Faults::default() }, 4, true),
        (Faults { swallowed: 1.0, ..Faults::default() }, 0, true),
        (Faults { not_sent: 1.0, ..Faults::default() }, 0, false),
        (Faults { interrupted: 1.0, ..Faults::default() }, 1, true),
    ] {
        let (model, seen) = filled(1);
        model.set_faults(faults.clone());
        let cause = Client::new(&model, "one").run(within(limit, delete(3))).await.unwrap_err();
        assert_eq!((seen.ids().len(), cause.is_reply_lost()), (deleted, is_reply_lost), "{faults:?}: {cause}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_time_limit_of_the_server_ends_a_delete_between_two_documents() {
    let (model, seen) = filled(1);
    model.set_pace(slow());
    let statement = doc! { "q": {}, "limit": 0 };
    let body = doc! { "delete": "c", "deletes": [statement], "maxTimeMS": 25, "comment": "sweeper run" };
    let cause = Client::new(&model, "one").run(command(&body)).await.unwrap_err();
    assert!(cause.has_code(codes::MAX_TIME_MS_EXPIRED));
    assert_eq!(seen.ids(), [0, 1, 2]);
}

#[tokio::test(start_paused = true)]
async fn a_cursor_reads_on_until_it_dies_and_commands_that_are_not_known_are_errors() {
    let (model, _) = filled(1);
    let deployment = Client::new(&model, "one").deployment("run");
    let namespace = Namespace { database: "app".into(), collection: "c".into() };
    let query = || Query::find(&namespace, doc! { "at": { "$gte": at(2) } }).hint(Some("at_1")).batch_size(3);
    let found = query().all(&deployment).await.unwrap();
    assert_eq!(found.iter().map(|document| document.get_i32("_id").unwrap()).collect::<Vec<_>>(), (2..10).collect::<Vec<_>>());
    let mut cursor = query().cursor(&deployment).await.unwrap();
    for _ in 0..3 {
        cursor.next().await.unwrap().unwrap();
    }
    model.set_faults(Faults { lost_cursor: 1.0, ..Faults::default() });
    assert!(cursor.next().await.unwrap_err().has_code(codes::CURSOR_NOT_FOUND));
    let unknown = Client::new(&model, "one").run(command(&doc! { "mapReduce": "c" })).await;
    assert!(unknown.unwrap_err().has_code(codes::COMMAND_NOT_FOUND));
    for filter in [doc! { "at": { "$near": 1 } }, doc! { "$where": "1" }, doc! { "$expr": { "$rand": {} } }] {
        assert!(Query::find(&namespace, filter).all(&deployment).await.is_err());
    }
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_takes_the_same_course() {
    let run = async |seed: u64| {
        let (model, seen) = filled(seed);
        let faults = Faults { cut_while: 0.2, late: 0.2, silent: 0.1, refused: 0.2, interrupted: 0.1, ..Faults::default() };
        model.set_faults(Faults { max_late: Duration::from_secs(5), ..faults });
        let clients = ["one", "two"].map(|name| Client::new(&model, name));
        let runs = clients.map(|client| {
            tokio::spawn(async move {
                let mut ended = Vec::new();
                for until in 0..5 {
                    let limit = Duration::from_secs(2);
                    let result = client.run(within(limit, delete(until * 2))).await;
                    ended.push(format!("{result:?}"));
                }
                ended
            })
        });
        let [first, second] = runs;
        let ended = (first.await.unwrap(), second.await.unwrap());
        model.fail_over(Duration::ZERO);
        let seen = (seen.deleted.lock().clone(), seen.taken_back.lock().clone());
        (ended, seen, model.now())
    };
    let courses: BTreeSet<String> = {
        let mut courses = BTreeSet::new();
        for seed in 0..10 {
            let (first, again) = (run(seed).await, run(seed).await);
            assert_eq!((&first.0, &first.1), (&again.0, &again.1), "{seed}");
            courses.insert(format!("{:?}", first.1));
        }
        courses
    };
    assert!(courses.len() > 5);
}

#[tokio::test(start_paused = true)]
async fn counts_clocks_and_collections_can_be_wrong_or_gone() {
    let (model, _) = filled(1);
    model.set_pace(slow());
    let deployment = Client::new(&model, "one").deployment("run");
    let count = async |query: Document| deployment.read("app", doc! { "count": "c", "query": query }).await.unwrap();
    model.miscount("app.c", -3);
    assert_eq!(count(doc! {}).await, doc! { "n": 7, "ok": 1.0 });
    assert_eq!(count(doc! { "at": { "$gte": at(0) } }).await, doc! { "n": 10, "ok": 1.0 });
    model.set_skew(-60_000);
    let hello = deployment.read("admin", doc! { "hello": 1 }).await.unwrap();
    assert!(hello.get_datetime("localTime").unwrap().timestamp_millis() < BEGINNING - 59_000);
    let client = Client::new(&model, "one");
    let running = tokio::spawn(async move { client.run(delete(5)).await });
    tokio::time::sleep(Duration::from_millis(15)).await;
    assert_eq!(model.document("app.c", &1.into()), None);
    assert!(model.document("app.c", &2.into()).is_some());
    model.drop_collection("app.c");
    let reply = running.await.unwrap().unwrap();
    assert!(ServerError::of_write(&reply).unwrap().has_code(codes::QUERY_PLAN_KILLED), "{reply}");
}

/// Returns a query for all documents with a read concern.
fn reading(concern: Document) -> ServerCommand {
    command(&doc! { "find": "c", "limit": 20, "projection": { "_id": 1 }, "readConcern": concern })
}

async fn found(model: &Arc<Model>, concern: Document) -> Vec<i32> {
    let mut batches = Client::new(model, "reader").open(reading(concern)).await.unwrap();
    let documents = batches.next().await.unwrap().unwrap();
    documents.iter().map(|document| document.get_i32("_id").unwrap()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_read_with_majority_sees_neither_deletes_nor_writes_that_may_be_taken_back() {
    let (model, _) = filled(1);
    model.heal();
    model.hold_replication(Duration::from_secs(5));
    let begun = Instant::now();
    let client = Client::new(&model, "one");
    let deleting = tokio::spawn(async move { client.run(delete(7)).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    let write = model.put("app.c", &20.into(), Some(doc! { "_id": 20, "at": at(100) })).unwrap();
    model.put("app.c", &9.into(), Some(doc! { "_id": 9, "at": at(200) }));
    for level in ["majority", "snapshot"] {
        assert_eq!(found(&model, doc! { "level": level }).await, (0..10).collect::<Vec<_>>(), "{level}");
    }
    assert_eq!(found(&model, doc! { "level": "local" }).await, [8, 9, 20]);
    assert_eq!(found(&model, doc! {}).await, [8, 9, 20]);
    // A later time is waited for, and so is the majority that confirms the primary.
    let reply = Client::new(&model, "one").run(reading(doc! { "level": "linearizable" })).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(5));
    let time = reply.get_timestamp("operationTime").unwrap();
    deleting.await.unwrap().unwrap();
    assert_eq!(found(&model, doc! { "level": "snapshot", "afterClusterTime": time }).await, [8, 9, 20]);
    assert!(model.has_majority(write).await);
    model.hold_replication(Duration::from_secs(5));
    let begun = Instant::now();
    let later = doc! { "level": "snapshot", "afterClusterTime": Timestamp { increment: time.increment + 1, ..time } };
    model.put("app.c", &8.into(), None);
    assert_eq!(found(&model, doc! { "level": "majority" }).await, [8, 9, 20]);
    assert_eq!((found(&model, later).await, begun.elapsed().as_secs()), (vec![9, 20], 5));
}

#[tokio::test(start_paused = true)]
async fn no_majority_confirms_a_primary_that_is_cut_off_or_gone() {
    let (model, _) = filled(1);
    model.heal();
    model.hold_replication(Duration::from_secs(60));
    let write = model.put("app.c", &9.into(), None).unwrap();
    let linearizable = doc! { "find": "c", "limit": 1, "readConcern": { "level": "linearizable" }, "maxTimeMS": 1000 };
    let cause = Client::new(&model, "one").run(command(&linearizable)).await.unwrap_err();
    assert!(cause.has_code(codes::MAX_TIME_MS_EXPIRED), "{cause}");
    let client = Client::new(&model, "one");
    let reading = tokio::spawn(async move { client.run(reading(doc! { "level": "linearizable" })).await });
    let majority = {
        let model = model.clone();
        tokio::spawn(async move { model.has_majority(write).await })
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    model.fail_over(Duration::ZERO);
    let cause = reading.await.unwrap().unwrap_err();
    assert!(cause.has_code(codes::INTERRUPTED_DUE_TO_REPL_STATE_CHANGE), "{cause}");
    assert_eq!(majority.await.unwrap(), !ids(&model).contains(&9));
    let unknown = Client::new(&model, "one").run(command(&doc! { "find": "c", "readConcern": { "level": "available" } })).await;
    assert!(unknown.is_err());
}
