//! The YAML of a policy as a tree that keeps duplicate keys and the order, which a map would lose.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, EnumAccess, IgnoredAny, MapAccess, SeqAccess, VariantAccess, Visitor};

use super::place::{Place, place_of};
use super::traps;

/// One node of the document. Aliases are already followed; merge keys (`<<`) are ordinary keys.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    Null,
    Bool(bool),
    /// Any whole number that fits `i64`, however it was written: `16`, `0x10`, `0o20`.
    Int(i64),
    /// A whole number beyond `i64`, in decimal digits.
    BigInt(String),
    /// A number with a fraction or an exponent, `.inf` and `.nan`.
    Float(f64),
    Str(String),
    Seq(Vec<Node>),
    /// Entries in the order of the text, duplicates included.
    Map(Vec<(Node, Node)>),
    /// A value with an application tag such as `!secret`; holds the tag.
    Tagged(String),
}

impl Node {
    /// Describes the node for "found ..." in a message: its kind, and its value if that is short.
    pub(super) fn describe(&self) -> String {
        match self {
            Node::Null => "nothing (null)".into(),
            Node::Bool(b) => format!("the boolean {b}"),
            Node::Int(n) => format!("the number {n}"),
            Node::BigInt(n) => format!("the number {n}"),
            Node::Float(n) if n.is_nan() => "the number .nan".into(),
            Node::Float(n) => format!("the number {n:?}"),
            Node::Str(s) if s.is_empty() => "an empty string".into(),
            // It may be a connection string with its password.
            Node::Str(s) if s.contains("://") => "a string".into(),
            Node::Str(s) if s.chars().count() <= 60 => format!("the string {s:?}"),
            Node::Str(_) => "a long string".into(),
            Node::Seq(_) => "a list".into(),
            Node::Map(_) => "a mapping".into(),
            Node::Tagged(tag) => format!("a value tagged `{tag}`"),
        }
    }
}

/// Parses one YAML document.
///
/// Errors: what is wrong, and where if that is known.
pub(super) fn parse(text: &str) -> Result<Node, (String, Option<Place>)> {
    if is_too_deep(text) {
        return Err((format!("nested more than {MAX_OPEN} levels deep"), None));
    }
    serde_yaml::from_str(text).map_err(|error| traps::explain(text, &error.to_string(), place_of(&error)))
}

/// Maximum number of brackets that may be open at once: the parser's time grows with its square.
const MAX_OPEN: i32 = 1000;

/// Whether more than [`MAX_OPEN`] brackets are open at once, those in quotes and comments included: no honest policy comes near.
fn is_too_deep(text: &str) -> bool {
    let mut open = 0;
    text.bytes().any(|byte| {
        open += match byte {
            b'[' | b'{' => 1,
            b']' | b'}' => -1,
            _ => 0,
        };
        open > MAX_OPEN
    })
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor)
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("any YAML value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    // Called for a document without any node.
    fn visit_none<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Int(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
        Ok(i64::try_from(value).map_or_else(|_| Node::BigInt(value.to_string()), Node::Int))
    }

    fn visit_i128<E>(self, value: i128) -> Result<Node, E> {
        Ok(Node::BigInt(value.to_string()))
    }

    fn visit_u128<E>(self, value: u128) -> Result<Node, E> {
        Ok(Node::BigInt(value.to_string()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
        Ok(Node::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Str(value.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(Node::Seq(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Node::Map(entries))
    }

    fn visit_enum<A: EnumAccess<'de>>(self, data: A) -> Result<Node, A::Error> {
        let (tag, content) = data.variant::<String>()?;
        content.newtype_variant::<IgnoredAny>()?;
        Ok(Node::Tagged(format!("!{tag}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Node {
        let Ok(Node::Map(entries)) = parse(&format!("k: {text}")) else {
            panic!("{text} did not parse to a mapping");
        };
        entries.into_iter().next().unwrap().1
    }

    #[test]
    fn scalars_have_their_yaml_1_2_meaning() {
        for (text, expected) in [
            ("3600", Node::Int(3600)),
            ("0x10", Node::Int(16)),
            ("0o20", Node::Int(16)),
            ("-1", Node::Int(-1)),
            ("0600", Node::Str("0600".into())),
            ("1_000", Node::Str("1_000".into())),
            ("1e3", Node::Float(1000.0)),
            ("1.0", Node::Float(1.0)),
            ("yes", Node::Str("yes".into())),
            ("~", Node::Null),
            ("", Node::Null),
            ("18446744073709551615", Node::BigInt("18446744073709551615".into())),
            ("!!str 5", Node::Str("5".into())),
            ("!secret x", Node::Tagged("!secret".into())),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
        assert!(matches!(value(".nan"), Node::Float(n) if n.is_nan()));
    }

    #[test]
    fn duplicate_keys_are_kept() {
        let Node::Map(entries) = parse("a: 1\na: 2\n").unwrap() else {
            panic!("not a mapping");
        };
        assert_eq!(entries.len(), 2);
    }

    #[test]
    fn text_that_is_no_single_document_is_an_error_with_a_place() {
        for text in ["version:\n\tb: 2\n", "version: 1\n\tb: 2\n", "version:\n -\tb: 2\n"] {
            let (message, place) = parse(text).unwrap_err();
            assert!(message.contains("found a tab character"), "{text:?}: {message}");
            assert_eq!(place.unwrap().line, 2, "{text:?}");
        }
        let (message, _) = parse(&"[".repeat(100_000)).unwrap_err();
        assert!(!message.is_empty());
        let bomb = "version: 1\na: &a [x,x,x,x,x,x,x,x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c,*c]\ne: &e [*d,*d,*d,*d,*d,*d,*d,*d,*d]\nf: &f [*e,*e,*e,*e,*e,*e,*e,*e,*e]\ng: [*f,*f,*f,*f,*f,*f,*f,*f,*f]\n";
        let (message, _) = parse(bomb).unwrap_err();
        assert!(message.contains("repetition limit"), "{message}");
    }
}
