//! Stretches of an ordered key, one after another, each guessed to cost about so many request units. A command on a stretch
//! loads each document once, and no command costs more than the service can serve in its time.
//!
//! The guess decides only the cost. Whatever the keys are, the stretches together cover everything up to the last key.

use bson::{Bson, Document, doc};

use crate::base::values::raw::RawValue;
use crate::core::expiry::Expiry;
use crate::core::pace::units::{LOAD_PER_KB, QUERY};
use crate::core::plan::Selection;
use crate::core::policy::DateFormat;
use crate::shell::server::Deployment;
use crate::shell::server::pass::scale::Scale;
use crate::shell::server::wire::codes;
use crate::shell::server::wire::error::{Result, ServerError};
use crate::shell::server::wire::find::Query;
use crate::shell::server::wire::meter::Account;

/// Units that one command on a stretch may cost if the throughput is unknown; the cost of the command itself is then negligible.
const TARGET: f64 = 1000.0;

/// Share of a second's throughput that one command may cost: less of it is done twice if the service cuts it short.
const SHARE: f64 = 0.4;

/// Stretches of a key.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stretches {
    /// `_id`, or the path of a date.
    pub key: String,
    scale: Scale,
    /// Everything up to and including this is done; `None` at the beginning.
    done: Option<Bson>,
    /// The beginning of the next stretch.
    begin: i128,
    last: Bson,
    width: i128,
    target: f64,
    exhausted: bool,
}

impl Stretches {
    /// Opens stretches of the date along the index of a selection, or of the `_id` without an index; `None` if they cannot be
    /// guessed.
    pub(crate) async fn of(deployment: &Deployment, selection: &Selection, expiry: &Expiry) -> Result<Option<Self>> {
        let is_date = expiry.format == DateFormat::Date && expiry.field != "_id";
        match &selection.index {
            Some(index) if index.oldest_first && is_date => {
                Self::of_dates(deployment, selection, &expiry.field, expiry.latest_key()).await
            }
            Some(_) => Ok(None),
            None => Self::of_ids(deployment, selection).await,
        }
    }

    /// Opens stretches of the `_id`; `None` if the `_id`s are of several types, or of one that has no distances.
    ///
    /// Every service sorts by the `_id`, and BSON sorts by type: if both ends are of one type, all `_id`s are.
    async fn of_ids(deployment: &Deployment, selection: &Selection) -> Result<Option<Self>> {
        let (first, last) = ends(deployment, selection).await?;
        let ends = first.zip(last).and_then(|(first, last)| Some((first.decoded()?, last.decoded()?)));
        Ok(ends.and_then(|(first, last)| Self::new(deployment, selection, "_id", &first, last)))
    }

    /// Opens stretches of the dates that an index holds, up to the last that can have expired. Returns `None` if they have no
    /// distances, or the service does not sort by them.
    async fn of_dates(deployment: &Deployment, selection: &Selection, field: &str, last: Bson) -> Result<Option<Self>> {
        let oldest = Query::find(&selection.namespace, doc! { field: { "$lte": &last } }).covered(field);
        let found = match oldest.sort(doc! { field: 1 }).limit(1).first_batch(deployment).await {
            Ok(found) => found,
            Err(cause) if is_refused_sort(&cause) => return Ok(None),
            Err(cause) => return Err(cause),
        };
        let Some(document) = found.first() else {
            let nothing = Self::new(deployment, selection, field, &last, last.clone());
            return Ok(nothing.map(|stretches| Self { exhausted: true, ..stretches }));
        };
        let first = RawValue::decoded_at(document, field);
        Ok(first.and_then(|first| Self::new(deployment, selection, field, &first, last)))
    }

    /// Creates stretches from the first to the last key; `None` if they have no distances.
    pub(crate) fn new(deployment: &Deployment, selection: &Selection, key: &str, first: &Bson, last: Bson) -> Option<Self> {
        let scale = Scale::of(first, &last)?;
        let (begin, end) = (scale.position(first)?, scale.position(&last)?);
        let target = target(deployment, selection);
        let kilobytes = selection.size.average_bytes.map_or(1.0, |bytes| (bytes / 1024.0).ceil().max(1.0));
        // If the keys are spread evenly. A cast from float saturates.
        let share = target / (kilobytes * LOAD_PER_KB * selection.document_count.max(1) as f64);
        let width = ((end - begin) as f64 * share.min(1.0)) as i128;
        Some(Self { key: key.to_owned(), scale, done: None, begin, last, width: width.max(1), target, exhausted: false })
    }

    /// Whether a key is the last one.
    pub(crate) fn is_last(&self, key: &Bson) -> bool {
        *key == self.last
    }

    pub(crate) fn is_exhausted(&self) -> bool {
        self.exhausted
    }

    /// Returns the last key of the stretch that is next.
    pub(crate) fn end(&self) -> Bson {
        let end = self.begin.saturating_add(self.width);
        match self.scale.position(&self.last) {
            Some(last) if end < last => self.scale.at(end),
            _ => self.last.clone(),
        }
    }

    /// Returns the condition for the documents of the stretch that is next. One with several dates belongs to the stretch of the
    /// earliest.
    pub(crate) fn condition(&self) -> Document {
        let key = self.key.as_str();
        match &self.done {
            Some(done) if key == "_id" => doc! { key: { "$gt": done, "$lte": self.end() } },
            Some(done) => doc! { key: { "$gt": done, "$lte": self.end() }, "$nor": [{ key: { "$lte": done } }] },
            None => doc! { key: { "$lte": self.end() } },
        }
    }

    fn end_stretch(&mut self) {
        let end = self.end();
        self.exhausted = end == self.last;
        self.go_on(end);
    }

    /// Goes on behind a key.
    pub(crate) fn go_on(&mut self, behind: Bson) {
        self.begin = self.scale.position(&behind).unwrap_or(self.begin);
        self.done = Some(behind);
    }

    /// Returns the units that a command on a stretch may cost.
    pub(crate) fn target(&self) -> f64 {
        self.target
    }

    /// Goes on after a command that covered a whole stretch, for so many units. `share` is the part of its allowance that the
    /// command used.
    pub(crate) async fn next(&mut self, deployment: &Deployment, selection: &Selection, units: f64, share: f64) -> Result<()> {
        self.end_stretch();
        if units <= QUERY {
            return self.skip(deployment, selection).await;
        }
        self.adapt(share);
        Ok(())
    }

    /// Adapts the width of the next stretches.
    pub(crate) fn adapt(&mut self, share: f64) {
        self.width = ((self.width as f64 / share.clamp(0.5, 64.0)) as i128).max(1);
    }

    /// Makes the next stretches much shorter, after a command that took too long.
    pub(crate) fn shrink(&mut self) {
        self.width = (self.width / 16).max(1);
    }

    /// Skips to the first key behind an empty stretch: a longer stretch might reach into many documents.
    async fn skip(&mut self, deployment: &Deployment, selection: &Selection) -> Result<()> {
        let Some(done) = self.done.as_ref().filter(|_| !self.exhausted) else { return Ok(()) };
        let key = self.key.as_str();
        let filter = doc! { key: { "$gt": done, "$lte": &self.last } };
        let next = Query::find(&selection.namespace, filter).projection(doc! { key: 1 }).sort(doc! { key: 1 }).limit(1);
        let found = next.first_batch(deployment).await?;
        match found.first() {
            Some(document) => {
                let next = RawValue::decoded_at(document, key);
                let position = next.and_then(|next| self.scale.position(&next));
                self.begin = position.unwrap_or(self.begin).max(self.begin);
            }
            None => self.exhausted = true,
        }
        Ok(())
    }
}

/// Returns the first and the last `_id` of a collection; `None` twice if it is empty.
pub(crate) async fn ends(deployment: &Deployment, selection: &Selection) -> Result<(Option<RawValue>, Option<RawValue>)> {
    let end = async |direction: i32| {
        let query = Query::find(&selection.namespace, Document::new()).projection(doc! { "_id": 1 });
        let found = query.sort(doc! { "_id": direction }).limit(1).first_batch(deployment).await?;
        Ok::<_, ServerError>(found.first().and_then(|document| RawValue::at(document, "_id")))
    };
    Ok((end(1).await?, end(-1).await?))
}

/// Returns the units that one command may cost.
pub(crate) fn target(deployment: &Deployment, selection: &Selection) -> f64 {
    let limit = deployment.account().and_then(Account::limit);
    let throughput = selection.throughput.map(f64::from);
    limit.into_iter().chain(throughput).map(|units| units * SHARE).fold(TARGET, f64::min)
}

/// Whether the service has no index for a sort. Source: huly-selfhost#29, pa11y-webservice#151.
fn is_refused_sort(cause: &ServerError) -> bool {
    cause.has_code(codes::BAD_VALUE)
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::spec::BinarySubtype;
    use bson::{Binary, DateTime};

    use super::*;

    fn id(n: u8) -> Bson {
        ObjectId::from_bytes([n; 12]).into()
    }

    fn stretches(first: &Bson, last: &Bson, width: i128) -> Option<Stretches> {
        let scale = Scale::of(first, last)?;
        let begin = scale.position(first)?;
        Some(Stretches {
            key: "_id".into(),
            scale,
            done: None,
            begin,
            last: last.clone(),
            width,
            target: 100.0,
            exhausted: false,
        })
    }

    fn uuid(n: u8) -> Bson {
        Bson::Binary(Binary { subtype: BinarySubtype::Uuid, bytes: vec![n; 16] })
    }

    #[test]
    fn stretches_together_cover_everything_once() {
        let text = |text: &str| Bson::from(text);
        for (first, last) in [
            (id(3), id(200)),
            (Bson::Int32(-5), Bson::Int64(1_000_000)),
            (DateTime::from_millis(-1).into(), DateTime::from_millis(1_000_000).into()),
            (uuid(0), uuid(255)),
            (text("user-0001"), text("user-9999")),
            (text("a"), text("\u{fc}ber")),
            (text(""), text("zzzzzzzzzzzzzzzzzzzzzzzzzzz")),
            (text("same"), text("same")),
        ] {
            let span = Scale::of(&first, &last).unwrap();
            let span = span.position(&last).unwrap() - span.position(&first).unwrap();
            let mut stretches = stretches(&first, &last, (span / 7).max(1)).unwrap();
            let mut ends = Vec::new();
            while !stretches.is_exhausted() {
                let end = stretches.end();
                assert_eq!(stretches.condition().get_document("_id").unwrap().get("$gt"), ends.last());
                // Each end is behind the one before, in the order of the service.
                assert!(ends.last().is_none_or(|before| order(before) < order(&end)), "{first} {last}: {end}");
                stretches.end_stretch();
                ends.push(end);
            }
            assert_eq!(ends.last(), Some(&last));
            assert!(ends.len() <= 9, "{first} {last}: {}", ends.len());
        }
    }

    /// Returns bytes that sort as the service sorts keys of one type.
    fn order(key: &Bson) -> Vec<u8> {
        let signed = |n: i64| (i128::from(n) + (1 << 70)).to_be_bytes().to_vec();
        match key {
            Bson::Int32(n) => signed(i64::from(*n)),
            Bson::Int64(n) => signed(*n),
            Bson::DateTime(date) => signed(date.timestamp_millis()),
            Bson::ObjectId(id) => id.bytes().to_vec(),
            Bson::Binary(binary) => binary.bytes.clone(),
            Bson::String(text) => text.clone().into_bytes(),
            other => panic!("{other}"),
        }
    }

    #[test]
    fn a_stretch_that_goes_on_behind_any_number_ends_behind_it() {
        let mut stretches = stretches(&Bson::Int32(0), &Bson::Int32(100), 2).unwrap();
        for (behind, end) in
            [(Bson::Double(5.5), 7), (Bson::Int64(8), 10), ("10.9".parse::<bson::Decimal128>().unwrap().into(), 12)]
        {
            stretches.go_on(behind);
            assert_eq!(stretches.end(), Bson::Int64(end));
        }
    }

    #[test]
    fn keys_of_several_types_and_without_distances_have_no_stretches() {
        for (first, last) in
            [(Bson::Int32(1), id(1)), (doc! { "a": 1 }.into(), doc! { "a": 2 }.into()), (Bson::MinKey, Bson::MaxKey)]
        {
            assert_eq!(stretches(&first, &last, 1), None, "{first} {last}");
        }
    }

    #[test]
    fn a_document_with_several_dates_belongs_to_the_stretch_of_the_earliest() {
        let date = |millis| Bson::from(DateTime::from_millis(millis));
        let mut stretches = Stretches { key: "at".into(), ..stretches(&date(0), &date(1000), 100).unwrap() };
        assert_eq!(stretches.condition(), doc! { "at": { "$lte": date(100) } });
        stretches.end_stretch();
        let expected = doc! { "at": { "$gt": date(100), "$lte": date(200) }, "$nor": [{ "at": { "$lte": date(100) } }] };
        assert_eq!(stretches.condition(), expected);
    }

    #[test]
    fn the_width_follows_the_cost_and_grows_slowly() {
        let mut stretches = stretches(&Bson::Int32(0), &Bson::Int32(100_000), 1000).unwrap();
        for (share, width) in [(0.01, 2000), (1.0, 2000), (4.0, 500), (1000.0, 7)] {
            stretches.adapt(share);
            assert_eq!(stretches.width, width);
        }
        stretches.shrink();
        assert_eq!(stretches.width, 1);
    }
}
