//! Values as the bytes that a server sent. They are sent back as they are, and need not be valid: a mongod stores strings of any
//! bytes.

mod list;

use std::hash::{Hash, Hasher};
use std::io::Write;

use bson::raw::{CStr, RawArray, RawDocument, RawDocumentBuf};
use bson::spec::ElementType;
use bson::{Bson, Document, doc};

pub(crate) use list::{ListItems, RawList};

/// A value that is not decoded. Two are equal if their types and bytes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RawValue {
    kind: ElementType,
    bytes: Vec<u8>,
}

impl Hash for RawValue {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.kind as u8).hash(state);
        self.bytes.hash(state);
    }
}

impl RawValue {
    pub(crate) const NULL: Self = Self { kind: ElementType::Null, bytes: Vec::new() };

    /// Creates the undecoded form of a value.
    ///
    /// Errors: BSON cannot hold the value, such as a document with a NUL in a key.
    pub(crate) fn of(value: impl Into<Bson>) -> Result<Self, bson::error::Error> {
        let document = RawDocumentBuf::try_from(&doc! { "": value.into() })?;
        Ok(Self::at(&document, "").unwrap_or(Self::NULL))
    }

    /// Creates a list of values.
    pub(crate) fn list(values: &[Self]) -> Result<Self, bson::error::Error> {
        let capacity = values.iter().map(|value| value.bytes.len() + AROUND_ITEM).sum::<usize>() + AROUND_FIELDS;
        let list = written(capacity, |list| values.iter().enumerate().for_each(|(n, value)| list.item(n, value.into())))?;
        let mut bytes = list.into_bytes();
        bytes.shrink_to_fit();
        Ok(Self { kind: ElementType::Array, bytes })
    }

    /// Returns the values of a list; none for any other value.
    pub(crate) fn items(&self) -> Vec<Self> {
        let list = (self.kind == ElementType::Array).then(|| RawDocument::from_bytes(&self.bytes).ok()).flatten();
        let items = list.map(|list| elements(list).map(|(_, value)| value.into()).collect());
        items.unwrap_or_default()
    }

    /// Finds the value at a dotted path that leads only through documents; `None` if there is none.
    pub(crate) fn at(document: &RawDocument, path: &str) -> Option<Self> {
        RawRef::at(document, path).map(Self::from)
    }

    /// Finds and decodes the value at a dotted path that leads only through documents; `None` if there is no valid one.
    pub(crate) fn decoded_at(document: &RawDocument, path: &str) -> Option<Bson> {
        Self::at(document, path)?.decoded()
    }

    /// Returns the value decoded; `None` if it is not valid.
    pub(crate) fn decoded(&self) -> Option<Bson> {
        let document = document([("", self)]).ok()?;
        Document::try_from(&*document).ok()?.remove("")
    }

    pub(crate) fn kind(&self) -> ElementType {
        self.kind
    }

    /// Returns the bytes of the value, as BSON has them.
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// A value of a document or a list, where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RawRef<'a> {
    kind: ElementType,
    bytes: &'a [u8],
}

impl<'a> RawRef<'a> {
    pub(crate) const NULL: Self = Self { kind: ElementType::Null, bytes: &[] };

    /// Finds the value at a dotted path that leads only through documents; `None` if there is none.
    pub(crate) fn at(document: &'a RawDocument, path: &str) -> Option<Self> {
        let found = |name: &str| elements(document).find(|(key, _)| *key == name).map(|(_, value)| value);
        match path.split_once('.') {
            None => found(path),
            Some((name, rest)) => {
                let Self { kind, bytes } = found(name)?;
                let inner = (kind == ElementType::EmbeddedDocument).then(|| RawDocument::from_bytes(bytes).ok()).flatten()?;
                Self::at(inner, rest)
            }
        }
    }

    pub(crate) fn kind(self) -> ElementType {
        self.kind
    }

    /// Returns the bytes of the value, as BSON has them.
    pub(crate) fn as_bytes(self) -> &'a [u8] {
        self.bytes
    }
}

impl<'a> From<&'a RawValue> for RawRef<'a> {
    fn from(value: &'a RawValue) -> Self {
        Self { kind: value.kind, bytes: &value.bytes }
    }
}

impl<'a> From<&'a RawDocument> for RawRef<'a> {
    fn from(document: &'a RawDocument) -> Self {
        Self { kind: ElementType::EmbeddedDocument, bytes: document.as_bytes() }
    }
}

impl<'a> From<&'a RawArray> for RawRef<'a> {
    fn from(list: &'a RawArray) -> Self {
        Self { kind: ElementType::Array, bytes: list.as_bytes() }
    }
}

impl From<RawRef<'_>> for RawValue {
    fn from(value: RawRef<'_>) -> Self {
        Self { kind: value.kind, bytes: value.bytes.to_vec() }
    }
}

impl From<RawDocumentBuf> for RawValue {
    fn from(document: RawDocumentBuf) -> Self {
        Self { kind: ElementType::EmbeddedDocument, bytes: document.into_bytes() }
    }
}

/// Bytes of an item of a list besides its value: the type, the number of its place and a NUL. More than 100,000 items have longer
/// numbers.
const AROUND_ITEM: usize = 8;

/// Bytes of a document besides its fields: the length, and the NUL at the end.
const AROUND_FIELDS: usize = 5;

/// The fields of a document that is being written. Each level is written in place, so that a long value is copied once, however
/// deep it lies.
pub(crate) struct Fields {
    bytes: Vec<u8>,
}

/// Creates a document whose fields are written by a function; `capacity` is its likely size in bytes.
///
/// Errors: the document is too long.
pub(crate) fn written(capacity: usize, write: impl FnOnce(&mut Fields)) -> Result<RawDocumentBuf, bson::error::Error> {
    let mut fields = Fields { bytes: Vec::with_capacity(capacity) };
    fields.level(write);
    RawDocumentBuf::from_bytes(fields.bytes)
}

impl Fields {
    /// Writes all fields of a document.
    pub(crate) fn all_of(&mut self, document: &RawDocument) {
        self.bytes.extend_from_slice(body(document));
    }

    pub(crate) fn value<'a>(&mut self, name: &CStr, value: impl Into<RawRef<'a>>) {
        let RawRef { kind, bytes } = value.into();
        self.name(kind, name);
        self.bytes.extend_from_slice(bytes);
    }

    pub(crate) fn text(&mut self, name: &CStr, text: &str) {
        self.name(ElementType::String, name);
        self.text_after_name(text);
    }

    pub(crate) fn number(&mut self, name: &CStr, number: i32) {
        self.name(ElementType::Int32, name);
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    /// Writes a document whose fields are written by a function.
    pub(crate) fn document(&mut self, name: &CStr, write: impl FnOnce(&mut Self)) {
        self.name(ElementType::EmbeddedDocument, name);
        self.level(write);
    }

    /// Writes a list of as many documents; the fields of each are written by a function, which gets its place.
    pub(crate) fn documents(&mut self, name: &CStr, count: usize, mut write: impl FnMut(&mut Self, usize)) {
        self.items(name, |list| (0..count).for_each(|n| list.document(|item| write(item, n))));
    }

    fn item(&mut self, n: usize, value: RawRef<'_>) {
        self.place(value.kind, n);
        self.bytes.extend_from_slice(value.bytes);
    }

    /// Writes what stands before a value.
    fn name(&mut self, kind: ElementType, name: &CStr) {
        self.bytes.push(kind as u8);
        self.bytes.extend_from_slice(name.as_str().as_bytes());
        self.bytes.push(0);
    }

    /// Writes what stands before an item of a list.
    fn place(&mut self, kind: ElementType, n: usize) {
        self.bytes.push(kind as u8);
        // Writing to memory does not fail.
        let _ = write!(self.bytes, "{n}\0");
    }

    fn text_after_name(&mut self, text: &str) {
        // A length that is too long makes the whole document too long.
        let length = i32::try_from(text.len() + 1).unwrap_or(0);
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(text.as_bytes());
        self.bytes.push(0);
    }

    fn level<T>(&mut self, write: impl FnOnce(&mut Self) -> T) -> T {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        let result = write(self);
        self.end_level(begin);
        result
    }

    /// Ends a document or a list that begins at a place.
    fn end_level(&mut self, begin: usize) {
        self.bytes.push(0);
        // A length that is too long becomes one that is refused, as does the length of the whole document.
        let length = i32::try_from(self.bytes.len() - begin).unwrap_or(0);
        self.bytes[begin..begin + 4].copy_from_slice(&length.to_le_bytes());
    }
}

/// Creates a document from values with their names.
///
/// Errors: a name has a NUL, or the document is too long.
pub(crate) fn document<'a>(
    fields: impl IntoIterator<Item = (&'a str, &'a RawValue)>,
) -> Result<RawDocumentBuf, bson::error::Error> {
    let named = |(name, value): (&str, &'a RawValue)| Ok((bson::raw::CString::try_from(name.to_owned())?, value));
    let fields = fields.into_iter().map(named).collect::<Result<Vec<_>, bson::error::Error>>()?;
    let capacity = fields.iter().map(|(name, value)| name.as_str().len() + 2 + value.bytes.len()).sum::<usize>() + AROUND_FIELDS;
    written(capacity, |document| fields.iter().for_each(|(name, value)| document.value(name, *value)))
}

/// Returns a document decoded to be shown: bytes that are not valid UTF-8 are replaced, and so is what cannot be decoded at all.
/// Nothing can be found by such a value.
pub(crate) fn shown(document: &RawDocument) -> Document {
    let mut end = 4;
    let mut all = Document::new();
    for (name, value) in elements(document) {
        end += 1 + name.len() + 1 + value.bytes.len();
        all.insert(name, shown_value(value));
    }
    if end + 1 < document.as_bytes().len() {
        all.insert(char::REPLACEMENT_CHARACTER, Bson::Null);
    }
    all
}

fn shown_value(value: RawRef<'_>) -> Bson {
    let RawRef { kind, bytes } = value;
    let text = || String::from_utf8_lossy(bytes.get(4..bytes.len().saturating_sub(1)).unwrap_or_default()).into_owned();
    match (kind, RawDocument::from_bytes(bytes)) {
        (ElementType::EmbeddedDocument, Ok(inner)) => Bson::Document(shown(inner)),
        (ElementType::Array, Ok(inner)) => Bson::Array(shown(inner).into_iter().map(|(_, value)| value).collect()),
        (ElementType::String | ElementType::Symbol | ElementType::JavaScriptCode, _) => match kind {
            ElementType::String => Bson::String(text()),
            ElementType::Symbol => Bson::Symbol(text()),
            _ => Bson::JavaScriptCode(text()),
        },
        _ => RawValue::from(value).decoded().unwrap_or_else(|| char::REPLACEMENT_CHARACTER.to_string().into()),
    }
}

/// Returns the names of the fields of a document; `None` if one of them is not valid.
pub(crate) fn names(document: &RawDocument) -> Option<Vec<&str>> {
    each_name(document).collect()
}

/// Tells whether the fields of a document have these names in this order.
pub(crate) fn has_names(document: &RawDocument, names: &[&str]) -> bool {
    each_name(document).eq(names.iter().map(|name| Some(*name)))
}

/// Returns the name of each field; `None` for one that is not valid.
fn each_name(document: &RawDocument) -> impl Iterator<Item = Option<&str>> {
    document.iter_elements().map(|element| Some(element.ok()?.key().as_str()))
}

/// Creates a document with the fields of several.
pub(crate) fn joined(documents: &[&RawDocument]) -> Result<RawDocumentBuf, bson::error::Error> {
    let capacity = documents.iter().map(|document| body(document).len()).sum::<usize>() + AROUND_FIELDS;
    written(capacity, |all| documents.iter().for_each(|document| all.all_of(document)))
}

/// Returns the bytes of the fields of a document.
fn body(document: &RawDocument) -> &[u8] {
    &document.as_bytes()[4..document.as_bytes().len() - 1]
}

/// Returns each value of a document with its name, up to the first that has no end.
fn elements(document: &RawDocument) -> impl Iterator<Item = (&str, RawRef<'_>)> {
    let mut end = 4;
    document.iter_elements().map_while(move |element| {
        let element = element.ok()?;
        let name = element.key().as_str();
        // The type, the name and a NUL stand before the value.
        let begin = end + 1 + name.len() + 1;
        end = begin + element.size();
        Some((name, RawRef { kind: element.element_type(), bytes: document.as_bytes().get(begin..end)? }))
    })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Returns a string that is not valid UTF-8.
    pub(crate) fn invalid() -> RawValue {
        RawValue { kind: ElementType::String, bytes: b"\x03\0\0\0a\xff\0".to_vec() }
    }

    #[test]
    fn values_of_every_type_are_found_and_put_together_as_they_are() {
        let oid = bson::oid::ObjectId::from_bytes([7; 12]);
        let inner = doc! { "x": 1.5, "list": [1, "two", { "n": Bson::Null }], "d": { "e": bson::DateTime::from_millis(5) } };
        let given = doc! {
            "a": 1, "b": "text", "": true, "c": inner, "o": oid, "l": 5_i64, "min": Bson::MinKey, "max": Bson::MaxKey,
            "re": Bson::RegularExpression(bson::Regex { pattern: bson::raw::cstr!("p+").into(), options: bson::raw::cstr!("i").into() }),
            "bin": Bson::Binary(bson::Binary { subtype: bson::spec::BinarySubtype::Uuid, bytes: vec![1; 16] }),
            "code": Bson::JavaScriptCode("x".into()), "u": Bson::Undefined,
        };
        let raw = RawDocumentBuf::try_from(&given).unwrap();
        let names: Vec<&str> = given.keys().map(String::as_str).collect();
        let values: Vec<RawValue> = names.iter().map(|name| RawValue::at(&raw, name).unwrap()).collect();
        assert!(super::names(&raw).as_ref() == Some(&names) && has_names(&raw, &names));
        assert!(!has_names(&raw, &names[1..]) && !has_names(&raw, &[names.as_slice(), &["z"]].concat()));
        for (name, value) in names.iter().zip(&values) {
            assert_eq!(value.decoded().as_ref(), given.get(name), "{name}");
            assert_eq!(RawValue::of(given.get(name).unwrap().clone()).unwrap(), *value, "{name}");
        }
        assert_eq!(document(names.iter().copied().zip(&values)).unwrap(), raw);
        assert_eq!(shown(&raw), given);
        let (first, second) = (document([("a", &values[0])]).unwrap(), document([("b", &values[1])]).unwrap());
        assert_eq!(Document::try_from(joined(&[&first, &second]).unwrap()).unwrap(), doc! { "a": 1, "b": "text" });
        let list = RawValue::list(&values[..2]).unwrap();
        assert_eq!((list.decoded(), list.items()), (Some(vec![Bson::from(1), "text".into()].into()), values[..2].to_vec()));
        assert_eq!(values[0].items(), []);
        assert_eq!(RawValue::at(&raw, "c.d.e").unwrap().decoded(), Some(bson::DateTime::from_millis(5).into()));
        for missing in ["z", "c.z", "a.x", "c.list.0", "c.d.e.f"] {
            assert_eq!(RawValue::at(&raw, missing), None, "{missing}");
        }
    }

    #[test]
    fn a_string_that_is_not_valid_is_found_and_sent_and_never_decoded() {
        let id = invalid();
        let raw = document([("_id", &id), ("after", &RawValue::of(5).unwrap())]).unwrap();
        assert_eq!(RawValue::at(&raw, "_id"), Some(id.clone()));
        assert_eq!(RawValue::at(&raw, "after").unwrap().decoded(), Some(5.into()));
        assert_eq!((id.decoded(), RawValue::from(raw).decoded()), (None, None));
        let list = RawValue::list(&[id.clone(), id.clone()]).unwrap();
        let nested = document([("a", &list), ("b", &RawValue::of(5).unwrap())]).unwrap();
        assert_eq!(shown(&nested), doc! { "a": ["a\u{fffd}", "a\u{fffd}"], "b": 5 });
        // A name that is not valid ends what can be read.
        let mut bytes = document([("a", &id), ("nn", &id)]).unwrap().into_bytes();
        let at = bytes.windows(2).position(|pair| pair == b"nn").unwrap();
        bytes[at] = 0xff;
        let broken = RawDocumentBuf::from_bytes(bytes).unwrap();
        assert_eq!(shown(&broken), doc! { "a": "a\u{fffd}", "\u{fffd}": Bson::Null });
        assert_eq!(list.decoded(), None);
        assert_eq!(list.as_bytes().windows(2).filter(|pair| *pair == b"a\xff").count(), 2);
    }
}
