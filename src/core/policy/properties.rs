//! Anchors and tags of YAML that would silently be read as something else than what stands there.
//!
//! The parser says nothing of them. It drops the tags of YAML itself, so that `!!timestamp 2026-01-01` is a string. It follows
//! the alias of an anchor that is declared twice to the value of another anchor. A value that begins with `&` without quotes,
//! such as `&Co KG`, loses its first word. So they are looked for in the text, which the parser has found valid.

use super::place::Place;

/// The tags of YAML itself that the parser obeys; the value of each is a scalar.
const OBEYED: [&str; 5] = ["!!str", "!!int", "!!float", "!!bool", "!!null"];

/// Returns what is wrong with the first anchor or tag that is misread, and where.
pub(super) fn misread(text: &str) -> Option<(String, Place)> {
    let words = words(text);
    let is_used = |name: &str| words.iter().any(|word| word.text.strip_prefix('*') == Some(name));
    words.iter().enumerate().find_map(|(index, word)| {
        let message = match word.text.strip_prefix('&') {
            Some(name) if !is_used(name) => {
                format!("`&{name}` marks an anchor of YAML, and no `*{name}` uses it; expected a value in quotes if it begins with `&`")
            }
            Some(name) => {
                let first = words[..index].iter().find(|earlier| earlier.text == word.text)?;
                format!("the anchor `&{name}` is declared in line {} as well; expected a name of its own", first.place.line)
            }
            None if word.is_dropped_tag() => {
                format!("the tag `{}` has no effect here; expected the value without it, in a filter as Extended JSON", word.text)
            }
            None => return None,
        };
        Some((message, word.place))
    })
}

/// An anchor, an alias or a tag.
struct Word<'a> {
    text: &'a str,
    place: Place,
    /// The text behind it, on the same line.
    rest: &'a str,
}

impl Word<'_> {
    /// Whether the word is a tag that the parser drops. It tells the tags of an application, such as `!secret`.
    fn is_dropped_tag(&self) -> bool {
        let is_of_yaml = self.text.starts_with("!!") || self.text.starts_with("!<");
        let is_scalar = !self.rest.trim_start().starts_with(['[', '{', '#']) && !self.rest.trim().is_empty();
        is_of_yaml && !(OBEYED.contains(&self.text) && is_scalar)
    }
}

/// Returns the anchors, aliases and tags of a valid text.
fn words(text: &str) -> Vec<Word<'_>> {
    let mut scan = Scan::default();
    for (index, line) in text.lines().enumerate() {
        scan.read(line, index + 1);
    }
    scan.found
}

/// A walk over the lines of a text, as far as it takes to tell where a key or a value may begin.
#[derive(Default)]
struct Scan<'a> {
    found: Vec<Word<'a>>,
    /// The quote that is open.
    quote: Option<char>,
    /// Brackets and braces that are open.
    depth: usize,
    /// Column of the innermost entry of a mapping or a list: lines that are indented more belong to it.
    entry: usize,
    /// Whether the value is the block of lines that follow (`|`, `>`).
    is_block: bool,
    /// Whether a text without quotes was open at the end of the line: it may go on in the next one.
    is_plain: bool,
}

impl<'a> Scan<'a> {
    fn read(&mut self, line: &'a str, number: usize) {
        let indent = line.len() - line.trim_start().len();
        if indent == line.len() || self.is_block && indent > self.entry {
            return;
        }
        let mut is_plain = self.is_plain && (self.depth > 0 || indent > self.entry);
        let mut begins = !is_plain;
        (self.is_block, self.is_plain) = (false, false);
        // Column of what may turn out to be a key.
        let mut key = None;
        let mut at = 0;
        while let Some(c) = line[at..].chars().next() {
            let (before, rest) = (&line[..at], &line[at + c.len_utf8()..]);
            let ends_word = rest.is_empty() || rest.starts_with(char::is_whitespace);
            at += c.len_utf8();
            if begins && !c.is_whitespace() {
                key = key.or(Some(before.len()));
                is_plain = false;
            }
            match (self.quote, c) {
                (Some('"'), '\\') => at += rest.chars().next().map_or(0, char::len_utf8),
                (Some('\''), '\'') if rest.starts_with('\'') => at += 1,
                (Some(quote), c) => self.quote = Some(quote).filter(|quote| *quote != c),
                (None, '#') if before.is_empty() || before.ends_with(char::is_whitespace) => return,
                (None, '&' | '*' | '!') if begins => {
                    let length = rest.find(|c: char| c.is_whitespace() || ",[]{}".contains(c)).unwrap_or(rest.len());
                    let place = Place { line: number, column: before.chars().count() + 1 };
                    self.found.push(Word { text: &line[before.len()..at + length], place, rest: &rest[length..] });
                    at += length;
                }
                (None, '|' | '>') if begins && self.depth == 0 => {
                    self.is_block = true;
                    return;
                }
                (None, '"' | '\'') if begins => (self.quote, begins) = (Some(c), false),
                (None, '[' | '{') if begins => self.depth += 1,
                (None, ']' | '}') if self.depth > 0 => (self.depth, begins, is_plain) = (self.depth - 1, false, false),
                (None, ',') if self.depth > 0 => begins = true,
                (None, ':') if ends_word => {
                    begins = true;
                    if self.depth == 0 {
                        self.entry = key.take().unwrap_or(self.entry);
                    }
                }
                (None, '-' | '?') if begins && ends_word => {
                    if self.depth == 0 {
                        (self.entry, key) = (before.len(), None);
                    }
                }
                (None, c) => {
                    is_plain |= begins && !c.is_whitespace();
                    begins &= c.is_whitespace();
                }
            }
        }
        self.is_plain = is_plain && !begins;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(&str, usize, usize)> {
        words(text).iter().map(|word| (word.text, word.place.line, word.place.column)).collect()
    }

    #[test]
    fn only_what_begins_a_key_or_a_value_is_an_anchor_an_alias_or_a_tag() {
        for (text, expected) in [
            ("- &a x\n- *a", vec![("&a", 1, 3), ("*a", 2, 3)]),
            ("{a: &b 1, c: [*b, !!int 5]}", vec![("&b", 1, 5), ("*b", 1, 15), ("!!int", 1, 19)]),
            ("a: !!str &b 5", vec![("!!str", 1, 4), ("&b", 1, 10)]),
            ("&a k: &b\n  ? *a", vec![("&a", 1, 1), ("&b", 1, 7), ("*a", 2, 5)]),
            ("{a: {b: 1}, c: *d}", vec![("*d", 1, 16)]),
            ("'a': \"b\"\nc: &d", vec![("&d", 2, 4)]),
            ("a: |\n  &b\n\n  &c\nd: &e", vec![("&e", 5, 4)]),
            ("- a: |\n    &b\n  c: &d\n- |\n &e\n-\n  - >-\n    &f\n  - &g", vec![("&d", 3, 6), ("&g", 9, 5)]),
            ("a: b\n  &c 'd\n\n  &e\nf: &g", vec![("&g", 5, 4)]),
            ("a:\n  b\n  &c\nd: [e\n  &f, &g]", vec![("&g", 5, 7)]),
            ("a: b # &c\n# &d\ne: f#&g", vec![]),
            ("{a: b#c, d: &e 1}", vec![("&e", 1, 13)]),
            ("a: b &c, &d - &e [ &f", vec![]),
            ("{a: b &c, 'd &e': x, f: \"g, &h\\\", &i\", j: 'it''s, &k'}", vec![]),
            ("a: 'b\n  &c\n  &d'\ne: \"f\n  &g\"", vec![]),
        ] {
            assert_eq!(found(text), expected, "{text}");
        }
    }

    #[test]
    fn what_the_parser_misreads_is_named() {
        for (text, said) in [
            (
                "a: &Co KG",
                "1:4 `&Co` marks an anchor of YAML, and no `*Co` uses it; expected a value in quotes if it begins with `&`",
            ),
            (
                "a: &Company 1\nb: &Co KG\nc: *Company",
                "2:4 `&Co` marks an anchor of YAML, and no `*Co` uses it; expected a value in quotes if it begins with `&`",
            ),
            ("a: &x 1\nb: &x 2\nc: *x", "2:4 the anchor `&x` is declared in line 1 as well; expected a name of its own"),
            (
                "a: !!timestamp 2026-01-01",
                "1:4 the tag `!!timestamp` has no effect here; expected the value without it, in a filter as Extended JSON",
            ),
            (
                "a: !<tag:yaml.org,2002:str> 5",
                "1:4 the tag `!<tag:yaml.org` has no effect here; expected the value without it, in a filter as Extended JSON",
            ),
            (
                "a: !!str [5]",
                "1:4 the tag `!!str` has no effect here; expected the value without it, in a filter as Extended JSON",
            ),
            ("a: !!str", "1:4 the tag `!!str` has no effect here; expected the value without it, in a filter as Extended JSON"),
        ] {
            let (message, place) = misread(text).unwrap();
            assert_eq!(format!("{}:{} {message}", place.line, place.column), said, "{text}");
        }
        for text in ["a: &x 1\nb: *x", "a: !!str 5", "a: !secret x", "a: !!int '5'", "a: [!!float 1, !!bool true, !!null ~]"] {
            assert_eq!(misread(text), None, "{text}");
        }
    }
}
