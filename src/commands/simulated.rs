//! Whole runs on a simulated machine, connected to a model of a server.

mod case;
mod children;
mod orphans;

use std::path::PathBuf;
use std::sync::Arc;

use tokio::sync::watch;

use super::connection::Uri;
use super::session::Session;
use super::sweep;
use crate::archive::disk::Disk;
use crate::cli::{Common, SweepArgs, When};
use crate::log::LogFormat;
use crate::policy::Policy;
use crate::report::Report;
use crate::server::transport::Transport;
use crate::stop::Stop;

/// The surroundings of a run: all that it has besides its command line.
pub(crate) struct Surroundings {
    pub run_id: String,
    pub policy: Policy,
    pub server: Arc<dyn Transport>,
    pub disk: Arc<dyn Disk>,
    /// Exit codes of the signals that the run gets.
    pub signals: watch::Receiver<Option<u8>>,
}

/// Sweeps once, as the command does between its outputs.
pub(crate) async fn sweep(run: Surroundings, args: &SweepArgs) -> anyhow::Result<Report> {
    let Surroundings { run_id, policy, server, disk, signals } = run;
    let session = Session::new(&options(), &run_id, policy, Uri::none(), Stop::by(signals));
    let session = sweep::with_ends(Session { model: Some(server), disk, ..session }, args)?;
    sweep::sweep(&session, args).await
}

fn options() -> Common {
    Common {
        policy: PathBuf::from("sweeper.yaml"),
        uri: None,
        uri_file: None,
        only: Vec::new(),
        output: Vec::new(),
        format: Vec::new(),
        log_format: LogFormat::Text,
        verbose: 0,
        quiet: true,
        progress: When::Never,
        color: When::Never,
    }
}
