//! Random policies and command lines for a random database.

use chrono::{Timelike, Utc};
use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::databases::{Databases, Kind, Place};
use super::filters::{Filter, filter};

/// One rule, as the oracle reads it.
#[derive(Debug, Clone)]
pub(super) struct Rule {
    pub name: String,
    pub pattern: String,
    pub exclude: Option<String>,
    /// `None` where the rule leaves the field to a time-series collection.
    pub field: Option<String>,
    pub format: &'static str,
    /// -1: only documents with a ttl of their own.
    pub expire_after: i64,
    pub has_ttl_field: bool,
    pub filter: Option<Filter>,
    pub folds: bool,
    pub hint: Option<String>,
    pub max_deletes: Option<u64>,
    pub max_percent: Option<f64>,
    pub is_enabled: bool,
    pub archive: Option<&'static str>,
    pub holds: Option<Holds>,
    pub children: Option<Children>,
    /// Whether the rule deletes children without a parent as well.
    pub orphans: bool,
    pub allowed: Vec<String>,
    /// Whether the rule's window is closed now; `None` without a window.
    pub is_closed: Option<bool>,
    keys: Map<String, Value>,
}

/// The holds of a rule.
#[derive(Debug, Clone)]
pub(super) struct Holds {
    pub collection: String,
    pub counted: Counted,
}

/// The holds that count.
#[derive(Debug, Clone, Copy)]
pub(super) enum Counted {
    All,
    Active,
    /// Those that lasted until less than a day before the instant of the run.
    OfLastDay,
}

/// The children of a rule, in the database of holds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Children {
    pub name: &'static str,
    /// Path of the key of their parent.
    pub field: &'static str,
    /// The field of the parents that holds this key.
    pub parent_field: &'static str,
}

impl Children {
    pub(super) const ALL: [Self; 3] = [
        Self { name: "k0", field: "p", parent_field: "_id" },
        Self { name: "k1", field: "p", parent_field: "num" },
        Self { name: "fs.chunks", field: "files_id", parent_field: "_id" },
    ];
}

/// A policy with its command line.
#[derive(Debug, Clone)]
pub(super) struct Policy {
    pub rules: Vec<Rule>,
    pub text: String,
    pub has_history: bool,
    pub line: Line,
}

/// The options of the runs.
#[derive(Debug, Clone)]
pub(super) struct Line {
    pub is_as_of: bool,
    pub only: Option<String>,
    pub max_deletes: Option<u64>,
    pub strict: bool,
    pub by_plan: bool,
    pub detailed: bool,
    pub quiet: bool,
    pub metrics: bool,
    /// Arguments that change nothing of what is expected.
    pub more: Vec<String>,
}

impl Policy {
    pub(super) fn new(databases: &Databases, archives: &str, random: &mut Rng) -> Self {
        let overlaps = random.u8(0..8) == 0;
        let mut rules: Vec<Rule> = Vec::new();
        for number in 0..random.usize(1..5) {
            let rule = rule(databases, number, archives, random);
            let is_new = |place: &Place| {
                let taken = |other: &Rule| other.is_enabled && other.takes(place);
                !(rule.is_enabled && rule.takes(place) && rules.iter().any(taken))
            };
            if overlaps || databases.places.iter().all(is_new) {
                rules.push(rule);
            }
        }
        let has_history = random.bool();
        let own = databases.own();
        let mut top = json!({ "version": 1, "journal": { "collection": format!("{own}.journal") } });
        if has_history {
            top["history"] = json!({ "collection": format!("{own}.runs") });
        }
        if random.u8(0..10) == 0 {
            top["lock"] = json!({ "collection": format!("{own}.locks") });
        }
        if random.u8(0..6) == 0 {
            top["run"] = json!({ "concurrency": random.u8(1..5), "rate": 1_000_000 });
        }
        if random.u8(0..4) == 0 {
            top["defaults"] = json!({ "batchSize": random.u32(1..30) });
        }
        top["collections"] = rules.iter().map(Rule::json).collect();
        let text = serde_json::to_string_pretty(&top).expect("JSON");
        let line = line(databases, &rules, random);
        Self { rules, text, has_history, line }
    }
}

impl Rule {
    /// Whether the rule is for a place.
    pub(super) fn takes(&self, place: &Place) -> bool {
        let namespace = place.namespace();
        let is_excluded = self.exclude.as_ref().is_some_and(|pattern| glob(pattern, &namespace));
        glob(&self.pattern, &namespace) && !is_excluded && (place.exists() || !self.pattern.contains('*'))
    }

    fn json(&self) -> Value {
        let mut all = self.keys.clone();
        let mut put = |key: &str, value: Option<Value>| all.extend(value.map(|value| (key.to_owned(), value)));
        put("name", Some(json!(self.name)));
        put("namespace", Some(json!(self.pattern)));
        put("exclude", self.exclude.as_ref().map(|pattern| json!([pattern])));
        // `gridfs` names the field of its files.
        let is_known = self.field.as_deref() == Some("uploadDate") && self.name.ends_with('0');
        put("field", self.field.as_ref().filter(|_| !is_known).map(|field| json!(field)));
        put("dateFormat", (self.format != "date").then(|| json!(self.format)));
        put("ttlField", self.has_ttl_field.then(|| json!("ttl")));
        put("filter", self.filter.as_ref().map(Filter::json));
        put("collation", self.folds.then(|| json!({ "locale": "en", "strength": 2 })));
        put("hint", self.hint.as_ref().map(|hint| json!(hint)));
        put("maxDeletes", self.max_deletes.map(|most| json!(most)));
        put("maxDeletePercent", self.max_percent.map(|most| json!(most)));
        put("enabled", (!self.is_enabled).then(|| json!(false)));
        put("allowUnknownFields", (!self.allowed.is_empty()).then(|| json!(self.allowed)));
        put("window", self.is_closed.map(window));
        Value::Object(all)
    }
}

fn rule(databases: &Databases, number: usize, archives: &str, random: &mut Rng) -> Rule {
    let place = &databases.places[random.usize(0..databases.places.len())];
    let seed = databases.seed;
    let pattern = match random.u8(0..8) {
        0 => format!("{}.c*", place.database),
        1 => format!("x{seed}_*.{}", place.name),
        2 => format!("x{seed}_*.c*"),
        _ => place.namespace(),
    };
    let pattern = if place.name == "fs.files" { place.namespace() } else { pattern };
    let is_glob = pattern.contains('*');
    let is_series = place.kind == Kind::TimeSeries;
    let exclude = (is_glob && random.u8(0..3) == 0).then(|| {
        let other = &databases.places[random.usize(0..databases.places.len())];
        if random.bool() { other.namespace() } else { format!("{}.*1", other.database) }
    });
    let by_id = !is_series && !is_glob && place.name != "fs.files" && place.format == "date" && random.u8(0..14) == 0;
    let field = match () {
        () if is_series && random.bool() => None,
        () if by_id => Some("_id".to_owned()),
        () => Some(place.path.to_owned()),
    };
    let format = match (by_id, place.kind) {
        (true, Kind::Clustered) => "date",
        (true, _) => "objectId",
        _ => place.format,
    };
    let one_in = |random: &mut Rng, n: u8| random.u8(0..n) == 0;
    let has_ttl_field = !is_series && one_in(random, 2);
    let only_own = has_ttl_field && one_in(random, 5);
    let mut keys = Map::new();
    let expire_after = if only_own { -1 } else { databases.expiries[random.usize(0..2)] };
    match expire_after {
        60 if random.bool() => keys.insert("expireAfter".to_owned(), json!("1m")),
        86_400 if random.bool() => keys.insert("expireAfter".to_owned(), json!("1d")),
        _ => keys.insert("expireAfterSeconds".to_owned(), json!(expire_after)),
    };
    let fields: &[&str] = if is_series { &["m.s", "m.seen"] } else { &["s", "n", "d.n", "s", "n", "legal", "seen", "seen"] };
    let filter = one_in(random, 2).then(|| filter(random, fields, 2));
    let is_first = !is_glob && place.namespace() == databases.places[0].namespace();
    let is_bucket = place.name == "fs.files";
    let children = match () {
        () if is_bucket => Some(Children::ALL[2]),
        () => (is_first && one_in(random, 2)).then(|| Children::ALL[random.usize(0..2)]),
    };
    let others = databases.others();
    match children {
        Some(_) if is_bucket => drop(keys.insert("gridfs".to_owned(), json!("fs"))),
        Some(Children { name, field, parent_field }) => {
            let mut child = json!({ "namespace": format!("{others}.{name}"), "field": field });
            if parent_field != "_id" {
                child["parentField"] = json!(parent_field);
            }
            keys.insert("children".to_owned(), json!([child]));
        }
        None => {}
    }
    let folds = filter.is_some() && !is_series && children.is_none() && one_in(random, 4);
    let archive = one_in(random, 4).then(|| ["zstd", "gzip"][random.usize(0..2)]);
    if let Some(compression) = archive {
        keys.insert("archive".to_owned(), json!({ "directory": archives, "compression": compression }));
    }
    let holds = (!is_series && one_in(random, 5)).then(|| Holds {
        collection: format!("{others}.{}", if one_in(random, 12) { "noHolds" } else { "holds" }),
        counted: [Counted::All, Counted::Active, Counted::OfLastDay][random.usize(0..3)],
    });
    let orphans = children.is_some() && holds.is_none() && one_in(random, 3);
    if orphans {
        keys.insert("orphans".to_owned(), json!(true));
    }
    if let Some(Holds { collection, counted }) = &holds {
        let mut value = json!({ "collection": collection, "key": { "of": "k", "in": "h" } });
        match counted {
            Counted::All => {}
            Counted::Active => value["filter"] = json!({ "active": true }),
            Counted::OfLastDay => value["filter"] = json!({ "until": { "$gt": { "$ago": "1d" } } }),
        }
        keys.insert("holds".to_owned(), value);
    }
    let mut put = |key: &str, value: Option<Value>| keys.extend(value.map(|value| (key.to_owned(), value)));
    put("batchSize", one_in(random, 2).then(|| json!(random.u32(1..20))));
    put("concurrency", one_in(random, 3).then(|| json!(random.u32(1..5))));
    put("rate", one_in(random, 6).then(|| json!(1_000_000)));
    put("targetBatchMs", one_in(random, 6).then(|| json!(random.u32(1..500))));
    put("order", one_in(random, 3).then(|| json!(["auto", "oldestFirst", "storage"][random.usize(0..3)])));
    put("maxDirty", one_in(random, 2).then(|| json!(100)));
    let mut allowed = Vec::new();
    for field in ["legal", "ttl", "d.n"] {
        if one_in(random, 4) {
            allowed.push(field.to_owned());
        }
    }
    Rule {
        name: if one_in(random, 6) { place.namespace() + &format!(" {number}") } else { format!("r{number}") },
        pattern,
        exclude,
        field,
        format,
        expire_after,
        has_ttl_field,
        filter,
        folds,
        hint: (!is_series && one_in(random, 6)).then(|| "ix".to_owned()),
        max_deletes: one_in(random, 4).then(|| random.u64(1..40)),
        max_percent: one_in(random, 4).then(|| [1.0, 10.0, 50.0, 99.9, 100.0][random.usize(0..5)]),
        is_enabled: !one_in(random, 14),
        archive,
        holds,
        children,
        orphans,
        allowed,
        is_closed: one_in(random, 8).then(|| one_in(random, 3)),
        keys,
    }
}

fn line(databases: &Databases, rules: &[Rule], random: &mut Rng) -> Line {
    let one_in = |random: &mut Rng, n: u8| random.u8(0..n) == 0;
    let place = &databases.places[random.usize(0..databases.places.len())];
    let only = one_in(random, 6).then(|| match random.u8(0..3) {
        0 => rules.first().map_or_else(|| "*".to_owned(), |rule| rule.name.clone()),
        1 => place.namespace(),
        _ => format!("{}.*", place.database),
    });
    // An `--only` that selects nothing ends the run, so that there is nothing to compare.
    let only = only.filter(|pattern| rules.iter().any(|rule| databases.places.iter().any(|place| selects(pattern, rule, place))));
    let mut more = Vec::new();
    if one_in(random, 2) {
        more.push("--yes".to_owned());
    }
    if one_in(random, 8) {
        more.push("--rate=1000000".to_owned());
    }
    Line {
        is_as_of: !one_in(random, 4),
        only,
        max_deletes: one_in(random, 5).then(|| random.u64(1..60)),
        strict: one_in(random, 10),
        by_plan: one_in(random, 5),
        detailed: one_in(random, 3),
        quiet: random.bool(),
        metrics: random.bool(),
        more,
    }
}

/// Whether a pattern of `--only` selects a rule at a place.
pub(super) fn selects(pattern: &str, rule: &Rule, place: &Place) -> bool {
    let is_rule = glob(pattern, &rule.name) || glob(pattern, &rule.pattern);
    rule.is_enabled && rule.takes(place) && (is_rule || glob(pattern, &place.namespace()))
}

/// Returns a window around now, or one that begins in hours.
fn window(is_closed: bool) -> Value {
    let hour = Utc::now().hour();
    let at = |hours: u32| format!("{:02}:00", (hour + hours) % 24);
    match is_closed {
        true => json!({ "start": at(6), "end": at(9) }),
        false => json!({ "start": at(22), "end": at(4) }),
    }
}

/// Whether a pattern with `*` matches a whole text.
pub(super) fn glob(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, rest)) => text
            .strip_prefix(head)
            .is_some_and(|text| (0..=text.len()).filter(|at| text.is_char_boundary(*at)).any(|at| glob(rest, &text[at..]))),
    }
}
