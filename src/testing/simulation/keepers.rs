//! Others who place, change and remove holds, and give documents other tenants.

use std::sync::Arc;
use std::time::Duration;

use bson::Bson;

use super::World;
use super::kin::Kin;
use super::relations::{HELD_KEY, HOLDS, Holds, TENANT, TENANTS};

/// Number of different holds.
const MOST: i32 = 5;

/// Writes holds now and then.
pub(super) async fn write(world: Arc<World>, mut random: fastrand::Rng) {
    let Some(holds) = world.scenario.holds.clone() else { return };
    for _ in 0..holds.writes {
        tokio::time::sleep(Duration::from_millis(random.u64(..holds.writes_every))).await;
        act(&world, &holds, &mut random);
    }
}

/// Removes the holds and the settings without a proper key, once no fail-over can bring them back.
pub(super) fn tidy(world: &Arc<World>) {
    for (namespace, key) in [(HOLDS, HELD_KEY), (TENANTS, TENANT)] {
        for document in world.model.documents(namespace) {
            if matches!(document.get(key), None | Some(Bson::Null | Bson::Array(_))) {
                world.place(namespace, &document["_id"], None);
            }
        }
    }
}

fn act(world: &Arc<World>, holds: &Holds, random: &mut fastrand::Rng) {
    let id = random.i32(1..=MOST);
    match random.u8(..12) {
        0..5 => {
            let hold = Kin(random).hold(id);
            world.place(HOLDS, &id.into(), Some(hold));
        }
        5 => world.place(HOLDS, &id.into(), None),
        6 => {
            if let Some(mut hold) = world.model.document(HOLDS, &id.into()) {
                hold.insert("active", !hold.get_bool("active").unwrap_or(false));
                hold.insert("v", random.i32(0..));
                world.place(HOLDS, &id.into(), Some(hold));
            }
        }
        7 if holds.has_malformed => {
            let hold = Kin(random).malformed(id);
            world.place(HOLDS, &id.into(), Some(hold));
        }
        _ => {
            let rule = &world.scenario.rules[random.usize(..world.scenario.rules.len())].rule;
            give_another_tenant(world, &rule.namespace, holds.path, random);
        }
    }
}

/// Gives a document of a namespace another tenant at a path.
pub(super) fn give_another_tenant(world: &World, namespace: &str, path: &str, random: &mut fastrand::Rng) {
    let all = world.model.documents(namespace);
    if !all.is_empty() {
        let mut document = all[random.usize(..all.len())].clone();
        Kin(random).give_tenant(path, &mut document);
        world.put(namespace, &document["_id"].clone(), Some(document));
    }
}
