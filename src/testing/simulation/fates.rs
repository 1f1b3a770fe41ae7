//! The fates of the runs: signals, kills, a sleeping machine, a full disk.

use super::choices::{Fate, Sweeper};
use super::scenario::Scenario;

/// One in so many simulations has three runs at once.
const ONE_IN: u8 = 6;

impl Scenario {
    /// Lets three runs sweep at once, if the seed says so. What else the seed draws stays as it is.
    pub(super) fn crowd(&mut self, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x0063_726f_7764);
        if random.u8(..ONE_IN) > 0 {
            return;
        }
        for number in (0..3).skip(self.sweepers.len()) {
            let mut sweeper = Sweeper::of(&mut random, number, self.archives);
            let after = random.u64(..30_000);
            match random.u8(..4) {
                0 => sweeper.fate = Fate::Killed { after },
                1 => sweeper.fate = Fate::Sleeps { after, time: random.u64(1..150_000) },
                _ => {}
            }
            self.sweepers.push(sweeper);
        }
        // Else one of them most often finds nothing to do.
        self.rules.iter_mut().for_each(|swept| swept.rate = swept.rate.or(random.bool().then_some(10)));
    }
}

impl Sweeper {
    pub(super) fn of(random: &mut fastrand::Rng, number: u32, archives: bool) -> Self {
        let after = if random.bool() { random.u64(..2000) } else { random.u64(..60_000) };
        let fate = match random.u8(..12) {
            0 => Fate::Signals(vec![after]),
            1 => Fate::Signals(vec![after, after + random.u64(1..4000)]),
            2 | 3 => Fate::Killed { after },
            4 => Fate::Sleeps { after, time: random.u64(1..150_000) },
            5 => Fate::ClockSet { after, by: random.i64(-200_000..200_000) },
            6 if archives => Fate::DiskFull { bytes: random.usize(..20_000) },
            _ => Fate::Nothing,
        };
        let begins = if number == 0 { 0 } else { random.u64(..20_000) };
        Self { begins, clock: random.i64(-200_000..200_000), fate, cuts: 0..90_000 }
    }
}
