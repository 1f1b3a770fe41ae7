//! Pages of `_id`s, for servers whose cursors do not last: each page is one query that begins after the page before.

use bson::{Bson, Document, doc};

use super::Deployment;
use super::error::Result;
use super::find::Query;
use super::meter::Account;
use super::overload::Overload;
use super::retry::Retries;
use super::shard_key;
use super::stretches::{self, Stretches};
use crate::plan::Selection;
use crate::policy::namespace::Namespace;

/// One pass over the documents of a selection, in the order of the `_id`.
///
/// An `_id` is unique per value of the shard key only, so that a page may end among documents with the same `_id`. In a sharded collection the
/// next page begins with that `_id` again. Documents that were deleted are gone by then; those that were returned before and are still there are
/// left out by their `_id` and key, so that every page brings further documents, however many have one `_id`.
pub(crate) struct PagedIds<'a> {
    deployment: &'a Deployment,
    selection: &'a Selection,
    reported_as: &'a Namespace,
    /// Whether the documents of a page are deleted before the next one is read.
    deletes: bool,
    /// `None` before the first page.
    place: Option<PassState>,
    retries: Retries,
}

/// The state of a pass.
struct PassState {
    /// Type of the last `_id` of the collection.
    last: &'static str,
    /// Bounds for the cost of a page; `None` if nothing is billed, the `_id`s have no distances, or an index finds the
    /// documents.
    stretches: Option<Stretches>,
    /// The last `_id` that was read; `None` before the first one of a type.
    after: Option<Bson>,
    /// The documents with this `_id` that were returned: each `_id`, which may be a number of another type, and the shard key.
    returned: Vec<(Bson, Document)>,
    /// Those of them that are known to be still there.
    kept: Vec<(Bson, Document)>,
    /// Types of `_id` that are done: a comparison finds values of one type only.
    done: Vec<&'static str>,
    exhausted: bool,
}

impl<'a> PagedIds<'a> {
    pub(crate) fn new(deployment: &'a Deployment, selection: &'a Selection, reported_as: &'a Namespace, deletes: bool) -> Self {
        Self { deployment, selection, reported_as, deletes, place: None, retries: Retries::patient() }
    }

    /// Returns the next documents, at most `max`, with their `_id` and shard key; none if none is left.
    pub(crate) async fn next(&mut self, max: u64) -> Result<Vec<Document>> {
        let (deployment, selection) = (self.deployment, self.selection);
        let mut place = match self.place.take() {
            Some(place) => place,
            None => PassState::begin(deployment, selection).await?,
        };
        let mut most = max.max(1);
        while !place.exhausted {
            let before = spent(deployment);
            let page = match self.query(&place, most).first_batch(deployment).await {
                Ok(page) => page,
                Err(cause) => match self.retries.again().filter(|_| cause.overload() == Some(Overload::TimedOut)) {
                    // It costs as much each time, so less is asked for.
                    Some(wait) => {
                        tokio::time::sleep(wait).await;
                        most = (most / 16).max(1);
                        place.stretches.iter_mut().for_each(Stretches::shrink);
                        continue;
                    }
                    None => return Err(cause),
                },
            };
            self.retries = Retries::patient();
            let units = spent(deployment) - before;
            if page.is_empty() {
                place.leave(deployment, selection, units).await?;
                continue;
            }
            let fresh = place.enter(page, &selection.shard_key, self.deletes, units);
            if !fresh.is_empty() {
                self.place = Some(place);
                return Ok(fresh);
            }
        }
        self.place = Some(place);
        Ok(Vec::new())
    }

    fn query(&self, place: &PassState, most: u64) -> Query {
        let Selection { namespace, predicate, shard_key, .. } = self.selection;
        let mut projection = doc! { "_id": 1 };
        projection.extend(shard_key.iter().map(|path| (path.clone(), Bson::Int32(1))));
        let all: Vec<Document> = std::iter::once(predicate.clone()).chain(place.conditions(!shard_key.is_empty())).collect();
        Query::find(namespace, doc! { "$and": all })
            .projection(projection)
            .sort(doc! { "_id": 1 })
            .limit(most)
            .retried_patiently(self.reported_as)
            .shrunk_by_caller()
    }
}

impl PassState {
    async fn begin(deployment: &Deployment, selection: &Selection) -> Result<Self> {
        let (first, last) = stretches::ends(deployment, selection).await?;
        let ends = first.as_ref().zip(last.as_ref());
        let stretches = ends
            .filter(|_| selection.index.is_none() && deployment.facts.capabilities.request_charge)
            .and_then(|(first, last)| Stretches::new(deployment, selection, "_id", first, last.clone()));
        Ok(Self {
            last: last.as_ref().map_or("missing", bracket),
            stretches,
            after: None,
            returned: Vec::new(),
            kept: Vec::new(),
            done: Vec::new(),
            exhausted: last.is_none(),
        })
    }

    /// Returns the conditions for the documents that are left, as far as one query finds them.
    fn conditions(&self, is_sharded: bool) -> Vec<Document> {
        let mut conditions = Vec::new();
        match &self.after {
            // A page that ended with this `_id` may have left out others that have it.
            Some(after) if is_sharded && !self.returned.is_empty() => conditions.push(doc! { "_id": { "$gte": after } }),
            Some(after) => conditions.push(doc! { "_id": { "$gt": after } }),
            None if self.done.is_empty() => {}
            None => {
                let done = self.done.iter().map(|name| doc! { "_id": { "$type": *name } });
                conditions.push(doc! { "$nor": done.collect::<Vec<_>>() });
            }
        }
        if let Some(stretches) = &self.stretches {
            conditions.push(doc! { "_id": { "$lte": stretches.end() } });
        }
        if !self.kept.is_empty() {
            let kept = self.kept.iter().map(|(id, key)| {
                let mut one = doc! { "_id": id };
                one.extend(key.clone());
                one
            });
            conditions.push(doc! { "$nor": kept.collect::<Vec<_>>() });
        }
        conditions
    }

    /// Goes on after a page; returns its documents without those that were returned before.
    fn enter(&mut self, page: Vec<Document>, paths: &[String], deletes: bool, units: f64) -> Vec<Document> {
        let Some(last) = page.last().and_then(|document| document.get("_id")).cloned() else { return Vec::new() };
        if let Some(stretches) = &mut self.stretches {
            // A page says nothing of the rest of its stretch, unless it was dear already.
            stretches.adapt((units / stretches.target()).max(1.0));
            stretches.go_on(last.clone());
            self.exhausted = paths.is_empty() && stretches.is_last(&last);
        }
        if paths.is_empty() {
            self.after = Some(last);
            return page;
        }
        let pair = |document: &Document| {
            let id = document.get("_id").cloned().unwrap_or(Bson::Null);
            (id, shard_key::of(document, paths))
        };
        let (seen, fresh): (Vec<Document>, Vec<Document>) =
            page.into_iter().partition(|document| self.returned.contains(&pair(document)));
        if self.after.as_ref().is_some_and(|after| is_same(after, &last)) {
            self.kept.extend(seen.iter().map(pair));
        } else {
            (self.returned, self.kept) = (Vec::new(), Vec::new());
        }
        let at_end: Vec<_> = fresh.iter().map(pair).filter(|(id, _)| is_same(id, &last)).collect();
        if !deletes {
            self.kept.extend(at_end.clone());
        }
        self.returned.extend(at_end);
        self.after = Some(last);
        fresh
    }

    /// Goes on after a query that found nothing.
    async fn leave(&mut self, deployment: &Deployment, selection: &Selection, units: f64) -> Result<()> {
        (self.returned, self.kept) = (Vec::new(), Vec::new());
        if let Some(stretches) = &mut self.stretches {
            self.after = Some(stretches.end());
            stretches.next(deployment, selection, units, units / stretches.target()).await?;
            self.exhausted = stretches.is_exhausted();
            return Ok(());
        }
        match self.after.take().map(|after| bracket(&after)) {
            // BSON sorts by type: nothing comes after the type of the last `_id`.
            Some(name) if name != self.last => self.done.push(name),
            _ => self.exhausted = true,
        }
        Ok(())
    }
}

/// Whether two `_id`s may be the same to the server, as numbers of different types can.
fn is_same(a: &Bson, b: &Bson) -> bool {
    let number = |value: &Bson| match value {
        Bson::Int32(n) => Some(f64::from(*n)),
        Bson::Int64(n) => Some(*n as f64),
        Bson::Double(n) => Some(*n),
        Bson::Decimal128(n) => n.to_string().parse().ok(),
        _ => None,
    };
    a == b || number(a).zip(number(b)).is_some_and(|(a, b)| a == b)
}

/// Returns the units that the rule has cost so far; 0 if the service bills nothing.
pub(crate) fn spent(deployment: &Deployment) -> f64 {
    deployment.account().map_or(0.0, Account::spent)
}
/// Returns the type within which a value is compared, as `$type` names it.
fn bracket(value: &Bson) -> &'static str {
    match value {
        Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Decimal128(_) => "number",
        Bson::ObjectId(_) => "objectId",
        Bson::String(_) => "string",
        Bson::Binary(_) => "binData",
        Bson::DateTime(_) => "date",
        Bson::Timestamp(_) => "timestamp",
        Bson::Boolean(_) => "bool",
        Bson::Document(_) => "object",
        Bson::Null => "null",
        Bson::MinKey => "minKey",
        Bson::MaxKey => "maxKey",
        Bson::Symbol(_) => "symbol",
        Bson::JavaScriptCode(_) => "javascript",
        Bson::JavaScriptCodeWithScope(_) => "javascriptWithScope",
        Bson::RegularExpression(_) => "regex",
        Bson::DbPointer(_) => "dbPointer",
        Bson::Undefined => "undefined",
        Bson::Array(_) => "array",
    }
}
