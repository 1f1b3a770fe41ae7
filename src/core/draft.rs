//! Draft of a first policy, from a few answers and a sample of documents. Values in, values out.

pub(crate) mod fields;
pub mod import;
pub(crate) mod text;
pub mod yaml;

pub(crate) use fields::{DateField, date_fields};
pub(crate) use text::{Draft, DraftRule};
