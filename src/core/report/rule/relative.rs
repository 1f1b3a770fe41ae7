//! The relative dates of a rule, with the dates that they stand for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::base::instant::Instant;
use crate::core::policy::relative::RelativeDate;

/// A relative date in a filter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "relativeDate")]
pub struct RelativeDateReport {
    /// The key of the filter: `filter` or `holds.filter`.
    pub of: String,
    /// Path of the field that is compared with the date; empty within `$expr`.
    pub path: String,
    /// The time before `asOf`, as the policy writes it.
    pub ago: String,
    /// `asOf` less this time.
    pub date: Instant,
}

impl From<&RelativeDate> for RelativeDateReport {
    fn from(RelativeDate { of, path, ago, date }: &RelativeDate) -> Self {
        Self { of: (*of).to_owned(), path: path.clone(), ago: ago.clone(), date: Instant(*date) }
    }
}

impl RelativeDateReport {
    /// Says what the date stands for.
    pub(in crate::core::report) fn words(&self) -> String {
        let Self { of, path, ago, date } = self;
        let place = if path.is_empty() { of.clone() } else { format!("{of}, {path}") };
        format!("{ago} ago ({place}) is {date}")
    }
}
