//! Runs next to the load of a model's server: a gate that is closed lets nothing out, opens again, and ends with the run.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bson::{Bson, DateTime, doc};
use server_model::{Deletion, Model, Observer, Pace};
use tokio::time::{Instant, sleep};

use super::archives::SweeperDisk;
use super::sweepers::args;
use crate::base::exit;
use crate::base::watch;
use crate::commands::cli::SweepArgs;
use crate::commands::tests::simulated::{self, Surroundings};
use crate::core::plan::Status;
use crate::core::policy::parse::parse;
use crate::core::report::{Report, RuleReport};
use crate::testing::machines::Machine;
use crate::testing::model::Client;

const S: Duration = Duration::from_secs(1);
const EXPIRED: i32 = 1000;
const LIVE: usize = 5;

struct Unobserved;

impl Observer for Unobserved {
    fn deleted(&self, _deletion: &Deletion<'_>) {}
}

struct Case {
    model: Arc<Model>,
    signals: watch::Sender<Option<u8>>,
}

impl Case {
    /// Fills `app.c`, and an index on its date.
    fn new() -> Self {
        let model = Model::new(1, Arc::new(Unobserved));
        let now = model.now().timestamp_millis();
        for id in 0..EXPIRED + 5 {
            let at = if id < EXPIRED { now - 864_000_000 + i64::from(id) } else { now };
            model.put("app.c", &Bson::from(id), Some(doc! { "_id": id, "at": DateTime::from_millis(at) }));
        }
        model.create_index("app.c", "at", 1);
        Self { model, signals: watch::Sender::new(None) }
    }

    /// Lets so many percent of the cache be dirty.
    fn dirty(&self, percent: i64) {
        self.cache("tracked dirty bytes in the cache", percent);
    }

    /// Sets a figure in percent of the cache, and takes away the others.
    fn cache(&self, figure: &str, percent: i64) {
        let cache = doc! { "maximum bytes configured": 1000_i64, figure: percent * 10 };
        self.model.set_status(doc! { "wiredTiger": { "cache": cache } });
    }

    fn left(&self) -> usize {
        self.model.documents("app.c").len()
    }

    async fn sweep(&self, keys: &str, args: &SweepArgs) -> RuleReport {
        let policy =
            format!("version: 1\ncollections:\n  - {{namespace: app.c, field: at, expireAfter: 1d, batchSize: 200{keys}}}\n");
        let surroundings = Surroundings {
            run_id: "run".into(),
            policy: parse("sweeper.yaml", &policy, &|_| None, true).unwrap(),
            policies: watch::channel(None).1,
            only: Vec::new(),
            server: Arc::new(Client::new(&self.model, "sweeper")),
            disk: SweeperDisk::new(false).get().disk(),
            pause: None,
            signals: self.signals.subscribe(),
        };
        let now = Duration::from_millis(self.model.now().timestamp_millis().unsigned_abs());
        let machine = Machine::new(SystemTime::UNIX_EPOCH + now);
        let report: Report = machine.run(simulated::sweep(surroundings, args)).await.unwrap();
        report.rules[0].clone()
    }
}

fn pressure(rule: &RuleReport) -> u64 {
    rule.paused_ms.unwrap().pressure
}

#[tokio::test(start_paused = true)]
async fn a_closed_gate_lets_nothing_out_until_it_opens() {
    let case = Case::new();
    case.dirty(11);
    let opens = async {
        sleep(300 * S).await;
        assert_eq!(case.left(), EXPIRED as usize + LIVE);
        case.dirty(4);
    };
    let all = args();
    let (rule, ()) = tokio::join!(case.sweep(", maxDirty: 10", &all), opens);
    assert_eq!((rule.status, rule.deleted_count, case.left()), (Status::Complete, EXPIRED as u64, LIVE));
    assert!((299_000..302_000).contains(&pressure(&rule)), "{rule:?}");
    let unknown = "the server does not tell the fill of the cache, bytes of updates, pages evicted by clients, tickets and queues, flow control, \
                   operations of others, checkpoints";
    assert_eq!(rule.pressure_unknown.as_deref(), Some(unknown));
}

#[tokio::test(start_paused = true)]
async fn a_run_before_a_closed_gate_ends_when_it_is_asked_to() {
    let case = Case::new();
    case.dirty(11);
    let begun = Instant::now();
    let limited = SweepArgs { max_duration: Some(60 * S), ..args() };
    let rule = case.sweep(", maxDirty: 10", &limited).await;
    assert_eq!((rule.status, rule.deleted_count, case.left()), (Status::Partial, 0, EXPIRED as usize + LIVE));
    assert!((60..65).contains(&begun.elapsed().as_secs()));

    let begun = Instant::now();
    let signal = async {
        sleep(20 * S).await;
        case.signals.send_replace(Some(exit::INTERRUPTED));
    };
    let all = args();
    let (rule, ()) = tokio::join!(case.sweep(", maxDirty: 10", &all), signal);
    assert_eq!((rule.status, rule.deleted_count, case.left()), (Status::Partial, 0, EXPIRED as usize + LIVE));
    assert!((20..25).contains(&begun.elapsed().as_secs()));
}

#[tokio::test(start_paused = true)]
async fn a_gate_that_nobody_asked_for_lets_a_small_batch_pass_now_and_then() {
    let case = Case::new();
    case.dirty(30);
    let limited = SweepArgs { max_duration: Some(35 * S), ..args() };
    let rule = case.sweep("", &limited).await;
    assert_eq!((rule.status, rule.deleted_count, rule.batches), (Status::Partial, 300, 3));
    assert_eq!(case.left(), EXPIRED as usize + LIVE - 300);
}

#[tokio::test(start_paused = true)]
async fn short_commands_go_one_after_another_while_others_use_a_full_cache() {
    let mut ended = Vec::new();
    for (percent, keys) in [(74, ""), (76, ""), (76, ", maxDirty: 100")] {
        let case = Case::new();
        case.cache("bytes currently in the cache", percent);
        // A millisecond for each document, that is 200 ms for a batch.
        case.model.set_pace(Pace { latency: 0..=0, yields: 1.0, pause: 1..=1, replication: 0..=0 });
        let begun = Instant::now();
        let rule = case.sweep(keys, &args()).await;
        assert_eq!((rule.status, rule.deleted_count, case.left()), (Status::Complete, EXPIRED as u64, LIVE));
        ended.push((rule.batches, begun.elapsed()));
    }
    let [usual, spared, unwatched] = ended.try_into().unwrap();
    assert_eq!(usual, unwatched);
    assert!(spared.0 > usual.0, "{usual:?}, {spared:?}");
    // Half as many at a time, and rests as long as the commands.
    assert!(spared.1 > usual.1 * 3, "{usual:?}, {spared:?}");
}

#[tokio::test(start_paused = true)]
async fn no_gate_is_closed_where_nothing_is_known_or_nothing_is_to_be_watched() {
    for (status, keys, unknown) in [
        (doc! {}, ", maxDirty: 10", Some("all, as `serverStatus` does not tell them")),
        (doc! { "globalLock": { "currentQueue": { "total": 900 } } }, ", maxDirty: 100", None),
    ] {
        let case = Case::new();
        case.model.set_status(status);
        let rule = case.sweep(keys, &args()).await;
        assert_eq!((rule.status, rule.deleted_count, case.left()), (Status::Complete, EXPIRED as u64, LIVE));
        assert_eq!((pressure(&rule), rule.pressure_unknown.as_deref()), (0, unknown));
        assert_eq!(rule.warnings.iter().any(|warning| warning.contains("`maxDirty` had no effect")), unknown.is_some());
    }
}
