//! The metrics: the page has each of them, and the alerts that are shipped watch no others.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

use super::pages::{self, root};

#[test]
fn the_alerts_watch_series_that_exist() {
    let text = std::fs::read_to_string(root().join("packaging/prometheus/alerts.yaml")).expect("the alerts");
    let alerts: Value = serde_yaml::from_str(&text).expect("YAML");
    let rules = alerts["groups"][0]["rules"].as_array().expect("rules");
    let known = series();
    let mut watched = BTreeSet::new();
    for rule in rules {
        let expression = rule["expr"].as_str().expect("an expression");
        let named: Vec<&str> = words_of(expression).filter(|word| word.starts_with("sweeper_")).collect();
        assert!(!named.is_empty() && named.iter().all(|name| known.contains(*name)), "{rule}");
        assert!(rule["alert"].is_string() && rule["annotations"]["summary"].is_string(), "{rule}");
        assert!(["page", "ticket"].contains(&rule["labels"]["severity"].as_str().expect("a severity")), "{rule}");
        watched.extend(named);
    }
    for name in ["last_progress_timestamp_seconds", "last_run_success", "last_run_timestamp_seconds", "rule_status"] {
        assert!(watched.contains(format!("sweeper_{name}").as_str()), "{name}");
    }
    // Without Prometheus' own program, its tests of the alerts are not run.
    let tests = root().join("packaging/prometheus/alerts_test.yaml");
    let Ok(tried) = Command::new("promtool").args(["test", "rules"]).arg(tests).output() else { return };
    assert!(tried.status.success(), "{}", String::from_utf8_lossy(&tried.stdout) + String::from_utf8_lossy(&tried.stderr));
}

fn words_of(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_'))
}

/// Returns the metrics named in the source code.
fn series() -> BTreeSet<String> {
    let code = include_str!("../../../src/core/report/metrics.rs");
    let code = code.split("#[cfg(test)]").next().expect("code");
    let quoted = code.split('"').skip(1).step_by(2);
    quoted.filter(|text| text.starts_with("sweeper_") && words_of(text).count() == 1).map(str::to_owned).collect()
}

#[test]
fn the_table_of_metrics_has_every_series_and_no_other() {
    let page = pages::one("docs/monitoring.md");
    let rows = page.prose().filter(|(_, line)| line.starts_with("| `sweeper_"));
    let mut described = BTreeSet::new();
    for (place, line) in rows {
        let names = line.split('|').nth(1).expect("a first column");
        for name in pages::code_in(names) {
            let name = name.split('{').next().expect("a name");
            // In the table, `…_y` after `sweeper_last_run_x` is short for `sweeper_last_run_y`.
            let name = match name.strip_prefix('…') {
                Some(rest) => format!("sweeper_last_run{rest}"),
                None => name.to_owned(),
            };
            assert!(described.insert(name.clone()), "{place}: {name} is listed twice");
        }
    }
    assert_eq!(described, series());
}
