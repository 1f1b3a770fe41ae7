//! Draft of a first policy, from a few answers and a sample of documents. Values in, values out.

pub mod draft;
pub mod fields;

pub use draft::Draft;
pub use fields::{DateField, date_fields};
