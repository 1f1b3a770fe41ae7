//! Plays seeds: each is a random database, policy and command line, for which dry run, audit and two sweeps must say and do the
//! same.
//!
//! `SWEEPER_DIFFERENTIAL_SEED=17` plays one seed, `SWEEPER_DIFFERENTIAL_SEEDS=1000..4000` the seeds of the ignored test.

use std::panic::AssertUnwindSafe;
use std::path::Path;

use fastrand::Rng;
use futures_util::{FutureExt, StreamExt, stream};
use mongodb::Client;
use mongodb::bson::DateTime;
use serde_json::Value;

use super::agreement;
use super::comparison::{self, Command, Differences, place, rules, same};
use super::databases::{AS_OF_MS, Databases};
use super::effects::Swept;
use super::oracle::{Expected, State, expected};
use super::policies::Policy;
use super::witnesses::{Run, Stage};
use crate::support::replica_set::ReplicaSet;
use crate::support::sweeper::{run, sweeper};

/// Seeds of the suite.
const SEEDS: u64 = 150;

/// Seeds that are played at the same time.
const AT_ONCE: usize = 4;

/// Failed seeds after which no more are played.
const MOST_FAILED: usize = 5;

#[tokio::test]
async fn what_is_shown_is_what_is_done() {
    let one = std::env::var("SWEEPER_DIFFERENTIAL_SEED").ok().map(|seed| seed.parse().expect("a seed"));
    play_all(one.map_or(0..SEEDS, |seed: u64| seed..seed + 1)).await;
}

#[tokio::test]
#[ignore = "thousands of seeds: SWEEPER_DIFFERENTIAL_SEEDS=1000..4000"]
async fn what_is_shown_is_what_is_done_thousands_of_times() {
    let range = std::env::var("SWEEPER_DIFFERENTIAL_SEEDS").unwrap_or_else(|_| "1000..4000".to_owned());
    let (from, to) = range.split_once("..").expect("a range such as 1000..4000");
    play_all(from.parse().expect("a seed")..to.parse().expect("a seed")).await;
}

async fn play_all(seeds: std::ops::Range<u64>) {
    let set = tokio::task::spawn_blocking(|| ReplicaSet::start(1, &[])).await.expect("a replica set");
    let (client, uri) = (set.client().await, set.uri());
    let mut played = stream::iter(seeds).map(|seed| caught(&client, &uri, seed)).buffer_unordered(AT_ONCE);
    let mut failed = Vec::new();
    while let Some(failure) = played.next().await {
        failed.extend(failure);
        if failed.len() == MOST_FAILED {
            break;
        }
    }
    let left: Vec<String> = client.list_database_names().await.expect("names");
    let known = ["admin", "config", "local"];
    // Every seed drops its own.
    let others: Vec<&String> = left.iter().filter(|name| !known.contains(&name.as_str())).collect();
    assert!(!failed.is_empty() || others.is_empty(), "databases of no seed: {others:?}");
    assert!(failed.is_empty(), "{}", failed.join("\n\n"));
}

/// Plays one seed, and names it if the test itself fails.
async fn caught(client: &Client, uri: &str, seed: u64) -> Option<String> {
    let played = AssertUnwindSafe(play(client, uri, seed)).catch_unwind().await;
    played.unwrap_or_else(|_| Some(format!("SWEEPER_DIFFERENTIAL_SEED={seed}\nseed {seed}: the test panicked, as shown above")))
}

/// Plays one seed; returns the differences with all that is needed to understand them.
async fn play(client: &Client, uri: &str, seed: u64) -> Option<String> {
    let mut random = Rng::with_seed(seed);
    let databases = Databases::new(seed, &mut random);
    let directory = tempfile::tempdir().expect("a directory");
    let archives = directory.path().join("archives");
    std::fs::create_dir(&archives).expect("a directory");
    let policy = Policy::new(&databases, &archives.display().to_string(), &mut random);
    std::fs::write(directory.path().join("policy.yaml"), &policy.text).expect("a file");
    databases.create(client).await;
    let stage = Stage { client, uri, directory: directory.path(), databases: &databases };
    let mut differences = Differences::new();
    let seen = Seed { stage, policy: &policy, archives: &archives }.play(&mut differences).await;
    for name in databases.names() {
        client.database(&name).drop().await.expect("a database is dropped");
    }
    let places: Vec<String> = databases
        .places
        .iter()
        .map(|place| format!("{} {:?} {} {} {:?}", place.namespace(), place.kind, place.path, place.format, place.index))
        .collect();
    (!differences.is_empty()).then(|| {
        format!(
            "SWEEPER_DIFFERENTIAL_SEED={seed}\n{}\n{}\n{:?}\n{seen}\nseed {seed}: {}",
            policy.text,
            places.join("\n"),
            policy.line,
            differences.join("\n  ")
        )
    })
}

/// One seed at work.
struct Seed<'a> {
    stage: Stage<'a>,
    policy: &'a Policy,
    archives: &'a Path,
}

impl Seed<'_> {
    /// Runs everything, and returns what the runs said on standard error.
    async fn play(&self, found: &mut Differences) -> String {
        let mut seen = Vec::new();
        let mut note = |step: &str, new: Differences, run: &Run, found: &mut Differences| {
            seen.push(format!("{step}: {}", run.ran.stderr));
            found.extend(new.into_iter().map(|difference| format!("{step}: {difference}")));
        };
        let mut check = sweeper(&["check", "--policy"]);
        check.arg(self.stage.directory.join("policy.yaml"));
        let checked = run(check).await;
        same!(found, checked.code, Some(0), "check: {} {}", checked.stdout, checked.stderr);
        let start = self.stage.state().await;

        let mut new = Differences::new();
        let dry = self.stage.run("dry", &self.arguments(Command::DryRun), self.policy.line.metrics).await;
        let expected = self.expected(&start, &dry);
        comparison::outputs(Command::DryRun, self.policy, &expected, &dry, &mut new);
        comparison::before(Command::DryRun, self.policy, &expected, &dry, &mut new);
        note("dry run", new, &dry, found);

        let mut new = Differences::new();
        let audit = self.stage.run("audit", &self.arguments(Command::Audit), false).await;
        let expected = self.expected(&start, &audit);
        comparison::outputs(Command::Audit, self.policy, &expected, &audit, &mut new);
        comparison::before(Command::Audit, self.policy, &expected, &audit, &mut new);
        self.refusals(&dry, &audit, &mut new);
        let plain = self.stage.run("plain", &self.plain(&audit), false).await;
        agreement::compare(&plain.json, &audit.json, &mut new);
        note("audit", new, &audit, found);

        let mut before = start;
        for step in ["sweep", "second sweep"] {
            let mut new = Differences::new();
            let mut arguments = self.arguments(Command::Sweep);
            let is_first = step == "sweep";
            if self.policy.line.by_plan && is_first {
                arguments.retain(|argument| !argument.starts_with("--as-of"));
                arguments.push(format!("--plan={}", self.stage.directory.join("audit.json").display()));
            }
            let run = self.stage.run(step, &arguments, self.policy.line.metrics).await;
            let after = self.stage.state().await;
            let expected = self.expected(&before, &run);
            comparison::outputs(Command::Sweep, self.policy, &expected, &run, &mut new);
            comparison::sweep(self.policy, &expected, &self.expected(&after, &run), &run, &mut new);
            if is_first {
                self.refusals(&dry, &run, &mut new);
            }
            let archived = self.archived(&run);
            let (databases, policy) = (self.stage.databases, self.policy);
            Swept { databases, policy, before: &before, after: &after, expected: &expected, run: &run }
                .compare(&archived, &mut new);
            note(step, new, &run, found);
            before = after;
        }
        if std::fs::read_dir(self.archives).expect("a directory").next().is_some() {
            let mut verify = sweeper(&["archive", "verify"]);
            verify.arg(self.archives);
            let verified = run(verify).await;
            same!(found, verified.code, Some(0), "archive verify: {} {}", verified.stdout, verified.stderr);
        }
        seen.join("\n")
    }

    fn expected(&self, state: &State, run: &Run) -> Vec<Expected> {
        let as_of = run.json["asOf"].as_str().and_then(|text| DateTime::parse_rfc3339_str(text).ok());
        expected(self.stage.databases, self.policy, state, as_of.unwrap_or(DateTime::from_millis(AS_OF_MS)))
    }

    fn arguments(&self, command: Command) -> Vec<String> {
        let line = &self.policy.line;
        let mut all = vec![if command == Command::Audit { "audit" } else { "sweep" }.to_owned()];
        if line.is_as_of {
            let as_of = DateTime::from_millis(AS_OF_MS).try_to_rfc3339_string().expect("an instant");
            all.push(format!("--as-of={as_of}"));
        }
        all.extend(line.only.as_ref().map(|only| format!("--only={only}")));
        all.extend(line.strict.then(|| "--strict".to_owned()));
        all.extend((line.detailed && command != Command::Sweep).then(|| "--detailed-exitcode".to_owned()));
        all.extend((command == Command::DryRun).then(|| "--dry-run".to_owned()));
        all.push(if line.quiet { "-q" } else { "--log-format=json" }.to_owned());
        if command != Command::Audit {
            all.extend(line.max_deletes.map(|most| format!("--max-deletes={most}")));
            all.extend(line.more.iter().cloned());
        }
        all
    }

    /// Returns the arguments of a dry run that looks at the same as an audit.
    fn plain(&self, audit: &Run) -> Vec<String> {
        let mut arguments = self.arguments(Command::Audit);
        arguments[0] = "sweep".to_owned();
        arguments.push("--dry-run".to_owned());
        let as_of = audit.json["asOf"].as_str().filter(|_| !self.policy.line.is_as_of);
        arguments.extend(as_of.map(|as_of| format!("--as-of={as_of}")));
        arguments
    }

    /// Compares what two runs refuse.
    fn refusals(&self, dry: &Run, other: &Run, found: &mut Differences) {
        let of = |run: &Run| -> Vec<(String, Option<String>)> {
            let said = |rule: &&Value| {
                let guard = (rule["status"] == "refused").then(|| rule["reason"].as_str().unwrap_or_default().to_owned());
                (place(rule).join(" in "), guard)
            };
            rules(&run.json).iter().map(said).collect()
        };
        if !(self.policy.line.by_plan && other.json["plan"].is_object()) {
            same!(found, of(other), of(dry), "refusals, against those of the dry run");
        }
    }

    fn archived(&self, run: &Run) -> State {
        let mut all = State::new();
        let directories = rules(&run.json).into_iter().filter(|rule| rule["archivedCount"].is_u64());
        let mut directories: Vec<&str> = directories.filter_map(|rule| rule["archive"].as_str()).collect();
        directories.sort_unstable();
        directories.dedup();
        for directory in directories {
            all.extend(self.stage.archived(Path::new(directory)));
        }
        all
    }
}
