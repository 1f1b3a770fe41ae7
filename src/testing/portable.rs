//! An assertion that every engine evaluates an expression alike.

use bson::Bson;

/// Fails if a part of an expression, a filter or a stage is one that the engines evaluate in different ways; the reasons are in
/// `core::expiry::expression`.
pub(crate) fn assert_portable(part: &Bson) {
    match part {
        Bson::Array(items) => items.iter().for_each(assert_portable),
        Bson::Document(document) => {
            for (key, value) in document {
                assert_ne!(key, "$cond", "{document}");
                let variables =
                    value.as_document().filter(|_| key == "$let").map(|bound| bound.get_document("vars").unwrap().len());
                assert!(variables.is_none_or(|variables| variables == 1), "{document}");
                assert_portable(value);
            }
        }
        _ => {}
    }
}
