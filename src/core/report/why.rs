//! Report of `sweeper why`: one document, and what each rule for its collection, or for its parent, makes of it.

mod family;
mod swept;

use std::collections::BTreeSet;

use bson::{Bson, DateTime, Document};
use serde::Serialize;
use serde_json::Value;
use textwrap::core::display_width;

use super::ServerReport;
use super::aligned::align;
use crate::base::instant::Instant;
use crate::base::text::{self, clean, fold_to, page};
use crate::core::audit::figures::PARENT_FIELD;
use crate::core::plan::SweepRule;
use crate::core::plan::holds::HeldBack;
use crate::core::plan::judgement::{ChildrenWhy, Judgement, PeriodWhy};
pub use family::{ChildWhy, Parent};
pub use swept::ByRule;
use swept::goes;

/// Characters of a value that are shown.
const MAX_SHOWN: usize = 200;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WhyReport {
    pub schema_version: u32,
    /// `why`.
    pub command: &'static str,
    pub run_id: String,
    pub server: ServerReport,
    pub as_of: Instant,
    pub namespace: String,
    /// The `_id` as canonical Extended JSON.
    pub id: Value,
    /// The rules that delete the document in the next sweep.
    pub taken_by: Vec<String>,
    pub rules: Vec<RuleWhy>,
    /// The document by the rules that have its collection as one of children.
    pub child_of: Vec<ChildWhy>,
}

/// The document by one rule.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RuleWhy {
    pub rule: String,
    /// One sentence: when the document goes, or why it stays.
    pub verdict: String,
    /// Whether the next sweep by the rule deletes the document, unless one of `limits` keeps it.
    pub taken: bool,
    /// The limits of the rule that may keep a document which it takes: only a count tells.
    pub limits: Vec<&'static str>,
    /// The reason why the rule deletes nothing now, or was not looked at; null if it may delete.
    pub not_swept: Option<String>,
    pub field: Option<String>,
    /// Value of the field as relaxed Extended JSON; of a dotted path, the value of its first part. Null if the document has none.
    pub value: Option<Value>,
    /// The earliest date at the path, which decides.
    pub date: Option<Instant>,
    /// Dates at the path.
    pub dates: i64,
    /// Position of the deciding date, counted from 0, if the value is an array.
    pub element: Option<usize>,
    pub ttl_field: Option<String>,
    pub ttl_value: Option<Value>,
    /// Whether the ttl counts; null without a ttl.
    pub ttl_counts: Option<bool>,
    pub expire_after_seconds: Option<u32>,
    pub threshold: Option<Instant>,
    /// The instant at which the document expires by its date and its ttl; null if it never does.
    pub expires_at: Option<Instant>,
    /// The reason why it never expires, as in `neverExpires` of an audit.
    pub never_expires: Option<String>,
    pub filter: Vec<ClauseWhy>,
    /// Whether a hold keeps the document; null if the rule has no holds, or they were not read.
    pub held: Option<bool>,
    /// The collection of the holds.
    pub holds: Option<String>,
    /// The collection of the periods.
    pub periods: Option<String>,
    /// Seconds of the document's longest period; null if it has none that ends, or the rule's own time is longer.
    pub period_seconds: Option<i64>,
    /// The children of the document, which go after it; empty if the rule has none, or was not looked at.
    pub children: Vec<ChildrenWhy>,
}

/// A part of the rule's filter. All parts have to match.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClauseWhy {
    /// As relaxed Extended JSON.
    pub clause: Value,
    pub matches: bool,
}

/// Returns the parts of a filter that all have to match: its keys, and the elements of `$and`.
pub fn clauses(filter: Option<&Document>) -> Vec<Document> {
    let of_key = |(key, value): (&String, &Bson)| match (key.as_str(), value) {
        ("$and", Bson::Array(parts)) if parts.iter().all(|part| part.as_document().is_some()) => {
            parts.iter().filter_map(Bson::as_document).flat_map(|part| clauses(Some(part))).collect()
        }
        _ => vec![Document::from_iter([(key.clone(), value.clone())])],
    };
    filter.into_iter().flatten().flat_map(of_key).collect()
}

/// Returns the names of the fields that explain a document by a rule: the first one of the date's path, and the field of the ttl.
pub fn fields(rule: &SweepRule) -> impl Iterator<Item = &str> {
    let root = rule.expiry.field.split('.').next();
    root.into_iter().chain(rule.expiry.ttl_field.as_deref())
}

impl RuleWhy {
    /// Explains a document, of which the [`fields`] and its `children` are given, by a rule.
    pub fn of(
        by_rule: &ByRule,
        document: &Document,
        found: Option<&Judgement>,
        children: Vec<ChildrenWhy>,
        as_of: DateTime,
    ) -> Self {
        let ByRule { planned, findings, .. } = by_rule;
        let mut why = Self {
            rule: planned.rule.name.clone(),
            verdict: String::new(),
            taken: false,
            limits: Vec::new(),
            not_swept: by_rule.not_swept(),
            field: planned.field.clone(),
            value: None,
            date: None,
            dates: 0,
            element: None,
            ttl_field: planned.rule.ttl_field.clone(),
            ttl_value: None,
            ttl_counts: None,
            expire_after_seconds: planned.rule.expire_after_seconds,
            threshold: planned.threshold.map(Instant),
            expires_at: None,
            never_expires: None,
            filter: Vec::new(),
            held: None,
            holds: None,
            periods: None,
            period_seconds: None,
            children,
        };
        let selection = planned.decision.countable().map(|rule| &rule.selection);
        let collection = |held: &Option<HeldBack>| held.as_ref().map(|held| held.collection.to_string());
        why.holds = selection.and_then(|selection| collection(&selection.holds));
        why.periods = selection.and_then(|selection| collection(&selection.periods));
        why.held = found.filter(|_| findings.goes_by.keys.holds.is_some()).map(|found| found.is_held);
        if let (Some(rule), Some(found)) = (planned.decision.countable(), found) {
            why.enter(rule, document, found);
        }
        if why.taken {
            why.limits = by_rule.limits();
        }
        why.verdict = why.judged(found, as_of);
        why
    }

    fn enter(&mut self, rule: &SweepRule, document: &Document, found: &Judgement) {
        let expiry = &rule.expiry;
        let relaxed = |value: &Bson| value.clone().into_relaxed_extjson();
        let value = expiry.field.split('.').next().and_then(|root| document.get(root));
        let ttl = expiry.ttl_field.as_ref().and_then(|field| document.get(field));
        self.value = value.map(relaxed);
        self.date = found.date.map(Instant);
        self.dates = found.dates;
        if let (Some(Bson::Array(elements)), false) = (value, expiry.field.contains('.')) {
            self.element = elements.iter().position(|element| found.date.is_some() && expiry.instant(element) == found.date);
        }
        self.ttl_value = ttl.map(relaxed);
        self.ttl_counts = ttl.map(|_| found.ttl.is_some());
        self.never_expires = found.never.clone();
        let lifetime = match (found.ttl, found.period) {
            (Some(ttl), _) => (ttl > 0).then_some(ttl),
            (None, Some(PeriodWhy::Period(seconds))) => Some(seconds),
            (None, Some(PeriodWhy::OfRule(seconds))) => Some(seconds.into()),
            (None, Some(PeriodWhy::Never | PeriodWhy::Unclear | PeriodWhy::Missing)) => None,
            (None, None) => expiry.expire_after_seconds.map(i64::from),
        };
        self.never_expires = self.never_expires.take().or_else(|| never_by(found.ttl, found.period));
        self.period_seconds = match found.period {
            Some(PeriodWhy::Period(seconds)) => Some(seconds),
            _ => None,
        };
        let millis = |(date, seconds): (DateTime, i64)| date.timestamp_millis().saturating_add(seconds.saturating_mul(1000));
        let millis = found.date.zip(lifetime).map(millis);
        self.expires_at = millis.filter(|_| self.never_expires.is_none()).map(|millis| Instant(DateTime::from_millis(millis)));
        let matches = found.clauses.iter().copied();
        let clauses = clauses(rule.own_filter()).into_iter().zip(matches);
        self.filter = clauses.map(|(clause, matches)| ClauseWhy { clause: relaxed(&clause.into()), matches }).collect();
        self.taken = found.is_taken && !found.is_held && self.not_swept.is_none();
    }

    fn judged(&self, found: Option<&Judgement>, as_of: DateTime) -> String {
        let not_swept = self.not_swept.as_deref();
        let Some(found) = found else {
            return format!("the rule does nothing here: {}", not_swept.unwrap_or("it was not looked at"));
        };
        let expires = || self.expires_at.map_or_else(String::new, |at| at.to_string());
        let filtered = if found.clauses.contains(&false) { "; the filter keeps it" } else { "" };
        match (found.is_taken, &self.never_expires) {
            (true, _) if found.is_held => {
                format!("expired at {}, but stays: a hold in `{}` keeps it", expires(), self.holds.as_deref().unwrap_or_default())
            }
            (true, _) if not_swept.is_none() => format!("expired at {}: {}", expires(), goes(&self.limits)),
            (true, _) => format!("expired at {}, but the rule deletes nothing: {}", expires(), not_swept.unwrap_or_default()),
            (false, Some(reason)) => format!("stays, because {}{filtered}", self.reason(reason)),
            (false, None) if self.expires_at.is_some_and(|Instant(at)| at > as_of) => {
                format!("stays until {}{filtered}", expires())
            }
            (false, None) if filtered.is_empty() => "stays: it does not match the rule".to_owned(),
            (false, None) => format!("expired at {}, but stays: the filter does not select it", expires()),
        }
    }

    /// Returns a reason of `neverExpires` in words.
    fn reason(&self, reason: &str) -> String {
        let field = self.field.as_deref().unwrap_or_default();
        let is = |what: &str| format!("`{field}` is {what}, and no date of the rule's format");
        match reason {
            "missing" => format!("it has no `{field}`"),
            "null" => format!("`{field}` is null"),
            "string" => is("a string"),
            "number" => is("a number"),
            "decimal" => is("a Decimal128"),
            "date" => is("a date"),
            "timestamp" => is("a Timestamp"),
            "emptyArray" => is("an empty array"),
            "arrayWithoutDate" => is("an array without a date"),
            "otherType" => is("of another type"),
            "periodNever" => format!("its period in `{}` is -1: it never expires", self.periods.as_deref().unwrap_or_default()),
            "periodUnclear" => format!(
                "its period in `{}` is no whole number above 0, or documents there differ",
                self.periods.as_deref().unwrap_or_default()
            ),
            "noPeriod" => format!(
                "it has no period in `{}`, and the rule has no time of its own",
                self.periods.as_deref().unwrap_or_default()
            ),
            "ttlNever" => "its ttl is -1: it never expires".to_owned(),
            "ttlNotPositive" => "its ttl is 0, or negative and not -1: no document says what that means".to_owned(),
            "noTtl" => "it has no ttl that counts, and the rule deletes only by the documents' own".to_owned(),
            "implausibleEpoch" => format!("the number in `{field}` is of another unit than the rule's"),
            "before1970" => "its date is before 1970, which the server keeps".to_owned(),
            PARENT_FIELD => {
                "an array or a regular expression is in the field by which children name it: which of them are its own is unclear"
                    .to_owned()
            }
            other => format!("it never expires ({other})"),
        }
    }
}

/// Renders the report as text of this width; it ends with a newline. `_id`s and values are not broken.
pub fn render(report: &WhyReport, width: usize) -> String {
    let server = &report.server;
    let place = server.name.as_ref().map_or_else(String::new, |name| format!(" of {name}"));
    let head = [
        format!("{} with the `_id` {}", report.namespace, text::id(&report.id)),
        format!("{} {} at {}{place}, judged at {}", server.flavor, server.version, server.hosts.join(", "), report.as_of),
    ];
    let mut lines: Vec<String> = head.iter().flat_map(|line| fold_to(line, "  ", width)).collect();
    let by_rules = report.rules.iter().map(|rule| (&rule.rule, &rule.verdict, details(rule)));
    let by_parents = report.child_of.iter().map(|child| (&child.rule, &child.verdict, child.details()));
    for (rule, verdict, details) in by_rules.chain(by_parents) {
        lines.push(String::new());
        lines.extend(fold_to(&format!("{rule}: {verdict}"), "  ", width));
        let below = " ".repeat(4 + details.iter().map(|[name, _]| display_width(name)).max().unwrap_or(0));
        lines.extend(align(&details, |_| false).iter().flat_map(|line| fold_to(&format!("  {line}"), &below, width)));
    }
    page(lines)
}

/// Returns the reason why a document without a ttl of its own never expires by its period.
fn never_by(ttl: Option<i64>, period: Option<PeriodWhy>) -> Option<String> {
    let reason = match period.filter(|_| ttl.is_none())? {
        PeriodWhy::Never => "periodNever",
        PeriodWhy::Unclear => "periodUnclear",
        PeriodWhy::Missing => "noPeriod",
        PeriodWhy::Period(_) | PeriodWhy::OfRule(_) => return None,
    };
    Some(reason.to_owned())
}

/// Returns the facts on a document by a rule, each with its name.
fn details(rule: &RuleWhy) -> Vec<[String; 2]> {
    let mut details = Vec::new();
    let mut add = |name: &str, fact: String| details.push([name.to_owned(), fact]);
    if let Some(value) = &rule.value {
        let decided = match (rule.dates, rule.date, rule.element) {
            (0, ..) | (_, None, _) => String::new(),
            (1, Some(_), None) => String::new(),
            (dates, Some(date), Some(element)) => format!("; of {dates} dates element {element} decides: {date}"),
            (dates, Some(date), None) => format!("; the earliest of {dates} dates decides: {date}"),
        };
        add(rule.field.as_deref().unwrap_or_default(), format!("{}{decided}", shown(value)));
    }
    if let Some(field) = &rule.ttl_field {
        let default = rule.expire_after_seconds.map_or_else(|| "nothing".to_owned(), |seconds| format!("{seconds} s"));
        let fact = match (&rule.ttl_value, rule.ttl_counts) {
            (Some(value), Some(true)) => format!("{}, in place of {default}", shown(value)),
            (Some(value), _) => {
                format!("{}: does not count, because it is no whole number of 32 bits; {default} applies", shown(value))
            }
            (None, _) => format!("missing; {default} applies"),
        };
        add(field, fact);
    } else if let Some(seconds) = rule.expire_after_seconds {
        add("lifetime", format!("{seconds} s"));
    }
    if let Some(periods) = &rule.periods {
        let fact = match rule.period_seconds {
            Some(seconds) => format!("{seconds} s"),
            None => "none that decides".to_owned(),
        };
        add("period", format!("{fact} (`{periods}`)"));
    }
    if let Some(expires_at) = rule.expires_at {
        add("expires", expires_at.to_string());
    }
    if let Some(threshold) = rule.threshold {
        add("threshold", format!("{threshold}; dates at or before it have expired"));
    }
    if let Some(holds) = &rule.holds {
        let fact = match rule.held {
            Some(true) => "a hold keeps it",
            Some(false) => "none",
            None => "not read",
        };
        add("holds", format!("{fact} (`{holds}`)"));
    }
    for children in &rule.children {
        add("children", family::children(children));
    }
    for clause in &rule.filter {
        add("filter", format!("{}  {}", if clause.matches { "yes" } else { "no " }, shown(&clause.clause)));
    }
    details
}

fn shown(value: &Value) -> String {
    let text = clean(&value.to_string());
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// Returns the names of the rules that take the document.
pub fn taken_by(rules: &[RuleWhy], child_of: &[ChildWhy]) -> Vec<String> {
    let by_rules = rules.iter().filter(|rule| rule.taken).map(|rule| &rule.rule);
    let by_parents = child_of.iter().filter(|child| child.taken).map(|child| &child.rule);
    by_rules.chain(by_parents).cloned().collect::<BTreeSet<_>>().into_iter().collect()
}
