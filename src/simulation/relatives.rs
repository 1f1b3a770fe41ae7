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
use super::relations::{ChildCollection, Family, ID, JOURNAL, is_same, put};

/// Writes parents and children now and then.
pub(super) async fn write(world: Arc<World>, mut random: fastrand::Rng) {
    let Some(family) = world.scenario.family.clone() else { return };
    let mut relatives = Relatives {
        rule: world.scenario.rules[0].rule.clone(),
        world,
        known: BTreeMap::new(),
        pause: family.writes_every,
        family,
    };
    for number in 0..relatives.family.writes {
        sleep(Duration::from_millis(random.u64(..relatives.pause))).await;
        relatives.act(&mut random, number).await;
    }
}

struct Relatives {
    world: Arc<World>,
    rule: Rule,
    family: Family,
    /// The keys of all parents that were ever seen, by their path.
    known: BTreeMap<&'static str, Vec<Bson>>,
    /// Longest time between two writes of an upload, in milliseconds.
    pause: u64,
}

impl Relatives {
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
