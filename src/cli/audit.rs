//! Options of `audit`.

use std::time::Duration;

use bson::DateTime;
use clap::{Args, ValueEnum};

use super::value::{parse_duration, parse_instant};

#[derive(Debug, Args)]
pub struct AuditArgs {
    /// Take this instant for now, such as 2026-01-31T02:00:00Z; not later than the server's clock [default: the server's clock]
    #[arg(long, value_name = "RFC3339", value_parser = parse_instant)]
    pub as_of: Option<DateTime>,
    /// Look at every document, also of a collection with more than 1,000,000
    #[arg(long)]
    pub exact: bool,
    /// How long the server may work on one query; a figure that takes longer is left out, with a warning
    #[arg(long, value_name = "DUR", default_value = "5m", value_parser = parse_duration)]
    pub max_time: Duration,
    /// Which members of a replica set are asked; a secondary may be behind
    #[arg(long, value_name = "MODE", default_value = "primary")]
    pub read_preference: ReadFrom,
    /// As for sweep
    #[arg(long)]
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
