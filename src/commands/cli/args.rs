//! Options of the commands.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bson::DateTime;
use clap::{Args, Subcommand, ValueEnum};
use clap_complete::Shell;

use super::help;
use super::values::{parse_address, parse_duration, parse_instant, parse_last, parse_number, parse_percent};

#[derive(Debug, Args)]
pub struct InitArgs {
    /// Collection, as database.collection; repeatable, for one rule each
    ///
    /// `*` matches anything. The options of the rules are given once for all of them, or once for each --namespace, in the same
    /// order.
    #[arg(long, value_name = "NAMESPACE")]
    pub namespace: Vec<String>,
    /// Field that holds the date, such as lastModified or meta.createdAt
    #[arg(long, value_name = "PATH")]
    pub field: Vec<String>,
    /// Time after that date at which a document expires, such as 90d
    #[arg(long, value_name = "DUR")]
    pub expire_after: Vec<String>,
    /// Field that overrides --expire-after for its document, in seconds
    #[arg(long, value_name = "NAME")]
    pub ttl_field: Vec<String>,
    /// Kind of date: date, epochSeconds, epochMillis, objectId or iso8601
    #[arg(long, value_name = "FORMAT")]
    pub date_format: Vec<String>,
    /// Refuse to delete a larger share, in percent [default: 50]
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub max_delete_percent: Option<f64>,
    /// Replace an existing file
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Compare with the deployment: collections, indexes, privileges, guards
    #[arg(long)]
    pub connect: bool,
    /// With --connect: refuse unknown namespaces and fields
    ///
    /// These are namespaces that do not exist, and fields that no document is found to have.
    #[arg(long, requires = "connect")]
    pub strict: bool,
    /// Run even if the clocks of this machine and the server are more than 5 minutes apart
    ///
    /// The server's clock decides.
    #[arg(long, hide_short_help = true)]
    pub allow_clock_skew: bool,
}

#[derive(Debug, Args)]
pub struct AuditArgs {
    /// Use this instant as the current time, such as 2026-01-31T02:00:00Z [default: the server's clock]
    ///
    /// It may not be later than the server's clock.
    #[arg(long, value_name = "RFC3339", hide_short_help = true, value_parser = parse_instant)]
    pub as_of: Option<DateTime>,
    /// End with exit code 7 if expired documents were found
    #[arg(long, hide_short_help = true)]
    pub detailed_exitcode: bool,
    /// Show as refused rules with unknown namespaces and fields
    ///
    /// These are namespaces that do not exist, and fields that no document is found to have.
    #[arg(long, hide_short_help = true)]
    pub strict: bool,
    /// Examine every document, in large collections too
    #[arg(long)]
    pub exact: bool,
    /// Time limit of one query on the server
    ///
    /// A figure that takes longer is left out, with a warning.
    #[arg(long, value_name = "DUR", default_value = "5m", value_parser = parse_duration)]
    pub max_time: Duration,
    /// Members of a replica set to read from
    ///
    /// A secondary may lag behind.
    #[arg(long, value_name = "MODE", default_value = "primary")]
    pub read_preference: ReadFrom,
    /// Run even if the clocks of this machine and the server are more than 5 minutes apart
    ///
    /// The server's clock decides.
    #[arg(long, hide_short_help = true)]
    pub allow_clock_skew: bool,
}

/// A read preference, as connection strings spell it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "camelCase")]
pub enum ReadFrom {
    Primary,
    PrimaryPreferred,
    Secondary,
    SecondaryPreferred,
    Nearest,
}

#[derive(Debug, Args)]
pub struct SweepArgs {
    /// Count and stop before the first delete
    #[arg(long)]
    pub dry_run: bool,
    /// With --dry-run: end with exit code 7 if expired documents were found
    #[arg(long, hide_short_help = true, requires = "dry_run")]
    pub detailed_exitcode: bool,
    /// Use this instant as the current time, such as 2026-01-31T02:00:00Z [default: the server's clock]
    ///
    /// It may not be later than the server's clock.
    #[arg(long, value_name = "RFC3339", hide_short_help = true, value_parser = parse_instant)]
    pub as_of: Option<DateTime>,
    /// Refuse rules with unknown namespaces and fields (exit code 5)
    ///
    /// These are namespaces that do not exist, and fields that no document is found to have.
    #[arg(long, hide_short_help = true)]
    pub strict: bool,
    /// Delete only what this saved JSON audit approved
    ///
    /// The sweep is as of the audit's time. Refused (exit 5) are: another policy, another deployment or version, a plan that is
    /// too old, and a rule with more expired documents than were approved, plus a tolerance of 1 %. No rule deletes more than
    /// that.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["as_of", "every"])]
    pub plan: Option<PathBuf>,
    /// Maximum age of the plan
    #[arg(long, hide_short_help = true, value_name = "DUR", default_value = "1d", value_parser = parse_duration, requires = "plan")]
    pub max_plan_age: Duration,
    /// Stop after this many documents, over all rules
    #[arg(long, value_name = "N", value_parser = parse_number::<u64>)]
    pub max_deletes: Option<u64>,
    /// Stop after this time, such as 90m
    ///
    /// Overrides `run.maxDuration` of the policy.
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub max_duration: Option<Duration>,
    /// Delete at most N documents a second, over all rules
    ///
    /// Overrides `run.rate` of the policy.
    #[arg(long, value_name = "N", value_parser = parse_number::<u32>)]
    pub rate: Option<u32>,
    /// Write metrics for Prometheus to this file
    ///
    /// In Prometheus' text format. The file is replaced as a whole, also by a run that fails.
    #[arg(long, value_name = "FILE")]
    pub metrics_file: Option<PathBuf>,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    /// Keep running, and sweep at every multiple of DUR
    ///
    /// Sweeps at once, then at every multiple of this interval, such as 15m. Limits apply to each run. SIGHUP rereads the policy,
    /// of which a run in progress takes over pace and windows. SIGTERM ends the process.
    #[arg(long, value_name = "DUR", value_parser = parse_duration, conflicts_with = "as_of")]
    pub every: Option<Duration>,
    /// With --every: answer /metrics, /healthz and /readyz at this address
    ///
    /// A bare port binds to 127.0.0.1.
    #[arg(long, hide_short_help = true, value_name = "ADDRESS", value_parser = parse_address, requires = "every")]
    pub listen: Option<SocketAddr>,
    /// Allow one run at a time on this machine
    ///
    /// A second run ends with exit code 6. A dry run does not take the lock.
    #[arg(long, value_name = "FILE")]
    pub lock: Option<PathBuf>,
    /// Wait up to this long for locks that other runs hold
    ///
    /// The time counts from the start of the run.
    #[arg(long, hide_short_help = true, value_name = "DUR", value_parser = parse_duration)]
    pub lock_wait: Option<Duration>,
    /// While this file exists, no run begins or goes on
    ///
    /// A run in progress ends after the batch in flight, with exit code 4.
    #[arg(long, value_name = "FILE")]
    pub stop_file: Option<PathBuf>,
    /// While this file exists, runs wait before their next batch
    ///
    /// A run that waits keeps its leases and obeys its other limits.
    #[arg(long, hide_short_help = true, value_name = "FILE")]
    pub pause_file: Option<PathBuf>,
    /// Run even if the clocks of this machine and the server are more than 5 minutes apart
    ///
    /// The server's clock decides.
    #[arg(long, hide_short_help = true)]
    pub allow_clock_skew: bool,
}

#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The earlier report, as JSON
    pub old: PathBuf,
    /// The later report, as JSON
    pub new: PathBuf,
    /// End with exit code 7 if anything changed
    #[arg(long)]
    pub detailed_exitcode: bool,
}

#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// Number of newest runs to show
    #[arg(short = 'n', long, value_name = "N", default_value = "20", value_parser = parse_last)]
    pub last: u32,
}

#[derive(Debug, Args)]
pub struct ImportArgs {
    /// Replace an existing file
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The directory or URL of one run, as the report of the sweep names it
    #[arg(value_name = "ARCHIVE")]
    pub archive: PathBuf,
    /// Verify and count, and stop before the first insert
    #[arg(long)]
    pub dry_run: bool,
    /// Put the documents of one namespace into another; repeatable
    #[arg(long, value_name = "FROM=TO")]
    pub namespace: Vec<String>,
    /// Replace existing documents that differ; without it they are kept
    #[arg(long)]
    pub replace: bool,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub struct WhyArgs {
    /// The document's collection, as database.collection
    #[arg(value_name = "NAMESPACE")]
    pub namespace: String,
    /// The document's `_id` as mongosh shows it, or as Extended JSON
    ///
    /// Without quotes it is a string, a number or the 24 digits of an ObjectId.
    #[arg(value_name = "ID", allow_hyphen_values = true)]
    pub id: String,
    /// Judge as of this instant, such as 2026-01-31T02:00:00Z [default: now]
    #[arg(long, value_name = "INSTANT", value_parser = parse_instant)]
    pub as_of: Option<DateTime>,
}

/// Commands of `archive`.
#[derive(Debug, Subcommand)]
pub enum ArchiveCommand {
    /// List the archives in a directory
    ///
    /// Shows the time of each, its namespaces and rules, and their documents and sizes. Reads only their records. --only selects
    /// namespaces.
    #[command(after_help = help::ARCHIVE_LIST_EXAMPLES)]
    List(ArchiveArgs),
    /// Verify every checksum, document and file
    ///
    /// Exit code 0: all are whole; 3: something is damaged, missing, or in no record. The archive of a run that was cut off is
    /// whole if all of what may have been deleted is in it.
    #[command(after_help = help::ARCHIVE_VERIFY_EXAMPLES)]
    Verify(ArchiveArgs),
}

#[derive(Debug, Args)]
pub struct ArchiveArgs {
    /// A directory or URL that a policy archives to, or that of one run
    #[arg(value_name = "DIRECTORY")]
    pub directory: PathBuf,
}

#[derive(Debug, Subcommand)]
pub enum NativeCommand {
    /// Compare each rule with the TTL setting that would do the same
    ///
    /// Each is the same, differs, is missing, extra or impossible. Reads only. Exit code 0: all are the same, or impossible
    /// because no setting can serve the rule. Exit code 5: at least one is not.
    #[command(after_help = help::NATIVE_DIFF_EXAMPLES)]
    Diff,
    /// Set the TTL settings so that the server deletes what the policy says
    ///
    /// Shows each command and how many documents the server would delete at once, and asks. Without a terminal it needs --yes.
    /// Settings without a rule stay as they are. The settings of disabled rules are switched off if the server supports it.
    #[command(after_help = help::NATIVE_APPLY_EXAMPLES)]
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

#[derive(Debug, Args)]
pub struct ReclaimArgs {
    /// Show what each member would give back, and stop
    #[arg(long)]
    pub dry_run: bool,
    /// Compact the primary too, or a server without a replica set
    #[arg(long)]
    pub primary: bool,
    /// Stop after this time
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub max_duration: Option<Duration>,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// Schema to print, or `keys` for the list of keys
    #[arg(value_name = "OF", default_value = "policy")]
    pub of: SchemaOf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchemaOf {
    /// The policy, draft-07: for editors
    Policy,
    /// The keys of the policy, as Markdown: for people
    Keys,
    /// The report of `--format json`, draft 2020-12
    Report,
    /// The JSON of `sweeper history`, draft 2020-12
    History,
    /// The JSON of `sweeper native`, draft 2020-12
    Native,
    /// The JSON of `sweeper reclaim`, draft 2020-12
    Reclaim,
}

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// Shell that is to read the completions
    pub shell: Shell,
}

#[derive(Debug, Args)]
pub struct ManArgs {
    /// Write a page for each command into this directory
    #[arg(long, value_name = "DIR", conflicts_with = "output")]
    pub directory: Option<PathBuf>,
}
