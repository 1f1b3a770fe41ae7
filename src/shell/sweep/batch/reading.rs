//! Reads: the queries that find batches, and the documents of a batch that is to be archived.

use bson::{Bson, Document, RawDocumentBuf, doc};
use tracing::warn;

use crate::base::values::raw::RawRef;
use crate::core::plan::SweepRule;
use crate::core::policy::namespace::Namespace;
use crate::shell::server::delete::restriction::Restriction;
use crate::shell::server::delete::statement::{Statement, statements};
use crate::shell::server::look::privileges;
use crate::shell::server::wire::codes;
use crate::shell::server::wire::error::{Result, ServerError};
use crate::shell::server::wire::find::{Query, QueryFilter};
use crate::shell::server::wire::retry::{Retries, restarting};
use crate::shell::sweep::RuleSweep;

impl RuleSweep {
    /// Returns a query on the collection with the documents of the rule. It is retried.
    pub(crate) fn query(&self, filter: impl Into<QueryFilter>) -> Query {
        let SweepRule { selection, namespace, .. } = &self.rule;
        Query::find(&selection.namespace, filter).retried_patiently(namespace)
    }

    /// Returns the reason why documents could not be read.
    pub(crate) fn explain_read(&self, cause: &ServerError) -> String {
        match cause.code() {
            Some(codes::QUERY_PLAN_KILLED) => {
                format!("the collection or the index was dropped, renamed or moved during the run: {cause}")
            }
            Some(codes::UNAUTHORIZED) => privileges::explain(cause, &self.rule.selection.namespace, &["find"]),
            _ => format!("reading candidates: {cause}"),
        }
    }

    /// Waits until a pass over a collection that met an error may begin again, and logs it.
    ///
    /// Errors: the reason why the pass cannot go on.
    pub(crate) async fn wait_to_begin_again(
        &self,
        namespace: &Namespace,
        retries: &mut Retries,
        cause: &ServerError,
    ) -> std::result::Result<(), String> {
        let wait = retries.wait_to_read(cause).ok_or_else(|| self.explain_read(cause))?;
        warn!(%namespace, "{namespace}: reading: {cause}; starting the pass again in {} ms", wait.as_millis());
        tokio::time::sleep(wait).await;
        self.binding.forget();
        Ok(())
    }
}

/// Returns the expired documents that a restriction names, whole if the projection is empty; `None` if they take more than
/// `max_bytes`.
pub(crate) async fn read(
    sweep: &RuleSweep,
    restriction: &Restriction,
    projection: &Document,
    max_bytes: usize,
) -> Result<Option<Vec<RawDocumentBuf>>> {
    let queries = delete_queries(sweep, restriction, projection)?;
    restarting(&sweep.rule.namespace, || read_once(sweep, &queries, max_bytes)).await
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
pub(crate) async fn read_ids(sweep: &RuleSweep, restriction: &Restriction) -> Result<Restriction> {
    let found = read(sweep, restriction, &doc! { "_id": 1 }, usize::MAX).await?.unwrap_or_default();
    let ids = found.iter().filter_map(|document| RawRef::at(document, "_id")).collect();
    Ok(Restriction::of_ids(RawDocumentBuf::new(), ids))
}

/// Returns queries with the same conditions as the delete.
fn delete_queries(sweep: &RuleSweep, restriction: &Restriction, projection: &Document) -> Result<Vec<Query>> {
    const MAX_BATCH: u32 = i32::MAX.cast_unsigned();
    let selection = &sweep.rule.selection;
    let batch_size = u32::try_from(restriction.max_documents()).unwrap_or(MAX_BATCH).clamp(1, MAX_BATCH);
    let query = |statement: Statement<'_>| {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::values::raw::RawValue;
    use crate::shell::lock::lease::Leases;
    use crate::testing::made_up::sweep::{self, ids_of};
    use crate::testing::scripted::Script;
    use crate::testing::scripted::ScriptedReply::{Batch, End};

    #[tokio::test]
    async fn what_cannot_be_read_is_explained() {
        let sweep = sweep::sweep(&Script::new([]), 100, &Leases::default(), None);
        let why = |code| sweep.explain_read(&ServerError::reported(code, "cause", ""));
        assert!(
            why(codes::QUERY_PLAN_KILLED)
                .starts_with("the collection or the index was dropped, renamed or moved during the run: cause")
        );
        let unauthorized = why(codes::UNAUTHORIZED);
        assert!(unauthorized.contains("`find`") && unauthorized.contains("app.c"), "{unauthorized}");
        assert!(why(codes::BAD_VALUE).starts_with("reading candidates: cause"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_pass_that_lost_its_cursor_begins_again_and_one_that_met_a_final_error_does_not() {
        let sweep = sweep::sweep(&Script::new([]), 100, &Leases::default(), None);
        let (namespace, mut retries) = (sweep.rule.namespace.clone(), Retries::patient());
        let lost = ServerError::reported(codes::CURSOR_NOT_FOUND, "cursor id not found", "");
        let begun = tokio::time::Instant::now();
        assert_eq!(sweep.wait_to_begin_again(&namespace, &mut retries, &lost).await, Ok(()));
        assert!(!begun.elapsed().is_zero());
        let denied = ServerError::reported(codes::UNAUTHORIZED, "not authorized", "");
        let why = sweep.wait_to_begin_again(&namespace, &mut retries, &denied).await.unwrap_err();
        assert_eq!(why, sweep.explain_read(&denied));
    }

    #[tokio::test]
    async fn documents_are_read_up_to_so_many_bytes_in_all_and_as_many_as_the_delete_names() {
        let documents = [doc! { "_id": 1, "v": "x" }, doc! { "_id": 2, "v": "y" }];
        let bytes: usize = documents.iter().map(|document| bson::serialize_to_vec(document).unwrap().len()).sum();
        for (max, expected) in [(bytes, Some(2)), (bytes - 1, None)] {
            let script = Script::new([Batch(documents.to_vec()), End]);
            let sweep = sweep::sweep(&script, 100, &Leases::default(), None);
            let ids = ids_of([1, 2]);
            let found = read(&sweep, &ids, &Document::new(), max).await.unwrap();
            assert_eq!(found.map(|found| found.len()), expected, "{max}");
            let find = &script.sent()[0];
            assert_eq!((find.get("limit"), find.get("projection")), (None, None));
        }
        // One document of those that equal its `_id`.
        let script = Script::new([Batch(documents[..1].to_vec()), End]);
        let sweep = sweep::sweep(&script, 100, &Leases::default(), None);
        let found = read_ids(&sweep, &Restriction::one(RawValue::of(1).unwrap())).await.unwrap();
        assert_eq!(found, ids_of([1]));
        let find = &script.sent()[0];
        assert_eq!((find.get("limit"), find.get_document("projection").ok()), (Some(&Bson::Int64(1)), Some(&doc! { "_id": 1 })));
    }
}
