//! Native TTL settings as the report of a run shows them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::core::facts::{Collection, CollectionKind, NativeTtl};

/// A native TTL setting of a collection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "nativeSetting")]
pub struct NativeSetting {
    /// Name of the index; null if the setting belongs to the collection itself.
    pub index: Option<String>,
    /// Field of the dates, or all fields of a compound index, by which the server never deletes.
    pub field: String,
    /// Null if the server's value is not a number.
    pub expire_after_seconds: Option<i64>,
}

impl From<&NativeTtl> for NativeSetting {
    fn from(ttl: &NativeTtl) -> Self {
        Self { index: ttl.index.clone(), field: ttl.field_names(), expire_after_seconds: ttl.value() }
    }
}

/// Returns the settings of a collection; `None` for a view, which cannot have any.
pub fn settings(collection: &Collection) -> Option<Vec<NativeSetting>> {
    (collection.kind != CollectionKind::View).then(|| collection.ttl().iter().map(NativeSetting::from).collect())
}
