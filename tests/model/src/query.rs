//! A query that reads on while others write.

use std::collections::HashSet;
use std::sync::Arc;

use bson::{Bson, Document};

use crate::codes;
use crate::collection::{Collection, Collections, Progress, Scan};
use crate::failure::Failure;
use crate::filter::Filter;
use crate::index::{Range, RecordId};
use crate::path::Path;
use crate::plan;

/// A query that is read on.
pub(crate) struct Query {
    namespace: String,
    /// Number of the collection.
    collection: u64,
    filter: Filter,
    pub scan: Scan,
    progress: Progress,
    /// A multikey index leads to a document more than once.
    seen: HashSet<RecordId>,
    /// Whether the keys of the index are all that is read.
    is_covered: bool,
}

impl Query {
    /// Creates a query; `None` if there is no such collection.
    pub(crate) fn new(
        collections: &Collections,
        namespace: &str,
        of: &Document,
        (filter, sort): (Filter, &[(Path, bool)]),
    ) -> Result<Option<(Self, bool)>, Failure> {
        plan::check_collation(of.get_document("collation").ok());
        let Some(collection) = collections.get(namespace) else { return Ok(None) };
        let (mut scan, needs_sort) = plan::scan(collection, &filter, sort, of.get("hint"))?;
        if let Some(range) = min_and_max(collection, of)?
            && let Scan::Index { ranges, .. } = &mut scan
        {
            *ranges = vec![range];
        }
        let (namespace, collection) = (namespace.to_owned(), collection.number);
        let seen = HashSet::new();
        Ok(Some((
            Self { namespace, collection, filter, scan, progress: Progress::default(), seen, is_covered: false },
            needs_sort,
        )))
    }

    /// Reads no more than the keys of the index, if that is enough for what is shown. A key shows a missing value as null, and
    /// what a path finds by its position in an array as if it were below a document.
    pub(crate) fn cover(&mut self, collections: &Collections, shown: Option<Vec<Path>>) {
        let Scan::Index { name, .. } = &self.scan else { return };
        let index = collections.get(&self.namespace).and_then(|collection| collection.index(name));
        let (Some(index), Some(shown), Some(asked)) = (index, shown, self.filter.paths()) else { return };
        self.is_covered = !index.is_multikey() && index.has(&shown) && index.has(&asked);
    }

    /// Returns the next document that matches, as it is now.
    pub(crate) fn next(&mut self, collections: &Collections) -> Result<Option<Arc<Bson>>, Failure> {
        let collection = collections.get(&self.namespace).filter(|found| found.number == self.collection);
        let collection = collection.ok_or_else(|| Failure::new(codes::QUERY_PLAN_KILLED, "collection dropped"))?;
        let may_repeat =
            matches!(&self.scan, Scan::Index { name, .. } if collection.index(name).is_some_and(|index| index.is_multikey()));
        while let Some(record) = collection.next(&self.scan, &mut self.progress) {
            let document = collection.get(record).expect("a document of an index");
            if let (true, Scan::Index { name, .. }, Some(entry)) = (self.is_covered, &self.scan, &self.progress.entry) {
                let index = collection.index(name).filter(|index| !index.is_multikey());
                let shown = index.map(|index| Bson::from(index.shown(entry)));
                if let Some(shown) = shown
                    && self.filter.matches(&shown)?
                {
                    return Ok(Some(Arc::new(shown)));
                }
                continue;
            }
            if (!may_repeat || self.seen.insert(record)) && self.filter.matches(document)? {
                return Ok(Some(document.clone()));
            }
        }
        Ok(None)
    }

    pub(crate) fn all(&mut self, collections: &Collections) -> Result<Vec<Arc<Bson>>, Failure> {
        let mut all = Vec::new();
        while let Some(document) = self.next(collections)? {
            all.push(document);
        }
        Ok(all)
    }
}

/// Returns the range of the hinted index that `min` and `max` name; `None` without either.
fn min_and_max(collection: &Collection, of: &Document) -> Result<Option<Range>, Failure> {
    let (min, max) = (of.get_document("min").ok(), of.get_document("max").ok());
    if min.is_none() && max.is_none() {
        return Ok(None);
    }
    let hint = of
        .get("hint")
        .ok_or_else(|| Failure::new(51_173, "When using min()/max() a hint of which index to use must be provided"))?;
    let index = plan::hinted(collection, hint)?;
    let bound = |key: Option<&Document>| key.map(|key| index.bound(key)).transpose();
    let range = Range { from: bound(min)?, to: bound(max)? };
    match range.from.as_ref().zip(range.to.as_ref()) {
        Some((from, to)) if from >= to => Err(Failure::new(51_175, "min must be less than max")),
        _ => Ok(Some(range)),
    }
}
