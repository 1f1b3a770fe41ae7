//! Writers work during sweeps: documents that are rescued in time survive, all other expired ones are deleted, and each document
//! is counted once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::support::sweeper::{Case, Report, id_set};
use futures_util::future::join_all;
use mongodb::Collection;
use mongodb::bson::{DateTime, Document, doc};

const EXPIRED: i32 = 3000;
const LIVE: i32 = 300;
/// Limit of deletes for each sweep, so that several sweeps race with the writers.
const MAX_PER_RUN: u64 = 700;
const DAY: i64 = 86_400_000;

/// Returns the n-th of all expired documents in an order unrelated to their dates.
fn shuffled(n: i32) -> i32 {
    n * 1009 % EXPIRED
}

fn now() -> i64 {
    DateTime::now().timestamp_millis()
}

/// The updates of the writers in a race.
#[derive(Clone)]
struct Moves {
    /// Fields of an expired document; part of the writer's filter.
    from: fn(i32, i64) -> Document,
    /// Fields of the document once it is live.
    to: fn(i64) -> Document,
}

/// Writers and sweeps on one collection at the same time.
struct Race {
    case: Case,
    rules: String,
    begun: i64,
}

impl Race {
    async fn new(moves: &Moves, index: bool, keys: &str) -> Self {
        let case = Case::new().await;
        let begun = now();
        let expired = (0..EXPIRED).map(|id| {
            let mut document = doc! { "_id": id };
            document.extend((moves.from)(id, begun));
            document
        });
        let live = (EXPIRED..EXPIRED + LIVE).map(|id| {
            let mut document = doc! { "_id": id, "state": "done", "at": date(id, begun) };
            document.extend((moves.to)(begun));
            document
        });
        case.fill("c", expired.chain(live)).await;
        if index {
            let index = doc! { "key": { "at": 1 }, "name": "at_1" };
            let made = case.db.run_command(doc! { "createIndexes": "c", "indexes": [index] }).await;
            made.expect("an index");
        }
        let rules =
            format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, batchSize: 300, rate: 3000, concurrency: 2{keys}}}\n");
        Self { case, rules, begun }
    }

    fn collection(&self) -> Collection<Document> {
        self.case.collection("c")
    }

    /// Sweeps repeatedly until the writers are finished, and then once more. Returns the sum of all deleted counts.
    async fn sweep_until(&self, done: Arc<AtomicBool>) -> u64 {
        let mut deleted = 0;
        while !done.load(Ordering::SeqCst) {
            let limit = MAX_PER_RUN.to_string();
            let report = self.case.report(&self.rules, &["--max-deletes", &limit]).await;
            assert!(matches!(report.ran.code, Some(0 | 4)), "{report:?}");
            assert!(deleted_by(&report) <= MAX_PER_RUN, "{report:?}");
            deleted += deleted_by(&report);
        }
        assert!(deleted > 0, "the sweeps came too late for every document");
        let quiet = self.case.report(&self.rules, &[]).await;
        assert_eq!((quiet.ran.code, quiet.rule(0, "status").as_str()), (Some(0), Some("complete")), "{quiet:?}");
        deleted + deleted_by(&quiet)
    }
}

fn deleted_by(report: &Report) -> u64 {
    assert_eq!(report.rule(0, "uncertain"), false, "{report:?}");
    report.rule(0, "deletedCount").as_u64().expect("a count")
}

/// Returns dates spread over the month before the threshold.
fn date(id: i32, begun: i64) -> DateTime {
    DateTime::from_millis(begun - 40 * DAY + i64::from(id) * 700_000)
}

/// Rescues documents from the sweep, each with one atomic update that applies only if the document has not changed before.
/// Returns the `_id`s of the documents that the server has updated.
async fn rescue(c: Collection<Document>, moves: Moves, begun: i64, turns: Vec<i32>) -> BTreeSet<i32> {
    let mut rescued = BTreeSet::new();
    for n in turns {
        let id = shuffled(n);
        let mut filter = doc! { "_id": id };
        filter.extend((moves.from)(id, begun));
        let set = doc! { "$set": (moves.to)(now()) };
        if c.find_one_and_update(filter, set).await.expect("an answer").is_some() {
            rescued.insert(id);
        }
    }
    rescued
}

/// Runs three writers against the sweeps and compares survivors and counts exactly.
async fn race(moves: Moves, index: bool, keys: &str) {
    let race = Race::new(&moves, index, keys).await;
    let done = Arc::new(AtomicBool::new(false));
    let writers = (0..3).map(|writer| {
        let turns = (0..EXPIRED).filter(|n| n % 3 == writer).collect();
        tokio::spawn(rescue(race.collection(), moves.clone(), race.begun, turns))
    });
    let writers: Vec<_> = writers.collect();
    let finished = async {
        let rescued = join_all(writers).await;
        done.store(true, Ordering::SeqCst);
        rescued.into_iter().flat_map(|ids| ids.expect("a writer")).collect::<BTreeSet<i32>>()
    };
    let (rescued, deleted) = tokio::join!(finished, race.sweep_until(done.clone()));
    assert!(!rescued.is_empty(), "the writers came too late for every document");
    let survivors = rescued.iter().copied().chain(EXPIRED..EXPIRED + LIVE);
    assert_eq!(race.case.ids("c").await, id_set(survivors));
    assert_eq!(deleted, EXPIRED as u64 - rescued.len() as u64);
}

const DATES: Moves =
    Moves { from: |id, begun| doc! { "at": date(id, begun) }, to: |now| doc! { "at": DateTime::from_millis(now) } };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_whose_date_moves_survive_along_an_index() {
    race(DATES, true, "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_whose_date_moves_survive_without_an_index() {
    race(DATES, false, "").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_whose_ttl_moves_survive() {
    let moves = Moves { from: |id, begun| doc! { "at": date(id, begun), "ttl": 60 + id }, to: |_| doc! { "ttl": -1 } };
    race(moves, true, ", ttlField: ttl").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn documents_that_the_filter_no_longer_selects_survive() {
    let moves =
        Moves { from: |id, begun| doc! { "at": date(id, begun), "state": "done" }, to: |_| doc! { "state": "open again" } };
    race(moves, false, ", filter: {state: done}").await;
}

/// Inserts expired and live documents with dates all over the range; returns the `_id`s of the live ones.
async fn insert(c: Collection<Document>, begun: i64, first: i32, count: i32) -> BTreeSet<i32> {
    for n in 0..count {
        let at = if n % 2 == 0 { date(shuffled(n), begun) } else { DateTime::from_millis(now()) };
        c.insert_one(doc! { "_id": first + n, "at": at }).await.expect("an insert");
    }
    (0..count).filter(|n| n % 2 == 1).map(|n| first + n).collect()
}

/// Gives expired documents another expired date, before or behind the position of the sweep.
async fn shift(c: Collection<Document>, begun: i64) {
    for n in (0..EXPIRED).filter(|n| n % 3 == 0) {
        let id = shuffled(n);
        let elsewhere = date((id + EXPIRED / 2) % EXPIRED, begun);
        let update = doc! { "$set": { "at": elsewhere } };
        let shifted = c.update_one(doc! { "_id": id, "at": date(id, begun) }, update).await;
        shifted.expect("an answer");
    }
}

/// Deletes expired documents as another program would; returns their number.
async fn take(c: Collection<Document>) -> u64 {
    let mut taken = 0;
    for n in (0..EXPIRED).filter(|n| n % 3 == 1) {
        taken += c.delete_one(doc! { "_id": shuffled(n) }).await.expect("an answer").deleted_count;
    }
    taken
}

async fn others_write(index: bool) {
    const INSERTED: i32 = 1000;
    let race = Race::new(&DATES, index, "").await;
    let done = Arc::new(AtomicBool::new(false));
    let c = || race.collection();
    let first = EXPIRED + LIVE;
    let inserts = tokio::spawn(insert(c(), race.begun, first, INSERTED));
    let shifts = tokio::spawn(shift(c(), race.begun));
    let takes = tokio::spawn(take(c()));
    let finished = async {
        let (live, shifted, taken) = tokio::join!(inserts, shifts, takes);
        done.store(true, Ordering::SeqCst);
        shifted.expect("the task that shifts");
        (live.expect("the task that inserts"), taken.expect("the task that deletes"))
    };
    let ((live, taken), deleted) = tokio::join!(finished, race.sweep_until(done.clone()));
    assert!(taken > 0, "the other program came too late for every document");
    let survivors = live.into_iter().chain(EXPIRED..EXPIRED + LIVE);
    assert_eq!(race.case.ids("c").await, id_set(survivors));
    assert_eq!(deleted, (EXPIRED + INSERTED / 2) as u64 - taken, "each document is counted once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inserts_shifts_and_deletes_by_others_are_accounted_for_along_an_index() {
    others_write(true).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inserts_shifts_and_deletes_by_others_are_accounted_for_without_an_index() {
    others_write(false).await;
}
