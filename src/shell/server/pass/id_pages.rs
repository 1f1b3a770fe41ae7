//! Pages of `_id`s, for servers whose cursors do not last: each page is one query that begins after the page before.

use bson::error::Error;
use bson::spec::ElementType;
use bson::{Bson, RawDocumentBuf, doc};

use super::stretches::{self, Stretches};
use crate::base::values::raw::{self, RawRef, RawValue};
use crate::core::plan::Selection;
use crate::core::policy::namespace::Namespace;
use crate::shell::server::Deployment;
use crate::shell::server::delete::shard_key::{self, KeyValues};
use crate::shell::server::wire::error::{Result, ServerError};
use crate::shell::server::wire::find::Query;
use crate::shell::server::wire::meter::Account;
use crate::shell::server::wire::overload::Overload;
use crate::shell::server::wire::retry::Retries;

/// One pass over the documents of a selection, in the order of the `_id`.
///
/// An `_id` is unique per value of the shard key only, so that a page may end among documents with the same `_id`. In a sharded
/// collection the next page begins with that `_id` again. Documents that were deleted are gone by then. Documents that were
/// returned before and are still there are left out by their `_id` and key, so that every page brings further documents,
/// however many have one `_id`.
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

/// A document that was found.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FoundDocument {
    /// The document with its `_id` and its shard key, as the server sent it.
    document: RawDocumentBuf,
    /// Values of the shard key.
    pub key: KeyValues,
}

impl FoundDocument {
    /// Returns the `_id`, which a found document has.
    pub(crate) fn id(&self) -> RawRef<'_> {
        RawRef::at(&self.document, "_id").unwrap_or(RawRef::NULL)
    }
}

/// The state of a pass.
struct PassState {
    /// Type of the last `_id` of the collection.
    last: &'static str,
    /// Bounds for the cost of a page; `None` if nothing is billed, the `_id`s have no distances, or an index finds the
    /// documents.
    stretches: Option<Stretches>,
    /// The last `_id` that was read; `None` before the first one of a type.
    after: Option<RawValue>,
    /// The documents with this `_id` that were returned; each `_id` may be a number of another type.
    returned: Vec<FoundDocument>,
    /// The documents among them that are known to be still there.
    kept: Vec<FoundDocument>,
    /// Types of `_id` that are done: a comparison finds values of one type only.
    done: Vec<&'static str>,
    exhausted: bool,
}

impl<'a> PagedIds<'a> {
    pub(crate) fn new(deployment: &'a Deployment, selection: &'a Selection, reported_as: &'a Namespace, deletes: bool) -> Self {
        Self { deployment, selection, reported_as, deletes, place: None, retries: Retries::patient() }
    }

    /// Returns the next documents, at most `max`; none if none is left.
    pub(crate) async fn next(&mut self, max: u64) -> Result<Vec<FoundDocument>> {
        let (deployment, selection) = (self.deployment, self.selection);
        let mut place = match self.place.take() {
            Some(place) => place,
            None => PassState::begin(deployment, selection).await?,
        };
        let mut most = max.max(1);
        while !place.exhausted {
            let before = spent(deployment);
            let page = match self.query(&place, most)?.first_batch(deployment).await {
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
            let page = page.into_iter().map(|document| found(document, &selection.shard_key)).collect::<Result<Vec<_>>>()?;
            let fresh = place.enter(page, !selection.shard_key.is_empty(), self.deletes, units);
            if !fresh.is_empty() {
                self.place = Some(place);
                return Ok(fresh);
            }
        }
        self.place = Some(place);
        Ok(Vec::new())
    }

    fn query(&self, place: &PassState, most: u64) -> Result<Query> {
        let Selection { namespace, predicate, shard_key, .. } = self.selection;
        let mut projection = doc! { "_id": 1 };
        projection.extend(shard_key.iter().map(|path| (path.clone(), Bson::Int32(1))));
        let mut all = vec![RawValue::of(predicate.clone())?];
        all.extend(place.conditions(shard_key)?.into_iter().map(RawValue::from));
        let unheld = self.selection.unheld()?.map(|unheld| unheld.document()).transpose()?;
        all.extend(unheld.map(RawValue::from));
        let query = Query::find(namespace, raw::document([("$and", &RawValue::list(&all)?)])?)
            .projection(projection)
            .sort(doc! { "_id": 1 })
            .limit(most)
            .retried_patiently(self.reported_as)
            .shrunk_by_caller();
        Ok(query)
    }
}

/// Reads a document with its `_id` and its shard key.
fn found(document: RawDocumentBuf, paths: &[String]) -> Result<FoundDocument> {
    if RawRef::at(&document, "_id").is_none() {
        return Err(ServerError::invalid_reply("a document without an `_id`"));
    }
    let key = shard_key::of(&document, paths);
    Ok(FoundDocument { document, key })
}

impl PassState {
    async fn begin(deployment: &Deployment, selection: &Selection) -> Result<Self> {
        let (first, last) = stretches::ends(deployment, selection).await?;
        let ends = first.as_ref().zip(last.as_ref()).and_then(|(first, last)| Some((first.decoded()?, last.decoded()?)));
        let stretches = ends
            .filter(|_| selection.index.is_none() && deployment.facts.capabilities.request_charge)
            .and_then(|(first, last)| Stretches::new(deployment, selection, "_id", &first, last));
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
    fn conditions(&self, paths: &[String]) -> std::result::Result<Vec<RawDocumentBuf>, Error> {
        let mut conditions = Vec::new();
        match &self.after {
            // A page that ended with this `_id` may have left out others that have it.
            Some(after) => conditions.push(behind(after, !paths.is_empty() && !self.returned.is_empty())?),
            None if self.done.is_empty() => {}
            None => {
                let done = self.done.iter().map(|name| doc! { "_id": { "$type": *name } });
                conditions.push(RawDocumentBuf::try_from(&doc! { "$nor": done.collect::<Vec<_>>() })?);
            }
        }
        if let Some(stretches) = &self.stretches {
            conditions.push(RawDocumentBuf::try_from(&doc! { "_id": { "$lte": stretches.end() } })?);
        }
        if !self.kept.is_empty() {
            let one = |document: &FoundDocument| {
                let id = raw::document([("_id", &document.id().into())])?;
                raw::joined(&[&id, &shard_key::is(&document.key, paths)?]).map(RawValue::from)
            };
            let kept: Vec<RawValue> = self.kept.iter().map(one).collect::<std::result::Result<_, Error>>()?;
            conditions.push(raw::document([("$nor", &RawValue::list(&kept)?)])?);
        }
        Ok(conditions)
    }

    /// Goes on after a page; returns its documents without those that were returned before.
    fn enter(&mut self, page: Vec<FoundDocument>, is_sharded: bool, deletes: bool, units: f64) -> Vec<FoundDocument> {
        let Some(last) = page.last().map(|found| RawValue::from(found.id())) else { return Vec::new() };
        // A page that no comparison restricts to one type may end with another type than it begins with.
        let ids = page.iter().map(FoundDocument::id);
        for before in self.after.iter().map(RawRef::from).chain(ids).map(bracket) {
            if before != bracket(&last) && !self.done.contains(&before) {
                self.done.push(before);
            }
        }
        if let Some(stretches) = &mut self.stretches {
            // A page says nothing of the rest of its stretch, unless it was dear already.
            stretches.adapt((units / stretches.target()).max(1.0));
            // Behind an `_id` that is not valid, the stretch just stays as long as it was.
            if let Some(last) = last.decoded() {
                stretches.go_on(last.clone());
                self.exhausted = !is_sharded && stretches.is_last(&last);
            }
        }
        if !is_sharded {
            self.after = Some(last);
            return page;
        }
        let (seen, fresh): (Vec<_>, Vec<_>) = page.into_iter().partition(|found| self.returned.contains(found));
        if self.after.as_ref().is_some_and(|after| is_same(after, &last)) {
            self.kept.extend(seen);
        } else {
            (self.returned, self.kept) = (Vec::new(), Vec::new());
        }
        let at_end: Vec<_> = fresh.iter().filter(|found| is_same(&found.id().into(), &last)).cloned().collect();
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
            self.after = Some(RawValue::of(stretches.end())?);
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

/// Returns a condition for the `_id`s behind this one, as far as a comparison finds them; with `again`, also for those that equal
/// it.
///
/// NaN comes before all other numbers, but no comparison finds it together with them.
fn behind(id: &RawValue, again: bool) -> std::result::Result<RawDocumentBuf, Error> {
    let compared = |operator, value: &RawValue| raw::document([("_id", &raw::document([(operator, value)])?.into())]);
    if !is_nan(id) {
        return compared(if again { "$gte" } else { "$gt" }, id);
    }
    let others = compared("$gte", &RawValue::of(f64::NEG_INFINITY)?)?;
    if !again {
        return Ok(others);
    }
    let either = [compared("$gte", id)?, others].map(RawValue::from);
    raw::document([("$or", &RawValue::list(&either)?)])
}

/// Whether two `_id`s may be the same to the server, as numbers of different types can.
fn is_same(a: &RawValue, b: &RawValue) -> bool {
    a == b || number(a).zip(number(b)).is_some_and(|(a, b)| a == b || (a.is_nan() && b.is_nan()))
}

fn is_nan(id: &RawValue) -> bool {
    number(id).is_some_and(f64::is_nan)
}

fn number(id: &RawValue) -> Option<f64> {
    match id.decoded()? {
        Bson::Int32(n) => Some(f64::from(n)),
        Bson::Int64(n) => Some(n as f64),
        Bson::Double(n) => Some(n),
        Bson::Decimal128(n) => n.to_string().parse().ok(),
        _ => None,
    }
}

/// Returns the units that the rule has cost so far; 0 if the service bills nothing.
pub(crate) fn spent(deployment: &Deployment) -> f64 {
    deployment.account().map_or(0.0, Account::spent)
}

/// Returns the type within which a value is compared, as `$type` names it.
fn bracket<'a>(value: impl Into<RawRef<'a>>) -> &'static str {
    match value.into().kind() {
        ElementType::Int32 | ElementType::Int64 | ElementType::Double | ElementType::Decimal128 => "number",
        ElementType::ObjectId => "objectId",
        ElementType::String => "string",
        ElementType::Binary => "binData",
        ElementType::DateTime => "date",
        ElementType::Timestamp => "timestamp",
        ElementType::Boolean => "bool",
        ElementType::EmbeddedDocument => "object",
        ElementType::Null => "null",
        ElementType::MinKey => "minKey",
        ElementType::MaxKey => "maxKey",
        ElementType::Symbol => "symbol",
        ElementType::JavaScriptCode => "javascript",
        ElementType::JavaScriptCodeWithScope => "javascriptWithScope",
        ElementType::RegularExpression => "regex",
        ElementType::DbPointer => "dbPointer",
        ElementType::Undefined => "undefined",
        ElementType::Array => "array",
    }
}

#[cfg(test)]
mod tests {
    use bson::Document;

    use super::*;

    fn ids(values: Vec<Bson>) -> Vec<FoundDocument> {
        let document = |id| RawDocumentBuf::try_from(&doc! { "_id": id }).unwrap();
        values.into_iter().map(|id| FoundDocument { document: document(id), key: Vec::new() }).collect()
    }

    fn pass() -> PassState {
        PassState {
            last: "string",
            stretches: None,
            after: None,
            returned: Vec::new(),
            kept: Vec::new(),
            done: Vec::new(),
            exhausted: false,
        }
    }

    fn condition(id: Bson, again: bool) -> Document {
        Document::try_from(behind(&RawValue::of(id).unwrap(), again).unwrap()).unwrap()
    }

    #[test]
    fn types_before_the_one_with_which_a_page_ends_are_not_read_again() {
        let mut pass = pass();
        pass.enter(ids(vec![Bson::MinKey]), false, false, 0.0);
        assert_eq!(pass.done, Vec::<&str>::new());
        pass.enter(ids(vec![1.into(), 2.5.into(), "a".into()]), false, false, 0.0);
        assert_eq!(pass.done, ["minKey", "number"]);
        pass.enter(ids(vec!["b".into(), "c".into()]), false, false, 0.0);
        assert_eq!(pass.done, ["minKey", "number"]);
        pass.after = None;
        let conditions = pass.conditions(&[]).unwrap();
        let types = vec![doc! { "_id": { "$type": "minKey" } }, doc! { "_id": { "$type": "number" } }];
        assert_eq!(Document::try_from(&*conditions[0]).unwrap(), doc! { "$nor": types });
    }

    #[test]
    fn all_other_numbers_are_behind_the_one_that_is_none() {
        let others = doc! { "_id": { "$gte": f64::NEG_INFINITY } };
        for nan in [Bson::Double(f64::NAN), Bson::Decimal128("NaN".parse().unwrap())] {
            assert_eq!(condition(nan.clone(), false), others);
            let either = condition(nan.clone(), true).get_array("$or").unwrap().clone();
            assert_eq!((either.len(), either[1].as_document()), (2, Some(&others)));
            assert!(is_same(&RawValue::of(nan).unwrap(), &RawValue::of(f64::NAN).unwrap()));
        }
        assert_eq!(condition(5.into(), false), doc! { "_id": { "$gt": 5 } });
        assert_eq!(condition("a".into(), true), doc! { "_id": { "$gte": "a" } });
        let value = |value: Bson| RawValue::of(value).unwrap();
        assert!(is_same(&value(5.into()), &value(5.0.into())) && !is_same(&value(5.into()), &value("5".into())));
    }
}
