//! Trouble that passes, in every command that any subcommand sends: a cut connection, a step-down, a lost reply on a connection
//! that stays open.
//!
//! A run without a fault shows which commands a subcommand sends. In further runs each kind of them meets a fault: the run ends
//! by itself, says what it would have said otherwise, and leaves the same documents.

use std::collections::BTreeSet;
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use mongodb::bson::{DateTime, doc};
use serde_json::Value;

use crate::support::archives::{archive, directory};
use crate::support::faults::{end, send, signal, start};
use crate::support::pool::Alone;
use crate::support::proxy::fault::Fault;
use crate::support::proxy::{Proxy, Service};
use crate::support::replica_set::ReplicaSet;
use crate::support::sweeper::{Case, Ran, run, sweeper};

/// A run that takes longer hangs.
const MAX_TIME: Duration = Duration::from_secs(900);

/// A run that is to end takes longer only if it waits for a reply after all.
const MAX_END: Duration = Duration::from_secs(180);

/// Runs at the same time, most of which wait.
const AT_ONCE: usize = 8;

/// Shortens the waits for lost replies: all commands but those on leases, the lag and the history. A server that many tests use
/// at the same time mostly answers within this time. The questions at the end of a run have five seconds, and are asked a second
/// time within these.
const LIMITS: &str = "&socketTimeoutMS=2000&connectTimeoutMS=6000&serverSelectionTimeoutMS=15000";

/// An instant in the past, so that the reports of all runs are the same.
const AS_OF: [&str; 2] = ["--as-of", "2020-06-01T00:00:00Z"];

/// A rule for each way to find documents: a cursor under `maxDeletes`, a scan, a range of the index that is archived, a pattern.
const RULES: &str = "  - {name: c, namespace: DB.c, field: at, expireAfter: 1d, batchSize: 5, maxDeletes: 12, maxLag: 10s}
  - {name: d, namespace: DB.d, field: at, expireAfter: 1d, ttlField: ttl}
  - {name: e, namespace: DB.e, field: at, expireAfter: 1d, batchSize: 6, maxDeletePercent: 95, archive: {directory: ARCHIVES}}
  - {name: all, namespace: 'DB*.f*', field: at, expireAfter: 1d, filter: {$or: [{x: 1}, {y: 1}]}}
run: {concurrency: 1}
lock: {collection: DB.locks}
history: {collection: DB.runs}
";

/// The collections whose documents count.
const COLLECTIONS: [&str; 4] = ["c", "d", "e", "f"];

#[derive(Debug, Clone, Copy, PartialEq)]
enum Subcommand {
    Sweep,
    DryRun,
    Audit,
    Check,
    Import,
    Diff,
    Apply,
    History,
    Restore,
}

impl Subcommand {
    /// Whether it changes documents or indexes, so that each run needs collections of its own.
    fn writes(self) -> bool {
        matches!(self, Self::Sweep | Self::Apply | Self::Restore)
    }
}

/// The places and commands of one run.
struct Stage {
    case: Case,
    proxy: Proxy,
}

impl Stage {
    /// Prepares the collections for a run with these limits in its connection string.
    async fn new(server: &ReplicaSet, name: &str, subcommand: Subcommand, limits: &str) -> Self {
        let member = &server.members[0];
        let case = Case::on(member, name).await;
        for name in COLLECTIONS {
            // Every document has a date of its own, so that the order is the same each time.
            let dated = (0..30_i32).map(|id| {
                let year = if id < 20 { "2020" } else { "2100" };
                let at = DateTime::parse_rfc3339_str(format!("{year}-01-{:02}T00:00:00Z", id + 1)).unwrap();
                doc! { "_id": id, "at": at, "x": 1, "ttl": "none" }
            });
            case.fill(name, dated).await;
        }
        for (name, seconds) in [("c", 172_800), ("e", 86_400)] {
            let index = doc! { "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": seconds };
            case.db.run_command(doc! { "createIndexes": name, "indexes": [index] }).await.unwrap();
        }
        let stage = Self { proxy: Proxy::start(member.port, Service::Member).await, case };
        if matches!(subcommand, Subcommand::History | Subcommand::Restore) {
            let ran = run(stage.command(Subcommand::Sweep)).await;
            assert_eq!(ran.code, Some(4), "{ran:?}");
        }
        stage.behind_proxy(limits)
    }

    /// Prepares a further run, in the same collections if the subcommand only reads, and in new ones if it writes.
    async fn again(&self, server: &ReplicaSet, name: &str, subcommand: Subcommand, limits: &str) -> Self {
        if subcommand.writes() {
            return Self::new(server, name, subcommand, limits).await;
        }
        let member = &server.members[0];
        let case = Case::on(member, self.case.db.name()).await;
        Self { proxy: Proxy::start(member.port, Service::Member).await, case }.behind_proxy(limits)
    }

    fn behind_proxy(mut self, limits: &str) -> Self {
        self.case.uri = format!("{}{limits}", self.proxy.uri());
        self
    }

    fn command(&self, subcommand: Subcommand) -> Command {
        let Self { case, .. } = self;
        let name = case.db.name();
        let archives = directory(case);
        let rules = RULES.replace("DB*", &format!("{name}*")).replace("ARCHIVES", &archives.display().to_string());
        let args: &[&str] = match subcommand {
            Subcommand::Sweep => &["sweep", AS_OF[0], AS_OF[1]],
            Subcommand::DryRun => &["sweep", "--dry-run", AS_OF[0], AS_OF[1]],
            Subcommand::Audit => &["audit", AS_OF[0], AS_OF[1]],
            Subcommand::Check => &["check", "--connect"],
            Subcommand::Diff => &["native", "diff"],
            Subcommand::Apply => &["native", "apply", "--yes"],
            Subcommand::History => &["history"],
            Subcommand::Import => return sweeper(&["import", "--only", &format!("{name}.*"), "--uri", &case.uri]),
            Subcommand::Restore => {
                let mut command = sweeper(&["restore", "--format", "json", "--uri", &case.uri]);
                command.arg(archive(&archives));
                return command;
            }
        };
        case.command(&rules, &[args, &["--format", "json"]].concat())
    }

    /// Waits for the end of a run.
    async fn ended(&self, child: Child, most: Duration, context: &str) -> Ran {
        let id = child.id();
        tokio::select! {
            ran = end(child) => ran,
            () = tokio::time::sleep(most) => {
                send(id, "KILL");
                panic!("{context}: the run hangs; its last commands: {:?}", self.kinds().iter().rev().take(3).collect::<Vec<_>>());
            }
        }
    }

    /// Runs the subcommand, and returns what it said and left.
    async fn outcome(&self, subcommand: Subcommand, context: &str) -> Outcome {
        let ran = self.ended(start(self.command(subcommand)), MAX_TIME, context).await;
        let mut left = Vec::new();
        for name in COLLECTIONS {
            let indexes = self.case.db.run_command(doc! { "listIndexes": name }).await.unwrap();
            let indexes = indexes.get_document("cursor").unwrap().get_array("firstBatch").unwrap().clone();
            left.push(format!("{name}: {:?} {indexes:?}", self.case.ids(name).await));
        }
        left.push(format!("runs: {}", self.case.collection("runs").count_documents(doc! {}).await.unwrap()));
        Outcome { said: self.said(subcommand, &ran), left, ran }
    }

    /// Returns what a run said, without names and times that differ from run to run.
    fn said(&self, subcommand: Subcommand, ran: &Ran) -> Vec<String> {
        let text = ran.stdout.replace(self.case.db.name(), "DB").replace(&self.case.dir.path().display().to_string(), "DIR");
        if subcommand == Subcommand::Import {
            return text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
        }
        let mut json: Value = serde_json::from_str(&text).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
        drop_volatile(&mut json);
        serde_json::to_string_pretty(&json).unwrap().lines().map(str::to_owned).collect()
    }

    fn kinds(&self) -> Vec<String> {
        self.proxy.requests().into_iter().map(|request| request.kind).collect()
    }
}

struct Outcome {
    said: Vec<String>,
    /// The documents and indexes of each collection.
    left: Vec<String>,
    ran: Ran,
}

impl Outcome {
    /// Returns what another outcome has in another way.
    fn differences(&self, other: &Self) -> Vec<String> {
        let lines = |outcome: &Self| -> Vec<String> {
            let code = format!("exit code {:?}", outcome.ran.code);
            [&[code][..], &outcome.said, &outcome.left].concat()
        };
        let (these, those) = (lines(self), lines(other));
        let missing = those.iter().filter(|line| !these.contains(line)).map(|line| format!("- {line}"));
        let added = these.iter().filter(|line| !those.contains(line)).map(|line| format!("+ {line}"));
        missing.chain(added).collect()
    }
}

/// Removes the values that differ from run to run, and those that a lost reply makes a lower bound.
fn drop_volatile(json: &mut Value) {
    #[rustfmt::skip]
    const VOLATILE: [&str; 22] = [
        "archive", "asOf", "batches", "behindSeconds", "deletedCount", "deletedPerSecond", "durationMs", "insertedCount", "pausedMs", "pid", "policy", "predicate", "pressureUnknown",
        "remainingCount", "runId", "sameCount", "server", "startedAt", "threshold", "uncertain", "unconfirmedCount", "warnings",
    ];
    // These depend on the length of a namespace, on the time and on what else the server does, but are known or not.
    const CHANGES: [&str; 6] =
        ["compactBytes", "oplogBytes", "oplogBytesPerDocument", "oplogWindowAfterSeconds", "oplogWindowSeconds", "reusableBytes"];
    match json {
        Value::Object(fields) => {
            let changing = fields.iter_mut().filter(|(name, value)| CHANGES.contains(&name.as_str()) && !value.is_null());
            changing.for_each(|(_, value)| *value = "known".into());
            fields.retain(|name, _| !VOLATILE.contains(&name.as_str()));
            fields.values_mut().for_each(drop_volatile);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_volatile),
        _ => {}
    }
}

fn faults() -> [(&'static str, Fault); 4] {
    let stepped_down = doc! { "ok": 0.0, "errmsg": "not primary", "code": 10107, "codeName": "NotWritablePrimary" };
    [
        ("cut before it ran", Fault::Close { done: false }),
        ("cut after it ran", Fault::Close { done: true }),
        ("a step-down", Fault::Answer { reply: stepped_down, done: false }),
        ("a lost reply", Fault::Silence),
    ]
}

/// The command of each kind that meets a fault.
#[derive(Debug, Clone, Copy)]
enum Which {
    First,
    Last,
}

async fn every_fault_in_every_command_of(subcommands: &[Subcommand], expected: &[&str]) {
    let server = Alone::<ReplicaSet>::take().await;
    let mut runs = Vec::new();
    let mut seen = BTreeSet::new();
    for subcommand in subcommands {
        let stage = Arc::new(Stage::new(&server, &format!("{subcommand:?}-plain"), *subcommand, "").await);
        let plain = Arc::new(stage.outcome(*subcommand, "without a fault").await);
        assert!(matches!(plain.ran.code, Some(0 | 4 | 5)), "{subcommand:?}: {:?}", plain.ran);
        let kinds: Vec<String> = stage.kinds().into_iter().filter(|kind| !kind.ends_with("of a monitor")).collect();
        seen.extend(kinds.iter().cloned());
        for (name, fault) in faults() {
            for which in [Which::First, Which::Last] {
                runs.push((*subcommand, which, name, fault.clone(), kinds.clone(), stage.clone(), plain.clone()));
            }
        }
    }
    let missing: Vec<_> = expected.iter().filter(|kind| !seen.contains(**kind)).collect();
    assert!(missing.is_empty(), "{missing:?} of {seen:?}");
    let troubled =
        stream::iter(runs.into_iter().enumerate()).map(async |(index, (subcommand, which, name, fault, kinds, first, plain))| {
            let context = format!("{subcommand:?}, {which:?}, {name}");
            let limits = if matches!(fault, Fault::Silence) { LIMITS } else { "" };
            let stage = first.again(&server, &format!("{subcommand:?}{index}x"), subcommand, limits).await;
            for kind in kinds.iter().collect::<BTreeSet<_>>() {
                let number = match which {
                    Which::First => 0,
                    Which::Last => kinds.iter().filter(|other| *other == kind).count() - 1,
                };
                stage.proxy.faults().once(kind, number, fault.clone());
            }
            let troubled = stage.outcome(subcommand, &context).await;
            let mut wrong = troubled.differences(&plain);
            // The driver decides how many connections it opens, and when sessions and cursors end. A lease under which a delete
            // had no answer is not given back.
            let is_left = troubled.ran.stderr.contains("is left to expire");
            let may_be_missing = |kind: &str| {
                ["endSessions", "killCursors", "isMaster of a handshake"].iter().any(|name| kind.starts_with(name))
                    || is_left && kind.starts_with("update locks")
            };
            let outstanding = stage.proxy.faults().outstanding().into_iter();
            wrong.extend(outstanding.filter(|kind| !may_be_missing(kind)).map(|kind| format!("never came: {kind}")));
            (!wrong.is_empty()).then(|| format!("{context}:\n{}\n{}", wrong.join("\n"), troubled.ran.stderr))
        });
    let failures: Vec<String> = troubled.buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await;
    assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n\n"));
}

#[tokio::test]
async fn a_sweep_survives_trouble_in_any_command() {
    let expected = [
        "buildInfo",
        "hello",
        "listDatabases",
        "listCollections",
        "listIndexes c",
        "count c",
        "collStats c",
        "replSetGetConfig",
        "replSetGetStatus",
        "find c",
        "getMore c",
        "find e",
        "update locks",
        "delete c",
        "delete e",
        "update runs",
        "endSessions",
    ];
    every_fault_in_every_command_of(&[Subcommand::Sweep], &expected[..]).await;
}

#[tokio::test]
async fn looking_survives_trouble_in_any_command() {
    use Subcommand::{Audit, Check, Diff, DryRun, History, Import};
    let expected = ["aggregate c", "connectionStatus", "explain find", "getParameter", "find runs", "listDatabases"];
    every_fault_in_every_command_of(&[DryRun, Audit, Check, Import, Diff, History], &expected).await;
}

#[tokio::test]
async fn changing_survives_trouble_in_any_command() {
    let expected = ["createIndexes f", "collMod c", "insert e"];
    every_fault_in_every_command_of(&[Subcommand::Apply, Subcommand::Restore], &expected).await;
}

/// The way to end a run that waits for a reply.
#[derive(Debug, Clone, Copy)]
enum Ending {
    Signal,
    MaxDuration,
}

/// Runs a subcommand for each kind of its commands, and ends it while it waits for a reply that never comes, as long as usual.
async fn every_wait_ends(subcommands: &[Subcommand], ending: Ending) {
    let server = Alone::<ReplicaSet>::take().await;
    let mut runs = Vec::new();
    for subcommand in subcommands {
        let stage = Arc::new(Stage::new(&server, &format!("{subcommand:?}-plain"), *subcommand, "").await);
        let plain = stage.outcome(*subcommand, "without a fault").await;
        let kinds: Vec<String> = stage.kinds().into_iter().filter(|kind| !kind.ends_with("of a monitor")).collect();
        for kind in kinds.iter().collect::<BTreeSet<_>>() {
            // The last of a kind is sent in another phase of the run than the first.
            let last = kinds.iter().filter(|other| *other == kind).count() - 1;
            let numbers = BTreeSet::from([0, last]).into_iter();
            runs.extend(numbers.map(|number| (*subcommand, kind.clone(), number, stage.clone(), plain.ran.code)));
        }
    }
    let ended = stream::iter(runs.into_iter().enumerate()).map(async |(index, (subcommand, kind, number, first, plain))| {
        let context = format!("{subcommand:?}, {kind} number {number}");
        let stage = first.again(&server, &format!("{subcommand:?}{index}x"), subcommand, "").await;
        stage.proxy.faults().once(&kind, number, Fault::Silence);
        let mut command = stage.command(subcommand);
        if let Ending::MaxDuration = ending {
            command.args(["--max-duration", "3s"]);
        }
        let mut child = start(command);
        let has_come = || stage.kinds().iter().filter(|other| **other == kind).count() > number;
        if let Ending::Signal = ending {
            while !has_come() && child.try_wait().unwrap().is_none() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            if has_come() {
                signal(&child, "TERM");
            }
        }
        let ran = stage.ended(child, MAX_END, &context).await;
        let code = match ending {
            Ending::Signal => 143,
            Ending::MaxDuration => 4,
        };
        // The last commands may come when the exit code is known already, and the first of the driver before signals are listened
        // to.
        let is_last = ["endSessions", "killCursors", "update locks"].iter().any(|last| kind.starts_with(last));
        let is_last = is_last || kind.starts_with("update runs") && number > 0;
        // Later looks at the load go on while documents are deleted, and no delete waits for them.
        let is_waited_for = !(kind.starts_with("serverStatus") && number > 0);
        let may_be_done = is_last || !is_waited_for || !has_come();
        let wrong = (ran.code != Some(code) && !(may_be_done && ran.code == plain)).then(|| format!("{context}: {ran:?}"));
        for name in COLLECTIONS {
            let live = doc! { "_id": { "$gte": 20 } };
            assert_eq!(stage.case.collection(name).count_documents(live).await.unwrap(), 10, "{context}: {name}");
        }
        wrong
    });
    let wrong: Vec<String> = ended.buffer_unordered(AT_ONCE).filter_map(std::future::ready).collect().await;
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn a_signal_ends_the_wait_for_any_reply() {
    use Subcommand::{Apply, Audit, Check, Restore, Sweep};
    every_wait_ends(&[Sweep, Audit, Check, Apply, Restore], Ending::Signal).await;
}

#[tokio::test]
async fn the_maximum_duration_ends_the_wait_for_any_reply() {
    every_wait_ends(&[Subcommand::Sweep, Subcommand::DryRun], Ending::MaxDuration).await;
}
