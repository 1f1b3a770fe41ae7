//! The runs of the simulation, each on a machine of its own, and what happens to them.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::sleep;

use super::World;
use super::archives::SweeperDisk;
use super::choices::{Fate, Sweeper};
use super::editions::name;
use super::network::Link;
use super::rereads;
use super::scenario::LAST;
use super::trace::digest;
use crate::base::exit;
use crate::base::watch;
use crate::commands::cli::SweepArgs;
use crate::commands::tests::simulated::{self, Surroundings};
use crate::core::plan::Status;
use crate::core::report::Report;
use crate::testing::machines::Machine;

/// Sweeps as the scenario says: once, or once more after being killed.
pub(super) async fn sweep(world: &Arc<World>, number: usize, mut random: fastrand::Rng) {
    let sweeper = world.scenario.sweepers[number].clone();
    sleep(Duration::from_millis(sweeper.begins)).await;
    let limited = || SweepArgs {
        max_deletes: world.scenario.max_deletes,
        max_duration: world.scenario.max_duration.map(Duration::from_secs),
        lock_wait: world.scenario.lock_wait.map(Duration::from_secs),
        as_of: world.scenario.as_of.map(bson::DateTime::from_millis),
        ..args()
    };
    let disk = SweeperDisk::new(world.scenario.in_buckets);
    match sweeper.fate {
        Fate::DiskFull { bytes } => disk.set_room(bytes),
        _ if !world.scenario.troubles.are_none() => disk.trouble(&mut fastrand::Rng::with_seed(random.clone().u64(..))),
        _ => {}
    }
    if run(world, &format!("run{number}a"), &sweeper, &disk, limited(), random.fork()).await.is_none() {
        sleep(Duration::from_millis(random.u64(..90_000))).await;
        if random.bool() {
            world.trace.step(6, || format!("the machine of run{number} loses its power"));
            disk.lose_power(&mut random);
        }
        let again = Sweeper { fate: Fate::Nothing, ..sweeper };
        run(world, &format!("run{number}b"), &again, &disk, limited(), random.fork()).await;
    }
}

/// Sweeps once all troubles are over.
pub(super) async fn last(world: &Arc<World>, random: fastrand::Rng) {
    let sweeper = Sweeper { begins: 0, clock: 0, fate: Fate::Nothing, cuts: 0..1 };
    let args = SweepArgs {
        lock_wait: Some(Duration::from_secs(600)),
        as_of: world.scenario.as_of.map(bson::DateTime::from_millis),
        ..args()
    };
    let report = run(world, LAST, &sweeper, &SweeperDisk::new(world.scenario.in_buckets), args, random).await.flatten();
    let Some(report) = report else {
        return world.trace.violated(|| "the last run has no report, although there is no trouble any more".into());
    };
    for rule in &report.rules {
        let number = (0..world.scenario.rules.len()).find(|number| name(*number) == rule.name).expect("a rule of the policy");
        let swept = &world.scenario.rules[number];
        // All parents may be gone, or most of the children be orphans by then.
        let error = rule.error.as_deref().unwrap_or_default();
        let is_of_orphans = error.contains("would be taken for orphans") || error.contains("have no parent");
        let may_be = is_of_orphans
            || match rule.status {
                Status::Complete => true,
                Status::Partial => swept.max_deletes.is_some() || swept.window.is_some(),
                Status::Refused => swept.max_delete_percent.is_some(),
                Status::Failed | Status::Skipped => false,
            };
        if !may_be {
            let why = rule.error.clone().unwrap_or_default();
            world.trace.violated(|| format!("the last run ends with {:?} without any trouble: {why}", rule.status));
        }
    }
    world.judge.count_borders(&report, |namespace| world.model.documents(namespace));
    world.judge.last(&report, |namespace| world.model.documents(namespace), world.now());
}

/// Carries out one run; `None` if it was killed, and `Some(None)` if it ended without a report.
async fn run(
    world: &Arc<World>,
    id: &str,
    sweeper: &Sweeper,
    disk: &Arc<SweeperDisk>,
    args: SweepArgs,
    mut random: fastrand::Rng,
) -> Option<Option<Report>> {
    let edition = world.scenario.edition(id);
    // Without a lease there is nothing to wait for.
    let lock_wait = args.lock_wait.filter(|_| world.scenario.has_lease || edition.has_children());
    let args = SweepArgs { lock_wait, ..args };
    let clock = world.now() + sweeper.clock;
    let machine = Machine::new(SystemTime::UNIX_EPOCH + Duration::from_millis(clock.unsigned_abs()));
    let link = Link::new(world, &machine, id, sweeper.cuts.clone(), random.fork());
    let (signals, receiver) = watch::channel(None);
    let (read, policies) = watch::channel(None);
    let surroundings = Surroundings {
        run_id: id.to_owned(),
        policy: world.scenario.parsed(&edition),
        policies,
        only: edition.only.map(name).into_iter().collect(),
        server: Arc::new(link.clone()),
        disk: disk.get().disk(),
        pause: Some(world.pause.subscribe()),
        signals: receiver,
    };
    world.trace.step(digest(id), || format!("{id} begins"));
    let archive = world.scenario.archives.then(|| disk.archive(id));
    if archive.is_some() {
        world.archives.lock().push((id.to_owned(), disk.clone()));
    }
    world.judge.begins(id, |namespace| world.model.documents(namespace), world.scenario.as_of.unwrap_or(world.now()), archive);
    let fate = async {
        match &sweeper.fate {
            Fate::Nothing | Fate::DiskFull { .. } => pending().await,
            Fate::Signals(times) => {
                let mut now = 0;
                for (number, time) in times.iter().enumerate() {
                    sleep(Duration::from_millis(time - now)).await;
                    now = *time;
                    if number > 0 {
                        // The second signal ends the process.
                        return;
                    }
                    world.trace.step(1, || format!("{id} gets a signal"));
                    link.signalled();
                    signals.send_replace(Some(exit::INTERRUPTED));
                }
                pending().await
            }
            Fate::Killed { after } => sleep(Duration::from_millis(*after)).await,
            Fate::Sleeps { after, time } => {
                sleep(Duration::from_millis(*after)).await;
                world.trace.step(2, || format!("the machine of {id} sleeps for {time} ms"));
                machine.sleep(Duration::from_millis(*time)).await;
                pending().await
            }
            Fate::ClockSet { after, by } => {
                sleep(Duration::from_millis(*after)).await;
                world.trace.step(3, || format!("the clock of {id} is set by {by} ms"));
                let time = Duration::from_millis(by.unsigned_abs());
                if *by < 0 {
                    machine.set_back(time)
                } else {
                    machine.set_forward(time)
                }
                pending().await
            }
        }
    };
    let swept = machine.run(simulated::sweep(surroundings, &args));
    let reads = async {
        rereads::read_again(&world.scenario, id, &edition, &read, &world.trace).await;
        pending::<()>().await;
    };
    let ended = tokio::select! {
        biased;
        ended = swept => ended,
        () = reads => return None,
        () = fate => {
            machine.kill();
            world.trace.step(4, || format!("{id} is killed"));
            return None;
        }
    };
    link.judge_time(false);
    let code = ended.as_ref().map_or(0, |report| u64::from(report.exit_code));
    world.trace.step(code, || match &ended {
        Ok(report) => format!("{id} ends: {}", serde_json::to_string(report).unwrap_or_default()),
        Err(why) => format!("{id} ends without a report: {why}"),
    });
    if let Ok(report) = &ended {
        world.judge.ended(id, report, |namespace| world.model.documents(namespace));
    }
    Some(ended.ok())
}

pub(super) fn args() -> SweepArgs {
    SweepArgs {
        detailed_exitcode: false,
        dry_run: false,
        as_of: None,
        plan: None,
        max_plan_age: Duration::from_secs(86_400),
        max_deletes: None,
        max_duration: None,
        rate: None,
        metrics_file: None,
        yes: true,
        every: None,
        listen: None,
        lock: None,
        lock_wait: None,
        stop_file: None,
        pause_file: None,
        strict: false,
        allow_clock_skew: false,
    }
}
