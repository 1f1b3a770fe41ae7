//! The codes of the errors that the model reports, written down apart from those that the program tells apart.
//!
//! Source: mongo `src/mongo/base/error_codes.yml`.

pub(crate) const BAD_VALUE: i32 = 2;
pub(crate) const NAMESPACE_NOT_FOUND: i32 = 26;
pub(crate) const CURSOR_NOT_FOUND: i32 = 43;
pub(crate) const MAX_TIME_MS_EXPIRED: i32 = 50;
pub(crate) const COMMAND_NOT_FOUND: i32 = 59;
pub(crate) const WRITE_CONCERN_TIMEOUT: i32 = 64;
pub(crate) const INVALID_OPTIONS: i32 = 72;
pub(crate) const SHUTDOWN_IN_PROGRESS: i32 = 91;
pub(crate) const QUERY_PLAN_KILLED: i32 = 175;
pub(crate) const PRIMARY_STEPPED_DOWN: i32 = 189;
pub(crate) const CONVERSION_FAILURE: i32 = 241;
pub(crate) const COLLECTION_UUID_MISMATCH: i32 = 361;
pub(crate) const INGRESS_REQUEST_RATE_LIMIT_EXCEEDED: i32 = 462;
pub(crate) const NOT_WRITABLE_PRIMARY: i32 = 10_107;
pub(crate) const DUPLICATE_KEY: i32 = 11_000;
pub(crate) const INTERRUPTED_AT_SHUTDOWN: i32 = 11_600;
pub(crate) const INTERRUPTED_DUE_TO_REPL_STATE_CHANGE: i32 = 11_602;
