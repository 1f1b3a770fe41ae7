//! The exit codes: a public contract.
//!
//! If several apply, a failed rule takes precedence over a refused one, a refused rule over a limit, and a limit over a lock.

/// One exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitCode {
    pub code: u8,
    /// Name of the constant.
    pub name: &'static str,
    /// Meaning, as the help shows it.
    pub meaning: &'static str,
}

/// Defines the constants and their table, so that neither can miss a code.
macro_rules! exit_codes {
    ($($name:ident = $code:literal, $meaning:literal;)+) => {
        $(#[doc = concat!(" Exit code: ", $meaning, ".")] pub const $name: u8 = $code;)+

        /// All exit codes, in ascending order.
        pub const ALL: &[ExitCode] = &[$(ExitCode { code: $code, name: stringify!($name), meaning: $meaning }),+];
    };
}

exit_codes! {
    DONE = 0, "all done, also when there was nothing to delete";
    CANNOT_RUN = 1, "could not run: no connection, no authority, report not writable";
    USAGE = 2, "usage or policy is wrong; nothing was contacted";
    RULE_FAILED = 3, "ran, and at least one rule failed (the others were swept)";
    LIMIT = 4, "stopped by a limit (maxDeletes, maxDuration, window, stop file), or missed on shards: expired documents remain";
    REFUSED = 5, "a guard refused at least one rule: nothing deleted there; native: not everything is the same";
    LOCKED = 6, "another run holds the lock, or the lease of at least one rule: nothing deleted there";
    FOUND = 7, "--detailed-exitcode: a dry run or an audit found expired documents, or diff found changes";
    INTERRUPTED = 130, "SIGINT: the batch in flight ended, the report was written";
    TERMINATED = 143, "SIGTERM, or SIGHUP without --every: the same";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_ascending_order_and_names_each_code_once() {
        assert!(ALL.is_sorted_by_key(|exit| exit.code));
        let names: std::collections::BTreeSet<_> = ALL.iter().map(|exit| exit.name).collect();
        assert_eq!(names.len(), ALL.len());
        assert_eq!(ALL[4], ExitCode { code: LIMIT, name: "LIMIT", meaning: ALL[4].meaning });
    }
}
