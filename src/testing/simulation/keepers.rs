//! Others who place, change and remove holds, and give documents other tenants.

use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, Document};

use super::World;
use super::kin::Kin;
use super::relations::{HELD_KEY, HOLDS, Holds};

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

/// Removes the holds without a proper key, once no fail-over can bring them back.
pub(super) fn tidy(world: &Arc<World>) {
    for hold in world.model.documents(HOLDS) {
        if matches!(hold.get(HELD_KEY), None | Some(Bson::Null | Bson::Array(_))) {
            place(world, &hold["_id"], None);
        }
    }
}

fn act(world: &Arc<World>, holds: &Holds, random: &mut fastrand::Rng) {
    let id = random.i32(1..=MOST);
    match random.u8(..12) {
        0..5 => {
            let hold = Kin(random).hold(id);
            place(world, &id.into(), Some(hold));
        }
        5 => place(world, &id.into(), None),
        6 => {
            if let Some(mut hold) = world.model.document(HOLDS, &id.into()) {
                hold.insert("active", !hold.get_bool("active").unwrap_or(false));
                hold.insert("v", random.i32(0..));
                place(world, &id.into(), Some(hold));
            }
        }
        7 if holds.has_malformed => {
            let hold = Kin(random).malformed(id);
            place(world, &id.into(), Some(hold));
        }
        _ => {
            let rule = &world.scenario.rules[random.usize(..world.scenario.rules.len())].rule;
            let all = world.model.documents(&rule.namespace);
            if !all.is_empty() {
                let mut document = all[random.usize(..all.len())].clone();
                Kin(random).give_tenant(holds.path, &mut document);
                world.put(&rule.namespace, &document["_id"].clone(), Some(document));
            }
        }
    }
}

/// Writes a hold, and tells the judge once a majority knows it.
fn place(world: &Arc<World>, id: &Bson, hold: Option<Document>) {
    let Some(write) = world.put(HOLDS, id, hold) else { return };
    world.tell_once_known(write);
}
