//! Values at dotted paths that lead through documents alone: where there is a list on the way, the server means several values.

use bson::raw::RawBsonRef;
use bson::{Bson, Document, RawDocument};

pub fn at<'a>(document: &'a Document, path: &str) -> Option<&'a Bson> {
    match path.split_once('.') {
        None => document.get(path),
        Some((name, rest)) => at(document.get_document(name).ok()?, rest),
    }
}

/// As [`at`], of a document that is not decoded.
pub fn at_raw<'a>(document: &'a RawDocument, path: &str) -> Option<RawBsonRef<'a>> {
    match path.split_once('.') {
        None => document.get(path).ok()?,
        Some((name, rest)) => at_raw(document.get_document(name).ok()?, rest),
    }
}
