//! Draft of a first policy, from a few answers and a sample of documents. Values in, values out.

pub(crate) mod draft;
pub(crate) mod fields;

pub(crate) use draft::{Draft, DraftRule};
pub(crate) use fields::{DateField, date_fields};
