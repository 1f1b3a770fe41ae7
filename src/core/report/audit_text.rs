//! Figures of an audit in the table and in Markdown: a section of plain lines for each rule, and the totals.

use serde_json::Value;

use super::ages;
use super::{Report, RuleReport};
use crate::base::text::percent;
use crate::base::text::{self, bytes, count, plural};
use crate::core::audit::figures::{AgeRange, AuditReport, Sample};

/// Maximum length of a bar in characters.
const MAX_BAR: u64 = 26;

/// Columns before the bars.
const BAR_COLUMN: usize = 17 + 13 + 15 + 2;

/// Maximum number of characters of an `_id` that are shown; an ObjectId has 36.
const MAX_ID_CHARS: usize = 50;

/// Returns the lines of one rule: at most `width` columns wide with `indent` before them, except for names and commands, which
/// stay whole.
pub(super) fn section(rule: &RuleReport, audit: &AuditReport, indent: &str, width: usize) -> Vec<String> {
    let fold = |line: &str| fold(line, indent, width);
    let mut lines = Vec::new();
    if let Some(sampling) = &audit.sampling {
        lines.push(format!(
            "from a sample of {} of {} documents: shares are right within {} percentage points, 19 times out of 20",
            count(sampling.documents),
            count(sampling.of),
            sampling.margin_percent
        ));
    }
    let ages = audit.age_histogram.as_deref().unwrap_or_default();
    if !ages.is_empty() {
        lines.push(format!("{:<17}{:>13}{:>15}", "age", "expired", "not expired"));
        lines.extend(histogram(&ages::merged(ages), width.saturating_sub(indent.len() + BAR_COLUMN)));
    }
    lines.extend(audit.newest_expired.iter().map(|newest| format!("newest expired: {newest}")));
    lines.extend(audit.backlog.as_ref().filter(|backlog| !backlog.is_empty()).map(|backlog| {
        let months: Vec<String> = backlog.iter().map(|month| format!("{} {}", month.month, count(month.count))).collect();
        format!("expired by month: {}", months.join(", "))
    }));
    lines.extend(audit.forecast.as_ref().map(|forecast| {
        let within = |days: usize| count(forecast.iter().take(days).map(|day| day.count).sum());
        format!("expires next: {} in 24 h, {} in 7 d, {} in 30 d", within(1), within(7), within(30))
    }));
    lines.extend(audit.by_period.as_ref().filter(|all| !all.is_empty()).map(|all| {
        let periods: Vec<String> = all.iter().map(|period| format!("{} {}", period.words(), count(period.count))).collect();
        format!("documents by their period: {}", periods.join(", "))
    }));
    let never: Vec<_> = rule.never_expires.iter().flatten().filter(|(_, n)| **n > 0).collect();
    if !never.is_empty() {
        lines.push("never expires:".to_owned());
    }
    for (reason, number) in never {
        let ids = audit.never_expires_samples.get(reason).into_iter().flatten().map(id).collect::<Vec<_>>();
        let such_as = if ids.is_empty() { String::new() } else { format!(", such as {}", ids.join(", ")) };
        lines.push(format!("  {} {reason}{such_as}", count(*number)));
    }
    lines.extend(ignored_ttl(rule, audit));
    lines.extend(samples(&audit.samples));
    lines.extend(audit.examined.as_ref().map(|examined| {
        format!(
            "cost: {} and {} examined to find {}{}",
            plural(examined.keys, "key"),
            plural(examined.documents, "document"),
            if rule.expired_count.is_some_and(|expired| expired > examined.returned) { "the first " } else { "" },
            plural(examined.returned, "document")
        )
    }));
    let mut lines: Vec<String> = lines.iter().flat_map(|line| fold(line)).collect();
    // A command stays in one line, so that it can be pasted.
    if let Some(command) = &audit.create_index {
        lines.extend([format!("{indent}index that would help:"), format!("{indent}  {command}")]);
    }
    lines.extend(
        audit
            .native_comparison
            .as_ref()
            .map(|native| fold(&format!("native TTL: {}: {}", native.state, native.detail)))
            .unwrap_or_default(),
    );
    let troubles = audit.native_troubles.iter().flatten();
    lines.extend(troubles.flat_map(|trouble| fold(&format!("native TTL does nothing: {}", trouble.words()))));
    lines
}

/// Returns a line about documents whose own ttl does not count.
fn ignored_ttl(rule: &RuleReport, audit: &AuditReport) -> Option<String> {
    let (ttl_field, ignored) = rule.ttl_field.as_ref().zip(audit.ignored_ttl_count.filter(|n| *n > 0))?;
    let decides = if rule.expire_after_seconds >= 0 { "expire by expireAfterSeconds" } else { "never expire" };
    let documents = plural(ignored, "document");
    Some(format!(
        "{documents} with a value in {ttl_field} that does not count, for it is no whole number of 32 bits: they {decides}"
    ))
}

/// Returns the totals over all rules in one line.
pub(super) fn totals(report: &Report) -> String {
    let totals = &report.totals;
    let number = |value: Option<u64>| value.map_or_else(|| "an unknown number".to_owned(), count);
    if totals.overlapping {
        let size = totals.estimated_bytes.map(|size| format!(", at most {}", bytes(size))).unwrap_or_default();
        return format!(
            "total: at most {} documents expired, because rules share a collection and each counts a document, in collections of {}{size}",
            number(totals.expired_count),
            number(totals.document_count)
        );
    }
    let mut line = format!("total: {} of {} documents expired", number(totals.expired_count), number(totals.document_count));
    let share = totals.expired_count.zip(totals.document_count).and_then(|(expired, whole)| percent(expired, whole));
    line.extend(share.map(|share| format!(" ({share:.1} %)")));
    line.extend(totals.estimated_bytes.map(|size| format!(", about {}", bytes(size))));
    line
}

/// Returns the row of each range, with a bar in what `room` leaves of [`MAX_BAR`].
fn histogram(ages: &[AgeRange], room: usize) -> impl Iterator<Item = String> {
    let longest = MAX_BAR.min(room as u64);
    let most = ages.iter().map(|range| range.expired_count + range.not_expired_count).max().unwrap_or(0).max(1);
    let bar = move |n: u64| {
        let length = u128::from(n) * u128::from(longest) / u128::from(most);
        // Even a single document has a bar.
        usize::try_from(length).unwrap_or(0).max(usize::from(n > 0 && longest > 0))
    };
    ages.iter().map(move |range| {
        let bars = format!("{}{}", "#".repeat(bar(range.expired_count)), ".".repeat(bar(range.not_expired_count)));
        let line =
            format!("{:<17}{:>13}{:>15}  {bars}", ages::words(range), count(range.expired_count), count(range.not_expired_count));
        line.trim_end().to_owned()
    })
}

fn samples(samples: &[Sample]) -> Vec<String> {
    let Some(first) = samples.first() else { return Vec::new() };
    // The most frequent reason is said once, so that the lines stay short.
    let frequency = |sample: &&Sample| samples.iter().filter(|other| other.why == sample.why).count();
    let usual = samples.iter().rev().max_by_key(frequency).unwrap_or(first).why.as_str();
    let alike = samples.iter().all(|sample| sample.why == usual);
    let head = format!("would go, {usual}{}, such as:", if alike { "" } else { " unless a line says otherwise" });
    let line = |sample: &Sample| {
        let why = if sample.why == usual { String::new() } else { format!("  {}", sample.why) };
        format!("  {}  {}{why}", sample.date, id(&sample.id))
    };
    std::iter::once(head).chain(samples.iter().map(line)).collect()
}

/// Returns an `_id`, or the beginning of a long one.
fn id(id: &Value) -> String {
    let text = text::id(id);
    match text.char_indices().nth(MAX_ID_CHARS) {
        Some((cut, _)) => format!("{}...", &text[..cut]),
        None => text,
    }
}

/// Indents a line and breaks it between words; rows of a table, which are short, stay as they are.
fn fold(line: &str, indent: &str, width: usize) -> Vec<String> {
    let own = &line[..line.len() - line.trim_start().len()];
    text::fold_to(&format!("{indent}{line}"), &format!("{indent}{own}  "), width)
}
