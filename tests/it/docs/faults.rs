//! The page of faults names tests, and each of them exists.

use super::pages::{self, root};

/// Returns the code of the page that looks like the path of a test: `area::file::name`.
fn named() -> Vec<String> {
    let text = std::fs::read_to_string(root().join("docs/faults.md")).expect("docs/faults.md");
    let is_test =
        |code: &&str| code.matches("::").count() >= 2 && code.chars().all(|c| c.is_ascii_alphanumeric() || "_:".contains(c));
    text.split('`').skip(1).step_by(2).filter(is_test).map(str::to_owned).collect()
}

/// Whether a file has a test of that name: a function right below an attribute of a test, or one that is run on every server.
fn has_test(text: &str, name: &str) -> bool {
    let on_servers = text.split("on_servers!(").skip(1).filter_map(|rest| rest.split(')').next());
    if on_servers.flat_map(|names| names.split(',')).any(|of_suite| of_suite.trim() == name) {
        return text.contains(&format!("async fn {name}("));
    }
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let begins = [format!("fn {name}("), format!("async fn {name}(")];
    lines.iter().enumerate().any(|(index, line)| {
        let above = lines[..index].iter().rev().take_while(|line| line.starts_with("#["));
        begins.iter().any(|begin| line.starts_with(begin.as_str()))
            && above.into_iter().any(|line| line.starts_with("#[test") || line.starts_with("#[tokio::test"))
    })
}

#[test]
fn every_test_that_the_page_of_faults_names_exists() {
    let named = named();
    assert!(named.len() > 35, "{named:?}");
    for test in &named {
        let (file, name) = test.rsplit_once("::").expect("a path");
        let file = file.replace("::", "/");
        let texts =
            [format!("tests/it/{file}.rs"), format!("src/{file}.rs")].map(|path| std::fs::read_to_string(root().join(path)));
        let found = texts.iter().flatten().any(|text| has_test(text, name));
        assert!(found, "docs/faults.md names `{test}`, and there is no such test");
    }
    assert!(!has_test("#[test]\nfn other() {}\n\nfn a() {}", "a") && has_test("#[tokio::test]\nasync fn a() {}", "a"));
}

#[test]
fn every_row_of_the_page_of_faults_names_a_test() {
    let rows: Vec<String> = std::fs::read_to_string(root().join("docs/faults.md"))
        .expect("docs/faults.md")
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| fault |"))
        .map(str::to_owned)
        .collect();
    assert!(rows.len() > 20 && !pages::one("docs/faults.md").anchors().is_empty());
    for row in rows {
        let last = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
        assert!(last.starts_with('`') && last.contains("::"), "{row}");
    }
}
