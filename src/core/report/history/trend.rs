//! Comparison of runs: rates, medians, trend.

use std::collections::BTreeMap;

use bson::{Bson, Document};

use super::{Median, RecordedRun};
use crate::base::values::count_in;
use crate::core::plan::waits::Wait;

/// Returns documents per second, rounded to one decimal place.
pub(super) fn rate(documents: u64, millis: u64) -> f64 {
    (documents as f64 * 10_000.0 / millis as f64).round() / 10.0
}

/// Returns the median of each value; `None` if there is no run. A run that ended without a report, such as one that was not
/// confirmed, is left out: it says nothing of other runs.
pub(super) fn median_of(runs: &[RecordedRun]) -> Option<Median> {
    let reported = || runs.iter().filter(|run| run.has_report());
    let of = |value: fn(&RecordedRun) -> Option<f64>| median(reported().filter_map(value).collect());
    Some(Median {
        deleted_count: of(|run| Some(run.deleted_count? as f64))?,
        duration_ms: of(|run| Some(run.duration_ms? as f64))?,
        deleted_per_second: of(|run| run.deleted_per_second),
    })
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len() % 2 == 1 { upper } else { (values[middle - 1] + upper) / 2.0 })
}

/// Fewest documents, with their children, of a sweep whose speed counts: a shorter one says little.
const ENOUGH_DELETED: u64 = 1_000;

/// Returns the documents per second of the largest sweep of each rule in some recorded runs, by the names of rule and namespace.
/// Pauses that do not tell of the speed are left out.
pub fn speeds(runs: &[Document]) -> BTreeMap<(String, String), f64> {
    let rules = runs.iter().filter_map(|run| run.get_array("rules").ok()).flatten().filter_map(Bson::as_document);
    let mut largest: BTreeMap<(String, String), (u64, f64)> = BTreeMap::new();
    for rule in rules {
        let (Ok(name), Ok(namespace)) = (rule.get_str("name"), rule.get_str("namespace")) else { continue };
        let (Some(deleted), Some(millis)) = (count_in(rule, "deletedCount"), count_in(rule, "durationMs")) else { continue };
        let paused = rule.get_document("pausedMs").cloned().unwrap_or_default();
        let others = Wait::ALL.into_iter().filter(|wait| !wait.is_of_speed());
        let paused: u64 = others.filter_map(|wait| count_in(&paused, wait.name())).sum();
        let Some(millis) = millis.checked_sub(paused).filter(|millis| *millis > 0) else { continue };
        let found = largest.entry((name.to_owned(), namespace.to_owned())).or_default();
        let with_children = deleted + count_in(rule, "childrenDeletedCount").unwrap_or(0);
        if with_children >= ENOUGH_DELETED && deleted > found.0 {
            *found = (deleted, deleted as f64 * 1000.0 / millis as f64);
        }
    }
    largest.into_iter().filter(|(_, (deleted, _))| *deleted > 0).map(|(rule, (_, speed))| (rule, speed)).collect()
}

/// Returns one letter for each value, in proportion to the largest value; only 0 has the lowest letter.
pub(super) fn sparkline(values: &[u64], unicode: bool) -> String {
    let letters: &[char] = if unicode {
        &['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█']
    } else {
        &['_', '.', '-', '=', '+', '*', '#', '@']
    };
    let largest = u128::from(values.iter().copied().max().unwrap_or(0).max(1));
    let steps = letters.len() - 1;
    let letter = |value: &u64| letters[usize::try_from((u128::from(*value) * steps as u128).div_ceil(largest)).unwrap_or(steps)];
    values.iter().map(letter).collect()
}

/// Returns the ratio of a value to the median: `2.5 times the median`; `None` if one of them is 0.
pub(super) fn times(value: f64, median: f64) -> Option<String> {
    (median > 0.0 && value > 0.0).then(|| match value / median {
        ratio if ratio >= 10.0 => format!("{ratio:.0} times the median"),
        ratio if ratio < 1.0 => format!("{ratio:.2} times the median"),
        ratio => format!("{ratio:.1} times the median"),
    })
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn the_largest_sweep_of_a_rule_tells_its_speed_without_its_pauses() {
        let rule = |name: &str, deleted: i64, millis: i64, paused: i64| {
            let paused = doc! { "rate": paused, "lag": 0, "latency": 500 };
            doc! { "name": name, "namespace": "app.c", "deletedCount": deleted, "durationMs": millis, "pausedMs": paused }
        };
        let runs = [
            doc! { "rules": [rule("a", 5_000, 1_000, 0), rule("b", 999, 10, 0), rule("c", 2_000, 500, 500)] },
            doc! { "rules": [rule("a", 20_000, 12_000, 2_000), { "name": "a", "namespace": "app.c", "deletedCount": 90_000 }] },
            doc! { "rules": [
                { "name": "files", "namespace": "app.c", "deletedCount": 50_i64, "childrenDeletedCount": 950_i64, "durationMs": 500_i64 },
                { "name": "few", "namespace": "app.c", "deletedCount": 50_i64, "childrenDeletedCount": 949_i64, "durationMs": 500_i64 },
            ] },
            doc! { "status": "running" },
        ];
        let of = |name: &str| (name.to_owned(), "app.c".to_owned());
        assert_eq!(speeds(&runs), BTreeMap::from([(of("a"), 2_000.0), (of("files"), 100.0)]));
    }

    #[test]
    fn the_middle_is_one_value_or_the_mean_of_two() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![9.0, 1.0, 2.0, 4.0]), Some(3.0));
    }

    #[test]
    fn a_run_without_a_report_does_not_count_in_the_median() {
        let run = |deleted, error: Option<&str>| RecordedRun {
            status: "complete".into(),
            deleted_count: Some(deleted),
            duration_ms: Some(10),
            error: error.map(str::to_owned),
            ..RecordedRun::default()
        };
        let not_confirmed = || run(0, Some("not confirmed"));
        let running = RecordedRun { status: "running".into(), ..RecordedRun::default() };
        let median = median_of(&[not_confirmed(), run(7, None), not_confirmed(), running]).unwrap();
        assert_eq!((median.deleted_count, median.duration_ms), (7.0, 10.0));
        assert_eq!(median_of(&[not_confirmed()]), None);
    }

    #[test]
    fn letters_grow_with_values_and_nothing_but_nothing_is_lowest() {
        assert_eq!(sparkline(&[0, 1, 50, 100, 14_000], true), "▁▂▂▂█");
        assert_eq!(sparkline(&[0, 1, 2, 3, 4, 5, 6, 7], false), "_.-=+*#@");
        assert_eq!(sparkline(&[0, 0], true), "▁▁");
        assert_eq!(sparkline(&[u64::MAX, 0], true), "█▁");
        assert_eq!(sparkline(&[], true), "");
    }

    #[test]
    fn comparisons() {
        assert_eq!(rate(1234, 500), 2468.0);
        assert_eq!(rate(1, 3000), 0.3);
        assert_eq!(times(30.0, 12.0).as_deref(), Some("2.5 times the median"));
        assert_eq!(times(300.0, 12.0).as_deref(), Some("25 times the median"));
        assert_eq!(times(1.0, 30.0).as_deref(), Some("0.03 times the median"));
        assert_eq!((times(30.0, 0.0), times(0.0, 30.0)), (None, None));
    }
}
