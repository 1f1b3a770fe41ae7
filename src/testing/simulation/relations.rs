//! The children, holds and periods of a simulation. They are drawn after all else, from random numbers of their own: a seed
//! without them takes the steps that it would take if there were no such thing.

use std::collections::BTreeMap;

use bson::{Bson, Document};
use server_model::BEGINNING;

use crate::base::values::float;

/// The collection of the journal.
pub(super) const JOURNAL: &str = "ops.journal";

/// The collection of the holds.
pub(super) const HOLDS: &str = "legal.holds";

/// The field of a hold with the key that is held.
pub(super) const HELD_KEY: &str = "customer";

/// The key of parents that they have in any case.
pub(super) const ID: &str = "_id";

/// Milliseconds after the end of a parent from which on a child with a new ObjectId is taken for one of an upload.
pub(super) const TOLERANCE: i64 = 300_000;

/// Age of children without a parent, in milliseconds, at which none belongs to an upload in flight.
pub(super) const DAY: i64 = 24 * 3_600_000;

/// One in so many simulations has children, and as many have holds.
const ONE_IN: u8 = 3;

/// The children of the documents of the first rule's collection.
#[derive(Debug, Clone)]
pub(super) struct SimulatedFamily {
    pub collections: Vec<ChildCollection>,
    /// The numbers of the collections that a rule has, by the number of the rule; rules that are not in it have all.
    pub of_rules: BTreeMap<usize, Vec<usize>>,
    pub is_gridfs: bool,
    pub orphans: bool,
    /// The instant at which the first run judges expiry, or about so, in milliseconds since 1970.
    pub as_of: i64,
    /// Most children of a parent in a collection at the start.
    pub most: u32,
    /// Operations of others, and the longest time between two in milliseconds.
    pub writes: u32,
    pub writes_every: u64,
    /// Documents per second of each rule, so that time passes between finding parents and deleting them; `None` if it stays as it
    /// is.
    pub rate: Option<u32>,
    pub keys: Keys,
    /// Chance that a command is late, or that its connection breaks meanwhile, and for how many milliseconds at most; `None` if
    /// the troubles stay as they are.
    pub late: Option<(f64, u64)>,
}

/// The keys of the parents that are not their `_id`s.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    /// Number of different ones: several parents have the same.
    pub most: i32,
    /// Whether some parents have none, or a list of them.
    pub are_odd: bool,
    pub are_indexed: bool,
}

/// A collection of children.
#[derive(Debug, Clone)]
pub(super) struct ChildCollection {
    pub namespace: &'static str,
    /// Path of the key of the parent.
    pub field: &'static str,
    /// Path of that key in the parent.
    pub parent_field: &'static str,
    pub is_indexed: bool,
}

/// The holds of all rules.
#[derive(Debug, Clone)]
pub(super) struct Holds {
    /// Path of the key in the documents of the rules.
    pub path: &'static str,
    /// Whether only active holds count.
    pub is_filtered: bool,
    /// Whether others write holds without a proper key now and then.
    pub has_malformed: bool,
    pub writes: u32,
    pub writes_every: u64,
    /// Documents per second of each rule, so that runs last; `None` if it stays as it is.
    pub rate: Option<u32>,
    /// Chance that a delete is late, and for how many milliseconds at most; `None` if the troubles stay as they are.
    pub late: Option<(f64, u64)>,
}

/// Chooses the children and the holds of a seed.
pub(super) fn of(seed: u64) -> (Option<SimulatedFamily>, Option<Holds>) {
    let mut random = fastrand::Rng::with_seed(seed ^ 0x7265_6c61_7469_6f6e);
    let family = (random.u8(..ONE_IN) == 0).then(|| SimulatedFamily::of(&mut random.fork()));
    let holds = (random.u8(..ONE_IN) == 0).then(|| Holds::of(&mut random.fork()));
    // A child without a parent has no key by which a hold could keep it: the two do not go together.
    let family = family.map(|family| SimulatedFamily { orphans: family.orphans && holds.is_none(), ..family });
    (family, holds)
}

impl SimulatedFamily {
    fn of(random: &mut fastrand::Rng) -> Self {
        let is_gridfs = random.bool();
        let mut child = |namespace, field| ChildCollection { namespace, field, parent_field: ID, is_indexed: random.u8(..5) > 0 };
        let mut collections = match is_gridfs {
            true => vec![child("app.fs.chunks", "files_id")],
            false => vec![child("app.lines", "order"), child("crm.notes", "of.order")],
        };
        if random.bool() {
            collections.truncate(1);
        }
        let family = Self {
            collections,
            of_rules: BTreeMap::new(),
            is_gridfs,
            orphans: random.u8(..3) == 0,
            as_of: BEGINNING,
            most: random.u32(1..4),
            writes: if random.u8(..5) == 0 { 0 } else { random.u32(1..20) },
            writes_every: if random.bool() { random.u64(1..200) } else { random.u64(1..8000) },
            rate: random.bool().then(|| random.u32(1..8)),
            keys: Keys { most: 0, are_odd: false, are_indexed: false },
            late: None,
        };
        let mut family = if is_gridfs || random.u8(..3) == 0 { family } else { family.keyed(random) };
        if random.u8(..4) == 0 {
            family.late = Some((0.05 + random.f64() * 0.2, random.u64(2000..40_000)));
            (family.writes, family.writes_every) = (random.u32(20..50), random.u64(500..6000));
        }
        family
    }

    /// Lets children name their parents by other fields than the `_id`; the children of a second collection may still use the
    /// `_id`.
    fn keyed(mut self, random: &mut fastrand::Rng) -> Self {
        const FIELDS: [&str; 3] = ["number", "ref.code", ID];
        for (child, fields) in self.collections.iter_mut().zip([2, 3]) {
            child.parent_field = FIELDS[random.usize(..fields)];
        }
        self.keys = Keys { most: random.i32(2..50), are_odd: random.bool(), are_indexed: random.u8(..4) > 0 };
        self
    }

    /// Returns the paths of the keys of parents.
    pub(super) fn parent_fields(&self) -> Vec<&'static str> {
        let mut fields: Vec<_> = self.collections.iter().map(|child| child.parent_field).collect();
        fields.dedup();
        fields
    }

    /// Adds a collection if there is only one.
    pub(super) fn need_two(&mut self, random: &mut fastrand::Rng) {
        if self.collections.len() == 1 {
            let is_indexed = random.u8(..5) > 0;
            let notes = ChildCollection { namespace: "crm.notes", field: "of.order", parent_field: ID, is_indexed };
            self.collections.push(notes);
        }
    }

    /// Returns the numbers of the collections whose documents go with the documents of a rule.
    pub(super) fn of_rule(&self, rule: usize) -> Vec<usize> {
        self.of_rules.get(&rule).cloned().unwrap_or_else(|| (0..self.collections.len()).collect())
    }

    /// Whether a parent stays because a key of it, by which children of these collections name it, may be several.
    pub(super) fn keeps(&self, children: &[usize], parent: &Document) -> bool {
        children.iter().any(|child| !is_one(parent, self.collections[*child].parent_field))
    }

    /// Returns the lines of a rule whose children are in these collections.
    pub(super) fn lines(&self, children: &[usize]) -> Vec<String> {
        let child = |child: &ChildCollection| match child.parent_field {
            ID => format!("{{namespace: {}, field: {}}}", child.namespace, child.field),
            key => format!("{{namespace: {}, field: {}, parentField: {key}}}", child.namespace, child.field),
        };
        let (chunks, others): (Vec<usize>, Vec<usize>) = children.iter().partition(|child| self.is_gridfs && **child == 0);
        let others = others.iter().map(|number| child(&self.collections[*number])).collect::<Vec<_>>().join(", ");
        let mut lines = Vec::new();
        lines.extend((!chunks.is_empty()).then(|| "gridfs: fs".to_owned()));
        lines.extend((!others.is_empty()).then(|| format!("children: [{others}]")));
        lines.extend((self.orphans && !lines.is_empty()).then(|| "orphans: true".to_owned()));
        lines
    }

    /// Returns the collection of children with a namespace.
    pub(super) fn collection(&self, namespace: &str) -> Option<&ChildCollection> {
        self.collections.iter().find(|child| child.namespace == namespace)
    }
}

impl ChildCollection {
    /// Returns the parent that a child names; `None` if it names none, or may name several.
    pub(super) fn parent<'a>(&self, child: &'a Document) -> Option<&'a Bson> {
        crate::base::values::at(child, self.field).filter(|parent| !matches!(parent, Bson::Null | Bson::Array(_)))
    }

    /// Names a parent in a child.
    pub(super) fn name(&self, child: &mut Document, parent: Bson) {
        put(child, self.field, parent);
    }

    /// Returns the keys of a parent by which such children may name it.
    pub(super) fn keys(&self, parent: &Document) -> Vec<Bson> {
        let keys = values(parent, self.parent_field).into_iter();
        keys.filter(|key| !matches!(key, Bson::Null | Bson::Array(_) | Bson::RegularExpression(_))).cloned().collect()
    }
}

/// Puts a value at a path of at most two names.
pub(super) fn put(document: &mut Document, path: &str, value: Bson) {
    match path.split_once('.') {
        None => drop(document.insert(path, value)),
        Some((outer, inner)) => drop(document.insert(outer, bson::doc! { inner: value })),
    }
}

impl Holds {
    fn of(random: &mut fastrand::Rng) -> Self {
        let mut holds = Self {
            path: if random.u8(..3) == 0 { "meta.tenant" } else { "tenant" },
            is_filtered: random.bool(),
            has_malformed: random.u8(..8) == 0,
            writes: if random.u8(..6) == 0 { 0 } else { random.u32(1..25) },
            writes_every: if random.bool() { random.u64(1..1000) } else { random.u64(1..10_000) },
            rate: (random.u8(..3) > 0).then(|| random.u32(1..5)),
            late: (random.u8(..3) == 0).then(|| (0.05 + random.f64() * 0.4, random.u64(25_000..60_000))),
        };
        if holds.late.is_some() {
            // Others place them as long as a delete is on its way.
            (holds.writes, holds.writes_every) = (random.u32(20..50), random.u64(500..5000));
        }
        holds
    }

    /// Returns the line of a rule.
    pub(super) fn line(&self) -> String {
        let filter = if self.is_filtered { ", filter: {active: true}" } else { "" };
        format!("holds: {{collection: {HOLDS}, key: {{of: {}, in: {HELD_KEY}}}{filter}}}", self.path)
    }

    /// Whether a document of the collection of the holds is one.
    pub(super) fn counts(&self, hold: &Document) -> bool {
        !self.is_filtered || hold.get_bool("active").unwrap_or(false)
    }

    /// Whether a document of a rule has a key.
    pub(super) fn has(&self, document: &Document, key: &Bson) -> bool {
        has(document, self.path, key)
    }
}

/// Whether a query for a value at a path finds a document.
pub(super) fn has(document: &Document, path: &str, value: &Bson) -> bool {
    values(document, path).into_iter().any(|found| is_same(found, value))
}

/// Returns the values by which a query along a path finds a document; a list at the end, or on the way, stands for all that are
/// in it.
pub(super) fn values<'a>(document: &'a Document, path: &str) -> Vec<&'a Bson> {
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    let below = |value: &'a Bson| value.as_document().zip(rest).map_or_else(Vec::new, |(document, rest)| values(document, rest));
    match (document.get(name), rest) {
        (None, _) => Vec::new(),
        (Some(Bson::Array(items)), None) => items.iter().collect(),
        (Some(value), None) => vec![value],
        (Some(Bson::Array(items)), Some(_)) => items.iter().flat_map(below).collect(),
        (Some(value), Some(_)) => below(value),
    }
}

/// Whether there is at most one value at a path: no list on it, and no regular expression at its end, which stands for many
/// texts.
fn is_one(document: &Document, path: &str) -> bool {
    let (name, rest) = path.split_once('.').map_or((path, None), |(name, rest)| (name, Some(rest)));
    match document.get(name) {
        Some(Bson::Array(_) | Bson::RegularExpression(_)) => false,
        Some(Bson::Document(below)) => rest.is_none_or(|rest| is_one(below, rest)),
        _ => true,
    }
}

/// Whether two values are equal to the server: numbers of all types are compared by their value.
pub(super) fn is_same(a: &Bson, b: &Bson) -> bool {
    match (float(a), float(b)) {
        (Some(a), Some(b)) => a == b,
        (None, None) => a == b,
        _ => false,
    }
}

/// Returns a text that is the same for values that are equal to the server.
pub(super) fn name_of(value: &Bson) -> String {
    float(value).map_or_else(|| value.to_string(), |number| format!("{number:?}"))
}

/// The collection of the settings.
pub(super) const TENANTS: &str = "crm.tenants";

/// The field of a setting with its tenant.
pub(super) const TENANT: &str = "code";

/// The field of a setting with the period.
pub(super) const PERIOD: &str = "kept";

/// One in so many simulations has periods.
const PERIODS_ONE_IN: u8 = 4;

/// The periods of all rules.
#[derive(Debug, Clone)]
pub(super) struct Periods {
    /// Path of the tenant in the documents of the rules.
    pub path: &'static str,
    /// The unit with its seconds.
    pub unit: (char, i64),
    /// Whether others write settings without a proper key now and then.
    pub has_malformed: bool,
    pub writes: u32,
    pub writes_every: u64,
    /// Documents per second of each rule, so that runs last; `None` if it stays as it is.
    pub rate: Option<u32>,
    /// Chance that a delete is late, and for how many milliseconds at most; `None` if the troubles stay as they are.
    pub late: Option<(f64, u64)>,
}

/// The period in a setting of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Period {
    Seconds(i64),
    /// Documents of the tenant are never deleted: the period is -1, or no valid one.
    Keeps,
    /// The rule's own time applies.
    Missing,
}

/// Chooses the periods of a seed. Its documents have the tenants at a path if holds name one already.
pub(super) fn periods_of(seed: u64, path: Option<&'static str>) -> Option<Periods> {
    let mut random = fastrand::Rng::with_seed(seed ^ 0x0070_6572_696f_6473);
    (random.u8(..PERIODS_ONE_IN) == 0).then(|| {
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
        format!("periods: {{collection: {TENANTS}, key: {key}, value: {PERIOD}, unit: {}}}", self.unit.0)
    }

    /// Reads a setting.
    pub(super) fn read(&self, setting: &Document) -> Period {
        let number = match setting.get(PERIOD) {
            None => return Period::Missing,
            Some(Bson::Int32(number)) => f64::from(*number),
            Some(Bson::Int64(number)) => *number as f64,
            Some(Bson::Double(number)) => *number,
            Some(_) => return Period::Keeps,
        };
        if number >= 1.0 && number.fract() == 0.0 { Period::Seconds(number as i64 * self.unit.1) } else { Period::Keeps }
    }
}
