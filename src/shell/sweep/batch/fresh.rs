//! The basis of a delete, read at the last moment before each command: whether the collections are still the same, the keys that
//! are held, and the parents of children.

use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};
use futures_util::FutureExt;

use crate::base::values::raw::RawValue;
use crate::core::plan::Selection;
use crate::shell::lock::moment::ServerTime;
use crate::shell::server::delete::restriction::Parents;
use crate::shell::server::look::parents;
use crate::shell::server::wire::error::Result;
use crate::shell::sweep::{KeysViews, RuleSweep};

/// Age of a look at the parents from which on the server refuses a delete of their children, by its own clock.
const MAX_AGE: Duration = Duration::from_secs(2);

/// A selection, and the time for which it may be used.
pub(crate) struct Fresh {
    pub selection: Selection,
    /// Instant of the server's clock at which it is too late for a delete to begin.
    pub too_late: DateTime,
}

/// Returns the selection for a command that is sent now: without the keys that are held back, and without the children whose
/// parents are there. Returns `None` if the rule has neither holds nor periods, and the command deletes no children.
///
/// Errors: the reason why nothing may be deleted any more.
pub(crate) async fn fresh(sweep: &RuleSweep, parents: Option<&Parents>) -> std::result::Result<Option<Fresh>, String> {
    // No rule has both: the children go by the holds of their parents.
    match parents {
        Some(parents) => without_parents(sweep, parents).await.map(Some),
        None => loop {
            sweep.binding.fresh().await?;
            if let Some(fresh) = without_held(sweep).now_or_never() {
                return fresh;
            }
            // The collection may be replaced while the holds are waited for.
            without_held(sweep).await?;
        },
    }
}

async fn without_held(sweep: &RuleSweep) -> std::result::Result<Option<Fresh>, String> {
    let KeysViews { holds, periods } = &sweep.keys;
    if !sweep.rule.selection.has_keys() {
        return Ok(None);
    }
    let mut selection = sweep.rule.selection.clone();
    let mut too_late: Option<DateTime> = None;
    for (view, held) in [(holds, &mut selection.holds), (periods, &mut selection.periods)] {
        let (Some(view), Some(held)) = (view, held) else { continue };
        let read = view.fresh().await?;
        *held = held.with(&read.keys);
        too_late = Some(too_late.map_or(read.too_late(), |earlier| earlier.min(read.too_late())));
    }
    Ok(too_late.map(|too_late| Fresh { selection, too_late }))
}

async fn without_parents(sweep: &RuleSweep, parents: &Parents) -> std::result::Result<Fresh, String> {
    let (time, living) = look(sweep, parents).await.map_err(|cause| sweep.explain_read(&cause))?;
    // A collection that is gone has no parents either.
    sweep.binding.forget();
    sweep.binding.fresh().await?;
    let decoded: Option<Vec<Bson>> = living.iter().map(RawValue::decoded).collect();
    let Some(decoded) = decoded else {
        return Err("the key of a parent that is there again cannot be read".to_owned());
    };
    let mut selection = sweep.rule.selection.clone();
    if !living.is_empty() {
        let of_living: Document = doc! { &parents.field: { "$nin": decoded } };
        selection.predicate = doc! { "$and": [selection.predicate, of_living] };
        let mut known = sweep.living.lock();
        for key in living {
            if !known.contains(&key) {
                known.push(key);
            }
        }
    }
    Ok(Fresh { selection, too_late: time.after(MAX_AGE) })
}

/// Looks which of the parents are there. Returns the server's time before the look.
async fn look(sweep: &RuleSweep, parents: &Parents) -> Result<(ServerTime, Vec<RawValue>)> {
    let (deployment, namespace) = (&sweep.deployment, &sweep.rule.namespace);
    let time = parents::clock(deployment).await?;
    Ok((time, parents::living(deployment, namespace, &parents.key, &parents.keys).await?))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bson::{Timestamp, Uuid};

    use super::*;
    use crate::core::facts::Topology;
    use crate::core::plan::ParentKey;
    use crate::core::plan::periods::KeptKeys;
    use crate::shell::lock::lease::Leases;
    use crate::shell::server::watch::Watches;
    use crate::shell::server::watch::holds::{self, HoldsWatches};
    use crate::shell::sweep::engine::tests::sweep_of;
    use crate::testing::made_up::planned;
    use crate::testing::made_up::sweep;
    use crate::testing::scripted::Script;
    use crate::testing::scripted::ScriptedReply::{Batch, End, Late, Reply};

    #[tokio::test]
    async fn children_go_within_two_seconds_of_a_look_at_their_parents_on_a_confirmed_primary_and_by_a_majority() {
        let hello = || Reply(doc! { "localTime": DateTime::from_millis(1_000_000), "ok": 1.0 });
        let there = |ids: &[i32]| Batch(ids.iter().map(|id| doc! { "_id": id }).collect());
        let values = |ids: &[i32]| ids.iter().map(|id| RawValue::of(*id).unwrap()).collect::<Vec<_>>();
        for living in [vec![], vec![2], vec![2, 3]] {
            let time = Timestamp { time: 1_000, increment: 7 };
            let confirmed = Reply(doc! { "cursor": { "firstBatch": [] }, "operationTime": time, "ok": 1.0 });
            let script = Script::new([hello(), confirmed, there(&living), End]);
            let sweep = sweep::sweep(&script, 100, &Leases::default(), None);
            let parents = Parents { field: "p".into(), key: ParentKey::id(), keys: values(&[1, 2, 3]) };
            let fresh = fresh(&sweep, Some(&parents)).await.unwrap().unwrap();
            assert_eq!(fresh.too_late, DateTime::from_millis(1_002_000));
            let concern = |command: usize| script.sent()[command].get_document("readConcern").unwrap().clone();
            assert_eq!(concern(1), doc! { "level": "linearizable" });
            assert_eq!(concern(2), doc! { "level": "majority", "afterClusterTime": time });
            assert_eq!(*sweep.living.lock(), values(&living));
            let whole = sweep.rule.selection.predicate.clone();
            let kept = fresh.selection.predicate.get_array("$and").ok().map(|both| both[1].clone());
            assert_eq!(kept.is_none(), living.is_empty());
            match kept {
                Some(kept) => {
                    let Bson::Document(kept) = kept else { panic!("{kept}") };
                    let list = kept.get_document("p").unwrap().get_array("$nin").unwrap();
                    assert!(living.iter().all(|id| list.contains(&Bson::from(*id))), "{kept}");
                    assert_eq!(fresh.selection.predicate.get_array("$and").unwrap()[0], whole.into());
                }
                None => assert_eq!(fresh.selection.predicate, whole),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn where_the_server_does_not_look_at_the_collection_itself_that_is_done_after_each_look_at_the_parents() {
        let listed = || doc! { "name": "c", "type": "collection", "info": { "uuid": Uuid::from_bytes([7; 16]) } };
        let hello = || Reply(doc! { "localTime": DateTime::from_millis(1_000_000), "ok": 1.0 });
        let look = || [hello(), Batch(vec![]), End, Batch(vec![listed()]), End];
        let script = Script::new(look().into_iter().chain(look()));
        let mut deployment = script.deployment();
        deployment.facts.topology = Topology::Sharded;
        let rule = planned("", 4).decision.countable().unwrap().clone();
        let sweep = sweep_of(&deployment, &rule, &Watches::none());
        let parents = Parents { field: "p".into(), key: ParentKey::id(), keys: vec![RawValue::of(1).unwrap()] };
        for looks in 1..=2 {
            assert!(fresh(&sweep, Some(&parents)).await.unwrap().is_some());
            assert_eq!(script.sent().iter().filter(|sent| sent.contains_key("listCollections")).count(), looks);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_delete_of_a_rule_with_holds_carries_those_of_the_last_read_and_is_refused_if_it_comes_late() {
        let hello = Reply(doc! { "localTime": DateTime::from_millis(5_000), "ok": 1.0 });
        let script = Script::new([hello, Batch(vec![doc! { "t": "a" }]), End]);
        let mut deployment = script.deployment();
        deployment.facts.topology = Topology::Standalone;
        let rule = planned("    holds: {collection: legal.holds, key: t}\n", 4).decision.countable().unwrap().clone();
        let held = rule.selection.holds.clone().unwrap();
        let first = holds::read(&deployment, &held).await.unwrap();
        let watches = Watches { holds: HoldsWatches::new(&deployment, vec![(held.clone(), first)]), ..Watches::none() };
        let sweep = sweep_of(&deployment, &rule, &watches);
        let fresh = fresh(&sweep, None).await.unwrap().unwrap();
        // 18 of the 20 seconds within which a hold is respected.
        assert_eq!(fresh.too_late, DateTime::from_millis(23_000));
        let keys = KeptKeys::of(vec![RawValue::of("a").unwrap()]).unwrap();
        assert_eq!(fresh.selection.holds, Some(held.with(&Arc::new(keys))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_collection_is_looked_at_again_after_its_holds_were_waited_for() {
        let read = |seconds| {
            let hello = Late(Duration::from_secs(seconds), doc! { "localTime": DateTime::from_millis(5_000), "ok": 1.0 });
            [hello, Batch(vec![doc! { "t": "a" }]), End]
        };
        let listed = |byte: u8| {
            let info = doc! { "uuid": Uuid::from_bytes([byte; 16]) };
            [Batch(vec![doc! { "name": "c", "type": "collection", "info": info }]), End]
        };
        for (uuid, is_same) in [(7, true), (8, false)] {
            let looks = listed(7).into_iter().chain(read(3)).chain(listed(uuid));
            let script = Script::new(read(0).into_iter().chain(looks));
            let mut deployment = script.deployment();
            deployment.facts.topology = Topology::Sharded;
            let rule = planned("    holds: {collection: legal.holds, key: t}\n", 4).decision.countable().unwrap().clone();
            let held = rule.selection.holds.clone().unwrap();
            let first = holds::read(&deployment, &held).await.unwrap();
            // The read is too old for a delete by now.
            tokio::time::advance(Duration::from_secs(60)).await;
            let watches = Watches { holds: HoldsWatches::new(&deployment, vec![(held, first)]), ..Watches::none() };
            let sweep = sweep_of(&deployment, &rule, &watches);
            let fresh = fresh(&sweep, None).await;
            // A replaced collection is looked at once more before that is reported.
            let looks = script.sent().iter().filter(|sent| sent.contains_key("listCollections")).count();
            assert_eq!(looks, if is_same { 2 } else { 3 });
            match fresh {
                Ok(fresh) => assert!(is_same && fresh.is_some()),
                Err(why) => assert!(!is_same && why.contains("was replaced by another collection during the run"), "{why}"),
            }
        }
    }
}
