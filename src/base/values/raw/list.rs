//! Lists of undecoded values.

use bson::raw::{CStr, RawDocument};
use bson::spec::ElementType;

use super::{Fields, RawRef, RawValue, elements};

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

impl RawValue {
    /// Creates a list whose items are written by a function, and returns it with the function's result; `capacity` is its likely
    /// size in bytes.
    pub(crate) fn written_list<T>(capacity: usize, write: impl FnOnce(&mut ListItems) -> T) -> (Self, T) {
        let mut fields = Fields { bytes: Vec::with_capacity(capacity) };
        let result = fields.list_level(write);
        (Self { kind: ElementType::Array, bytes: fields.bytes }, result)
    }
}

/// The items of a list that is being written, as [`Fields`] are those of a document.
pub(crate) struct ListItems<'a> {
    fields: &'a mut Fields,
    count: usize,
}

impl ListItems<'_> {
    pub(crate) fn value<'v>(&mut self, value: impl Into<RawRef<'v>>) {
        let n = self.next();
        self.fields.item(n, value.into());
    }

    pub(crate) fn text(&mut self, text: &str) {
        let n = self.next();
        self.fields.place(ElementType::String, n);
        self.fields.text_after_name(text);
    }

    /// Writes a document whose fields are written by a function.
    pub(crate) fn document(&mut self, write: impl FnOnce(&mut Fields)) {
        let n = self.next();
        self.fields.place(ElementType::EmbeddedDocument, n);
        self.fields.level(write);
    }

    /// Writes a list whose items are written by a function, and returns the function's result.
    pub(crate) fn items<T>(&mut self, write: impl FnOnce(&mut ListItems) -> T) -> T {
        let n = self.next();
        self.fields.place(ElementType::Array, n);
        self.fields.list_level(write)
    }

    fn next(&mut self) -> usize {
        self.count += 1;
        self.count - 1
    }
}

impl Fields {
    pub(crate) fn list(&mut self, name: &CStr, list: &RawList) {
        self.value(name, RawRef { kind: ElementType::Array, bytes: &list.bytes });
    }

    /// Writes a list whose items are written by a function.
    pub(crate) fn items(&mut self, name: &CStr, write: impl FnOnce(&mut ListItems)) {
        self.name(ElementType::Array, name);
        self.list_level(write);
    }

    fn list_level<T>(&mut self, write: impl FnOnce(&mut ListItems) -> T) -> T {
        self.level(|fields| write(&mut ListItems { fields, count: 0 }))
    }
}

#[cfg(test)]
mod tests {
    use bson::raw::cstr;
    use bson::{Bson, RawDocumentBuf, doc};

    use super::super::written;
    use super::*;

    #[test]
    fn a_list_is_the_same_value_by_value_as_at_once_and_in_halves() {
        let values: Vec<RawValue> = (0..12).map(|n| RawValue::of("x".repeat(n)).unwrap()).collect();
        for count in [0, 1, 2, 5, 12] {
            let list: RawList = values[..count].iter().collect();
            let at_once = RawValue::list(&values[..count]).unwrap();
            assert_eq!((list.as_bytes(), list.len(), list.is_empty()), (at_once.as_bytes(), count, count == 0));
            assert!(list.iter().map(RawValue::from).eq(values[..count].iter().cloned()));
            let written = written(0, |fields| fields.list(cstr!("l"), &list)).unwrap();
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

    #[test]
    fn a_list_is_written_item_by_item_with_all_that_lies_below() {
        let inner = RawDocumentBuf::try_from(&doc! { "a": [1, "x"] }).unwrap();
        let written = written(0, |fields| {
            fields.items(cstr!("l"), |list| {
                list.text("t\u{e4}");
                list.document(|document| document.items(cstr!("below"), |below| (1..=11).for_each(|_| below.text(""))));
                list.value(&*inner);
                list.value(inner.get_array("a").unwrap());
                list.document(|_| {});
                assert_eq!(list.items(|inner| [inner.text("in"), inner.items(|_| ())].len()), 2);
            });
            fields.items(cstr!("none"), |_| {});
        });
        let below = vec![Bson::from(""); 11];
        let expected = doc! { "l": ["t\u{e4}", { "below": below }, { "a": [1, "x"] }, [1, "x"], {}, ["in", []]], "none": [] };
        assert_eq!(written.unwrap(), RawDocumentBuf::try_from(&expected).unwrap());
        assert_eq!(RawValue::written_list(0, |list| list.text("in")).0, RawValue::of(Bson::from(["in"])).unwrap());
    }
}
