//! Compares what a run says with what it did, and with what it had to do.

use std::collections::{BTreeMap, BTreeSet};

use mongodb::bson::{Bson, DateTime};
use serde_json::Value;
use ttl_sweeper::base::text::{count, plural};

use super::open;
use super::oracle::{Expected, Verdict};
use super::policies::Policy;
use super::witnesses::{Run, Written};

/// Differences, in words; none if all agree.
pub(super) type Differences = Vec<String>;

/// Compares two values, and adds a difference.
macro_rules! same {
    ($found:expr, $left:expr, $right:expr, $($what:tt)+) => {
        match (&$left, &$right) {
            (left, right) if *left == *right => {}
            (left, right) => $found.push(format!("{}: {left:?}, expected {right:?}", format!($($what)+))),
        }
    };
}
pub(super) use same;

/// A command of a seed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    DryRun,
    Audit,
    Sweep,
}

/// Compares the outputs of a run with each other: each must say what the JSON report says.
pub(super) fn outputs(command: Command, policy: &Policy, expected: &[Expected], run: &Run, found: &mut Differences) {
    let report = &run.json;
    if report.is_null() {
        found.push(format!("no report, exit code {:?}: {}", run.ran.code, run.ran.stderr));
        return;
    }
    let rules = rules(report);
    csv(&run.csv, report, found);
    markdown(&run.markdown, &rules, found);
    text(command, open::has_words_of_its_own(policy, expected), run, found);
    same!(found, run.metrics.is_some(), policy.line.metrics && command != Command::Audit, "there are metrics");
    if let Some(metrics) = &run.metrics {
        same!(found, metrics.run("last_run_exit_code"), report["exitCode"].as_f64(), "exit code in the metrics");
        for (family, key) in [
            ("deleted_documents", "deletedCount"),
            ("deleted_children", "childrenDeletedCount"),
            ("held_documents", "heldCount"),
            ("expired_documents_remaining", "remainingCount"),
            ("unconfirmed_documents", "unconfirmedCount"),
        ] {
            let said = metrics.rules(family);
            let of_report: BTreeMap<Vec<String>, f64> =
                rules.iter().filter_map(|rule| Some((place(rule).into(), rule[key].as_f64()?))).collect();
            same!(found, said, of_report, "metric {family}");
        }
    }
    if policy.has_history && command == Command::Sweep {
        history(run, &rules, found);
    }
    let sum = |key: &str| rules.iter().map(|rule| rule[key].as_u64().unwrap_or(0)).sum::<u64>();
    same!(found, report["totals"]["deletedCount"].as_u64(), Some(sum("deletedCount")), "totals.deletedCount");
    for word in ["failed", "refused"] {
        let number = rules.iter().filter(|rule| rule["status"] == word).count() as u64;
        same!(found, report["totals"][word].as_u64(), Some(number), "totals.{word}");
    }
    same!(found, run.ran.code, report["exitCode"].as_i64().map(|code| code as i32), "exit code of the process");
    same!(found, report["exitCode"].as_u64(), Some(exit_code(command, policy, &rules)), "exit code");
}

/// Returns the exit code that the contract's table gives for the statuses of the rules.
fn exit_code(command: Command, policy: &Policy, rules: &[&Value]) -> u64 {
    let any = |status: &str| rules.iter().any(|rule| rule["status"] == status);
    let has_expired = rules.iter().any(|rule| rule["expiredCount"].as_u64().is_some_and(|count| count > 0));
    match command {
        _ if any("failed") => 3,
        Command::Sweep if any("refused") => 5,
        Command::Sweep if any("partial") => 4,
        Command::DryRun | Command::Audit if policy.line.detailed && has_expired => 7,
        _ => 0,
    }
}

/// Compares each line of the CSV with its rule.
fn csv(text: &str, report: &Value, found: &mut Differences) {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let Ok(heads) = reader.headers().cloned() else { return found.push("no CSV".to_owned()) };
    let lines: Vec<csv::StringRecord> = reader.records().map(|line| line.expect("a line of CSV")).collect();
    let rules = rules(report);
    same!(found, lines.len(), rules.len(), "lines of the CSV");
    for (line, rule) in lines.iter().zip(&rules) {
        for (head, cell) in heads.iter().zip(line) {
            // A spreadsheet would take a text that begins so for a formula.
            let cell = cell.strip_prefix('\'').unwrap_or(cell);
            let value = rule.get(head).or_else(|| report.get(head));
            let number = |value: &Value| value.as_f64() == cell.parse().ok();
            let is_same = match value {
                None | Some(Value::Null) => cell.is_empty(),
                Some(Value::Number(_)) => number(value.unwrap_or(&Value::Null)),
                Some(Value::String(text)) => cell == text,
                Some(Value::Bool(is_so)) => cell == is_so.to_string(),
                Some(Value::Array(_) | Value::Object(_)) => true,
            };
            if !is_same {
                found.push(format!("CSV, {head} of {:?}: `{cell}`, the report has {value:?}", place(rule)));
            }
        }
    }
}

/// Compares each row of the Markdown with its rule.
fn markdown(text: &str, rules: &[&Value], found: &mut Differences) {
    let rows = text.lines().filter(|line| line.starts_with("| ")).skip(2).map(|line| line.replace('\\', ""));
    let rows: Vec<Vec<String>> =
        rows.map(|row| row.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect()).collect();
    same!(found, rows.len(), rules.len(), "rows of the Markdown");
    let number = |value: &Value| value.as_u64().map_or_else(|| "-".to_owned(), count);
    for (row, rule) in rows.iter().zip(rules) {
        let would_go =
            rule["wouldDeleteCount"].is_u64() || text.starts_with("sweeper dry run") || text.starts_with("sweeper audit");
        let went = if would_go { "wouldDeleteCount" } else { "deletedCount" };
        let status = match rule["status"].as_str().unwrap_or_default() {
            "complete" if would_go => "ready",
            status => status,
        };
        let mut cells = vec![(1, status.to_owned())];
        cells.extend([(2, number(&rule["expiredCount"])), (3, number(&rule["documentCount"])), (5, number(&rule[went]))]);
        if !would_go {
            cells.push((6, number(&rule["remainingCount"])));
        }
        for (column, expected) in cells {
            same!(found, row[column], expected, "Markdown, column {column} of {:?}", place(rule));
        }
    }
}

/// Compares the last line of the text, the line of a quiet run, and the events of the log.
fn text(command: Command, is_worded_otherwise: bool, run: &Run, found: &mut Differences) {
    let rules = rules(&run.json);
    let of = |key: &str, of_buckets: bool, counts: &dyn Fn(&Value) -> bool| {
        let wanted = rules.iter().filter(|rule| (rule["strategy"] == "buckets") == of_buckets && counts(rule));
        wanted.map(|rule| rule[key].as_u64()).sum::<Option<u64>>()
    };
    let children = children(command, &rules);
    let both = |documents: u64, buckets: u64| {
        let counted = [(documents, "document"), (buckets, "bucket")].into_iter().filter(|(number, _)| *number > 0);
        let parts: Vec<String> = counted.map(|(number, noun)| plural(number, noun)).chain(children.clone()).collect();
        match parts.split_last() {
            None => plural(0, "document"),
            Some((last, [])) => last.clone(),
            Some((last, others)) => format!("{} and {last}", others.join(", ")),
        }
    };
    let wanted = if command == Command::Sweep {
        let sum = |of_buckets| of("deletedCount", of_buckets, &|_| true).unwrap_or(0);
        // A run in which no rule deleted, or could, says so.
        let may_delete = |rule: &&Value| ["complete", "partial"].contains(&rule["status"].as_str().unwrap_or_default());
        match (sum(false), sum(true)) {
            (0, 0) if !rules.iter().any(may_delete) => "nothing was deleted".to_owned(),
            (documents, buckets) => format!("deleted {} by", both(documents, buckets)),
        }
    } else {
        let is_ready = |rule: &Value| rule["status"] == "complete";
        let sum = |of_buckets| of("wouldDeleteCount", of_buckets, &is_ready);
        let (Some(documents), Some(buckets)) = (sum(false), sum(true)) else { return };
        let limit = run.json["limits"]["maxDeletes"].as_u64().unwrap_or(u64::MAX);
        match documents > 0 && buckets > 0 && documents + buckets > limit {
            _ if !rules.iter().any(|rule| is_ready(rule)) => "nothing would be deleted".to_owned(),
            true => format!("would delete {} documents or buckets", count(limit)),
            false => format!("would delete {} by", both(documents.min(limit), buckets.min(limit))),
        }
    };
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    for (place, text) in [("text", &run.table), ("Markdown", &run.markdown), ("HTML", &run.html)] {
        if !is_worded_otherwise && !words(text).contains(&wanted) {
            found.push(format!("{place}: no `{wanted}` in\n{text}"));
        }
    }
    if command == Command::Sweep {
        let cells = run.html.split("deleted\" data-v=\"").skip(1).filter_map(|cell| cell.split('"').next()?.parse().ok());
        let (mut cells, mut of_report): (Vec<u64>, Vec<u64>) =
            (cells.collect(), rules.iter().filter_map(|rule| rule["deletedCount"].as_u64()).collect());
        cells.sort_unstable();
        of_report.sort_unstable();
        same!(found, cells, of_report, "the deletes of the rules in the HTML");
    }
    let mut ends = BTreeMap::new();
    for line in run.ran.stderr.lines() {
        match serde_json::from_str::<Value>(line) {
            Ok(event) if event["event"] == "ruleEnds" => {
                let counts = [&event["deletedCount"], &event["status"]].map(Clone::clone);
                ends.insert(place(&event), counts);
            }
            Ok(event) if event["event"] == "runEnds" => {
                same!(found, event["deletedCount"], run.json["totals"]["deletedCount"], "deletedCount of runEnds");
                same!(found, event["exitCode"], run.json["exitCode"], "exitCode of runEnds");
            }
            Err(_) if line.starts_with("error: ") && !line.contains(&wanted) && !is_worded_otherwise => {
                found.push(format!("the line of a quiet run: no `{wanted}` in {line}"));
            }
            _ => {}
        }
    }
    for rule in rules.iter().filter(|_| !ends.is_empty()) {
        let of_report = [&rule["deletedCount"], &rule["status"]].map(Clone::clone);
        // Two rules without a namespace of their own may share a name.
        same!(found, ends.get(&place(rule)), Some(&of_report), "ruleEnds of {:?}", place(rule));
    }
}

/// Returns the children that went or, before a sweep, those of the parents that go, in words; `None` if there are none.
fn children(command: Command, rules: &[&Value]) -> Option<String> {
    let number = |rule: &Value, key: &str| rule[key].as_u64().unwrap_or(0);
    let in_words = |number: u64| if number == 1 { "1 child".to_owned() } else { format!("{} children", count(number)) };
    if command == Command::Sweep {
        let deleted = |rule: &&Value| number(rule, "childrenDeletedCount") - number(rule, "orphansDeletedCount");
        return Some(rules.iter().map(deleted).sum()).filter(|sum: &u64| *sum > 0).map(in_words);
    }
    let parents = rules.iter().filter(|rule| rule["childNamespaces"].is_array() && number(rule, "wouldDeleteCount") > 0);
    let parents: Vec<&&Value> = parents.filter(|rule| rule["status"] == "complete").collect();
    // The differential counts the children of all parents.
    let of_all = |rule: &&&Value| number(rule, "childrenCount");
    let going = |rule: &&&Value| {
        let (goes, expired) = (number(rule, "wouldDeleteCount"), number(rule, "expiredCount"));
        (of_all(rule) * goes).div_ceil(expired.max(1))
    };
    let is_part = |rule: &&&Value| number(rule, "wouldDeleteCount") < number(rule, "expiredCount");
    let about = if parents.iter().any(|rule| is_part(rule) && rule["childrenCount"].is_u64()) { "about " } else { "" };
    Some(parents.iter().map(going).sum()).filter(|sum: &u64| *sum > 0).map(|sum| about.to_owned() + &in_words(sum))
}

/// Compares the recorded run with the report.
fn history(run: &Run, rules: &[&Value], found: &mut Differences) {
    let Some(recorded) = &run.recorded else { return found.push("the history has no document of the run".to_owned()) };
    let recorded: Value = Bson::from(recorded.clone()).into_relaxed_extjson();
    let mut compare = |what: String, recorded: &Value, said: &Value| {
        if (said.is_number() || said.is_boolean() || said.is_null()) && (recorded != said && recorded.as_f64() != said.as_f64()) {
            found.push(format!("history, {what}: {recorded}, the report has {said}"));
        }
    };
    for key in ["exitCode", "status", "durationMs"] {
        compare(key.to_owned(), &recorded[key], &run.json[key]);
    }
    for (key, said) in run.json["totals"].as_object().into_iter().flatten() {
        compare(format!("totals.{key}"), &recorded["totals"][key], said);
    }
    for (index, rule) in rules.iter().enumerate() {
        for (key, said) in rule.as_object().into_iter().flatten() {
            compare(format!("{key} of {:?}", place(rule)), &recorded["rules"][index][key], said);
        }
    }
}

/// Compares a run before the first delete with what is there.
pub(super) fn before(command: Command, policy: &Policy, expected: &[Expected], run: &Run, found: &mut Differences) {
    let Written { deletes, others } = &run.written;
    if !deletes.is_empty() || !others.is_empty() {
        found.push(format!("it has written: {deletes:?} {others:?}"));
    }
    for (one, rule) in pairs(policy, expected, run, found) {
        let at = place(rule);
        status(one, rule, &["complete"], found);
        if !one.is_countable || matches!(one.verdict, Verdict::Skips) {
            continue;
        }
        let expired = one.expired.len() as u64;
        let is_wrong = |counted: &u64| *counted != expired;
        if let Some(counted) = rule["expiredCount"].as_u64().filter(is_wrong) {
            found.push(format!("expiredCount of {at:?}: {counted}, expected {expired}"));
        }
        if rule["status"] != "complete" {
            continue;
        }
        same!(found, rule["expiredCount"].is_u64(), true, "{at:?} has an expiredCount");
        same!(found, rule["documentCount"].as_u64(), Some(one.documents), "documentCount of {at:?}");
        if policy.rules[one.rule].holds.is_some() {
            same!(found, rule["heldCount"].as_u64(), Some(one.held), "heldCount of {at:?}");
        }
        if let Some(counted) = rule["neverExpires"].get("ttlNotPositive").filter(|_| command == Command::DryRun) {
            same!(found, counted.as_u64(), Some(one.not_positive), "ttlNotPositive of {at:?}");
        }
        let counted = rule["expiredCount"].as_u64().unwrap_or(0);
        let most = policy.rules[one.rule].max_deletes.unwrap_or(u64::MAX);
        let of_run = policy.line.max_deletes.filter(|_| command == Command::DryRun).unwrap_or(u64::MAX);
        let would_go = if policy.rules[one.rule].is_closed == Some(true) { 0 } else { counted.min(most).min(of_run) };
        let said = rule["wouldDeleteCount"].as_u64().unwrap_or(u64::MAX);
        if said != would_go {
            found.push(format!("wouldDeleteCount of {at:?}: {said}, expected {would_go}"));
        }
        if one.parents_that_stay == 0 {
            let oldest = rule["oldestExpired"].as_str().map(instant);
            same!(found, oldest, one.expired.values().min().copied(), "oldestExpired of {at:?}");
        }
    }
}

/// Compares statuses and counts of a sweep with what was there before and is there after; `left` is what is expected of the
/// documents that are left.
pub(super) fn sweep(policy: &Policy, expected: &[Expected], left: &[Expected], run: &Run, found: &mut Differences) {
    let is_limited = policy.line.max_deletes.is_some();
    let overlap = open::overlap(expected);
    let mut of_namespace: BTreeMap<&str, u64> = BTreeMap::new();
    for (one, rule) in pairs(policy, expected, run, found) {
        let (at, of_policy) = (place(rule), &policy.rules[one.rule]);
        let deleted = rule["deletedCount"].as_u64().unwrap_or(0);
        *of_namespace.entry(&one.stored).or_default() += deleted;
        let expired = one.expired.len() as u64;
        let most = of_policy.max_deletes.unwrap_or(u64::MAX);
        let is_closed = of_policy.is_closed == Some(true);
        let statuses: &[&str] = match () {
            () if overlap || is_limited || open::limits_orphans(of_policy) => &["complete", "partial"],
            // What has expired was not counted: the rule did not look.
            () if is_closed && expired == 0 => &["complete", "partial"],
            () if is_closed || expired > most => &["partial"],
            () => &["complete"],
        };
        status(one, rule, statuses, found);
        let swept = rule["status"] == "complete" || rule["status"] == "partial";
        match () {
            () if !swept || is_closed => same!(found, deleted, 0, "deletedCount of {at:?}"),
            () if overlap || is_limited => {
                if deleted > expired.min(most) {
                    found.push(format!("deletedCount of {at:?}: {deleted}, expected {} at most", expired.min(most)));
                }
            }
            () => same!(found, deleted, expired.min(most), "deletedCount of {at:?}"),
        }
        let after = left.iter().find(|other| other.rule == one.rule && other.namespace == one.namespace);
        let remaining = after.map_or(0, |after| after.expired.len() as u64);
        if let Some(said) = rule["remainingCount"].as_u64().filter(|_| !overlap) {
            same!(found, said, remaining, "remainingCount of {at:?}");
        }
        if rule["status"] == "complete" && !overlap {
            same!(found, remaining, 0, "expired documents that a complete {at:?} left");
        }
        if rule["archivedCount"].as_u64().is_some_and(|archived| archived < deleted) {
            found.push(format!("archivedCount of {at:?} is less than deletedCount"));
        }
        same!(found, rule["uncertain"], Value::Bool(false), "uncertain of {at:?}");
    }
    if let Some(most) = policy.line.max_deletes {
        let deleted = run.json["totals"]["deletedCount"].as_u64().unwrap_or(0);
        let ready = expected.iter().filter(|one| {
            let rule = rules(&run.json).into_iter().find(|rule| rule["namespace"] == one.namespace);
            rule.is_some_and(|rule| rule["status"] != "refused") && policy.rules[one.rule].is_closed != Some(true)
        });
        let own = |one: &Expected| (one.expired.len() as u64).min(policy.rules[one.rule].max_deletes.unwrap_or(u64::MAX));
        let all: u64 = ready.map(own).sum();
        if !overlap {
            same!(found, deleted, all.min(most), "deletes under --max-deletes");
        }
    }
    for (namespace, deleted) in of_namespace {
        let shown = run.written.deletes.get(namespace).map_or(0, |ids| ids.len() as u64);
        same!(found, deleted, shown, "deletedCount in {namespace}, against the oplog");
    }
}

/// Compares the status and the guard of a rule with the verdict.
fn status(one: &Expected, rule: &Value, swept: &[&str], found: &mut Differences) {
    let said = (rule["status"].as_str().unwrap_or_default(), rule["reason"].as_str().unwrap_or_default());
    let is_refused_by = |guards: &BTreeSet<&'static str>| said.0 == "refused" && (guards.contains(said.1) || said.1 == "plan");
    let is_expected = match &one.verdict {
        Verdict::Skips => said.0 == "skipped",
        Verdict::Refuses(guards) => is_refused_by(guards),
        Verdict::Sweeps(guards) => swept.contains(&said.0) || is_refused_by(guards),
    };
    if !is_expected {
        found.push(format!(
            "status of {:?}: {said:?}, expected {:?}, {swept:?} if it sweeps: {}",
            place(rule),
            one.verdict,
            rule["error"]
        ));
    }
}

/// Returns what is expected with the rule of the report, and adds a difference for each without the other.
fn pairs<'a>(policy: &Policy, expected: &'a [Expected], run: &'a Run, found: &mut Differences) -> Vec<(&'a Expected, &'a Value)> {
    let mut rest = rules(&run.json);
    let mut pairs = Vec::new();
    for one in expected {
        let name = &policy.rules[one.rule].name;
        let is_it = |rule: &&&Value| rule["name"] == **name && rule["namespace"] == *one.namespace;
        match rest.iter().position(|rule| is_it(&rule)) {
            Some(index) => pairs.push((one, rest.remove(index))),
            None => found.push(format!("the report has no rule `{name}` in {}", one.namespace)),
        }
    }
    // A disabled rule, or a pattern that matches nothing.
    let is_of_pattern = |rule: &Value| rule["reason"] == "noSuchNamespace" && place(rule)[1].contains('*');
    for rule in rest.iter().filter(|rule| rule["status"] != "skipped" && !is_of_pattern(rule)) {
        found.push(format!("the report has an unexpected rule {:?}", place(rule)));
    }
    pairs
}

/// Returns the rules of a report.
pub(super) fn rules(report: &Value) -> Vec<&Value> {
    report["rules"].as_array().into_iter().flatten().collect()
}

/// Returns name and namespace of a rule of a report.
pub(super) fn place(rule: &Value) -> [String; 2] {
    let name = rule.get("name").or_else(|| rule.get("rule"));
    [name, rule.get("namespace")].map(|text| text.and_then(Value::as_str).unwrap_or_default().to_owned())
}

/// Reads an instant of a report.
fn instant(text: &str) -> i128 {
    match text.strip_suffix(" ms since 1970") {
        Some(number) => number.parse().expect("a number"),
        None => i128::from(DateTime::parse_rfc3339_str(text).expect("an instant").timestamp_millis()),
    }
}
