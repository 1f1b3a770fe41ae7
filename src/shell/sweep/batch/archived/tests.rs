//! Batches that are archived and deleted in parts, by a server that answers from a list.

use std::io;
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver};

use bson::{Bson, DateTime, doc};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

use super::*;
use crate::core::policy::Compression;
use crate::shell::archive::disk::{DirEntry, Disk, ReadFile, WriteFile};
use crate::shell::lock::lease::Leases;
use crate::shell::server::wire::codes;
use crate::shell::server::wire::error::ServerError;
use crate::testing::disk::SimulatedDisk;
use crate::testing::made_up::sweep;
use crate::testing::made_up::sweep::ids_of;
use crate::testing::scripted::Script;
use crate::testing::scripted::ScriptedReply::{self, Batch, End, Reply, Silence};

/// A size of which two documents make a part.
const HALF: usize = PART_BYTES / 2;

struct Case {
    script: Arc<Script>,
    sweep: RuleSweep,
}

impl Case {
    /// Creates a sweep of documents that are said to have this average size; `answers` follow those for the metadata.
    fn new(average_bytes: usize, answers: Vec<ScriptedReply>) -> Self {
        let info = doc! { "uuid": bson::Uuid::from_bytes([7; 16]) };
        let options = Batch(vec![doc! { "name": "c", "type": "collection", "info": info }]);
        let indexes = Batch(vec![doc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" }]);
        let script = Script::new([options, End, indexes, End].into_iter().chain(answers));
        let disk = Arc::new(SimulatedDisk::with_directory(Path::new("/")));
        let archive = Arc::new(Archive::on(disk, Path::new("/"), "run", DateTime::from_millis(0)));
        let archive = RuleArchive { archive, compression: Compression::Zstd, rule: "rule".into() };
        let sweep = sweep::sweep(&script, average_bytes, &Leases::default(), Some(archive));
        Self { script, sweep }
    }

    async fn run(&self, restriction: Restriction) -> (Archived, Sent) {
        self.run_of(restriction, 4).await
    }

    /// Runs a batch for which so many documents were asked.
    async fn run_of(&self, restriction: Restriction, asked: u64) -> (Archived, Sent) {
        run(&self.sweep, self.sweep.archive.as_ref().unwrap(), restriction, asked).await
    }

    /// Returns the commands that were sent after those for the metadata: their names, or what they delete.
    fn sent(&self) -> Vec<String> {
        let told = |command: &Document| match command.get("deletes").and_then(ids) {
            Some(ids) => format!("delete {ids}"),
            None => command.keys().next().unwrap().clone(),
        };
        self.script.sent().iter().skip(2).map(told).collect()
    }
}

/// Returns the list of `_id`s in a part of a filter.
fn ids(part: &Bson) -> Option<&Bson> {
    match part {
        Bson::Array(parts) => parts.iter().find_map(ids),
        Bson::Document(parts) => match parts.get_document("_id").ok().and_then(|condition| condition.get("$in")) {
            None => parts.values().find_map(ids),
            list => list,
        },
        _ => None,
    }
}

fn documents(ids: impl IntoIterator<Item = i32>, bytes: usize) -> ScriptedReply {
    let document = |id: i32| doc! { "_id": id, "at": DateTime::from_millis(id.into()), "p": "x".repeat(bytes) };
    Batch(ids.into_iter().map(document).collect())
}

fn deleted(n: i32) -> ScriptedReply {
    Reply(doc! { "n": n, "ok": 1.0 })
}

#[tokio::test]
async fn a_batch_of_large_documents_goes_in_parts_and_none_is_left_out() {
    let case = Case::new(HALF, vec![documents(1..=2, 9), End, deleted(2), documents(3..=4, 9), End, deleted(1)]);
    let (archived, sent) = case.run(ids_of(1..=4)).await;
    assert_eq!(case.sent(), ["find", "delete [1, 2]", "find", "delete [3, 4]"]);
    assert_eq!((archived.documents, sent.result.deleted, sent.result.error), (4, 3, None));
    assert!(sent.is_sent && !sent.is_cut_short && sent.latency.is_some());
}

#[tokio::test]
async fn what_an_earlier_part_deleted_counts_where_the_sweep_ends_before_the_next() {
    let case = Case::new(HALF, vec![documents(1..=2, 9), End, deleted(2), Silence]);
    let ends = async {
        while case.sent().len() < 3 {
            tokio::task::yield_now().await;
        }
        case.sweep.end();
    };
    let ((archived, sent), ()) = tokio::join!(case.run(ids_of(1..=4)), ends);
    assert_eq!(case.sent(), ["find", "delete [1, 2]", "find"]);
    assert_eq!((archived.documents, sent.result.deleted), (2, 2));
    assert!(sent.is_sent && sent.is_cut_short);
    // Before the first part, nothing was sent.
    let case = Case::new(HALF, vec![Silence]);
    case.sweep.end();
    let (archived, sent) = case.run(ids_of(1..=4)).await;
    assert_eq!((archived.documents, sent.is_sent, sent.is_cut_short), (0, false, true));
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_which_a_command_was_not_sent_any_more_is_cut_short() {
    let too_long = ServerError::reported(codes::MAX_TIME_MS_EXPIRED, "operation exceeded time limit", "");
    let late = ScriptedReply::Late(Duration::from_secs(5), doc! { "n": 1, "ok": 1.0 });
    let case = Case::new(HALF, vec![documents(1..=2, 9), End, ScriptedReply::Error(too_long), late]);
    let ends = async {
        while case.sent().len() < 3 {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        case.sweep.end();
    };
    let ((archived, sent), ()) = tokio::join!(case.run(ids_of(1..=2)), ends);
    assert_eq!(case.sent(), ["find", "delete [1, 2]", "delete [1]"]);
    assert_eq!((archived.documents, sent.result.deleted, sent.is_sent, sent.is_cut_short), (2, 1, true, true));
}

#[tokio::test]
async fn documents_that_cannot_be_compared_with_the_archive_are_counted_and_stay() {
    let deep = (0..40).fold(Bson::Null, |inner, _| doc! { "a": inner }.into());
    let found = Batch(vec![doc! { "_id": 1 }, doc! { "_id": 2, "deep": deep }, doc! { "_id": 3 }]);
    let case = Case::new(9, vec![found, End, deleted(2)]);
    let (archived, sent) = case.run(ids_of(1..=3)).await;
    assert_eq!(case.sent(), ["find", "delete [1, 3]"]);
    assert_eq!((archived.documents, archived.incomparable, sent.result.deleted), (2, 1, 2));
}

#[tokio::test]
async fn a_command_holds_as_many_documents_as_its_service_can_be_told_of() {
    for (deletes_by_id_list, in_commands) in [(true, vec![(1, 3)]), (false, vec![(2, 2), (1, 1)])] {
        let mut answers = vec![documents(1..=3, 9), End];
        answers.extend(in_commands.iter().map(|(_, documents)| deleted(*documents)));
        let mut case = Case::new(9, answers);
        case.sweep.deployment.facts.capabilities.deletes_by_id_list = deletes_by_id_list;
        // A service that takes no list of `_id`s gets the whole predicate with each document.
        case.sweep.rule.selection.predicate.insert("long", "x".repeat(5 << 20));
        let (archived, sent) = case.run(ids_of(1..=3)).await;
        assert_eq!((archived.documents, sent.result.deleted), (3, 3));
        let deletes = |command: &Document| command.get_array("deletes").ok().map(Vec::len);
        let statements: Vec<usize> = case.script.sent().iter().filter_map(deletes).collect();
        assert_eq!(statements, in_commands.iter().map(|(statements, _)| *statements).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_part_that_fails_ends_the_batch_with_its_reason() {
    let refused = Reply(doc! { "n": 1, "ok": 1.0, "writeErrors": [{ "index": 0, "code": 2, "errmsg": "bad value" }] });
    let case = Case::new(HALF, vec![documents(1..=2, 9), End, refused]);
    let (archived, sent) = case.run(ids_of(1..=4)).await;
    assert_eq!(case.sent(), ["find", "delete [1, 2]"]);
    assert_eq!((archived.documents, sent.result.deleted), (2, 1));
    assert!(sent.is_sent && sent.result.error.unwrap().message.contains("bad value"));
}

#[tokio::test]
async fn a_range_with_more_than_was_expected_goes_by_its_ids_one_by_one() {
    let found = Batch(vec![doc! { "_id": 1 }, doc! { "_id": 2 }]);
    let (whole, again) = (documents(1..=2, MAX_PART_BYTES / 2), documents(1..=2, MAX_PART_BYTES / 2));
    let (first, second) = (documents([1], MAX_PART_BYTES + 1), documents([2], 9));
    let case = Case::new(9, vec![whole, found, End, again, first, End, deleted(1), second, End, deleted(1)]);
    let range = Restriction::Range { bounds: doc! { "at": { "$lte": DateTime::from_millis(9) } }, hint: "at_1".into() };
    let (archived, sent) = case.run(range).await;
    assert_eq!(case.sent(), ["find", "find", "find", "find", "delete [1]", "find", "delete [2]"]);
    assert_eq!((archived.documents, sent.result.deleted, sent.result.error), (2, 2, None));
}

#[test]
fn a_batch_is_as_large_as_a_part_by_the_average_size() {
    let mut selection = crate::testing::made_up::planned("", 4).decision.countable().unwrap().selection.clone();
    let part = 4 << 20;
    for (average, most) in
        [(None, None), (Some(0.0), Some(part)), (Some(1.0), Some(part)), (Some(1_398_101.0), Some(3)), (Some(1e12), Some(1))]
    {
        selection.size.average_bytes = average;
        assert_eq!(batch_limit(&selection), most, "{average:?}");
    }
}

#[tokio::test]
async fn a_range_of_which_half_goes_is_deleted_along_its_index_and_others_by_id() {
    let (by_index, by_id) = (Bson::from("at_1"), Bson::from(doc! { "_id": 1 }));
    for (asked, ids, hint) in [(4, 1..=2, &by_index), (4, 1..=1, &by_id), (3, 1..=1, &by_id), (2, 1..=1, &by_index)] {
        let n = ids.clone().count();
        let case = Case::new(9, vec![documents(ids, 9), End, deleted(n.try_into().unwrap())]);
        let range = Restriction::Range { bounds: doc! { "at": { "$lte": DateTime::from_millis(9) } }, hint: "at_1".into() };
        let (archived, sent) = case.run_of(range, asked).await;
        assert_eq!((archived.documents, sent.result.deleted), (n as u64, n as u64));
        let delete = case.script.sent().pop().unwrap();
        let delete = delete.get_array("deletes").unwrap()[0].as_document().unwrap().clone();
        assert_eq!(delete.get("hint"), Some(hint), "{delete}");
    }
}

#[tokio::test]
async fn nothing_that_was_archived_goes_once_the_lease_is_over() {
    use std::collections::BTreeMap;

    use crate::shell::lock::lease::Renewals;
    use crate::shell::lock::moment::{Moment, ServerTime};

    let mut case = Case::new(HALF, vec![documents(1..=2, 9), End]);
    let renewals = Renewals::new(ServerTime { now: DateTime::from_millis(0), asked: Moment::now() }, Arc::default());
    let leases = Leases::new(BTreeMap::from([(case.sweep.rule.namespace.clone(), renewals.lease())]));
    let archive = case.sweep.archive.take().map(|archive| Arc::try_unwrap(archive).ok().unwrap());
    case.sweep = sweep::sweep(&case.script, HALF, &leases, archive);
    renewals.lost();
    let (archived, sent) = case.run(ids_of(1..=4)).await;
    assert_eq!(case.sent(), ["find"]);
    assert_eq!((archived.documents, sent.result.deleted, sent.is_sent, sent.out_of_lease), (2, 0, false, true));
}

#[tokio::test]
async fn a_range_is_read_at_once_unless_it_takes_more_than_two_parts() {
    for (bytes, finds) in [(3 << 20, 1), (5 << 20, 4)] {
        let found = Batch(vec![doc! { "_id": 1 }, doc! { "_id": 2 }]);
        let mut answers = vec![documents(1..=2, bytes)];
        if finds == 1 {
            answers.extend([End, deleted(2)]);
        } else {
            answers.extend([found, End, documents([1], bytes), End, deleted(1), documents([2], bytes), End, deleted(1)]);
        }
        let case = Case::new(bytes, answers);
        let range = Restriction::Range { bounds: doc! { "at": { "$lte": DateTime::from_millis(9) } }, hint: "at_1".into() };
        let (archived, sent) = case.run(range).await;
        assert_eq!((archived.documents, sent.result.deleted, sent.result.error), (2, 2, None), "{bytes}");
        assert_eq!(case.sent().iter().filter(|command| *command == "find").count(), finds, "{bytes}");
    }
}

#[tokio::test]
async fn documents_are_read_once_the_file_is_locked_so_that_the_later_state_comes_later() {
    let case = Case::new(HALF, vec![documents([1], 9), End, deleted(1), documents([2], 9), End, deleted(1)]);
    case.run(ids_of(1..=1)).await;
    let archive = &case.sweep.archive.as_ref().unwrap().archive;
    let file = archive.file(&case.sweep.rule.selection.namespace).unwrap();
    let of_another_batch = file.lock_owned().await;
    let unlocks = async {
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(case.sent(), ["find", "delete [1]"]);
        drop(of_another_batch);
    };
    tokio::join!(case.run(ids_of(2..=2)), unlocks);
    assert_eq!(case.sent(), ["find", "delete [1]", "find", "delete [2]"]);
}

/// A disk that says when it begins to create a directory, waits until it is let go, and then cannot create it.
struct HeldDisk {
    begins: UnboundedSender<()>,
    let_go: Mutex<Receiver<()>>,
}

impl Disk for HeldDisk {
    fn create_directory(&self, _: &Path) -> io::Result<()> {
        let _ = self.begins.send(());
        let let_go = self.let_go.lock().unwrap().recv_timeout(Duration::from_secs(20));
        Err(io::Error::other(if let_go.is_ok() { "let go" } else { "held" }))
    }

    fn below(&self, _: &Path) -> Arc<dyn Disk> {
        unreachable!()
    }

    fn probe(&self, _: &Path) -> Result<(), String> {
        unreachable!()
    }

    fn sync_directory(&self, _: &Path) -> io::Result<()> {
        unreachable!()
    }

    fn create(&self, _: &Path) -> io::Result<Box<dyn WriteFile>> {
        unreachable!()
    }

    fn publish(&self, _: &Path, _: &Path, _: &[u8]) -> io::Result<()> {
        unreachable!()
    }

    fn open(&self, _: &Path) -> io::Result<Box<dyn ReadFile>> {
        unreachable!()
    }

    fn entries(&self, _: &Path) -> io::Result<Vec<DirEntry>> {
        unreachable!()
    }
}

#[tokio::test]
async fn a_batch_that_waits_for_the_disk_leaves_its_thread_to_others() {
    let (let_go, is_let_go) = mpsc::channel();
    let (begins, mut begun) = unbounded_channel();
    let disk = Arc::new(HeldDisk { begins, let_go: Mutex::new(is_let_go) });
    let archive = Arc::new(Archive::on(disk, Path::new("/"), "run", DateTime::from_millis(0)));
    let script = Script::new([]);
    let of_rule = RuleArchive { archive: archive.clone(), compression: Compression::Zstd, rule: "rule".into() };
    let sweep = sweep::sweep(&script, HALF, &Leases::default(), Some(of_rule));
    let namespace = sweep.rule.selection.namespace.clone();
    let first = tokio::task::spawn_blocking(move || {
        archive.begin(&namespace, Compression::Zstd, "", false).map(drop).map_err(|cause| cause.to_string())
    });
    begun.recv().await.unwrap();
    let second = file(&sweep, sweep.archive.as_ref().unwrap());
    let (second, ()) = tokio::join!(tokio::time::timeout(Duration::from_secs(1), second), async { let_go.send(()).unwrap() });
    assert_eq!(first.await.unwrap(), Err("let go".to_owned()));
    assert!(!matches!(second, Ok(Ok(Some(_)))));
}
