//! The command line.

mod args;
mod help;
mod shown;
mod values;

use std::ffi::OsString;
use std::path::PathBuf;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum, ValueHint};

pub use args::{
    ArchiveArgs, ArchiveCommand, AuditArgs, CheckArgs, CompletionsArgs, DiffArgs, HistoryArgs, ImportArgs, InitArgs, ManArgs,
    NativeApplyArgs, NativeCommand, ReadFrom, ReclaimArgs, RestoreArgs, SchemaArgs, SchemaOf, SweepArgs, WhyArgs,
};

use crate::base::log::LogFormat;
use crate::base::text::{clean, page};
use crate::core::report::Format;
use crate::shell::server::connect::uri;

/// Heading of the options that several commands have, in their help.
pub const COMMON: &str = "Common options";

/// The command line, with the description of the package.
#[derive(Debug, Parser)]
#[command(name = "sweeper", version, about)]
#[command(after_help = help::FIRST_STEPS, after_long_help = help::with_exit_codes(help::EVERYTHING))]
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
    /// With a connection string it shows the collections and their date fields to choose from; it reads only. Without a terminal
    /// the answers come from --namespace, --field and --expire-after, and a warning names what does not fit the deployment.
    ///
    /// Writes to the file of --output, else of --policy. Only --force replaces a file.
    #[command(after_help = help::INIT_EXAMPLES)]
    Init(InitArgs),
    /// Validate the policy; --connect compares it with the deployment
    ///
    /// Never writes. Without --connect it contacts nothing.
    #[command(after_help = help::CHECK_EXAMPLES, after_long_help = help::with_exit_codes(help::CHECK_EXAMPLES))]
    Check(CheckArgs),
    /// Show what would be deleted, what comes next, what never expires
    ///
    /// A dry run with the full report, which also has ages, and the reasons why documents never expire. Never writes. In
    /// collections with more than 1,000,000 documents the ages come from a sample of some 100,000, unless --exact is given. The
    /// count of what has expired is always exact. A user with the role `read` is enough.
    #[command(after_help = help::AUDIT_EXAMPLES, after_long_help = help::with_exit_codes(help::AUDIT_EXAMPLES))]
    Audit(AuditArgs),
    /// Delete what has expired by the policy; --dry-run only counts
    ///
    /// On a terminal it shows the counts and asks first. It does not ask with --yes, or if standard input is not a terminal. The
    /// report goes to standard output, everything else to standard error.
    #[command(after_help = help::SWEEP_EXAMPLES, after_long_help = help::with_exit_codes(help::SWEEP_EXAMPLES))]
    Sweep(SweepArgs),
    /// Show what changed between two saved JSON reports
    ///
    /// Contacts nothing.
    #[command(after_help = help::DIFF_EXAMPLES)]
    Diff(DiffArgs),
    /// Show the last runs that were recorded
    ///
    /// Reads the collection that `history` of the policy names. With --only, the counts cover the selected rules,
    /// otherwise whole runs.
    #[command(after_help = help::HISTORY_EXAMPLES)]
    History(HistoryArgs),
    /// Explain why one document is deleted or kept
    ///
    /// Shows the date and the ttl that decide, each clause of the filter, and when the document goes. Shows no other value of the
    /// document. Reads only.
    #[command(after_help = help::WHY_EXAMPLES)]
    Why(WhyArgs),
    /// List and verify the archives of sweeps
    ///
    /// Contacts no server.
    Archive {
        #[command(subcommand)]
        command: ArchiveCommand,
    },
    /// Put back what a sweep has archived
    ///
    /// Verifies every checksum first, then inserts the documents whose `_id` is not there. Only --replace overwrites. --only
    /// selects namespaces of the archive. A missing collection is created without options and indexes.
    ///
    /// Needs no policy if --uri, --uri-file or MONGODB_URI is given. If a policy exists, its `connection.expect` still applies.
    /// On a terminal it asks first. It does not ask with --yes, or if standard input is not a terminal.
    #[command(after_help = help::RESTORE_EXAMPLES)]
    Restore(RestoreArgs),
    /// Write a policy from the TTL settings of a deployment
    ///
    /// The policy deletes what these settings delete. Reads the TTL indexes, the clustered and the time-series collections that
    /// the user may see; --only selects namespaces. Settings by which the server never deletes become a comment that says why.
    ///
    /// Needs no policy if --uri, --uri-file or MONGODB_URI is given. Only --force replaces a file.
    #[command(after_help = help::IMPORT_EXAMPLES)]
    Import(ImportArgs),
    /// Compare a deployment's TTL settings with the policy, or set them
    Native {
        #[command(subcommand)]
        command: NativeCommand,
    },
    /// Give the space of deleted documents back to the file system
    ///
    /// Runs `compact` on the collections of the policy, one member of the replica set at a time. Secondaries come first, each
    /// only while all members are in step (`maxLag`, 10 s by default); the primary only with --primary.
    ///
    /// On a terminal it shows what each member would give back and asks first. It does not ask with --yes, or if standard input
    /// is not a terminal. A signal or --max-duration ends the command on the server.
    #[command(after_help = help::RECLAIM_EXAMPLES)]
    Reclaim(ReclaimArgs),
    /// Print the schema of the policy or a report, or the policy's keys
    ///
    /// Editors with a YAML language server complete and check a policy whose first line is
    /// `# yaml-language-server: $schema=FILE`.
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

// Without a doc comment: clap would take it for the description of the program.
//
// Options with several values are not `global`: `command_line` says why.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = COMMON)]
pub struct Common {
    /// The policy
    ///
    /// `-` is standard input.
    #[arg(short, long, value_name = "FILE", env = "SWEEPER_POLICY", hide_env_values = true)]
    #[arg(default_value = "sweeper.yaml", global = true)]
    pub policy: PathBuf,
    /// Connection string
    ///
    /// Overrides the policy's.
    #[arg(long, value_name = "URI", env = "MONGODB_URI", hide_env_values = true, value_hint = ValueHint::Url, global = true)]
    pub uri: Option<String>,
    /// File that holds the connection string and nothing else; overrides MONGODB_URI and the policy's
    #[arg(long, value_name = "FILE", global = true)]
    pub uri_file: Option<PathBuf>,
    /// Only rules whose name or namespace matches
    ///
    /// `*` matches anything. Repeatable.
    #[arg(long, value_name = "GLOB", value_hint = ValueHint::Other)]
    pub only: Vec<String>,
    /// Write the report to a file; repeatable
    ///
    /// The file is replaced as a whole at the end. `-` is standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: Vec<PathBuf>,
    /// Format of the report; repeatable
    ///
    /// The first format belongs to the first --output, the second to the second. Outputs without a format take it from their
    /// extension (.html, .json, .csv, .md, .txt), else it is table.
    #[arg(long, value_name = "FORMAT")]
    pub format: Vec<Format>,
    /// Format of the log on standard error
    #[arg(long, value_name = "FORMAT", default_value = "text", global = true)]
    pub log_format: LogFormat,
    /// Log what is being done; given twice, also the name of every command that is sent
    #[arg(short, long, action = clap::ArgAction::Count, global = true)]
    pub verbose: u8,
    /// Print nothing on success, and one line with the reason otherwise
    #[arg(short, long, conflicts_with = "verbose", global = true)]
    pub quiet: bool,
    /// Show progress on standard error: a bar on a terminal, else a line every 10 s
    #[arg(long, value_name = "WHEN", default_value = "auto", global = true)]
    pub progress: When,
    /// Colour the table
    #[arg(long, value_name = "WHEN", default_value = "auto", global = true)]
    pub color: When,
}

/// Choice of something that depends on a terminal, such as colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum When {
    Auto,
    Always,
    Never,
}

impl When {
    /// Returns the decision; `Auto` follows whether there is a terminal.
    pub fn decide(self, on_terminal: bool) -> bool {
        match self {
            When::Auto => on_terminal,
            When::Always => true,
            When::Never => false,
        }
    }
}

/// Returns the definition of the command line, for the parser, the completions and the manual pages.
///
/// Copies the common options into every command, which decides whether its help shows them. Those with several values need the
/// copy anyway: if such values are given both before and after the command, clap keeps only the values of one place.
pub fn command_line() -> clap::Command {
    let root = Cli::command();
    let common: Vec<Arg> = root.get_arguments().cloned().collect();
    // The help of each command has the common options; the short one of the program has the commands.
    root.mut_args(|arg| arg.hide_short_help(true)).mut_subcommands(|command| {
        let common = shown::common(command.get_name(), &common);
        with_args(command, &common)
    })
}

fn with_args(command: clap::Command, args: &[Arg]) -> clap::Command {
    command.args(args).mut_subcommands(|inner| with_args(inner, args))
}

impl Cli {
    /// Reads a command line, whose first word is the program's name.
    ///
    /// Errors: a usage error, or the help or version that was asked for.
    pub fn read(args: &[OsString]) -> Result<Self, clap::Error> {
        let matches = command_line().try_get_matches_from(args)?;
        let mut cli = Self::from_arg_matches(&matches)?;
        if cli.common.uri_file.is_some() {
            // Not `conflicts_with`, for which a variable of the environment would be a conflict too.
            if matches.value_source("uri") == Some(ValueSource::CommandLine) {
                let both = "--uri and --uri-file are both given; expected one of them";
                return Err(command_line().error(ErrorKind::ArgumentConflict, both));
            }
            cli.common.uri = None;
        }
        cli.common.only = values(&matches, "only");
        cli.common.output = values(&matches, "output");
        cli.common.format = values(&matches, "format");
        Ok(cli)
    }
}

/// Returns the text of a usage error, which quotes the command line.
///
/// A connection string may stand where none is expected, and so may anything that a terminal obeys. Such arguments are replaced
/// first.
pub fn shown_error(cause: &clap::Error, args: &[OsString]) -> String {
    let shown = |text: &str| match text.contains("://") || (text.contains(':') && text.contains('@')) {
        true => uri::redacted(text),
        false => clean(text),
    };
    let args = args.iter().map(|arg| arg.to_string_lossy()).map(|arg| match arg.split_once('=') {
        Some((option, value)) if option.starts_with('-') => format!("{}={}", clean(option), shown(value)),
        _ => shown(&arg),
    });
    match Cli::read(&args.map(OsString::from).collect::<Vec<_>>()) {
        Err(cause) => page(cause.render().to_string().lines()),
        Ok(_) => page([format!("error: {}", cause.kind())]),
    }
}

/// Returns the values of an option before and after the command, in the order of the command line.
fn values<T: Clone + Send + Sync + 'static>(matches: &ArgMatches, id: &str) -> Vec<T> {
    let here = matches.get_many(id).into_iter().flatten().cloned();
    let after = matches.subcommand().map(|(_, inner)| values(inner, id));
    here.chain(after.into_iter().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Common {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        Cli::read(&args).unwrap_or_else(|error| panic!("{line}: {error}")).common
    }

    #[test]
    fn the_command_line_is_consistent() {
        command_line().debug_assert();
    }

    #[test]
    fn values_before_and_after_the_command_all_count_in_their_order() {
        for line in [
            "sweeper -o a.json -o b.json --only a --only b --format json --format html sweep",
            "sweeper -o a.json --only a --format json sweep -o b.json --only b --format html",
            "sweeper sweep -o a.json -o b.json --only a --only b --format json --format html",
            "sweeper -o a.json --only a --format json native diff -o b.json --only b --format html",
            "sweeper native -o a.json --only a --format json diff -o b.json --only b --format html",
        ] {
            let common = read(line);
            assert_eq!(common.output, ["a.json", "b.json"].map(PathBuf::from), "{line}");
            assert_eq!(common.only, ["a", "b"], "{line}");
            assert_eq!(common.format, [Format::Json, Format::Html], "{line}");
        }
        let common = read("sweeper --only a native --only b diff --only c");
        assert_eq!(common.only, ["a", "b", "c"]);
        assert!(common.output.is_empty() && common.format.is_empty());
    }

    #[test]
    fn a_usage_error_shows_no_password_and_nothing_that_a_terminal_obeys() {
        for (arg, shown) in [
            ("mongodb://u:hunter2@h/?a=b", "'mongodb://<redacted>@h'"),
            ("--ury=mongodb://u:hunter2@h", "'--ury'"),
            ("--format=mongodb://u:hunter2@h", "'mongodb://<redacted>@h'"),
            ("u:hunter2@h/?a=file://x", "'<redacted>'"),
            ("u:hunter2@h", "'<redacted>'"),
            ("a\u{1b}[2J\nerror: b", r"'a\u{1b}[2J\u{a}error: b'"),
        ] {
            let args: Vec<OsString> = ["sweeper", "sweep", arg].map(OsString::from).into();
            let text = shown_error(&Cli::read(&args).unwrap_err(), &args);
            assert!(text.contains(shown) && !text.contains("hunter2") && !text.contains('\u{1b}'), "{text}");
            assert_eq!(text.lines().filter(|line| line.starts_with("error")).count(), 1, "{text}");
        }
    }

    #[test]
    fn a_file_with_the_connection_string_is_not_given_together_with_one() {
        let common = read("sweeper check --uri-file f");
        assert_eq!((common.uri, common.uri_file), (None, Some(PathBuf::from("f"))));
        for line in
            ["sweeper --uri mongodb://u:hunter2@h check --uri-file f", "sweeper check --uri-file f --uri mongodb://u:hunter2@h"]
        {
            let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            let text = shown_error(&Cli::read(&args).unwrap_err(), &args);
            assert!(text.contains("--uri and --uri-file are both given") && !text.contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn the_other_common_options_count_before_and_after_the_command() {
        for line in ["sweeper -q -p p.yaml --color never check", "sweeper check -q -p p.yaml --color never"] {
            let common = read(line);
            assert!(common.quiet && common.policy.as_os_str() == "p.yaml" && common.color == When::Never, "{line}");
        }
    }
}
