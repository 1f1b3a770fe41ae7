//! Report of a check as text: one line per rule, ok or not, and its errors and warnings below.

use super::lines::Tone;
use super::table::paint;
use super::{Report, RuleReport, Status, Strategy};
use crate::plan::{Reason, SkipReason};
use crate::text::{clean, count, fold, plural};

/// Maximum length, in characters, of a name that shares its line with the facts.
const MAX_NAME: usize = 28;

/// Indent of notes: they begin below the names.
const INDENT: &str = "         ";

pub fn render(report: &Report, colored: bool) -> String {
    let width = |rule: &RuleReport| clean(&rule.name).chars().count();
    let widest = report.rules.iter().map(width).filter(|width| *width <= MAX_NAME).max().unwrap_or(0);
    let mut lines = Vec::new();
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
        lines.extend(why.iter().flat_map(|why| below(why)).map(|line| paint(&line, tone, colored)));
        let warnings = rule.warnings.iter().flat_map(|warning| below(&format!("warning: {warning}")));
        lines.extend(warnings.map(|line| paint(&line, Tone::Warning, colored)));
    }
    let untested = report.server.as_ref().and_then(|server| server.untested.as_ref());
    let untested = untested.iter().flat_map(|why| below(&format!("warning: {why}")));
    lines.extend(untested.map(|line| paint(&line, Tone::Warning, colored)));
    lines.push(String::new());
    lines.extend(fold(&last(report), "  "));
    lines.join("\n") + "\n"
}

/// Returns a text as lines below the names, safe to print.
fn below(text: &str) -> Vec<String> {
    fold(&format!("{INDENT}{text}"), INDENT)
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
    let not_ready = report.totals.failed + report.totals.refused;
    let skipped = report.rules.iter().filter(|rule| rule.status == Status::Skipped).count();
    let of_rules = plural(rules as u64, "rule");
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
