//! Looks at the collections a policy names: which there are, of what kind, with which indexes.

use std::collections::{BTreeMap, BTreeSet};

use bson::{Bson, Document, doc};
use futures_util::{StreamExt, stream};
use super::error::{Result, ServerError as Error};

use super::find::Query;
use super::transport::ReadPreference;
use super::{Deployment, error};
use crate::facts::{CollectionFacts, IndexFacts, Seen, Target, TimeSeriesFacts, Topology};
use crate::flavor::ShardKeys;
use crate::plan::buckets;
use crate::policy::Rule;
use crate::policy::namespace::{Namespace, NamespacePattern, glob, why_never_swept};
use crate::values::{count_in, integer_in};

/// Collections that are looked at at the same time.
const AT_ONCE: usize = 8;

/// The type and the options of a collection, as listCollections shows them.
type Listed = BTreeMap<String, (String, Document)>;

/// Finds the namespaces that each rule stands for and looks at them; in the order of the rules, then by name.
///
/// Trouble with one namespace is part of what was seen there and does not keep the others from being looked at. Of those that a rule stands for
/// only the selected ones are.
///
/// Errors: the databases cannot be listed although a rule has a `*` in its database.
pub async fn targets(
    deployment: &Deployment,
    rules: &[&Rule],
    is_selected: impl Fn(&Rule, &Namespace) -> bool,
) -> Result<Vec<Target>> {
    let enabled: Vec<&Rule> = rules.iter().copied().filter(|rule| rule.enabled).collect();
    let databases = databases(deployment, &enabled).await?;
    let listings: BTreeMap<String, std::result::Result<Listed, String>> = stream::iter(databases)
        .map(|database| async move {
            let listed = list_collections(deployment, &database, &enabled_names(rules, &database)).await;
            let listed = listed.map_err(|cause| unlistable(&database, &cause));
            (database, listed)
        })
        .buffered(AT_ONCE)
        .collect()
        .await;

    let found =
        rules.iter().flat_map(|rule| namespaces(rule, &listings).into_iter().map(|(namespace, seen)| (*rule, namespace, seen)));
    let selected = found.filter(|(rule, namespace, _)| is_selected(rule, namespace));
    let targets = stream::iter(selected.collect::<Vec<_>>())
        .map(|(rule, namespace, seen)| async move {
            let seen = match seen {
                Seen::Collection(listed) => look(deployment, &namespace, listed).await,
                Seen::TimeSeries(listed) => look_behind(deployment, &namespace, listed).await,
                other => other,
            };
            Target { rule: rule.clone(), namespace, seen }
        })
        .buffered(AT_ONCE)
        .collect()
        .await;
    Ok(targets)
}

/// The databases that the rules can mean.
async fn databases(deployment: &Deployment, rules: &[&Rule]) -> Result<BTreeSet<String>> {
    let (globs, exact): (Vec<&str>, Vec<&str>) =
        rules.iter().map(|rule| rule.namespace.database.as_str()).partition(|name| name.contains('*'));
    let mut databases: BTreeSet<String> = exact.into_iter().map(str::to_owned).collect();
    if !globs.is_empty() {
        let names = database_names(deployment).await?;
        let matching = names.into_iter().filter(|name| globs.iter().any(|pattern| glob(pattern, name)));
        databases.extend(matching.filter(|name| why_never_swept(name, "").is_none()));
    }
    Ok(databases)
}

/// Lists the databases that the user may see.
pub async fn database_names(deployment: &Deployment) -> Result<Vec<String>> {
    let reply = deployment.run("admin", doc! { "listDatabases": 1, "nameOnly": true, "authorizedDatabases": true }).await?;
    let databases = reply.get_array("databases").into_iter().flatten().filter_map(Bson::as_document);
    Ok(databases.filter_map(|database| database.get_str("name").ok().map(str::to_owned)).collect())
}

/// The collections that the rules name in a database; `None` where a glob asks for all.
fn enabled_names(rules: &[&Rule], database: &str) -> Option<Vec<String>> {
    let patterns =
        rules.iter().filter(|rule| rule.enabled && glob(&rule.namespace.database, database)).map(|rule| &rule.namespace);
    let names: Option<Vec<String>> =
        patterns.map(|pattern| (!pattern.collection.contains('*')).then(|| pattern.collection.clone())).collect();
    // Whether there are buckets behind a name, the same listing says.
    names.map(|names| names.iter().flat_map(|name| [name.clone(), format!("{}{name}", Namespace::BUCKETS)]).collect())
}

async fn list_collections(deployment: &Deployment, database: &str, names: &Option<Vec<String>>) -> Result<Listed> {
    let filter = names.as_ref().map_or_else(Document::new, |names| doc! { "name": { "$in": names } });
    let entries = Query::listing(database, doc! { "listCollections": 1, "filter": filter }).all(deployment).await?;
    Ok(entries
        .into_iter()
        .filter_map(|entry| {
            let name = entry.get_str("name").ok()?.to_owned();
            let kind = entry.get_str("type").unwrap_or("collection").to_owned();
            Some((name, (kind, entry.get_document("options").cloned().unwrap_or_default())))
        })
        .collect())
}

/// The namespaces of a rule, with what the listing alone says of them.
fn namespaces(rule: &Rule, listings: &BTreeMap<String, std::result::Result<Listed, String>>) -> Vec<(Namespace, Seen)> {
    let pattern = &rule.namespace;
    let as_written = Namespace { database: pattern.database.clone(), collection: pattern.collection.clone() };
    if !rule.enabled {
        return vec![(as_written, Seen::NotLookedFor)];
    }
    let mut found = Vec::new();
    for (database, listing) in listings.iter().filter(|(database, _)| glob(&pattern.database, database)) {
        match listing {
            Err(error) => {
                let namespace = Namespace { database: database.clone(), collection: pattern.collection.clone() };
                found.push((namespace, Seen::Unreadable { error: error.clone() }));
            }
            Ok(listed) => found.extend(listed.iter().filter_map(|(collection, (kind, options))| {
                let namespace = Namespace { database: database.clone(), collection: collection.clone() };
                let has_buckets = listed.contains_key(&namespace.buckets().collection);
                is_meant(rule, &namespace).then(|| (namespace, listed_as(kind, options, has_buckets)))
            })),
        }
    }
    if found.is_empty() {
        found.push((as_written, Seen::Missing));
    }
    found
}

fn is_meant(rule: &Rule, namespace: &Namespace) -> bool {
    rule.namespace.matches(namespace)
        && why_never_swept(&namespace.database, &namespace.collection).is_none()
        && !rule.exclude.iter().any(|pattern: &NamespacePattern| pattern.matches(namespace))
}

fn listed_as(kind: &str, options: &Document, has_buckets: bool) -> Seen {
    match kind {
        "view" => Seen::View,
        "timeseries" => {
            let settings = options.get_document("timeseries").cloned().unwrap_or_default();
            Seen::TimeSeries(TimeSeriesFacts {
                time_field: settings.get_str("timeField").unwrap_or_default().to_owned(),
                meta_field: settings.get_str("metaField").ok().map(str::to_owned),
                expire_after_seconds: integer_in(options, "expireAfterSeconds"),
                buckets: has_buckets.then(CollectionFacts::default),
            })
        }
        _ => Seen::Collection(CollectionFacts {
            capped: options.get_bool("capped").unwrap_or(false),
            // `true` on servers that show it as a flag, a document with the key on the others.
            clustered: !matches!(options.get("clusteredIndex"), None | Some(Bson::Boolean(false))),
            expire_after_seconds: integer_in(options, "expireAfterSeconds"),
            collation: options.get_document("collation").ok().cloned(),
            ..CollectionFacts::default()
        }),
    }
}

async fn look(deployment: &Deployment, namespace: &Namespace, listed: CollectionFacts) -> Seen {
    match look_closer(deployment, namespace, listed).await {
        Ok(facts) => Seen::Collection(facts),
        // It was dropped since it was listed.
        Err(cause) if error::code(&cause) == Some(26) => Seen::Missing,
        Err(cause) => {
            let needed =
                if error::code(&cause) == Some(13) { "; the user needs `find` and `listIndexes` on this collection" } else { "" };
            let why = error::explain(&cause);
            Seen::Unreadable { error: format!("looking at `{namespace}`: {why}{needed}; nothing was deleted there") }
        }
    }
}

/// Looks at the buckets of a time-series collection.
async fn look_behind(deployment: &Deployment, namespace: &Namespace, listed: TimeSeriesFacts) -> Seen {
    if listed.buckets.is_none() {
        return Seen::TimeSeries(listed);
    }
    let buckets = namespace.buckets();
    let unreadable = |cause: &Error, needed: String| {
        let why = error::explain(cause);
        Seen::Unreadable { error: format!("looking at `{buckets}`: {why}{needed}; nothing was deleted there") }
    };
    match look_at_buckets(deployment, namespace, &buckets).await {
        Ok(facts) => Seen::TimeSeries(TimeSeriesFacts { buckets: Some(facts), ..listed }),
        Err(cause) if error::code(&cause) == Some(13) => unreadable(&cause, format!("; {}", buckets::grant(&buckets))),
        Err(cause) => unreadable(&cause, String::new()),
    }
}

async fn look_at_buckets(deployment: &Deployment, namespace: &Namespace, buckets: &Namespace) -> Result<CollectionFacts> {
    let document_count = count(deployment, buckets).await?;
    let average_bytes = if document_count == 0 { None } else { stats(deployment, namespace).await? };
    let of_buckets = |stats: &Document| integer_in(stats.get_document("timeseries").ok()?, "avgBucketSize");
    let average_bytes = average_bytes.as_ref().and_then(of_buckets).map(|n| n as f64);
    Ok(CollectionFacts { document_count, average_bytes, ..CollectionFacts::default() })
}

async fn look_closer(deployment: &Deployment, namespace: &Namespace, listed: CollectionFacts) -> Result<CollectionFacts> {
    // Not the driver's typed call: it loses the options of an index whenever one of them has an unusual type.
    let indexes = Query::listing(&namespace.database, doc! { "listIndexes": &namespace.collection }).all(deployment).await?;
    let document_count = count(deployment, namespace).await?;
    let stats = if document_count == 0 { None } else { stats(deployment, namespace).await? };
    let average_bytes = stats.and_then(|stats| integer_in(&stats, "avgObjSize")).map(|n| n as f64);
    let shard_key = shard_key(deployment, namespace).await?;
    let indexes = indexes.iter().filter_map(index).collect();
    Ok(CollectionFacts { document_count, average_bytes, indexes, shard_key, ..listed })
}

/// The paths of the shard key; none where the collection is not sharded or the deployment does not say.
///
/// Sources: MongoDB manual, "Config Database"; Microsoft, "Use MongoDB extension commands to manage data", GetCollection.
async fn shard_key(deployment: &Deployment, namespace: &Namespace) -> Result<Vec<String>> {
    let facts = &deployment.facts;
    let asked = match facts.capabilities.shard_keys {
        ShardKeys::ByGetCollection => {
            let command = doc! { "customAction": "GetCollection", "collection": &namespace.collection };
            let reply = deployment.run(&namespace.database, command).await;
            reply.map(|reply| reply.get_document("shardKeyDefinition").ok().cloned())
        }
        ShardKeys::InConfig if facts.topology == Topology::Sharded => {
            let collections = Namespace { database: "config".into(), collection: "collections".into() };
            let entry = Query::find(&collections, doc! { "_id": namespace.to_string(), "dropped": { "$ne": true } });
            let entry = entry.limit(1).read_preference(ReadPreference::ConnectionString).first_batch(deployment).await;
            entry.map(|entry| entry.first().and_then(|entry| entry.get_document("key").ok().cloned()))
        }
        ShardKeys::InConfig | ShardKeys::Unseen => return Ok(Vec::new()),
    };
    match asked {
        Ok(key) => Ok(key.unwrap_or_default().keys().cloned().collect()),
        // Deletes then go to every shard, and are as right.
        Err(cause) if is_refusal(&cause) => Ok(Vec::new()),
        Err(cause) => Err(cause),
    }
}

/// The collection's own count of its documents.
pub async fn count(deployment: &Deployment, namespace: &Namespace) -> Result<u64> {
    let reply = deployment.run(&namespace.database, doc! { "count": &namespace.collection }).await?;
    Ok(count_in(&reply, "n").unwrap_or(0))
}

/// What collStats says; `None` where the user may not ask.
async fn stats(deployment: &Deployment, namespace: &Namespace) -> Result<Option<Document>> {
    match deployment.run(&namespace.database, doc! { "collStats": &namespace.collection }).await {
        Ok(stats) => Ok(Some(stats)),
        Err(cause) if is_refusal(&cause) => Ok(None),
        Err(cause) => Err(cause),
    }
}

/// Whether the server says that it does not do this, or not for this user.
fn is_refusal(cause: &Error) -> bool {
    matches!(error::code(cause), Some(13 | 59 | 115))
}

pub fn index(spec: &Document) -> Option<IndexFacts> {
    Some(IndexFacts {
        name: spec.get_str("name").ok()?.to_owned(),
        key: spec.get_document("key").ok()?.iter().map(|(name, direction)| (name.clone(), direction.clone())).collect(),
        partial: spec.get_document("partialFilterExpression").ok().cloned(),
        hidden: spec.get_bool("hidden").unwrap_or(false),
        sparse: spec.get_bool("sparse").unwrap_or(false),
        collation: spec.get_document("collation").ok().cloned(),
        expire_after_seconds: spec.get("expireAfterSeconds").cloned(),
    })
}

fn unlistable(database: &str, cause: &Error) -> String {
    let why = error::explain(cause);
    let hint = if error::code(cause) == Some(13) { "; the user needs `listCollections` on this database" } else { "" };
    format!("listing the collections of `{database}`: {why}{hint}; nothing was deleted there")
}
