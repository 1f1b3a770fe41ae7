//! Documents that belong to others: children, the tenants of documents, and holds.

use bson::{Bson, Document, doc};

use super::documents::object_id;
use super::relations::{ChildCollection, HELD_KEY, ID, SimulatedFamily, put};
use super::scenario::START;

const DAY: i64 = 24 * 3600;

/// A source of such documents.
pub(super) struct Kin<'a>(pub &'a mut fastrand::Rng);

impl Kin<'_> {
    /// Returns the children that a collection has at the start, of parents with these keys and of some that are not there.
    pub(super) fn children(&mut self, family: &SimulatedFamily, child: &ChildCollection, parents: &[Bson]) -> Vec<Document> {
        let mut all = Vec::new();
        for parent in parents {
            for _ in 0..self.0.u32(..=family.most) {
                let created = self.moment();
                all.push(self.child(child, parent.clone(), created));
            }
        }
        for number in 0..self.0.u32(1..5) {
            let age = self.0.u8(..4);
            for _ in 0..self.0.u32(1..4) {
                let created = match age {
                    // As old as an orphan has to be, or a second more or less.
                    0 => Some(family.as_of / 1000 - DAY + self.0.i64(-1..=1)),
                    1 => self.moment(),
                    _ => Some(START / 1000 - self.0.i64(2..50) * DAY),
                };
                all.push(self.child(child, format!("lost{number}").into(), created));
            }
        }
        for parent in parents.iter().take(3) {
            let several = Bson::Array(vec![parent.clone(), Bson::Null]);
            let none = if self.0.bool() { several } else { Bson::Null };
            all.push(self.child(child, none, None));
        }
        all
    }

    /// Returns a time before the start at which a child was created, in seconds; `None` for a child whose `_id` does not tell it.
    fn moment(&mut self) -> Option<i64> {
        match self.0.u8(..6) {
            0 => None,
            1 | 2 => Some(START / 1000 - self.0.i64(..3600)),
            _ => Some(START / 1000 - self.0.i64(2..50) * DAY),
        }
    }

    /// Returns a child that was created at a time, in seconds.
    pub(super) fn child(&mut self, of: &ChildCollection, parent: Bson, created: Option<i64>) -> Document {
        let number = self.0.u32(..);
        let id = created.map_or_else(|| Bson::from(i64::from(number)), |created| object_id(created, number).into());
        // Numbers of all types are equal.
        let parent = match (parent, self.0.u8(..6)) {
            (Bson::Int32(n), 0) => Bson::Int64(n.into()),
            (Bson::Int32(n), 1) => Bson::Double(n.into()),
            (parent, _) => parent,
        };
        let mut child = doc! { "_id": id, "n": self.0.i32(0..) };
        of.name(&mut child, parent);
        child
    }

    /// Gives a document the keys by which its children name it, besides its `_id`.
    pub(super) fn give_keys(&mut self, family: &SimulatedFamily, document: &mut Document) {
        for field in family.parent_fields().into_iter().filter(|field| *field != ID) {
            match self.0.u8(..if family.keys.are_odd { 12 } else { 8 }) {
                8 => put(document, field, Bson::Null),
                9 => drop(document.remove(field.split('.').next().unwrap_or(field))),
                10 => {
                    let several = vec![self.key(family), self.key(family)];
                    put(document, field, several.into());
                }
                11 => match field.split_once('.') {
                    Some((outer, inner)) => drop(document.insert(outer, vec![doc! { inner: self.key(family) }])),
                    None => put(document, field, vec![self.key(family)].into()),
                },
                _ => put(document, field, self.key(family)),
            }
        }
    }

    /// Returns a key, which other parents may have.
    pub(super) fn key(&mut self, family: &SimulatedFamily) -> Bson {
        let number = self.0.i32(0..family.keys.most);
        match self.0.u8(..8) {
            0 => Bson::Double(number.into()),
            1 => Bson::Int64(number.into()),
            2 => format!("k{number}").into(),
            3 => doc! { "k": number }.into(),
            _ => number.into(),
        }
    }

    /// Returns a tenant, one of few.
    pub(super) fn tenant(&mut self) -> Bson {
        match self.0.u8(..10) {
            0 => Bson::Int32(1),
            1 => Bson::Int64(1),
            2 => Bson::Double(2.0),
            3 => Bson::Int32(2),
            4 => doc! { "n": 1, "m": "x" }.into(),
            5 => object_id(START / 1000, 7).into(),
            6 => "a".into(),
            7 => "b".into(),
            _ => "c".into(),
        }
    }

    /// Gives a document a tenant, several of them, or none.
    pub(super) fn give_tenant(&mut self, path: &str, document: &mut Document) {
        let (outer, inner) = path.split_once('.').map_or((path, None), |(outer, inner)| (outer, Some(inner)));
        let below = |value: Bson| inner.map_or(value.clone(), |inner| doc! { inner: value }.into());
        let value = match self.0.u8(..8) {
            0 => {
                document.remove(outer);
                return;
            }
            1 => Bson::Array(vec![below(self.tenant()), below(self.tenant())]),
            2 => below(Bson::Array(vec![self.tenant(), self.tenant()])),
            _ => below(self.tenant()),
        };
        document.insert(outer, value);
    }

    /// Returns a hold, which no other one is equal to.
    pub(super) fn hold(&mut self, id: i32) -> Document {
        doc! { "_id": id, HELD_KEY: self.tenant(), "active": true, "v": self.0.i32(0..) }
    }

    /// Returns a hold whose key is none.
    pub(super) fn malformed(&mut self, id: i32) -> Document {
        match self.0.u8(..3) {
            0 => doc! { "_id": id, "active": true, "v": self.0.i32(0..) },
            1 => doc! { "_id": id, HELD_KEY: Bson::Null, "active": true, "v": self.0.i32(0..) },
            _ => doc! { "_id": id, HELD_KEY: ["a"], "active": true, "v": self.0.i32(0..) },
        }
    }
}
