//! Policies of the documentation are valid.

use serde_json::Value;
use ttl_sweeper::core::policy::parse;

use super::pages::{self, Block};
use crate::support::sweeper::sweeper;

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

    let policies: Vec<Block> = pages::all().into_iter().flat_map(|page| page.blocks(&["yaml"])).collect();
    assert!(policies.len() >= 6, "{}", policies.len());
    for block in &policies {
        let known = block.text.starts_with(POLICY) || FRAGMENTS.iter().any(|key| block.text.starts_with(key));
        assert!(known, "{}: neither a policy nor a part of one", block.place);
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
fn the_policy_of_the_demo_fits_a_terminal() {
    let demo = include_str!("../support/demo.rs");
    let policy = demo.split("r#\"").nth(1).and_then(|rest| rest.split("\"#").next()).expect("the policy");
    assert!(policy.starts_with(POLICY) && policy.lines().count() > 10, "{policy}");
    let wide: Vec<&str> = policy.lines().filter(|line| line.chars().count() > 80).collect();
    assert_eq!(wide, [""; 0]);
}
