//! The shard key beside lists of `_id`s.

use bson::{Bson, Document, doc};

use crate::values;

/// What documents have at the paths of a shard key.
pub fn of(document: &Document, paths: &[String]) -> Document {
    // A condition for null is met by documents without the key as well.
    paths.iter().map(|path| (path.clone(), values::at(document, path).cloned().unwrap_or(Bson::Null))).collect()
}

/// A condition for documents with any of these keys: every value that there is at a path.
pub fn any_of(keys: &[Document], paths: &[String]) -> Document {
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
