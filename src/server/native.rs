//! Reads the native TTL settings of a deployment, and changes them.

use bson::{Bson, Document, doc};
use futures_util::{StreamExt, stream};
use super::error::{Result, ServerError as Error};

use super::find::Query;
use super::{Deployment, error, inspect};
use crate::expiry::Expiry;
use crate::facts::IndexFacts;
use crate::native::change::Change;
use crate::native::possible::Wanted;
use crate::native::{Catalog, Collection, Kind, Scope};
use crate::policy::DateFormat;
use crate::policy::namespace::{Namespace, NamespacePattern, glob, why_never_swept};
use crate::values::{count_in, integer_in};

/// Collections that are looked at at the same time.
const AT_ONCE: usize = 8;

/// Reads the settings of every collection that a pattern matches and the user may see; what belongs to the server is left out.
///
/// Errors: the databases cannot be listed. What else cannot be looked at is part of the catalog.
pub async fn catalog(deployment: &Deployment, patterns: &[NamespacePattern]) -> Result<Catalog> {
    let names = inspect::database_names(deployment).await?;
    let wanted =
        |name: &String| why_never_swept(name, "").is_none() && patterns.iter().any(|pattern| glob(&pattern.database, name));
    let mut names: Vec<String> = names.into_iter().filter(wanted).collect();
    names.sort_unstable();

    let mut catalog = Catalog::default();
    let mut found = Vec::new();
    for database in names {
        match list_collections(deployment, &database).await {
            Ok(listed) => {
                let is_meant = |collection: &Collection| {
                    let name = &collection.namespace;
                    why_never_swept(&name.database, &name.collection).is_none()
                        && patterns.iter().any(|pattern| pattern.matches(name))
                };
                found.extend(listed.into_iter().filter(is_meant));
            }
            Err(cause) => {
                catalog.unreadable.push(unreadable(&format!("the collections of `{database}`"), "listCollections", &cause))
            }
        }
    }
    let looks = stream::iter(found).map(|collection| async move {
        if collection.kind == Kind::View {
            return Ok(Some(collection));
        }
        match list_indexes(deployment, &collection.namespace).await {
            Ok(indexes) => Ok(Some(Collection { indexes, ..collection })),
            // It was dropped since it was listed.
            Err(cause) if error::code(&cause) == Some(26) => Ok(None),
            Err(cause) => Err(unreadable(&format!("the indexes of `{}`", collection.namespace), "listIndexes", &cause)),
        }
    });
    for looked in looks.buffered(AT_ONCE).collect::<Vec<std::result::Result<_, String>>>().await {
        match looked {
            Ok(collection) => catalog.collections.extend(collection),
            Err(why) => catalog.unreadable.push(why),
        }
    }
    Ok(catalog)
}

/// By name; the indexes are still to be read.
async fn list_collections(deployment: &Deployment, database: &str) -> Result<Vec<Collection>> {
    let entries = Query::listing(database, doc! { "listCollections": 1 }).all(deployment).await?;
    let mut collections: Vec<Collection> = entries
        .iter()
        .filter_map(|entry| {
            let options = entry.get_document("options").cloned().unwrap_or_default();
            Some(Collection {
                namespace: Namespace { database: database.to_owned(), collection: entry.get_str("name").ok()?.to_owned() },
                kind: match kind(entry.get_str("type").unwrap_or("collection"), &options) {
                    Kind::Plain if deployment.facts.capabilities.ttl_by_last_change => Kind::CosmosRu,
                    kind => kind,
                },
                collation: options.get_document("collation").ok().cloned(),
                expire_after_seconds: options.get("expireAfterSeconds").cloned(),
                indexes: Vec::new(),
            })
        })
        .collect();
    collections.sort_unstable_by(|a, b| a.namespace.cmp(&b.namespace));
    Ok(collections)
}

fn kind(listed: &str, options: &Document) -> Kind {
    match (listed, options.get_document("timeseries")) {
        ("view", _) => Kind::View,
        ("timeseries", Ok(series)) => Kind::TimeSeries {
            time_field: series.get_str("timeField").unwrap_or_default().to_owned(),
            bucket_max_span_seconds: integer_in(series, "bucketMaxSpanSeconds"),
        },
        _ if options.get_bool("capped").unwrap_or(false) => Kind::Capped,
        _ if !matches!(options.get("clusteredIndex"), None | Some(Bson::Boolean(false))) => Kind::Clustered,
        _ => Kind::Plain,
    }
}

async fn list_indexes(deployment: &Deployment, namespace: &Namespace) -> Result<Vec<IndexFacts>> {
    // Not the driver's typed call: it loses the options of an index whenever one of them has an unusual type.
    let specs = Query::listing(&namespace.database, doc! { "listIndexes": &namespace.collection }).all(deployment).await?;
    Ok(specs.iter().filter_map(inspect::index).collect())
}

fn unreadable(what: &str, action: &str, cause: &Error) -> String {
    let needed = if error::code(cause) == Some(13) { format!("; the user needs `{action}` there") } else { String::new() };
    format!("listing {what}: {}{needed}", error::explain(cause))
}

/// What a setting would delete as soon as it is there, and how many documents there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AtOnce {
    pub expired: u64,
    pub documents: u64,
}

/// Counts the documents that have expired by a setting; `None` where it switches deleting off, or nobody can see by what it deletes.
pub async fn at_once(deployment: &Deployment, namespace: &Namespace, wanted: &Wanted) -> Result<Option<AtOnce>> {
    let Some(seconds) = wanted.seconds.and_then(|seconds| u32::try_from(seconds).ok()) else { return Ok(None) };
    if wanted.scope == Scope::LastChange {
        return Ok(None);
    }
    let expiry = Expiry {
        field: wanted.field.clone(),
        format: DateFormat::Date,
        expire_after_seconds: Some(seconds),
        ttl_field: None,
        not_before_1970: wanted.scope == Scope::Clustered && deployment.facts.clustered_keeps_before_1970(),
        filter: wanted.partial.clone(),
        as_of: deployment.facts.local_time,
    };
    let stages = vec![doc! { "$match": expiry.predicate() }, doc! { "$group": { "_id": 1, "n": { "$sum": 1 } } }];
    let collation = wanted.collation.as_ref().filter(|_| wanted.partial.is_some());
    let counted = Query::aggregate(namespace, stages).collation(collation).all(deployment).await?;
    let expired = counted.first().and_then(|counted| count_in(counted, "n")).unwrap_or(0);
    let all = deployment.run(&namespace.database, doc! { "count": &namespace.collection }).await?;
    Ok(Some(AtOnce { expired, documents: count_in(&all, "n").unwrap_or(expired) }))
}

/// Makes one change.
///
/// Errors: what the server said, what to do about it, and whether anything was changed.
pub async fn apply(deployment: &Deployment, change: &Change) -> std::result::Result<(), String> {
    let mut command = change.command.clone();
    command.insert("writeConcern", deployment.write_concern.clone());
    let Err(cause) = deployment.run(&change.namespace.database, command).await else {
        return Ok(());
    };
    let why = error::explain(&cause);
    if error::is_reply_lost(&cause) {
        return Err(format!("{why}; the reply was lost, so whether it was changed is not known: see `sweeper native diff`"));
    }
    let advice = error::code(&cause).and_then(|code| advice(code, change)).map(|advice| format!("; {advice}"));
    Err(format!("{why}{}; nothing was changed there", advice.unwrap_or_default()))
}

/// What to do about an error of the server.
fn advice(code: i32, change: &Change) -> Option<String> {
    let action = if change.new_index().is_some() { "createIndex" } else { "collMod" };
    let Namespace { database, collection } = &change.namespace;
    Some(match code {
        13 => format!(
            "the user needs `{action}` on this collection; grant: db.getSiblingDB(\"admin\").grantPrivilegesToRole(\"sweeper\", \
             [{{resource: {{db: {database:?}, collection: {collection:?}}}, actions: [{action:?}]}}])"
        ),
        67 => "the server makes no TTL index of this key or with these options; leave the rule to `sweeper sweep`".into(),
        72 => {
            "the server does not take this value or option here: a clustered or time-series collection takes at most the seconds \
               since 1970, `_id` and compound indexes take none"
                .into()
        }
        85 | 86 => {
            "an index with the same key or name and other options is in the way; drop it, or let the rule say what it says".into()
        }
        166 => "it is a view by now; name the collection behind it".into(),
        197 => "the index on `_id` takes no expireAfterSeconds; only a clustered collection does".into(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_server_come_with_what_to_do() {
        let namespace = Namespace { database: "app".into(), collection: "c".into() };
        let modify = Change { namespace: namespace.clone(), command: doc! { "collMod": "c", "expireAfterSeconds": 5 } };
        let create = Change { namespace, command: doc! { "createIndexes": "c", "indexes": [{ "name": "at_1" }] } };
        for (code, change, part) in [
            (13, &modify, "needs `collMod`"),
            (13, &create, "actions: [\"createIndex\"]"),
            (67, &create, "no TTL index of this key"),
            (72, &modify, "seconds since 1970"),
            (85, &create, "in the way"),
            (86, &create, "in the way"),
            (166, &modify, "a view"),
            (197, &create, "`_id`"),
        ] {
            let advice = advice(code, change).unwrap();
            assert!(advice.contains(part), "{code}: {advice}");
        }
        assert_eq!(advice(59, &modify), None);
    }
}
