//! The last run in Prometheus' text format, for a collector that reads files. All values are gauges: of the last run, not summed up.
//!
//! The families are put together without a registry: its vectors know a series by a hash of its label values without a separator, so that
//! the rule `a` in `bc.d` and the rule `ab` in `c.d` would be one (prometheus 0.14, `vec.rs`).

use bson::DateTime;
use prometheus::TextEncoder;
use prometheus::proto::{Gauge, LabelPair, Metric, MetricFamily, MetricType};

use super::{Report, RuleReport};
use crate::exit;
use crate::instant;

/// The series that outlives runs that fail.
const LAST_SUCCESS: &str = "sweeper_last_success_timestamp_seconds";

/// How a run ended.
pub struct Ended<'a> {
    pub at: DateTime,
    pub duration_ms: u64,
    /// Of the process: 0 is a success, and no other.
    pub exit_code: u8,
    pub dry_run: bool,
    /// `None`: the run did not come so far that there is one.
    pub report: Option<&'a Report>,
    /// When a run last succeeded, in seconds since 1970: of the earlier file.
    pub last_success: Option<f64>,
}

/// Shows the run. A value that is not known has no series.
pub fn render(ended: &Ended) -> String {
    let at = seconds(ended.at.timestamp_millis());
    let is_success = ended.exit_code == exit::DONE;
    let last_success = if is_success && !ended.dry_run { Some(at) } else { ended.last_success };
    let run = |name, help, value: Option<f64>| family(name, help, value.map(|value| series(&[], value)).into_iter().collect());
    let version = series(&[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    let mut families = vec![
        family("sweeper_build_info", "The version of sweeper; always 1.", vec![version]),
        run("sweeper_last_run_timestamp_seconds", "When the last run ended.", Some(at)),
        run(LAST_SUCCESS, "When a run that was no dry run last ended with exit code 0.", last_success),
        run("sweeper_last_run_duration_seconds", "How long the last run took.", Some(ended.duration_ms as f64 / 1000.0)),
        run("sweeper_last_run_exit_code", "Exit code of the last run.", Some(f64::from(ended.exit_code))),
        run("sweeper_last_run_success", "Whether the exit code of the last run is 0.", Some(bit(is_success))),
        run("sweeper_last_run_dry_run", "Whether the last run was a dry run.", Some(bit(ended.dry_run))),
    ];
    families.extend(ended.report.into_iter().flat_map(of_rules));
    families.retain(|family| !family.get_metric().is_empty());
    TextEncoder::new().encode_to_string(&families).expect("families with names and series go to memory")
}

/// Finds when a run last succeeded in one line of what an earlier run wrote: in seconds since 1970, and not after `now`.
pub fn last_success(line: &str, now: DateTime) -> Option<f64> {
    let mut words = line.strip_prefix(LAST_SUCCESS)?.strip_prefix(' ')?.split_ascii_whitespace();
    let value: f64 = words.next()?.parse().ok()?;
    // A time to come would keep every alert silent.
    (words.next().is_none() && value > 0.0 && value <= seconds(now.timestamp_millis())).then_some(value)
}

/// The families with a series for each rule.
fn of_rules(report: &Report) -> Vec<MetricFamily> {
    let as_of = report.as_of.as_deref().and_then(millis);
    let of = |name, help, value: &dyn Fn(&RuleReport) -> Option<f64>| {
        let known = report.rules.iter().filter_map(|rule| Some(series(&labels(rule), value(rule)?)));
        family(name, help, known.collect())
    };
    let paused = report.rules.iter().flat_map(|rule| {
        let reasons = rule.paused_ms.map(|paused| {
            [("lag", paused.lag), ("latency", paused.latency), ("rate", paused.rate), ("throttle", paused.throttle)]
        });
        let [name, namespace] = labels(rule);
        reasons
            .into_iter()
            .flatten()
            .map(move |(reason, millis)| series(&[name, namespace, ("reason", reason)], millis as f64 / 1000.0))
    });
    let statuses = report.rules.iter().map(|rule| {
        let [name, namespace] = labels(rule);
        series(&[name, namespace, ("status", rule.status.word())], 1.0)
    });
    vec![
        family(
            "sweeper_rule_status",
            "How the rule ended in the last run: complete, partial, refused, failed or skipped; always 1.",
            statuses.collect(),
        ),
        of("sweeper_deleted_documents", "Documents that the last run deleted.", &|rule| Some(rule.deleted_count as f64)),
        of("sweeper_expired_documents_remaining", "Expired documents that the last run left.", &|rule| {
            rule.remaining_count.map(|count| count as f64)
        }),
        of(
            "sweeper_oldest_expired_age_seconds",
            "How old the earliest date of any expired document is that the last run left; 0 where it left none.",
            &|rule| oldest_age(rule, as_of?),
        ),
        of("sweeper_expire_after_seconds", "How old documents become by the rule.", &|rule| {
            (rule.expire_after_seconds >= 0).then_some(rule.expire_after_seconds as f64)
        }),
        of("sweeper_rule_duration_seconds", "How long the last run worked on the rule.", &|rule| {
            Some(rule.duration_ms as f64 / 1000.0)
        }),
        family("sweeper_paused_seconds", "How long the last run sent nothing on purpose.", paused.collect()),
        of("sweeper_request_units", "What the last run cost, where the service bills requests.", &|rule| rule.request_units),
    ]
}

fn oldest_age(rule: &RuleReport, as_of: i64) -> Option<f64> {
    if rule.remaining_count == Some(0) {
        return Some(0.0);
    }
    Some(seconds(as_of - millis(rule.oldest_remaining.as_deref()?)?))
}

fn labels(rule: &RuleReport) -> [(&str, &str); 2] {
    [("rule", &rule.name), ("namespace", &rule.namespace)]
}

fn family(name: &str, help: &str, series: Vec<Metric>) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(MetricType::GAUGE);
    family.set_metric(series);
    family
}

fn series(labels: &[(&str, &str)], value: f64) -> Metric {
    let pairs = labels.iter().map(|(name, value)| {
        let mut pair = LabelPair::default();
        pair.set_name((*name).to_owned());
        pair.set_value((*value).to_owned());
        pair
    });
    let mut gauge = Gauge::default();
    gauge.set_value(value);
    let mut metric = Metric::from_gauge(gauge);
    metric.set_label(pairs.collect());
    metric
}

/// Milliseconds since 1970 of an instant of the report.
fn millis(instant: &str) -> Option<i64> {
    instant::parse(instant).map(DateTime::timestamp_millis)
}

fn seconds(millis: i64) -> f64 {
    millis as f64 / 1000.0
}

fn bit(is_so: bool) -> f64 {
    if is_so { 1.0 } else { 0.0 }
}
