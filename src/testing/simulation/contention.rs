//! Runs that outlive their leases while another one waits for them.

use std::time::Duration;

use server_model::{Faults, Pace};

use super::choices::{Fate, Sweeper};
use super::scenario::{Scenario, SweptRule};
use super::troubles::Troubles;

/// One in so many simulations is of this kind.
const ONE_IN: u64 = 5;

/// Whether the runs of a seed outlive their leases.
pub(super) fn is_contended(seed: u64) -> bool {
    seed % ONE_IN == ONE_IN - 1
}

impl Scenario {
    /// Turns the scenario into one of two runs on the same collection, the first of which loses its lease in most cases. That
    /// run is cut off, killed or suspended for longer than a lease while its deletes are on their way or at work.
    pub(super) fn contend(&mut self, random: &mut fastrand::Rng) {
        // A server that takes long for one delete, or a run of many small ones.
        let is_dropped = random.u8(..5) == 0;
        let is_slow_delete = !is_dropped && random.bool();
        self.rules.truncate(1);
        self.rules.iter_mut().for_each(|swept| swept.lengthen(random, is_slow_delete));
        self.has_lease = true;
        self.lock_wait = Some(random.u64(60..400));
        self.miscounted = None;
        self.run_rate = None;
        self.max_deletes = None;
        self.max_duration = (random.u8(..6) == 0).then(|| random.u64(5..100));
        // A run is sure to notice only as long as it can ask the server.
        self.locks_dropped = is_dropped.then(|| random.u64(5_000..40_000));
        self.writes = self.writes.min(8);
        self.troubles = if is_dropped { Troubles::default() } else { Troubles::of_contention(random, is_slow_delete) };
        let mut first = Sweeper::first(random);
        if is_dropped {
            first.fate = Fate::Nothing;
        }
        let second =
            Sweeper { begins: random.u64(..15_000), clock: random.i64(-200_000..200_000), fate: Fate::Nothing, cuts: 0..1 };
        self.sweepers = vec![first, second];
    }
}

impl SweptRule {
    /// Removes what would end a run early.
    fn lengthen(&mut self, random: &mut fastrand::Rng, is_slow_delete: bool) {
        self.documents = random.u32(60..150);
        self.is_indexed = true;
        self.concurrency = random.u32(1..=2);
        self.batch_size = if is_slow_delete { random.u32(20..60) } else { random.u32(1..4) };
        self.rate = (!is_slow_delete).then(|| random.u32(1..4));
        self.max_deletes = None;
        self.max_delete_percent = None;
        self.max_lag = false;
        self.window = None;
    }
}

impl Sweeper {
    fn first(random: &mut fastrand::Rng) -> Self {
        let after = random.u64(5_000..50_000);
        let fate = match random.u8(..8) {
            0 | 1 => Fate::Sleeps { after: random.u64(..50_000), time: random.u64(40_000..200_000) },
            2 => Fate::Killed { after },
            3 | 4 => Fate::Signals(vec![after]),
            _ => Fate::Nothing,
        };
        Self { begins: 0, clock: random.i64(-200_000..200_000), fate, cuts: 30_000..150_000 }
    }
}

impl Troubles {
    fn of_contention(random: &mut fastrand::Rng, is_slow_delete: bool) -> Self {
        let mut chance = |most: f64| if random.bool() { random.f64() * most } else { 0.0 };
        let faults = Faults {
            cut_while: chance(0.1),
            late: chance(0.15),
            late_reply: chance(0.05),
            slow: chance(0.1),
            refused: chance(0.05),
            max_late: Duration::from_millis(random.u64(20_000..120_000)),
            ..Faults::default()
        };
        let pace = Pace {
            yields: if is_slow_delete { 1.0 } else { 0.1 },
            pause: 0..=if is_slow_delete { random.u64(500..6_000) } else { 50 },
            replication: 0..=random.u64(1..50),
            ..Pace::default()
        };
        Self {
            faults,
            pace,
            fail_over_every: (random.u8(..4) == 0).then(|| random.u64(10_000..60_000)),
            partition_every: random.bool().then(|| random.u64(5_000..40_000)),
        }
    }
}
