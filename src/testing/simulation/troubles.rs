//! The troubles of one seed: faults of the way and of the servers, their pace, and fail-overs.

use std::time::Duration;

use server_model::{Faults, Pace};

/// The troubles of a simulation.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Troubles {
    pub faults: Faults,
    pub pace: Pace,
    /// Mean time between two fail-overs, in milliseconds.
    pub fail_over_every: Option<u64>,
    /// Mean time between two cuts of the way between a sweeper and the server, in milliseconds.
    pub partition_every: Option<u64>,
}

impl Troubles {
    /// Whether there are none.
    pub(super) fn are_none(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn of(random: &mut fastrand::Rng) -> Self {
        let mut chance = |most: f64| if random.u8(..3) == 0 { random.f64() * most } else { 0.0 };
        let faults = Faults {
            not_sent: chance(0.1),
            cut_before: chance(0.1),
            cut_while: chance(0.1),
            cut_after: chance(0.1),
            silent: chance(0.03),
            swallowed: chance(0.03),
            refused: chance(0.1),
            interrupted: chance(0.05),
            lost_cursor: chance(0.15),
            late: chance(0.1),
            late_reply: chance(0.1),
            slow: chance(0.1),
            max_late: Duration::from_millis(if random.bool() { random.u64(1..3000) } else { random.u64(1..100_000) }),
            ..Faults::default()
        };
        let slowly = random.u8(..4) == 0;
        let pace = Pace {
            yields: random.f64(),
            pause: 0..=if random.u8(..6) == 0 { random.u64(1..4000) } else { 3 },
            replication: 0..=if slowly { random.u64(1..8000) } else { random.u64(1..50) },
            ..Pace::default()
        };
        Self {
            faults,
            pace,
            fail_over_every: random.bool().then(|| random.u64(500..40_000)),
            partition_every: (random.u8(..3) == 0).then(|| random.u64(1000..60_000)),
        }
    }
}
