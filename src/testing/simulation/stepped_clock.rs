//! Runs during which the server's clock is set forward or back.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bson::{DateTime, Document, doc};
use server_model::{BEGINNING, Deletion, Model, Observer};

use super::sweepers::args;
use crate::base::watch;
use crate::commands::tests::simulated::{Surroundings, sweep};
use crate::core::plan::Status;
use crate::core::policy::parse::parse;
use crate::core::report::Report;
use crate::testing::disk::SimulatedDisk;
use crate::testing::machines::Machine;
use crate::testing::model::Client;

const MINUTE: i64 = 60_000;
const DAY: i64 = 24 * 60 * MINUTE;

/// The steps of the clock: minutes and days, forward and back.
const STEPS: [i64; 4] = [10 * MINUTE, 2 * DAY, -10 * MINUTE, -2 * DAY];

struct Nobody;

impl Observer for Nobody {
    fn deleted(&self, _: &Deletion<'_>) {}
}

/// Returns a server with 100 expired documents in `app.c`, 10 that have not expired, and three children of each in `app.lines`.
fn server() -> Arc<Model> {
    let model = Model::new(1, Arc::new(Nobody));
    model.create_index("app.c", "at", 1);
    model.create_index("app.lines", "order", 1);
    for id in 0..110 {
        let at = DateTime::from_millis(if id < 100 { BEGINNING - 3 * DAY } else { BEGINNING });
        model.put("app.c", &id.into(), Some(doc! { "_id": id, "at": at, "tenant": id % 10 }));
        for line in 0..3 {
            model.put("app.lines", &(id * 10 + line).into(), Some(doc! { "_id": id * 10 + line, "order": id }));
        }
    }
    model.put("legal.holds", &1.into(), Some(doc! { "_id": 1, "tenant": 7 }));
    model.heal();
    model
}

/// Begins a run that deletes some 20 documents in a second.
fn begin(model: &Arc<Model>, run: &str, lines: &str) -> impl Future<Output = Report> + use<> {
    begin_on(&machine(model), model, run, lines)
}

/// Returns a machine with the clock of the server.
fn machine(model: &Model) -> Arc<Machine> {
    let now = model.now().timestamp_millis().unsigned_abs();
    Machine::new(SystemTime::UNIX_EPOCH + Duration::from_millis(now))
}

fn begin_on(machine: &Arc<Machine>, model: &Arc<Model>, run: &str, lines: &str) -> impl Future<Output = Report> + use<> {
    let text = format!(
        "version: 1\n{lines}    namespace: app.c\n    field: at\n    expireAfter: 1d\n    batchSize: 5\n    rate: 20\n    maxDeletePercent: 100\n"
    );
    let machine = machine.clone();
    let surroundings = Surroundings {
        run_id: run.to_owned(),
        policy: parse("sweeper.yaml", &text, &|_| None, true).unwrap(),
        policies: watch::channel(None).1,
        only: Vec::new(),
        server: Arc::new(Client::new(model, run)),
        disk: Arc::new(SimulatedDisk::with_directory(Path::new("/"))),
        pause: None,
        signals: watch::channel(None).1,
    };
    async move { machine.run(sweep(surroundings, &args())).await.unwrap() }
}

/// Returns the `_id`s of a collection.
fn ids(model: &Model, namespace: &str) -> Vec<i32> {
    let mut ids: Vec<i32> =
        model.documents(namespace).iter().map(|document: &Document| document.get_i32("_id").unwrap()).collect();
    ids.sort_unstable();
    ids
}

/// Waits until a run is in the middle of its deletes.
async fn until_deleting(model: &Model) {
    while ids(model, "app.c").len() > 90 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

const LOCK: &str = "lock: {collection: ops.locks}\ncollections:\n  -\n";
const HOLDS: &str = "collections:\n  - holds: {collection: legal.holds, key: tenant}\n";
const CHILDREN: &str = "journal: {collection: ops.journal}\ncollections:\n  - children: [{namespace: app.lines, field: order}]\n";

#[tokio::test(start_paused = true)]
async fn a_rule_goes_on_when_the_clock_of_the_server_is_set() {
    for lines in [LOCK, HOLDS, CHILDREN] {
        for step in STEPS {
            let model = server();
            let steps = async {
                until_deleting(&model).await;
                model.set_skew(step);
            };
            let (report, ()) = tokio::join!(begin(&model, "run", lines), steps);
            let rule = &report.rules[0];
            assert_eq!((rule.status, rule.error.as_deref()), (Status::Complete, None), "{lines}{step}");
            let living = |id: &i32| *id >= 100 || lines == HOLDS && id % 10 == 7;
            let expected: Vec<i32> = (0..110).filter(living).collect();
            assert_eq!(ids(&model, "app.c"), expected, "{lines}{step}");
            let has_parent = |line: &i32| lines != CHILDREN || expected.contains(&(line / 10));
            let lines_left: Vec<i32> =
                (0..110).flat_map(|id| (0..3).map(move |line| id * 10 + line)).filter(has_parent).collect();
            assert_eq!(ids(&model, "app.lines"), lines_left, "{lines}{step}");
            // Its lease is free at once, whatever the clock shows.
            let next = begin(&model, "next", lines).await;
            assert_eq!(next.rules[0].status, Status::Complete, "{lines}{step}: {:?}", next.rules[0].error);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_was_not_given_back_lasts_until_the_clock_that_was_set_back_shows_its_end() {
    let model = server();
    let machine = machine(&model);
    let killed = tokio::time::timeout(Duration::from_secs(2), begin_on(&machine, &model, "killed", LOCK)).await;
    assert!(killed.is_err());
    machine.kill();
    model.set_skew(-10 * MINUTE);
    let refused = begin(&model, "refused", LOCK).await;
    assert_eq!((refused.rules[0].status, refused.rules[0].deleted_count), (Status::Refused, 0));
    tokio::time::sleep(Duration::from_secs(11 * 60)).await;
    let report = begin(&model, "later", LOCK).await;
    assert_eq!(report.rules[0].status, Status::Complete, "{:?}", report.rules[0].error);
    assert_eq!(ids(&model, "app.c"), (100..110).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn a_rule_whose_lease_another_run_took_when_the_clock_was_set_forward_is_over() {
    let model = server();
    let other = async {
        until_deleting(&model).await;
        // The end of the lease is past, and the other run is first.
        model.set_skew(10 * MINUTE);
        let mut lock = model.documents("ops.locks").remove(0);
        lock.insert("runId", "other");
        model.put("ops.locks", &lock["_id"].clone(), Some(lock));
        ids(&model, "app.c")
    };
    let (report, left) = tokio::join!(begin(&model, "run", LOCK), other);
    let rule = &report.rules[0];
    assert_eq!((rule.status, ids(&model, "app.c")), (Status::Failed, left));
    assert!(rule.error.as_deref().is_some_and(|why| why.contains("another run has it")), "{:?}", rule.error);
}
