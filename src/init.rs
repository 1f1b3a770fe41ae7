//! A first policy: what a few answers and a look at some documents make of it. Values in, values out.

pub mod draft;
pub mod fields;

pub use draft::Draft;
pub use fields::{DateField, date_fields};
