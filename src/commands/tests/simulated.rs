//! Whole runs on a simulated machine, connected to a model of a server.

mod case;
mod children;
mod orphans;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use crate::base::log::LogFormat;
use crate::base::pause_file::PauseFile;
use crate::base::stop::Stop;
use crate::base::watch;
use crate::commands::cli::{Common, RestoreArgs, SweepArgs, When};
use crate::commands::session::Session;
use crate::commands::session::connection::Uri;
use crate::commands::session::prepare;
use crate::commands::{restore, sweep};
use crate::core::policy::Policy;
use crate::core::report::Report;
use crate::core::report::restore::RestoreReport;
use crate::shell::archive::disk::Disk;
use crate::shell::server::wire::transport::Transport;
use crate::testing::model;

/// The surroundings of a run: all that it has besides its command line.
pub(crate) struct Surroundings {
    pub run_id: String,
    pub policy: Policy,
    /// The policy that was read last while the run lasts.
    pub policies: watch::Receiver<Option<Arc<Policy>>>,
    /// The patterns of `--only`.
    pub only: Vec<String>,
    pub server: Arc<dyn Transport>,
    pub disk: Arc<dyn Disk>,
    /// The reason of a pause file, as long as that is there; `None` for the file that the arguments name, if there is one.
    pub pause: Option<watch::Receiver<Option<String>>>,
    /// Exit codes of the signals that the run gets.
    pub signals: watch::Receiver<Option<u8>>,
}

/// Sweeps once, as the command does between its outputs.
pub(crate) async fn sweep(run: Surroundings, args: &SweepArgs) -> anyhow::Result<Report> {
    let Surroundings { run_id, policy, policies, only, server, disk, pause, signals } = run;
    let options = Common { only, ..options() };
    let uri = Uri::of_policy("", &policy.connection);
    let session = Session::new(&options, &run_id, policy, uri, Stop::by(signals));
    let mut session = sweep::with_ends(Session { model: Some(server), disk, policies, ..session }, args)?;
    if let Some(reason) = pause {
        session.pause = PauseFile::by(reason);
    }
    sweep::sweep(&session, args).await
}

/// Restores once, as the command does between its outputs.
pub(crate) async fn restore(run: Surroundings, args: &RestoreArgs) -> anyhow::Result<RestoreReport> {
    let Surroundings { run_id, only, server, disk, signals, .. } = run;
    let stop = Stop::by(signals);
    let verified = restore::verify(&Common { only, ..options() }, args, disk).await?;
    let mut deployment = model::connect(server, &run_id).await?;
    prepare::find_part(&mut deployment, "nothing was inserted").await?;
    Ok(restore::restored(&deployment, &stop, args, verified, Instant::now()).await.0)
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
