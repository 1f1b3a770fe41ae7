//! Options of `restore`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The directory of one run, as the report of the sweep names it
    #[arg(value_name = "ARCHIVE")]
    pub archive: PathBuf,
    /// Verify and count, and stop before the first insert
    #[arg(long)]
    pub dry_run: bool,
    /// Put the documents of one namespace into another; repeatable
    #[arg(long, value_name = "FROM=TO")]
    pub namespace: Vec<String>,
    /// Replace documents that are there and differ; without it they are kept
    #[arg(long)]
    pub replace: bool,
    /// Do not ask
    #[arg(short, long)]
    pub yes: bool,
}
