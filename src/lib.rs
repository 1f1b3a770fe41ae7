//! Deletes expired documents from MongoDB as a TTL index would, for people who want to preview, limit, pace and account for the
//! deletes.
//!
//! This page is the map of the crate: the path of the data, the floors, the glossary, and recipes for the most frequent changes.
//!
//! # The path of the data
//!
//! ```text
//! policy -> facts from the server -> plan -> survey -> verdict -> sweep, or nothing -> report -> rendering
//! ```
//!
//! A [`policy`](core::policy) is read and validated as a whole before anything is contacted. The server is asked for
//! [`facts`](core::facts): its version and clock, and each collection with its indexes and native TTL settings. From both,
//! [`plan`](core::plan) decides for each rule in each namespace: sweep, skip, refuse or fail.
//!
//! One survey (`commands/survey.rs`) looks at the rules that may be swept, for every command: what decides, what a sweep goes by,
//! and what is only told. A check asks for less of it than a dry run, and an audit for more. From the findings that decide
//! follows the verdict (`core/plan/verdict.rs`): each command refuses the same rule for the same reason.
//!
//! A sweep then deletes in batches (`shell/sweep.rs`), with commands that each repeat the whole predicate of the rule. Before
//! each batch one struct asks all gates; what a delete relies on, such as holds and parents, is read at the last moment before
//! each command. The findings, the outcome of the sweep and the count after become one [`report`](core::report), which every
//! format renders.
//!
//! One instant, `asOf`, is read from the server once per run. `expiry` derives every threshold from it; no other module decides
//! which dates have expired.
//!
//! # The floors
//!
//! The folders of `src` are floors; a path tells what a file may import.
//!
//! | floor | rooms | never |
//! |---|---|---|
//! | `testing` | `simulation` of whole runs, the clients of the `model` of a server (a crate in `tests/model`), simulated disks and machines, made-up reports | Part of the program: it is compiled for tests only. |
//! | [`commands`] | one file for each command, and what they share: `cli`, `session`, `survey`, `run` | |
//! | [`shell`] | `server`, `sweep`, `archive`, `lock` | Only `server` talks to MongoDB, through one seam (`server::wire::transport`); only `server::wire::driver` and `server::connect` name a type of the driver. |
//! | [`core`] | `policy`, `facts`, `flavor`, `expiry`, `plan`, `pace`, `native`, `draft`, `audit`, `report` | Values in, values out: no driver, no clock, no files, no tasks. |
//! | [`base`] | texts, values, instants, exit codes, log, terminal, signals, stop and pause file | |
//!
//! `server` has eight rooms. `wire` has commands and their replies; `connect`, `delete` and `compact` do what they say. `look` has
//! all that is only read, `watch` what is looked at again and again during a run. `own` is what the program keeps there, or puts
//! back; `pass` goes through whole collections in pieces.
//!
//! No import points up, and no two files import each other; a module and the files of its own folder count as one. What is for
//! tests lies under `testing` or `tests`, or is named `tests.rs`. The tests in `testing/floors.rs` read the source and fail on
//! what breaks this.
//!
//! # Safety
//!
//! - A delete needs a `DeleteGrant`, which only a real sweep can create: a dry run has no way to write.
//! - Every delete command repeats the whole predicate of its rule next to the restriction that names the batch. A document whose
//!   date, ttl or filter field has moved since it was found stays. Sending a command twice is harmless.
//! - Nothing starts as "complete": a report is made of values that say what happened.
//!
//! # Glossary
//!
//! | word | meaning |
//! |---|---|
//! | policy | the YAML document that a person writes |
//! | rule | one entry of its `collections`: a namespace pattern, a field and `expireAfterSeconds` |
//! | flavor | the product behind a connection string: MongoDB, Cosmos DB (RU) or the DocumentDB engine; code asks for its capabilities |
//! | selection | how the expired documents of a rule in one namespace are found: predicate, filter, collation, index, storage |
//! | plan | the decisions for all rules and namespaces, made before the first document is counted |
//! | approval | a saved audit or dry run that limits a sweep to what a person has seen (`--plan`) |
//! | run | one execution of a command, with an id, one `asOf` and one report |
//! | sweep | a run that deletes; also the part of it that deletes for one rule |
//! | batch | the documents that one delete command may remove |
//! | lease | the lock on a namespace that a run holds in the database, for a limited time |
//! | uncertain | a count that is a lower bound, because a reply was lost |
//! | unconfirmed | deleted on the primary, but not yet known to a majority: a rollback may restore the documents |
//!
//! # Recipes
//!
//! - **A policy key**: an entry in `core/policy/keys.rs` (name, kind, bounds, sentence), a field in [`core::policy::Rule`], and a
//!   line in `core/policy/rule.rs` that fills it. Checks, default, JSON Schema and `docs/policy-keys.md` follow from the table; a
//!   test compares the page.
//! - **A report field**: a field with a doc comment in [`core::report::RuleReport`], filled in `RuleReport::of`, and a line where
//!   people read it: `core/report/lines/facts.rs` for the notes of a table, `core/report/html/rule.rs` for the page. JSON, its
//!   schema, CSV, differences and the history follow from the type. A test fails on a field that is shown to no person,
//!   unless it is listed as one for programs.
//! - **A command**: a variant of [`commands::cli::Command`], its options in `commands/cli/args.rs`, a file in `commands/`, and a
//!   line in the dispatcher of [`commands`]. The README has a table of the commands; a test compares it.
//! - **A gate**, which may hold a rule back: its key with a field in `core/policy/limits.rs`, a row in `core/plan/waits.rs`, and
//!   a file in `shell/sweep/gates`, opened and asked in `shell/sweep/gates.rs`. Report, schema, metrics and history follow from
//!   the row.
//! - **A flavor**: a variant of [`core::flavor::Flavor`], the evidence by which it is recognised, and its capabilities. A proxy
//!   under `tests/it/support/proxy` plays what its vendor documents; a server of the flavor runs the suites of
//!   `tests/it/support/server.rs`.
//!
//! # In code
//!
//! A policy exists only if it is valid; all problems of a text are reported at once:
//!
//! ```
//! use ttl_sweeper::core::policy::parse::parse;
//!
//! let text = "
//! version: 1
//! collections:
//!   - namespace: app.sessions
//!     field: lastModified
//!     expireAfter: 1h
//! ";
//! let policy = parse("sweeper.yaml", text, &|_| None, true).unwrap();
//! assert_eq!(policy.rules[0].expire_after_seconds, Some(3600));
//!
//! let problems = parse("sweeper.yaml", "version: 1\ncollections: []\n", &|_| None, true).unwrap_err();
//! assert!(problems.to_string().contains("sweeper.yaml"));
//! ```
//!
//! A plan follows from a policy and from facts, which can be made up:
//!
//! ```
//! use bson::{DateTime, doc};
//! use ttl_sweeper::core::facts::{Collection, CollectionKind, Figures, ServerRole, NamespaceFacts, ServerFacts, Target, Topology, TtlMonitor};
//! use ttl_sweeper::core::flavor::Flavor;
//! use ttl_sweeper::core::plan::{Decision, RunFacts, plan};
//! use ttl_sweeper::core::policy::namespace::Namespace;
//! use ttl_sweeper::core::policy::{Expect, parse::parse};
//!
//! let text = "{version: 1, collections: [{namespace: app.sessions, field: lastModified, expireAfterSeconds: 3600}]}";
//! let policy = parse("sweeper.yaml", text, &|_| None, true).unwrap();
//! let namespace = Namespace { database: "app".into(), collection: "sessions".into() };
//! let server = ServerFacts {
//!     version: "6.0.5".into(),
//!     flavor: Flavor::MongoDb,
//!     recognised_by: "an example".into(),
//!     capabilities: Flavor::MongoDb.capabilities(17),
//!     wire_version: 17,
//!     topology: Topology::Standalone,
//!     set_name: None,
//!     hosts: vec!["localhost:27017".into()],
//!     local_time: DateTime::from_millis(7_200_000),
//!     clock_skew_ms: 0,
//!     role: ServerRole::Unknown,
//!     ttl_monitor: TtlMonitor::Unknown,
//! };
//! let run = RunFacts { server: &server, expect: &Expect::default(), as_of: server.local_time, allow_clock_skew: false, strict: false };
//! let seen = NamespaceFacts::Collection(Box::new(Collection::new(namespace.clone(), CollectionKind::Plain)), Figures::default());
//! let planned = plan(&run, vec![Target { rule: policy.rules[0].clone(), namespace, seen, children: Vec::new() }]);
//!
//! let Decision::Sweep(rule) = &planned.rules[0].decision else { panic!("{planned:?}") };
//! assert_eq!(rule.selection.predicate, doc! { "lastModified": { "$lte": DateTime::from_millis(3_600_000) } });
//! ```
//!
//! # Comments
//!
//! A doc comment begins with a third-person verb (functions) or a noun (types, fields, constants), and with `Whether` only on a
//! bool. Comments give reasons. A comment on a rule that a server or a document imposes names the source.

// A test may fail by a panic; nothing else may.
#![cfg_attr(test, allow(clippy::unwrap_used))]
#![forbid(unsafe_code)]

pub mod commands;

pub mod base {
    pub mod exit;
    pub mod failure;
    pub mod instant;
    pub mod log;
    pub(crate) mod machine;
    pub(crate) mod output;
    pub(crate) mod pause_file;
    pub(crate) mod progress;
    pub(crate) mod secrets;
    pub mod signals;
    pub(crate) mod stop;
    pub(crate) mod terminal;
    pub mod text;
    pub(crate) mod values;
    pub(crate) mod watch;
}
pub mod core {
    pub(crate) mod audit;
    pub mod draft;
    pub(crate) mod expiry;
    pub mod facts;
    pub mod flavor;
    pub mod native;
    pub(crate) mod pace;
    pub mod plan;
    pub mod policy;
    pub mod report;
}
pub mod shell {
    pub mod archive;
    pub(crate) mod lock;
    pub(crate) mod server;
    pub(crate) mod sweep;
}
#[cfg(test)]
mod testing {
    pub(crate) mod bucket;
    pub(crate) mod disk;
    pub(crate) mod floors;
    pub(crate) mod machines;
    pub(crate) mod made_up;
    pub(crate) mod model;
    pub(crate) mod portable;
    pub(crate) mod scripted;
    pub(crate) mod simulation;
}
