//! The YAML of a policy as a tree that keeps duplicate keys and the order, which a map would lose.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, EnumAccess, IgnoredAny, MapAccess, SeqAccess, VariantAccess, Visitor};

use super::place::{Place, place_of};
use super::{properties, traps};

/// One node of the document. Aliases are already followed; merge keys (`<<`) are ordinary keys.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node {
    /// `null` or `~`.
    Null,
    /// Nothing stands there: `key:`, `- `, `{key}`, or only an anchor. YAML takes that for null.
    Nothing,
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
            Node::Null => "null".into(),
            Node::Nothing => "nothing (null)".into(),
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
            Node::Tagged(tag) => format!("`{tag}`, which without quotes is a tag of YAML"),
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
    let explained = |error: serde_yaml::Error| traps::explain(text, &error.to_string(), place_of(&error));
    let read = serde_yaml::from_str(text).map_err(explained)?;
    if let Some((message, place)) = properties::misread(text) {
        return Err((message, Some(place)));
    }
    match read {
        // A text without any node.
        Node::Null => Ok(Node::Nothing),
        read => Empty(read).deserialize(serde_yaml::Deserializer::from_str(text)).map_err(explained),
    }
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
        Ok(Node::Tagged(format!("!{}", tag.trim_start_matches('!'))))
    }
}

/// A tree as the parser gives it, which is walked again to tell a null that is written from a place where nothing stands.
struct Empty(Node);

impl<'de> DeserializeSeed<'de> for Empty {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        match self.0 {
            // Any scalar may be read as the text that it is.
            Node::Null => String::deserialize(deserializer).map(|text| if text.is_empty() { Node::Nothing } else { Node::Null }),
            node @ (Node::Seq(_) | Node::Map(_)) => deserializer.deserialize_any(Empty(node)),
            node => IgnoredAny::deserialize(deserializer).map(|_| node),
        }
    }
}

impl<'de> Visitor<'de> for Empty {
    type Value = Node;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("the same value as before")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
        let Node::Seq(mut items) = self.0 else { return Ok(self.0) };
        for item in &mut items {
            let node = std::mem::replace(item, Node::Null);
            *item = seq.next_element_seed(Empty(node))?.unwrap_or(Node::Nothing);
        }
        // The end of the list is read as well.
        seq.next_element::<IgnoredAny>()?;
        Ok(Node::Seq(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let Node::Map(mut entries) = self.0 else { return Ok(self.0) };
        for (_, value) in &mut entries {
            map.next_key::<IgnoredAny>()?;
            *value = map.next_value_seed(Empty(std::mem::replace(value, Node::Null)))?;
        }
        map.next_key::<IgnoredAny>()?;
        Ok(Node::Map(entries))
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
            ("null", Node::Null),
            ("!!null ~", Node::Null),
            ("", Node::Nothing),
            ("''", Node::Str(String::new())),
            ("18446744073709551615", Node::BigInt("18446744073709551615".into())),
            ("!!str 5", Node::Str("5".into())),
            ("!secret x", Node::Tagged("!secret".into())),
            ("! x", Node::Tagged("!".into())),
        ] {
            assert_eq!(value(text), expected, "{text}");
        }
        assert!(matches!(value(".nan"), Node::Float(n) if n.is_nan()));
    }

    #[test]
    fn a_null_that_is_written_is_told_from_nothing() {
        let null = || Node::Null;
        for (text, expected) in [
            ("[~, null, '', 5, ]", vec![null(), null(), Node::Str(String::new()), Node::Int(5)]),
            ("\n  -\n  - ~\n  - # x\n", vec![Node::Nothing, null(), Node::Nothing]),
            ("[&a null, *a, [~]]", vec![null(), null(), Node::Seq(vec![null()])]),
            ("[{x: &a }, *a]", vec![Node::Map(vec![(Node::Str("x".into()), Node::Nothing)]), Node::Nothing]),
            (
                "[{x}, {y: !t ~}, {~: ~}]",
                vec![
                    Node::Map(vec![(Node::Str("x".into()), Node::Nothing)]),
                    Node::Map(vec![(Node::Str("y".into()), Node::Tagged("!t".into()))]),
                    Node::Map(vec![(null(), null())]),
                ],
            ),
        ] {
            assert_eq!(value(text), Node::Seq(expected), "{text}");
        }
        for text in ["", "# x\n", "---\n"] {
            assert_eq!(parse(text), Ok(Node::Nothing), "{text:?}");
        }
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
        assert!(message.contains("repeat too much"), "{message}");
    }
}
