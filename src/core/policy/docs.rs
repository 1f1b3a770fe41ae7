//! The documentation of the keys, as Markdown: `docs/policy-keys.md`.

use super::key::AnyKey;
use super::keys;

const HEAD: &str = "\
# The keys of a policy

[`sweeper.example.yaml`](../sweeper.example.yaml) shows the keys in use, and `sweeper schema` prints them as a JSON Schema. Any
string may hold `${NAME}`, an environment variable that must be set, or `${NAME:-default}`; `$${` stands for `${`.
";

/// Returns the documentation of all keys.
pub fn keys_as_markdown() -> String {
    let mut page = HEAD.to_owned();
    table(&mut page, "At the top", keys::TOP_LEVEL);
    table(&mut page, "In a rule", keys::OWN);
    table(&mut page, "In a rule or in `defaults`", keys::SHARED);
    page
}

fn table(page: &mut String, title: &str, keys: &[&dyn AnyKey]) {
    page.push_str(&format!("\n## {title}\n\n| Key | Value | Meaning |\n|---|---|---|\n"));
    for &key in keys {
        row(page, "", key);
    }
}

/// Writes the row of a key, and below it the rows of the keys of its mapping.
fn row(page: &mut String, path: &str, key: &dyn AnyKey) {
    let about = key.about();
    let name = format!("{path}{}", about.name);
    let default = match (key.default(), about.required) {
        (Some(value), _) => format!("; default `{}`", value.as_str().map_or_else(|| value.to_string(), str::to_owned)),
        (None, Some(_)) => "; required".to_owned(),
        (None, None) => String::new(),
    };
    page.push_str(&format!("| `{name}` | {}{default} | {} |\n", key.words(), about.doc));
    // Rules share the keys of `defaults`, which have a table of their own.
    if let Some(section) = key.section().filter(|section| !std::ptr::eq(*section, &keys::DEFAULTS)) {
        for inner in section.keys() {
            row(page, &format!("{name}."), inner);
        }
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
