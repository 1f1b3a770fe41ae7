//! Others who change the settings that say how long the documents of a tenant live, and give documents other tenants.

use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, Document, doc};

use super::World;
use super::keepers::give_another_tenant;
use super::kin::Kin;
use super::relations::{PERIOD, Periods, TENANT, TENANTS};

/// Number of different settings.
const MOST: i32 = 6;

/// Returns a setting of a tenant, which no other one is equal to. `own` is the time of a rule in seconds.
pub(super) fn setting(periods: &Periods, id: i32, own: Option<i64>, random: &mut fastrand::Rng) -> Document {
    let mut setting = doc! { "_id": id, TENANT: Kin(random).tenant(), "v": random.i32(0..) };
    if let Some(value) = value(periods.unit.1, own.unwrap_or(10_000), random) {
        setting.insert(PERIOD, value);
    }
    setting
}

/// Returns a period, around the time of a rule in seconds at times, in a unit of seconds. `None` for a setting without one.
fn value(unit: i64, own: i64, random: &mut fastrand::Rng) -> Option<Bson> {
    let seconds = match random.u8(..12) {
        0 => return None,
        1 => return Some(Bson::Int32(-1)),
        2 => return Some([0.into(), Bson::Int64(-2), 1.5.into(), "7".into(), Bson::Null][random.usize(..5)].clone()),
        3 => own,
        4 => own + random.i64(-1..=1) * unit,
        5 => own * 2,
        6 => own / 2,
        _ => random.i64(1..200_000),
    };
    let number = (seconds / unit).max(1);
    Some(match random.u8(..3) {
        0 => Bson::Double(number as f64),
        1 => Bson::Int64(number),
        _ => Bson::Int32(i32::try_from(number).unwrap_or(i32::MAX)),
    })
}

/// Writes settings now and then, and gives documents other tenants.
pub(super) async fn write(world: Arc<World>, mut random: fastrand::Rng) {
    let Some(periods) = world.scenario.periods.clone() else { return };
    for _ in 0..periods.writes {
        tokio::time::sleep(Duration::from_millis(random.u64(..periods.writes_every))).await;
        act(&world, &periods, &mut random);
    }
}

fn act(world: &Arc<World>, periods: &Periods, random: &mut fastrand::Rng) {
    let id = random.i32(1..=MOST);
    let rule = &world.scenario.rules[random.usize(..world.scenario.rules.len())].rule;
    match random.u8(..12) {
        0..4 => world.place(TENANTS, &id.into(), Some(setting(periods, id, rule.expire_after, random))),
        4 => world.place(TENANTS, &id.into(), None),
        5..8 => {
            // A tenant gets another period.
            if let Some(before) = world.model.document(TENANTS, &id.into()) {
                let mut changed = setting(periods, id, rule.expire_after, random);
                before.get(TENANT).into_iter().for_each(|tenant| drop(changed.insert(TENANT, tenant)));
                world.place(TENANTS, &id.into(), Some(changed));
            }
        }
        8 if periods.has_malformed => {
            let mut changed = setting(periods, id, rule.expire_after, random);
            match random.u8(..3) {
                0 => drop(changed.remove(TENANT)),
                1 => drop(changed.insert(TENANT, Bson::Null)),
                _ => drop(changed.insert(TENANT, ["a"])),
            }
            world.place(TENANTS, &id.into(), Some(changed));
        }
        _ => give_another_tenant(world, &rule.namespace, periods.path, random),
    }
}
