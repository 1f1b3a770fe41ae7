//! Compares the model with a real mongod: sequences of commands that follow from a seed get equal replies, and leave equal
//! documents behind.
//!
//! The predicates, the statements, the counts, the updates of leases, the journal and the reads of children and of holds come
//! from the program's own code. Next to them stand commands that are only made up, among them some that no server accepts.
//!
//! `cargo test` runs some of the sequences. All 10,000 (or another number) run with
//!
//! ```text
//! SWEEPER_TEST_SEQUENCES=10000 cargo test --release --config profile.release.lto=false --config profile.release.codegen-units=16 \
//!     --lib conformance
//! ```
//!
//! A difference names its seed, and `SWEEPER_TEST_SEQUENCE=seed` runs only that sequence.

mod commands;
mod filters;
#[expect(dead_code, reason = "the server tests use more of it")]
#[path = "../../../tests/it/support/mongod/mod.rs"]
mod mongod;
mod outcome;
mod relations;
mod rules;
mod tool;
mod values;

use std::ops::Deref;
use std::sync::Arc;

use bson::{Bson, Document, doc};
use fastrand::Rng;
use futures_util::{StreamExt, stream};
use mongodb::options::ClientOptions;

use server_model::{Deletion, Model, Observer, Pace};

use super::Client;
use crate::core::policy::namespace::Namespace;
use crate::shell::server::wire::driver::Driver;
use crate::shell::server::wire::transport::{Patience, ServerCommand, Transport};
use crate::shell::server::{Deployment, connect};
use commands::Step;
use mongod::Mongod;
use values::Shape;

/// Number of sequences of a run that names no other.
const SEQUENCES: u64 = 100;

/// Number of sequences at a time.
const AT_A_TIME: usize = 4;

/// The seed of the first sequence.
const FIRST: u64 = 1;

struct NoObserver;

impl Observer for NoObserver {
    fn deleted(&self, _: &Deletion<'_>) {}
}

/// One of the two that are compared.
#[derive(Clone)]
struct Server {
    deployment: Deployment,
    /// Takes commands past the deployment.
    transport: Arc<dyn Transport>,
}

impl Server {
    async fn connect(uri: &str) -> Self {
        let options = ClientOptions::parse(uri).await.expect("a connection string");
        let transport = Arc::new(Driver::new(options).expect("a driver"));
        let deployment = connect::connect(uri, None, "run").await.expect("a connection to mongod");
        Self { deployment, transport }
    }
}

impl Deref for Server {
    type Target = Deployment;

    fn deref(&self) -> &Deployment {
        &self.deployment
    }
}

#[tokio::test]
async fn the_model_answers_as_a_mongod_does() {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    let seeds = match number("SWEEPER_TEST_SEQUENCE") {
        Some(seed) => seed..seed + 1,
        None => FIRST..FIRST + number("SWEEPER_TEST_SEQUENCES").unwrap_or(SEQUENCES),
    };
    let mongod = Mongod::start(&["--journalCommitInterval", "1"]);
    let real = Server::connect(&mongod.uri()).await;
    let ended = stream::iter(seeds).map(|seed| sequence(seed, &real)).buffer_unordered(AT_A_TIME);
    let mut differences: Vec<String> = ended.filter_map(std::future::ready).collect().await;
    differences.sort();
    let shown: Vec<String> = differences.iter().take(5).cloned().collect();
    assert!(differences.is_empty(), "{} sequences differ:\n\n{}", differences.len(), shown.join("\n\n"));
}

/// Runs the sequence of a seed on both servers; returns the first difference.
async fn sequence(seed: u64, real: &Server) -> Option<String> {
    let mut random = Rng::with_seed(seed);
    let namespace = Namespace { database: "conformance".into(), collection: format!("c{seed}") };
    let model = Model::new(seed, Arc::new(NoObserver));
    model.set_pace(Pace { latency: 0..=0, yields: 0.5, pause: 0..=0, replication: 0..=0 });
    let imitated = imitated(&model, real);
    let shape = Shape::any(&mut random);
    let mut steps = commands::beginning(&mut random, &namespace, shape);
    let (rules, length) = (rules::some(&mut random, &namespace, shape), random.usize(5..=20));
    for _ in 0..length {
        steps.push(commands::any(&mut random, &namespace, shape, &rules));
    }
    steps.push(Step::Listing(namespace.clone()));
    steps.push(Step::everything(&namespace));
    for (at, step) in steps.iter().enumerate() {
        let (expected, found) = (step.run(real).await, step.run(&imitated).await);
        if expected != found {
            return Some(format!("{seed:08}, step {at}: {step:?}\nmongod: {expected}\nmodel:  {found}"));
        }
    }
    let drop = doc! { "drop": &namespace.collection };
    let drop = ServerCommand::of(&namespace.database, &drop, Patience::Limit(std::time::Duration::from_secs(60)));
    drop_quietly(real, drop.expect("a command")).await;
    None
}

async fn drop_quietly(real: &Server, drop: ServerCommand) {
    let _ = real.transport.run(drop).await;
}

/// Returns the model with the facts of a server.
fn imitated(model: &Arc<Model>, real: &Server) -> Server {
    let client = Client::new(model, "conformance");
    let mut deployment = client.deployment("run");
    deployment.facts = real.facts.clone();
    Server { deployment, transport: Arc::new(client) }
}

/// Returns an entry of a list.
fn one_of<'a, T>(random: &mut Rng, list: &'a [T]) -> &'a T {
    &list[random.usize(0..list.len())]
}

/// Creates the filter of one field.
fn on(field: &str, condition: impl Into<Bson>) -> Document {
    doc! { field: condition.into() }
}
