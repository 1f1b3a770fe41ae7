//! The exit codes: a public contract. When several apply, a failed rule comes before a refused one, that before a limit, and
//! that before a lock.

/// All done, also when there was nothing to delete; also a dry run that reports what a guard would refuse.
pub const DONE: u8 = 0;
/// Could not run: no connection, no authority, a report that cannot be written.
pub const CANNOT_RUN: u8 = 1;
/// The command line or the policy is wrong; nothing was contacted.
pub const USAGE: u8 = 2;
/// Ran, and at least one rule failed; the others were swept.
pub const RULE_FAILED: u8 = 3;
/// Stopped by a limit: expired documents remain.
pub const LIMIT: u8 = 4;
/// A guard refused at least one rule: nothing was deleted there. Of a diff: not everything is the same.
pub const REFUSED: u8 = 5;
/// Another run holds the lock, or the leases of some rules.
pub const LOCKED: u8 = 6;
/// Ended by SIGINT.
pub const INTERRUPTED: u8 = 130;
/// Ended by SIGTERM.
pub const TERMINATED: u8 = 143;
