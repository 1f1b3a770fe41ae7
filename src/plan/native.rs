//! The TTL settings that the deployment itself has where a rule deletes.

use bson::Bson;
use serde::{Deserialize, Serialize};

use crate::facts::{CollectionFacts, IndexFacts, Seen, TimeSeriesFacts};
use crate::values::integer;

/// A TTL setting of the deployment itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NativeSetting {
    /// `None`: it belongs to the collection.
    pub index: Option<String>,
    /// Several of a compound index, which the server never deletes by.
    pub field: String,
    /// As the server reads it; `None` where it is no number.
    pub expire_after_seconds: Option<i64>,
}

/// The settings of what was seen; `None` where they were not looked at.
pub fn settings(seen: &Seen) -> Option<Vec<NativeSetting>> {
    match seen {
        Seen::Collection(facts) => {
            let of_collection = facts.expire_after_seconds.map(|seconds| ("_id", seconds));
            let of_indexes = facts.indexes.iter().filter_map(|index| {
                let fields: Vec<&str> = index.key.iter().map(|(name, _)| name.as_str()).collect();
                Some(NativeSetting {
                    index: Some(index.name.clone()),
                    field: fields.join(", "),
                    expire_after_seconds: integer(index.expire_after_seconds.as_ref()?),
                })
            });
            Some(of_collection.map(own_setting).into_iter().chain(of_indexes).collect())
        }
        Seen::TimeSeries(facts) => {
            let own = facts.expire_after_seconds.map(|seconds| own_setting((facts.time_field.as_str(), seconds)));
            Some(own.into_iter().collect())
        }
        Seen::NotLookedFor | Seen::Missing | Seen::View | Seen::Unreadable { .. } => None,
    }
}

fn own_setting((field, seconds): (&str, i64)) -> NativeSetting {
    NativeSetting { index: None, field: field.to_owned(), expire_after_seconds: Some(seconds) }
}

/// Warns of the collection's own TTL: the server deletes there as well.
pub fn time_series_warning(facts: &TimeSeriesFacts) -> Option<String> {
    let seconds = facts.expire_after_seconds?;
    Some(format!("the collection's own expireAfterSeconds ({seconds}) deletes from it as well"))
}

/// Warns of a native TTL index on the same field: the server deletes there as well.
pub fn warning(field: &str, facts: &CollectionFacts) -> Option<String> {
    let on = |index: &&IndexFacts| {
        index.expire_after_seconds.is_some() && index.key.len() == 1 && (index.key[0].0 == field || index.key[0].0 == "_ts")
    };
    let index = facts.indexes.iter().find(on)?;
    let seconds = index.expire_after_seconds.as_ref()?;
    Some(if index.key[0].0 == field {
        format!("the TTL index `{}` (expireAfterSeconds {seconds}) deletes from this collection as well", index.name)
    } else if matches!(seconds, Bson::Int32(-1) | Bson::Int64(-1)) {
        "the service's own TTL is on and deletes documents by their own `ttl` as well".into()
    } else {
        format!("the service's own TTL deletes documents {seconds} s after they were last changed as well")
    })
}
