//! The effects that a policy must have on a database: slow and obvious, from the contract and the documented tables, without the
//! tool's own code.

use std::collections::{BTreeMap, BTreeSet};

use chrono::DateTime as Rfc3339;
use mongodb::bson::{Bson, DateTime, Document, RawDocumentBuf};

use super::databases::{Databases, Kind, Place};
use super::filters::{Comparing, has_type, number, values};
use super::open;
use super::policies::{Children, Counted, Policy, Rule, selects};
use crate::support::reference::{Ttl, earliest, has_expired, least, own_ttl};

/// Documents as the server stores them, by the bytes of their `_id`s.
pub(super) type Stored = BTreeMap<Vec<u8>, RawDocumentBuf>;

/// The documents of all namespaces; the documents of a time-series collection are its buckets.
pub(super) type State = BTreeMap<String, Stored>;

/// Effects that one rule must have in one namespace.
#[derive(Debug, Clone)]
pub(super) struct Expected {
    pub rule: usize,
    pub namespace: String,
    /// Namespace of the documents: the rule's own, or the namespace of the buckets.
    pub stored: String,
    pub verdict: Verdict,
    /// Expired documents without a hold, with the date that decides, in milliseconds.
    pub expired: BTreeMap<Vec<u8>, i128>,
    /// Expired parents that stay, because they have no single value by which their children name them.
    pub parents_that_stay: u64,
    pub held: u64,
    /// Documents that would expire by their date and have a ttl of 0, or a negative other than -1.
    pub not_positive: u64,
    pub documents: u64,
    /// Whether the documents can be counted although the rule is refused.
    pub is_countable: bool,
}

/// Whether a rule sweeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Skips,
    /// One of these guards refuses it.
    Refuses(BTreeSet<&'static str>),
    /// Sweeps, or is refused by one of these guards: where the contract leaves it open, or an exception stands.
    Sweeps(BTreeSet<&'static str>),
}

/// Returns what each selected rule must do in each of its namespaces, in the order of the policy.
pub(super) fn expected(databases: &Databases, policy: &Policy, state: &State, as_of: DateTime) -> Vec<Expected> {
    let mut all = Vec::new();
    for (index, rule) in policy.rules.iter().enumerate() {
        let is_meant = |place: &&Place| policy.line.only.as_ref().is_none_or(|only| selects(only, rule, place));
        let places: Vec<&Place> = databases.places.iter().filter(|place| rule.takes(place)).filter(is_meant).collect();
        for place in &places {
            if rule.is_enabled {
                all.push(Oracle { databases, policy, rule, state, as_of }.judged(index, place, &places));
            }
        }
    }
    all
}

struct Oracle<'a> {
    databases: &'a Databases,
    policy: &'a Policy,
    rule: &'a Rule,
    state: &'a State,
    as_of: DateTime,
}

/// Returns the namespace that holds the documents of a place.
pub(super) fn stored_in(place: &Place) -> String {
    match place.kind {
        Kind::TimeSeries => format!("{}.system.buckets.{}", place.database, place.name),
        _ => place.namespace(),
    }
}

impl Oracle<'_> {
    fn judged(&self, rule: usize, place: &Place, places: &[&Place]) -> Expected {
        let documents = self.documents(place);
        let by_rule = self.by_rule(place);
        let mut expected = Expected {
            rule,
            namespace: place.namespace(),
            stored: stored_in(place),
            verdict: Verdict::Skips,
            expired: BTreeMap::new(),
            parents_that_stay: 0,
            held: 0,
            not_positive: 0,
            documents: documents.len() as u64,
            is_countable: place.exists()
                && !by_rule.iter().any(|guard| ["view", "capped", "timeSeries", "field"].contains(guard)),
        };
        if place.exists() && expected.is_countable {
            let keys = self.held_keys();
            for (id, document) in &documents {
                let date = self.date(document, place.kind);
                let selects = self.selects(document, place.kind);
                if let (Some(at), true, true) = (date, selects, self.has_expired(document, date, place.kind)) {
                    match self.is_held(document, keys.as_deref().unwrap_or_default()) {
                        true => expected.held += 1,
                        false if stays_as_parent(self.rule, document) => expected.parents_that_stay += 1,
                        false => drop(expected.expired.insert(id.clone(), at)),
                    }
                }
                // With a ttl of its own a document lives for a second at least.
                let youngest = i128::from(self.as_of.timestamp_millis()) - if self.rule.expire_after == 0 { 0 } else { 1000 };
                let would_go = date.is_some_and(|at| at <= youngest);
                let is_kept = self.rule.has_ttl_field && own_ttl(document.get("ttl")) == Ttl::Kept;
                let may_go = selects && !stays_as_parent(self.rule, document);
                expected.not_positive += u64::from(would_go && is_kept && may_go);
            }
        }
        expected.verdict = self.verdict(place, places, &by_rule, &documents, &expected);
        expected
    }

    fn documents(&self, place: &Place) -> Vec<(Vec<u8>, Document)> {
        let stored = self.state.get(&stored_in(place)).into_iter().flatten();
        stored.map(|(id, raw)| (id.clone(), Document::try_from(raw.clone()).expect("BSON"))).collect()
    }

    /// Returns the guards that refuse the rule whatever the documents are.
    fn by_rule(&self, place: &Place) -> BTreeSet<&'static str> {
        let Rule { field, format, has_ttl_field, filter, hint, holds, archive, children, .. } = self.rule;
        let mut guards = BTreeSet::new();
        let is_series = place.kind == Kind::TimeSeries;
        match place.kind {
            Kind::View => drop(guards.insert("view")),
            Kind::Capped => drop(guards.insert("capped")),
            Kind::TimeSeries => {
                let mut named = Vec::new();
                filter.iter().for_each(|filter| filter.fields(false, &mut named));
                let is_of_meta = named.iter().all(|(field, _)| field.starts_with("m."));
                let is_other_field = field.as_ref().is_some_and(|field| field != "at");
                let has_other_key = *has_ttl_field || *format != "date" || hint.is_some() || holds.is_some();
                if is_other_field || has_other_key || !is_of_meta {
                    guards.insert("timeSeries");
                }
            }
            _ if field.is_none() => drop(guards.insert("field")),
            _ => {}
        }
        if hint.is_some() && !is_series && place.index.is_none() {
            guards.insert("hint");
        }
        if archive.is_some() && (is_series || self.rule.folds) {
            guards.insert("archive");
        }
        if children.is_some() && is_series {
            guards.insert("children");
        }
        guards
    }

    fn verdict(
        &self,
        place: &Place,
        places: &[&Place],
        by_rule: &BTreeSet<&'static str>,
        documents: &[(Vec<u8>, Document)],
        expected: &Expected,
    ) -> Verdict {
        if !place.exists() {
            let strict = BTreeSet::from(["noSuchNamespace"]);
            return if self.policy.line.strict { Verdict::Refuses(strict) } else { Verdict::Skips };
        }
        let (mut must, mut may) = (by_rule.clone(), BTreeSet::new());
        if self.rule.hint.is_some() && place.index.as_ref().is_some_and(|index| index.len() > 1 || self.rule.format == "iso8601")
        {
            // Whether a sparse, a partial or a misleading index serves the rule is for the planner to say, as long as nothing is
            // left out silently.
            may.insert("hint");
        }
        if self.rule.holds.is_some() && self.held_keys().is_none() {
            must.insert("holds");
        }
        match self.unknown(place, places, documents) {
            // Where nothing has expired nothing can go for a wrong name; a strict run asks for right names all the same.
            Unknown::Refused if expected.expired.is_empty() && !self.policy.line.strict => drop(may.insert("unknownField")),
            Unknown::Refused => drop(must.insert("unknownField")),
            Unknown::Open => drop(may.insert("unknownField")),
            Unknown::No => {}
        }
        if self.has_unknown_type(documents) {
            may.extend(open::UNKNOWN_TYPE);
        }
        if self.rule.orphans {
            may.extend(open::ORPHANS);
        }
        let share = expected.expired.len() as f64 * 100.0 / expected.documents.max(1) as f64;
        if self.rule.max_percent.is_some_and(|most| share > most) {
            must.insert("maxDeletePercent");
        }
        if must.is_empty() { Verdict::Sweeps(may) } else { Verdict::Refuses(must.into_iter().chain(may).collect()) }
    }

    /// Returns the earliest date of a document in milliseconds.
    fn date(&self, document: &Document, kind: Kind) -> Option<i128> {
        let millis = |date: DateTime| i128::from(date.timestamp_millis());
        if kind == Kind::TimeSeries {
            return earliest(document, "control.max.at").map(millis);
        }
        let path = self.rule.field.as_deref().expect("a field");
        let whole_seconds = |id: &Bson| Some(i128::from(id.as_object_id()?.timestamp().timestamp_millis()));
        match self.rule.format {
            "date" => earliest(document, path).map(millis),
            "objectId" => least(document, path, whole_seconds),
            "iso8601" => least(document, path, |text| {
                Some(i128::from(Rfc3339::parse_from_rfc3339(text.as_str()?).ok()?.timestamp_millis()))
            }),
            format => {
                let is_seconds = format == "epochSeconds";
                // The border between the units; one number of the other unit keeps its document.
                let is_of_unit = |n: f64| (n.abs() < 1e11) == is_seconds;
                if least(document, path, |value| number(value).filter(|n| !is_of_unit(*n))).is_some() {
                    return None;
                }
                // An infinity is no date.
                let finite = |value: &Bson| number(value).filter(|n| n.is_finite());
                let ms = least(document, path, |value| finite(value).map(|n| if is_seconds { n * 1000.0 } else { n }))?;
                Some(ms.ceil() as i128)
            }
        }
    }

    fn has_expired(&self, document: &Document, date: Option<i128>, kind: Kind) -> bool {
        let own = if self.rule.has_ttl_field && kind != Kind::TimeSeries { own_ttl(document.get("ttl")) } else { Ttl::Default };
        let default = Some(self.rule.expire_after).filter(|seconds| *seconds >= 0);
        let date = date.map(|ms| DateTime::from_millis(ms.clamp(i64::MIN.into(), i64::MAX.into()) as i64));
        has_expired(date, own, default, self.as_of)
    }

    fn selects(&self, document: &Document, kind: Kind) -> bool {
        let Some(filter) = &self.rule.filter else { return true };
        let by = Comparing { folds: self.rule.folds, as_of: self.as_of };
        match kind {
            Kind::TimeSeries => {
                let meta = document.get("meta").cloned();
                filter.selects(&meta.map(|meta| ("m".to_owned(), meta)).into_iter().collect(), by)
            }
            _ => filter.selects(document, by),
        }
    }

    /// Returns the keys that are held; `None` if the holds refuse the rule, empty without holds.
    fn held_keys(&self) -> Option<Vec<Bson>> {
        let Some(holds) = &self.rule.holds else { return Some(Vec::new()) };
        if holds.collection.ends_with("noHolds") {
            return None;
        }
        let day_before = DateTime::from_millis(self.as_of.timestamp_millis() - 86_400_000);
        let counts = |hold: &&Document| match holds.counted {
            Counted::All => true,
            Counted::Active => matches!(hold.get_bool("active"), Ok(true)),
            Counted::OfLastDay => hold.get_datetime("until").is_ok_and(|until| *until > day_before),
        };
        let keys =
            self.databases.holds.iter().filter(counts).map(|hold| hold.get("h").filter(|key| **key != Bson::Null).cloned());
        keys.collect()
    }

    fn is_held(&self, document: &Document, keys: &[Bson]) -> bool {
        let is_same = |one: &Bson, other: &Bson| match (number(one), number(other)) {
            (Some(one), Some(other)) => one == other,
            _ => one == other,
        };
        values(document, "k").iter().any(|value| keys.iter().any(|key| is_same(value, key)))
    }

    /// Whether the rule is refused for a field that no document is found to have.
    fn unknown(&self, place: &Place, places: &[&Place], documents: &[(Vec<u8>, Document)]) -> Unknown {
        let mut named = Vec::new();
        let rule = self.rule;
        rule.filter.iter().for_each(|filter| filter.fields(false, &mut named));
        if rule.has_ttl_field {
            named.push(("ttl".to_owned(), rule.expire_after >= 0));
        }
        if rule.holds.is_some() {
            named.push(("k".to_owned(), true));
        }
        named.extend(rule.field.iter().filter(|_| place.kind != Kind::TimeSeries).map(|field| (field.clone(), false)));
        let mut found = Unknown::No;
        for (field, is_guarded) in named {
            let is_named = |document: &Document| has_field(document, place.kind, &field);
            let is_allowed = field == "_id" || rule.allowed.contains(&field);
            let is_known = documents.is_empty() || documents.iter().any(|(_, document)| is_named(document));
            if is_known || is_allowed || !(is_guarded || self.policy.line.strict) {
                continue;
            }
            let others = places.iter().filter(|other| other.namespace() != place.namespace());
            let elsewhere = others.filter(|other| self.documents(other).iter().any(|(_, it)| has_field(it, other.kind, &field)));
            // Documents in another namespace of the rule have it, unless that is none whose documents are looked at.
            found = found.max(match elsewhere.count() {
                0 => Unknown::Refused,
                _ => Unknown::Open,
            });
        }
        if let Some(Children { name, field: of_child, parent_field }) = rule.children.filter(|_| place.kind != Kind::TimeSeries) {
            let children = self.state.get(&format!("{}.{name}", self.databases.others())).into_iter().flatten();
            let children: Vec<Document> = children.map(|(_, raw)| Document::try_from(raw.clone()).expect("BSON")).collect();
            let lacks = |documents: &mut dyn Iterator<Item = &Document>, field: &str| {
                let mut all = documents.peekable();
                all.peek().is_some() && !all.any(|document| document.contains_key(field))
            };
            if lacks(&mut children.iter(), of_child) || lacks(&mut documents.iter().map(|(_, document)| document), parent_field) {
                found = Unknown::Refused;
            }
        }
        found
    }

    /// Whether a value is compared with a type that no document has in the field: under a negation or, by a strict run, at all.
    fn has_unknown_type(&self, documents: &[(Vec<u8>, Document)]) -> bool {
        let mut compared = BTreeSet::new();
        self.rule.filter.iter().for_each(|filter| filter.guarded_types(self.policy.line.strict, &mut compared));
        let is_found = |field: &str, kind: &str| {
            let path = field.strip_prefix("m.").map_or_else(|| field.to_owned(), |rest| format!("meta.{rest}"));
            documents.iter().any(|(_, document)| has_type(document, &path, kind))
        };
        compared.iter().any(|(field, kind)| !is_found(field, kind))
    }
}

/// Whether no document was found to have a field, and what follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Unknown {
    No,
    Open,
    Refused,
}

/// Whether a document has a field, through documents and lists of documents.
fn has_field(document: &Document, kind: Kind, path: &str) -> bool {
    if kind == Kind::TimeSeries {
        let inner = path.strip_prefix("m.").and_then(|rest| document.get_document("meta").ok()?.get(rest));
        return inner.is_some();
    }
    let Some((root, rest)) = path.split_once('.') else { return document.contains_key(path) };
    match document.get(root) {
        Some(Bson::Document(inner)) => inner.contains_key(rest),
        Some(Bson::Array(items)) => items.iter().any(|item| item.as_document().is_some_and(|inner| inner.contains_key(rest))),
        _ => false,
    }
}

/// Whether a parent stays because it holds a list where its children name one value.
fn stays_as_parent(rule: &Rule, document: &Document) -> bool {
    let list = |children: Children| document.get(children.parent_field).is_some_and(|value| value.as_array().is_some());
    rule.children.is_some_and(list)
}
