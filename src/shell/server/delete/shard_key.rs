//! Conditions on the shard key that go with lists of `_id`s.

use bson::error::Error;
use bson::{RawDocument, RawDocumentBuf};

use crate::base::values::raw::{self, RawValue};

/// The values of a document at the paths of a shard key, in the order of the paths.
pub(crate) type KeyValues = Vec<RawValue>;

/// Returns the values of a document at the paths of a shard key.
pub(crate) fn of(document: &RawDocument, paths: &[String]) -> KeyValues {
    // A condition for null also matches documents without the key.
    paths.iter().map(|path| RawValue::at(document, path).unwrap_or(RawValue::NULL)).collect()
}

/// Returns a condition for documents with this key.
pub(crate) fn is(key: &KeyValues, paths: &[String]) -> Result<RawDocumentBuf, Error> {
    raw::document(paths.iter().map(String::as_str).zip(key))
}

/// Returns a condition for documents with any of these keys: at each path, every value that occurs there.
pub(crate) fn any_of(keys: &[KeyValues], paths: &[String]) -> Result<RawDocumentBuf, Error> {
    let conditions = (0..paths.len()).map(|at| {
        let mut values: Vec<RawValue> = Vec::new();
        for value in keys.iter().filter_map(|key| key.get(at)) {
            if !values.contains(value) {
                values.push(value.clone());
            }
        }
        raw::document([("$in", &RawValue::list(&values)?)]).map(RawValue::from)
    });
    let conditions: Vec<RawValue> = conditions.collect::<Result<_, _>>()?;
    raw::document(paths.iter().map(String::as_str).zip(&conditions))
}
