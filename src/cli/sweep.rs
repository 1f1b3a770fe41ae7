//! Options of `sweep`.

use std::path::PathBuf;
use std::time::Duration;

use bson::DateTime;
use clap::Args;

use super::value::{parse_duration, parse_instant};

#[derive(Debug, Args)]
pub struct SweepArgs {
    /// Count and stop before the first delete
    #[arg(long)]
    pub dry_run: bool,
    /// Take this instant for now, such as 2026-01-31T02:00:00Z; not later than the server's clock [default: the server's clock]
    #[arg(long, value_name = "RFC3339", value_parser = parse_instant)]
    pub as_of: Option<DateTime>,
    /// Sweep what this saved JSON audit says, at its instant, and refuse whatever is not as it was any more
    ///
    /// Refused (exit 5) are: another policy, another deployment or version, a plan that is too old, and a rule of which more has expired than
    /// was approved, with a tolerance of 1 %. No rule deletes more than that.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["as_of", "every"])]
    pub plan: Option<PathBuf>,
    /// How old a plan may be
    #[arg(long, value_name = "DUR", default_value = "1d", value_parser = parse_duration, requires = "plan")]
    pub max_plan_age: Duration,
    /// Stop after so many documents, over all rules
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_deletes: Option<u64>,
    /// Stop after this time, such as 90m; wins over the policy's run.maxDuration
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub max_duration: Option<Duration>,
    /// Documents per second at most, over all rules; wins over the policy's run.rate
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rate: Option<u32>,
    /// Write what the run did in Prometheus' text format, replaced as a whole; also by a run that fails
    #[arg(long, value_name = "FILE")]
    pub metrics_file: Option<PathBuf>,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
    /// Stay, and run at every full multiple of this time, such as 15m, beginning with one run at once; limits hold for each run.
    /// SIGHUP reads the policy anew, SIGTERM ends
    #[arg(long, value_name = "DUR", value_parser = parse_duration, conflicts_with = "as_of")]
    pub every: Option<Duration>,
    /// Let only one run at a time go on this machine: who comes later ends with exit code 6. Not taken by a dry run
    #[arg(long, value_name = "FILE")]
    pub lock: Option<PathBuf>,
    /// Wait so long for locks that other runs have, from the beginning of the run on
    #[arg(long, value_name = "DUR", value_parser = parse_duration)]
    pub lock_wait: Option<Duration>,
    /// While this file is there nothing begins, and what runs ends after the batch in flight, with exit code 4
    #[arg(long, value_name = "FILE")]
    pub stop_file: Option<PathBuf>,
    /// Run although the clocks of this machine and of the server are more than 5 minutes apart; the server's decides
    #[arg(long)]
    pub allow_clock_skew: bool,
}
