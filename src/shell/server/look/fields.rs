//! A look for documents that have a field, which tells whether its name is right. Reads only.

use std::cell::Cell;
use std::time::Duration;

use bson::{Bson, Document, RawDocumentBuf, doc};
use tokio::time::Instant;

use crate::core::plan::SweepRule;
use crate::core::plan::fields::NamedField;
use crate::core::policy::namespace::Namespace;
use crate::core::policy::nearest;
use crate::shell::server::Deployment;
use crate::shell::server::wire::codes;
use crate::shell::server::wire::error::Result;
use crate::shell::server::wire::find::Query;
use crate::shell::server::wire::meter::Account;

/// Number of documents at the head of a collection that are looked at first.
const SAMPLE: i64 = 1000;

/// The same on a service that bills each document that is looked at.
const BILLED_SAMPLE: i64 = 100;

/// Number of documents whose fields are compared with a name that none has.
const NAMES_SAMPLE: i64 = 100;

/// Time limit of a look at the head of a collection.
const MAX_SAMPLE_TIME: Duration = Duration::from_secs(10);

/// Time limit of the search for one field in one collection.
const MAX_SEARCH_TIME: Duration = Duration::from_secs(2);

/// Time limit of all searches of a run, so that one with hundreds of namespaces begins soon.
const MAX_SEARCHES_TIME: Duration = Duration::from_secs(30);

/// The time that is left for searches.
pub(crate) struct SearchTime(Cell<Duration>);

impl SearchTime {
    pub(crate) fn new() -> Self {
        Self(Cell::new(MAX_SEARCHES_TIME))
    }

    /// Returns the time limit of the next search; `None` if the run has no time left for one. The server counts in whole
    /// milliseconds, and takes none for no limit.
    fn next(&self) -> Option<Duration> {
        Some(self.0.get().min(MAX_SEARCH_TIME)).filter(|left| left.as_millis() > 0)
    }

    fn spend(&self, time: Duration) {
        self.0.set(self.0.get().saturating_sub(time));
    }
}

/// The result of looking for a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FieldPresence {
    /// Whether a document was found that has it.
    pub is_found: bool,
    /// Whether a document was found that tells what the field holds.
    pub is_known: bool,
}

/// Looks for fields among the first documents of a rule's collection, for all of them in one query. `None` if the collection has
/// no documents, which says nothing of a field.
pub(crate) async fn look(
    deployment: &Deployment,
    rule: &SweepRule,
    fields: &[&NamedField],
) -> Result<Option<Vec<FieldPresence>>> {
    let queries = fields.iter().map(|field| field.query()).chain(fields.iter().filter_map(|field| field.known_by().cloned()));
    let matched = in_sample(deployment, rule, &queries.collect::<Vec<_>>()).await?;
    let (found, known) = matched.split_at(fields.len());
    let mut known = known.iter();
    let seen: Vec<FieldPresence> = fields
        .iter()
        .zip(found)
        .map(|(field, is_found)| FieldPresence {
            is_found: *is_found,
            is_known: field.known_by().is_some() && known.next().is_some_and(|is_known| *is_known),
        })
        .collect();
    if matched.contains(&true) {
        return Ok(Some(seen));
    }
    // The server's own count may be wrong, or late.
    let any = Query::find(&rule.selection.namespace, doc! {}).projection(doc! { "_id": 1 }).limit(1);
    let any = any.read_preference(deployment.read_options.preference).first_batch(deployment).await?;
    Ok((!any.is_empty()).then_some(seen))
}

/// Tells for each of some queries whether one of the first documents matches it; none if there was not enough time.
async fn in_sample(deployment: &Deployment, rule: &SweepRule, queries: &[Document]) -> Result<Vec<bool>> {
    let limit = doc! { "$limit": sample(deployment, SAMPLE) };
    let matching = |query: &Document| [doc! { "$match": query }, doc! { "$limit": 1 }, doc! { "$project": { "_id": 1 } }];
    let stages = match queries {
        [query] => [limit].into_iter().chain(matching(query)).collect(),
        queries => {
            let facets: Document =
                queries.iter().enumerate().map(|(number, query)| (facet(number), Bson::from(matching(query).to_vec()))).collect();
            vec![limit, doc! { "$facet": facets }]
        }
    };
    let query = Query::aggregate(&rule.selection.namespace, stages).max_time(Some(MAX_SAMPLE_TIME));
    let found = match query.read_preference(deployment.read_options.preference).all(deployment).await {
        Err(cause) if cause.has_code(codes::MAX_TIME_MS_EXPIRED) => Vec::new(),
        found => found?,
    };
    if queries.len() == 1 {
        return Ok(vec![!found.is_empty()]);
    }
    let matched = |number: usize| {
        let facet = facet(number);
        found.first().and_then(|facets| facets.get_array(&facet).ok()).is_some_and(|matched| !matched.is_empty())
    };
    Ok((0..queries.len()).map(matched).collect())
}

/// Returns the name of a facet.
fn facet(number: usize) -> String {
    format!("f{number}")
}

/// Searches a rule's collection for a document that has a field, and unless that `is_known`, for one that tells what the field
/// holds.
///
/// It searches as long as there is time. The newest documents come first where the order of the storage is known, because a
/// field that few have is often a new one.
///
/// Under a limit of request units nothing is searched: a service that bills each document does not say before how many it will
/// load.
pub(crate) async fn search(
    deployment: &Deployment,
    rule: &SweepRule,
    field: &NamedField,
    is_known: bool,
    time: &SearchTime,
) -> Result<FieldPresence> {
    if first(deployment, rule, &field.query(), time).await? {
        return Ok(FieldPresence { is_found: true, is_known: true });
    }
    let is_known = match field.known_by() {
        Some(query) if !is_known => first(deployment, rule, query, time).await?,
        _ => is_known,
    };
    Ok(FieldPresence { is_found: false, is_known })
}

/// Tells whether a search found a document.
async fn first(deployment: &Deployment, rule: &SweepRule, query: &Document, time: &SearchTime) -> Result<bool> {
    let is_limited = deployment.account().is_some_and(|account| account.limit().is_some());
    let Some(max_time) = time.next().filter(|_| !is_limited) else { return Ok(false) };
    let newest = deployment.facts.capabilities.record_order.then(|| doc! { "$natural": -1 });
    let query = Query::find(&rule.selection.namespace, query.clone()).projection(doc! { "_id": 1 }).limit(1).hint(newest);
    let query = query.max_time(Some(max_time)).read_preference(deployment.read_options.preference).shrunk_by_caller();
    let begun = Instant::now();
    let found = query.first_batch(deployment).await;
    time.spend(begun.elapsed());
    is_found(found)
}

/// Tells whether a query found a document. One that took too long has found none.
fn is_found(found: Result<Vec<RawDocumentBuf>>) -> Result<bool> {
    match found {
        Ok(found) => Ok(!found.is_empty()),
        Err(cause) if cause.has_code(codes::MAX_TIME_MS_EXPIRED) => Ok(false),
        Err(cause) => Err(cause),
    }
}

/// Returns the name of a field of the first documents that is nearly the name of a field that no document has. Returns `None`
/// if there is no such name, or the path does not end at the root of a document.
pub(crate) async fn similar(deployment: &Deployment, rule: &SweepRule, field: &NamedField) -> Result<Option<String>> {
    // The value of a variable may be secret, and what is near to it as well.
    if field.compared.is_some() || [&field.stored, &field.shown].into_iter().any(|path| *path != field.path) {
        return Ok(None);
    }
    similar_in(deployment, &rule.selection.namespace, &field.path).await
}

/// Returns the same for a field of any collection, by its path.
pub(crate) async fn similar_in(deployment: &Deployment, namespace: &Namespace, path: &str) -> Result<Option<String>> {
    if path.contains('.') {
        return Ok(None);
    }
    let names = doc! { "$map": { "input": { "$objectToArray": "$$ROOT" }, "as": "f", "in": "$$f.k" } };
    let stages = vec![doc! { "$limit": sample(deployment, NAMES_SAMPLE) }, doc! { "$project": { "_id": 0, "names": names } }];
    let query = Query::aggregate(namespace, stages).max_time(Some(MAX_SAMPLE_TIME));
    let found = query.read_preference(deployment.read_options.preference).all(deployment).await?;
    let names = found.iter().filter_map(|found| found.get_array("names").ok()).flatten().filter_map(Bson::as_str);
    let others = names.filter(|name| *name != path && *name != "_id");
    Ok(nearest(path, others).map(str::to_owned))
}

/// Returns the number of documents to look at, at most as many as one query may load under the rule's limit of request units.
fn sample(deployment: &Deployment, most: i64) -> i64 {
    let most = if deployment.facts.capabilities.request_charge { most.min(BILLED_SAMPLE) } else { most };
    deployment.account().and_then(Account::find_limit).map_or(most, |limit| limit.clamp(1, most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::plan::Decision;
    use crate::core::plan::fields::named;
    use crate::shell::server::wire::error::ServerError;
    use crate::testing::made_up::planned;
    use crate::testing::scripted::{Script, ScriptedReply};

    fn rule() -> (SweepRule, NamedField) {
        let planned = planned("    ttlField: tll\n", 5000);
        let field = named(&planned).remove(1);
        let Decision::Sweep(rule) = planned.decision else { panic!("{:?}", planned.decision) };
        (rule, field)
    }

    #[tokio::test]
    async fn a_search_that_runs_out_of_time_has_found_nothing() {
        let (rule, field) = rule();
        let expired = ServerError::reported(codes::MAX_TIME_MS_EXPIRED, "operation exceeded time limit", "");
        let script = Script::new([ScriptedReply::Error(expired)]);
        assert_eq!(search(&script.deployment(), &rule, &field, false, &SearchTime::new()).await, Ok(FieldPresence::default()));
        let sent = script.sent().remove(0);
        assert_eq!(sent.get_document("filter").ok(), Some(&doc! { "tll": { "$exists": true } }));
        assert_eq!(sent.get_document("hint").ok(), Some(&doc! { "$natural": -1 }));
        assert_eq!(crate::base::values::integer_in(&sent, "maxTimeMS"), Some(2000));
    }

    #[tokio::test]
    async fn a_collection_without_documents_is_no_evidence() {
        let (rule, field) = rule();
        let nothing = || [ScriptedReply::Batch(Vec::new()), ScriptedReply::End];
        let script = Script::new(nothing().into_iter().chain(nothing()));
        assert_eq!(look(&script.deployment(), &rule, &[&field]).await, Ok(None));
        assert_eq!(script.sent()[1].get_document("filter").ok(), Some(&doc! {}));
    }

    #[tokio::test]
    async fn nothing_is_searched_without_time() {
        let (rule, field) = rule();
        let script = Script::new([]);
        let time = SearchTime::new();
        time.spend(Duration::from_millis(29_500));
        assert_eq!(time.next(), Some(Duration::from_millis(500)));
        time.spend(Duration::from_secs(9));
        assert_eq!(search(&script.deployment(), &rule, &field, false, &time).await, Ok(FieldPresence::default()));
        assert_eq!(script.sent().len(), 0);
    }

    #[tokio::test]
    async fn a_name_that_is_nearly_the_same_is_found_at_the_root_and_never_for_a_variable() {
        let (rule, field) = rule();
        let names = doc! { "names": ["_id", "at", "ttl", "status"] };
        let script = Script::new([ScriptedReply::Batch(vec![names]), ScriptedReply::End]);
        let deployment = script.deployment();
        assert_eq!(similar(&deployment, &rule, &field).await, Ok(Some("ttl".into())));
        for other in [
            NamedField { path: "a.tll".into(), shown: "a.tll".into(), stored: "a.tll".into(), ..field.clone() },
            NamedField { shown: "${TTL}".into(), ..field.clone() },
            NamedField { stored: "meta".into(), ..field },
        ] {
            assert_eq!(similar(&deployment, &rule, &other).await, Ok(None), "{other:?}");
        }
        assert_eq!(script.sent().len(), 1);
    }
}
