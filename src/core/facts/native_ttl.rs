//! Native TTL settings, by which the server itself deletes documents.

use bson::{Bson, DateTime, Document};
use schemars::JsonSchema;
use serde::Serialize;

use crate::base::instant::rfc3339;
use crate::base::values::integer;

/// Field in which Azure Cosmos DB (RU) keeps the time of a document's last change. Source: Microsoft, "Time to live" of Azure
/// Cosmos DB for MongoDB.
pub const LAST_CHANGE: &str = "_ts";

/// The largest value of an index, which the server also shows in place of an invalid one (mongo,
/// `kExpireAfterSecondsForInactiveTTLIndex`).
const LARGEST: i64 = 2_147_483_647;

/// The object that a TTL setting belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "scope")]
pub enum Scope {
    /// An index.
    Index,
    /// A clustered collection itself.
    Clustered,
    /// A time-series collection itself.
    TimeSeries,
    /// The index on `_ts`, the time of the last change.
    LastChange,
}

/// One native TTL setting.
#[derive(Debug, Clone, PartialEq)]
pub struct NativeTtl {
    pub scope: Scope,
    /// Name of the index; `None` for a setting of the collection itself.
    pub index: Option<String>,
    /// Key of the index, or the date field of the collection.
    pub key: Vec<(String, Bson)>,
    /// The value as it stands in the catalog, of any type.
    pub expire_after_seconds: Bson,
    pub partial: Option<Document>,
    pub collation: Option<Document>,
    /// Whether the index is hidden. The server deletes by a hidden index as well.
    pub hidden: bool,
}

impl NativeTtl {
    /// Returns the field whose dates decide what the server deletes; `None` if the server never deletes by an index of this kind.
    pub fn date_field(&self) -> Option<&str> {
        match self.scope {
            Scope::Clustered | Scope::TimeSeries => self.key.first().map(|(field, _)| field.as_str()),
            Scope::Index | Scope::LastChange => date_field(&self.key),
        }
    }

    /// Returns the date field for display, or the whole key if the server never deletes by such an index.
    pub fn shown_field(&self) -> String {
        let parts = self.key.iter().map(|(name, direction)| format!("{name}: {}", direction.to_string().replace('"', "")));
        self.date_field().map_or_else(|| parts.collect::<Vec<_>>().join(", "), str::to_owned)
    }

    /// Returns the names of the fields, separated by commas.
    pub fn field_names(&self) -> String {
        self.key.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Returns the value as a whole number; `None` if it is NaN or not a number.
    pub fn value(&self) -> Option<i64> {
        integer(&self.expire_after_seconds)
    }

    /// Says what the server deletes by the largest value, which looks like a setting that is switched off; `None` for any other
    /// value. It deletes by it as by every other (seen with 6.0.5; mongo, `ttl_test.cpp`,
    /// `TTLkExpireAfterSecondsForInactiveTTLIndexIsValid`).
    pub fn by_largest(&self, now: DateTime) -> Option<String> {
        self.deletes_after().ok().filter(|(_, seconds)| i64::from(*seconds) == LARGEST)?;
        let latest = DateTime::from_millis(now.timestamp_millis() - LARGEST * 1000);
        Some(format!("{LARGEST} s are 68 years: the server deletes dates up to {}", rfc3339(latest)))
    }

    /// Returns the date field, and the seconds after that date at which the server deletes.
    ///
    /// Errors: the reason why the server never deletes by this setting.
    pub fn deletes_after(&self) -> Result<(&str, u32), String> {
        let Some(field) = self.date_field() else {
            return Err(format!("the server never deletes by an index of this kind ({})", self.shown_field()));
        };
        let shown = match &self.expire_after_seconds {
            Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) => &self.expire_after_seconds,
            _ => return Err("its expireAfterSeconds is not a number".to_owned()),
        };
        match self.value() {
            Some(seconds) if seconds >= 0 => {
                let of_server = |_| format!("its expireAfterSeconds is {shown}, which is too large for a server");
                u32::try_from(seconds).map(|seconds| (field, seconds)).map_err(of_server)
            }
            _ => Err(format!("its expireAfterSeconds is {shown}: the server deletes nothing by it")),
        }
    }
}

/// Returns the field of a key by which the server can delete: a single one, ascending or descending, that is neither `_id` nor a
/// wildcard.
pub(super) fn date_field(key: &[(String, Bson)]) -> Option<&str> {
    match key {
        [(field, direction)] if field != "_id" && !field.ends_with("$**") => integer(direction).map(|_| field.as_str()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    fn index(key: Document, expire_after_seconds: impl Into<Bson>) -> NativeTtl {
        NativeTtl {
            scope: Scope::Index,
            index: Some("i".into()),
            key: key.into_iter().collect(),
            expire_after_seconds: expire_after_seconds.into(),
            partial: None,
            collation: None,
            hidden: false,
        }
    }

    #[test]
    fn seconds_are_those_by_which_the_server_deletes() {
        for (value, expected) in [
            (Bson::Int32(60), Ok(60)),
            (Bson::Int64(60), Ok(60)),
            (Bson::Double(1.9), Ok(1)),
            (Bson::Double(-0.5), Ok(0)),
            (Bson::Int32(2_147_483_646), Ok(2_147_483_646)),
            (Bson::Int32(i32::MAX), Ok(2_147_483_647)),
            (Bson::Double(1e300), Err("which is too large for a server")),
            (Bson::Double(f64::NAN), Err("its expireAfterSeconds is NaN: the server deletes nothing by it")),
            (Bson::Int32(-1), Err("its expireAfterSeconds is -1: the server deletes nothing by it")),
            (Bson::Null, Err("its expireAfterSeconds is not a number")),
            ("60".into(), Err("its expireAfterSeconds is not a number")),
        ] {
            match (index(doc! { "at": -1 }, value.clone()).deletes_after(), expected) {
                (Ok(found), Ok(expected)) => assert_eq!(found, ("at", expected), "{value}"),
                (Err(why), Err(expected)) => assert!(why.ends_with(expected), "{value}: {why}"),
                (found, _) => panic!("{value}: {found:?}"),
            }
        }
    }

    #[test]
    fn the_largest_value_reaches_back_68_years() {
        let now = DateTime::parse_rfc3339_str("2026-01-19T03:14:07Z").unwrap();
        let said = |key: Document, value: i32| index(key, value).by_largest(now);
        let expected = "2147483647 s are 68 years: the server deletes dates up to 1958-01-01T00:00:00.000Z";
        assert_eq!(said(doc! { "at": 1 }, i32::MAX).as_deref(), Some(expected));
        assert_eq!([said(doc! { "at": 1 }, i32::MAX - 1), said(doc! { "at": "hashed" }, i32::MAX)], [None, None]);
    }

    #[test]
    fn the_server_deletes_only_by_an_index_on_one_field_in_order() {
        for (key, expected) in [
            (doc! { "at": 1 }, true),
            (doc! { "a.b": -5 }, true),
            (doc! { "at": 1.5 }, true),
            (doc! { "_id.t": 1 }, true),
            (doc! { "_id": 1 }, false),
            (doc! { "at": "hashed" }, false),
            (doc! { "_fts": "text", "_ftsx": 1 }, false),
            (doc! { "at": "2dsphere" }, false),
            (doc! { "$**": 1 }, false),
            (doc! { "a.$**": 1 }, false),
            (doc! { "at": 1, "b": 1 }, false),
        ] {
            assert_eq!(index(key.clone(), 60).deletes_after().is_ok(), expected, "{key}");
        }
        assert_eq!(index(doc! { "at": 1, "b": "hashed" }, 60).shown_field(), "at: 1, b: hashed");
        assert_eq!(index(doc! { "at": 1, "b": "hashed" }, 60).field_names(), "at, b");
    }
}
