//! Report of a check as text: one line per rule, ok or not, and its errors and warnings below.

use std::collections::BTreeMap;

use super::aligned::{Tone, paint};
use super::lines::by_rules;
use super::{Report, RuleReport, Strategy, TableStyle};
use crate::base::text::{clean, count, fold_to, plural};
use crate::core::plan::Status;
use crate::core::plan::{Reason, SkipReason};

/// Maximum length, in characters, of a name that shares its line with the facts.
const MAX_NAME: usize = 28;

/// Maximum length of a text that is said again of another rule.
const MAX_REPEATED: usize = 60;

/// Indent of notes: they begin below the names.
const INDENT: &str = "         ";

pub fn render(report: &Report, look: TableStyle) -> String {
    let TableStyle { colored, width: columns, .. } = look;
    let below = |text: &str| fold_to(&format!("{INDENT}{text}"), INDENT, columns);
    let width = |rule: &RuleReport| clean(&rule.name).chars().count();
    let widest = report.rules.iter().map(width).filter(|width| *width <= MAX_NAME).max().unwrap_or(0);
    let mut lines = Vec::new();
    let mut said: BTreeMap<String, &str> = BTreeMap::new();
    for rule in &report.rules {
        let (word, tone) = verdict(rule);
        let name = clean(&rule.name);
        let facts = facts(rule).join(", ");
        let mut below_word = if width(rule) <= widest && !facts.is_empty() {
            below(&format!("{name:<widest$}  {facts}"))
        } else {
            let facts = Some(facts).filter(|facts| !facts.is_empty());
            below(&name).into_iter().chain(facts.iter().flat_map(|facts| below(facts))).collect()
        };
        // Only the word is painted, and after the fold: escapes have no width.
        if let Some(first) = below_word.first_mut() {
            first.replace_range(
                ..INDENT.len(),
                &format!("{}{:pad$}", paint(&word, tone, colored), "", pad = INDENT.len() - word.len()),
            );
        }
        lines.extend(below_word);
        // Its warning names the namespace as well.
        let is_said = rule.reason == Some(Reason::Skip(SkipReason::NoSuchNamespace)) && !rule.warnings.is_empty();
        let why = rule.why().filter(|_| !is_said);
        let warnings = rule.warnings.iter().map(|warning| (Tone::Warning, format!("warning: {warning}")));
        for (tone, text) in why.map(|why| (tone, why)).into_iter().chain(warnings) {
            // A reason that another rule had is not shown again.
            let first = *said.entry(text.clone()).or_insert(&rule.name);
            let text = match text.split_once(": ") {
                Some((what, _)) if first != rule.name && text.len() > MAX_REPEATED => format!("{what}: as for {first}"),
                _ => text,
            };
            lines.extend(below(&text).iter().map(|line| paint(line, tone, colored)));
        }
    }
    let untested = report.server.as_ref().and_then(|server| server.untested.as_ref());
    let untested = untested.iter().flat_map(|why| below(&format!("warning: {why}")));
    lines.extend(untested.map(|line| paint(&line, Tone::Warning, colored)));
    lines.push(String::new());
    lines.extend(fold_to(&last(report), "  ", columns));
    lines.join("\n") + "\n"
}

fn verdict(rule: &RuleReport) -> (String, Tone) {
    match rule.status {
        Status::Complete => ("ok".to_owned(), Tone::Plain),
        Status::Failed => (rule.status.to_string(), Tone::Error),
        Status::Refused | Status::Partial => (rule.status.to_string(), Tone::Warning),
        Status::Skipped => (rule.status.to_string(), Tone::Plain),
    }
}

/// Returns the facts about the collection, with its name if the rule has another one.
fn facts(rule: &RuleReport) -> Vec<String> {
    let namespace = Some(&rule.namespace).filter(|namespace| **namespace != rule.name);
    let documents = rule.document_count.map(|documents| {
        let noun = if rule.strategy == Some(Strategy::Buckets) { "bucket" } else { "document" };
        plural(documents, noun)
    });
    let index = match (&rule.index, rule.strategy) {
        (Some(index), _) => Some(format!("index {index}")),
        (None, Some(Strategy::Buckets) | None) => None,
        (None, Some(_)) => Some("no index: goes through the collection".to_owned()),
    };
    namespace.cloned().into_iter().chain(documents).chain(index).collect()
}

fn last(report: &Report) -> String {
    let rules = report.totals.rules;
    let of_rules = by_rules(report.rules.iter());
    let not_ready = report.totals.failed + report.totals.refused;
    let skipped = report.rules.iter().filter(|rule| rule.status == Status::Skipped).count();
    let said = match (&report.server, not_ready) {
        (None, 0) => format!("{of_rules}, no problem found; nothing was contacted: `--connect` looks at the deployment as well"),
        (None, bad) => format!("{} of {of_rules} would not run", count(bad as u64)),
        (Some(server), bad) => {
            let ready = rules.saturating_sub(not_ready + skipped);
            let parts = [(ready, "ready to sweep"), (bad, "would not run"), (skipped, "skipped")];
            let parts: Vec<String> =
                parts.iter().filter(|(number, _)| *number > 0).map(|(number, word)| format!("{number} {word}")).collect();
            format!("{of_rules} on {} {} {}: {}", server.flavor, server.version, server.topology, parts.join(", "))
        }
    };
    format!("{}: {said}", report.policy.path)
}
