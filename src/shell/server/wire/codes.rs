//! The codes of server errors that this program tells apart.
//!
//! Source: mongo `src/mongo/base/error_codes.yml`.

pub(crate) const INTERNAL_ERROR: i32 = 1;
pub(crate) const BAD_VALUE: i32 = 2;
pub(crate) const HOST_UNREACHABLE: i32 = 6;
pub(crate) const HOST_NOT_FOUND: i32 = 7;
pub(crate) const UNAUTHORIZED: i32 = 13;
pub(crate) const AUTHENTICATION_FAILED: i32 = 18;
pub(crate) const LOCK_TIMEOUT: i32 = 24;
pub(crate) const NAMESPACE_NOT_FOUND: i32 = 26;
pub(crate) const INDEX_NOT_FOUND: i32 = 27;
pub(crate) const CURSOR_NOT_FOUND: i32 = 43;
pub(crate) const MAX_TIME_MS_EXPIRED: i32 = 50;
pub(crate) const COMMAND_NOT_FOUND: i32 = 59;
/// A router cannot aim a write for one document at a shard.
pub(crate) const SHARD_KEY_NOT_FOUND: i32 = 61;
/// The members did not confirm within the time limit of the write concern.
pub(crate) const WRITE_CONCERN_TIMEOUT: i32 = 64;
pub(crate) const CANNOT_CREATE_INDEX: i32 = 67;
pub(crate) const INVALID_OPTIONS: i32 = 72;
/// A router gave up after its view of the chunks was out of date several times.
pub(crate) const NO_PROGRESS_MADE: i32 = 82;
pub(crate) const INDEX_OPTIONS_CONFLICT: i32 = 85;
pub(crate) const INDEX_KEY_SPECS_CONFLICT: i32 = 86;
pub(crate) const NETWORK_TIMEOUT: i32 = 89;
pub(crate) const SHUTDOWN_IN_PROGRESS: i32 = 91;
pub(crate) const WRITE_CONFLICT: i32 = 112;
pub(crate) const COMMAND_NOT_SUPPORTED: i32 = 115;
/// A router found no primary of a shard.
pub(crate) const FAILED_TO_SATISFY_READ_PREFERENCE: i32 = 133;
pub(crate) const READ_CONCERN_MAJORITY_NOT_AVAILABLE_YET: i32 = 134;
pub(crate) const POOLED_CONNECTIONS_DROPPED: i32 = 145;
/// The chunks of a collection moved meanwhile, as versions before 6.0 say it.
pub(crate) const STALE_EPOCH: i32 = 150;
pub(crate) const COMMAND_NOT_SUPPORTED_ON_VIEW: i32 = 166;
/// The collection or the index under a query was dropped or renamed, or moved to another shard (8.0, SERVER-88275).
pub(crate) const QUERY_PLAN_KILLED: i32 = 175;
pub(crate) const PRIMARY_STEPPED_DOWN: i32 = 189;
pub(crate) const INVALID_INDEX_SPECIFICATION_OPTION: i32 = 197;
/// A router had no answer from a shard in time.
pub(crate) const NETWORK_INTERFACE_EXCEEDED_TIME_LIMIT: i32 = 202;
pub(crate) const CURSOR_KILLED: i32 = 237;
pub(crate) const SNAPSHOT_TOO_OLD: i32 = 239;
pub(crate) const CONVERSION_FAILURE: i32 = 241;
pub(crate) const SNAPSHOT_UNAVAILABLE: i32 = 246;
/// The database moved to another shard meanwhile.
pub(crate) const STALE_DB_VERSION: i32 = 249;
pub(crate) const EXCEEDED_TIME_LIMIT: i32 = 262;
pub(crate) const CLIENT_DISCONNECT: i32 = 279;
pub(crate) const MOVE_PRIMARY_IN_PROGRESS: i32 = 319;
pub(crate) const SHARD_CANNOT_REFRESH_DUE_TO_LOCKS_HELD: i32 = 343;
/// The collection of this name does not have the UUID that the command names.
pub(crate) const COLLECTION_UUID_MISMATCH: i32 = 361;
/// The transaction was too large for the cache of the storage engine, or the cache too full (MongoDB 6.3 and later).
pub(crate) const TEMPORARILY_UNAVAILABLE: i32 = 365;
/// A router had no free connection to a shard in time (7.1 and later).
pub(crate) const POOLED_CONNECTION_ACQUISITION_EXCEEDED_TIME_LIMIT: i32 = 407;
pub(crate) const UPDATES_STILL_PENDING: i32 = 412;
pub(crate) const INGRESS_REQUEST_RATE_LIMIT_EXCEEDED: i32 = 462;
pub(crate) const INGRESS_OPERATION_RATE_LIMIT_EXCEEDED: i32 = 463;
pub(crate) const SOCKET_EXCEPTION: i32 = 9001;
pub(crate) const NOT_WRITABLE_PRIMARY: i32 = 10_107;
/// Another document has the same value in a unique index, such as the one on `_id`.
pub(crate) const DUPLICATE_KEY: i32 = 11_000;
pub(crate) const INTERRUPTED_AT_SHUTDOWN: i32 = 11_600;
pub(crate) const INTERRUPTED: i32 = 11_601;
pub(crate) const INTERRUPTED_DUE_TO_REPL_STATE_CHANGE: i32 = 11_602;
/// The chunks of a collection moved meanwhile.
pub(crate) const STALE_CONFIG: i32 = 13_388;
pub(crate) const NOT_PRIMARY_NO_SECONDARY_OK: i32 = 13_435;
pub(crate) const NOT_PRIMARY_OR_SECONDARY: i32 = 13_436;
/// A write would change the shard key of a document (mongo `db/exec/update_stage.cpp`).
pub(crate) const SHARD_KEY_CHANGE: i32 = 31_025;

/// The regular expression of a `$regex` is not valid. Source: mongo `src/mongo/util/pcre.cpp` and `matcher/expression_leaf.cpp`.
pub(crate) const INVALID_REGEX: i32 = 51_091;

/// BadValue, FailedToParse and TypeMismatch: of a command, or of an expression that meets a value.
pub(crate) const OF_VALUES: [i32; 3] = [BAD_VALUE, 9, 14];

/// A command has a field twice, lacks one, or has one that the server does not know. Source: mongo
/// `src/mongo/idl/idl_parser.cpp`.
pub(crate) const OF_FIELDS: std::ops::RangeInclusive<i32> = 40_413..=40_415;

/// Codes after which the same command can be sent again: fail-over, shutdown and network trouble.
///
/// Source: the driver specification "Retryable Reads", list of retryable errors.
const RETRYABLE: [i32; 13] = [
    HOST_UNREACHABLE,
    HOST_NOT_FOUND,
    NETWORK_TIMEOUT,
    SHUTDOWN_IN_PROGRESS,
    READ_CONCERN_MAJORITY_NOT_AVAILABLE_YET,
    PRIMARY_STEPPED_DOWN,
    EXCEEDED_TIME_LIMIT,
    SOCKET_EXCEPTION,
    NOT_WRITABLE_PRIMARY,
    INTERRUPTED_AT_SHUTDOWN,
    INTERRUPTED_DUE_TO_REPL_STATE_CHANGE,
    NOT_PRIMARY_NO_SECONDARY_OK,
    NOT_PRIMARY_OR_SECONDARY,
];

/// Codes of trouble that passes, besides a fail-over: a lock, a cache or a write that was in the way.
///
/// Source: mongo `src/mongo/db/exec/batched_delete_stage.cpp` and `src/mongo/db/concurrency/exception_util.cpp`.
const PASSING: [i32; 3] = [LOCK_TIMEOUT, WRITE_CONFLICT, TEMPORARILY_UNAVAILABLE];

/// Codes by which a router reports that a shard has no primary for a while, or does not answer, or that chunks or databases move
/// between shards.
///
/// Source: mongo `src/mongo/s/write_ops/batch_write_exec.cpp`, `src/mongo/client/replica_set_monitor.cpp`; SERVER-71618; the
/// categories RetriableError, NetworkTimeoutError and StaleShardVersionError of `error_codes.yml`.
const OF_ROUTERS: [i32; 11] = [
    NO_PROGRESS_MADE,
    FAILED_TO_SATISFY_READ_PREFERENCE,
    POOLED_CONNECTIONS_DROPPED,
    STALE_EPOCH,
    NETWORK_INTERFACE_EXCEEDED_TIME_LIMIT,
    STALE_DB_VERSION,
    MOVE_PRIMARY_IN_PROGRESS,
    SHARD_CANNOT_REFRESH_DUE_TO_LOCKS_HELD,
    POOLED_CONNECTION_ACQUISITION_EXCEEDED_TIME_LIMIT,
    UPDATES_STILL_PENDING,
    STALE_CONFIG,
];

/// Codes with which a server refuses a command before doing anything: no privilege, no shard to aim at, no primary, another
/// collection, or others that wait.
const REFUSALS: [i32; 7] = [
    UNAUTHORIZED,
    SHARD_KEY_NOT_FOUND,
    NOT_WRITABLE_PRIMARY,
    NOT_PRIMARY_NO_SECONDARY_OK,
    COLLECTION_UUID_MISMATCH,
    INGRESS_REQUEST_RATE_LIMIT_EXCEEDED,
    INGRESS_OPERATION_RATE_LIMIT_EXCEEDED,
];

/// Codes that end an operation at any point. A delete that ends like this fails as a command, and its `n` is lost.
///
/// Source: mongo `error_codes.yml`, category Interruption, and the codes by which a storage engine gives up a transaction.
const INTERRUPTIONS: [i32; 8] = [
    LOCK_TIMEOUT,
    MAX_TIME_MS_EXPIRED,
    WRITE_CONFLICT,
    QUERY_PLAN_KILLED,
    CURSOR_KILLED,
    CLIENT_DISCONNECT,
    TEMPORARILY_UNAVAILABLE,
    INTERRUPTED,
];

/// SQLSTATEs after which the same command can be sent again, although it may have been carried out: the server process ended, or
/// the connection to it broke.
///
/// Source: PostgreSQL, "Error Codes": admin_shutdown, crash_shutdown, connection_failure.
const SQL_INTERRUPTIONS: [&str; 3] = ["57P01", "57P02", "08006"];

/// SQLSTATEs after which the same command can be sent again, and nothing of it was done: cannot_connect_now, and the transactions
/// that serialization_failure and deadlock_detected roll back.
const SQL_REFUSALS: [&str; 3] = ["57P03", "40001", "40P01"];

/// Tells whether the same command can be sent again after an error with this code.
pub(crate) fn is_retryable(code: i32) -> bool {
    RETRYABLE.contains(&code)
        || PASSING.contains(&code)
        || OF_ROUTERS.contains(&code)
        || sqlstate(code).is_some_and(|state| SQL_INTERRUPTIONS.iter().chain(&SQL_REFUSALS).any(|known| *known == state))
}

/// Tells whether a delete can be sent again after an error with this code: its statements repeat the whole predicate. A read that
/// takes longer than its limit takes as long again.
pub(crate) fn is_retryable_delete(code: i32) -> bool {
    code == MAX_TIME_MS_EXPIRED || is_retryable(code)
}

/// Tells whether the server refused the command before doing anything, or has undone it.
pub(crate) fn is_refusal(code: i32) -> bool {
    REFUSALS.contains(&code) || sqlstate(code).is_some_and(|state| SQL_REFUSALS.contains(&state.as_str()))
}

/// Returns the SQLSTATE that a code stands for. The gateway of the DocumentDB engine passes on an error of PostgreSQL for which
/// MongoDB has no code in this form, six bits for each character.
///
/// Only codes above all of MongoDB's are read, and so none whose last character is 0.
///
/// Source: microsoft/documentdb, `pg_documentdb_gw/src/responses/pg.rs`, `postgres_sqlstate_to_i32`.
pub(crate) fn sqlstate(code: i32) -> Option<String> {
    const LEAST: i32 = 1 << 24;
    let character = |at: i32| u8::try_from((code >> (6 * at)) & 0x3f).ok().map(|bits| char::from(bits + b'0'));
    let state: String = (0..5).filter(|_| code >= LEAST).filter_map(character).collect();
    let is_one = state.len() == 5 && state.chars().all(|c| c.is_ascii_digit() || c.is_ascii_uppercase());
    is_one.then_some(state)
}

/// Tells whether the extent of what the command did is unknown.
pub(crate) fn is_reply_lost(code: i32) -> bool {
    INTERRUPTIONS.contains(&code) || (is_retryable(code) && !is_refusal(code))
}

/// Tells whether the server lost touch with another one, which may still be at work.
pub(crate) fn is_unanswered(code: i32) -> bool {
    matches!(code, HOST_UNREACHABLE | NETWORK_TIMEOUT | SOCKET_EXCEPTION)
}

/// Tells whether a filter was not understood, or an expression in it failed on a document. The codes are ConversionFailure, and
/// the numbered codes of single operators, which begin above the codes that have a name.
pub(crate) fn is_of_expression(code: i32) -> bool {
    code == CONVERSION_FAILURE || (code > 16_500 && sqlstate(code).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sqlstates_are_read_from_six_bits_a_character() {
        for (code, state, retryable, refusal, lost) in [
            (16_908_741, "57P01", true, false, true),
            (33_685_957, "57P02", true, false, true),
            (50_463_173, "57P03", true, true, false),
            (16_777_220, "40001", true, true, false),
            (16_908_292, "40P01", true, true, false),
            (100_663_808, "08006", true, false, true),
            (52_461_700, "42883", false, false, false),
        ] {
            assert_eq!(sqlstate(code).as_deref(), Some(state));
            assert_eq!((is_retryable(code), is_refusal(code), is_reply_lost(code)), (retryable, refusal, lost), "{state}");
            assert!(!is_of_expression(code), "{state}");
        }
        for code in [-1, 0, 11_000, 28_651, 8_423_400, i32::MAX] {
            assert_eq!(sqlstate(code), None, "{code}");
        }
        assert!(is_of_expression(28_651) && is_of_expression(CONVERSION_FAILURE));
    }
}
