//! Policies that are read again while the runs last: other paces, taken over in mid run.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::choices::{Edition, Rereads};
use super::scenario::{Scenario, SweptRule};
use super::trace::{Trace, digest};
use crate::base::watch;
use crate::core::policy::Policy;
use crate::core::policy::parse::parse;

/// One in so many simulations has policies that are read again.
const ONE_IN: u8 = 4;

/// The policy that was read last.
pub(super) type LastRead = watch::Sender<Option<Arc<Policy>>>;

impl Scenario {
    /// Has the policies of the runs read again, if the seed says so. What else the seed draws stays as it is.
    pub(super) fn read_again(&mut self, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x0072_6572_6561_6473);
        if random.u8(..ONE_IN) == 0 {
            self.rereads = Some(Rereads { number: random.u32(1..6), every: random.u64(1..20_000), seed });
        }
    }

    /// Returns the policy of an edition, as a run reads it.
    pub(super) fn parsed(&self, edition: &Edition) -> Policy {
        parse("sweeper.yaml", &self.policy(edition), &|_| None, true).expect("a valid policy")
    }

    /// Returns the same scenario with other paces.
    fn paced(&self, random: &mut fastrand::Rng) -> Self {
        let maybe = |random: &mut fastrand::Rng, one_in: u8| random.u8(..one_in) == 0;
        let paced = |swept: &SweptRule| SweptRule {
            concurrency: random.u32(1..=4),
            batch_size: random.u32(1..100),
            rate: maybe(random, 3).then(|| random.u32(1..30)),
            max_lag: maybe(random, 3),
            max_head: maybe(random, 4),
            ..swept.clone()
        };
        let rules = self.rules.iter().map(paced).collect();
        let run_rate = maybe(random, 4).then(|| random.u32(1..50));
        Self { rules, run_rate, run_concurrency: maybe(random, 3).then(|| random.u32(1..=3)), ..self.clone() }
    }
}

/// Has a run read other paces now and then.
pub(super) async fn read_again(scenario: &Scenario, run: &str, edition: &Edition, last: &LastRead, trace: &Trace) {
    let Some(Rereads { number, every, seed }) = scenario.rereads else { return };
    let mut random = fastrand::Rng::with_seed(digest(run) ^ seed);
    for _ in 0..number {
        sleep(Duration::from_millis(random.u64(..every))).await;
        let paced = scenario.paced(&mut random);
        trace.step(12, || format!("{run} reads its policy again: {}", paced.policy(edition)));
        last.send_replace(Some(Arc::new(paced.parsed(edition))));
    }
}
