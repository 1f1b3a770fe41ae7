//! Steers a sweep: it takes over pace and windows of the policies that are read while it runs.

use bson::DateTime;
use tracing::info;

use super::{Ready, Sweeping};
use crate::base::instant::Instant;
use crate::base::log::RUN;
use crate::base::machine::wall_clock;
use crate::core::plan::SweepRule;
use crate::core::policy::limits::Limits;
use crate::core::policy::reread::Pacing;
use crate::core::report::pacing::PacingReport;
use crate::shell::server::Deployment;

/// Returns the number of delete commands in flight that the rules need together: those of the rule with the most.
pub(super) fn largest_concurrency<'a>(
    deployment: &Deployment,
    rules: impl Iterator<Item = (&'a SweepRule, &'a Limits)>,
) -> Option<u32> {
    rules.map(|(rule, limits)| rule.concurrency(limits, &deployment.facts.capabilities)).max()
}

/// Takes over the pacing of each policy that is read, those included that were read before. Never resolves.
pub(super) async fn follow(sweeping: &Sweeping<'_>, ready: &[Ready<'_>]) {
    let Sweeping { session, deployment, budget, watches, .. } = sweeping;
    let mut policies = session.policies.clone();
    let mut pacing = Pacing::of(&session.policy);
    loop {
        let policy = policies.borrow_and_update().clone();
        let changes = policy.map(|policy| pacing.take(&policy)).unwrap_or_default();
        if !changes.is_empty() {
            let of_rules = || ready.iter().filter_map(|ready| Some((ready.rule, pacing.rules.get(&ready.rule.name)?)));
            watches.begin(deployment, of_rules().map(|(_, limits)| limits)).await;
            budget.set_pacing(&pacing, pacing.concurrency.or_else(|| largest_concurrency(deployment, of_rules())));
            for change in changes {
                let change = PacingReport::of(change, Instant(DateTime::from_system_time(wall_clock())));
                info!(
                    target: RUN,
                    event = "pacingChanged",
                    rule = change.rule,
                    key = change.key,
                    before = change.before,
                    after = change.after,
                    "{}",
                    change.words()
                );
                session.so_far.paced(change);
            }
        }
        if policies.changed().await.is_err() {
            // No policy is read any more.
            std::future::pending::<()>().await;
        }
    }
}
