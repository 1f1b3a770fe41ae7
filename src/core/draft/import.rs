//! Policy made from native TTL settings, whose rules delete what the server deletes.

use std::collections::{BTreeMap, BTreeSet};

use bson::{Bson, DateTime, Document};

use super::yaml::{comment, quoted, text, value};
use crate::base::instant::rfc3339;
use crate::base::text::clean;
use crate::core::draft::Draft;
use crate::core::facts::{Catalog, Collection, CollectionKind, IdleReason, NativeTtl, Scope, ServerFacts};
use crate::core::plan::index::is_same_collation;
use crate::core::policy::namespace::Namespace;
use crate::core::policy::{Rule, parse};

/// The deployment that the settings come from.
pub struct ImportSource<'a> {
    /// The connection string without user, password and options.
    pub uri: &'a str,
    pub at: DateTime,
    pub server: &'a ServerFacts,
}

/// A policy, as text.
pub struct Imported {
    /// The text; [`parse::parse`] does not accept it if `rules` is 0.
    pub policy: String,
    pub rules: usize,
    /// One sentence for each setting that did not become a rule, with the reason.
    pub left_out: Vec<String>,
    /// One sentence for each thing that a person should know before the first sweep. Such are rules that damage GridFS files as
    /// the server does, and settings by which the server deletes nothing, although the rule does.
    pub warnings: Vec<String>,
}

/// A rule without its name.
struct RuleDraft<'a> {
    collection: &'a Collection,
    ttl: NativeTtl,
    body: String,
}

/// Writes the policy that deletes what the server deletes by these settings. Parses each rule again, and leaves it out if it does
/// not mean the same.
pub fn policy(source: &ImportSource, catalog: &Catalog) -> Imported {
    let mut drafts = Vec::new();
    let mut left_out = Vec::new();
    for collection in &catalog.collections {
        for ttl in collection.ttl() {
            match draft(collection, &ttl) {
                Ok(body) => drafts.push(RuleDraft { collection, ttl, body }),
                Err(why) => {
                    let index = ttl.index.as_ref().map(|name| format!(", index {}", quoted(name))).unwrap_or_default();
                    left_out.push(format!("{}{index}: {why}", text(&collection.namespace.to_string())));
                }
            }
        }
    }
    let mut policy = head(source);
    let at_rest = source.server.ttl_monitor.why_off();
    let mut warnings: Vec<String> = at_rest
        .map(|why| format!("{why}, so that it deletes nothing at present; a sweep by these rules does"))
        .into_iter()
        .collect();
    policy.extend(warnings.iter().map(|why| format!("  # Careful: {}\n", comment(why))));
    for (draft, name) in drafts.iter().zip(names(&drafts)) {
        policy.push_str(&format!("\n  # {}\n", comment(&origin(draft, source.server.local_time))));
        for why in cautions(draft, source.server) {
            policy.push_str(&format!("  # Careful: {}\n", comment(&why)));
            warnings.push(why);
        }
        policy.push_str("  - ");
        policy.extend(name.map(|name| format!("name: {}\n    ", text(&name))));
        policy.push_str(&draft.body);
    }
    for (title, lines) in [("Left out", &left_out), ("Not looked at", &catalog.unreadable)] {
        if !lines.is_empty() {
            policy.push_str(&format!("\n# {title}:\n"));
            policy.extend(lines.iter().map(|line| format!("# - {}\n", comment(line))));
        }
    }
    Imported { policy, rules: drafts.len(), left_out, warnings }
}

/// Says what a person should know of a rule before the first sweep.
fn cautions(draft: &RuleDraft, server: &ServerFacts) -> Vec<String> {
    let RuleDraft { collection, ttl, .. } = draft;
    let name = || text(&collection.namespace.to_string());
    let idle = ttl.idle(collection, server).filter(|idle| idle.reason != IdleReason::MonitorOff);
    let idle = idle.map(|idle| format!("{}: {}; a sweep by this rule does delete", name(), idle.detail));
    let is_series = matches!(collection.kind, CollectionKind::TimeSeries(_));
    let of_buckets = ttl.index.as_ref().filter(|_| is_series && ttl.partial.is_none()).map(|index| {
        format!(
            "{}: the index {} is of the buckets themselves, which `sweeper native` cannot set: its diff calls the index extra and the rule missing",
            name(),
            quoted(index)
        )
    });
    of_bucket(&collection.namespace).into_iter().chain(idle).chain(of_buckets).collect()
}

/// Says what TTL does to a GridFS bucket, if the collection is one of a bucket by its name: the server knows nothing of files and
/// chunks.
fn of_bucket(namespace: &Namespace) -> Option<String> {
    let name = text(&namespace.to_string());
    if let Some(bucket) = namespace.collection.strip_suffix(".files") {
        return Some(format!(
            "{name}: if these are the files of a GridFS bucket, TTL leaves their chunks behind, and so does this rule; with `gridfs: {}` it deletes both",
            text(bucket)
        ));
    }
    let bucket = namespace.collection.strip_suffix(".chunks")?;
    Some(format!(
        "{name}: if these are the chunks of a GridFS bucket, TTL deletes parts of files that are still there, and so does this rule; drop it, and write one for the files with `gridfs: {}`",
        text(bucket)
    ))
}

fn head(source: &ImportSource) -> String {
    let server = source.server;
    let expect =
        server.set_name.as_ref().map(|name| format!("  expect: {{replicaSet: {}}}  # refuse to run anywhere else\n", text(name)));
    let expect = expect.unwrap_or_default();
    let set = server.set_name.as_ref().map(|name| format!(", replica set {}", text(name))).unwrap_or_default();
    format!(
        "# Written by `sweeper import` on {at} from {uri}: {product} {version}{set}.\n\
         # Each rule deletes what the server deletes by the setting above it, unless a line there says otherwise. The server's TTL stays active too; that does no harm.\n\
         # Look with `sweeper sweep --dry-run` before the first sweep.\n\
         # With this line, editors complete the file, once `sweeper schema -o sweeper.schema.json` was run in its directory:\n\
         # yaml-language-server: $schema=sweeper.schema.json\n\
         version: 1\n\
         connection:\n  uri: ${{MONGODB_URI}}\n{expect}\
         defaults:\n  maxDeletePercent: {percent}  # refuse where more of a collection would go\n\
         collections:\n",
        percent = Draft::PERCENT,
        at = rfc3339(source.at),
        uri = comment(source.uri),
        product = server.flavor.product(),
        version = comment(&server.version),
    )
}

/// Names the setting that a rule was made from, and explains how the server treats it if that is not obvious.
fn origin(draft: &RuleDraft, now: DateTime) -> String {
    let largest = draft.ttl.by_largest(now).map(|what| format!("; {what}")).unwrap_or_default();
    let hidden = if draft.ttl.hidden { ", hidden: the server deletes by it all the same" } else { "" };
    let index = draft.ttl.index.as_ref().map(|name| format!("TTL index {}{hidden}", quoted(name)));
    let origin = match &draft.collection.kind {
        // Microsoft, "Time to live": custom TTL.
        CollectionKind::CosmosRu => format!(
            "{} on an account with EnableTtlOnCustomPath; the service also expires numbers in this field, as milliseconds since 1970, \
             and this rule only dates",
            index.unwrap_or_default()
        ),
        CollectionKind::TimeSeries(series) => {
            let span = series.bucket_max_span_seconds.map(|seconds| format!(" ({seconds} s)")).unwrap_or_default();
            format!(
                "{}time-series collection; the server keeps a bucket for another bucketMaxSpanSeconds{span}, \
                 sweeper until its last measurement has expired, which can be earlier",
                index.map(|index| format!("{index} of a ")).unwrap_or_default()
            )
        }
        _ => index.unwrap_or_else(|| "clustered collection, expireAfterSeconds of its `_id`".to_owned()),
    };
    origin + &largest
}

/// Writes the keys of a rule except its name, the first one without its indentation.
///
/// Errors: the reason why the setting cannot become a rule.
fn draft(collection: &Collection, ttl: &NativeTtl) -> Result<String, String> {
    let namespace = collection.namespace.to_string();
    if collection.kind == CollectionKind::Capped {
        return Err("sweeper does not sweep capped collections".into());
    }
    if namespace.contains('*') {
        return Err("a `*` in its name would stand for other collections as well".into());
    }
    if ttl.scope == Scope::LastChange {
        return Err(by_last_change(ttl));
    }
    let (field, seconds) = ttl.deletes_after()?;
    if let CollectionKind::TimeSeries(series) = &collection.kind
        && field != series.time_field
    {
        return Err(format!("sweeper sweeps a time-series collection only by its timeField `{}`", series.time_field));
    }
    let mut body = format!("namespace: {}\n    field: {}\n    expireAfterSeconds: {seconds}\n", text(&namespace), text(field));
    let mut collation = None;
    if let Some(partial) = &ttl.partial {
        body.push_str(&format!("    filter: {}\n", value(&Bson::Document(partial.clone()))));
        // Without `collation` a rule compares the strings in its filter by the collection's collation, not by the collation of
        // the index.
        collation = needed_collation(collection, ttl);
        let written = collation.iter().map(|collation| format!("    collation: {}\n", value(&Bson::Document(collation.clone()))));
        body.extend(written);
    }
    let rule = read_back(&body)?;
    let as_meant = !rule.namespace.is_glob()
        && rule.namespace.to_string() == namespace
        && rule.field.as_deref() == Some(field)
        && rule.expire_after_seconds == Some(seconds)
        && bytes(rule.filter.as_ref()) == bytes(ttl.partial.as_ref())
        && bytes(rule.collation.as_ref()) == bytes(collation.as_ref());
    if as_meant { Ok(body) } else { Err("a policy cannot hold its names or its filter as they are".into()) }
}

/// Names what the service does by an index on `_ts`, which no sweep can do.
fn by_last_change(ttl: &NativeTtl) -> String {
    let deletes = match ttl.value() {
        Some(-1) => "the service deletes documents by their own `ttl`".to_owned(),
        Some(seconds) => format!("the service deletes documents {seconds} s, or their own `ttl`, after their last change"),
        None => "its expireAfterSeconds is not a number".to_owned(),
    };
    format!(
        "{deletes}; clients cannot see the time of the last change, so no sweep can do the same: `sweeper native` sets it by a rule with `field: _ts`"
    )
}

/// Returns the collation that a rule has to name so that its filter means the same as in the index.
fn needed_collation(collection: &Collection, ttl: &NativeTtl) -> Option<Document> {
    if is_same_collation(ttl.collation.as_ref(), collection.collation.as_ref()) {
        return None;
    }
    let mut collation = ttl.collation.clone().unwrap_or_else(|| bson::doc! { "locale": "simple" });
    // The version names the library that built the index; a server with another library would refuse it.
    collation.remove("version");
    Some(collation)
}

fn read_back(body: &str) -> Result<Rule, String> {
    let policy = parse::parse("", &format!("version: 1\ncollections:\n  - {body}"), &|_| None, true);
    let mut policy = policy.map_err(|error| error.problems.into_iter().map(|(_, why)| why).next().unwrap_or_default())?;
    Ok(policy.rules.remove(0))
}

/// Returns a document as bytes, for comparisons that respect types and the order of keys, which matters in sub-documents.
fn bytes(document: Option<&Document>) -> Option<Vec<u8>> {
    document.and_then(|document| bson::serialize_to_vec(document).ok())
}

/// Returns a unique name for each rule that shares its namespace with another one; the others need none.
fn names(drafts: &[RuleDraft]) -> Vec<Option<String>> {
    let mut shared: BTreeMap<String, usize> = BTreeMap::new();
    for draft in drafts {
        *shared.entry(draft.collection.namespace.to_string()).or_default() += 1;
    }
    let mut taken: BTreeSet<String> = shared.keys().cloned().collect();
    let name = |draft: &RuleDraft| {
        let namespace = draft.collection.namespace.to_string();
        if shared[&namespace] == 1 {
            return None;
        }
        let index = clean(draft.ttl.index.as_deref().unwrap_or("collection"));
        let wanted = format!("{namespace} {}", index.trim());
        let mut name = wanted.clone();
        let mut number = 1;
        while !taken.insert(name.clone()) {
            number += 1;
            name = format!("{wanted} {number}");
        }
        Some(name)
    };
    drafts.iter().map(name).collect()
}
