//! Passes over a whole collection, in pieces.

pub(crate) mod id_pages;
pub(crate) mod scale;
pub(crate) mod stretches;
