//! The catalog of a deployment: its databases, its collections with their options, and their indexes. Nothing else in the program
//! lists them.

mod entries;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, Document, Uuid, doc};
use futures_util::{StreamExt, stream};

use super::{fields, figures, privileges};
use crate::core::facts::{Catalog, Collection, CollectionKind, Figures, NamespaceFacts, SeenChild, SeenField, Target};
use crate::core::policy::namespace::{Namespace, NamespacePattern, glob, why_never_swept};
use crate::core::policy::{Child, Rule};
use crate::shell::server::wire::codes;
use crate::shell::server::wire::error::Result;
use crate::shell::server::wire::find::Query;
use crate::shell::server::{Deployment, MAX_CONCURRENT_READS};
pub(crate) use entries::uuid;
use entries::{ListedUuids, index, read};

/// Time to find a document with the field that names its parent; an index finds one at once.
const MAX_FIELD_LOOK: Duration = Duration::from_secs(5);

/// The collections of each database, or the reason why they cannot be listed.
type Listings = BTreeMap<String, std::result::Result<Vec<Collection>, String>>;

/// Reads the collections that a pattern matches, with their indexes.
///
/// Errors: the databases cannot be listed although a pattern has a `*` in its database. Anything else that cannot be read is
/// listed in the catalog as unreadable.
pub(crate) async fn catalog(deployment: &Deployment, patterns: &[&NamespacePattern]) -> Result<Catalog> {
    let mut catalog = Catalog::default();
    let mut found = Vec::new();
    for listing in listings(deployment, patterns).await?.into_values() {
        match listing {
            Ok(listed) => found
                .extend(listed.into_iter().filter(|listed| patterns.iter().any(|pattern| pattern.matches(&listed.namespace)))),
            Err(why) => catalog.unreadable.push(why),
        }
    }
    let reads = stream::iter(found).map(|collection| async move {
        let namespace = collection.namespace.clone();
        with_indexes(deployment, collection).await.map_err(|cause| {
            let refused = privileges::explain(&cause, &namespace, &["listIndexes"]);
            format!("listing the indexes of `{namespace}`: {refused}")
        })
    });
    for read in reads.buffered(MAX_CONCURRENT_READS).collect::<Vec<_>>().await {
        match read {
            Ok(collection) => catalog.collections.extend(collection),
            Err(why) => catalog.unreadable.push(why),
        }
    }
    Ok(catalog)
}

/// Finds the namespaces that each rule stands for and reads the selected ones; in the order of the rules, then by name.
///
/// A namespace that cannot be read is reported as such and does not keep the others from being read.
///
/// Errors: the databases cannot be listed although a rule has a `*` in its database.
pub(crate) async fn targets(
    deployment: &Deployment,
    rules: &[&Rule],
    is_selected: impl Fn(&Rule, &Namespace) -> bool,
) -> Result<Vec<Target>> {
    let patterns: Vec<_> = rules.iter().filter(|rule| rule.enabled).map(|rule| &rule.namespace).collect();
    let listings = listings(deployment, &patterns).await?;
    let found =
        rules.iter().flat_map(|rule| namespaces(rule, &listings).into_iter().map(|(namespace, seen)| (*rule, namespace, seen)));
    let selected = found.filter(|(rule, namespace, _)| is_selected(rule, namespace));
    let targets = stream::iter(selected.collect::<Vec<_>>()).map(|(rule, namespace, seen)| async move {
        let seen = match seen {
            NamespaceFacts::Collection(listed, _) => look(&deployment.charged_to(&rule.name, &namespace), *listed).await,
            other => other,
        };
        let children = match (&rule.family, &seen) {
            (Some(family), NamespaceFacts::Collection(..)) => {
                children(&deployment.charged_to(&rule.name, &namespace), &namespace, &family.children).await
            }
            _ => Vec::new(),
        };
        Target { rule: rule.clone(), namespace, seen, children }
    });
    Ok(targets.buffered(MAX_CONCURRENT_READS).collect().await)
}

/// Looks at the collections of children of a collection.
async fn children(deployment: &Deployment, parents: &Namespace, children: &[Child]) -> Vec<SeenChild> {
    let mut seen = Vec::new();
    for child in children {
        let looked = match collection(deployment, &child.namespace).await {
            Ok(Some(listed)) => with_size(deployment, look(deployment, listed).await).await,
            Ok(None) => NamespaceFacts::Missing,
            Err(cause) => {
                let why = privileges::explain(&cause, &child.namespace, &["listCollections"]);
                NamespaceFacts::Unreadable {
                    error: format!("looking for `{}`: {why}; nothing was deleted there", child.namespace),
                }
            }
        };
        let (field, parent_field) = match &looked {
            NamespaceFacts::Collection(..) => {
                (field(deployment, &child.namespace, &child.field).await, field(deployment, parents, &child.parent_field).await)
            }
            _ => Default::default(),
        };
        seen.push(SeenChild { child: child.clone(), seen: looked, field, parent_field });
    }
    seen
}

/// Adds the size to what was seen of a collection of children.
async fn with_size(deployment: &Deployment, seen: NamespaceFacts) -> NamespaceFacts {
    let NamespaceFacts::Collection(collection, figures) = seen else { return seen };
    match figures::size(deployment, &collection.namespace, figures.document_count).await {
        Ok(size) => NamespaceFacts::Collection(collection, Figures { size: size.unwrap_or(figures.size), ..figures }),
        Err(cause) => {
            let why = privileges::explain(&cause, &collection.namespace, &["collStats"]);
            NamespaceFacts::Unreadable { error: format!("looking at `{}`: {why}", collection.namespace) }
        }
    }
}

/// Looks for a field in a collection. The `_id`, which every document has, is not looked for.
async fn field(deployment: &Deployment, namespace: &Namespace, path: &str) -> SeenField {
    if path == "_id" {
        return SeenField::default();
    }
    let with_field = Query::find(namespace, doc! { path: { "$exists": true } }).projection(doc! { "_id": 1 }).limit(1);
    let found = with_field.max_time(Some(MAX_FIELD_LOOK)).first_batch(deployment).await;
    let is_found = found.ok().map(|found| !found.is_empty());
    let similar = match is_found {
        // Without such a name the finding is the same.
        Some(false) => fields::similar_in(deployment, namespace, path).await.unwrap_or_default(),
        _ => None,
    };
    SeenField { is_found, similar }
}

/// Reads one collection, without its indexes; `None` if it is missing.
pub(crate) async fn collection(deployment: &Deployment, namespace: &Namespace) -> Result<Option<Collection>> {
    let entry = entry(deployment, namespace).await?;
    Ok(entry.and_then(|entry| read(deployment, &namespace.database, &entry, &ListedUuids::new())))
}

/// Returns the entry of listCollections for one namespace; `None` if it is missing.
pub(crate) async fn entry(deployment: &Deployment, namespace: &Namespace) -> Result<Option<Document>> {
    let command = doc! { "listCollections": 1, "filter": { "name": &namespace.collection } };
    Ok(Query::listing(&namespace.database, command).all(deployment).await?.into_iter().next())
}

/// Returns the name of the collection of a database that has a UUID; `None` if none has.
pub(crate) async fn name_of(deployment: &Deployment, database: &str, sought: Uuid) -> Result<Option<String>> {
    let entries = Query::listing(database, doc! { "listCollections": 1 }).all(deployment).await?;
    let found = entries.iter().find(|entry| uuid(entry) == Some(sought));
    Ok(found.and_then(|entry| entry.get_str("name").ok()).map(str::to_owned))
}

/// Returns the entries of listIndexes; `None` if there is no such collection, because it was dropped or replaced by a view since
/// it was listed.
pub(crate) async fn index_entries(deployment: &Deployment, namespace: &Namespace) -> Result<Option<Vec<Document>>> {
    // The driver's typed call loses the options of an index whenever one of them has an unusual type.
    match Query::listing(&namespace.database, doc! { "listIndexes": &namespace.collection }).all(deployment).await {
        Ok(entries) => Ok(Some(entries)),
        Err(cause) if matches!(cause.code(), Some(codes::NAMESPACE_NOT_FOUND | codes::COMMAND_NOT_SUPPORTED_ON_VIEW)) => Ok(None),
        Err(cause) => Err(cause),
    }
}

/// Lists the collections of every database that a pattern can mean.
async fn listings(deployment: &Deployment, patterns: &[&NamespacePattern]) -> Result<Listings> {
    let databases = databases(deployment, patterns).await?;
    let listings = stream::iter(databases).map(|database| async move {
        let listed = list(deployment, &database, names(patterns, &database)).await.map_err(|cause| {
            let namespace = Namespace { database: database.clone(), collection: String::new() };
            let refused = privileges::explain(&cause, &namespace, &["listCollections"]);
            format!("listing the collections of `{database}`: {refused}")
        });
        (database, listed)
    });
    Ok(listings.buffered(MAX_CONCURRENT_READS).collect().await)
}

/// Returns the databases that the patterns can mean; asks the server only for patterns with a `*`.
async fn databases(deployment: &Deployment, patterns: &[&NamespacePattern]) -> Result<BTreeSet<String>> {
    let (globs, exact): (Vec<&str>, Vec<&str>) =
        patterns.iter().map(|pattern| pattern.database.as_str()).partition(|name| name.contains('*'));
    let mut databases: BTreeSet<String> = exact.into_iter().map(str::to_owned).collect();
    if !globs.is_empty() {
        let command = doc! { "listDatabases": 1, "nameOnly": true, "authorizedDatabases": true };
        let reply = deployment.read("admin", command).await?;
        let listed = reply.get_array("databases").into_iter().flatten().filter_map(Bson::as_document);
        let names = listed.filter_map(|database| database.get_str("name").ok());
        let matching =
            names.filter(|name| globs.iter().any(|pattern| glob(pattern, name)) && why_never_swept(name, "").is_none());
        databases.extend(matching.map(str::to_owned));
    }
    Ok(databases)
}

/// Returns the names that the patterns give for collections of a database; `None` if one has a `*`, so that all are needed.
fn names(patterns: &[&NamespacePattern], database: &str) -> Option<Vec<String>> {
    let patterns = patterns.iter().filter(|pattern| glob(&pattern.database, database));
    let names: Option<Vec<&str>> =
        patterns.map(|pattern| (!pattern.collection.contains('*')).then_some(pattern.collection.as_str())).collect();
    // The same listing shows whether there are buckets behind a name.
    names.map(|names| names.iter().flat_map(|name| [(*name).to_owned(), format!("{}{name}", Namespace::BUCKETS)]).collect())
}

/// Lists the collections of a database by name, without their indexes and without those that belong to the server.
async fn list(deployment: &Deployment, database: &str, names: Option<Vec<String>>) -> Result<Vec<Collection>> {
    let filter = names.map_or_else(Document::new, |names| doc! { "name": { "$in": names } });
    let entries = Query::listing(database, doc! { "listCollections": 1, "filter": filter }).all(deployment).await?;
    let listed: ListedUuids = entries.iter().filter_map(|entry| Some((entry.get_str("name").ok()?, uuid(entry)))).collect();
    let collections = entries.iter().filter_map(|entry| read(deployment, database, entry, &listed));
    let mut collections: Vec<Collection> =
        collections.filter(|found| why_never_swept(database, &found.namespace.collection).is_none()).collect();
    collections.sort_unstable_by(|a, b| a.namespace.cmp(&b.namespace));
    Ok(collections)
}

/// Adds the indexes to a listed collection; `None` if it has been dropped since.
async fn with_indexes(deployment: &Deployment, collection: Collection) -> Result<Option<Collection>> {
    if collection.kind == CollectionKind::View {
        return Ok(Some(collection));
    }
    let Some(entries) = index_entries(deployment, &collection.namespace).await? else { return Ok(None) };
    let mut collection = Collection { indexes: entries.iter().filter_map(index).collect(), ..collection };
    let with_ttl = !collection.ttl().is_empty();
    let buckets = collection.storage();
    if let CollectionKind::TimeSeries(series) = &mut collection.kind
        && with_ttl
        && series.shows_buckets
    {
        series.extended_times = extended_times(deployment, &buckets).await;
    }
    Ok(Some(collection))
}

/// Tells whether a bucket has times before 1970 or after 2038; `None` if the user may not look.
///
/// The seconds in the `_id` of such a bucket have their first bit set. Times before 1902 and after 2106 wrap around and are not
/// seen, and neither are those in a bucket that begins before 2038. A mongod looks no closer when it opens a collection
/// (`src/mongo/db/timeseries/timeseries_extended_range.cpp`).
async fn extended_times(deployment: &Deployment, buckets: &Namespace) -> Option<bool> {
    let mut first = [0; 12];
    first[0] = 0x80;
    let find = Query::find(buckets, doc! { "_id": { "$gte": ObjectId::from_bytes(first) } });
    let found = find.projection(doc! { "_id": 1 }).limit(1).all(deployment).await;
    found.ok().map(|found| !found.is_empty())
}

/// Returns the namespaces of a rule, with the results of the listing.
fn namespaces(rule: &Rule, listings: &Listings) -> Vec<(Namespace, NamespaceFacts)> {
    let pattern = &rule.namespace;
    let as_written = Namespace { database: pattern.database.clone(), collection: pattern.collection.clone() };
    if !rule.enabled {
        return vec![(as_written, NamespaceFacts::NotLookedFor)];
    }
    let mut found = Vec::new();
    for (database, listing) in listings.iter().filter(|(database, _)| glob(&pattern.database, database)) {
        match listing {
            Err(why) => {
                let namespace = Namespace { database: database.clone(), collection: pattern.collection.clone() };
                found.push((namespace, NamespaceFacts::Unreadable { error: why.clone() }));
            }
            Ok(listed) => {
                let meant = listed.iter().filter(|listed| rule.stands_for(&listed.namespace)).cloned();
                found.extend(
                    meant.map(|listed| {
                        (listed.namespace.clone(), NamespaceFacts::Collection(Box::new(listed), Figures::default()))
                    }),
                );
            }
        }
    }
    if found.is_empty() {
        found.push((as_written, NamespaceFacts::Missing));
    }
    found
}

/// Reads everything that a sweep needs to know about a listed collection.
async fn look(deployment: &Deployment, listed: Collection) -> NamespaceFacts {
    // Buckets are found along their `_id`, regardless of the indexes.
    let is_series = matches!(listed.kind, CollectionKind::TimeSeries(_));
    let needed = if is_series { ["find", "remove"] } else { ["find", "listIndexes"] };
    let storage = listed.storage();
    match look_closer(deployment, listed, is_series).await {
        Ok(Some((collection, figures))) => NamespaceFacts::Collection(Box::new(collection), figures),
        Ok(None) => NamespaceFacts::Missing,
        Err(cause) => {
            let why = privileges::explain(&cause, &storage, &needed);
            NamespaceFacts::Unreadable { error: format!("looking at `{storage}`: {why}") }
        }
    }
}

/// Reads the indexes and the figures of a listed collection; `None` if the collection was dropped since it was listed.
async fn look_closer(deployment: &Deployment, listed: Collection, is_series: bool) -> Result<Option<(Collection, Figures)>> {
    let collection = match with_indexes(deployment, listed.clone()).await {
        // A sweep finds buckets by their `_id`; the indexes only show what the server's own TTL does.
        Err(cause) if is_series && cause.is_unauthorized() => Some(listed),
        read => read?,
    };
    let Some(collection) = collection else { return Ok(None) };
    match figures::of(deployment, &collection).await {
        Ok(figures) => Ok(Some((collection, figures))),
        Err(cause) if cause.has_code(codes::NAMESPACE_NOT_FOUND) => Ok(None),
        Err(cause) => Err(cause),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::server::wire::error::ServerError;
    use crate::testing::scripted::{Script, ScriptedReply};

    #[tokio::test]
    async fn a_collection_that_is_gone_since_it_was_listed_has_no_indexes_to_read() {
        let namespace = Namespace { database: "app".into(), collection: "c".into() };
        for (code, is_gone) in
            [(codes::NAMESPACE_NOT_FOUND, true), (codes::COMMAND_NOT_SUPPORTED_ON_VIEW, true), (codes::UNAUTHORIZED, false)]
        {
            let script = Script::new([ScriptedReply::Error(ServerError::reported(code, "no", ""))]);
            let read = index_entries(&script.deployment(), &namespace).await;
            assert_eq!(matches!(read, Ok(None)), is_gone, "{code}: {read:?}");
        }
    }
}
