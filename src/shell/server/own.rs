//! Writes of the program other than deletes: journal, leases, history, restored documents, and settings of native TTL.

pub(crate) mod history;
pub(super) mod identity;
pub(crate) mod insert;
pub(crate) mod journal;
pub(crate) mod lease;
pub(crate) mod native_ttl;
pub(crate) mod put_back;
