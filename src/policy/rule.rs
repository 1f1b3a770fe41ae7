//! Reads one entry of `collections`, over the policy's `defaults`.

use std::time::Duration;

use super::archive::ArchiveTo;
use super::namespace::NamespacePattern;
use super::reader::{Context, Mapping};
use super::window::Window;
use super::yaml::{Node, Step};
use super::{DateFormat, Rule, duration, filter};

/// Keys that may stand in a rule and in `defaults`.
const SHARED_KEYS: [&str; 21] = [
    "field",
    "expireAfterSeconds",
    "expireAfter",
    "ttlField",
    "filter",
    "collation",
    "dateFormat",
    "hint",
    "enabled",
    "batchSize",
    "rate",
    "concurrency",
    "targetBatchMs",
    "maxRequestUnits",
    "maxDeletes",
    "maxDeletePercent",
    "maxLag",
    "allowCollectionScan",
    "window",
    "archive",
    "exclude",
];

/// Keys that may stand in a rule only.
const OWN_KEYS: [&str; 2] = ["name", "namespace"];

/// The per-rule keys as they stand at one level: in `defaults` or in the rule itself.
#[derive(Default, Clone)]
pub struct Keys {
    exclude: Option<Vec<NamespacePattern>>,
    field: Option<String>,
    /// -1 is kept as such until it is known whether there is a ttlField.
    expire_after: Option<i64>,
    ttl_field: Option<String>,
    filter: Option<bson::Document>,
    collation: Option<bson::Document>,
    date_format: Option<DateFormat>,
    hint: Option<String>,
    enabled: Option<bool>,
    batch_size: Option<i64>,
    rate: Option<i64>,
    concurrency: Option<i64>,
    target_batch_ms: Option<i64>,
    max_request_units: Option<i64>,
    max_deletes: Option<i64>,
    max_delete_percent: Option<f64>,
    max_lag: Option<i64>,
    window: Option<Window>,
    allow_collection_scan: Option<bool>,
    archive: Option<ArchiveTo>,
}

/// Reads `defaults`.
pub fn read_defaults<'a>(context: &'a Context<'a>, node: &'a Node, path: Vec<Step>) -> Keys {
    Mapping::read(context, node, path, None, "`defaults`", &SHARED_KEYS).map_or_else(Keys::default, |map| read_keys(&map))
}

/// Reads one rule; `None` where it cannot stand, with the reasons among the context's problems. Its name may still be missing or not unique.
pub fn read_rule<'a>(
    context: &'a Context<'a>,
    node: &'a Node,
    path: Vec<Step>,
    index: usize,
    defaults: &Keys,
) -> Option<(Option<String>, Rule)> {
    let label = format!("collections[{index}]{}", title(node).map(|name| format!(" `{name}`")).unwrap_or_default());
    let known: Vec<&str> = OWN_KEYS.iter().chain(&SHARED_KEYS).copied().collect();
    let before = context.problems.borrow().len();
    let map = Mapping::read(context, node, path, Some(label), "the rule", &known)?;

    let name = map.parsed("name", |text| match text.trim() {
        "" => Err("an empty name".into()),
        trimmed if trimmed != text || text.chars().any(char::is_control) => {
            Err(format!("{text:?} has blanks at its ends or control characters"))
        }
        _ => Ok(text.to_owned()),
    });
    let namespace = map.parsed("namespace", NamespacePattern::parse);
    if !map.has("namespace") {
        map.problem_here("no `namespace`; expected `database.collection`");
    }
    let own = read_keys(&map);
    if map.has("exclude") && namespace.as_ref().is_some_and(|namespace| !namespace.is_glob()) {
        map.problem(&map.key_path("exclude"), "`exclude` goes with a namespace that has a `*`");
    }

    let field = own.field.clone().or_else(|| defaults.field.clone());
    let ttl_field = own.ttl_field.clone().or_else(|| defaults.ttl_field.clone());
    let expire_after = own.expire_after.or(defaults.expire_after);
    if expire_after.is_none() && !map.has("expireAfterSeconds") && !map.has("expireAfter") {
        map.problem_here("neither `expireAfterSeconds` nor `expireAfter`; expected exactly one of them");
    }
    if expire_after == Some(-1) && ttl_field.is_none() && !map.has("ttlField") {
        map.problem(
            &map.key_path("expireAfterSeconds"),
            "`expireAfterSeconds`: -1 goes only with a `ttlField`; expected a whole number from 0 to 2147483647",
        );
    }
    if let (Some(field), Some(ttl_field)) = (&field, &ttl_field)
        && field.split('.').next() == Some(ttl_field.as_str())
    {
        map.problem(&map.key_path("ttlField"), format!("`ttlField`: `{ttl_field}` holds the date itself (`field: {field}`)"));
    }
    let date_format = own.date_format.or(defaults.date_format);
    let is_id = field.as_deref() == Some("_id");
    if is_id && matches!(date_format, Some(DateFormat::EpochSeconds | DateFormat::EpochMillis)) {
        map.problem(
            &map.key_path("dateFormat"),
            "`dateFormat`: `field: _id` takes `objectId`, or `date` where the `_id`s are dates",
        );
    }
    if context.problems.borrow().len() > before {
        return None;
    }

    let small = |value: Option<i64>| value.and_then(|value| u32::try_from(value).ok());
    let seconds = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok()).map(Duration::from_secs);
    let rule = Rule {
        name: String::new(),
        namespace: namespace?,
        exclude: own.exclude.or_else(|| defaults.exclude.clone()).unwrap_or_default(),
        field,
        expire_after_seconds: u32::try_from(expire_after?).ok(),
        ttl_field,
        filter: own.filter.or_else(|| defaults.filter.clone()),
        collation: own.collation.or_else(|| defaults.collation.clone()),
        date_format,
        hint: own.hint.or_else(|| defaults.hint.clone()),
        enabled: own.enabled.or(defaults.enabled).unwrap_or(true),
        batch_size: small(own.batch_size.or(defaults.batch_size)).unwrap_or(2000),
        rate: small(own.rate.or(defaults.rate)),
        concurrency: small(own.concurrency.or(defaults.concurrency)),
        target_batch: Duration::from_millis(
            own.target_batch_ms.or(defaults.target_batch_ms).and_then(|ms| u64::try_from(ms).ok()).unwrap_or(200),
        ),
        max_request_units: small(own.max_request_units.or(defaults.max_request_units)),
        max_deletes: own.max_deletes.or(defaults.max_deletes).and_then(|n| u64::try_from(n).ok()),
        max_delete_percent: own.max_delete_percent.or(defaults.max_delete_percent),
        max_lag: seconds(own.max_lag.or(defaults.max_lag)),
        window: own.window.or_else(|| defaults.window.clone()),
        allow_collection_scan: own.allow_collection_scan.or(defaults.allow_collection_scan).unwrap_or(false),
        archive: own.archive.or_else(|| defaults.archive.clone()),
    };
    Some((name, rule))
}

fn read_keys(map: &Mapping) -> Keys {
    let context = map.context();
    let expire_after = match (map.has("expireAfterSeconds"), map.has("expireAfter")) {
        (true, true) => {
            map.problem(
                &map.key_path("expireAfter"),
                "both `expireAfterSeconds` and `expireAfter`; expected exactly one of them",
            );
            None
        }
        (true, false) => map.whole("expireAfterSeconds", -1, duration::MAX_SECONDS),
        _ => map.duration("expireAfter"),
    };
    Keys {
        exclude: map.list("exclude", NamespacePattern::parse),
        field: map.parsed("field", parse_field),
        expire_after,
        ttl_field: map.parsed("ttlField", parse_ttl_field),
        filter: map.get("filter").and_then(|entry| map.accept(&entry, filter::parse_filter(entry.node, context.env))),
        collation: map.get("collation").and_then(|entry| map.accept(&entry, filter::parse_collation(entry.node, context.env))),
        date_format: map.one_of(
            "dateFormat",
            &[
                ("date", DateFormat::Date),
                ("epochSeconds", DateFormat::EpochSeconds),
                ("epochMillis", DateFormat::EpochMillis),
                ("objectId", DateFormat::ObjectId),
            ],
        ),
        hint: map.parsed("hint", |text| match text {
            "" => Err("an empty name; expected the name of an index, such as `lastModified_1`".into()),
            "$natural" => {
                Err("`$natural` is no index; leave `hint` out, and set `allowCollectionScan` to go through the collection".into())
            }
            name => Ok(name.to_owned()),
        }),
        enabled: map.boolean("enabled"),
        batch_size: map.whole("batchSize", 1, 100_000),
        rate: map.whole("rate", 1, 1_000_000_000),
        concurrency: map.whole("concurrency", 1, 64),
        target_batch_ms: map.whole("targetBatchMs", 1, 60_000),
        max_request_units: map.whole("maxRequestUnits", 1, 1_000_000_000),
        max_deletes: map.whole("maxDeletes", 1, 1_000_000_000_000),
        max_delete_percent: map.percent("maxDeletePercent"),
        max_lag: map.positive_duration("maxLag"),
        window: map.get("window").and_then(|entry| Window::read(map, entry)),
        allow_collection_scan: map.boolean("allowCollectionScan"),
        archive: map.get("archive").and_then(|entry| ArchiveTo::read(map, entry)),
    }
}

/// A field path as MongoDB reads it: names joined by dots; a numeric name is also a position in an array.
fn parse_field(text: &str) -> Result<String, String> {
    let wrong = |why: &str| Err(format!("{text:?} {why}; expected a field path such as `lastModified` or `meta.createdAt`"));
    if text.split('.').any(str::is_empty) {
        return wrong("has an empty part");
    }
    if text.split('.').any(|part| part.starts_with('$')) {
        return wrong("has a part that starts with `$`");
    }
    if text.contains('\0') {
        return wrong("holds NUL");
    }
    Ok(text.to_owned())
}

fn parse_ttl_field(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(['.', '\0']) || text.starts_with('$') || text == "_id" {
        return Err(format!("{text:?} is not a root-level field name; expected one such as `ttl`, without a dot"));
    }
    Ok(text.to_owned())
}

/// What a person would call the rule in a message: its name, else its namespace.
fn title(node: &Node) -> Option<&str> {
    let Node::Map(entries) = node else { return None };
    ["name", "namespace"].iter().find_map(|wanted| {
        entries.iter().find_map(|entry| match entry {
            (Node::Str(key), Node::Str(value)) if key == wanted => Some(value.as_str()),
            _ => None,
        })
    })
}
