//! Runs of `restore`, which put back what the runs have archived, while others write and once they have ended.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bson::Document;
use tokio::time::sleep;

use super::World;
use super::archives::{Place, SweeperDisk, directory, last_states};
use super::choices::Restores;
use super::documents::in_format;
use super::network::Link;
use super::relations::ID;
use super::scenario::Scenario;
use super::trace::digest;
use crate::base::exit;
use crate::base::watch;
use crate::commands::cli::RestoreArgs;
use crate::commands::tests::simulated::{self, Surroundings};
use crate::core::policy::parse::parse;
use crate::core::report::restore::RestoreReport;
use crate::testing::machines::Machine;

/// One in so many simulations with archives has runs of `restore`.
const ONE_IN: u8 = 2;

impl Scenario {
    /// Lets `restore` put archives back, if the seed says so. What else the seed draws stays as it is.
    pub(super) fn put_back(&mut self, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x7265_7374_6f72_6573);
        self.restores = (self.archives && random.u8(..ONE_IN) == 0).then(|| Restores {
            number: random.u32(..3),
            every: random.u64(1000..60_000),
            only: (random.u8(..3) == 0).then(|| random.usize(..4)),
            again: random.u32(..15),
            replace: random.u8(..4) == 0,
        });
    }
}

/// Restores now and then while others write, and while runs still archive.
pub(super) async fn while_others_write(world: Arc<World>, restores: Restores, mut random: fastrand::Rng) {
    for number in 0..restores.number {
        sleep(Duration::from_millis(random.u64(..restores.every))).await;
        let Some((run, disk)) = world.archive(&mut random) else { continue };
        let killed = (random.u8(..4) == 0).then(|| Duration::from_millis(random.u64(..5000)));
        restore(&world, &format!("restore{number}"), &run, &disk.copy(), &restores, killed, random.fork()).await;
    }
}

/// Writes documents again that the runs have archived, in another state, so that some are archived twice.
pub(super) async fn write_again(world: Arc<World>, restores: Restores, mut random: fastrand::Rng) {
    let Some(lifetime) = world.scenario.rules[0].rule.expire_after.filter(|_| world.scenario.rules[0].rule.field != ID) else {
        return;
    };
    let rule = &world.scenario.rules[0].rule;
    for _ in 0..restores.again {
        sleep(Duration::from_millis(random.u64(..2000))).await;
        let Some((run, disk)) = world.archive(&mut random) else { continue };
        let disk = disk.copy();
        let states = directory(&disk, &run).and_then(|directory| last_states(&disk, &directory).ok()).unwrap_or_default();
        let of_rule: Vec<&Document> =
            states.iter().filter(|((namespace, _), _)| *namespace == rule.namespace).map(|(_, document)| document).collect();
        for _ in 0..random.usize(..4).min(of_rule.len()) {
            let mut document = of_rule[random.usize(..of_rule.len())].clone();
            // The latest of those that have expired, which a run may still have before it.
            let threshold = world.scenario.as_of.unwrap_or(world.now()) - lifetime * 1000;
            document.insert(rule.field, in_format(rule.format, threshold - random.i64(..1000), random.u8(..)));
            document.insert("v", random.i32(0..));
            world.put(&rule.namespace, &document["_id"].clone(), Some(document));
        }
    }
}

/// Restores what is in an archive once all troubles are over, and once more, which must change nothing.
pub(super) async fn at_last(world: &Arc<World>, restores: &Restores, mut random: fastrand::Rng) {
    let Some((run, disk)) = world.archive(&mut random) else { return };
    let disk = disk.copy();
    let deleted = world.judge.deleted();
    for (name, is_second) in [("restore-last", false), ("restore-again", true)] {
        let report = restore(world, name, &run, &disk, restores, None, random.fork()).await;
        // A delete that the server still worked at when its run had ended may take what was put back.
        let is_second = is_second && world.judge.deleted() == deleted;
        let changed = |report: &RestoreReport| -> u64 {
            report.namespaces.iter().map(|namespace| namespace.inserted_count + namespace.replaced_count).sum()
        };
        // Of several states of a document each replaces the one before.
        if let Some(report) = report.filter(|report| is_second && !restores.replace && changed(report) > 0) {
            world.trace.violated(|| format!("a second restore changes {} documents", changed(&report)));
        }
    }
}

/// Carries out one run of `restore` on a copy of a disk; `None` if it was killed, or ended without a report.
async fn restore(
    world: &Arc<World>,
    id: &str,
    archived_by: &str,
    disk: &Place,
    restores: &Restores,
    killed: Option<Duration>,
    mut random: fastrand::Rng,
) -> Option<RestoreReport> {
    let archive = directory(disk, archived_by)?;
    let Ok(states) = last_states(disk, &archive) else {
        world.trace.step(digest(id), || format!("{id} would find the archive of {archived_by} unreadable"));
        return None;
    };
    let namespaces: BTreeSet<&String> = states.keys().map(|(namespace, _)| namespace).collect();
    let only = restores.only.and_then(|only| namespaces.iter().nth(only % namespaces.len().max(1)).map(|only| (*only).clone()));
    let states = states.into_iter().filter(|((namespace, _), _)| only.as_ref().is_none_or(|only| only == namespace)).collect();
    let machine = Machine::new(SystemTime::UNIX_EPOCH + Duration::from_millis(world.now().unsigned_abs()));
    let link = Link::new(world, &machine, id, 0..2000, random.fork());
    let (_signals, signals) = watch::channel(None);
    let surroundings = Surroundings {
        run_id: id.to_owned(),
        policy: parse(
            "sweeper.yaml",
            "version: 1\ncollections:\n  - {namespace: a.b, field: at, expireAfter: 1d}\n",
            &|_| None,
            true,
        )
        .expect("a valid policy"),
        policies: watch::channel(None).1,
        only: only.into_iter().collect(),
        server: Arc::new(link.clone()),
        disk: disk.disk(),
        pause: None,
        signals,
    };
    let args = RestoreArgs { archive, dry_run: false, namespace: Vec::new(), replace: restores.replace, yes: true };
    world.trace.step(digest(id), || format!("{id} begins with the archive of {archived_by}"));
    world.judge.restore_begins(id, states, restores.replace);
    let ended = machine.run(simulated::restore(surroundings, &args));
    let ended = tokio::select! {
        biased;
        ended = ended => ended,
        () = sleep(killed.unwrap_or(Duration::MAX)) => {
            machine.kill();
            world.trace.step(4, || format!("{id} is killed"));
            return None;
        }
    };
    let code = ended.as_ref().map_or(u64::from(exit::CANNOT_RUN), |report| u64::from(report.exit_code));
    world.trace.step(code, || match &ended {
        Ok(report) => format!("{id} ends: {}", serde_json::to_string(report).unwrap_or_default()),
        Err(why) => format!("{id} ends without a report: {why}"),
    });
    let report = ended.ok()?;
    world.judge.restore_ended(id, &report, |namespace| world.model.documents(namespace));
    Some(report)
}

impl World {
    /// Returns the disk of a run that has archived, and the name of the run.
    fn archive(&self, random: &mut fastrand::Rng) -> Option<(String, Arc<SweeperDisk>)> {
        let archives = self.archives.lock();
        let with_archive: Vec<_> = archives.iter().filter(|(run, disk)| directory(&disk.get(), run).is_some()).collect();
        with_archive.get(random.usize(..with_archive.len().max(1))).map(|found| (*found).clone())
    }
}
