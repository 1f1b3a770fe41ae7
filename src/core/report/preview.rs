//! Preview of a sweep: rule by rule what it deletes at most, what keeps it from more, and what is not swept at all. The question
//! before a sweep shows it, and it heads a dry run.

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use super::aligned::{Tone, align_within, paint};
use super::amount::{AtMost, OfParents, is_of_buckets, max_deletes};
use super::lines::{by_rules, named, server_line, share, shared, title, tone, whys_of};
use super::{Report, ReportedLimits, RuleReport, estimate, overlap};
use crate::base::text::{count, duration, fold_to, percent, plural};
use crate::core::plan::Status;
use crate::core::plan::StopReason;

/// Lines of the preview that are kept for reasons and warnings, if there are any.
const MIN_NOTES: usize = 5;

/// Heads of the columns.
const COLUMNS: [&str; 6] = ["rule", "would go", "expired", "of", "share", "dates up to (UTC)"];

/// Limit of the run in a row.
const OF_RUN: &str = "--max-deletes";

/// Beginning of what goes besides the documents in a row.
const AND: &str = "and ";

/// Indent of what does not fit in its row.
const INDENT: &str = "    ";

/// Returns the question before a sweep; `None` if there is nothing to delete.
pub(crate) fn question(report: &Report) -> Option<String> {
    let most = AtMost::of(report);
    if most.is_some_and(AtMost::is_none) {
        return None;
    }
    let what = most.map_or_else(|| "an unknown number of documents".to_owned(), |most| format!("at most {most}"));
    if most.is_some_and(AtMost::has_orphans) {
        // They are in other collections than the documents of the rule.
        let rules = by_rules(report.rules.iter().filter(|rule| rule.would_delete()));
        return Some(format!("delete {what} by {rules}?"));
    }
    let ready = report.rules.iter().filter(|rule| rule.status == Status::Complete && rule.would_delete_count != Some(0));
    let collections: BTreeSet<&str> =
        ready.flat_map(|rule| rule.child_namespaces.iter().flatten().chain([&rule.namespace])).map(String::as_str).collect();
    Some(format!("delete {what} from {}?", plural(collections.len() as u64, "collection")))
}

/// Lines of a preview.
pub(crate) struct Lines {
    pub lines: Vec<(Tone, String)>,
    /// Whether each rule in each namespace has its row, and each reason is shown.
    pub is_whole: bool,
}

impl Lines {
    /// Joins the lines to a text that is safe to print.
    pub(crate) fn text(&self, colored: bool) -> String {
        self.lines.iter().map(|(tone, line)| paint(line, *tone, colored) + "\n").collect()
    }
}

/// Returns the lines above the question: the deployment, the rules, reasons, warnings, limits and the estimate. `most` is the
/// maximum number of lines.
pub(crate) fn above_question(report: &Report, width: usize, most: Option<usize>) -> Lines {
    let plain = |text: String| fold_to(&text, INDENT, width).into_iter().map(|line| (Tone::Plain, line)).collect::<Vec<_>>();
    let mut lines: Vec<_> = head(report).into_iter().flat_map(plain).collect();
    let below: Vec<_> = of_run(report).into_iter().flat_map(plain).collect();
    let in_full = notes(report, None);
    // The question says that `?` shows everything.
    let told = if most.is_some() { notes(report, Some("")) } else { in_full.clone() };
    let is_in_full = told == in_full;
    let notes: Vec<Vec<(Tone, String)>> = told
        .into_iter()
        .map(|(tone, note)| fold_to(&note, INDENT, width).into_iter().map(|line| (tone, line)).collect())
        .collect();
    let all_notes: usize = notes.iter().map(Vec::len).sum();
    let room = most.map(|most| most.saturating_sub(lines.len() + below.len()));
    let rows = rows(report, width, room.map(|room| room.saturating_sub(all_notes.min(MIN_NOTES))));
    lines.extend(rows.lines);
    let room = most.map(|most| most.saturating_sub(lines.len() + below.len()));
    let mut is_whole = rows.is_whole && is_in_full;
    match room.filter(|room| *room < all_notes) {
        None => lines.extend(notes.into_iter().flatten()),
        Some(room) => {
            is_whole = false;
            let mut left = room.saturating_sub(1);
            let fitting = notes.iter().take_while(|note| {
                let fits = note.len() <= left;
                left = left.saturating_sub(note.len());
                fits
            });
            let fitting = fitting.count();
            let more = plural((notes.len() - fitting) as u64, "more note");
            lines.extend(notes.into_iter().take(fitting).flatten());
            lines.push((Tone::Warning, more));
        }
    }
    lines.extend(below);
    Lines { lines, is_whole }
}

/// Returns the table of a dry run, with a row for each rule in each namespace that has something to do or to say.
pub(super) fn table(report: &Report, width: usize) -> Vec<(Tone, String)> {
    rows(report, width, None).lines
}

/// Returns the lines about the deployment, the policy and the plan.
fn head(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(server) = &report.server {
        let hosts = if server.hosts.is_empty() { String::new() } else { format!(": {}", server.hosts.join(", ")) };
        lines.push(format!("{}{hosts}", server_line(server)));
    }
    let as_of = report.as_of.map_or_else(String::new, |as_of| format!(", as of {as_of}"));
    lines.push(format!("policy {}{as_of}", report.policy.path));
    lines.extend(report.plan.as_ref().map(|plan| {
        let approved = |rule: &&RuleReport| rule.approved_count.is_some();
        let rules = report.rules.iter().filter(approved);
        let sum: u64 = rules.clone().filter_map(|rule| rule.approved_count).fold(0, u64::saturating_add);
        format!("plan {}: approved {} by {}", plan.path, count(sum), plural(rules.count() as u64, "rule"))
    }));
    lines
}

/// A row of the table, with what does not stand in a column.
struct Row<'r> {
    cells: [String; 6],
    why: String,
    tone: Tone,
    /// The rule, in each of its namespaces that have no row of their own.
    rules: Vec<&'r RuleReport>,
}

impl Row<'_> {
    /// Returns the number of documents that decides which rows are shown: that of a rule that was not counted is the largest.
    fn weight(&self) -> u64 {
        let ready = self.rules.iter().filter(|rule| rule.status == Status::Complete);
        let goes = |rule: &RuleReport| Some(rule.would_delete_count?.saturating_add(rule.would_delete_orphan_count.unwrap_or(0)));
        ready.map(|rule| goes(rule).unwrap_or(u64::MAX)).fold(0, u64::saturating_add)
    }
}

/// Returns the rows of the table: one for each rule in each namespace, or one for each rule if these were too many, or the
/// largest of them.
fn rows(report: &Report, width: usize, most: Option<usize>) -> Lines {
    let shown: Vec<&RuleReport> = report.rules.iter().filter(|rule| !is_idle(rule)).collect();
    let idle = report.rules.len() - shown.len();
    let noun = if shown.is_empty() { "rule" } else { "more rule" };
    let idle = (idle > 0).then(|| (Tone::Plain, format!("{} with nothing expired", plural(idle as u64, noun))));
    let room = most.map(|most| most.saturating_sub(usize::from(idle.is_some())));
    let fits = |lines: &Vec<(Tone, String)>| room.is_none_or(|room| lines.len() <= room);
    let each: Vec<Row> = shown.iter().map(|rule| row(report, rule)).collect();
    let (mut lines, mut is_whole) = (laid_out(&each, width).concat(), true);
    if !fits(&lines) {
        is_whole = false;
        let mut sums = subtotals(report, &shown);
        lines = laid_out(&sums, width).concat();
        if !fits(&lines) {
            // The heaviest rows stay, in their order. Rules that are not swept have their reasons below.
            let room = room.unwrap_or(0);
            let mut rest = Vec::new();
            while lines.len() >= room
                && let Some((lightest, _)) = sums.iter().enumerate().rev().min_by_key(|(_, row)| row.weight())
            {
                rest.push(sums.remove(lightest));
                lines = laid_out(&sums, width).concat();
            }
            let number = plural(rest.len() as u64, "more rule");
            let goes = AtMost::of_rules(report, rest.iter().flat_map(|row| row.rules.iter().copied()));
            let goes = goes.map_or_else(|| "an unknown number of documents".to_owned(), AtMost::bounded);
            lines.push((Tone::Plain, format!("{number}: {goes}")));
        }
    }
    lines.extend(idle);
    Lines { lines, is_whole }
}

/// Whether a rule has nothing to do and nothing to say.
fn is_idle(rule: &RuleReport) -> bool {
    rule.status == Status::Complete && rule.expired_count == Some(0) && rule.old_orphan_count.unwrap_or(0) == 0
}

/// Returns the lines of the heads and of each row.
fn laid_out(rows: &[Row], width: usize) -> Vec<Vec<(Tone, String)>> {
    if rows.is_empty() {
        return Vec::new();
    }
    let cells = std::iter::once(COLUMNS.map(str::to_owned)).chain(rows.iter().map(|row| row.cells.clone()));
    let all = align_within(&cells.collect::<Vec<_>>(), |column| (1..=4).contains(&column), width);
    let whys = std::iter::once("").chain(rows.iter().map(|row| row.why.as_str()));
    let tones = std::iter::once(Tone::Plain).chain(rows.iter().map(|row| row.tone));
    let widest = all.iter().filter_map(|lines| lines.last()).map(|line| line.chars().count()).max().unwrap_or(0);
    let row = |((mut lines, why), tone): ((Vec<String>, &str), Tone)| {
        if let Some(last) = lines.last_mut().filter(|_| !why.is_empty()) {
            let beside = format!("{last:<widest$}  {why}");
            if beside.chars().count() <= width {
                *last = beside;
            } else {
                lines.push(format!("{INDENT}{why}"));
            }
        }
        lines.into_iter().map(|line| (tone, line)).collect()
    };
    all.into_iter().zip(whys).zip(tones).map(row).collect()
}

fn row<'r>(report: &Report, rule: &'r RuleReport) -> Row<'r> {
    let number = |value: Option<u64>| value.map_or_else(|| "-".to_owned(), count);
    let goes = rule.would_delete_count.map(|goes| goes.min(max_deletes(report).unwrap_or(u64::MAX)));
    Row {
        cells: [
            title(report, rule),
            match goes {
                Some(goes) => count(goes),
                None if rule.status == Status::Complete => "?".to_owned(),
                None => rule.status.to_string(),
            },
            number(rule.expired_count),
            number(rule.document_count),
            share(rule.share()),
            up_to(rule),
        ],
        why: whys(report, rule).join(", "),
        tone: tone(rule.status),
        rules: vec![rule],
    }
}

fn up_to(rule: &RuleReport) -> String {
    match (rule.threshold, &rule.ttl_field) {
        (Some(threshold), _) => threshold.minute(),
        (None, Some(_)) => "its own ttl".to_owned(),
        (None, None) => "-".to_owned(),
    }
}

/// Returns the limits of a rule, and what goes besides its documents; of a rule that is skipped, the reason.
fn whys(report: &Report, rule: &RuleReport) -> Vec<String> {
    let mut whys = Vec::new();
    if is_of_buckets(rule) {
        whys.push("buckets".to_owned());
    }
    if rule.status != Status::Complete {
        // A note says why a rule is refused, or failed.
        whys.extend(rule.reason.as_ref().filter(|_| rule.status == Status::Skipped).map(ToString::to_string));
        return whys;
    }
    if let (Some(_), Some(field)) = (rule.threshold, &rule.ttl_field) {
        whys.push(format!("or by own `{field}`"));
    }
    whys.extend(rule.approved_count.map(|approved| format!("approved {}", count(approved))));
    whys.extend(OfParents::of(rule).words().map(|children| format!("{AND}{children}")));
    whys.extend(orphans(rule.would_delete_orphan_count, rule.old_orphan_count));
    let goes = rule.would_delete_count.map(|goes| goes.saturating_add(rule.would_delete_orphan_count.unwrap_or(0)));
    match (rule.would_delete_limit, goes.zip(max_deletes(report))) {
        (Some(StopReason::Window), _) => whys.push("window closed".to_owned()),
        // A report has applied the limit of the run.
        (limit, Some((goes, most))) if most < goes || (most == goes && limit == Some(StopReason::MaxDeletes)) => {
            whys.push(OF_RUN.to_owned());
        }
        (Some(limit), _) => whys.push(limit.to_string()),
        (None, _) => {}
    }
    whys
}

/// Says how many orphans go, and of how many; `None` if there are none, or the rule leaves them.
fn orphans(goes: Option<u64>, old: Option<u64>) -> Option<String> {
    let (goes, old) = (goes?, old.filter(|old| *old > 0)?);
    let of = if goes < old { format!("{} of ", count(goes)) } else { String::new() };
    Some(format!("{AND}{of}{}", plural(old, "orphan")))
}

/// Returns a row for each rule, with the sums of its namespaces.
fn subtotals<'r>(report: &Report, shown: &[&'r RuleReport]) -> Vec<Row<'r>> {
    let mut names: Vec<&str> = Vec::new();
    for rule in shown {
        if !names.contains(&rule.name.as_str()) {
            names.push(&rule.name);
        }
    }
    let of = |name: &str| shown.iter().copied().filter(|rule| rule.name == name).collect::<Vec<_>>();
    names
        .into_iter()
        .map(of)
        .map(|rules| if let [rule] = rules[..] { row(report, rule) } else { subtotal(report, &rules) })
        .collect()
}

fn subtotal<'r>(report: &Report, rules: &[&'r RuleReport]) -> Row<'r> {
    let [first, ..] = rules else { unreachable!("a rule has a namespace") };
    let of = |status: Status| rules.iter().filter(move |rule| rule.status == status);
    let sum = |value: fn(&RuleReport) -> Option<u64>| rules.iter().filter_map(|rule| value(rule)).fold(0, u64::saturating_add);
    let (expired, documents) = (sum(|rule| rule.expired_count), sum(|rule| rule.document_count));
    let is_unknown = of(Status::Complete).any(|rule| rule.would_delete_count.is_none());
    let goes = sum(|rule| rule.would_delete_count).min(max_deletes(report).unwrap_or(u64::MAX));
    let mut whys: Vec<String> = [Status::Failed, Status::Refused, Status::Partial, Status::Skipped]
        .into_iter()
        .filter_map(|status| Some(of(status).count()).filter(|number| *number > 0).map(|number| format!("{number} {status}")))
        .collect();
    let limited: BTreeSet<String> = of(Status::Complete)
        .flat_map(|rule| self::whys(report, rule))
        .filter(|why| !why.starts_with("approved") && !why.starts_with(AND))
        .collect();
    let children = of(Status::Complete).map(|rule| OfParents::of(rule)).sum::<OfParents>();
    whys.extend(children.words().map(|children| format!("{AND}{children}")));
    let of_orphans = sum(|rule| rule.would_delete_orphan_count);
    whys.extend(orphans(Some(of_orphans), Some(sum(|rule| rule.old_orphan_count))));
    whys.extend(limited);
    if goes < sum(|rule| rule.would_delete_count) && !whys.iter().any(|why| why == OF_RUN) {
        whys.push(OF_RUN.to_owned());
    }
    let worst = rules.iter().map(|rule| rule.status).max().unwrap_or(Status::Complete);
    Row {
        cells: [
            format!("{} ({})", first.name, plural(rules.len() as u64, "namespace")),
            if is_unknown { "?".to_owned() } else { count(goes) },
            count(expired),
            count(documents),
            share(percent(expired, documents)),
            up_to(first),
        ],
        why: whys.join(", "),
        tone: tone(worst),
        rules: rules.to_vec(),
    }
}

/// Returns the reasons why rules are not swept, the worst first, and the warnings. What several rules share is said once.
/// `elsewhere` is as for [`whys_of`].
fn notes(report: &Report, elsewhere: Option<&str>) -> Vec<(Tone, String)> {
    let mut notes = Vec::new();
    for status in [Status::Failed, Status::Refused, Status::Partial] {
        for (why, rules) in whys_of(report.rules.iter().filter(|rule| rule.status == status), elsewhere) {
            notes.push((tone(status), format!("{}: {why}", named(report, &rules))));
        }
    }
    // A rule that is skipped says why in its row.
    let looked_at = report.rules.iter().filter(|rule| rule.status != Status::Skipped);
    let warnings = looked_at.flat_map(|rule| rule.warnings.iter().map(move |warning| (rule, warning.clone())));
    for (warning, rules) in shared(warnings) {
        notes.push((Tone::Warning, format!("warning: {}: {warning}", named(report, &rules))));
    }
    notes
}

/// Returns the lines about the whole run: its limits, the estimate, and whether what it deletes can be put back.
pub(super) fn of_run(report: &Report) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(ReportedLimits { max_deletes, rate, max_duration_seconds }) = report.limits {
        let limits = [
            max_deletes.map(|most| format!("at most {} (--max-deletes)", plural(most, "document"))),
            rate.map(|rate| format!("at most {} per second", plural(u64::from(rate), "document"))),
            max_duration_seconds.map(|seconds| format!("at most {}", duration(seconds.saturating_mul(1000)))),
        ];
        lines.push(format!("the run: {}", limits.into_iter().flatten().collect::<Vec<_>>().join(", ")));
    }
    let most = max_deletes(report);
    let swept = report.rules.iter().filter(|rule| rule.would_delete_count.is_some_and(|goes| goes > 0));
    let swept: Vec<&RuleReport> = swept.collect();
    let at_most = overlap::at_most(swept.iter().copied(), |rule| rule.would_delete_count);
    lines.extend(estimate::of_all(&swept, most).map(|expected| format!("a sweep takes {at_most}{expected}")));
    lines.extend(undo(report));
    lines
}

/// Says what is archived before it is deleted; `None` if nothing goes.
fn undo(report: &Report) -> Option<String> {
    let goes = |rule: &&RuleReport| {
        rule.status == Status::Complete
            && (rule.would_delete_count != Some(0) || rule.would_delete_orphan_count.is_some_and(|orphans| orphans > 0))
    };
    let going: Vec<&RuleReport> = report.rules.iter().filter(goes).collect();
    let directories: BTreeSet<&str> = going.iter().filter_map(|rule| rule.archive.as_deref()).collect();
    let directories = Vec::from_iter(directories).join(", ");
    let not_archived: Vec<&RuleReport> = going.iter().copied().filter(|rule| rule.archive.is_none()).collect();
    match (going.len(), not_archived.len()) {
        (0, _) => None,
        (_, 0) => Some(format!("archived to {directories} first")),
        (all, not) if all == not => Some("not archived: this cannot be undone".to_owned()),
        _ => Some(format!(
            "archived to {directories} first, but for {}: what these delete cannot be undone",
            named(report, &not_archived)
        )),
    }
}
