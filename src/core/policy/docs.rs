//! The documentation of the keys, as Markdown: `docs/policy-keys.md`.

use super::key::{AnyKey, Section};
use super::keys;

const HEAD: &str = "\
# The keys of a policy

[`sweeper.example.yaml`](../sweeper.example.yaml) has the keys in use, and `sweeper schema` prints the same as a JSON Schema with
examples. Any string may hold `${NAME}`, an environment variable that must be set, or `${NAME:-default}`; `$${` stands for `${`.
";

/// Returns the documentation of all keys.
pub fn keys_as_markdown() -> String {
    let mut page = HEAD.to_owned();
    table(&mut page, "At the top", keys::TOP_LEVEL);
    for key in keys::TOP_LEVEL {
        // Rules share the keys of `defaults`, which come below.
        if let Some(section) = key.section().filter(|section| !std::ptr::eq(*section, &keys::DEFAULTS)) {
            mapping(&mut page, key.about().name, section);
        }
    }
    table(&mut page, "In a rule", keys::OWN);
    table(&mut page, "In a rule or in `defaults`", keys::SHARED);
    for key in keys::OWN.iter().chain(keys::SHARED) {
        if let Some(section) = key.section() {
            mapping(&mut page, key.about().name, section);
        }
    }
    page
}

/// Writes the keys of a mapping, and the keys of the mappings inside it.
fn mapping(page: &mut String, path: &str, section: &Section) {
    for list in section.lists {
        table(page, &format!("In `{path}`"), list);
    }
    for key in section.keys() {
        if let Some(section) = key.section() {
            mapping(page, &format!("{path}.{}", key.about().name), section);
        }
    }
}

fn table(page: &mut String, title: &str, keys: &[&dyn AnyKey]) {
    page.push_str(&format!("\n## {title}\n\n| Key | Value | Meaning |\n|---|---|---|\n"));
    for key in keys {
        let about = key.about();
        let default = match (key.default(), about.required) {
            (Some(value), _) => format!("; default `{}`", value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
            (None, Some(_)) => "; required".to_owned(),
            (None, None) => String::new(),
        };
        page.push_str(&format!("| `{}` | {}{default} | {} |\n", about.name, key.words(), about.doc));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_says_what_the_table_says() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/policy-keys.md");
        let file = std::fs::read_to_string(path).unwrap();
        assert!(file == keys_as_markdown(), "write it again: cargo run -- schema keys -o docs/policy-keys.md");
    }
}
