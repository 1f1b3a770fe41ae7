//! Options of `diff`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub struct DiffArgs {
    /// The earlier report, as JSON
    pub old: PathBuf,
    /// The later report, as JSON
    pub new: PathBuf,
}
