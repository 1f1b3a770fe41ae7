//! Metrics of the last run in Prometheus' text format, for a collector that reads files. All are gauges: none is a sum over runs.
//!
//! The families are put together without a registry, because its vectors identify a series by a hash of its label values
//! without a separator. The rule `a` in `bc.d` and the rule `ab` in `c.d` would be the same series (prometheus 0.14, `vec.rs`).

use std::collections::{BTreeMap, BTreeSet};

use bson::DateTime;
use prometheus::TextEncoder;
use prometheus::proto::{Gauge, LabelPair, Metric, MetricFamily, MetricType};

use super::{Report, RuleReport, orphans};
use crate::base::exit;
use crate::base::instant::Instant;
use crate::base::progress::ProgressSample;
use crate::core::plan::Status;
use crate::core::plan::waits::PausedMs;

/// Name of the series that a failed run takes over from the earlier file.
const LAST_SUCCESS: &str = "sweeper_last_success_timestamp_seconds";

/// Name of the series that a run without progress takes over from the earlier file, for each rule.
const LAST_PROGRESS: &str = "sweeper_last_progress_timestamp_seconds";

/// Series that say in what state the last run with a report left a rule. A run without one does not know better, so that they
/// stay until the next report: an alert on them must not end because the next run cannot even begin. What a run did is not among
/// them.
const STATES: [&str; 6] = [
    LAST_PROGRESS,
    "sweeper_rule_status",
    "sweeper_held_documents",
    "sweeper_expired_documents_remaining",
    "sweeper_oldest_expired_age_seconds",
    "sweeper_expire_after_seconds",
];

/// Values of an earlier text that a run takes over if it does not know better.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Earlier {
    /// Time of the last success, in seconds since 1970.
    pub last_success: Option<f64>,
    /// Time of the last progress by the name and labels of the series, in seconds since 1970.
    progress: BTreeMap<String, f64>,
    /// Lines of the states of the rules.
    states: String,
}

impl Earlier {
    /// Takes from a line of the earlier text what it says.
    pub fn take(&mut self, line: &str, now: DateTime) {
        self.last_success = self.last_success.or_else(|| time_of(LAST_SUCCESS, line, now));
        let comment = line.strip_prefix("# HELP ").or_else(|| line.strip_prefix("# TYPE "));
        let name = comment.unwrap_or(line).split([' ', '{']).next().unwrap_or_default();
        // A file may have been cut.
        let mut is_whole = || match line.rsplit_once(' ') {
            Some((series, _)) if name == LAST_PROGRESS => {
                let time = time_of(series, line, now);
                self.progress.extend(time.map(|time| (series.to_owned(), time)));
                series.ends_with('}') && time.is_some()
            }
            Some((series, value)) => series.ends_with('}') && value.parse::<f64>().is_ok(),
            None => false,
        };
        if STATES.contains(&name) && (comment.is_some() || is_whole()) {
            self.states.push_str(line);
            self.states.push('\n');
        }
    }
}

/// End of a run.
pub struct EndedRun<'a> {
    pub at: DateTime,
    pub duration_ms: u64,
    /// Exit code of the process; only 0 is a success.
    pub exit_code: u8,
    pub dry_run: bool,
    /// Report of the run; `None` if the run ended without one.
    pub report: Option<&'a Report>,
    pub earlier: &'a Earlier,
}

/// Renders the metrics of a run. An unknown value has no series.
pub fn render(ended: &EndedRun) -> String {
    let at = seconds(ended.at.timestamp_millis());
    let is_success = ended.exit_code == exit::DONE;
    let last_success = if is_success && !ended.dry_run { Some(at) } else { ended.earlier.last_success };
    let mut families = vec![
        build_info(),
        of_run("sweeper_last_run_timestamp_seconds", "Time at which the last run ended.", Some(at)),
        last_success_at(last_success),
        of_run("sweeper_last_run_duration_seconds", "Duration of the last run.", Some(ended.duration_ms as f64 / 1000.0)),
        of_run("sweeper_last_run_exit_code", "Exit code of the last run.", Some(f64::from(ended.exit_code))),
        of_run("sweeper_last_run_success", "Whether the exit code of the last run is 0.", Some(bit(is_success))),
        of_run("sweeper_last_run_dry_run", "Whether the last run was a dry run.", Some(bit(ended.dry_run))),
    ];
    families.extend(ended.report.into_iter().map(|report| last_progress(report, ended, at)));
    families.extend(ended.report.into_iter().flat_map(of_rules));
    let states = if ended.report.is_none() { ended.earlier.states.as_str() } else { "" };
    text(families) + states
}

/// Renders the metrics of a process whose first run has not ended. `earlier` holds the values of an earlier process.
pub fn before_the_first_run(earlier: &Earlier) -> String {
    text(vec![build_info(), last_success_at(earlier.last_success)]) + &earlier.states
}

/// Renders the metrics of the run in progress, by its last sample; `None` if no run deletes now.
pub(crate) fn in_progress(sample: Option<&ProgressSample>) -> String {
    let of = |value: &dyn Fn(&ProgressSample) -> Option<f64>| sample.and_then(value);
    // Several rules may wait in one namespace.
    let waiting: BTreeSet<(&str, &str)> =
        sample.iter().flat_map(|sample| &sample.waiting).map(|waiting| (waiting.namespace.as_str(), waiting.reason)).collect();
    let waiting = waiting.into_iter().map(|(namespace, reason)| series(&[("namespace", namespace), ("reason", reason)], 1.0));
    text(vec![
        of_run("sweeper_run_in_progress", "Whether a run deletes now.", Some(bit(sample.is_some()))),
        of_run(
            "sweeper_run_expected_documents",
            "Expired documents of the run in progress, if all of its rules counted them.",
            of(&|sample| sample.expected.map(|expected| expected as f64)),
        ),
        of_run(
            "sweeper_run_deleted_documents",
            "Documents that the run in progress has deleted.",
            of(&|sample| Some(sample.deleted as f64)),
        ),
        of_run(
            "sweeper_run_deleted_documents_per_second",
            "Documents that the run in progress deletes per second.",
            of(&|sample| Some(sample.per_second as f64)),
        ),
        of_run(
            "sweeper_run_remaining_seconds",
            "Time that the run in progress takes for the rest at its speed.",
            of(&|sample| sample.time_left.map(|left| left.as_secs_f64())),
        ),
        family("sweeper_run_waiting", "What a rule of the run in progress waits for; always 1.", waiting.collect()),
    ])
}

fn text(mut families: Vec<MetricFamily>) -> String {
    families.retain(|family| !family.get_metric().is_empty());
    TextEncoder::new().encode_to_string(&families).expect("families with names and series go to memory")
}

fn build_info() -> MetricFamily {
    let version = series(&[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    family("sweeper_build_info", "The version of sweeper; always 1.", vec![version])
}

fn last_success_at(time: Option<f64>) -> MetricFamily {
    of_run(LAST_SUCCESS, "Time at which a run other than a dry run last ended with exit code 0.", time)
}

/// Returns the time of the last progress of each rule: of the last sweep that deleted something by it, or left nothing to delete.
/// The time of a rule that never got on begins with its first sweep.
fn last_progress(report: &Report, ended: &EndedRun, at: f64) -> MetricFamily {
    let of = |rule: &RuleReport| {
        let earlier = ended.earlier.progress.get(&progress_series(rule)).copied();
        let has_progress = rule.status == Status::Complete || rule.has_deleted();
        match (ended.dry_run, rule.status) {
            (true, _) => earlier,
            (false, Status::Skipped) => None,
            (false, _) if has_progress => Some(at),
            (false, _) => earlier.or(Some(at)),
        }
    };
    let known = report.rules.iter().filter_map(|rule| Some(series(&labels(rule), of(rule)?)));
    family(
        LAST_PROGRESS,
        "Time of the last sweep that deleted something by the rule or left nothing to delete, or else of the first one.",
        known.collect(),
    )
}

/// Returns name and labels of a rule's time of progress, as they stand in a text.
fn progress_series(rule: &RuleReport) -> String {
    let text = text(vec![family(LAST_PROGRESS, "", vec![series(&labels(rule), 0.0)])]);
    let line = text.lines().next_back().unwrap_or_default();
    line.rsplit_once(' ').map_or(line, |(series, _)| series).to_owned()
}

/// Reads the time of a series from one line of an earlier text, in seconds since 1970; `None` if it is later than `now`.
fn time_of(series: &str, line: &str, now: DateTime) -> Option<f64> {
    let mut words = line.strip_prefix(series)?.strip_prefix(' ')?.split_ascii_whitespace();
    let value: f64 = words.next()?.parse().ok()?;
    // A time in the future would keep every alert silent.
    (words.next().is_none() && value > 0.0 && value <= seconds(now.timestamp_millis())).then_some(value)
}

/// Returns the families that have a series for each rule.
fn of_rules(report: &Report) -> Vec<MetricFamily> {
    let as_of = report.as_of.map(Instant::millis);
    let of = |name, help, value: &dyn Fn(&RuleReport) -> Option<f64>| {
        let known = report.rules.iter().filter_map(|rule| Some(series(&labels(rule), value(rule)?)));
        family(name, help, known.collect())
    };
    let paused = report.rules.iter().flat_map(|rule| {
        let reasons = rule.paused_ms.map(PausedMs::by_reason);
        let [name, namespace] = labels(rule);
        reasons
            .into_iter()
            .flatten()
            .map(move |(reason, millis)| series(&[name, namespace, ("reason", reason.name())], millis as f64 / 1000.0))
    });
    let statuses = report.rules.iter().map(|rule| {
        let [name, namespace] = labels(rule);
        series(&[name, namespace, ("status", &rule.status.to_string())], 1.0)
    });
    vec![
        family(
            "sweeper_rule_status",
            "Status of the rule in the last run: complete, partial, refused, failed or skipped; always 1.",
            statuses.collect(),
        ),
        of("sweeper_deleted_documents", "Documents deleted by the last run.", &|rule| Some(rule.deleted_count as f64)),
        of(
            "sweeper_unconfirmed_documents",
            "Documents deleted by the last run that no majority of the members had confirmed.",
            &|rule| rule.unconfirmed_count.map(|count| count as f64),
        ),
        of("sweeper_deleted_children", "Children deleted by the last run, with their parents.", &|rule| {
            rule.children_deleted_count.map(|count| count as f64)
        }),
        of("sweeper_deleted_orphans", "Orphans among the children deleted by the last run.", &|rule| {
            rule.orphans_deleted_count.map(|count| count as f64)
        }),
        of("sweeper_orphans_remaining", "Orphans left by the last run, where it counted those that the rule deletes.", &|rule| {
            orphans::left(rule).map(|count| count as f64)
        }),
        of("sweeper_held_documents", "Expired documents that holds keep, where the last run counted them.", &|rule| {
            rule.held_count.map(|count| count as f64)
        }),
        of("sweeper_expired_documents_remaining", "Expired documents left by the last run.", &|rule| {
            rule.remaining_count.map(|count| count as f64)
        }),
        of(
            "sweeper_oldest_expired_age_seconds",
            "Age of the oldest expired document left by the last run; 0 if none.",
            &|rule| oldest_age(rule, as_of?),
        ),
        of("sweeper_expire_after_seconds", "Age at which documents expire by the rule.", &|rule| {
            (rule.expire_after_seconds >= 0).then_some(rule.expire_after_seconds as f64)
        }),
        of("sweeper_rule_duration_seconds", "Time that the last run spent on the rule.", &|rule| {
            Some(rule.duration_ms as f64 / 1000.0)
        }),
        family("sweeper_paused_seconds", "Deliberate pauses of the last run, by reason.", paused.collect()),
        of("sweeper_request_units", "Request units charged to the last run, where the service bills requests.", &|rule| {
            rule.request_units
        }),
    ]
}

fn oldest_age(rule: &RuleReport, as_of: i64) -> Option<f64> {
    if rule.remaining_count == Some(0) {
        return Some(0.0);
    }
    // The earliest date of BSON is further away than a number of milliseconds can say.
    Some(seconds(as_of.saturating_sub(rule.oldest_remaining?.millis())))
}

fn labels(rule: &RuleReport) -> [(&str, &str); 2] {
    [("rule", &rule.name), ("namespace", &rule.namespace)]
}

/// Returns a family with one series without labels, or with none if the value is unknown.
fn of_run(name: &str, help: &str, value: Option<f64>) -> MetricFamily {
    family(name, help, value.map(|value| series(&[], value)).into_iter().collect())
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

fn seconds(millis: i64) -> f64 {
    millis as f64 / 1000.0
}

fn bit(is_so: bool) -> f64 {
    if is_so { 1.0 } else { 0.0 }
}
