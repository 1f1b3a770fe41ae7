//! Reads the native TTL settings of a deployment.

use bson::{Bson, Document, doc};
use futures_util::{StreamExt, TryStreamExt, stream};
use mongodb::error::{Error, Result};

use super::connect::number;
use super::{Deployment, error, inspect};
use crate::facts::IndexFacts;
use crate::native::{Catalog, Collection, Kind};
use crate::policy::namespace::{Namespace, NamespacePattern, glob, why_never_swept};

/// Collections that are looked at at the same time.
const AT_ONCE: usize = 8;

/// Reads the settings of every collection that a pattern matches and the user may see; what belongs to the server is left out.
///
/// Errors: the databases cannot be listed. What else cannot be looked at is part of the catalog.
pub async fn catalog(deployment: &Deployment, patterns: &[NamespacePattern]) -> Result<Catalog> {
    let names = deployment.client.list_database_names().authorized_databases(true).await?;
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
    let command = deployment.marked(doc! { "listCollections": 1 });
    let cursor = deployment.client.database(database).run_cursor_command(command).await?;
    let entries: Vec<Document> = cursor.try_collect().await?;
    let mut collections: Vec<Collection> = entries
        .iter()
        .filter_map(|entry| {
            let options = entry.get_document("options").cloned().unwrap_or_default();
            Some(Collection {
                namespace: Namespace { database: database.to_owned(), collection: entry.get_str("name").ok()?.to_owned() },
                kind: kind(entry.get_str("type").unwrap_or("collection"), &options),
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
            bucket_max_span_seconds: number(series, "bucketMaxSpanSeconds"),
        },
        _ if options.get_bool("capped").unwrap_or(false) => Kind::Capped,
        _ if !matches!(options.get("clusteredIndex"), None | Some(Bson::Boolean(false))) => Kind::Clustered,
        _ => Kind::Plain,
    }
}

async fn list_indexes(deployment: &Deployment, namespace: &Namespace) -> Result<Vec<IndexFacts>> {
    // Not the driver's typed call: it loses the options of an index whenever one of them has an unusual type.
    let command = deployment.marked(doc! { "listIndexes": &namespace.collection });
    let specs: Vec<Document> = deployment.database(namespace).run_cursor_command(command).await?.try_collect().await?;
    Ok(specs.iter().filter_map(inspect::index).collect())
}

fn unreadable(what: &str, action: &str, cause: &Error) -> String {
    let needed = if error::code(cause) == Some(13) { format!("; the user needs `{action}` there") } else { String::new() };
    format!("listing {what}: {}{needed}", error::explain(cause))
}
