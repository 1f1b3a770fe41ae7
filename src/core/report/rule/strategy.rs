//! The way to find the expired documents, and the order in which they are deleted.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::core::plan::{Selection, Storage};
use crate::core::policy::Order;

/// Way to find the expired documents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "strategy")]
pub enum Strategy {
    /// Documents are found along an index.
    Index,
    /// The whole collection is searched, once.
    CollectionScan,
    /// Whole buckets of a time-series collection are found by their `_id`.
    Buckets,
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.serialize(f)
    }
}

impl Strategy {
    pub(super) fn of(selection: &Selection) -> Self {
        match (&selection.storage, &selection.index) {
            (Storage::Buckets { .. }, _) => Self::Buckets,
            (_, Some(_)) => Self::Index,
            (_, None) => Self::CollectionScan,
        }
    }
}

/// Order in which documents are deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "order")]
pub enum DeleteOrder {
    /// By date, along the index on it.
    OldestFirst,
    /// As the documents are stored.
    Storage,
}

impl fmt::Display for DeleteOrder {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.serialize(f)
    }
}

impl DeleteOrder {
    pub(super) fn of(order: Order) -> Self {
        match order {
            Order::Storage => Self::Storage,
            Order::Auto | Order::OldestFirst => Self::OldestFirst,
        }
    }
}
