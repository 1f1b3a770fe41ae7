use std::collections::BTreeMap;
use std::sync::Arc;

use bson::{Bson, DateTime, Document, Timestamp, doc};
use tokio::sync::Notify;

use super::*;
use crate::base::pause_file::PauseFile;
use crate::base::values::raw::RawValue;
use crate::base::watch;
use crate::core::plan::ParentKey;
use crate::core::policy::namespace::Namespace;
use crate::shell::lock::lease::{Leases, Renewals};
use crate::shell::lock::moment::{Moment, ServerTime};
use crate::shell::server::wire::codes;
use crate::shell::server::wire::error::ServerError;
use crate::testing::made_up::sweep::{self, ids_of};
use crate::testing::scripted::ScriptedReply::{Batch, End, Error, Reply, Silence};
use crate::testing::scripted::{Script, ScriptedReply};

/// A sweep under a lease that was taken just now.
struct Case {
    script: Arc<Script>,
    renewals: Renewals,
    /// Resolves once a renewal is asked for.
    wanted: Arc<Notify>,
    sweep: RuleSweep,
}

impl Case {
    fn new(answers: Vec<ScriptedReply>) -> Self {
        let script = Script::new(answers);
        let wanted = Arc::new(Notify::new());
        let renewals = Renewals::new(ServerTime { now: DateTime::from_millis(0), asked: Moment::now() }, wanted.clone());
        let namespace = Namespace { database: "app".into(), collection: "c".into() };
        let leases = Leases::new(BTreeMap::from([(namespace, renewals.lease())]));
        let sweep = sweep::sweep(&script, 100, &leases, None);
        Self { script, renewals, wanted, sweep }
    }

    async fn send(&self) -> Sent {
        send(&self.sweep, Box::new(ids_of([1])), None).await
    }

    /// Sends a batch, and calls a function once the first delete is on its way.
    async fn send_and(&self, meanwhile: impl FnOnce(&Self)) -> Sent {
        let meanwhile = async {
            while self.deletes() == 0 {
                tokio::task::yield_now().await;
            }
            meanwhile(self);
        };
        tokio::join!(self.send(), meanwhile).0
    }

    fn deletes(&self) -> usize {
        self.script.sent().iter().filter(|command| command.contains_key("delete")).count()
    }
}

fn deleted() -> ScriptedReply {
    Reply(doc! { "n": 1, "ok": 1.0 })
}

fn lost() -> ScriptedReply {
    Error(ServerError::timeout(Duration::from_secs(5)))
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_known_to_have_had_a_delete_without_an_answer() {
    let case = Case::new(vec![deleted()]);
    let sent = case.send().await;
    assert_eq!((sent.result.deleted, sent.result.uncertain, sent.out_of_lease), (1, false, false));
    assert!(case.script.sent()[0].contains_key("maxTimeMS") && !case.renewals.is_unanswered());

    let case = Case::new(vec![lost(), deleted()]);
    let sent = case.send().await;
    assert_eq!((case.deletes(), sent.result.deleted, sent.result.uncertain, sent.out_of_lease), (2, 1, true, false));
    assert!(case.renewals.is_unanswered());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_without_the_lease_and_no_answer_is_waited_for_long() {
    let case = Case::new(vec![deleted()]);
    case.renewals.lost();
    let sent = case.send().await;
    assert_eq!((case.deletes(), sent.is_sent, sent.is_cut_short, sent.out_of_lease), (0, false, false, true));
    assert!(!case.renewals.is_unanswered());

    let case = Case::new(vec![Silence]);
    let begun = Instant::now();
    let sent = case.send_and(|case| case.renewals.lost()).await;
    assert_eq!((case.deletes(), sent.is_sent, sent.is_cut_short, sent.out_of_lease), (1, true, false, true));
    assert!(sent.result.uncertain && sent.result.error.unwrap().given_up && case.renewals.is_unanswered());
    assert_eq!(begun.elapsed().as_secs(), LAST_REPLY.as_secs());

    // An error that would be tried again, were there still a lease.
    let case = Case::new(vec![lost(), deleted()]);
    let sent = case.send_and(|case| case.renewals.lost()).await;
    assert_eq!((case.deletes(), sent.out_of_lease), (1, true));
}

fn late() -> ScriptedReply {
    let message = "Failed to parse number 'sweeper: the time of this delete is over' in $convert with no onError value";
    let error = doc! { "index": 0, "code": codes::CONVERSION_FAILURE, "errmsg": message };
    Reply(doc! { "n": 0, "ok": 1.0, "writeErrors": [error] })
}

/// Returns the instant of the server's clock at which it is too late for a part of a delete.
fn too_late_at(part: &Bson) -> Option<i64> {
    match part {
        Bson::Array(parts) => match &parts[..] {
            [Bson::String(now), Bson::DateTime(at)] if now == "$$NOW" => Some(at.timestamp_millis()),
            parts => parts.iter().find_map(too_late_at),
        },
        Bson::Document(parts) => parts.values().find_map(too_late_at),
        _ => None,
    }
}

#[tokio::test(start_paused = true)]
async fn a_delete_that_came_too_late_is_sent_again_once_the_lease_was_renewed_by_a_new_reading_of_the_clock() {
    let case = Case::new(vec![late(), deleted()]);
    let stepped = ServerTime { now: DateTime::from_millis(600_000), asked: Moment::now() };
    let renews = async {
        case.wanted.notified().await;
        assert_eq!(case.deletes(), 1);
        // However long that takes.
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert_eq!(case.deletes(), 1);
        case.renewals.renewed(stepped);
    };
    let both = async { tokio::join!(case.send(), renews).0 };
    let sent = tokio::time::timeout(Duration::from_secs(60), both).await.expect("a renewal is asked for");
    assert_eq!((case.deletes(), sent.result.deleted, sent.result.error), (2, 1, None));
    let limits: Vec<i64> = case.script.sent().iter().filter_map(|command| too_late_at(&command["deletes"])).collect();
    assert!(limits[0] < 60_000 && limits[1] > 600_000, "{limits:?}");

    let case = Case::new(vec![late(), deleted()]);
    let loses = async {
        case.wanted.notified().await;
        case.renewals.lost();
    };
    let both = async { tokio::join!(case.send(), loses).0 };
    let sent = tokio::time::timeout(Duration::from_secs(60), both).await.expect("a renewal is asked for");
    assert_eq!((case.deletes(), sent.result.deleted, sent.out_of_lease), (1, 0, true));
}

#[tokio::test(start_paused = true)]
async fn a_server_that_finds_every_delete_late_is_asked_four_times_and_the_rule_fails_with_the_cause() {
    let case = Case::new(vec![late(), late(), late(), late(), deleted()]);
    let mut renewed = 0;
    let renews = async {
        loop {
            case.wanted.notified().await;
            renewed += 1;
            case.renewals.renewed(ServerTime { now: DateTime::from_millis(0), asked: Moment::now() });
        }
    };
    let sent = tokio::select! {
        sent = case.send() => sent,
        () = renews => unreachable!(),
    };
    assert_eq!((case.deletes(), renewed, sent.result.deleted), (4, 3, 0));
    let error = sent.result.error.unwrap();
    assert!(error.too_late && error.message.contains("the clock of the server was set"), "{}", error.message);
}

#[tokio::test(start_paused = true)]
async fn no_command_of_a_batch_goes_while_the_pause_file_is_there() {
    for ends in [false, true] {
        let (file, seen) = watch::channel(None);
        let mut case = Case::new(vec![lost(), deleted()]);
        case.sweep.pause = PauseFile::by(seen);
        let meanwhile = async {
            while case.deletes() == 0 {
                tokio::task::yield_now().await;
            }
            file.send_replace(Some("the pause file exists".to_owned()));
            // Longer than the wait before the retry, and shorter than the lease.
            tokio::time::sleep(Duration::from_secs(20)).await;
            assert_eq!(case.deletes(), 1);
            if ends {
                case.sweep.end();
            } else {
                file.send_replace(None);
            }
        };
        let (sent, ()) = tokio::join!(case.send(), meanwhile);
        let BatchResult { deleted, paused, .. } = sent.result;
        assert_eq!((case.deletes(), deleted, sent.is_cut_short), if ends { (1, 0, true) } else { (2, 1, false) });
        assert!((18..=20).contains(&paused.as_secs()), "{paused:?}");
    }
    let (_file, seen) = watch::channel(None);
    let mut case = Case::new(vec![deleted()]);
    case.sweep.pause = PauseFile::by(seen);
    assert_eq!(case.send().await.result, BatchResult { deleted: 1, ..BatchResult::default() });
}

#[tokio::test(start_paused = true)]
async fn what_a_delete_relies_on_is_read_again_once_the_pause_file_is_gone() {
    let look = || {
        let time = Timestamp { time: 1_000, increment: 7 };
        let confirmed = Reply(doc! { "cursor": { "firstBatch": [] }, "operationTime": time, "ok": 1.0 });
        [Reply(doc! { "localTime": DateTime::from_millis(0), "ok": 1.0 }), confirmed, Batch(Vec::new()), End]
    };
    let (file, seen) = watch::channel(Some("the pause file exists".to_owned()));
    let mut case = Case::new(look().into_iter().chain(look()).chain([deleted()]).collect());
    case.sweep.pause = PauseFile::by(seen);
    let parents = Parents { field: "p".into(), key: ParentKey::id(), keys: vec![RawValue::of(1).unwrap()] };
    let looks = || {
        let level = |command: &Document| Some(command.get_document("readConcern").ok()?.get_str("level").ok()?.to_owned());
        case.script.sent().iter().filter(|sent| level(sent).as_deref() == Some("linearizable")).count()
    };
    let removed = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!((looks(), case.deletes()), (1, 0));
        file.send_replace(None);
    };
    let (sent, ()) = tokio::join!(send(&case.sweep, Box::new(ids_of([1])), Some(&parents)), removed);
    assert_eq!((looks(), case.deletes(), sent.result.deleted), (2, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_sent_again_once_the_sweep_has_ended() {
    let case = Case::new(vec![deleted()]);
    case.sweep.end();
    let sent = case.send().await;
    assert_eq!((case.deletes(), sent.is_sent, sent.is_cut_short, sent.out_of_lease), (0, false, true, false));

    let case = Case::new(vec![lost(), deleted()]);
    let sent = case.send_and(|case| case.sweep.end()).await;
    assert_eq!((case.deletes(), sent.is_sent, sent.is_cut_short), (1, true, false));
    assert!(sent.result.uncertain && sent.result.error.is_some());

    let case = Case::new(vec![Silence]);
    let begun = Instant::now();
    let sent = case.send_and(|case| case.sweep.end()).await;
    assert!(sent.result.uncertain && sent.result.error.unwrap().given_up && case.renewals.is_unanswered());
    assert_eq!((case.deletes(), begun.elapsed().as_secs()), (1, MAX_LAST_WAIT.as_secs()));
}

#[tokio::test(start_paused = true)]
async fn a_batch_whose_second_half_is_not_sent_is_cut_short() {
    let too_long = ServerError::reported(codes::MAX_TIME_MS_EXPIRED, "operation exceeded time limit", "");
    let late = ScriptedReply::Late(Duration::from_secs(5), doc! { "n": 1, "ok": 1.0 });
    let case = Case::new(vec![Error(too_long), late, deleted()]);
    let batch = ids_of([1, 2]);
    let ends = async {
        while case.deletes() < 2 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        case.sweep.end();
    };
    let (sent, ()) = tokio::join!(send(&case.sweep, Box::new(batch), None), ends);
    assert_eq!((case.deletes(), sent.is_sent, sent.is_cut_short, sent.result.deleted), (2, true, true, 1));
    assert_eq!(sent.result.error, None);
}
