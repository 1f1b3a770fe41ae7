//! The order in which a rule's documents are deleted, by a look at the storage where that is needed.

use crate::core::plan::order::{self, OrderChoice};
use crate::core::plan::{PlannedRule, SweepRule};
use crate::core::policy::Order;
use crate::shell::server::Deployment;
use crate::shell::server::look::storage_sample;
use crate::shell::server::watch::load;

/// Chooses the order of a rule; `None` on a service that does not show the order of the storage, where there is no choice.
/// `run_limit` names a limit of the whole run under which the oldest documents go first.
pub(crate) async fn choose(
    deployment: &Deployment,
    planned: &PlannedRule,
    rule: &SweepRule,
    run_limit: Option<&str>,
) -> Option<OrderChoice> {
    if !deployment.facts.capabilities.record_order {
        return None;
    }
    let of_policy = &planned.rule;
    let choice = order::first_choice(of_policy, rule, &deployment.facts, run_limit);
    if choice.is_some() {
        return choice;
    }
    let cache = load::figures(deployment).await.and_then(|load| load.cache_size);
    let choice = order::by_cache(of_policy, rule, cache);
    if choice.is_some() {
        return choice;
    }
    Some(match storage_sample::of(deployment, rule, cache).await {
        Ok(sample) => order::by_sample(of_policy, rule.selection.size.average_bytes, &sample),
        Err(_) if of_policy.order == Order::Storage => OrderChoice::new(Order::Storage, "the policy says so"),
        Err(cause) => OrderChoice::new(Order::OldestFirst, &format!("the look at the storage failed: {cause}")),
    })
}
