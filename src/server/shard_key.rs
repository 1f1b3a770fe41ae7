//! Conditions on the shard key that go with lists of `_id`s.

use bson::{Bson, Document, doc};

use crate::values;

/// Returns the values of a document at the paths of a shard key.
pub(crate) fn of(document: &Document, paths: &[String]) -> Document {
    // A condition for null also matches documents without the key.
    paths.iter().map(|path| (path.clone(), values::at(document, path).cloned().unwrap_or(Bson::Null))).collect()
}

/// Returns a condition for documents with any of these keys: at each path, every value that occurs there.
pub(crate) fn any_of(keys: &[Document], paths: &[String]) -> Document {
    let values = |path: &String| {
        let mut values: Vec<Bson> = Vec::new();
        for value in keys.iter().filter_map(|key| key.get(path)) {
            if !values.contains(value) {
                values.push(value.clone());
            }
        }
        values
    };
    paths.iter().map(|path| (path.clone(), doc! { "$in": values(path) }.into())).collect()
}
