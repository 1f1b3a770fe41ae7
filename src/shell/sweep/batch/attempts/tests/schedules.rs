//! Random schedules of faults in simulated time: retries, pace and rate against a server that fails in every way that a reply can
//! express.

use std::collections::BTreeSet;
use std::time::Duration;

use bson::doc;
use bson::oid::ObjectId;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::base::values::raw::RawValue;
use crate::core::pace::rate::RateLimit;
use crate::core::pace::{BatchTiming, ENOUGH, Pace};
use crate::shell::server::delete::restriction::Restriction;
use crate::shell::server::delete::{self, DeleteError, Reply};
use crate::shell::server::wire::overload::Overload;
use crate::shell::sweep::batch::attempts::{Attempts, BatchResult, Step};
use crate::testing::made_up::sweep::ids_of;

/// Documents of one sweep; every seventh is a live one that was expired when the batch was made.
const DOCUMENTS: i32 = 80;

const TARGET: Duration = Duration::from_millis(200);

/// Maximum faults of one schedule, so that it ends even if the rule waits for its members as long as it takes.
const MAX_FAULTS: u32 = 60;

fn is_live(id: i32) -> bool {
    id % 7 == 3
}

/// A server that carries out deletes or not, and whose replies are true or lost.
struct Model {
    random: StdRng,
    /// Probability that a command meets a fault.
    fault_rate: f64,
    faults: u32,
    /// Whether errors are not retryable.
    fatal: bool,
    present: BTreeSet<i32>,
    /// Deleted, but not confirmed by a majority.
    unconfirmed: BTreeSet<i32>,
    /// Restored by a fail-over, and deleted by others.
    by_others: BTreeSet<i32>,
    /// The number of elections, and whether replies tell it.
    term: u8,
    tells_term: bool,
    sent: BTreeSet<i32>,
    largest: usize,
    commands: u32,
    /// The wait that the last reply asked for.
    asked_to_wait: Option<Duration>,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut random = StdRng::seed_from_u64(seed);
        let fault_rate = [0.0, 0.1, 0.4, 0.8, 1.0][random.random_range(0..5)];
        Self {
            fault_rate,
            fatal: random.random_ratio(1, 8),
            largest: if random.random_ratio(1, 6) { random.random_range(1..40) } else { usize::MAX },
            random,
            faults: 0,
            present: (0..DOCUMENTS).collect(),
            unconfirmed: BTreeSet::new(),
            by_others: BTreeSet::new(),
            term: 1,
            tells_term: seed & 1 == 0,
            sent: BTreeSet::new(),
            commands: 0,
            asked_to_wait: None,
        }
    }

    /// Deletes up to `most` expired documents of those with these `_id`s, and returns how many.
    fn delete(&mut self, ids: &[i32], most: usize) -> usize {
        let expired = |id: &&i32| self.present.contains(id) && !is_live(**id);
        let gone: Vec<i32> = ids.iter().filter(expired).take(most).copied().collect();
        self.present.retain(|id| !gone.contains(id));
        self.unconfirmed.extend(&gone);
        gone.len()
    }

    /// Changes the primary, which may restore documents whose delete no majority has confirmed.
    fn fail_over(&mut self) {
        let unconfirmed = std::mem::take(&mut self.unconfirmed);
        self.term += 1;
        if self.random.random_bool(0.5) {
            // Others may delete what is back, if the tool can learn of the fail-over.
            let (lost, back): (Vec<i32>, Vec<i32>) =
                unconfirmed.into_iter().partition(|_| self.tells_term && self.random.random_ratio(1, 5));
            self.by_others.extend(lost);
            self.present.extend(back);
        }
    }

    /// Carries a command out, and tells the election of the primary that did it.
    fn answered(&mut self, target: &Restriction) -> Reply {
        let election = ObjectId::from_bytes([self.term; 12]);
        let reply = self.command(target);
        // Only a command that failed as a whole has no count and no election.
        let is_told = self.tells_term && (reply.error.is_none() || reply.deleted > 0);
        Reply { election: is_told.then_some(election), ..reply }
    }

    fn command(&mut self, target: &Restriction) -> Reply {
        let Restriction::Ids { lists, .. } = target else { panic!("no batch of the model is a range") };
        let ids = lists[0].ids.iter().map(|id| RawValue::from(id).decoded().unwrap().as_i32().unwrap());
        let ids: Vec<i32> = ids.collect();
        self.commands += 1;
        self.asked_to_wait = None;
        self.sent.extend(&ids);
        if ids.len() > self.largest {
            return error(Some(Overload::TooLarge), true, false);
        }
        if self.faults == MAX_FAULTS || !self.random.random_bool(self.fault_rate) {
            let n = self.delete(&ids, usize::MAX);
            self.unconfirmed.clear();
            return delete::read(&doc! { "n": n as i64, "ok": 1 });
        }
        self.faults += 1;
        self.fault(&ids)
    }

    fn fault(&mut self, ids: &[i32]) -> Reply {
        let some = self.random.random_range(0..=ids.len());
        match self.random.random_range(0..10) {
            // The connection breaks before, during or after the delete.
            0 | 1 => {
                self.delete(ids, some);
                self.fail_over();
                error(None, true, true)
            }
            // No primary: nothing is done.
            2 => {
                self.fail_over();
                error(None, true, false)
            }
            3 => {
                // `n` does not count the deletes of the statement that failed.
                let n = self.delete(ids, some);
                self.delete(ids, self.largest.min(some));
                self.unconfirmed.clear();
                delete::read(
                    &doc! { "n": n as i64, "ok": 1, "writeErrors": [{ "index": 0, "code": 11602, "errmsg": "interrupted" }] },
                )
            }
            4 => {
                let n = self.delete(ids, some);
                self.unconfirmed.clear();
                let wait = self.random.random_bool(0.5).then(|| self.random.random_range(0..20_000));
                self.asked_to_wait = wait.map(Duration::from_millis);
                let text = wait.map_or("Request rate is large".to_owned(), |wait| format!("Error=16500, RetryAfterMs={wait}, "));
                delete::read(&doc! { "n": n as i64, "ok": 1, "writeErrors": [{ "index": 0, "code": 16500, "errmsg": text }] })
            }
            5 => {
                self.delete(ids, some);
                self.unconfirmed.clear();
                error(Some(Overload::TimedOut), true, true)
            }
            6 => error(Some(Overload::Unavailable), true, false),
            8 => {
                self.delete(ids, some);
                self.unconfirmed.clear();
                delete::read(
                    &doc! { "n": 0, "ok": 1, "writeErrors": [{ "index": 0, "code": 365, "errmsg": "the cache is full" }] },
                )
            }
            7 => {
                let n = self.delete(ids, usize::MAX);
                let code = [50, 64, 91, 189][self.random.random_range(0..4)];
                let reply = doc! { "n": n as i64, "ok": 1, "writeConcernError": { "code": code, "errmsg": "waiting" } };
                if !matches!(code, 50 | 64) || self.random.random_bool(0.3) {
                    self.fail_over();
                }
                delete::read(&reply)
            }
            _ if self.fatal => error(None, false, false),
            _ => error(None, true, false),
        }
    }
}

fn error(overload: Option<Overload>, retryable: bool, reply_lost: bool) -> Reply {
    let error = DeleteError { retryable, reply_lost, overload, ..DeleteError::fatal("error") };
    Reply { deleted: 0, unconfirmed: false, election: None, error: Some(error) }
}

fn batch(ids: std::ops::Range<i32>) -> Box<Restriction> {
    Box::new(ids_of(ids))
}

/// Plays one batch to its end; returns its result and the time waited.
fn play(model: &mut Model, ids: std::ops::Range<i32>, awaits_members: bool) -> (BatchResult, Duration) {
    let size = ids.len() as u32;
    let (commands, term, before) = (model.commands, model.term, model.present.clone());
    let mut attempts = Attempts::new(batch(ids.clone()), awaits_members);
    let mut waited = Duration::ZERO;
    model.sent.clear();
    loop {
        let reply = model.answered(attempts.target());
        let jitter = model.random.random_range(0.0..1.0);
        let wait = match attempts.next_step(reply, jitter) {
            Step::End => break,
            Step::Next => Duration::ZERO,
            Step::Yield(wait) => {
                assert!(model.asked_to_wait.is_none_or(|asked| wait == asked), "{wait:?} for {:?}", model.asked_to_wait);
                assert!(model.asked_to_wait.is_some() || wait >= Duration::from_millis(175), "{wait:?}");
                wait
            }
            Step::Confirm(wait) | Step::Retry(wait) => {
                assert!(wait >= Duration::from_millis(200), "{wait:?}");
                wait
            }
        };
        waited += wait;
    }
    // Each fault costs one command at most, and so does each part that a batch can be split into.
    let tries = model.commands - commands;
    assert!(tries <= MAX_FAULTS + 4 * size, "{tries} commands for {size} documents");
    assert!(waited <= Duration::from_secs(20) * tries, "{waited:?}");

    let result = attempts.end();
    let gone = before.difference(&model.present).filter(|id| !model.by_others.contains(id)).count() as u64;
    assert!(model.sent.iter().all(|id| ids.contains(id)), "outside of the batch");
    assert!(result.deleted - result.unconfirmed <= gone, "{gone} gone: {result:?}");
    if result.unconfirmed == 0 {
        assert!(result.deleted <= gone, "{gone} gone: {result:?}");
        assert!(result.uncertain || result.deleted == gone, "{gone} gone: {result:?}");
    }
    if result.error.is_none() {
        assert!(result.unconfirmed == 0 || model.term > term || !model.tells_term, "{result:?}");
        assert!(model.present.iter().all(|id| is_live(*id) || !ids.contains(id)), "{result:?}");
        assert!(ids.clone().all(|id| model.sent.contains(&id)), "not all of the batch was sent");
    }
    (result, waited)
}

/// Plays a whole sweep, in batches of the size and at the times that pace and rate allow.
fn sweep(seed: u64) {
    let mut model = Model::new(seed);
    let awaits_members = model.random.random_bool(0.3);
    let rate = model.random.random_range(10..2000);
    let mut limit = RateLimit::new(rate);
    let mut pace = Pace::new(model.random.random_range(1..50), 60, TARGET);
    let (mut now, mut asked, mut next) = (Duration::ZERO, 0, 0);
    while next < DOCUMENTS {
        now += limit.wait(now);
        let size = pace.batch_size().min(limit.batch_limit(ENOUGH, pace.gentle_size()));
        let ids = next..DOCUMENTS.min(next + size as i32);
        let documents = ids.len() as u64;
        limit.take(documents, now);
        next = ids.end;
        asked += documents;
        // Even after faults, no more is asked for than the rate allows, except for one batch and the delay of a timer.
        let max = (now + Duration::from_millis(100)).as_secs_f64() * f64::from(rate) + documents as f64 + 1.0;
        assert!(asked as f64 <= max, "{asked} documents in {now:?} at {rate} per second");

        let (result, waited) = play(&mut model, ids, awaits_members);
        let took = Duration::from_millis(model.random.random_range(1..2000));
        now += waited + took;
        let (before, latency) = (pace.batch_size(), (!result.retried).then_some(took));
        let overloaded_after = result.overloaded_after;
        pace.record(&BatchTiming { documents, latency, overloaded_after });
        // A fail-over says nothing about the speed of the server.
        assert!(!result.retried || overloaded_after.is_some() || (pace.batch_size(), pace.rest()) == (before, Duration::ZERO));
        assert!((1..=60).contains(&pace.batch_size()));
        assert!(pace.rest() <= Duration::from_secs(10));
        now += pace.rest();
        if result.error.is_some() {
            break;
        }
    }
    assert!((0..DOCUMENTS).filter(|id| is_live(*id)).all(|id| model.present.contains(&id)), "a live document is gone");
    assert!(now < Duration::from_secs(3600), "{now:?}");
}

fn sweeps(seeds: std::ops::Range<u64>) {
    for seed in seeds {
        let played = std::panic::catch_unwind(|| sweep(seed));
        assert!(played.is_ok(), "schedule {seed}");
    }
}

#[test]
fn no_schedule_of_faults_breaks_the_counts_the_waits_or_the_bounds() {
    sweeps(0..1000);
}

#[test]
#[ignore = "takes half a minute; cargo test --lib -- --ignored"]
fn none_of_nine_thousand_more_does() {
    sweeps(1000..10_000);
}

/// Sends one batch until it is given up, with the same reply to every command; returns the commands sent and the time waited.
fn tries(reply: impl Fn() -> Reply) -> (u32, Duration) {
    let mut attempts = Attempts::new(batch(0..1), false);
    let (mut tries, mut waited) = (0, Duration::ZERO);
    loop {
        tries += 1;
        match attempts.next_step(reply(), 1.0) {
            Step::End => return (tries, waited),
            Step::Next => {}
            Step::Confirm(wait) | Step::Yield(wait) | Step::Retry(wait) => waited += wait,
        }
    }
}

#[test]
fn what_stays_is_given_up_after_so_many_tries() {
    for (reply, expected, longest) in [
        (error(None, false, false), 1, 0),
        (error(None, true, true), 4, 7),
        (error(Some(Overload::Unavailable), true, false), 4, 7),
        (error(Some(Overload::TooLarge), true, false), 4, 7),
        (error(Some(Overload::Throttled { retry_after: None }), true, false), 21, 130),
        (error(Some(Overload::CacheFull), true, true), 21, 130),
    ] {
        let (tries, waited) = tries(|| reply.clone());
        assert_eq!(tries, expected, "{reply:?}");
        assert!(waited <= Duration::from_secs(longest), "{waited:?}: {reply:?}");
    }
}

#[test]
fn a_full_cache_gets_smaller_batches_after_a_wait() {
    let mut attempts = Attempts::new(batch(0..100), false);
    let full = doc! { "n": 0, "ok": 1, "writeErrors": [{ "index": 0, "code": 365, "errmsg": "the cache is full" }] };
    let mut sizes = Vec::new();
    for _ in 0..3 {
        let Step::Yield(wait) = attempts.next_step(delete::read(&full), 0.5) else { panic!("{attempts:?}") };
        assert!(wait >= Duration::from_millis(250), "{wait:?}");
        sizes.push(attempts.target().max_documents());
    }
    assert_eq!(sizes, [50, 25, 12]);
    let mut commands = 1;
    while attempts.next_step(delete::read(&doc! { "n": 1, "ok": 1 }), 0.5) == Step::Next {
        commands += 1;
    }
    let result = attempts.end();
    assert_eq!((commands, result.deleted, result.uncertain, result.error), (4, 4, true, None));
}

#[test]
fn what_a_fail_over_brings_back_is_not_counted_twice() {
    let mut attempts = Attempts::new(batch(0..10), false);
    let stepped_down = doc! { "n": 10, "ok": 1, "writeConcernError": { "code": 189, "errmsg": "stepped down" } };
    assert!(matches!(attempts.next_step(delete::read(&stepped_down), 0.0), Step::Retry(_)));
    assert_eq!(attempts.next_step(delete::read(&doc! { "n": 8, "ok": 1 }), 0.0), Step::End);
    let result = attempts.end();
    assert_eq!((result.deleted, result.unconfirmed, result.uncertain), (10, 2, true));
}

#[test]
fn what_a_fail_over_may_have_brought_back_stays_unconfirmed() {
    let told = |term: Option<u8>| term.map(|term| ObjectId::from_bytes([term; 12]));
    // The code of the first reply, the elections of both, what the second deletes, and what then is unconfirmed.
    for (code, first, second, again, unconfirmed) in [
        // Restored, and changed or deleted by others before it was asked for again.
        (189, Some(1), Some(2), 0, 7),
        (189, Some(1), Some(2), 4, 3),
        (189, Some(1), Some(2), 9, 0),
        // The primary had lost its members, and the command went to the next one without any error.
        (64, Some(1), Some(2), 0, 7),
        (64, Some(1), Some(1), 0, 0),
        (50, Some(1), Some(1), 0, 0),
        // A server that does not tell.
        (189, None, None, 0, 7),
        (64, None, None, 0, 0),
        (50, None, None, 0, 0),
    ] {
        let mut attempts = Attempts::new(batch(0..10), true);
        let waiting = doc! { "n": 7, "ok": 1, "writeConcernError": { "code": code, "errmsg": "waiting" } };
        let reply = Reply { election: told(first), ..delete::read(&waiting) };
        assert!(matches!(attempts.next_step(reply, 0.0), Step::Retry(_) | Step::Confirm(_)));
        let reply = Reply { election: told(second), ..delete::read(&doc! { "n": again, "ok": 1 }) };
        assert_eq!(attempts.next_step(reply, 0.0), Step::End);
        let result = attempts.end();
        let expected = (7.max(again as u64), unconfirmed, again > 0);
        assert_eq!((result.deleted, result.unconfirmed, result.uncertain), expected, "{code}, {first:?}, {second:?}");
    }
}

#[test]
fn an_error_before_the_first_unconfirmed_delete_is_no_fail_over_after_it() {
    for deleted in [0, 2] {
        let mut attempts = Attempts::new(batch(0..10), true);
        let before = Reply { deleted, ..error(None, true, false) };
        assert!(matches!(attempts.next_step(before, 0.0), Step::Retry(_)));
        let waiting = doc! { "n": 7, "ok": 1, "writeConcernError": { "code": 64, "errmsg": "waiting" } };
        assert!(matches!(attempts.next_step(delete::read(&waiting), 0.0), Step::Confirm(_)));
        assert_eq!(attempts.next_step(delete::read(&doc! { "n": 0, "ok": 1 }), 0.0), Step::End);
        let result = attempts.end();
        assert_eq!((result.deleted, result.unconfirmed, result.uncertain), (7 + deleted, 0, false));
    }
}

#[test]
fn the_parts_of_an_archived_batch_add_up() {
    let seconds = Duration::from_secs;
    let mut all = BatchResult { deleted: 3, unconfirmed: 1, throttled: seconds(1), paused: seconds(4), ..BatchResult::default() };
    let second = BatchResult {
        deleted: 5,
        unconfirmed: 2,
        uncertain: true,
        error: Some(DeleteError::fatal("refused")),
        retried: true,
        overloaded_after: Some(4),
        throttled: seconds(2),
        paused: seconds(5),
    };
    all.add(second.clone());
    let both = BatchResult {
        deleted: 8,
        unconfirmed: 3,
        overloaded_after: Some(7),
        throttled: seconds(3),
        paused: seconds(9),
        ..second
    };
    assert_eq!(all, both);
    // A later part changes neither the doubt nor when the service was first overloaded.
    all.add(BatchResult { deleted: 1, overloaded_after: Some(0), ..BatchResult::default() });
    assert_eq!(all, BatchResult { deleted: 9, error: None, ..both });
}
