//! The collections that the sweep of a rule is bound to, and the looks that show whether they are still the same.
//!
//! Where commands name a collection by its UUID, the server looks. Elsewhere the catalog is looked at before the first delete,
//! and before a rule is called complete. It is looked at again when a delete is about to be sent and the last look is older than
//! [`LOOK_EVERY`].

use std::time::Duration;

use bson::Uuid;
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::warn;

use crate::core::plan::SweepRule;
use crate::core::policy::namespace::Namespace;
use crate::shell::server::Deployment;
use crate::shell::server::look::bound::{self, BoundChange};
use crate::shell::server::look::privileges;
use crate::shell::server::wire::error::ServerError;
use crate::shell::server::wire::retry::{Retries, retry};

/// Age of a look at the catalog after which no delete is sent without another one.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The collections of a rule.
pub(crate) struct Binding {
    deployment: Deployment,
    /// The namespace under which retries are logged.
    reported_as: Namespace,
    collections: Vec<(Namespace, Option<Uuid>)>,
    last: Mutex<LastCatalogLook>,
}

/// The last look at the catalog that found everything unchanged.
#[derive(Default)]
struct LastCatalogLook {
    begun: Option<Instant>,
    /// Number of times at which earlier looks ceased to count.
    forgotten: u64,
}

impl Binding {
    /// Creates the binding of a rule and of its children. `deployment` is bound to the rule.
    pub(crate) fn new(deployment: &Deployment, rule: &SweepRule) -> Self {
        let (deployment, reported_as) = (deployment.clone(), rule.namespace.clone());
        Self { deployment, reported_as, collections: bound::collections(rule), last: Mutex::default() }
    }

    /// Whether the server itself looks at each command.
    pub(crate) fn is_by_server(&self) -> bool {
        self.collections.iter().all(|(namespace, _)| self.deployment.is_bound(namespace))
    }

    /// Lets no earlier look count for the deletes that follow.
    pub(crate) fn forget(&self) {
        let mut last = self.last.lock();
        last.begun = None;
        last.forgotten += 1;
    }

    /// Waits for a look that is recent enough for a delete to be sent, where the server does not look itself.
    ///
    /// Errors: the reason why nothing may be deleted any more.
    pub(crate) async fn fresh(&self) -> Result<(), String> {
        if self.is_by_server() {
            return Ok(());
        }
        let (begun, forgotten) = {
            let last = self.last.lock();
            if last.begun.is_some_and(|begun| begun.elapsed() < LOOK_EVERY) {
                return Ok(());
            }
            (Instant::now(), last.forgotten)
        };
        if let Some(changed) = self.changed().await? {
            return Err(changed);
        }
        let mut last = self.last.lock();
        if last.forgotten == forgotten {
            last.begun = last.begun.max(Some(begun));
        }
        Ok(())
    }

    /// Looks whether a collection is another one, and says which, and what became of it; `None` if all are the same.
    ///
    /// Errors: the reason why it cannot be told.
    pub(crate) async fn changed(&self) -> Result<Option<String>, String> {
        for (namespace, uuid) in &self.collections {
            let mut retries = Retries::patient();
            let next_wait = |cause: &ServerError| {
                let wait = retries.wait(cause)?;
                let rule = &self.reported_as;
                warn!(namespace = %rule, "{rule}: looking at the catalog: {cause}; trying again in {} ms", wait.as_millis());
                Some(wait)
            };
            let look = retry(next_wait, || self.deployment.change(namespace, *uuid)).await;
            let change = look.map_err(|cause| {
                let why = privileges::explain(&cause, namespace, &["listCollections"]);
                format!("looking whether `{namespace}` is still the collection that was counted: {why}")
            })?;
            if let Some(change) = change {
                return Ok(Some(self.said(&change)));
            }
        }
        Ok(None)
    }

    fn said(&self, change: &BoundChange) -> String {
        let may_be_hit = change.is_taken() && !self.is_by_server();
        let hit = match may_be_hit {
            true => format!(
                "; deletes of the {} s before may have been in that one, because this server does not take `collectionUUID`",
                LOOK_EVERY.as_secs()
            ),
            false => String::new(),
        };
        format!("{}{hit}", change.said())
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;
    use crate::core::facts::Topology;
    use crate::testing::made_up::planned;
    use crate::testing::scripted::Script;
    use crate::testing::scripted::ScriptedReply::{self, Batch, End};

    fn listed(byte: u8) -> [ScriptedReply; 2] {
        let info = doc! { "uuid": Uuid::from_bytes([byte; 16]) };
        [Batch(vec![doc! { "name": "c", "type": "collection", "info": info }]), End]
    }

    fn binding(answers: Vec<[ScriptedReply; 2]>, topology: Topology) -> (std::sync::Arc<Script>, Binding) {
        let script = Script::new(answers.into_iter().flatten());
        let mut deployment = script.deployment();
        deployment.facts.topology = topology;
        let rule = planned("", 4).decision.countable().unwrap().clone();
        let binding = Binding::new(&deployment.bound_to(&rule), &rule);
        (script, binding)
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_counts_for_two_seconds_unless_it_is_forgotten() {
        let (script, binding) =
            binding(vec![listed(7), listed(7), listed(7), listed(8), [Batch(vec![]), End]], Topology::Sharded);
        for (seconds, looks) in [(0, 1), (1, 1), (1, 2), (1, 2)] {
            tokio::time::advance(Duration::from_secs(seconds)).await;
            assert_eq!((binding.fresh().await, script.sent().len()), (Ok(()), looks));
        }
        binding.forget();
        assert_eq!((binding.fresh().await, script.sent().len()), (Ok(()), 3));
        tokio::time::advance(Duration::from_secs(2)).await;
        let why = binding.fresh().await.unwrap_err();
        assert!(why.starts_with("`app.c` was replaced by another collection during the run; deletes of the 2 s before"), "{why}");
    }

    #[tokio::test]
    async fn where_the_server_looks_itself_nothing_is_asked_before_a_delete() {
        let (script, binding) = binding(vec![[Batch(vec![]), End], [Batch(vec![]), End]], Topology::ReplicaSet);
        assert_eq!((binding.is_by_server(), binding.fresh().await, script.sent().len()), (true, Ok(()), 0));
        assert_eq!(binding.changed().await, Ok(Some("`app.c` was dropped during the run".to_owned())));
        // None of the deletes can have been in another collection: that it was replaced is all there is to say.
        let (_, binding) = self::binding(vec![listed(8)], Topology::ReplicaSet);
        let why = binding.changed().await.unwrap().unwrap();
        assert_eq!(why, "`app.c` was replaced by another collection during the run");
        let (_, binding) = self::binding(vec![[Batch(vec![]), End]], Topology::Sharded);
        assert_eq!(binding.changed().await, Ok(Some("`app.c` was dropped during the run".to_owned())));
    }

    #[tokio::test]
    async fn looks_that_began_before_and_after_one_was_forgotten_are_told_apart() {
        let (_, binding) = binding(Vec::new(), Topology::Sharded);
        let mut seen = Vec::new();
        for _ in 0..3 {
            seen.push(binding.last.lock().forgotten);
            binding.forget();
        }
        seen.dedup();
        assert_eq!(seen.len(), 3);
    }
}
