//! The actors besides the sweepers: writers, the TTL monitor of the server, fail-overs.

use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, Document};

use super::World;
use super::documents::{Documents, in_format, object_id};
use super::oracle::Rule;
use super::scenario::{LOCKS, START};

/// Writes now and then: moves dates, changes types, replaces, deletes, and inserts again under the same `_id`.
pub(super) async fn write(world: Arc<World>, mut random: fastrand::Rng) {
    let mut deleted: Vec<(String, Document)> = Vec::new();
    for number in 0..world.scenario.writes {
        tokio::time::sleep(Duration::from_millis(random.u64(..world.scenario.writes_every))).await;
        let rules = &world.scenario.rules;
        let rule = rules[random.usize(..rules.len())].rule.clone();
        let all = world.model.documents(&rule.namespace);
        let kind = random.u8(..12);
        if all.is_empty() || kind == 0 {
            let id = Bson::from(format!("new{}", random.u32(..)));
            let document = documents(&world, &mut random).with_id(&rule, new_id(&rule, id, number));
            world.put(&rule.namespace, &document["_id"].clone(), Some(document));
            continue;
        }
        if kind < 3
            && let Some((namespace, document)) = deleted.pop()
        {
            let rule = world.scenario.rules.iter().find(|swept| swept.rule.namespace == namespace).expect("its rule");
            let again = documents(&world, &mut random).with_id(&rule.rule, document["_id"].clone());
            let again = if random.bool() { again } else { document };
            world.put(&namespace, &again["_id"].clone(), Some(again));
            continue;
        }
        let mut document = all[random.usize(..all.len())].clone();
        let id = document["_id"].clone();
        document.insert("v", random.i32(0..));
        match kind {
            3 | 4 => {
                deleted.push((rule.namespace.clone(), document));
                world.put(&rule.namespace, &id, None);
                continue;
            }
            5 => document = documents(&world, &mut random).with_id(&rule, id.clone()),
            6 => drop(document.insert("status", if random.bool() { "done" } else { "held" })),
            7 if rule.ttl_field.is_some() => {
                drop(document.insert("ttl", if random.bool() { Bson::from(-1) } else { Bson::from(1) }))
            }
            _ if rule.field == "_id" => {}
            8 => drop(document.insert(rule.field, "gone elsewhere")),
            9 => {
                let date = documents(&world, &mut random).date(&rule, None);
                document.insert(rule.field, date);
            }
            // Most often: the document is used again.
            _ => drop(document.insert(rule.field, in_format(rule.format, world.now(), random.u8(..)))),
        }
        world.put(&rule.namespace, &id, Some(document));
    }
}

fn new_id(rule: &Rule, id: Bson, number: u32) -> Bson {
    if rule.field == "_id" { object_id(START / 1000, 1_000_000 + number).into() } else { id }
}

fn documents<'a>(world: &World, random: &'a mut fastrand::Rng) -> Documents<'a> {
    Documents { random, as_of: world.scenario.as_of.unwrap_or(world.now()) }
}

/// Deletes what has expired, as the server's own TTL monitor would.
pub(super) async fn monitor(world: Arc<World>, mut random: fastrand::Rng) {
    loop {
        tokio::time::sleep(Duration::from_millis(random.u64(100..20_000))).await;
        // The last run counts what is held, and is judged by what is left.
        if world.is_calm() {
            return;
        }
        for swept in &world.scenario.rules {
            let rule = &swept.rule;
            let expired =
                world.model.documents(&rule.namespace).into_iter().filter(|document| rule.is_expired(document, world.now()));
            for document in expired.take(random.usize(..5)).collect::<Vec<_>>() {
                world.put(&rule.namespace, &document["_id"], None);
            }
        }
    }
}

/// Drops the collection of the leases, unless the troubles are over: then the run that follows would have to stop.
pub(super) async fn drop_locks(world: Arc<World>, after: u64) {
    tokio::time::sleep(Duration::from_millis(after)).await;
    if world.is_calm() {
        return;
    }
    world.trace.step(8, || format!("{LOCKS} is dropped"));
    world.judge.dropped(LOCKS, world.model.documents(LOCKS), world.now());
    world.model.drop_collection(LOCKS);
}

/// Elects other primaries now and then.
pub(super) async fn fail_over(world: Arc<World>, mut random: fastrand::Rng, every: u64) {
    loop {
        tokio::time::sleep(Duration::from_millis(random.u64(every / 2..every * 2))).await;
        if world.is_calm() {
            return;
        }
        let away = Duration::from_millis(if random.bool() { random.u64(..100) } else { random.u64(..12_000) });
        let most = world.scenario.max_skew;
        world.fail_over(away, random.i64(-most..most));
        if random.u8(..3) == 0 {
            world.hold_replication(Duration::from_millis(random.u64(..20_000)));
        }
    }
}
