//! Random databases: a few collections of every kind, with documents whose dates and own ttls lie around what the rules ask for.

use fastrand::Rng;
use mongodb::Client;
use mongodb::bson::{Bson, DateTime, Document, doc};

use super::policies::Children;
use super::values::{amount, id, key, number, object_id, other_date, own_ttl, seen, text};
use crate::support::corpus::Corpus;

/// The instant of `--as-of`: a fixed one, so that a seed makes the same documents at any time.
pub(super) const AS_OF_MS: i64 = 1_750_000_000_123;

/// Paths of the date.
pub(super) const PATHS: [&str; 2] = ["at", "meta.at"];

/// Kind of a namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    Clustered,
    TimeSeries,
    Capped,
    View,
    Missing,
}

/// A collection of a rule, or the place where none is.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub database: String,
    pub name: String,
    pub kind: Kind,
    /// Path of the dates.
    pub path: &'static str,
    /// Format of the dates, as a policy spells it.
    pub format: &'static str,
    /// Keys and options of the index `ix`.
    pub index: Option<Document>,
    pub documents: Vec<Document>,
}

/// Everything that is there before the first run.
#[derive(Debug, Clone)]
pub(super) struct Databases {
    pub seed: u64,
    pub places: Vec<Place>,
    /// Values of expireAfterSeconds that the dates lie around.
    pub expiries: [i64; 2],
    pub holds: Vec<Document>,
    pub children: Vec<(Children, Vec<Document>)>,
}

impl Place {
    pub(super) fn namespace(&self) -> String {
        format!("{}.{}", self.database, self.name)
    }

    pub(super) fn exists(&self) -> bool {
        self.kind != Kind::Missing
    }
}

impl Databases {
    pub(super) fn new(seed: u64, random: &mut Rng) -> Self {
        let choices = [0, 1, 60, 3600, 86_400, 2_592_000, 2_147_483_647];
        let expiries = [choices[random.usize(1..6)], choices[random.usize(0..choices.len())]];
        let path = PATHS[usize::from(random.u8(0..3) == 0)];
        let number = random.usize(2..5);
        let mut places: Vec<Place> = (0..number).map(|place| self::place(seed, place, path, expiries, random)).collect();
        if random.u8(0..5) == 0 {
            places.push(files(seed, expiries, random));
        }
        let until = |random: &mut Rng| DateTime::from_millis(AS_OF_MS - 86_400_000 + random.i64(-1..2));
        let number = random.i32(0..7);
        let hold = |id| doc! { "_id": id, "h": key(random), "active": random.u8(0..3) > 0, "until": until(random) };
        let holds = (0..number).map(hold).collect();
        let mut made = Self { seed, places, expiries, holds, children: Vec::new() };
        if random.u8(0..12) == 0 {
            let malformed = [doc! { "_id": "bad", "active": true }, doc! { "_id": "bad", "h": null, "active": true }];
            let mut malformed = malformed[random.usize(0..2)].clone();
            malformed.insert("until", until(random));
            made.holds.push(malformed);
        }
        made.children = Children::ALL.map(|children| (children, made.children_of(children, random))).into();
        made
    }

    /// Returns the database of holds and children.
    pub(super) fn others(&self) -> String {
        format!("y{}", self.seed)
    }

    /// Returns the database of history, locks and journal, the only one in which a run may write anything but deletes.
    pub(super) fn own(&self) -> String {
        format!("o{}", self.seed)
    }

    /// Returns the names of all databases.
    pub(super) fn names(&self) -> Vec<String> {
        vec![format!("x{}_a", self.seed), format!("x{}_b", self.seed), self.others(), self.own()]
    }

    /// Returns children of the documents of the first collection, or of the files of the bucket.
    fn children_of(&self, of: Children, random: &mut Rng) -> Vec<Document> {
        let mut children = Vec::new();
        let mut add = |parent: Option<Bson>, id: Bson| {
            let mut child = doc! { "_id": id, "n": children.len() as i32 };
            child.extend(parent.map(|parent| (of.field.to_owned(), parent)));
            children.push(child);
        };
        let is_parent = |place: &&Place| (place.name == "fs.files") == (of.name == "fs.chunks");
        let parents = self.places.iter().find(is_parent).into_iter().flat_map(|place| &place.documents);
        let mut n = 0;
        for parent in parents {
            for _ in 0..random.u8(0..3) {
                n += 1;
                let id = if random.bool() { Bson::from(n) } else { object_id(AS_OF_MS - 10 * 86_400_000, n as usize).into() };
                match (random.u8(0..20), parent.get(of.parent_field).cloned()) {
                    (0, Some(key)) => add(Some(Bson::Array(vec![key])), id),
                    (1, Some(Bson::Int32(n))) => add(Some(f64::from(n).into()), id),
                    (2, _) => add(None, id),
                    (3, _) => add(Some(Bson::Null), id),
                    (4, _) => add(Some(format!("no parent {}", n / 40).into()), id),
                    // No key and no array: a child names one parent.
                    (_, Some(key)) if key.as_array().is_none() => add(Some(key), id),
                    _ => {}
                }
            }
        }
        children
    }

    /// Creates everything on the server.
    pub(super) async fn create(&self, client: &Client) {
        for name in self.names() {
            client.database(&name).drop().await.expect("an old database is dropped");
        }
        for place in &self.places {
            place.create(client).await;
        }
        let others = client.database(&self.others());
        for (name, field, documents) in [("holds", None, &self.holds)]
            .into_iter()
            .chain(self.children.iter().map(|(of, documents)| (of.name, Some(of.field), documents)))
        {
            others.create_collection(name).await.expect("a collection");
            if let Some(field) = field {
                let index = doc! { "key": { field: 1 }, "name": field };
                others.run_command(doc! { "createIndexes": name, "indexes": [index] }).await.expect("an index");
            }
            if !documents.is_empty() {
                others.collection::<Document>(name).insert_many(documents).await.expect("an insert");
            }
        }
    }
}

impl Place {
    async fn create(&self, client: &Client) {
        let db = client.database(&self.database);
        let options = match self.kind {
            Kind::Missing => return,
            Kind::Plain => doc! {},
            Kind::Clustered => doc! { "clusteredIndex": { "key": { "_id": 1 }, "unique": true } },
            Kind::TimeSeries => doc! { "timeseries": { "timeField": "at", "metaField": "m" } },
            Kind::Capped => doc! { "capped": true, "size": 1_000_000 },
            Kind::View => doc! { "viewOn": "nothing", "pipeline": [] },
        };
        let mut command = doc! { "create": &self.name };
        command.extend(options);
        db.run_command(command).await.expect("a collection");
        if self.kind == Kind::View {
            return;
        }
        if !self.documents.is_empty() {
            db.collection::<Document>(&self.name).insert_many(&self.documents).await.expect("an insert");
        }
        if let Some(index) = &self.index {
            let mut index = index.clone();
            index.insert("name", "ix");
            db.run_command(doc! { "createIndexes": &self.name, "indexes": [index] }).await.expect("an index");
        }
    }
}

fn place(seed: u64, number: usize, path: &'static str, expiries: [i64; 2], random: &mut Rng) -> Place {
    let kind = match random.u8(0..24) {
        _ if number == 0 => Kind::Plain,
        0..14 => Kind::Plain,
        14..17 => Kind::Clustered,
        17..20 => Kind::TimeSeries,
        20 => Kind::Capped,
        21 => Kind::View,
        _ => Kind::Missing,
    };
    let format = match random.u8(0..10) {
        0 if kind == Kind::Plain => "epochSeconds",
        1 if kind == Kind::Plain => "epochMillis",
        2 if kind == Kind::Plain => "objectId",
        3 if kind == Kind::Plain => "iso8601",
        _ => "date",
    };
    // Of two databases, the second has the names of the first.
    let (database, name) = (["a", "b"][number % 2], number / 2);
    let path = if kind == Kind::TimeSeries { "at" } else { path };
    let count = if random.u8(0..12) == 0 { 0 } else { random.usize(1..50) };
    let documents = match kind {
        Kind::TimeSeries => (0..count).map(|id| measurement(id, expiries, random)).collect(),
        Kind::View | Kind::Missing => Vec::new(),
        _ => documents(path, format, count, expiries, random),
    };
    let ix = match random.u8(0..10) {
        _ if kind == Kind::TimeSeries || kind == Kind::Capped => None,
        0..3 => Some(doc! { "key": { path: 1 } }),
        3 => Some(doc! { "key": { path: -1 } }),
        4 => Some(doc! { "key": { path: 1, "s": 1 } }),
        5 => Some(doc! { "key": { path: 1 }, "sparse": true }),
        6 => Some(doc! { "key": { path: 1 }, "partialFilterExpression": { "s": "done" } }),
        7 => Some(doc! { "key": { "s": 1, path: 1 } }),
        _ => None,
    };
    Place { database: format!("x{seed}_{database}"), name: format!("c{name}"), kind, path, format, index: ix, documents }
}

/// Returns the files of a GridFS bucket.
fn files(seed: u64, expiries: [i64; 2], random: &mut Rng) -> Place {
    let count = random.usize(0..20);
    Place {
        database: format!("y{seed}"),
        name: "fs.files".to_owned(),
        kind: Kind::Plain,
        path: "uploadDate",
        format: "date",
        index: None,
        documents: documents("uploadDate", "date", count, expiries, random),
    }
}

/// Returns the instants around which something changes, in milliseconds.
fn instants(expiries: [i64; 2]) -> Vec<i64> {
    let ages = expiries.into_iter().chain([60, 3600]);
    let edges = ages.flat_map(|age| [-1, 0, 1].map(|off| AS_OF_MS - age * 1000 + off));
    edges.chain([0, -1, -2_208_988_800_000, 4_102_444_800_000, AS_OF_MS - 400 * 86_400_000]).collect()
}

fn measurement(id: usize, expiries: [i64; 2], random: &mut Rng) -> Document {
    let within: Vec<i64> = instants(expiries).into_iter().filter(|at| (0..2_000_000_000_000).contains(at)).collect();
    let at = within[random.usize(0..within.len())] - 60_000 * random.i64(0..3);
    let text = ["x", "y", "done"][random.usize(0..3)];
    let mut meta = doc! { "s": text };
    meta.extend(seen(random).filter(|_| random.bool()).map(|seen| ("seen".to_owned(), seen)));
    doc! { "at": DateTime::from_millis(at.max(0)), "m": meta, "v": id as i32 }
}

fn documents(path: &str, format: &str, count: usize, expiries: [i64; 2], random: &mut Rng) -> Vec<Document> {
    let instants = instants(expiries);
    let dates: Vec<DateTime> = instants.iter().copied().chain([i64::MIN, i64::MAX]).map(DateTime::from_millis).collect();
    let mut corpus = Corpus::new(random.u64(..), &dates);
    // A literal dotted name is another field than the path through a document, but no insert of a document by path can make it.
    let shapes = corpus.around(path, count as i32);
    let has_legal = random.u8(0..3) == 0;
    let has_ttl = random.u8(0..6) > 0;
    shapes
        .into_iter()
        .enumerate()
        .map(|(n, shape)| {
            let mut document = doc! { "_id": id(n, &instants, random) };
            document.extend(shape.into_iter().filter(|(key, _)| key != "_id"));
            if format != "date" {
                document.remove(path.split('.').next().expect("a name"));
                let value = other_date(format, &instants, random);
                match path.split_once('.') {
                    Some((root, rest)) => document.insert(root, doc! { rest: value }),
                    None => document.insert(path, value),
                };
            }
            let mut put = |name: &str, value: Option<Bson>| document.extend(value.map(|value| (name.to_owned(), value)));
            put("ttl", own_ttl(random).filter(|_| has_ttl));
            put("s", text(random));
            put("n", amount(random));
            put("seen", seen(random));
            put("d", random.bool().then(|| Bson::from(doc! { "n": random.i32(0..6) })));
            put("k", Some(key(random)).filter(|_| random.u8(0..8) > 0));
            put("num", number(n, random));
            put("legal", (has_legal && random.bool()).then(|| "done".into()));
            document
        })
        .collect()
}
