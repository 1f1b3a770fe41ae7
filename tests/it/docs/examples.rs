//! Policies, manifests, units and alerts of the documentation are valid.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;
use ttl_sweeper::core::policy::parse;

use super::commands::{accepted, words};
use super::pages::{self, Block};
use crate::support::sweeper::sweeper;

/// Returns the YAML blocks of all pages whose text begins with one of these words.
fn yaml(kinds: &[&str]) -> Vec<Block> {
    let blocks = pages::all().into_iter().flat_map(|page| page.blocks(&["yaml"]));
    blocks.filter(|block| kinds.iter().any(|kind| block.text.starts_with(kind))).collect()
}

const MANIFEST: &str = "apiVersion:";
const ALERTS: &str = "groups:";
const POLICY: &str = "version:";
const FRAGMENTS: [&str; 4] = ["connection:", "run:", "defaults:", "collections:"];

/// Completes a fragment to a whole policy.
fn completed(text: &str) -> String {
    let rules = if text.contains("collections:") {
        ""
    } else {
        "collections: [{namespace: app.sessions, field: lastModified, expireAfter: 1d}]\n"
    };
    let version = if text.starts_with(POLICY) { "" } else { "version: 1\n" };
    format!("{version}{text}{rules}")
}

#[test]
fn every_policy_is_valid_by_the_parser_and_by_the_schema() {
    let printed = sweeper(&["schema"]).output().expect("sweeper starts");
    let schema: Value = serde_json::from_slice(&printed.stdout).expect("the schema is JSON");
    let schema = jsonschema::draft7::new(&schema).expect("the schema is one of draft-07");
    let env = |name: &str| (name == "MONGODB_URI").then(|| "mongodb://localhost".to_owned());

    let all = yaml(&[""]);
    let policies: Vec<&Block> =
        all.iter().filter(|block| ![MANIFEST, ALERTS].iter().any(|kind| block.text.starts_with(kind))).collect();
    assert!(policies.len() >= 6, "{}", policies.len());
    for block in policies {
        let known = block.text.starts_with(POLICY) || FRAGMENTS.iter().any(|key| block.text.starts_with(key));
        assert!(known, "{}: not a policy, a part of one, a manifest or alerts", block.place);
        let text = completed(&block.text);
        if let Err(error) = parse::parse(&block.place, &text, &env, false) {
            panic!("{error}");
        }
        let policy: Value = serde_yaml::from_str(&text).expect("parsed above");
        if let Err(error) = schema.validate(&policy) {
            panic!("{}: {error}", block.place);
        }
    }
}

#[test]
fn kubernetes_runs_commands_that_sweeper_accepts() {
    let manifests = yaml(&[MANIFEST]);
    let kinds: Vec<String> = manifests
        .iter()
        .map(|block| {
            let manifest: Value = serde_yaml::from_str(&block.text).unwrap_or_else(|cause| panic!("{}: {cause}", block.place));
            let spec = &manifest["spec"];
            let (version, pod) = match manifest["kind"].as_str() {
                Some("CronJob") => {
                    assert_eq!(spec["schedule"].as_str().expect("a schedule").split(' ').count(), 5, "{}", block.place);
                    assert_eq!(spec["jobTemplate"]["spec"]["template"]["spec"]["restartPolicy"], "Never", "{}", block.place);
                    ("batch/v1", &spec["jobTemplate"]["spec"]["template"]["spec"])
                }
                Some("Deployment") => {
                    let labels = &spec["template"]["metadata"]["labels"];
                    assert_eq!(&spec["selector"]["matchLabels"], labels, "{}", block.place);
                    ("apps/v1", &spec["template"]["spec"])
                }
                kind => panic!("{}: {kind:?}", block.place),
            };
            assert_eq!(manifest["apiVersion"], version, "{}", block.place);
            let container = &pod["containers"][0];
            assert!(container["image"].as_str().expect("an image").ends_with(env!("CARGO_PKG_VERSION")), "{}", block.place);
            assert_eq!(container["volumeMounts"][0]["name"], pod["volumes"][0]["name"], "{}", block.place);
            let args = container["args"].as_array().expect("args").iter().map(|arg| arg.as_str().expect("a string").to_owned());
            accepted(&block.place, &args.collect::<Vec<_>>());
            manifest["kind"].as_str().expect("a kind").to_owned()
        })
        .collect();
    assert_eq!(kinds, ["CronJob", "Deployment"]);
}

#[test]
fn alerts_watch_series_that_exist() {
    let [block] = &yaml(&[ALERTS])[..] else { panic!("not one block of alerts") };
    let alerts: Value = serde_yaml::from_str(&block.text).expect("YAML");
    let rules = alerts["groups"][0]["rules"].as_array().expect("rules");
    assert!(rules.len() >= 4);
    let known = series();
    for rule in rules {
        let expression = rule["expr"].as_str().expect("an expression");
        let named: Vec<&str> = words_of(expression).filter(|word| word.starts_with("sweeper_")).collect();
        assert!(!named.is_empty(), "{rule}");
        assert!(named.iter().all(|name| known.contains(*name)), "{rule}");
        assert!(rule["alert"].is_string() && rule["annotations"]["summary"].is_string(), "{rule}");
    }
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
    let page = pages::one("docs/unattended.md");
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

#[test]
fn systemd_accepts_the_units() {
    let page = pages::one("docs/unattended.md");
    let units = page.blocks(&["ini"]);
    assert_eq!(units.len(), 3);
    let dir = tempfile::tempdir().expect("a temporary directory");
    let mut files = Vec::new();
    for (number, unit) in units.iter().enumerate() {
        let is_timer = unit.text.contains("[Timer]");
        let name =
            if is_timer { "sweeper.timer".to_owned() } else { format!("sweeper{}.service", if number == 0 { "" } else { "d" }) };
        let path = dir.path().join(name);
        let text = unit.text.replace("/usr/bin/sweeper", env!("CARGO_BIN_EXE_sweeper"));
        std::fs::write(&path, text).expect("a unit");
        files.push(path);
        for line in unit.text.lines().filter(|line| !line.is_empty()) {
            let is_section = ["[Unit]", "[Service]", "[Timer]", "[Install]"].contains(&line);
            let is_setting =
                line.split_once('=').is_some_and(|(key, value)| key.chars().all(char::is_alphanumeric) && !value.is_empty());
            assert!(is_section || is_setting, "{}: {line}", unit.place);
        }
        assert!(unit.text.contains("[Timer]\nOnCalendar=") || unit.text.contains("\nExecStart=/usr/bin/sweeper sweep "));
        for command in unit.text.lines().filter_map(|line| line.strip_prefix("ExecStart=/usr/bin/sweeper ")) {
            accepted(&unit.place, &words(command));
        }
    }
    // Without systemd, only the checks of single settings above apply.
    let Ok(verified) = Command::new("systemd-analyze").args(["verify", "--man=no"]).args(&files).output() else { return };
    let said = String::from_utf8_lossy(&verified.stderr);
    let about_units: Vec<&str> = said.lines().filter(|line| line.contains("sweeper")).collect();
    assert!(about_units.is_empty(), "{said}");
}

#[test]
fn the_page_shows_the_units_and_the_image_that_are_shipped() {
    let root = env!("CARGO_MANIFEST_DIR");
    let page = pages::one("docs/unattended.md");
    let shown: Vec<String> = page.blocks(&["ini"]).iter().map(|block| block.text.clone()).collect();
    let shipped = ["sweeper.service", "sweeper.timer", "sweeperd.service"];
    let shipped = shipped.map(|unit| std::fs::read_to_string(format!("{root}/packaging/systemd/{unit}")).unwrap());
    assert_eq!(shown.iter().map(|text| text.trim()).collect::<Vec<_>>(), shipped.each_ref().map(|text| text.trim()));
    let image = std::fs::read_to_string(format!("{root}/packaging/Dockerfile")).unwrap();
    assert_eq!(page.blocks(&["dockerfile"])[0].text.trim(), image.trim());
}

#[test]
fn the_policy_of_the_demo_fits_a_terminal() {
    let demo = include_str!("../support/demo.rs");
    let policy = demo.split("r#\"").nth(1).and_then(|rest| rest.split("\"#").next()).expect("the policy");
    assert!(policy.starts_with(POLICY) && policy.lines().count() > 10, "{policy}");
    let wide: Vec<&str> = policy.lines().filter(|line| line.chars().count() > 80).collect();
    assert_eq!(wide, [""; 0]);
}
