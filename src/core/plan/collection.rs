//! Binds a rule to an ordinary collection: its expiry, its index, and the guards that look at the collection.

use super::family::with_one_key;
use super::holds::HeldBack;
use super::index::{self, IndexChoice};
use super::{Guard, Refusal, RunFacts, Selection, Storage, SweepRule, guard};
use crate::core::expiry::Expiry;
use crate::core::facts::{Collection, CollectionKind, Figures};
use crate::core::policy::{DateFormat, Rule};

/// Returns the rule bound to a collection, and the first guard that forbids sweeping it, if one does.
///
/// Errors: the refusal of a rule whose documents cannot even be counted.
pub(super) fn bind(
    run: &RunFacts,
    rule: &Rule,
    collection: &Collection,
    figures: &Figures,
    run_refusal: Option<&Refusal>,
) -> Result<(SweepRule, Option<Refusal>), Refusal> {
    let namespace = &collection.namespace;
    let expiry = expiry(run, rule, collection)?;
    let (index, refusal) = match (index::choose(rule, &expiry.field, collection), run_refusal) {
        (Err(reason), _) => (None, Some(Refusal::new(Guard::Hint, reason))),
        (Ok(index), Some(refusal)) => (index, Some(refusal.clone())),
        (Ok(index), None) => match guard::scan(rule, namespace, &expiry.field, index.as_ref(), figures.document_count) {
            Some(refusal) => (None, Some(refusal)),
            None => (index, None),
        },
    };
    let selection = selection(rule, collection, figures, &expiry, index);
    let head_index = run.server.capabilities.sorts.then(|| index::of_all(&expiry.field, collection)).flatten();
    let mut sweep = SweepRule::new(rule, namespace, expiry, selection, &run.server.capabilities);
    sweep.head_index = head_index;
    Ok((sweep, refusal))
}

/// Returns the expiry of a rule in a collection.
///
/// Errors: the refusal of one of the rule's keys, whatever the documents are.
fn expiry(run: &RunFacts, rule: &Rule, collection: &Collection) -> Result<Expiry, Refusal> {
    let Some(field) = &rule.field else {
        let detail = "only time-series collections have a field of their own for the date; name it with `field`";
        return Err(Refusal::new(Guard::Field, detail));
    };
    if rule.collation.is_some() && !run.server.capabilities.collations {
        return Err(Refusal::new(Guard::Collation, "deletes cannot use a collation on this service; leave `collation` out"));
    }
    if rule.date_format == Some(DateFormat::Iso8601) && !run.server.capabilities.reads_iso8601 {
        let detail = "`dateFormat: iso8601`: whether this service reads every string as MongoDB does is not known; store BSON dates in a field of their own";
        return Err(Refusal::new(Guard::DateFormat, detail));
    }
    let is_id = field == "_id";
    let is_clustered = collection.kind == CollectionKind::Clustered;
    Ok(Expiry {
        field: field.clone(),
        format: rule.date_format.unwrap_or(if is_id && !is_clustered { DateFormat::ObjectId } else { DateFormat::Date }),
        expire_after_seconds: rule.expire_after_seconds,
        ttl_field: rule.ttl_field.clone(),
        not_before_1970: is_id && is_clustered && run.server.clustered_keeps_before_1970(),
        checks_path: field.contains('.') && run.server.capabilities.indexes_literal_names,
        filter: with_one_key(rule),
        as_of: run.as_of,
    })
}

fn selection(rule: &Rule, collection: &Collection, figures: &Figures, expiry: &Expiry, index: Option<IndexChoice>) -> Selection {
    Selection {
        predicate: expiry.predicate(),
        filter: expiry.filter.clone(),
        filter_is_indexed: expiry.filter.as_ref().is_some_and(|filter| index::may_decide(filter, &rule.variables, collection)),
        collation: rule.collation.clone(),
        variables: rule.variables.clone(),
        folds_ids: rule.collation.is_some() && !index::is_same_collation(rule.collation.as_ref(), collection.collation.as_ref()),
        index,
        namespace: collection.namespace.clone(),
        uuid: collection.uuid,
        shard_key: figures.shard_key.clone(),
        storage: if collection.kind == CollectionKind::Clustered { Storage::Clustered } else { Storage::Plain },
        document_count: figures.document_count,
        size: figures.size,
        throughput: figures.throughput,
        indexes: collection.indexes.len().saturating_sub(1),
        holds: rule.holds.as_ref().map(|holds| HeldBack::new(holds, &collection.namespace, holds.by.of.clone())),
        periods: rule
            .periods
            .as_ref()
            .map(|periods| HeldBack::of_periods(periods, &collection.namespace, periods.by.of.clone(), expiry)),
    }
}
