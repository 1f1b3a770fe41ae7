//! Reports as CSV: one line per rule and namespace, with the values of the run repeated in each.

use std::fmt::Display;

use serde_json::Value;

use super::json::values;
use super::{Report, ReportCommand, RuleReport, estimate};
use crate::base::text::clean;
use crate::core::audit::figures::AuditReport;

/// Columns with values of the run, before the columns of a rule.
const OF_RUN: [&str; 6] = ["runId", "command", "dryRun", "asOf", "startedAt", "exitCode"];

/// Value of a rule with a cell of its own: its name, and the function that returns the cell.
type NestedCell = (&'static str, fn(&RuleReport) -> String);

/// Values that are no text, number or flat list of them.
pub(super) const NESTED: [NestedCell; 14] = [
    ("relativeDates", |rule| {
        list(rule.relative_dates.iter().flatten(), |one| format!("{} {} {}={}", one.of, one.path, one.ago, one.date))
    }),
    ("predicate", |rule| known(rule.predicate.as_ref())),
    ("heldBy", |rule| list(rule.held_by.iter().flatten(), |held| format!("{}={}", held.key, held.count))),
    ("unclearPeriods", |rule| list(rule.unclear_periods.iter().flatten(), |held| format!("{}={}", held.key, held.count))),
    ("byPeriod", |rule| {
        list(figures(rule, |audit| audit.by_period.as_deref()), |period| format!("{}={}", period.words(), period.count))
    }),
    ("estimate", |rule| list(rule.estimate.iter().flat_map(estimate::named), |(name, value)| format!("{name}={value}"))),
    ("nativeTtl", |rule| {
        let seconds = |value: Option<i64>| value.map_or_else(|| "?".to_owned(), |seconds| seconds.to_string());
        list(rule.native_ttl.iter().flatten(), |ttl| format!("{}={}", ttl.field, seconds(ttl.expire_after_seconds)))
    }),
    ("ageHistogram", |rule| {
        list(figures(rule, |audit| audit.age_histogram.as_deref()), |range| {
            let (min, max) = (known(range.min_age_seconds), known(range.max_age_seconds));
            format!("{min}..{max}={}+{}", range.expired_count, range.not_expired_count)
        })
    }),
    ("forecast", |rule| list(figures(rule, |audit| audit.forecast.as_deref()), |day| format!("{}={}", day.from, day.count))),
    ("backlog", |rule| list(figures(rule, |audit| audit.backlog.as_deref()), |month| format!("{}={}", month.month, month.count))),
    ("neverExpiresSamples", |rule| {
        let samples = rule.audit.iter().flat_map(|audit| &audit.never_expires_samples);
        list(samples, |(reason, ids)| format!("{reason}={}", list(ids, ToString::to_string)))
    }),
    ("samples", |rule| {
        let samples = figures(rule, |audit| Some(&audit.samples));
        list(samples, |sample| format!("{}={} ({})", sample.id, sample.date, sample.why))
    }),
    ("nativeComparison", |rule| {
        let native = rule.audit.as_ref().and_then(|audit| audit.native_comparison.as_ref());
        list(native, |native| format!("{}: {}", native.state, native.detail))
    }),
    ("nativeTroubles", |rule| list(figures(rule, |audit| audit.native_troubles.as_deref()), |trouble| trouble.words())),
];

/// Returns the report as CSV, with further columns for an audit.
pub(super) fn render(report: &Report) -> String {
    let audit = (report.command == ReportCommand::Audit).then(AuditReport::default);
    let columns = values(&RuleReport { audit, ..RuleReport::default() });
    let rows = report.rules.iter().map(|rule| {
        let values = values(rule);
        of_run(report).into_iter().chain(columns.keys().map(|name| cell(rule, name, values.get(name)))).collect()
    });
    lines(OF_RUN.into_iter().chain(columns.keys().map(String::as_str)), rows)
}

/// Returns the cells of [`OF_RUN`].
fn of_run(report: &Report) -> [String; OF_RUN.len()] {
    [
        report.run_id.clone(),
        report.command.to_string(),
        report.dry_run.to_string(),
        known(report.as_of),
        report.started_at.to_string(),
        report.exit_code.to_string(),
    ]
}

/// Returns the cell of a value with this name; `None` if the rule has no such value.
fn cell(rule: &RuleReport, name: &str, value: Option<&Value>) -> String {
    let nested = NESTED.iter().find(|(nested, _)| *nested == name);
    nested.map_or_else(|| value.map(plain).unwrap_or_default(), |(_, cell)| cell(rule))
}

/// Returns the cell of a text, a number or a flat list. It is empty if the value was not measured.
pub(super) fn plain(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        // JSON writes 25.0 where a spreadsheet is to read 25.
        Value::Number(number) if number.is_f64() => known(number.as_f64()),
        Value::Array(items) => list(items, plain),
        Value::Object(values) => list(values, |(name, value)| format!("{name}={}", plain(value))),
        Value::Number(_) | Value::Bool(_) => value.to_string(),
    }
}

/// Returns the figures of one kind in an audit of a rule; none without an audit.
fn figures<'a, T: 'a>(rule: &'a RuleReport, of: impl Fn(&'a AuditReport) -> Option<&'a [T]>) -> impl Iterator<Item = &'a T> {
    rule.audit.as_ref().and_then(of).into_iter().flatten()
}

/// Renders CSV; all rows must have as many cells as the head.
pub(super) fn lines<'a>(head: impl Iterator<Item = &'a str>, mut rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut write = |row: Vec<String>| writer.write_record(row.into_iter().map(harmless));
    let wrote = write(head.map(str::to_owned).collect()).and_then(|()| rows.try_for_each(write));
    wrote.expect("records of one length go to memory");
    String::from_utf8(writer.into_inner().expect("a buffer in memory")).expect("CSV of strings is UTF-8")
}

/// Puts a `'` before a cell that a spreadsheet would calculate (OWASP, "CSV Injection"), and escapes what a terminal would
/// obey. Names of collections and indexes come from whoever may create them. Numbers stay as they are.
fn harmless(cell: String) -> String {
    let is_formula = cell.starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠']);
    let is_number = cell.starts_with(['+', '-']) && cell.contains(|c: char| c.is_ascii_digit()) && cell.parse::<f64>().is_ok();
    let shown = clean(&cell);
    if is_formula && !is_number { format!("'{shown}") } else { shown }
}

/// Returns the cell of a value; it is empty if the value was not measured.
pub(super) fn known(value: Option<impl Display>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}

/// Returns the cell of a list: `key=value; key=value`.
fn list<T>(items: impl IntoIterator<Item = T>, cell: impl Fn(T) -> String) -> String {
    items.into_iter().map(cell).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bson::DateTime;
    use serde_json::json;

    use super::*;
    use crate::base::instant::Instant;
    use crate::core::audit::figures::{BacklogMonth, ForecastDay, Sampling};
    use crate::core::report::HeldBy;
    use crate::testing::made_up::{dry_run, report};

    #[test]
    fn a_cell_has_nothing_that_a_terminal_obeys() {
        assert_eq!(harmless("a\u{1b}[2J\u{9b}b\u{202e}c".into()), r"a\u{1b}[2J\u{9b}b\u{202e}c");
        assert_eq!(harmless("=1\u{7}".into()), r"'=1\u{7}");
        assert_eq!(harmless("-1.5".into()), "-1.5");
    }

    #[test]
    fn each_kind_of_value_has_the_cell_that_a_spreadsheet_can_read() {
        let audit = AuditReport {
            sampling: Some(Sampling { documents: 10, of: 40, margin_percent: 31.0 }),
            newest_expired: Some(Instant(DateTime::from_millis(0))),
            forecast: Some(vec![ForecastDay { from: Instant(DateTime::from_millis(0)), count: 3 }]),
            backlog: Some(vec![BacklogMonth { month: "1970-01".into(), count: 5 }]),
            never_expires_samples: BTreeMap::from([("null".into(), vec![json!("a"), json!({ "$oid": "b" })])]),
            ..AuditReport::default()
        };
        let rule = RuleReport {
            predicate: Some(json!({ "at": { "$lte": 1.0 } })),
            held_by: Some(vec![HeldBy { key: json!("t"), count: 2 }, HeldBy { key: json!(7), count: 1 }]),
            expired_percent: Some(25.0),
            request_units: Some(1.5),
            never_expires: Some(BTreeMap::from([("missing".into(), 4), ("null".into(), 2)])),
            warnings: vec!["one".into(), "two".into()],
            audit: Some(audit),
            ..report("r", "app.c")
        };
        let cells = |report: &Report| -> Vec<BTreeMap<String, String>> {
            let text = render(report);
            csv::Reader::from_reader(text.as_bytes()).deserialize().collect::<Result<_, _>>().unwrap()
        };
        let mut report = Report { command: ReportCommand::Audit, ..dry_run(vec![rule, report("s", "app.d")]) };
        let of_audit = cells(&report);
        for (name, cell) in [
            ("command", "audit"),
            ("expireAfterSeconds", "3600"),
            ("threshold", ""),
            ("uncertain", "false"),
            ("predicate", r#"{"at":{"$lte":1.0}}"#),
            ("heldBy", r#""t"=2; 7=1"#),
            ("expiredPercent", "25"),
            ("requestUnits", "1.5"),
            ("neverExpires", "missing=4; null=2"),
            ("warnings", "one; two"),
            ("sampling", "documents=10; of=40; marginPercent=31"),
            ("newestExpired", "1970-01-01T00:00:00.000Z"),
            ("forecast", "1970-01-01T00:00:00.000Z=3"),
            ("backlog", "1970-01=5"),
            ("neverExpiresSamples", r#"null="a"; {"$oid":"b"}"#),
            ("samples", ""),
        ] {
            assert_eq!(of_audit[0][name], cell, "{name}");
        }
        assert_eq!((of_audit[1]["name"].as_str(), of_audit[1]["samples"].as_str()), ("s", ""), "a rule that was not looked at");
        report.command = ReportCommand::Sweep;
        assert!(!cells(&report)[0].contains_key("sampling"), "only an audit has the columns of one");
        report.rules.clear();
        assert!(
            render(&report).starts_with("runId,command,dryRun,asOf,startedAt,exitCode,name,"),
            "a run without rules has columns"
        );
    }

    #[test]
    fn no_cell_is_a_formula_and_numbers_stay_numbers() {
        for (cell, shown) in [
            ("=1+cmd|' /C calc'!A0", "'=1+cmd|' /C calc'!A0"),
            ("@SUM(1)", "'@SUM(1)"),
            ("+1+2", "'+1+2"),
            ("-1+2", "'-1+2"),
            ("-inf", "'-inf"),
            ("\t=1", r"'\u{9}=1"),
            ("＝1", "'＝1"),
            ("-1", "-1"),
            ("-1.5e3", "-1.5e3"),
            ("a=b", "a=b"),
            ("", ""),
        ] {
            assert_eq!(harmless(cell.into()), shown);
        }
        let text = lines(["n", "m"].into_iter(), [vec!["\r=1,2".to_owned(), "-1".to_owned()]].into_iter());
        assert_eq!(text, "n,m\n\"'\\u{d}=1,2\",-1\n");
    }
}
