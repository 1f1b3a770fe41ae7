//! Reads one entry of `collections`, over the policy's `defaults`.

use super::duration::MAX_SECONDS;
use super::entry::{Context, Entry};
use super::key::AnyKey;
use super::limits::Limits;
use super::mapping::Mapping;
use super::namespace::Namespace;
use super::place::PathStep;
use super::yaml::Node;
use super::{DateFormat, Rule, constructors, family, filter, keys};

/// Reads the rule at a position of the list; `None` if anything in it is wrong, which the context reports.
///
/// Returns the rule's own name next to the rule, whose name is still empty: the default depends on the other rules.
pub(super) fn read_rule<'a>(
    list: &Entry<'a>,
    node: &'a Node,
    index: usize,
    defaults: Option<&'a Mapping<'a>>,
    journal: Option<&Namespace>,
) -> Option<(Option<String>, Rule)> {
    let label = format!("collections[{index}]{}", title(node).map(|name| format!(" `{name}`")).unwrap_or_default());
    let entry = Entry { rule: Some(label), ..list.inner("", node, PathStep::Item(index)) };
    let context: &Context = entry.context;
    let before = context.count();
    let map = Mapping::open(entry, &keys::RULE)?.over(defaults);
    check_exclude(&map);
    check_ttl(&map);
    check_date_format(&map);
    check_constructors(&map);
    let family = family::read(&map, journal);
    if context.count() > before {
        return None;
    }
    let rule = Rule {
        name: String::new(),
        namespace: map.optional(&keys::NAMESPACE)?,
        exclude: map.optional(&keys::EXCLUDE).unwrap_or_default(),
        field: map.optional(&keys::FIELD).or_else(|| family::date_field(&map)),
        expire_after_seconds: u32::try_from(expire_after(&map)?).ok(),
        ttl_field: map.optional(&keys::TTL_FIELD),
        filter: map.optional(&keys::FILTER),
        collation: map.optional(&keys::COLLATION),
        variables: [map.entry(&keys::FILTER), map.entry(&keys::COLLATION)]
            .into_iter()
            .flatten()
            .flat_map(|entry| filter::variables(entry.node, entry.context.env))
            .collect(),
        date_format: map.optional(&keys::DATE_FORMAT),
        hint: map.optional(&keys::HINT),
        order: map.value(&keys::ORDER),
        enabled: map.value(&keys::ENABLED),
        limits: Limits::read(&map),
        allow_collection_scan: map.value(&keys::ALLOW_COLLECTION_SCAN),
        allow_unknown_fields: map.optional(&keys::ALLOW_UNKNOWN_FIELDS).unwrap_or_default(),
        allow_unknown_types: map.optional(&keys::ALLOW_UNKNOWN_TYPES).unwrap_or_default(),
        archive: map.optional(&keys::ARCHIVE),
        family,
        holds: map.optional(&keys::HOLDS),
        periods: map.optional(&keys::PERIODS),
    };
    Some((map.optional(&keys::NAME), rule))
}

/// Returns the seconds after which documents expire, or -1. Either key of a rule wins over both of the defaults.
fn expire_after(map: &Mapping) -> Option<i64> {
    if map.has(&keys::EXPIRE_AFTER_SECONDS) {
        map.optional(&keys::EXPIRE_AFTER_SECONDS)
    } else if map.has(&keys::EXPIRE_AFTER) {
        map.optional(&keys::EXPIRE_AFTER)
    } else {
        expire_after(map.defaults()?)
    }
}

fn check_exclude(map: &Mapping) {
    let namespace = map.optional(&keys::NAMESPACE);
    if map.has(&keys::EXCLUDE) && namespace.is_some_and(|namespace| !namespace.is_glob()) {
        map.problem(&keys::EXCLUDE, "`exclude` goes with a namespace that has a `*`");
    }
}

fn check_ttl(map: &Mapping) {
    keys::check_expiry(map);
    let expire_after = expire_after(map);
    let either: [&dyn AnyKey; 2] = [&keys::EXPIRE_AFTER_SECONDS, &keys::EXPIRE_AFTER];
    if expire_after.is_none() && !either.iter().any(|key| map.has(*key) || map.means(*key)) {
        map.problem_here("neither `expireAfterSeconds` nor `expireAfter`; expected exactly one of them");
    }
    let ttl_field = map.optional(&keys::TTL_FIELD);
    let has_own = ttl_field.is_some() || [&keys::TTL_FIELD as &dyn AnyKey, &keys::PERIODS].iter().any(|key| map.has(*key));
    if expire_after == Some(-1) && !has_own && map.optional(&keys::PERIODS).is_none() {
        map.problem(
            &keys::EXPIRE_AFTER_SECONDS,
            format!("`expireAfterSeconds`: -1 goes only with a `ttlField` or `periods`; expected a whole number from 0 to {MAX_SECONDS}"),
        );
    }
    if let (Some(field), Some(ttl_field)) = (map.optional(&keys::FIELD), ttl_field)
        && field.split('.').next() == Some(ttl_field.as_str())
    {
        let written = |key: &dyn AnyKey| map.entry(key).map(|entry| entry.node.describe()).unwrap_or_default();
        let (ttl_field, field) = (written(&keys::TTL_FIELD), written(&keys::FIELD));
        map.problem(&keys::TTL_FIELD, format!("`ttlField`: {ttl_field} holds the date itself (`field`: {field})"));
    }
}

fn check_date_format(map: &Mapping) {
    let fits = |format| matches!(format, DateFormat::Date | DateFormat::ObjectId);
    let is_other = map.optional(&keys::DATE_FORMAT).is_some_and(|format| !fits(format));
    if is_other && map.optional(&keys::FIELD).as_deref() == Some("_id") {
        map.problem(&keys::DATE_FORMAT, "`dateFormat`: `field: _id` takes `objectId`, or `date` where the `_id`s are dates");
    }
}

/// Reports strings in the filters that are constructors of a shell.
fn check_constructors(map: &Mapping) {
    let allowed = map.optional(&keys::ALLOW_UNKNOWN_TYPES).unwrap_or_default();
    if let (Some(filter), Some(entry)) = (map.optional(&keys::FILTER), map.entry(&keys::FILTER)) {
        let variables = filter::variables(entry.node, entry.context.env);
        let found = constructors::refused(&filter, &variables, &allowed);
        map.problems_in(&keys::FILTER, found.into_iter().map(|(path, why)| (path, format!("`filter`: {why}"))).collect());
    }
    if let (Some(holds), Some(entry)) = (map.optional(&keys::HOLDS), map.entry(&keys::HOLDS))
        && let (Some(filter), Some(step)) = (holds.filter, entry.value_at("filter"))
    {
        let found = constructors::refused(&filter, &holds.variables, &allowed);
        let found = found.into_iter().map(|(path, why)| ([vec![step], path].concat(), format!("`holds`: `filter`: {why}")));
        map.problems_in(&keys::HOLDS, found.collect());
    }
}

/// Returns the name or the namespace of a rule, by which messages name it.
fn title(node: &Node) -> Option<&str> {
    let Node::Map(entries) = node else { return None };
    ["name", "namespace"].iter().find_map(|wanted| {
        entries.iter().find_map(|entry| match entry {
            (Node::Str(key), Node::Str(value)) if key == wanted => Some(value.as_str()),
            _ => None,
        })
    })
}
