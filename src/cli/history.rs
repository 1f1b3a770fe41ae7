//! Options of `history`.

use clap::Args;

#[derive(Debug, Args)]
pub struct HistoryArgs {
    /// Show so many runs, the newest
    #[arg(short = 'n', long, value_name = "N", default_value = "20", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub last: u32,
}
