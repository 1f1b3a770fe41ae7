//! The wire: commands, their replies, errors, time limits and retries.

pub(crate) mod codes;
pub(crate) mod driver;
pub(crate) mod error;
pub(crate) mod find;
pub(crate) mod meter;
pub(crate) mod overload;
pub(crate) mod plan;
pub(crate) mod retry;
pub(super) mod running;
pub(crate) mod timeout;
pub(crate) mod transport;
