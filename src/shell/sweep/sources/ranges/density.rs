//! The density of keys, from which the end of a range is guessed.

use bson::Bson;

use crate::shell::server::pass::scale::Scale;

/// Documents of the smallest batch whose end is guessed. The ends of smaller ones are found as fast.
const MIN_DOCUMENTS: u64 = 200;

/// Standard deviations by which a guessed range is meant to hold fewer documents than it may. The keys are taken as spread at
/// random, both where their density was found and in the guessed range.
const MARGIN: f64 = 3.0;

/// The density of the keys in one range.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Density {
    scale: Scale,
    /// Distance from key to key.
    distance: f64,
    /// Documents from which the distance is known.
    documents: f64,
}

impl Density {
    /// Returns the density in a range of so many documents; `None` if the range is too small, or its keys have no distances.
    pub(super) fn of(begin: &Bson, end: &Bson, documents: u64) -> Option<Self> {
        let scale = Scale::of(begin, end).filter(|_| documents >= MIN_DOCUMENTS)?;
        let width = scale.position(end)?.saturating_sub(scale.position(begin)?);
        let documents = documents as f64;
        Some(Self { scale, distance: width as f64 / documents, documents })
    }

    /// Returns the last key of a range that begins behind `begin` and holds nearly `max` documents, if all goes on as before;
    /// at most the last key of all. Returns `None` if nothing can be guessed.
    pub(super) fn end(&self, begin: &Bson, last: &Bson, max: u64) -> Option<Bson> {
        if max < MIN_DOCUMENTS {
            return None;
        }
        let max = max as f64;
        let documents = max - MARGIN * max * (1.0 / max + 1.0 / self.documents).sqrt();
        let begin = self.scale.position(begin)?;
        // A cast from float truncates, and saturates.
        let end = begin.saturating_add((self.distance * documents) as i128);
        let is_last = end >= self.scale.position(last)?;
        (begin < end).then(|| if is_last { last.clone() } else { self.scale.at(end) })
    }
}

#[cfg(test)]
mod tests {
    use bson::DateTime;

    use super::*;

    fn date(millis: i64) -> Bson {
        DateTime::from_millis(millis).into()
    }

    #[test]
    fn a_range_goes_on_as_dense_as_the_last_one_and_stays_below_what_it_may_hold() {
        // 400 documents in 4,000 ms: 10 ms for each. Of 900 documents 3 * 900 * sqrt(1/400 + 1/900) fewer are meant to be there.
        let density = Density::of(&date(1000), &date(5000), 400).unwrap();
        assert_eq!(density.end(&date(5000), &date(1_000_000), 900), Some(date(5000 + 7377)));
        assert_eq!(density.end(&date(-70), &date(1_000_000), 400), Some(date(-70 + 3151)));
        // The density of many documents is known better.
        let density = Density::of(&date(0), &date(4_000_000), 400_000).unwrap();
        assert_eq!(density.end(&date(0), &date(1_000_000), 900), Some(date(8098)));
    }

    #[test]
    fn a_range_ends_with_the_last_key() {
        let density = Density::of(&date(0), &date(4000), 400).unwrap();
        for (last, end) in [(3152, 3151), (3151, 3151), (3150, 3150)] {
            assert_eq!(density.end(&date(0), &date(last), 400), Some(date(end)), "{last}");
        }
    }

    #[test]
    fn nothing_is_guessed_in_small_batches_and_without_distances() {
        let density = Density::of(&date(0), &date(4000), 400).unwrap();
        assert_eq!(density.end(&date(0), &date(1_000_000), MIN_DOCUMENTS - 1), None);
        // All in one millisecond, or nearly.
        for end in [0, 1] {
            let dense = Density::of(&date(0), &date(end), 400).unwrap();
            assert_eq!(dense.end(&date(end), &date(1_000_000), 300), None, "{end}");
        }
        for (begin, end, documents) in [
            (date(0), date(9), MIN_DOCUMENTS - 1),
            (Bson::Int32(0), date(9), 400),
            (Bson::MinKey, date(9), 400),
            (date(0), Bson::Double(f64::INFINITY), 400),
        ] {
            assert_eq!(Density::of(&begin, &end, documents), None, "{begin} {end}");
        }
        let numbers = Density::of(&Bson::Int64(i64::MIN), &Bson::Int64(i64::MAX), 200).unwrap();
        assert_eq!(numbers.end(&Bson::Int64(0), &Bson::Double(f64::INFINITY), 10_000_000), Some(Bson::Int64(i64::MAX)));
    }
}
