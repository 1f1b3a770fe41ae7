//! Others who drop, rename or replace a whole collection: the collection of a rule, one of children, or the journal.

use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, Document};

use super::World;
use super::choices::{Moved, What};
use super::documents::{Documents, object_id};
use super::kin::Kin;
use super::relations::JOURNAL;
use super::scenario::{START, Scenario};
use super::troubles::Troubles;

/// One in so many simulations has such a change.
const ONE_IN: u8 = 4;

impl Scenario {
    /// Lets others drop, rename or replace a collection, if the seed says so. What else the seed draws stays as it is.
    pub(super) fn move_away(&mut self, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x006d_6f76_6564);
        let soon = if random.bool() { 2_000 } else { 30_000 };
        let mut moved = Moved {
            what: What::Rule,
            after: random.u64(..soon),
            is_renamed: random.bool(),
            taken_after: if random.bool() { 0 } else { random.u64(1..10_000) },
        };
        if random.u8(..ONE_IN) > 0 {
            return;
        }
        if let Some(family) = &self.family {
            moved.what = match random.u8(..3) {
                0 => What::Rule,
                1 => What::Children(random.usize(..family.collections.len())),
                _ => What::Journal,
            };
        }
        if moved.what == What::Journal {
            // A run is sure to notice that its lease is gone only as long as it can ask the server.
            self.troubles = Troubles::default();
        }
        self.moved = Some(moved);
    }
}

/// Drops or renames a collection. Sooner or later another one has its name, with documents that have expired.
pub(super) async fn move_away(world: Arc<World>, moved: Moved, mut random: fastrand::Rng) {
    tokio::time::sleep(Duration::from_millis(moved.after)).await;
    let family = world.scenario.family.as_ref();
    let namespace = match (moved.what, family) {
        (What::Children(number), Some(family)) => family.collections[number].namespace,
        (What::Journal, _) => JOURNAL,
        _ => world.scenario.rules[0].rule.namespace.as_str(),
    };
    world.trace.step(9, || format!("{namespace} is {}", if moved.is_renamed { "renamed" } else { "dropped" }));
    let before = world.model.documents(namespace);
    if moved.what == What::Journal {
        world.judge.dropped(JOURNAL, before.clone(), world.now());
    } else if let Some(number) = world.model.number(namespace) {
        world.judge.moved(namespace, number, before.clone(), world.now());
    }
    match moved.is_renamed {
        true => world.model.rename_collection(namespace, "app.moved"),
        false => world.model.drop_collection(namespace),
    }
    if moved.taken_after > 0 {
        tokio::time::sleep(Duration::from_millis(moved.taken_after)).await;
    }
    match moved.what {
        What::Rule => take_name_of_rule(&world, &before, &mut random),
        What::Children(_) => put_some(&world, namespace, &before, &mut random),
        // Runs create it.
        What::Journal => {}
    }
}

/// Gives the first rule's collection documents, and where it has children, some of those that it had.
fn take_name_of_rule(world: &World, before: &[Document], random: &mut fastrand::Rng) {
    let rule = &world.scenario.rules[0].rule;
    for number in 0..random.u32(5..30) {
        let id = if rule.field == "_id" { object_id(START / 1_000_000, number).into() } else { format!("taken{number}").into() };
        let as_of = world.scenario.as_of.unwrap_or(world.now());
        let mut document: Document = Documents { random, as_of }.with_id(rule, id);
        if let Some(family) = &world.scenario.family {
            Kin(random).give_keys(family, &mut document);
        }
        world.put(&rule.namespace, &document["_id"].clone(), Some(document));
    }
    if world.scenario.family.is_some() {
        put_some(world, &rule.namespace, before, random);
    }
}

/// Puts some of the documents back that a collection had.
fn put_some(world: &World, namespace: &str, before: &[Document], random: &mut fastrand::Rng) {
    for document in before.iter().filter(|_| random.bool()) {
        let id: &Bson = &document["_id"];
        world.put(namespace, id, Some(document.clone()));
    }
}
