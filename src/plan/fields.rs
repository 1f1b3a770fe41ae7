//! The fields that a rule names, and what is said where no document is found to have one: its name may be wrong.

use crate::facts::CollectionKind;
use crate::plan::PlannedRule;
use crate::policy::paths;

/// A field that a rule names by its path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedField {
    /// Path in the policy.
    pub path: String,
    /// The path as messages show it.
    pub shown: String,
    /// Path in the documents that are looked at: buckets have the metaField under a name of their own.
    pub stored: String,
    /// Key of the policy that names it.
    pub key: &'static str,
    /// Whether documents may be deleted for the lack of the field.
    pub is_guarded: bool,
}

/// A field that no document was found to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownField {
    pub field: NamedField,
    /// A field of the documents with a name that is nearly the same.
    pub similar: Option<String>,
    /// Whether documents in another namespace of the rule have the field, so that its name is right.
    pub is_elsewhere: bool,
    /// Whether the run is `--strict`, which refuses a rule for any field that no document has.
    pub is_strict: bool,
}

/// Returns the fields that a rule names in a namespace, each once. Those that no document needs to have are left out, as is the `_id`, which
/// every document has.
pub fn named(planned: &PlannedRule) -> Vec<NamedField> {
    let rule = &planned.rule;
    let series = match planned.collection.as_deref().map(|collection| &collection.kind) {
        Some(CollectionKind::TimeSeries(series)) => Some(series),
        _ => None,
    };
    let mut named: Vec<NamedField> = Vec::new();
    let mut add = |path: &str, shown: &str, key, is_guarded| match named.iter_mut().find(|known| known.path == path) {
        Some(known) => known.is_guarded |= is_guarded,
        None => {
            named.push(NamedField { path: path.to_owned(), shown: shown.to_owned(), stored: path.to_owned(), key, is_guarded })
        }
    };
    // Every measurement of a time-series collection has the timeField.
    if let (None, Some(field)) = (series, &rule.field) {
        add(field, field, "field", false);
    }
    if let Some(ttl_field) = &rule.ttl_field {
        // With `expireAfterSeconds: -1` nothing expires without the field.
        add(ttl_field, ttl_field, "ttlField", rule.expire_after_seconds.is_some());
    }
    for found in rule.filter.iter().flat_map(|filter| paths::of_filter(filter, &rule.variables)) {
        add(&found.path, &found.shown, "filter", found.matches_missing);
    }
    if let Some(holds) = &rule.holds {
        // A hold on a field that no document has keeps nothing.
        add(&holds.of, &holds.of, "holds", true);
    }
    named.retain(|field| field.path != "_id" && !rule.allow_unknown_fields.contains(&field.path));
    if let Some(meta_field) = series.and_then(|series| series.meta_field.as_deref()) {
        for field in &mut named {
            let rest = field.path.strip_prefix(meta_field).filter(|rest| rest.is_empty() || rest.starts_with('.'));
            field.stored = rest.map_or_else(|| field.path.clone(), |rest| format!("meta{rest}"));
        }
    }
    named
}

impl UnknownField {
    /// Whether the rule is refused: documents may go for a wrong name, or the run is strict.
    pub fn is_refused(&self) -> bool {
        (self.field.is_guarded || self.is_strict) && !self.is_elsewhere
    }

    /// Says that no document was found, and which name is nearly the same.
    pub fn finding(&self) -> String {
        let NamedField { shown, key, .. } = &self.field;
        let other = self.similar.as_ref().map(|similar| format!(", but some have `{similar}`, which is another field"));
        format!("no document found has `{shown}` (`{key}`){}", other.unwrap_or_default())
    }

    /// Returns the warning about a field for which the rule is not refused.
    pub fn warning(&self) -> String {
        let finding = self.finding();
        if self.is_elsewhere {
            return format!("{finding}; documents in other namespaces of the rule have it");
        }
        format!("{finding}; is its name right?")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::{Collection, TimeSeries};
    use crate::report::made_up::planned;

    /// Returns the fields of a rule, each with its key and a `!` if it is guarded.
    fn of(planned: &PlannedRule) -> String {
        let word = |field: NamedField| format!("{}:{}{}", field.key, field.stored, if field.is_guarded { "!" } else { "" });
        named(planned).into_iter().map(word).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn every_path_is_named_once_and_those_that_are_allowed_are_not() {
        for (keys, expected) in [
            ("", "field:at"),
            (
                "    ttlField: ttl\n    filter: {s: done, held: {$ne: 1}, _id: {$ne: 4}}\n",
                "field:at ttlField:ttl! filter:s filter:held!",
            ),
            ("    filter: {at: {$ne: null}, held: {$ne: 1}}\n    allowUnknownFields: [held]\n", "field:at!"),
            ("    ttlField: ttl\n    allowUnknownFields: [ttl, at]\n", ""),
            ("    ttlField: ttl\n    filter: {ttl: {$gt: 0}}\n", "field:at ttlField:ttl!"),
        ] {
            assert_eq!(of(&planned(keys, 7)), expected, "{keys}");
        }
        let mut own = planned("    ttlField: ttl\n", 7);
        own.rule.expire_after_seconds = None;
        assert_eq!(of(&own), "field:at ttlField:ttl");
    }

    #[test]
    fn the_meta_field_is_looked_for_in_the_buckets() {
        let mut rule = planned("    filter: {m.held: {$ne: 1}, $or: [{m: 5}]}\n", 7);
        let series = TimeSeries { time_field: "at".into(), meta_field: Some("m".into()), ..TimeSeries::default() };
        let collection = Collection::new(rule.namespace.clone(), CollectionKind::TimeSeries(series));
        rule.collection = Some(Box::new(collection));
        assert_eq!(of(&rule), "filter:meta.held! filter:meta");
        assert_eq!(named(&rule)[0].shown, "m.held");
    }

    #[test]
    fn a_field_that_others_have_is_not_refused() {
        let field = |is_guarded| NamedField { is_guarded, ..named(&planned("    ttlField: tll\n", 7)).remove(1) };
        let unknown = |is_guarded, is_elsewhere| UnknownField {
            field: field(is_guarded),
            similar: Some("ttl".into()),
            is_elsewhere,
            is_strict: false,
        };
        let refused =
            [(true, false), (true, true), (false, false)].map(|(guarded, elsewhere)| unknown(guarded, elsewhere).is_refused());
        assert_eq!(refused, [true, false, false]);
        // A strict run refuses the rule for any name that may be wrong.
        let refused = [(true, false), (true, true), (false, false)]
            .map(|(guarded, elsewhere)| UnknownField { is_strict: true, ..unknown(guarded, elsewhere) }.is_refused());
        assert_eq!(refused, [true, false, true]);
        let finding = "no document found has `tll` (`ttlField`), but some have `ttl`, which is another field";
        assert_eq!(unknown(false, false).warning(), format!("{finding}; is its name right?"));
        assert_eq!(unknown(true, true).warning(), format!("{finding}; documents in other namespaces of the rule have it"));
    }
}
