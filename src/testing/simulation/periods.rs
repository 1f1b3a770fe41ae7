//! Periods: how long documents live by a setting of their tenant, which others change meanwhile.

use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, Document, doc};

use super::World;
use super::kin::Kin;

/// The collection of the settings.
pub(super) const TENANTS: &str = "crm.tenants";

/// The field of a setting with its tenant.
pub(super) const TENANT: &str = "code";

/// The field of a setting with the period.
const VALUE: &str = "kept";

/// Number of different settings.
const MOST: i32 = 6;

/// One in so many simulations has periods.
const ONE_IN: u8 = 4;

/// The periods of all rules.
#[derive(Debug, Clone)]
pub(super) struct Periods {
    /// Path of the tenant in the documents of the rules.
    pub path: &'static str,
    /// The unit with its seconds.
    unit: (char, i64),
    /// Whether others write settings without a proper key now and then.
    has_malformed: bool,
    writes: u32,
    writes_every: u64,
    /// Documents per second of each rule, so that runs last; `None` if it stays as it is.
    pub rate: Option<u32>,
    /// Chance that a delete is late, and for how many milliseconds at most; `None` if the troubles stay as they are.
    pub late: Option<(f64, u64)>,
}

/// What a setting says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Period {
    Seconds(i64),
    /// The documents stay: the period is none, or unclear.
    Keeps,
    /// The rule's own time applies.
    Missing,
}

/// Chooses the periods of a seed. Its documents have the tenants at a path if holds name one already.
pub(super) fn of(seed: u64, path: Option<&'static str>) -> Option<Periods> {
    let mut random = fastrand::Rng::with_seed(seed ^ 0x0070_6572_696f_6473);
    (random.u8(..ONE_IN) == 0).then(|| {
        let late = (random.u8(..3) == 0).then(|| (0.05 + random.f64() * 0.4, random.u64(25_000..60_000)));
        let own = if random.u8(..3) == 0 { "meta.tenant" } else { "tenant" };
        let often = late.is_some() || random.bool();
        Periods {
            path: path.unwrap_or(own),
            unit: [('s', 1), ('m', 60), ('h', 3600)][random.usize(..3)],
            has_malformed: random.u8(..8) == 0,
            writes: if random.u8(..6) == 0 { 0 } else { random.u32(1..40) },
            writes_every: if often { random.u64(1..5000) } else { random.u64(1..15_000) },
            rate: (random.u8(..3) > 0).then(|| random.u32(1..5)),
            late,
        }
    })
}

impl Periods {
    /// Returns the line of a rule.
    pub(super) fn line(&self) -> String {
        let key = format!("{{of: {}, in: {TENANT}}}", self.path);
        format!("periods: {{collection: {TENANTS}, key: {key}, value: {VALUE}, unit: {}}}", self.unit.0)
    }

    /// Reads a setting.
    pub(super) fn read(&self, setting: &Document) -> Period {
        let number = match setting.get(VALUE) {
            None => return Period::Missing,
            Some(Bson::Int32(number)) => f64::from(*number),
            Some(Bson::Int64(number)) => *number as f64,
            Some(Bson::Double(number)) => *number,
            Some(_) => return Period::Keeps,
        };
        if number >= 1.0 && number.fract() == 0.0 { Period::Seconds(number as i64 * self.unit.1) } else { Period::Keeps }
    }

    /// Returns a setting of a tenant, which no other one is equal to. `own` is the time of a rule in seconds.
    pub(super) fn setting(&self, id: i32, own: Option<i64>, random: &mut fastrand::Rng) -> Document {
        let mut setting = doc! { "_id": id, TENANT: Kin(random).tenant(), "v": random.i32(0..) };
        if let Some(value) = self.value(own.unwrap_or(10_000), random) {
            setting.insert(VALUE, value);
        }
        setting
    }

    fn value(&self, own: i64, random: &mut fastrand::Rng) -> Option<Bson> {
        let seconds = match random.u8(..12) {
            0 => return None,
            1 => return Some(Bson::Int32(-1)),
            2 => return Some([0.into(), Bson::Int64(-2), 1.5.into(), "7".into(), Bson::Null][random.usize(..5)].clone()),
            3 => own,
            4 => own + random.i64(-1..=1) * self.unit.1,
            5 => own * 2,
            6 => own / 2,
            _ => random.i64(1..200_000),
        };
        let number = (seconds / self.unit.1).max(1);
        Some(match random.u8(..3) {
            0 => Bson::Double(number as f64),
            1 => Bson::Int64(number),
            _ => Bson::Int32(i32::try_from(number).unwrap_or(i32::MAX)),
        })
    }
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
        0..4 => place(world, &id.into(), Some(periods.setting(id, rule.expire_after, random))),
        4 => place(world, &id.into(), None),
        5..8 => {
            // A tenant gets another period.
            if let Some(before) = world.model.document(TENANTS, &id.into()) {
                let mut setting = periods.setting(id, rule.expire_after, random);
                before.get(TENANT).into_iter().for_each(|tenant| drop(setting.insert(TENANT, tenant)));
                place(world, &id.into(), Some(setting));
            }
        }
        8 if periods.has_malformed => {
            let mut setting = periods.setting(id, rule.expire_after, random);
            match random.u8(..3) {
                0 => drop(setting.remove(TENANT)),
                1 => drop(setting.insert(TENANT, Bson::Null)),
                _ => drop(setting.insert(TENANT, ["a"])),
            }
            place(world, &id.into(), Some(setting));
        }
        _ => {
            let all = world.model.documents(&rule.namespace);
            if !all.is_empty() {
                let mut document = all[random.usize(..all.len())].clone();
                Kin(random).give_tenant(periods.path, &mut document);
                world.put(&rule.namespace, &document["_id"].clone(), Some(document));
            }
        }
    }
}

/// Removes the settings without a proper key, once no fail-over can bring them back.
pub(super) fn tidy(world: &Arc<World>) {
    for setting in world.model.documents(TENANTS) {
        if matches!(setting.get(TENANT), None | Some(Bson::Null | Bson::Array(_))) {
            place(world, &setting["_id"], None);
        }
    }
}

/// Writes a setting, and tells the judge once a majority knows it.
fn place(world: &Arc<World>, id: &Bson, setting: Option<Document>) {
    let Some(write) = world.put(TENANTS, id, setting) else { return };
    world.tell_once_known(write);
}
