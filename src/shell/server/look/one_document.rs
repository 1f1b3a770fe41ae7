//! One document, judged by the server as it judges all others. Reads only.

use std::collections::BTreeSet;
use std::time::Duration;

use bson::{Bson, Document, doc};

use crate::base::values::integer;
use crate::core::audit::distribution::Distribution;
use crate::core::audit::figures::PARENT_FIELD;
use crate::core::audit::ranges;
use crate::core::plan::SweepRule;
use crate::core::plan::holds::HeldBack;
use crate::core::plan::judgement::Judgement;
use crate::core::plan::periods::Period;
use crate::core::policy::namespace::Namespace;
use crate::shell::server::Deployment;
use crate::shell::server::wire::error::Result;
use crate::shell::server::wire::find::Query;

/// Time after which a read is given up: each is by an `_id`.
const MAX_TIME: Duration = Duration::from_secs(10);

/// Finds the documents that have one of these `_id`s, and returns the named fields of each.
///
/// Errors: the collection cannot be read in time.
pub(crate) async fn find(
    deployment: &Deployment,
    namespace: &Namespace,
    ids: &[Bson],
    fields: &BTreeSet<&str>,
) -> Result<Vec<Document>> {
    let mut projection: Document = fields.iter().map(|field| ((*field).to_owned(), Bson::from(1))).collect();
    projection.insert("_id", 1);
    // The collection may compare strings by a collation of its own.
    let exactly = doc! { "locale": "simple" };
    let exactly = deployment.facts.capabilities.collations.then_some(&exactly);
    let query = Query::find(namespace, doc! { "_id": { "$in": ids } }).projection(projection).collation(exactly);
    query.max_time(Some(MAX_TIME)).all(deployment).await
}

/// Judges a document by a rule, by each of `clauses` of its filter, and by the classes of an audit, all at the same moment.
///
/// Errors: the collection cannot be read in time.
pub(crate) async fn judge(deployment: &Deployment, rule: &SweepRule, id: &Bson, clauses: &[Document]) -> Result<Judgement> {
    let SweepRule { selection, expiry, .. } = rule;
    let selected = |filter: &Document| vec![doc! { "$match": filter.clone() }, doc! { "$project": { "_id": 1 } }];
    let mut facets = expiry.classes(None, &ranges::bounds_ms(), &Document::new());
    facets.insert("deciding", vec![doc! { "$project": expiry.deciding() }]);
    facets.insert("taken", selected(&selection.predicate));
    if let Some(unclear) = rule.of_unclear_key() {
        facets.insert("unclear", selected(&unclear));
    }
    let held = match selection.holds.as_ref().map(HeldBack::held).transpose()?.flatten() {
        Some(held) => Document::try_from(&*held.document()?)?,
        // Nothing is held.
        None => doc! { "$expr": false },
    };
    facets.insert("held", selected(&held));
    let mut choices = Vec::new();
    if let Some(periods) = &selection.periods
        && let Some(keys) = &periods.keys
    {
        let ripe = match periods.unheld()? {
            Some(ripe) => Document::try_from(&*ripe.document()?)?,
            None => Document::new(),
        };
        facets.insert("ripe", selected(&ripe));
        if let Some(of_keys) = &keys.periods {
            choices = of_keys.choices(&periods.path, &keys.held)?;
        }
    }
    let choice = |number: usize| format!("period{number}");
    facets.extend(choices.iter().enumerate().map(|(number, (_, condition))| (choice(number), Bson::from(selected(condition)))));
    let name = |number: usize| format!("clause{number}");
    facets.extend(clauses.iter().enumerate().map(|(number, clause)| (name(number), Bson::from(selected(clause)))));
    let stages = vec![doc! { "$match": { "_id": { "$eq": id } } }, doc! { "$facet": facets }];
    let query = Query::aggregate(&selection.namespace, stages).collation(selection.collation.as_ref());
    let found = query.max_time(Some(MAX_TIME)).all(deployment).await?.into_iter().next().unwrap_or_default();
    // By the rule's collation the `_id`s of other documents may equal this one.
    let of_it = |facet: &str| {
        let mut documents = found.get_array(facet).into_iter().flatten().filter_map(Bson::as_document);
        documents.find(|document| document.get("_id") == Some(id))
    };
    let deciding = of_it("deciding");
    let value = |key| deciding.and_then(|document| document.get(key));
    let never = Distribution::read(expiry, std::slice::from_ref(&found))
        .never
        .into_iter()
        .find_map(|(reason, count)| (count > 0).then_some(reason));
    let unclear = of_it("unclear").map(|_| PARENT_FIELD.to_owned());
    let has = choices.iter().enumerate().filter(|(number, _)| of_it(&choice(*number)).is_some()).map(|(_, (period, _))| *period);
    let has: Vec<Option<Period>> = has.collect();
    let is_ripe = selection.periods.is_none() || of_it("ripe").is_some();
    Ok(Judgement {
        period: selection.periods.as_ref().and_then(|held| held.periods.as_ref()).map(|rule| rule.longest(&has)),
        date: value("date").and_then(|date| expiry.instant(date)),
        dates: value("dates").and_then(integer).unwrap_or(0),
        ttl: value("ttl").and_then(integer),
        is_taken: of_it("taken").is_some() && is_ripe,
        is_held: of_it("held").is_some(),
        clauses: (0..clauses.len()).map(|number| of_it(&name(number)).is_some()).collect(),
        never: unclear.or(never),
    })
}
