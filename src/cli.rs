//! The command line.

mod audit;
mod check;
mod diff;
mod generate;
mod history;
mod init;
mod native;
mod repeatable;
mod restore;
mod sweep;
mod value;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

pub use audit::{AuditArgs, ReadFrom};
pub use check::CheckArgs;
pub use diff::DiffArgs;
pub use generate::{CompletionsArgs, ManArgs, SchemaArgs, SchemaOf};
pub use history::HistoryArgs;
pub use init::InitArgs;
pub use native::{NativeApplyArgs, NativeCommand};
pub use restore::RestoreArgs;
pub use sweep::SweepArgs;

use crate::log::LogFormat;
use crate::report::Format;

const EXIT_CODES: &str = "\
Exit codes:
  0    all done, also when there was nothing to delete
  1    could not run: no connection, no authority, report not writable
  2    usage or policy is wrong; nothing was contacted
  3    ran, and at least one rule failed (the others were swept)
  4    stopped by a limit (maxDeletes, maxDuration, window, stop file):
       expired documents remain
  5    a guard refused at least one rule: nothing deleted there;
       native diff: not everything is the same
  6    another run holds the lock, or the lease of at least one rule:
       nothing deleted there
  130  SIGINT: the batch in flight ended, the report was written
  143  SIGTERM: the same
  When several apply: 3 before 5 before 4 before 6. A dry run and an audit
  report what a guard would refuse and exit 0.";

const EXAMPLES: &str = "\
First steps:
  sweeper init                 write a first policy
  sweeper check                is it right?
  sweeper check --connect      and does it fit the deployment?
  sweeper sweep --dry-run      what would go? deletes nothing
  sweeper sweep                delete, after asking

More:
  sweeper audit -o audit.html  how old it is, what comes next, what never goes
  sweeper sweep --plan audit.json
                               what a saved audit approved, and no more
  sweeper history              the last runs
  sweeper import -o sweeper.yaml
                               a policy from the TTL indexes that are there
  sweeper native diff          the TTL indexes beside the policy
  sweeper diff monday.json tuesday.json
                               what changed between two reports?
  sweeper restore DIRECTORY    put back what was archived
  sweeper completions bash     for the shell; also zsh, fish and others
";

const CHECK_EXAMPLES: &str = "\
Examples:
  sweeper check                the file alone
  sweeper check --connect      and what it means on the deployment
  sweeper check -p new.yaml --connect --only 'app.*'
";

const DIFF_EXAMPLES: &str = "\
Examples:
  sweeper diff monday.json tuesday.json
  sweeper diff audit.json swept.json --only app.sessions -o changes.csv
";

const HISTORY_EXAMPLES: &str = "\
Examples:
  sweeper history              the last 20 runs
  sweeper history -n 5 --only app.sessions
  sweeper history --format json
";

const RESTORE_EXAMPLES: &str = "\
Examples:
  sweeper restore /backups/ttl/20260131T020000Z-1a2b3c4d --dry-run
                               is it whole? what would come back?
  sweeper restore /backups/ttl/20260131T020000Z-1a2b3c4d \\
    --only app.sessions --namespace app.sessions=app.found
                               beside what is there
";

const IMPORT_EXAMPLES: &str = "\
Examples:
  sweeper import               on the terminal
  sweeper import --only 'app.*' -o sweeper.yaml
";

const INIT_EXAMPLES: &str = "\
Examples:
  sweeper init                 asks
  sweeper init --namespace app.sessions --field lastModified --expire-after 1h
";

const AUDIT_EXAMPLES: &str = "\
Examples:
  sweeper audit                on the terminal
  sweeper audit -o audit.html -o audit.json
                               for people, and for `sweep --plan`
  sweeper audit --only 'app.*' --read-preference secondary
";

const SWEEP_EXAMPLES: &str = "\
Examples:
  sweeper sweep --dry-run      what would go?
  sweeper sweep                delete, after asking
  sweeper sweep --only 'app.*' --max-deletes 100000 --rate 2000
  sweeper sweep --plan audit.json
                               what a saved audit approved, and no more
  sweeper sweep -q -o /var/log/sweeper.json
                               from cron: silent unless something is wrong
";

/// Deletes expired documents from MongoDB as a TTL index would: seen first, capped, paced and accounted for.
#[derive(Debug, Parser)]
#[command(name = "sweeper", version, about, after_help = format!("{EXAMPLES}\n{EXIT_CODES}"))]
pub struct Cli {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write a first policy, after a few questions
    ///
    /// With --uri or MONGODB_URI it looks which collections there are and which fields hold dates; reads only. Without a terminal it takes
    /// the answers from --namespace, --field and --expire-after. Goes to the file of --output, else of --policy; never over one that is there.
    #[command(after_help = INIT_EXAMPLES)]
    Init(InitArgs),
    /// Validate the policy, and with --connect hold it against the deployment; never writes
    #[command(after_help = format!("{CHECK_EXAMPLES}\n{EXIT_CODES}"))]
    Check(CheckArgs),
    /// Show everything a person wants to see before deleting: what would go, its age, what comes next, what never does and why; never writes
    ///
    /// A dry run with the full report. In collections with more than 1,000,000 documents the ages are those of a sample of some 100,000,
    /// unless --exact is given; the count of what has expired is always exact. A user with the role `read` is enough.
    #[command(after_help = format!("{AUDIT_EXAMPLES}\n{EXIT_CODES}"))]
    Audit(AuditArgs),
    /// Delete what the policy says has expired, or show it with --dry-run
    ///
    /// On a terminal the counts are shown and a question is asked first; with --yes, or when standard input is no terminal, it is not.
    /// The report goes to standard output, everything else to standard error.
    #[command(after_help = format!("{SWEEP_EXAMPLES}\n{EXIT_CODES}"))]
    Sweep(SweepArgs),
    /// Show what changed between two saved JSON reports; contacts nothing
    #[command(after_help = DIFF_EXAMPLES)]
    Diff(DiffArgs),
    /// Show the last runs that `history` of the policy recorded; reads only
    ///
    /// With --only the documents that the selected rules deleted, else those of whole runs.
    #[command(after_help = HISTORY_EXAMPLES)]
    History(HistoryArgs),
    /// Put back what a sweep has archived; never overwrites without --replace
    ///
    /// Verifies every checksum first, then inserts the documents whose `_id` is not there. --only selects namespaces of the archive. Needs no
    /// policy where --uri or MONGODB_URI is given. A missing collection is created without options and indexes. On a terminal a question is
    /// asked first; with --yes, or when standard input is no terminal, it is not.
    #[command(after_help = RESTORE_EXAMPLES)]
    Restore(RestoreArgs),
    /// Write a policy that deletes what the deployment's own TTL settings delete; reads only
    ///
    /// Reads the TTL indexes, the clustered and the time-series collections that the user may see; --only selects namespaces. Needs no
    /// policy where --uri or MONGODB_URI is given. Settings by which the server never deletes become a comment that says why.
    #[command(after_help = IMPORT_EXAMPLES)]
    Import,
    /// Hold the deployment's own TTL settings beside the policy, or change them to what it says
    Native {
        #[command(subcommand)]
        command: NativeCommand,
    },
    /// Print the JSON Schema of the policy, or of the report
    ///
    /// Editors with a YAML language server complete and check a policy whose first line is `# yaml-language-server: $schema=FILE`.
    Schema(SchemaArgs),
    /// Print the completions for a shell
    ///
    /// For bash: sweeper completions bash -o ~/.local/share/bash-completion/completions/sweeper
    Completions(CompletionsArgs),
    /// Print the manual page
    ///
    /// sweeper man --directory ~/.local/share/man/man1 writes a page for each command.
    Man(ManArgs),
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Options of every command")]
pub struct Common {
    /// The policy; `-` is standard input
    #[arg(short, long, value_name = "FILE", env = "SWEEPER_POLICY", default_value = "sweeper.yaml", global = true)]
    pub policy: PathBuf,
    /// Connection string; wins over the policy's
    #[arg(long, value_name = "URI", env = "MONGODB_URI", hide_env_values = true, global = true)]
    pub uri: Option<String>,
    /// Only rules whose name or namespace matches; `*` stands for anything; repeatable
    #[arg(long, value_name = "GLOB", global = true)]
    pub only: Vec<String>,
    /// Write the report to a file, replaced as a whole at the end; `-` is standard output; repeatable
    #[arg(short, long, value_name = "FILE", global = true)]
    pub output: Vec<PathBuf>,
    /// How to show the report [default: by the output file's extension, else table]; repeatable
    ///
    /// The first format is for the first --output, the second for the second. Outputs without a format of their own go by their extension:
    /// .html, .json, .csv, .md, .txt.
    #[arg(long, value_name = "FORMAT", global = true)]
    pub format: Vec<Format>,
    /// How to write the log on standard error
    #[arg(long, value_name = "FORMAT", default_value = "text", global = true)]
    pub log_format: LogFormat,
    /// Say what is being done; twice: name every command that is sent
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub verbose: u8,
    /// Print nothing when all went well, and one line with the reason when not
    #[arg(short, long, conflicts_with = "verbose", global = true)]
    pub quiet: bool,
    /// Show progress on standard error: a bar on a terminal, else a line every 10 s
    #[arg(long, value_name = "WHEN", default_value = "auto", global = true)]
    pub progress: When,
    /// Colour the table
    #[arg(long, value_name = "WHEN", default_value = "auto", global = true)]
    pub color: When,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum When {
    Auto,
    Always,
    Never,
}

impl When {
    /// Decides by whether there is a terminal, where it is left open.
    pub fn decide(self, on_terminal: bool) -> bool {
        match self {
            When::Auto => on_terminal,
            When::Always => true,
            When::Never => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
