//! Lists of undecoded values.

use bson::raw::{CStr, RawDocument};
use bson::spec::ElementType;

use super::{Fields, RawRef, elements};

/// A list of values as BSON has it. A value is copied when it is added, and once more where the list is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RawList {
    bytes: Vec<u8>,
    count: usize,
}

impl Default for RawList {
    fn default() -> Self {
        // The length, and the NUL at the end.
        Self { bytes: vec![5, 0, 0, 0, 0], count: 0 }
    }
}

impl RawList {
    pub(crate) fn push<'a>(&mut self, value: impl Into<RawRef<'a>>) {
        let mut list = Fields { bytes: std::mem::take(&mut self.bytes) };
        list.bytes.pop();
        list.item(self.count, value.into());
        list.end_level(0);
        (self.bytes, self.count) = (list.bytes, self.count + 1);
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns the bytes of the list, as BSON has them.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = RawRef<'_>> {
        RawDocument::from_bytes(&self.bytes).into_iter().flat_map(elements).map(|(_, value)| value)
    }

    /// Returns two lists of the same values; `None` if there are fewer than two.
    pub(crate) fn halves(&self) -> Option<(Self, Self)> {
        let half = self.count / 2;
        (half > 0).then(|| (self.iter().take(half).collect(), self.iter().skip(half).collect()))
    }
}

impl<'a, V: Into<RawRef<'a>>> FromIterator<V> for RawList {
    fn from_iter<I: IntoIterator<Item = V>>(values: I) -> Self {
        let mut list = Self::default();
        values.into_iter().for_each(|value| list.push(value));
        list
    }
}

impl Fields {
    pub(crate) fn list(&mut self, name: &CStr, list: &RawList) {
        self.value(name, RawRef { kind: ElementType::Array, bytes: &list.bytes });
    }
}

#[cfg(test)]
mod tests {
    use super::super::{RawValue, written};
    use super::*;

    #[test]
    fn a_list_is_the_same_value_by_value_as_at_once_and_in_halves() {
        let values: Vec<RawValue> = (0..12).map(|n| RawValue::of("x".repeat(n)).unwrap()).collect();
        for count in [0, 1, 2, 5, 12] {
            let list: RawList = values[..count].iter().collect();
            let at_once = RawValue::list(&values[..count]).unwrap();
            assert_eq!((list.as_bytes(), list.len(), list.is_empty()), (at_once.as_bytes(), count, count == 0));
            assert!(list.iter().map(RawValue::from).eq(values[..count].iter().cloned()));
            let written = written(0, |fields| fields.list(bson::raw::cstr!("l"), &list)).unwrap();
            assert_eq!(RawValue::at(&written, "l"), Some(at_once));
            match list.halves() {
                Some((first, second)) => assert!(
                    (first.len(), second.len()) == (count / 2, count - count / 2)
                        && first == values[..count / 2].iter().collect()
                        && second == values[count / 2..count].iter().collect()
                ),
                None => assert!(count < 2),
            }
        }
    }
}
