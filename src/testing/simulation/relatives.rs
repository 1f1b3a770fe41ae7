//! Others who write parents and children: uploads, some of which use an `_id` again, and deletes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, Document};
use tokio::time::sleep;

use super::World;
use super::documents::{Documents, in_format, object_id};
use super::kin::Kin;
use super::oracle::Rule;
use super::relations::{ChildCollection, ID, JOURNAL, SimulatedFamily, TOLERANCE, is_same, put};

/// Writes parents and children now and then.
pub(super) async fn write(world: Arc<World>, mut random: fastrand::Rng) {
    let Some(mut relatives) = Relatives::new(&world) else { return };
    for number in 0..relatives.family.writes {
        sleep(Duration::from_millis(random.u64(..relatives.pause))).await;
        relatives.act(&mut random, number).await;
    }
}

/// Looks at the journal of the one who writes children at the tolerance, and entries for whose parents it does.
const TOLERANCE_LOOKS: u32 = 200;
const TOLERANCE_ENTRIES: usize = 4;

struct Relatives {
    world: Arc<World>,
    rule: Rule,
    family: SimulatedFamily,
    /// The keys of all parents that were ever seen, by their path.
    known: BTreeMap<&'static str, Vec<Bson>>,
    /// Longest time between two writes of an upload, in milliseconds.
    pause: u64,
}

/// Adds children of parents that a run is about to delete, at the border between old children and the children of another upload.
pub(super) async fn write_at_tolerance(world: Arc<World>, mut random: fastrand::Rng) {
    let Some(relatives) = Relatives::new(&world).filter(|_| random.bool()) else { return };
    let mut seen: Vec<Bson> = Vec::new();
    for _ in 0..random.u32(..TOLERANCE_LOOKS) {
        sleep(Duration::from_millis(random.u64(..200))).await;
        for entry in world.model.documents(JOURNAL) {
            if seen.len() < TOLERANCE_ENTRIES && !seen.contains(&entry["_id"]) {
                relatives.add_at_tolerance(&entry, &mut random);
                seen.push(entry["_id"].clone());
            }
        }
    }
}

/// Creates parents again that the journal names, and gives some of them new children.
pub(super) fn create_again(world: &Arc<World>, random: &mut fastrand::Rng) {
    let Some(relatives) = Relatives::new(world) else { return };
    for child in &relatives.family.collections {
        let gone = relatives.gone_in_journal(child);
        for _ in 0..random.usize(..4).min(gone.len()) {
            let key = gone[random.usize(..gone.len())].clone();
            relatives.write_parent(child, key.clone(), random);
            if random.bool() {
                relatives.add(child, key, 0, random);
            }
        }
    }
}

/// Whether children of parents that are gone are about to be deleted.
pub(super) fn are_under_way(world: &Arc<World>) -> bool {
    Relatives::new(world)
        .is_some_and(|relatives| relatives.family.collections.iter().any(|child| !relatives.gone_in_journal(child).is_empty()))
}

impl Relatives {
    fn new(world: &Arc<World>) -> Option<Self> {
        let family = world.scenario.family.clone()?;
        let rule = world.scenario.rules[0].rule.clone();
        Some(Self { rule, world: world.clone(), known: BTreeMap::new(), pause: family.writes_every, family })
    }

    /// Returns the keys in the journal by which children name parents of which none is there.
    fn gone_in_journal(&self, child: &ChildCollection) -> Vec<Bson> {
        let parents = self.world.model.documents(&self.rule.namespace);
        let there: Vec<Bson> = parents.iter().flat_map(|parent| child.keys(parent)).collect();
        let entries = self.world.model.documents(JOURNAL);
        let of_field = entries.iter().filter(|entry| entry.get_str("field").is_ok_and(|field| field == child.parent_field));
        let named = of_field.filter_map(|entry| entry.get_array("parents").ok()).flatten();
        named.filter(|key| !there.iter().any(|other| is_same(other, key))).cloned().collect()
    }

    async fn act(&mut self, random: &mut fastrand::Rng, number: u32) {
        let child = &self.family.collections[random.usize(..self.family.collections.len())].clone();
        let parents = self.world.model.documents(&self.rule.namespace);
        let there: Vec<Bson> = parents.iter().flat_map(|parent| child.keys(parent)).collect();
        let is_there = |key: &Bson| there.iter().any(|other| is_same(other, key));
        let known = self.known.entry(child.parent_field).or_default();
        let gone: Vec<Bson> = known.iter().filter(|key| !is_there(key)).cloned().collect();
        for key in &there {
            if !known.contains(key) {
                known.push(key.clone());
            }
        }
        let children = self.world.model.documents(child.namespace);
        match random.u8(..14) {
            0 | 1 => self.upload(child, random, None, number).await,
            2 | 3 if !gone.is_empty() => {
                let under_way: Vec<Bson> = gone.iter().filter(|key| self.is_in_journal(child, key)).cloned().collect();
                let gone = if under_way.is_empty() { &gone } else { &under_way };
                let again = gone[random.usize(..gone.len())].clone();
                self.upload(child, random, Some(again.clone()), number).await;
                if random.bool() {
                    self.write_parent(child, again.clone(), random);
                    self.add(child, again, 0, random);
                }
            }
            4..7 if !there.is_empty() => {
                // Others delete a parent and leave its children; another parent may get its key.
                let deleted = self.expired(random).unwrap_or_else(|| parents[random.usize(..parents.len())].clone());
                self.world.put(&self.rule.namespace, &deleted["_id"], None);
                if let Some(key) = child.keys(&deleted).pop().filter(|_| random.bool()) {
                    sleep(Duration::from_millis(random.u64(..self.pause * 4))).await;
                    self.upload(child, random, Some(key), number).await;
                }
            }
            7 if !children.is_empty() => {
                let id = children[random.usize(..children.len())]["_id"].clone();
                self.world.put(child.namespace, &id, None);
            }
            8 if !children.is_empty() && !there.is_empty() => {
                // A child moves to another parent.
                let mut moved = children[random.usize(..children.len())].clone();
                child.name(&mut moved, there[random.usize(..there.len())].clone());
                self.world.put(child.namespace, &moved["_id"].clone(), Some(moved));
            }
            9 if child.parent_field != ID => self.change_key(child, random).await,
            9 | 10 if self.rule.field != "_id" => self.use_for_a_while(random).await,
            11 if !gone.is_empty() => self.write_parent(child, gone[random.usize(..gone.len())].clone(), random),
            _ if !there.is_empty() => {
                let id = there[random.usize(..there.len())].clone();
                self.add(child, id, 0, random);
            }
            _ => {}
        }
    }

    /// Returns a parent that has expired, which a run may have found; `None` if there is none, or a chance decides against it.
    fn expired(&self, random: &mut fastrand::Rng) -> Option<Document> {
        let now = self.world.scenario.as_of.unwrap_or(self.world.now());
        let mut all = self.world.model.documents(&self.rule.namespace);
        all.retain(|document| self.rule.is_expired(document, now));
        // One whose delete is on its way is changed before it arrives.
        let is_under_way = |parent: &Document| {
            let mut collections = self.family.collections.iter();
            collections.any(|child| child.keys(parent).iter().any(|key| self.is_in_journal(child, key)))
        };
        if random.bool() && all.iter().any(is_under_way) {
            all.retain(is_under_way);
        }
        let found = random.usize(..all.len().max(1));
        all.get(found).filter(|_| random.u8(..4) > 0).cloned()
    }

    /// Uses a parent that has expired for a while: a delete that was on its way may find it again as it was.
    async fn use_for_a_while(&self, random: &mut fastrand::Rng) {
        let Some(before) = self.expired(random) else { return };
        let mut used = before.clone();
        used.insert(self.rule.field, in_format(self.rule.format, self.world.now(), random.u8(..)));
        self.change_for_a_while(before, used, random).await;
    }

    /// Gives a parent, most often one that has expired, another key or several, and most often its own again after a while.
    async fn change_key(&self, child: &ChildCollection, random: &mut fastrand::Rng) {
        let Some(before) = self.expired(random) else { return };
        let mut changed = before.clone();
        let other = Kin(random).key(&self.family);
        let key = match child.keys(&before).pop().filter(|_| random.bool()) {
            Some(own) => vec![own, other].into(),
            None => other,
        };
        put(&mut changed, child.parent_field, key);
        match random.u8(..3) {
            0 => drop(self.world.put(&self.rule.namespace, &before["_id"], Some(changed))),
            _ => self.change_for_a_while(before, changed, random).await,
        }
    }

    async fn change_for_a_while(&self, before: Document, changed: Document, random: &mut fastrand::Rng) {
        let (namespace, id) = (&self.rule.namespace, before["_id"].clone());
        self.world.put(namespace, &id, Some(changed));
        sleep(Duration::from_millis(random.u64(..self.pause * 4))).await;
        if self.world.model.document(namespace, &id).is_some() {
            self.world.put(namespace, &id, Some(before));
        }
    }

    /// Whether a run is about to delete the children of parents with a key.
    fn is_in_journal(&self, child: &ChildCollection, key: &Bson) -> bool {
        let is_named = |parents: &Vec<Bson>| parents.iter().any(|named| is_same(named, key));
        let names = |entry: &Document| {
            let is_of_field = entry.get_str("field").is_ok_and(|field| field == child.parent_field);
            is_of_field && entry.get_array("parents").is_ok_and(is_named)
        };
        self.world.model.documents(JOURNAL).iter().any(names)
    }

    /// Writes children before their parent, which may never come. The clock of a client may be ahead of the server's.
    async fn upload(&mut self, child: &ChildCollection, random: &mut fastrand::Rng, again: Option<Bson>, number: u32) {
        let is_object_id = self.rule.field == ID && child.parent_field == ID;
        let key = again.unwrap_or_else(|| match is_object_id {
            true => object_id(self.world.now() / 1000, 2_000_000 + number).into(),
            false => format!("upload{number}").into(),
        });
        let ahead = match random.u8(..3) {
            0 => 0,
            1 => random.i64(200..420),
            _ => random.i64(300..310),
        };
        for _ in 0..random.u32(1..4) {
            self.add(child, key.clone(), ahead, random);
            sleep(Duration::from_millis(random.u64(..self.pause))).await;
        }
        if random.u8(..4) > 0 {
            self.write_parent(child, key, random);
        }
    }

    /// Adds a child of each parent of an entry of the journal at the time from which on it belongs to another upload, or a second
    /// before or after.
    fn add_at_tolerance(&self, entry: &Document, random: &mut fastrand::Rng) {
        let (Ok(at), Ok(parents)) = (entry.get_datetime("at"), entry.get_array("parents")) else { return };
        let is_named = |child: &&ChildCollection| entry.get_str("field").is_ok_and(|field| field == child.parent_field);
        for child in self.family.collections.iter().filter(is_named) {
            for parent in parents.iter().take(3) {
                let created = (at.timestamp_millis() + TOLERANCE) / 1000 + random.i64(-1..=1);
                let added = Kin(random).child(child, parent.clone(), Some(created));
                self.world.put(child.namespace, &added["_id"].clone(), Some(added));
            }
        }
    }

    fn add(&self, child: &ChildCollection, parent: Bson, ahead: i64, random: &mut fastrand::Rng) {
        let created = self.world.now() / 1000 + ahead;
        let added = Kin(random).child(child, parent, Some(created));
        self.world.put(child.namespace, &added["_id"].clone(), Some(added));
    }

    /// Writes a parent with a key by which such children name it.
    fn write_parent(&self, child: &ChildCollection, key: Bson, random: &mut fastrand::Rng) {
        let as_of = self.world.scenario.as_of.unwrap_or(self.world.now());
        let id = match child.parent_field {
            ID => key.clone(),
            _ if self.rule.field == ID => object_id(self.world.now() / 1000, random.u32(3_000_000..)).into(),
            _ => format!("parent{}", random.u32(..)).into(),
        };
        let mut parent: Document = Documents { random, as_of }.with_id(&self.rule, id.clone());
        Kin(random).give_keys(&self.family, &mut parent);
        put(&mut parent, child.parent_field, key);
        self.world.put(&self.rule.namespace, &id, Some(parent));
    }
}
