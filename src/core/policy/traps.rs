//! Mistakes in a text that is no YAML, in words for people.
//!
//! The message of the parser (libyaml 0.2, `scanner.c` and `parser.c`) and the text at its place tell which mistake it is. No
//! value of the text is quoted: it may be a password.

use super::place::Place;
use super::problem::no_space;
use super::properties;

/// The complaint about a text that is another kind of file, or none at all.
pub(super) const NO_POLICY: &str =
    "no policy; expected YAML with the keys `version` and `collections`, as `sweeper init` writes it";

/// Says what is wrong with a text, and where, from the parser's message and place. A bracket that is not closed is named where it
/// opens.
pub(super) fn explain(text: &str, message: &str, place: Option<Place>) -> (String, Option<Place>) {
    // A text that takes too many levels or aliases says that first.
    if !names_a_policy(text) && !message.contains("limit exceeded") {
        return (NO_POLICY.into(), None);
    }
    if message.contains("control characters") {
        return control_character(text);
    }
    if message.contains("more than one document") {
        let said = "more than one YAML document; expected one policy without a line `---` or `...` in its middle";
        return (said.to_owned(), second_document(text));
    }
    let unplaced = "no valid YAML; expected a key, a colon and a space, then the value, in quotes if it has special characters";
    let Some(place) = place else { return (limit(message).unwrap_or(unplaced).to_owned(), place) };
    let trouble = Trouble { message, found: At { text, place } };
    let explained = trouble
        .of_lookalikes()
        .or_else(|| trouble.of_marks())
        .or_else(|| trouble.of_quotes())
        .or_else(|| trouble.of_brackets())
        .or_else(|| trouble.of_lines());
    let (said, place) = explained.unwrap_or_else(|| (limit(message).unwrap_or(unplaced).to_owned(), place));
    (said, Some(place))
}

/// Says which limit of the parser is passed.
fn limit(message: &str) -> Option<&'static str> {
    if message.contains("repetition limit") {
        return Some("aliases (`*name`) repeat too much; expected the values themselves");
    }
    message.contains("recursion limit").then_some("nested too deep; expected at most 127 levels")
}

/// Returns the complaint about the first control character, and its place.
fn control_character(text: &str) -> (String, Option<Place>) {
    let is_control = |c: char| c.is_control() && !matches!(c, '\t' | '\u{85}');
    let found = text.lines().enumerate().find_map(|(line, content)| {
        let (column, c) = content.chars().enumerate().find(|(_, c)| is_control(*c))?;
        Some((u32::from(c), Place { line: line + 1, column: column + 1 }))
    });
    match found {
        Some((code, place)) => (format!("a control character (U+{code:04X}), which no YAML has; expected text"), Some(place)),
        None => ("a control character, which no YAML has; expected text".to_owned(), None),
    }
}

/// Returns the place of the line that ends the first document.
fn second_document(text: &str) -> Option<Place> {
    let has_text = |line: &str| !line.trim().is_empty() && !line.starts_with(['#', '%']);
    let mut lines = text.lines().enumerate().skip_while(|(_, line)| !has_text(line)).skip(1);
    let is_end = |line: &str| {
        ["---", "..."].iter().any(|end| line.strip_prefix(end).is_some_and(|rest| rest.trim_start() != rest || rest.is_empty()))
    };
    lines.find(|(_, line)| is_end(line)).map(|(line, _)| Place { line: line + 1, column: 1 })
}

/// What the parser says of a text, and where.
struct Trouble<'a> {
    message: &'a str,
    found: At<'a>,
}

/// What a person is told, and the place.
type Said = Option<(String, Place)>;

fn said(message: impl Into<String>, at: At) -> Said {
    Some((message.into(), at.place))
}

impl<'a> Trouble<'a> {
    fn says(&self, part: &str) -> bool {
        self.message.contains(part)
    }

    /// Returns where what the parser was at begins. The message leaves it out where it is the place of the message or the
    /// beginning of the text.
    fn begins(&self) -> At<'a> {
        let start = Place { line: 1, column: 1 };
        let is_in_brackets = self.says("flow mapping") || self.says("flow sequence");
        let place = context(self.message).unwrap_or(if is_in_brackets { start } else { self.found.place });
        At { place, ..self.found }
    }

    /// Explains a character that looks like a part of YAML, on the line or the one before.
    fn of_lookalikes(&self) -> Said {
        let lines: Vec<usize> = self.found.with_lines_before().map(|at| at.place.line).collect();
        properties::lookalike_on(self.found.text, &lines)
    }

    /// Explains a character that has a meaning at the beginning of a value.
    fn of_marks(&self) -> Said {
        let (found, begins) = (self.found, self.begins());
        if found.follows_tab() {
            return said("found a tab character; YAML takes only spaces to indent and separate", found);
        }
        if self.says("scanning an alias") || self.says("unknown anchor") {
            let word = begins.word();
            return said(format!("`{word}` without quotes is an alias of YAML; expected \"{word}\" in quotes"), begins);
        }
        if self.says("scanning an anchor") {
            return said("`&` at the beginning of a value marks an anchor of YAML; expected the value in quotes", begins);
        }
        if self.says("recursion limit") && found.rest().starts_with('&') {
            let name = &found.word()[1..];
            return said(format!("the anchor `&{name}` has its own alias `*{name}` inside; expected the value itself"), found);
        }
        if found.rest().starts_with("!!") {
            return said("the value is none of its tag's type; expected the value without the tag", found);
        }
        if self.says("a tag") || self.says("undefined tag handle") || self.says("empty YAML tag") {
            return said("`!` at the beginning of a value marks a tag of YAML; expected the value in quotes", begins);
        }
        if self.says("a block scalar") {
            let mark = begins.rest().chars().next().unwrap_or('|');
            return said(
                format!(
                    "`{mark}` begins a block of lines, the first on the next line; expected a value that begins with it in quotes"
                ),
                begins,
            );
        }
        if self.says("directive") {
            return said(
                "`%` at the beginning of a line is a directive of YAML; expected a key, in quotes if it has a `%`",
                begins,
            );
        }
        if self.says("expected ',' or") && found.is_variable() {
            let dollar = Place { column: found.place.column - 1, ..found.place };
            return said(
                "a variable inside braces or brackets needs quotes; expected \"${NAME}\"",
                At { place: dollar, ..found },
            );
        }
        if self.says("cannot start any token") || self.says("node content") {
            let first = found.rest().chars().next()?;
            let mark = if first == '`' { "a backtick".to_owned() } else { format!("`{first}`") };
            return said(format!("{mark} cannot begin a value or a key without quotes; expected single quotes around it"), found);
        }
        if self.says("mapping keys are not allowed") || self.says("block sequence entries are not allowed") {
            let first = found.rest().chars().next()?;
            return said(
                format!(
                    "`{first}` and a space cannot begin a value in the line of its key; expected quotes, or a line of its own"
                ),
                found,
            );
        }
        None
    }

    fn of_quotes(&self) -> Said {
        if let Some(lacks) = self.found.with_lines_before().find_map(At::lacks_space) {
            return Some(lacks);
        }
        if self.says("quoted scalar") {
            return match self.says("escape") {
                true => {
                    said(r"`\` in double quotes begins an escape; expected `\\`, or single quotes around the value", self.found)
                }
                false => said("the quote that opens here is not closed", self.begins()),
            };
        }
        if !self.says("did not find expected") {
            return None;
        }
        let (before, rest) = self.found.halves();
        if rest.starts_with(':') {
            return None;
        }
        let is_in_brackets = self.says("flow mapping") || self.says("flow sequence");
        let goes_on = before.ends_with([']', '}']) && rest.starts_with(|c: char| !c.is_whitespace() && !",]}".contains(c));
        match before.trim_end().chars().next_back()? {
            '\'' => said("the quote before this place ends the value; expected `''` for one inside single quotes", self.found),
            '"' => said(r#"the quote before this place ends the value; expected `\"` for one inside double quotes"#, self.found),
            end @ (']' | '}') if goes_on || !is_in_brackets => said(
                format!("the `{end}` before this place ends the value; expected nothing behind it, or the whole value in quotes"),
                self.found,
            ),
            _ => None,
        }
    }

    fn of_brackets(&self) -> Said {
        if !(self.says("flow mapping") || self.says("flow sequence")) {
            return None;
        }
        let (before, rest) = self.found.halves();
        if rest.starts_with(['[', '{']) && before.ends_with(|c: char| !c.is_whitespace() && !"[{,:".contains(c)) {
            return said("a value with brackets or braces in it needs quotes inside other brackets or braces", self.found);
        }
        let (open, close) = if self.says("mapping") { ('{', '}') } else { ('[', ']') };
        said(format!("the `{open}` that opens here lacks its `{close}`, or a comma between two entries"), self.begins())
    }

    fn of_lines(&self) -> Said {
        let found = self.found;
        if self.says("mapping values are not allowed") && found.follows_colon() {
            let operator = found.halves().0.rsplit(": ").next().filter(|value| value.starts_with('$'));
            return match operator {
                Some(operator) => said(format!("an operator needs braces; expected {{{operator}: ...}}"), found),
                None => said("a value with a colon and a space in it needs quotes", found),
            };
        }
        if self.says("mapping values are not allowed") || self.says("block mapping") || self.says("block collection") {
            return said("the indentation fits no line above; keys of one mapping begin in the same column", found);
        }
        if self.says("could not find expected ':'") {
            return said("expected a key, a colon and a space, then the value", self.begins());
        }
        None
    }
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
        let is_of_name = |c: char| is_letter(c) || c == '$' || c == '_';
        if begins.strip_prefix('-').is_some_and(|rest| rest.starts_with(is_letter)) {
            return Some(("no space after the `-` of an item; expected `- `".into(), place(begins)));
        }
        let key = begins.trim_start_matches("- ").trim_start();
        let (name, value) = key.split_once(':')?;
        let is_key =
            !name.is_empty() && name.chars().all(is_of_name) && !value.starts_with([' ', '/', '\\']) && !value.is_empty();
        is_key.then(|| (no_space(name), place(key)))
    }
}

#[cfg(test)]
mod tests;
