//! Anchors, tags, quotes, blanks and comments that would silently be read as something else than what stands there.
//!
//! The parser says nothing of them. It drops the tags of YAML itself, so that `!!timestamp 2026-01-01` is a string. It follows
//! the alias of an anchor that is declared twice to the value of another anchor. A value that begins with `&` without quotes,
//! such as `&Co KG`, loses its first word. Quotes of a text editor, blanks that are no spaces, and the comma of another notation
//! become a part of the value. So they are looked for in the text, which the parser has found valid.

use super::place::Place;

/// The tags of YAML itself that the parser obeys; the value of each is a scalar.
const OBEYED: [&str; 5] = ["!!str", "!!int", "!!float", "!!bool", "!!null"];

/// Quotes that begin a quotation in print, and are none of YAML.
const QUOTES: &str = "\u{201c}\u{201d}\u{201e}\u{2018}\u{201a}\u{ab}\u{bb}\u{2039}";

/// Dashes and minus signs that begin no item of a list.
const DASHES: &str = "\u{2010}\u{2011}\u{2012}\u{2013}\u{2014}\u{2212}";

/// Returns what is wrong with a character that looks like a part of YAML, and where: the last one on these lines. The text need
/// not be valid.
pub(super) fn lookalike_on(text: &str, lines: &[usize]) -> Option<(String, Place)> {
    let words = words(text);
    words.iter().rev().filter(|word| lines.contains(&word.place.line)).find_map(|word| Some((word.lookalike()?, word.place)))
}

/// Returns what is wrong with the first word that is misread, and where.
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
            None => word.lookalike()?,
        };
        Some((message, word.place))
    })
}

/// An anchor, an alias, a tag, or a character that is none of YAML's but looks like one.
#[derive(Clone, Copy)]
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

    /// Returns what is wrong with a character that looks like a part of YAML. The value around it is not shown.
    fn lookalike(&self) -> Option<String> {
        let c = self.text.chars().next()?;
        Some(match c {
            '#' => "`#` behind a space begins a comment, so that no value is left; expected quotes around the value".to_owned(),
            ',' | ';' => format!("the `{c}` at the end is a part of the value; expected none, or quotes around the value"),
            c if QUOTES.contains(c) => format!("`{c}` is no quote of YAML, and a part of the value; expected `\"` or `'`"),
            c if DASHES.contains(c) => format!("`{c}` is no dash of YAML; expected `-`"),
            c if is_odd_blank(c) => {
                let code = u32::from(c);
                format!(
                    "an invisible character (U+{code:04X}) is no space of YAML, and a part of what stands there; expected a space"
                )
            }
            _ => return None,
        })
    }
}

/// Returns the anchors, aliases and tags of a valid text.
fn words(text: &str) -> Vec<Word<'_>> {
    let mut scan = Scan::default();
    for (index, line) in text.lines().enumerate() {
        scan.read(line, index + 1);
    }
    scan.found.extend(scan.pending);
    scan.found
}

/// Whether a character is seen as a space, or not at all, and is a letter for YAML.
fn is_odd_blank(c: char) -> bool {
    let is_break = matches!(c, '\u{85}' | '\u{2028}' | '\u{2029}');
    let is_invisible = matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}' | '\u{feff}');
    (c.is_whitespace() && !c.is_ascii_whitespace() && !is_break) || is_invisible
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
    /// A comment or a comma at the end of a value, which is one unless the value goes on in the next line.
    pending: Option<Word<'a>>,
}

impl<'a> Scan<'a> {
    fn read(&mut self, line: &'a str, number: usize) {
        let indent = line.len() - line.trim_start_matches([' ', '\t']).len();
        if indent == line.len() || self.is_block && indent > self.entry {
            return;
        }
        if !line[indent..].starts_with('#') {
            let goes_on = match self.depth {
                0 => indent > self.entry || (indent == self.entry && line[indent..].starts_with("- ") && !self.is_plain),
                _ => !line[indent..].starts_with([',', '}', ']']),
            };
            self.found.extend(self.pending.take().filter(|_| !goes_on));
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
            let word = |length: usize| {
                let place = Place { line: number, column: before.chars().count() + 1 };
                Word { text: &line[before.len()..at + length], place, rest: &rest[length..] }
            };
            match (self.quote, c) {
                (Some('"'), '\\') => at += rest.chars().next().map_or(0, char::len_utf8),
                (Some('\''), '\'') if rest.starts_with('\'') => at += 1,
                (Some(quote), c) => self.quote = Some(quote).filter(|quote| *quote != c),
                (None, '#') if before.is_empty() || before.ends_with(char::is_whitespace) => {
                    if begins && !ends_word && before.trim_end().ends_with(':') {
                        let comment = word(0);
                        match self.depth > 0 && rest.contains(['}', ']']) {
                            true => self.found.push(comment),
                            false => self.pending = Some(comment),
                        }
                    }
                    return;
                }
                (None, '&' | '*' | '!') if begins => {
                    let length = rest.find(|c: char| c.is_whitespace() || ",[]{}".contains(c)).unwrap_or(rest.len());
                    self.found.push(word(length));
                    at += length;
                }
                (None, c) if is_odd_blank(c) && (begins || ends_text(rest, self.depth)) => self.found.push(word(0)),
                (None, c) if begins && QUOTES.contains(c) => {
                    self.found.push(word(0));
                    (begins, is_plain) = (false, true);
                }
                (None, c) if ends_word && before.trim().is_empty() && DASHES.contains(c) => self.found.push(word(0)),
                (None, ',' | ';') if !begins && is_plain && self.depth == 0 && ends_text(rest, 0) => {
                    self.pending = Some(word(0));
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

/// Whether a text without quotes ends here.
fn ends_text(rest: &str, depth: usize) -> bool {
    let next = rest.trim_start_matches(|c: char| c.is_whitespace() || is_odd_blank(c));
    let is_blank = next.len() < rest.len();
    let is_key = next.strip_prefix(':').is_some_and(|behind| behind.is_empty() || behind.starts_with([' ', '\t']));
    next.is_empty() || is_key || (is_blank && next.starts_with('#')) || (depth > 0 && next.starts_with([',', '}', ']']))
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
            ("a: #b\nc: #d\n  e: 1\nf: #g\n- h\ni: # j", vec![("#", 1, 4)]),
            ("{a: #b}\n{c: 1, #d\ne: #f\n5, g: #h\n}", vec![("#", 1, 5), ("#", 4, 7)]),
            ("- #a\n- b: 1 #c\n#d", vec![]),
            ("a: b,\nc: d;\n  e\nf: g, # h\ni: 'j',", vec![(",", 1, 5), (",", 4, 5)]),
            ("{a: b,\nc: d;\n}", vec![]),
            ("a: “b”\n“c”: d “e”\nf: 'it’s' # “g”", vec![("“", 1, 4), ("“", 2, 1)]),
            ("a: «b», {“c” [„d“]}", vec![("«", 1, 4)]),
            ("{“c”: [„d“, 'x “y”']}", vec![("“", 1, 2), ("„", 1, 8)]),
            (
                "a:\u{a0}b\nc: d\u{a0}\n\u{200b}e: f\u{a0}g\nh\u{a0}: 'i\u{a0}'",
                vec![("\u{a0}", 1, 3), ("\u{a0}", 2, 5), ("\u{200b}", 3, 1), ("\u{a0}", 4, 2)],
            ),
            ("– a\n- — b\nc: – d–e\nf: [– g]", vec![("–", 1, 1)]),
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
            (
                "a: {b: #c }\n}",
                "1:8 `#` behind a space begins a comment, so that no value is left; expected quotes around the value",
            ),
            ("a: b,", "1:5 the `,` at the end is a part of the value; expected none, or quotes around the value"),
            ("a: “b”", "1:4 `“` is no quote of YAML, and a part of the value; expected `\"` or `'`"),
            ("– a", "1:1 `–` is no dash of YAML; expected `-`"),
            (
                "a: b\u{a0}",
                "1:5 an invisible character (U+00A0) is no space of YAML, and a part of what stands there; expected a space",
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
