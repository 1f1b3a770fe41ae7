//! Changes of native TTL settings, and the number of documents that a change would delete at once.

use bson::{Document, doc};

use crate::base::values::count_in;
use crate::core::expiry::Expiry;
use crate::core::facts::Scope;
use crate::core::native::change::Change;
use crate::core::native::target::TtlTarget;
use crate::core::plan::Selection;
use crate::core::policy::DateFormat;
use crate::core::policy::namespace::Namespace;
use crate::shell::server::Deployment;
use crate::shell::server::look::count::in_parts;
use crate::shell::server::look::sharding::{self, Sharding};
use crate::shell::server::look::{figures, privileges};
use crate::shell::server::wire::codes;
use crate::shell::server::wire::error::{Result, ServerError};
use crate::shell::server::wire::find::Query;
use crate::shell::server::wire::retry::Retries;
use crate::shell::server::wire::transport::ServerCommand;

/// Numbers of documents: those that a setting would delete as soon as it is made, and all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Affected {
    pub expired: u64,
    pub documents: u64,
}

/// Counts the documents that have expired by a setting; `None` if it switches deleting off, or if the date that decides is not
/// visible.
pub(crate) async fn affected(deployment: &Deployment, namespace: &Namespace, target: &TtlTarget) -> Result<Option<Affected>> {
    let Some(seconds) = target.seconds.and_then(|seconds| u32::try_from(seconds).ok()) else { return Ok(None) };
    if target.scope == Scope::LastChange {
        return Ok(None);
    }
    let expiry = Expiry {
        field: target.field.clone(),
        format: DateFormat::Date,
        expire_after_seconds: Some(seconds),
        ttl_field: None,
        not_before_1970: target.scope == Scope::Clustered && deployment.facts.clustered_keeps_before_1970(),
        checks_path: false,
        filter: target.partial.clone(),
        as_of: deployment.facts.local_time,
    };
    let mut predicate = expiry.predicate();
    if let (true, Some(threshold)) = (deployment.facts.capabilities.ttl_by_last_change, expiry.threshold()) {
        // Microsoft, "Time to live" (custom TTL): numbers are milliseconds since 1970.
        predicate = doc! { "$or": [predicate, { &target.field: { "$lte": threshold.timestamp_millis() } }] };
    }
    let documents = figures::count(deployment, namespace).await?;
    if deployment.facts.capabilities.request_charge {
        let Sharding { key: shard_key, throughput } = sharding::of(deployment, namespace).await?;
        let selection = Selection { document_count: documents, shard_key, throughput, ..Selection::of(namespace, predicate) };
        let expired = in_parts::count(deployment, namespace, &expiry, &selection, None).await?;
        return Ok(Some(Affected { expired, documents }));
    }
    let stages = vec![doc! { "$match": predicate }, doc! { "$group": { "_id": 1, "n": { "$sum": 1 } } }];
    let collation = target.collation.as_ref().filter(|_| target.partial.is_some());
    let counted = Query::aggregate(namespace, stages).collation(collation).all(deployment).await?;
    let expired = counted.first().and_then(|counted| count_in(counted, "n")).unwrap_or(0);
    Ok(Some(Affected { expired, documents }))
}

/// Makes one change.
///
/// Errors: the server's message, advice, and whether anything was changed.
pub(crate) async fn apply(deployment: &Deployment, change: &Change) -> std::result::Result<(), String> {
    let mut dropped = None;
    for command in &change.commands {
        let index = command.get_str("index").ok();
        match run(deployment, &change.namespace, command).await {
            Ok(()) => {}
            // Its reply was lost, or somebody else dropped it.
            Err(cause) if index.is_some() && cause.has_code(codes::INDEX_NOT_FOUND) => {}
            Err(cause) => return Err(failed(&cause, change, command, dropped)),
        }
        dropped = index;
    }
    Ok(())
}

/// Returns the message about a command that failed, after an index was `dropped`.
fn failed(cause: &ServerError, change: &Change, command: &Document, dropped: Option<&str>) -> String {
    let action = match command.keys().next().map(String::as_str) {
        Some("createIndexes") => "createIndex",
        Some("dropIndexes") => "dropIndex",
        _ => "collMod",
    };
    let why = privileges::explain(cause, &change.namespace, &[action]);
    let advice = cause.code().and_then(advice).map(|advice| format!("; {advice}")).unwrap_or_default();
    if let Some(index) = dropped {
        return format!(
            "{why}{advice}; the index `{index}` was dropped before, so that nothing expires until it is there again: apply it again"
        );
    }
    if cause.is_reply_lost() {
        return format!("{why}; the reply was lost, so it is unknown whether it was changed: see `sweeper native diff`");
    }
    format!("{why}{advice}; nothing was changed there")
}

/// Runs a command that gives a setting its value, which may be done twice.
async fn run(deployment: &Deployment, namespace: &Namespace, command: &Document) -> Result<()> {
    let mut command = deployment.marked(command.clone());
    command.insert("writeConcern", deployment.write_concern.clone());
    let command = ServerCommand::of(&namespace.database, &command, deployment.patience())?;
    let mut retries = Retries::several();
    deployment.write(&command, |cause| retries.wait(cause)).await.map(|_| ())
}

/// Returns advice on an error code of the server.
fn advice(code: i32) -> Option<&'static str> {
    Some(match code {
        codes::CANNOT_CREATE_INDEX => {
            "the server creates no TTL index with this key or these options; leave the rule to `sweeper sweep`"
        }
        codes::INVALID_OPTIONS => {
            "the server does not accept this value or option here: a clustered or time-series collection takes at most the seconds \
             since 1970, `_id` and compound indexes take none"
        }
        codes::INDEX_OPTIONS_CONFLICT | codes::INDEX_KEY_SPECS_CONFLICT => {
            "an index with the same key or name and other options is in the way; drop it, or make the rule agree with it"
        }
        codes::COMMAND_NOT_SUPPORTED_ON_VIEW => "it is a view by now; name the collection behind it",
        codes::INVALID_INDEX_SPECIFICATION_OPTION => {
            "the index on `_id` takes no expireAfterSeconds; only a clustered collection does"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_server_come_with_advice() {
        for (code, part) in [
            (codes::CANNOT_CREATE_INDEX, "no TTL index with this key"),
            (codes::INVALID_OPTIONS, "seconds since 1970"),
            (codes::INDEX_OPTIONS_CONFLICT, "in the way"),
            (codes::INDEX_KEY_SPECS_CONFLICT, "in the way"),
            (codes::COMMAND_NOT_SUPPORTED_ON_VIEW, "a view"),
            (codes::INVALID_INDEX_SPECIFICATION_OPTION, "`_id`"),
        ] {
            assert!(advice(code).is_some_and(|advice| advice.contains(part)), "{code}");
        }
        assert_eq!(advice(codes::COMMAND_NOT_FOUND), None);
    }
}
