//! What the program keeps on the server, or puts back there: journal, leases, history, restored documents, and settings of native TTL.

pub(crate) mod history;
pub(super) mod identity;
pub(crate) mod insert;
pub(crate) mod journal;
pub(crate) mod lease;
pub(crate) mod native_ttl;
pub(crate) mod put_back;
