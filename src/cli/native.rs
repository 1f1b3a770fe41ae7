//! The commands of `native` and their options.

use clap::{Args, Subcommand};

const DIFF_EXAMPLES: &str = "\
Examples:
  sweeper native diff
  sweeper native diff --only 'app.*' --format json
";

const APPLY_EXAMPLES: &str = "\
Examples:
  sweeper native apply --dry-run
                               which commands, and what would go at once?
  sweeper native apply --only app.sessions
";

#[derive(Debug, Subcommand)]
pub enum NativeCommand {
    /// Show each rule beside the TTL setting that would do the same: same, differs, missing, extra, impossible; reads only
    ///
    /// Exit code 0: all the same; 5: something is not.
    #[command(after_help = DIFF_EXAMPLES)]
    Diff,
    /// Create and change TTL settings so that the server deletes what the policy says
    ///
    /// Shows each command and how many documents the server would delete at once, and asks. Without a terminal it needs --yes. Settings that
    /// no rule stands for are left alone; those of disabled rules are switched off where the server can.
    #[command(after_help = APPLY_EXAMPLES)]
    Apply(NativeApplyArgs),
}

#[derive(Debug, Args)]
pub struct NativeApplyArgs {
    /// Show the changes and stop before the first one
    #[arg(long)]
    pub dry_run: bool,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
}
