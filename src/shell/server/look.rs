//! All that is only read: collections, counts, samples, parents and privileges.

pub(crate) mod audit;
pub(crate) mod bound;
pub(crate) mod catalog;
pub(crate) mod children;
pub(super) mod confirmed;
pub(crate) mod count;
pub(crate) mod fields;
pub(crate) mod figures;
pub(crate) mod id_sample;
pub(crate) mod metadata;
pub(crate) mod one_document;
pub(crate) mod one_family;
pub(crate) mod overdue;
pub(crate) mod parents;
pub(crate) mod periods;
pub(crate) mod predicate;
pub(crate) mod privileges;
pub(crate) mod sample;
pub(super) mod sharding;
pub(crate) mod storage_sample;
