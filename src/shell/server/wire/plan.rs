//! Facts that are read from an explained plan: whether the server sorts, and whether an index is in the order of the query.

use bson::{Bson, Document};

/// Whether an index gives its keys in the order of the query, each of them a value of its own: the server sorts nothing, and no
/// document has an array among its keys.
pub(crate) fn is_in_order(plan: &Document) -> bool {
    !sorts(plan) && plan_has(plan, "isMultiKey", &false.into())
}

/// Whether the server sorts the documents itself.
pub(crate) fn sorts(plan: &Document) -> bool {
    plan_has(plan, "stage", &"SORT".into())
}

/// Whether an explained plan has a key with this value at any level.
fn plan_has(plan: &Document, key: &str, value: &Bson) -> bool {
    plan.iter().any(|(k, v)| {
        (k == key && v == value)
            || v.as_document().is_some_and(|inner| plan_has(inner, key, value))
            || v.as_array()
                .is_some_and(|items| items.iter().filter_map(Bson::as_document).any(|inner| plan_has(inner, key, value)))
    })
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn a_plan_sorts_if_it_does_so_at_any_level() {
        let inside = doc! { "a": { "b": [1, { "stage": "SORT" }] }, "stage": "FETCH" };
        for (plan, has) in [
            (doc! { "stage": "SORT" }, true),
            (inside, true),
            (doc! { "stage": "FETCH", "a": [{ "stage": "FETCH" }] }, false),
            (doc! { "other": "SORT", "a": { "b": "SORT" } }, false),
            (doc! {}, false),
        ] {
            assert_eq!(sorts(&plan), has, "{plan}");
        }
    }

    #[test]
    fn an_index_is_in_order_without_a_sort_and_without_arrays() {
        let plan = |stage: &str, is_multikey: bool| doc! { "plan": { "stage": stage, "isMultiKey": is_multikey } };
        let found =
            [("IXSCAN", false), ("IXSCAN", true), ("SORT", false)].map(|(stage, arrays)| is_in_order(&plan(stage, arrays)));
        assert_eq!(found, [true, false, false]);
        assert!(!is_in_order(&doc! { "stage": "COLLSCAN" }));
    }
}
