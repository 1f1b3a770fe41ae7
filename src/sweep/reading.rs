//! Reads: the queries that find batches, and the documents of a batch that is to be archived.

use bson::{Bson, Document, RawDocumentBuf, doc};
use tracing::warn;

use super::RuleSweep;
use crate::plan::SweepRule;
use crate::policy::namespace::Namespace;
use crate::server::codes;
use crate::server::error::{Result, ServerError};
use crate::server::find::{Query, QueryFilter};
use crate::server::privileges;
use crate::server::restriction::Restriction;
use crate::server::retry::{Retries, retry};
use crate::server::statement::{Statement, statements};
use crate::values::raw::RawValue;

impl RuleSweep {
    /// Returns a query on the collection with the documents of the rule. It is retried.
    pub(super) fn query(&self, filter: impl Into<QueryFilter>) -> Query {
        let SweepRule { selection, namespace, .. } = &self.rule;
        Query::find(&selection.namespace, filter).retried_patiently(namespace)
    }

    /// Returns the reason why documents could not be read.
    pub(super) fn explain_read(&self, cause: &ServerError) -> String {
        match cause.code() {
            Some(codes::QUERY_PLAN_KILLED) => {
                format!("the collection or the index was dropped or renamed during the run: {cause}")
            }
            Some(codes::UNAUTHORIZED) => privileges::explain(cause, &self.rule.selection.namespace, &["find"]),
            _ => format!("reading candidates: {cause}"),
        }
    }

    /// Waits until a pass over a collection that met an error may begin again, and logs it.
    ///
    /// Errors: the reason why the pass cannot go on.
    pub(super) async fn wait_to_begin_again(
        &self,
        namespace: &Namespace,
        retries: &mut Retries,
        cause: &ServerError,
    ) -> std::result::Result<(), String> {
        let lost = cause.has_code(codes::CURSOR_NOT_FOUND);
        let wait = if lost { retries.again() } else { retries.wait(cause) };
        let wait = wait.ok_or_else(|| self.explain_read(cause))?;
        warn!(%namespace, "{namespace}: reading: {cause}; starting the pass again in {} ms", wait.as_millis());
        tokio::time::sleep(wait).await;
        self.binding.forget();
        Ok(())
    }
}

/// Whether an explained plan has a key with this value at any level.
pub(super) fn plan_has(plan: &Document, key: &str, value: &Bson) -> bool {
    plan.iter().any(|(k, v)| {
        (k == key && v == value)
            || v.as_document().is_some_and(|inner| plan_has(inner, key, value))
            || v.as_array()
                .is_some_and(|items| items.iter().filter_map(Bson::as_document).any(|inner| plan_has(inner, key, value)))
    })
}

/// Returns the expired documents that a restriction names, whole if the projection is empty; `None` if they take more than `max_bytes`.
pub(super) async fn read(
    sweep: &RuleSweep,
    restriction: &Restriction,
    projection: &Document,
    max_bytes: usize,
) -> Result<Option<Vec<RawDocumentBuf>>> {
    let queries = delete_queries(sweep, restriction, projection)?;
    let mut retries = Retries::patient();
    let next_wait = |cause: &ServerError| {
        let wait = retries.wait(cause)?;
        warn!("{}: reading: {cause}; trying again in {} ms", sweep.rule.namespace, wait.as_millis());
        Some(wait)
    };
    retry(next_wait, || read_once(sweep, &queries, max_bytes)).await
}

async fn read_once(sweep: &RuleSweep, queries: &[Query], max_bytes: usize) -> Result<Option<Vec<RawDocumentBuf>>> {
    let mut documents = Vec::new();
    let mut bytes = 0;
    for query in queries {
        let mut cursor = query.cursor(&sweep.deployment).await?;
        while let Some(document) = cursor.next().await? {
            bytes += document.as_bytes().len();
            if bytes > max_bytes {
                return Ok(None);
            }
            documents.push(document);
        }
    }
    Ok(Some(documents))
}

/// Returns the `_id`s of the expired documents that a restriction names.
pub(super) async fn read_ids(sweep: &RuleSweep, restriction: &Restriction) -> Result<Restriction> {
    let found = read(sweep, restriction, &doc! { "_id": 1 }, usize::MAX).await?.unwrap_or_default();
    Ok(Restriction::Ids(found.iter().filter_map(|document| RawValue::at(document, "_id")).collect()))
}

/// Returns queries with the same conditions as the delete.
fn delete_queries(sweep: &RuleSweep, restriction: &Restriction, projection: &Document) -> Result<Vec<Query>> {
    const MAX_BATCH: u32 = i32::MAX.cast_unsigned();
    let selection = &sweep.rule.selection;
    let batch_size = u32::try_from(restriction.max_documents()).unwrap_or(MAX_BATCH).clamp(1, MAX_BATCH);
    let query = |statement: Statement| {
        let query = Query::find(&selection.namespace, statement.query()?)
            .batch_size(batch_size)
            .hint(Some(Bson::try_from(statement.hint)?))
            .collation(selection.collation.as_ref());
        let limit = statement.limit.unsigned_abs().into();
        let query = if limit > 0 { query.limit(limit) } else { query };
        Ok(if projection.is_empty() { query } else { query.projection(projection.clone()) })
    };
    // A read finds a list of `_id`s by the index on every flavor.
    statements(restriction, selection, false)?.into_iter().map(query).collect()
}
