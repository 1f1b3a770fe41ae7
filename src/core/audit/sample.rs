//! Expired documents as examples in an audit, each with the date that decided and the reason.

use bson::{Bson, Document};

use crate::base::instant::Instant;
use crate::core::audit::figures::Sample;
use crate::core::expiry::Expiry;
use crate::core::policy::duration;

/// Reads a document that [`Expiry::samples`] asked for; `None` if it is not of that form.
pub(crate) fn read(expiry: &Expiry, is_bucket: bool, found: &Document) -> Option<Sample> {
    let date = expiry.instant(found.get("date")?)?;
    let dates = found.get_i32("dates").unwrap_or(1);
    Some(Sample { id: canonical(found.get("_id")?), date: Instant(date), why: why(expiry, is_bucket, dates, found.get("ttl")) })
}

/// Returns an `_id` as canonical Extended JSON.
pub(crate) fn canonical(id: &Bson) -> serde_json::Value {
    id.clone().into_canonical_extjson()
}

fn why(expiry: &Expiry, is_bucket: bool, dates: i32, ttl: Option<&Bson>) -> String {
    let ttl = match ttl {
        Some(Bson::Int32(n)) => Some(i64::from(*n)),
        Some(Bson::Int64(n)) => Some(*n),
        // A whole number within int32.
        Some(Bson::Double(n)) => Some(*n as i64),
        _ => None,
    };
    let of_several = (dates > 1).then(|| format!("earliest of {dates} dates"));
    let of_ttl = ttl.map(|ttl| match expiry.expire_after_seconds {
        Some(seconds) => format!("ttl {ttl} overrides {seconds}"),
        None => format!("ttl {ttl} of its own"),
    });
    let reasons: Vec<String> = of_several.into_iter().chain(of_ttl).collect();
    if !reasons.is_empty() {
        return reasons.join("; ");
    }
    let seconds = expiry.expire_after_seconds.unwrap_or(0);
    let age = format!("at least {} old", duration::format(i64::from(seconds)));
    if is_bucket { format!("latest measurement {age}") } else { age }
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, doc};

    use super::*;
    use crate::core::policy::DateFormat;

    #[test]
    fn what_decided_is_said() {
        let mut expiry = Expiry {
            field: "at".into(),
            format: DateFormat::Date,
            expire_after_seconds: Some(3600),
            ttl_field: Some("ttl".into()),
            not_before_1970: false,
            checks_path: false,
            filter: None,
            as_of: DateTime::from_millis(0),
        };
        let found = |dates: i32, ttl: Bson| doc! { "_id": 5, "date": DateTime::from_millis(0), "dates": dates, "ttl": ttl };
        for (dates, ttl, expected) in [
            (1, Bson::Null, "at least 1h old"),
            (3, Bson::Null, "earliest of 3 dates"),
            (1, Bson::Double(20.0), "ttl 20 overrides 3600"),
            (2, Bson::Int64(20), "earliest of 2 dates; ttl 20 overrides 3600"),
        ] {
            assert_eq!(read(&expiry, false, &found(dates, ttl)).unwrap().why, expected);
        }
        expiry.expire_after_seconds = None;
        let sample = read(&expiry, false, &found(1, Bson::Int32(20))).unwrap();
        assert_eq!((sample.why.as_str(), sample.date.millis()), ("ttl 20 of its own", 0));
        assert_eq!(sample.id, serde_json::json!({ "$numberInt": "5" }));
    }
}
