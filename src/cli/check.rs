//! Options of `check`.

use clap::Args;

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Hold the policy against the deployment as well: existence, kind, index, privileges, guards
    #[arg(long)]
    pub connect: bool,
    /// As for sweep
    #[arg(long)]
    pub allow_clock_skew: bool,
}
