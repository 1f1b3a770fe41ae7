//! Whole sweeps in deterministic simulation: real runs, on simulated machines with simulated disks, against a model of a server,
//! while others write, servers fail over, and connections break. One seed decides everything; virtual time passes as fast as the
//! machine computes. Some seeds have children that go with their parents, by one rule or by several with different children. Some
//! have holds, periods, a pause file, policies that are read again, collections that are replaced, or runs of `restore`.
//!
//! ```text
//! SIMULATION_SEEDS=0..100000 cargo test --release --lib simulation::seeds::of_the_environment -- --include-ignored
//! SIMULATION_SEED=17 cargo test --lib simulation::seeds::replay -- --include-ignored --nocapture
//! ```
//!
//! The first tries other seeds than the usual ones, the second shows every step of one. `tests/planted.py` plants bugs, and
//! counts those that are found.

mod archives;
mod choices;
mod contention;
mod documents;
mod editions;
mod fates;
mod judge;
mod keepers;
mod kin;
mod moves;
mod network;
mod oracle;
mod others;
mod pauses;
mod periods;
mod pressure;
mod relations;
mod relatives;
mod rereads;
mod restores;
mod scenario;
mod seeds;
mod stepped_clock;
mod sweepers;
mod trace;
mod troubles;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bson::{Bson, Document};
use futures_util::future::join_all;
use parking_lot::Mutex;
use server_model::{Model, Pace};
use tokio::time::Instant;

use archives::SweeperDisk;
use choices::Edition;
use documents::Documents;
use judge::Judge;
use kin::Kin;
use relations::{HOLDS, ID, TENANTS};
use scenario::Scenario;
use trace::{EndedSimulation, Trace, digest};

use crate::base::watch;

/// Virtual time within which all runs of a simulation must have ended: every wait has an end, and troubles repeat them.
const MAX_TIME: Duration = Duration::from_secs(24 * 3600);

/// Virtual time after which no command of a run that was killed is on its way any more. Until then parents may go whose children
/// only a later run deletes.
const LAST_ARRIVAL: Duration = Duration::from_secs(600);

/// The parts of a simulation.
struct World {
    scenario: Scenario,
    model: Arc<Model>,
    judge: Arc<Judge>,
    trace: Trace,
    /// The runs that may have archived, each with its disk.
    archives: Mutex<Vec<(String, Arc<SweeperDisk>)>>,
    /// The reason of the pause file, as long as it is there.
    pause: watch::Sender<Option<String>>,
    /// The beginning of the pause.
    paused: Mutex<Option<Instant>>,
    /// Set once the troubles are over.
    is_calm: AtomicBool,
}

impl World {
    /// Returns the server's clock in milliseconds.
    fn now(&self) -> i64 {
        self.model.now().timestamp_millis()
    }

    fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::Relaxed)
    }

    /// Writes as another client does. Returns the number of the write; `None` if there was nothing to delete.
    fn put(&self, namespace: &str, id: &Bson, document: Option<Document>) -> Option<u64> {
        self.trace.step(digest(namespace), || match &document {
            Some(document) => format!("another client writes {document} to {namespace}"),
            None => format!("another client deletes {id} from {namespace}"),
        });
        let write = self.model.put(namespace, id, document.clone())?;
        self.judge.wrote(write, namespace, id, document.as_ref(), self.now());
        Some(write)
    }

    /// Writes a hold or a setting as another client does, and tells the judge once a majority knows it.
    fn place(self: &Arc<Self>, namespace: &str, id: &Bson, document: Option<Document>) {
        let Some(write) = self.put(namespace, id, document) else { return };
        let world = self.clone();
        tokio::spawn(async move {
            if world.model.has_majority(write).await {
                world.judge.known(write);
            }
        });
    }

    /// Lets the pause file appear or disappear.
    fn set_pause(&self, is_there: bool) {
        *self.paused.lock() = is_there.then(Instant::now);
        self.pause.send_replace(is_there.then(|| "the pause file exists".to_owned()));
    }

    /// Returns the time since when the pause file is there.
    fn paused(&self) -> Option<Instant> {
        *self.paused.lock()
    }

    /// Elects another primary, which is there after a while, and whose clock differs.
    fn fail_over(&self, away: Duration, skew: i64) {
        self.trace.step(5, || format!("a fail-over, without a primary for {} ms, to a clock {skew} ms off", away.as_millis()));
        self.model.fail_over(away);
        self.model.set_skew(skew);
    }

    /// Keeps the members from following the primary for a while.
    fn hold_replication(&self, time: Duration) {
        self.trace.step(7, || format!("no majority follows for {} ms", time.as_millis()));
        self.model.hold_replication(time);
    }
}

/// Simulates what a seed decides, and tells every step if `is_told`.
fn simulate(seed: u64, is_told: bool) -> EndedSimulation {
    fastrand::seed(seed);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    let runtime = runtime.expect("a runtime");
    let trace = runtime.block_on(async { Trace::new(is_told) });
    let simulated = catch_unwind(AssertUnwindSafe(|| {
        runtime.block_on(async {
            let world = begin(seed, &trace);
            carry_out(&world, seed).await;
        });
    }));
    if let Err(panic) = simulated {
        let why = panic.downcast_ref::<String>().cloned().or_else(|| Some((*panic.downcast_ref::<&str>()?).to_owned()));
        trace.violated(|| format!("a panic: {}", why.unwrap_or_default()));
    }
    trace.end()
}

/// Fills a model as the seed says.
fn begin(seed: u64, trace: &Trace) -> Arc<World> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut scenario = Scenario::of(&mut random);
    if contention::is_contended(seed) {
        scenario.contend(&mut random);
    }
    scenario.look_at_heads(seed);
    scenario.crowd(seed);
    scenario.relate(seed);
    scenario.tell_apart(seed);
    scenario.hold_back(seed);
    scenario.put_back(seed);
    scenario.move_away(seed);
    scenario.renew(seed);
    scenario.put_in_buckets(seed);
    scenario.read_again(seed);
    trace.step(seed, || format!("{scenario:#?}\n{}", scenario.policy(&Edition::whole(&scenario))));
    let judge = Judge::new(&scenario, trace);
    let model = Model::new(seed, judge.clone());
    let as_of = scenario.as_of.unwrap_or_else(|| model.now().timestamp_millis());
    let mut kin = Kin(&mut fastrand::Rng::with_seed(seed.rotate_left(32)));
    for swept in &scenario.rules {
        let namespace = &swept.rule.namespace;
        if swept.is_indexed && swept.rule.field != "_id" {
            model.create_index(namespace, swept.rule.field, 1);
        }
        for mut document in (Documents { random: &mut random, as_of }).fill(swept) {
            if let Some(path) = scenario.tenant_path() {
                kin.give_tenant(path, &mut document);
            }
            if let Some(family) = scenario.family_of(namespace) {
                kin.give_keys(family, &mut document);
            }
            model.put(namespace, &document["_id"].clone(), Some(document));
        }
    }
    add_kin(&scenario, &model, &judge, &mut kin);
    if let Some(by) = scenario.miscounted {
        scenario.rules.iter().for_each(|swept| model.miscount(&swept.rule.namespace, by));
    }
    model.heal();
    model.set_release(scenario.release);
    model.set_faults(scenario.troubles.faults.clone());
    model.set_pace(scenario.troubles.pace.clone());
    let pause = watch::Sender::new(None);
    Arc::new(World {
        scenario,
        model,
        judge,
        trace: trace.clone(),
        pause,
        paused: Mutex::default(),
        archives: Mutex::default(),
        is_calm: AtomicBool::new(false),
    })
}

/// Adds the children of the documents of the first rule, the holds and the periods.
fn add_kin(scenario: &Scenario, model: &Model, judge: &Judge, kin: &mut Kin<'_>) {
    if let Some(family) = &scenario.family {
        let namespace = &scenario.rules[0].rule.namespace;
        let parents = model.documents(namespace);
        judge.filled(&parents);
        for field in family.parent_fields().into_iter().filter(|field| *field != ID && family.keys.are_indexed) {
            model.create_index(namespace, field, 1);
        }
        for child in &family.collections {
            if child.is_indexed {
                model.create_index(child.namespace, child.field, 1);
            }
            let keys: Vec<Bson> = parents.iter().flat_map(|parent| child.keys(parent)).collect();
            for document in kin.children(family, child, &keys) {
                model.put(child.namespace, &document["_id"].clone(), Some(document));
            }
        }
    }
    if scenario.holds.is_some() {
        // One that is not active may be all that there is.
        for (id, is_active) in [(0, false), (1, true), (2, true)] {
            let mut hold = kin.hold(id);
            hold.insert("active", is_active);
            let write = model.put(HOLDS, &id.into(), Some(hold.clone())).expect("a write");
            judge.wrote(write, HOLDS, &id.into(), Some(&hold), 0);
            judge.known_before(write);
        }
    }
    if let Some(periods) = &scenario.periods {
        for id in 0..4 {
            let setting = periods::setting(periods, id, scenario.rules[0].rule.expire_after, kin.0);
            let write = model.put(TENANTS, &id.into(), Some(setting.clone())).expect("a write");
            judge.wrote(write, TENANTS, &id.into(), Some(&setting), 0);
            judge.known_before(write);
        }
    }
}

async fn carry_out(world: &Arc<World>, seed: u64) {
    let mut random = fastrand::Rng::with_seed(!seed);
    let mut writers: Vec<_> = (0..3).map(|_| tokio::spawn(others::write(world.clone(), random.fork()))).collect();
    if world.scenario.monitors {
        tokio::spawn(others::monitor(world.clone(), random.fork()));
    }
    if let Some(every) = world.scenario.troubles.fail_over_every {
        tokio::spawn(others::fail_over(world.clone(), random.fork(), every));
    }
    if let Some(after) = world.scenario.locks_dropped {
        tokio::spawn(others::drop_locks(world.clone(), after));
    }
    if let Some(moved) = world.scenario.moved.clone() {
        writers.push(tokio::spawn(moves::move_away(world.clone(), moved, random.fork())));
    }
    let mut related = fastrand::Rng::with_seed((!seed).rotate_left(32));
    if let Some(pauses) = world.scenario.pauses.clone() {
        let own = fastrand::Rng::with_seed((!seed).rotate_left(16));
        writers.push(tokio::spawn(pauses::hold_back(world.clone(), pauses, own)));
    }
    writers.push(tokio::spawn(relatives::write(world.clone(), related.fork())));
    writers.push(tokio::spawn(relatives::write(world.clone(), related.fork())));
    writers.push(tokio::spawn(relatives::write_at_tolerance(world.clone(), related.fork())));
    writers.push(tokio::spawn(keepers::write(world.clone(), related.fork())));
    let of_periods = fastrand::Rng::with_seed((!seed).rotate_left(8));
    writers.push(tokio::spawn(periods::write(world.clone(), of_periods)));
    let mut restoring = fastrand::Rng::with_seed((!seed).rotate_left(48));
    if let Some(restores) = world.scenario.restores.clone() {
        writers.push(tokio::spawn(restores::write_again(world.clone(), restores.clone(), restoring.fork())));
        writers.push(tokio::spawn(restores::while_others_write(world.clone(), restores, restoring.fork())));
    }
    let sweepers = (0..world.scenario.sweepers.len()).map(|number| sweepers::sweep(world, number, random.fork()));
    let ended = tokio::time::timeout(MAX_TIME, join_all(sweepers.collect::<Vec<_>>())).await;
    if ended.is_err() {
        return world.trace.violated(|| format!("a run goes on after {} s", MAX_TIME.as_secs()));
    }
    // Troubles stop, and the writers with them: the next run must bring everything in order.
    for writer in writers {
        writer.await.expect("a writer does not panic");
    }
    world.is_calm.store(true, Ordering::Relaxed);
    world.model.heal();
    // A server that takes seconds for each document is a trouble as well.
    world.model.set_pace(Pace::default());
    keepers::tidy(world);
    if world.scenario.family.is_some() {
        tokio::time::sleep(LAST_ARRIVAL).await;
    }
    if let Some(restores) = &world.scenario.restores {
        restores::at_last(world, restores, restoring).await;
    }
    if tokio::time::timeout(MAX_TIME, sweepers::last(world, random.fork())).await.is_err() {
        return world.trace.violated(|| format!("the last run goes on after {} s, without any trouble", MAX_TIME.as_secs()));
    }
    world.judge.at_the_end();
}
