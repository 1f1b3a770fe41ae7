//! The place of a node in the text of a policy.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, EnumAccess, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// One step from a node to a node inside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathStep {
    /// The n-th item of a list.
    Item(usize),
    /// The key of the n-th entry of a mapping.
    Key(usize),
    /// The value of the n-th entry of a mapping.
    Value(usize),
}

/// A place in the text; line and column are counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub line: usize,
    pub column: usize,
}

/// Finds the place in `text` of the node at the end of `path`, in one pass over the text.
///
/// serde_yaml gives positions only with errors, so the walk fails on purpose once it has reached the node.
pub(super) fn locate(text: &str, path: &[PathStep]) -> Option<Place> {
    let deserializer = serde_yaml::Deserializer::from_str(text);
    place_of(&PathWalk(path).deserialize(deserializer).err()?)
}

/// Returns the place of a parser's error.
pub(super) fn place_of(error: &serde_yaml::Error) -> Option<Place> {
    error.location().map(|location| Place { line: location.line(), column: location.column() })
}

struct PathWalk<'a>(&'a [PathStep]);

const ARRIVED: &str = "arrived";

impl<'de> DeserializeSeed<'de> for PathWalk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for PathWalk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(ARRIVED)
    }

    // Scalars have no visit method here: the default methods fail, which is the sign of arrival.

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        let Some((PathStep::Item(wanted), rest)) = self.0.split_first() else {
            return Err(A::Error::custom(ARRIVED));
        };
        for _ in 0..*wanted {
            seq.next_element::<IgnoredAny>()?;
        }
        seq.next_element_seed(PathWalk(rest))?;
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let (wanted, to_key, rest) = match self.0.split_first() {
            Some((PathStep::Key(wanted), rest)) => (*wanted, true, rest),
            Some((PathStep::Value(wanted), rest)) => (*wanted, false, rest),
            _ => return Err(A::Error::custom(ARRIVED)),
        };
        for _ in 0..wanted {
            map.next_entry::<IgnoredAny, IgnoredAny>()?;
        }
        if to_key {
            map.next_key_seed(PathWalk(&[]))?;
        } else {
            map.next_key::<IgnoredAny>()?;
            map.next_value_seed(PathWalk(rest))?;
        }
        Ok(())
    }

    fn visit_enum<A: EnumAccess<'de>>(self, _: A) -> Result<(), A::Error> {
        Err(A::Error::custom(ARRIVED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_located_by_line_and_column() {
        let text = "version: 1\ncollections:\n  - name: a\n    field: x\n  - name: b\n    field: [1,\n      2]\n";
        let at = |path: &[PathStep]| locate(text, path).map(|p| (p.line, p.column));
        use PathStep::*;
        assert_eq!(at(&[Key(1)]), Some((2, 1)));
        assert_eq!(at(&[Value(1), Item(1)]), Some((5, 5)));
        assert_eq!(at(&[Value(1), Item(1), Key(1)]), Some((6, 5)));
        assert_eq!(at(&[Value(1), Item(0), Value(1)]), Some((4, 12)));
        assert_eq!(at(&[Value(1), Item(1), Value(1), Item(1)]), Some((7, 7)));
    }
}
