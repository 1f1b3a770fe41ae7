//! Mistakes in a text that is no YAML, in words for people.
//!
//! The message of the parser (libyaml 0.2, `scanner.c` and `parser.c`) and the text at its place tell which mistake it is. No
//! value of the text is quoted: it may be a password.

use super::place::Place;
use super::problem::no_space;

/// Says what is wrong with a text, and where, from the parser's message and place. A bracket that is not closed is named where it
/// opens.
pub(super) fn explain(text: &str, message: &str, place: Option<Place>) -> (String, Option<Place>) {
    // A text that takes too many levels or aliases says that first.
    if !names_a_policy(text) && !message.contains("limit exceeded") {
        return ("no policy; expected YAML with the keys `version` and `collections`, as `sweeper init` writes it".into(), None);
    }
    let Some(found) = place.map(|place| At { text, place }) else { return (unplaced(message), place) };
    let says = |part: &str| message.contains(part);
    let begins = context(message).map_or(found, |place| At { text, place });
    let said = |message: &str, at: At| (message.to_owned(), Some(at.place));
    if found.follows_tab() {
        return said("found a tab character; YAML takes only spaces to indent and separate", found);
    }
    if says("scanning an alias") || says("unknown anchor") {
        let word = begins.word();
        return (format!("`{word}` without quotes is an alias of YAML; expected \"{word}\" in quotes"), Some(begins.place));
    }
    if says("scanning an anchor") {
        return said("`&` at the beginning of a value marks an anchor of YAML; expected the value in quotes", begins);
    }
    if says("expected ',' or") && found.is_variable() {
        let dollar = Place { column: found.place.column - 1, ..found.place };
        return said("a variable inside braces or brackets needs quotes; expected \"${NAME}\"", At { place: dollar, ..found });
    }
    if let Some((name, place)) = found.with_lines_before().find_map(At::lacks_space) {
        return (name, Some(place));
    }
    if says("quoted scalar") {
        return match says("escape") {
            true => said(r"`\` in double quotes begins an escape; expected `\\`, or single quotes around the value", found),
            false => said("the quote that opens here is not closed", begins),
        };
    }
    if says("cannot start any token") {
        let first = found.rest().chars().next().unwrap_or(' ');
        return (format!("`{first}` cannot begin a value or a key without quotes; expected single quotes around it"), place);
    }
    if says("flow mapping") || says("flow sequence") {
        let (open, close) = if says("mapping") { ('{', '}') } else { ('[', ']') };
        return (format!("the `{open}` that opens here lacks its `{close}`, or a comma between two entries"), Some(begins.place));
    }
    if says("mapping values are not allowed") && found.follows_colon() {
        return said("a value with a colon and a space in it needs quotes", found);
    }
    if says("mapping values are not allowed") || says("block mapping") || says("block collection") {
        return said("the indentation fits no line above; keys of one mapping begin in the same column", found);
    }
    if says("could not find expected ':'") {
        return said("expected a key, a colon and a space, then the value", begins);
    }
    (unplaced(message), place)
}

/// Says what is wrong where no place tells more.
fn unplaced(message: &str) -> String {
    if message.contains("more than one document") {
        return "more than one YAML document; expected one policy without a line `---` in its middle".to_owned();
    }
    let end = message.find(" at line ").unwrap_or(message.len());
    format!("no valid YAML: {}", &message[..end])
}

/// Whether a line of a text begins with a key that every policy has.
fn names_a_policy(text: &str) -> bool {
    let keys = ["version", "collections", "connection", "defaults"];
    text.lines().any(|line| {
        let line = line.trim_start_matches(|c: char| c.is_whitespace() || "{\"'-".contains(c));
        keys.iter()
            .any(|key| line.strip_prefix(key).is_some_and(|rest| rest.trim_start_matches(['"', '\'', ' ']).starts_with(':')))
    })
}

/// Returns the place where what the parser was at begins, which follows its own place in the message if it is another.
fn context(message: &str) -> Option<Place> {
    let (_, context) = message.split_once(", while ")?;
    let (_, place) = context.rsplit_once(" at line ")?;
    let (line, column) = place.split_once(" column ")?;
    Some(Place { line: line.parse().ok()?, column: column.parse().ok()? })
}

/// A place in a text.
#[derive(Clone, Copy)]
struct At<'a> {
    text: &'a str,
    place: Place,
}

impl<'a> At<'a> {
    fn line(self) -> &'a str {
        self.text.lines().nth(self.place.line.saturating_sub(1)).unwrap_or_default()
    }

    /// Returns the line in front of the place, and from it on.
    fn halves(self) -> (&'a str, &'a str) {
        let line = self.line();
        let at = line.char_indices().nth(self.place.column.saturating_sub(1)).map_or(line.len(), |(at, _)| at);
        line.split_at(at)
    }

    fn rest(self) -> &'a str {
        self.halves().1
    }

    /// Returns what a person takes for one value without quotes.
    fn word(self) -> &'a str {
        let rest = self.rest();
        &rest[..rest.find(|c: char| c.is_whitespace() || ",]}\"".contains(c)).unwrap_or(rest.len())]
    }

    /// Whether the place is at a tab, or on a line that a tab indents. The parser itself names no tab.
    fn follows_tab(self) -> bool {
        let line = self.line();
        let indent = &line[..line.len() - line.trim_start().len()];
        indent.contains('\t') || self.rest().starts_with('\t')
    }

    /// Whether the place is at the brace of a `${NAME}`.
    fn is_variable(self) -> bool {
        let (before, rest) = self.halves();
        before.ends_with('$') && rest.starts_with('{')
    }

    /// Whether a key and its colon are in front of the place on the same line.
    fn follows_colon(self) -> bool {
        self.halves().0.contains(": ")
    }

    /// Returns the place, then the last line before it that has text.
    fn with_lines_before(self) -> impl Iterator<Item = At<'a>> {
        let has_text = |line: &usize| {
            let line = At { place: Place { line: *line, column: 1 }, ..self }.line().trim_start();
            !line.is_empty() && !line.starts_with('#')
        };
        let before = (1..self.place.line).rev().find(has_text).map(|line| Place { line, column: 1 });
        [Some(self.place), before].into_iter().flatten().map(move |place| At { place, ..self })
    }

    /// Returns the complaint, and its place, that a line begins with a key or a dash without the space behind it.
    fn lacks_space(self) -> Option<(String, Place)> {
        let line = self.line();
        let begins = line.trim_start();
        let place = |rest: &str| Place { column: line[..line.len() - rest.len()].chars().count() + 1, ..self.place };
        let is_letter = |c: char| c.is_ascii_alphabetic();
        if begins.strip_prefix('-').is_some_and(|rest| rest.starts_with(is_letter)) {
            return Some(("no space after the `-` of an item; expected `- `".into(), place(begins)));
        }
        let key = begins.trim_start_matches("- ").trim_start();
        let (name, value) = key.split_once(':')?;
        let is_key = name.len() > 1 && name.chars().all(is_letter) && !value.starts_with([' ', '/']) && !value.is_empty();
        is_key.then(|| (no_space(name), place(key)))
    }
}

#[cfg(test)]
mod tests {
    use crate::core::policy::parse::parse;

    /// Returns the one problem of a policy, with its line and column.
    fn problem(text: &str) -> String {
        let lines = parse("p", text, &|_| None, true).unwrap_err().lines();
        assert_eq!(lines.len(), 1, "{text}: {lines:?}");
        lines[0].clone()
    }

    #[test]
    fn mistakes_of_yaml_are_named_where_they_are() {
        let indentation = "the indentation fits no line above; keys of one mapping begin in the same column";
        for (rule, said) in [
            ("namespace: *.x", "p:3:16: `*.x` without quotes is an alias of YAML; expected \"*.x\" in quotes"),
            ("namespace: *", "p:3:16: `*` without quotes is an alias of YAML; expected \"*\" in quotes"),
            ("namespace: *app", "p:3:16: `*app` without quotes is an alias of YAML; expected \"*app\" in quotes"),
            ("exclude: [a.b, *.x]", "p:3:20: `*.x` without quotes is an alias of YAML; expected \"*.x\" in quotes"),
            ("name: &", "p:3:11: `&` at the beginning of a value marks an anchor of YAML; expected the value in quotes"),
            ("filter: {a: ${A}}", "p:3:17: a variable inside braces or brackets needs quotes; expected \"${NAME}\""),
            ("filter: {a: [1, ${A}]}", "p:3:21: a variable inside braces or brackets needs quotes; expected \"${NAME}\""),
            ("namespace:a.b\n    field: at", "p:3:5: no space after the colon of `namespace`; expected `namespace: ...`"),
            ("name: x\n    field:at\n    hint: x", "p:4:5: no space after the colon of `field`; expected `field: ...`"),
            ("name: x\n  -name: y", "p:4:3: no space after the `-` of an item; expected `- `"),
            ("name: a: b", "p:3:12: a value with a colon and a space in it needs quotes"),
            ("name: x\n   field: at", &format!("p:4:4: {indentation}")),
            ("name: x\n     field: at", &format!("p:4:11: {indentation}")),
            ("name: x\n    field", "p:4:5: expected a key, a colon and a space, then the value"),
            ("name: @x", "p:3:11: `@` cannot begin a value or a key without quotes; expected single quotes around it"),
            ("name: 'x\n    field: at", "p:3:11: the quote that opens here is not closed"),
            (
                "name: \"a\\d\"",
                r"p:3:13: `\` in double quotes begins an escape; expected `\\`, or single quotes around the value",
            ),
            ("filter: {a: [1, 2}", "p:3:17: the `[` that opens here lacks its `]`, or a comma between two entries"),
            (
                "filter: {a: {b: 1}\n    field: at",
                "p:3:13: the `{` that opens here lacks its `}`, or a comma between two entries",
            ),
            ("filter:\n\t{a: 1}", "p:4:1: found a tab character; YAML takes only spaces to indent and separate"),
        ] {
            assert_eq!(problem(&format!("version: 1\ncollections:\n  - {rule}\n")), said, "{rule}");
        }
        assert_eq!(
            problem("version:1\ncollections:\n  - name: x\n"),
            "p:1:1: no space after the colon of `version`; expected `version: ...`"
        );
        let second = "p: more than one YAML document; expected one policy without a line `---` in its middle";
        assert_eq!(problem("version: 1\n---\ncollections: []\n"), second);
    }

    #[test]
    fn a_file_of_another_kind_is_no_policy() {
        let said = "p: no policy; expected YAML with the keys `version` and `collections`, as `sweeper init` writes it";
        for text in ["[package]\nversion = \"1\"\n", "%PDF-1.4\n", "\u{7f}ELF\u{1}\n", "// x\n{\"a\": 1}\n", "a: 1\n---\nb: 2\n"]
        {
            assert_eq!(problem(text), said, "{text:?}");
        }
    }

    #[test]
    fn a_mapping_whose_only_key_lacks_its_space_is_named() {
        let rules = "collections:\n  - {namespace: a.b, field: at, expireAfter: 1d}\n";
        let said = "p:2:7: `lock`: no space after the colon of `collection`; expected `collection: ...`";
        assert_eq!(problem(&format!("version: 1\nlock: collection:a.x\n{rules}")), said);
    }

    #[test]
    fn no_value_is_quoted() {
        for uri in ["uri:mongodb://u:hunter2@h", "uri: mongodb://u:hunter2@h: x", "uri: 'mongodb://u:hunter2@h", "uri: @hunter2"]
        {
            for text in
                [format!("connection:\n  {uri}\nversion: 1\ncollections: []\n"), format!("version: 1\nconnection: {{{uri}\n")]
            {
                let said = parse("p", &text, &|_| None, true).unwrap_err().to_string();
                assert!(!said.contains("hunter2"), "{text}: {said}");
            }
        }
    }
}
