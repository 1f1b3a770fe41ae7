//! The fields that a rule names, the types that it compares them with, and what is said where no document is found to have one.
//! A name, or a value, may be wrong then.

use bson::{Document, doc};

use crate::core::facts::CollectionKind;
use crate::core::plan::{PlannedRule, buckets};
use crate::core::policy::comparisons::{self, Comparison};
use crate::core::policy::paths;
use crate::core::policy::value_type::{ValueType, any_value};
use crate::core::policy::{DateFormat, Rule};

/// Key of the policy that names the field with the dates.
pub const DATES: &str = "field";

/// A field that a rule names by its path, or a type of its values.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedField {
    /// Path in the policy.
    pub path: String,
    /// The path as messages show it.
    pub shown: String,
    /// Path in the documents that are looked at: buckets have the metaField under a name of their own.
    pub stored: String,
    /// Key of the policy that names it.
    pub key: &'static str,
    /// Whether documents may be deleted for the lack of the field, or of the type.
    pub is_guarded: bool,
    /// The type that the rule compares the field with; `None` if any value will do.
    pub compared: Option<Box<ComparedType>>,
}

/// A type that a rule compares a field with.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedType {
    pub value_type: ValueType,
    /// Name of the search, the same in every namespace of a rule.
    pub identity: String,
    /// Every path that the comparison reads.
    pub reads: Vec<String>,
    /// Query of the documents that have a value of the type.
    pub having: Document,
    /// Query of the documents without which nothing is known of the field; `None` if nothing needs to be.
    pub having_any: Option<Document>,
    /// Text to write in place of the value, if it can be guessed.
    pub meant: Option<String>,
}

/// A field that no document was found to have, or not with a value of a type.
#[derive(Debug, Clone, PartialEq)]
pub struct UnknownField {
    pub field: NamedField,
    /// Whether a document was found that tells something of the field: a value of any type.
    pub is_known: bool,
    /// A field of the documents with a name that is nearly the same.
    pub similar: Option<String>,
    /// Whether documents in another namespace of the rule have the field, so that its name is right.
    pub is_elsewhere: bool,
    /// Whether the run is `--strict`, which refuses a rule for any field that no document has.
    pub is_strict: bool,
}

/// Returns the fields that a rule names in a namespace, each once. Those that no document needs to have are left out, as is the
/// `_id`, which every document has.
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
            let (path, shown) = (path.to_owned(), shown.to_owned());
            named.push(NamedField { stored: path.clone(), path, shown, key, is_guarded, compared: None });
        }
    };
    // Every measurement of a time-series collection has the timeField.
    if let (None, Some(field)) = (series, &rule.field) {
        add(field, field, DATES, false);
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
        add(&holds.by.of, &holds.by.of, "holds", true);
    }
    if let Some(periods) = &rule.periods {
        // By a field that no document has, all expire by the rule's own time.
        add(&periods.by.of, &periods.by.of, "periods", true);
    }
    named.retain(|field| field.path != "_id" && !rule.allow_unknown_fields.contains(&field.path));
    named.extend(series.is_none().then(|| NamedField::of_dates(rule)).flatten());
    let compared = rule.filter.iter().flat_map(|filter| comparisons::of_filter(filter, &rule.variables));
    named.extend(compared.filter(|comparison| !comparison.is_allowed(&rule.allow_unknown_types)).map(NamedField::compared));
    if let Some(meta_field) = series.and_then(|series| series.meta_field.as_deref()) {
        for field in &mut named {
            let rest = field.path.strip_prefix(meta_field).filter(|rest| rest.is_empty() || rest.starts_with('.'));
            field.stored = rest.map_or_else(|| field.path.clone(), |rest| format!("meta{rest}"));
            if let Some(compared) = &mut field.compared {
                compared.of_buckets(meta_field);
            }
        }
    }
    named
}

impl ComparedType {
    /// Rewrites the queries for the buckets of a time-series collection. One that selects by another field is never sent: its
    /// rule is refused.
    fn of_buckets(&mut self, meta_field: &str) {
        for query in [Some(&mut self.having), self.having_any.as_mut()].into_iter().flatten() {
            if let Ok(rewritten) = buckets::of_meta(query, Some(meta_field)) {
                *query = rewritten;
            }
        }
    }
}

impl NamedField {
    fn compared(comparison: Comparison) -> Self {
        let Comparison { path, shown, reads, value_type, is_guarded, having, having_any, meant, .. } = comparison;
        let compared =
            Some(Box::new(ComparedType { value_type, identity: having.to_string(), reads, having, having_any, meant }));
        Self { stored: path.clone(), path, shown, key: "filter", is_guarded, compared }
    }

    /// Returns the type of the dates of a rule; `None` if documents need not have it.
    fn of_dates(rule: &Rule) -> Option<Self> {
        let path = rule.field.clone().filter(|path| !rule.allow_unknown_types.contains(path))?;
        let value_type = match rule.date_format.unwrap_or(DateFormat::Date) {
            DateFormat::Date => ValueType::Date,
            DateFormat::EpochSeconds | DateFormat::EpochMillis => ValueType::Number,
            DateFormat::ObjectId => ValueType::ObjectId,
            DateFormat::Iso8601 => ValueType::String,
        };
        let having = doc! { &path: value_type.condition() };
        let having_any = Some(doc! { &path: any_value() });
        let (identity, reads) = (having.to_string(), vec![path.clone()]);
        let compared = Some(Box::new(ComparedType { value_type, identity, reads, having, having_any, meant: None }));
        Some(Self { stored: path.clone(), shown: path.clone(), path, key: DATES, is_guarded: false, compared })
    }

    /// Whether this is the type of the dates of the rule.
    pub fn is_of_dates(&self) -> bool {
        self.key == DATES && self.compared.is_some()
    }

    /// Returns the query of the documents that are looked for.
    pub fn query(&self) -> Document {
        match &self.compared {
            Some(compared) => compared.having.clone(),
            None => doc! { &self.stored: { "$exists": true } },
        }
    }

    /// Returns the query of the documents without which nothing is known of the field; `None` if nothing needs to be.
    pub fn known_by(&self) -> Option<&Document> {
        self.compared.as_ref()?.having_any.as_ref()
    }

    /// Returns what is looked for, the same in every namespace of a rule.
    pub fn identity(&self) -> &str {
        self.compared.as_ref().map_or(&self.path, |compared| &compared.identity)
    }
}

/// Leaves out types of fields of which nothing is known. A field that no document has is said to be unknown, and one that is
/// null everywhere is of no type.
pub fn judged(unknown: Vec<UnknownField>) -> Vec<UnknownField> {
    let names: Vec<String> =
        unknown.iter().filter(|unknown| unknown.field.compared.is_none()).map(|unknown| unknown.field.path.clone()).collect();
    let is_judged = |unknown: &UnknownField| match &unknown.field.compared {
        None => true,
        Some(compared) => {
            (unknown.is_known || compared.having_any.is_none()) && !compared.reads.iter().any(|read| names.contains(read))
        }
    };
    unknown.into_iter().filter(is_judged).collect()
}

impl UnknownField {
    /// Whether the rule is refused: documents may go for a wrong name, or the run is strict.
    pub fn is_refused(&self) -> bool {
        (self.field.is_guarded || self.is_strict) && !self.is_elsewhere
    }

    /// Says that no document was found, and which name is nearly the same.
    pub fn finding(&self) -> String {
        let NamedField { shown, key, .. } = &self.field;
        if let Some(compared) = &self.field.compared {
            if self.field.is_of_dates() {
                return format!("no document found has {} in `{shown}` (`{key}`), so none expires", compared.value_type.words());
            }
            return of_type(compared.value_type, shown, key, compared.meant.as_deref());
        }
        let other = self.similar.as_ref().map(|similar| format!(", but some have `{similar}`, which is another field"));
        format!("no document found has `{shown}` (`{key}`){}", other.unwrap_or_default())
    }

    /// Returns the warning about a field for which the rule is not refused.
    pub fn warning(&self) -> String {
        let finding = self.finding();
        if self.is_elsewhere {
            return format!("{finding}; documents in other namespaces of the rule have it");
        }
        match self.field.compared {
            None => format!("{finding}; is its name right?"),
            Some(_) if self.field.is_of_dates() => format!("{finding}; `dateFormat` is for dates in another form"),
            Some(_) => format!("{finding}; is the type right?"),
        }
    }
}

/// Says that no document was found to have a type that a filter compares a field with, and what may have been meant.
pub fn of_type(value_type: ValueType, shown: &str, key: &str, meant: Option<&str>) -> String {
    let meant = meant.map(|meant| format!("; if another type was meant, write {meant}")).unwrap_or_default();
    format!("no document found has {} in `{shown}`, with which `{key}` compares it{meant}", value_type.words())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::facts::{Collection, TimeSeries};
    use crate::testing::made_up::planned;

    /// Returns the fields of a rule, each with its key and a `!` if it is guarded.
    fn of(planned: &PlannedRule) -> String {
        let word = |field: NamedField| format!("{}:{}{}", field.key, field.stored, if field.is_guarded { "!" } else { "" });
        named(planned).into_iter().filter(|field| field.compared.is_none()).map(word).collect::<Vec<_>>().join(" ")
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
        let named = named(&rule);
        assert_eq!(named[0].shown, "m.held");
        assert_eq!(named[2].query(), doc! { "meta.held": { "$type": "number" } });
    }

    #[test]
    fn types_are_named_but_those_that_are_allowed_and_judged_where_something_is_known() {
        let types = |keys: &str| {
            let named = named(&planned(keys, 7)).into_iter().filter(|field| field.compared.is_some() && !field.is_of_dates());
            named
                .map(|field| UnknownField { field, is_known: false, similar: None, is_elsewhere: false, is_strict: false })
                .collect()
        };
        let paths =
            |unknown: &[UnknownField]| -> Vec<String> { unknown.iter().map(|unknown| unknown.field.path.clone()).collect() };
        let found: Vec<UnknownField> = types("    filter: {s: {$ne: done}, _id: {$ne: 4}, r: {$ne: {id: 5}}}\n");
        assert_eq!(paths(&found), ["s", "_id", "r", "r.id"]);
        assert_eq!(paths(&types("    filter: {s: {$ne: done}, r: {$ne: {id: 5}}}\n    allowUnknownTypes: [r, s]\n")), [""; 0]);
        // Of a field of which nothing is known, only what has to be there inside a value is missing.
        assert_eq!(paths(&judged(found.clone())), ["r.id"]);
        let known = || found.iter().cloned().map(|unknown| UnknownField { is_known: true, ..unknown });
        assert_eq!(paths(&judged(known().collect())), ["s", "_id", "r", "r.id"]);
        // A name that is unknown is said once.
        let mut with_name: Vec<UnknownField> = known().collect();
        with_name
            .push(UnknownField { field: NamedField { compared: None, ..with_name[0].field.clone() }, ..with_name[0].clone() });
        assert_eq!(paths(&judged(with_name)), ["_id", "r", "r.id", "s"]);
        let detail = crate::core::plan::guard::unknown_type(&known().collect::<Vec<_>>()).expect("a refusal").detail;
        assert!(detail.starts_with("no document found has a string in `s`, with which `filter` compares it; "), "{detail}");
        assert!(detail.ends_with("set `allowUnknownTypes: [s, _id, r, r.id]`"), "{detail}");
    }

    #[test]
    fn the_type_of_the_dates_is_looked_for_unless_it_is_allowed_to_be_missing() {
        let of_dates = |keys: &str| named(&planned(keys, 7)).into_iter().find(NamedField::is_of_dates);
        for (keys, condition, words) in [
            ("", doc! { "$type": "date" }, "a date"),
            ("    dateFormat: epochSeconds\n", doc! { "$type": "number" }, "a number"),
            ("    dateFormat: epochMillis\n", doc! { "$type": "number" }, "a number"),
            ("    dateFormat: objectId\n", doc! { "$type": "objectId" }, "an ObjectId"),
            ("    dateFormat: iso8601\n", doc! { "$type": ["string", "symbol"] }, "a string"),
        ] {
            let field = of_dates(keys).unwrap();
            assert_eq!((field.query(), field.is_guarded), (doc! { "at": condition }, false), "{keys}");
            let unknown = UnknownField { field, is_known: true, similar: None, is_elsewhere: false, is_strict: false };
            let finding = format!("no document found has {words} in `at` (`field`), so none expires");
            assert_eq!(unknown.warning(), format!("{finding}; `dateFormat` is for dates in another form"));
            assert!(!unknown.is_refused());
            // Nothing is known of a field that is null everywhere.
            let of_nothing = UnknownField { is_known: false, ..unknown.clone() };
            assert_eq!((judged(vec![unknown.clone()]), judged(vec![of_nothing])), (vec![unknown], vec![]));
        }
        assert_eq!(of_dates("    allowUnknownTypes: [at]\n"), None);
        let mut series = planned("", 7);
        let time = CollectionKind::TimeSeries(TimeSeries { time_field: "at".into(), ..TimeSeries::default() });
        series.collection = Some(Box::new(Collection::new(series.namespace.clone(), time)));
        assert!(!named(&series).iter().any(NamedField::is_of_dates));
    }

    #[test]
    fn a_field_that_others_have_is_not_refused() {
        let field = |is_guarded| NamedField { is_guarded, ..named(&planned("    ttlField: tll\n", 7)).remove(1) };
        let unknown = |is_guarded, is_elsewhere| UnknownField {
            field: field(is_guarded),
            similar: Some("ttl".into()),
            is_known: false,
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

    #[test]
    fn what_is_looked_for_is_named_by_its_path_or_by_the_query_of_its_type() {
        let named = named(&planned("    filter: {s: {$ne: done}}\n", 7));
        let [of_name, of_type] = ["s"; 2].map(|path| named.iter().filter(move |field| field.path == path));
        let of_name = of_name.clone().find(|field| field.compared.is_none()).unwrap();
        let of_type = of_type.clone().find(|field| field.compared.is_some()).unwrap();
        assert_eq!((of_name.identity(), of_name.query(), of_name.known_by()), ("s", doc! { "s": { "$exists": true } }, None));
        assert_eq!(of_type.identity(), of_type.query().to_string());
        assert!(of_type.known_by().is_some_and(|query| query.contains_key("s")), "{:?}", of_type.known_by());
    }
}
