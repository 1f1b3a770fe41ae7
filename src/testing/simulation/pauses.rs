//! The pause file, which holds the runs back now and then; others create parents again meanwhile.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::World;
use super::choices::Pauses;
use super::relatives;
use super::scenario::Scenario;

/// One in so many simulations has a pause file, and more of those with children.
const ONE_IN: u8 = 8;

/// Time between two looks at the journal.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Longest time to wait until children are about to be deleted.
const MAX_WAIT: Duration = Duration::from_secs(20);

impl Scenario {
    /// Lets a pause file hold the runs back at times, if the seed says so. What else the seed draws stays as it is.
    pub(super) fn hold_back(&mut self, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x7061_7573_6573);
        // Without troubles a run is judged by whether it begins a batch.
        let one_in = if self.family.is_some() || self.troubles.are_none() { 2 } else { ONE_IN };
        if random.u8(..one_in) == 0 {
            self.pauses = Some(Pauses {
                number: random.u32(..5),
                every: random.u64(1..10_000),
                longest: random.u64(1000..20_000),
                looks: (random.u8(..3) == 0).then(|| random.u8(1..8)),
            });
        }
    }
}

/// Pauses the runs now and then.
pub(super) async fn hold_back(world: Arc<World>, pauses: Pauses, mut random: fastrand::Rng) {
    for _ in 0..pauses.number {
        sleep(Duration::from_millis(random.u64(..pauses.every))).await;
        let begun = Instant::now();
        while random.u8(..8) > 0 && !relatives::are_under_way(&world) && begun.elapsed() < MAX_WAIT {
            sleep(LOOK_EVERY).await;
        }
        let time = random.u64(1..pauses.longest);
        world.trace.step(10, || format!("the pause file is there for {time} ms"));
        world.set_pause(true);
        let before = near_two_seconds(&mut random).min(time);
        sleep(Duration::from_millis(time - before)).await;
        if random.u8(..4) > 0 {
            relatives::create_again(&world, &mut random);
        }
        sleep(Duration::from_millis(before)).await;
        world.trace.step(11, || "the pause file is gone".into());
        world.set_pause(false);
    }
}

/// Returns milliseconds about as long as a look at parents counts.
pub(super) fn near_two_seconds(random: &mut fastrand::Rng) -> u64 {
    match random.u8(..8) {
        0 => 0,
        1 => random.u64(..2500),
        2 => 1900,
        3 => 2100,
        4 => 2000,
        _ => random.u64(1980..2020),
    }
}
