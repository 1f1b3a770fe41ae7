//! Others who write parents and children: uploads, some of which use an `_id` again, and deletes.

use std::sync::Arc;
use std::time::Duration;

use bson::{Bson, Document};
use tokio::time::sleep;

use super::World;
use super::documents::{Documents, in_format, object_id};
use super::kin::Kin;
use super::oracle::Rule;
use super::relations::{ChildCollection, Family, JOURNAL, is_same};

/// Writes parents and children now and then.
pub(super) async fn write(world: Arc<World>, mut random: fastrand::Rng) {
    let Some(family) = world.scenario.family.clone() else { return };
    let mut relatives =
        Relatives { rule: world.scenario.rules[0].rule.clone(), world, known: Vec::new(), pause: family.writes_every };
    for number in 0..family.writes {
        sleep(Duration::from_millis(random.u64(..family.writes_every))).await;
        relatives.act(&family, &mut random, number).await;
    }
}

struct Relatives {
    world: Arc<World>,
    rule: Rule,
    /// The `_id`s of all parents that were ever seen.
    known: Vec<Bson>,
    /// Longest time between two writes of an upload, in milliseconds.
    pause: u64,
}

impl Relatives {
    async fn act(&mut self, family: &Family, random: &mut fastrand::Rng, number: u32) {
        let child = &family.collections[random.usize(..family.collections.len())];
        let there = self.ids(&self.rule.namespace);
        let is_there = |id: &Bson| there.iter().any(|other| is_same(other, id));
        let gone: Vec<Bson> = self.known.iter().filter(|id| !is_there(id)).cloned().collect();
        for id in &there {
            if !self.known.contains(id) {
                self.known.push(id.clone());
            }
        }
        let children = self.world.model.documents(child.namespace);
        match random.u8(..14) {
            0 | 1 => self.upload(child, random, None, number).await,
            2 | 3 if !gone.is_empty() => {
                let under_way: Vec<Bson> = gone.iter().filter(|id| self.is_in_journal(id)).cloned().collect();
                let gone = if under_way.is_empty() { &gone } else { &under_way };
                let again = gone[random.usize(..gone.len())].clone();
                self.upload(child, random, Some(again.clone()), number).await;
                if random.bool() {
                    self.write_parent(again.clone(), random);
                    self.add(child, again, 0, random);
                }
            }
            4..7 if !there.is_empty() => {
                // What is deleted by others leaves its children; the `_id` may be used again.
                let id = self.expired(random).unwrap_or_else(|| there[random.usize(..there.len())].clone());
                self.world.put(&self.rule.namespace, &id, None);
                if random.bool() {
                    sleep(Duration::from_millis(random.u64(..self.pause * 4))).await;
                    self.upload(child, random, Some(id), number).await;
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
            9 | 10 if self.rule.field != "_id" => self.use_for_a_while(random).await,
            11 if !gone.is_empty() => self.write_parent(gone[random.usize(..gone.len())].clone(), random),
            _ if !there.is_empty() => {
                let id = there[random.usize(..there.len())].clone();
                self.add(child, id, 0, random);
            }
            _ => {}
        }
    }

    /// Returns a parent that has expired, which a run may have found; `None` if there is none, or a chance decides against it.
    fn expired(&self, random: &mut fastrand::Rng) -> Option<Bson> {
        let now = self.world.scenario.as_of.unwrap_or(self.world.now());
        let mut all = self.world.model.documents(&self.rule.namespace);
        all.retain(|document| self.rule.is_expired(document, now));
        let found = random.usize(..all.len().max(1));
        all.get(found).filter(|_| random.u8(..4) > 0).and_then(|document| document.get("_id").cloned())
    }

    /// Uses a parent that has expired for a while: a delete that was on its way may find it again as it was.
    async fn use_for_a_while(&self, random: &mut fastrand::Rng) {
        let Some(id) = self.expired(random) else { return };
        let Some(before) = self.world.model.document(&self.rule.namespace, &id) else { return };
        let mut used = before.clone();
        used.insert(self.rule.field, in_format(self.rule.format, self.world.now(), random.u8(..)));
        self.world.put(&self.rule.namespace, &id, Some(used));
        sleep(Duration::from_millis(random.u64(..self.pause * 4))).await;
        if self.world.model.document(&self.rule.namespace, &id).is_some() {
            self.world.put(&self.rule.namespace, &id, Some(before));
        }
    }

    /// Whether a run is about to delete the children of a parent.
    fn is_in_journal(&self, id: &Bson) -> bool {
        let names =
            |entry: &Document| entry.get_array("parents").is_ok_and(|parents| parents.iter().any(|named| is_same(named, id)));
        self.world.model.documents(JOURNAL).iter().any(names)
    }

    fn ids(&self, namespace: &str) -> Vec<Bson> {
        self.world.model.documents(namespace).iter().filter_map(|document| document.get("_id").cloned()).collect()
    }

    /// Writes children before their parent, which may never come. The clock of a client may be ahead of the server's.
    async fn upload(&mut self, child: &ChildCollection, random: &mut fastrand::Rng, again: Option<Bson>, number: u32) {
        let id = again.unwrap_or_else(|| match self.rule.field {
            "_id" => object_id(self.world.now() / 1000, 2_000_000 + number).into(),
            _ => format!("upload{number}").into(),
        });
        let ahead = match random.u8(..3) {
            0 => 0,
            1 => random.i64(200..420),
            _ => random.i64(300..310),
        };
        for _ in 0..random.u32(1..4) {
            self.add(child, id.clone(), ahead, random);
            sleep(Duration::from_millis(random.u64(..self.pause))).await;
        }
        if random.u8(..4) > 0 {
            self.write_parent(id, random);
        }
    }

    fn add(&self, child: &ChildCollection, parent: Bson, ahead: i64, random: &mut fastrand::Rng) {
        let created = self.world.now() / 1000 + ahead;
        let added = Kin(random).child(child, parent, Some(created));
        self.world.put(child.namespace, &added["_id"].clone(), Some(added));
    }

    fn write_parent(&self, id: Bson, random: &mut fastrand::Rng) {
        let as_of = self.world.scenario.as_of.unwrap_or(self.world.now());
        let parent: Document = Documents { random, as_of }.with_id(&self.rule, id.clone());
        self.world.put(&self.rule.namespace, &id, Some(parent));
    }
}
