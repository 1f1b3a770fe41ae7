//! State of one run of a command that follows a policy.

pub(super) mod connection;
mod directories;
pub(super) mod load;
pub(super) mod outputs;
pub(super) mod password;
pub(super) mod prepare;
pub(super) mod so_far;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use bson::{DateTime, Uuid};
use tokio::time::Instant;

use crate::base::failure::Failure;
use crate::base::instant::millis;
use crate::base::log::{self, LogFormat};
use crate::base::machine::wall_clock;
use crate::base::pause_file::PauseFile;
use crate::base::progress::{LastSample, Show};
use crate::base::stop::Stop;
use crate::base::{terminal, watch};
use crate::commands::cli::{Common, When};
use crate::core::facts::LAST_CHANGE;
use crate::core::policy::Policy;
use crate::core::report::{Format, ReportCommand, RunRecord};
use crate::shell::archive::disk::{Disk, RealDisk};
#[cfg(test)]
use crate::shell::server::wire::transport::Transport;
use crate::shell::server::{Deployment, connect};
use connection::Uri;
use outputs::{Output, SingleOutput};
use so_far::SoFar;

/// One run of a command that follows a policy.
pub(super) struct Session {
    pub options: Common,
    pub id: String,
    /// Start by the monotonic clock, for durations and limits.
    pub begun: Instant,
    /// Start by this machine's clock, for the report.
    pub started_at: DateTime,
    pub policy: Policy,
    pub stop: Stop,
    pub pause: PauseFile,
    /// The deployment, once connected. A run that fails afterwards is recorded in its history as well.
    pub connected: OnceLock<Deployment>,
    /// Whether the server refused to record that the run begins.
    pub opening_refused: AtomicBool,
    /// The state of the sweep until now.
    pub so_far: SoFar,
    /// The connection string.
    pub uri: Uri,
    /// The disk of archives.
    pub disk: Arc<dyn Disk>,
    /// The last sample of the sweep while it runs.
    pub last_sample: LastSample,
    /// The policy that was read last while the sweep runs; `None` if none was.
    pub policies: watch::Receiver<Option<Arc<Policy>>>,
    /// A model of a server that is connected to instead.
    #[cfg(test)]
    pub model: Option<Arc<dyn Transport>>,
}

impl Session {
    /// Begins a run now.
    pub(super) fn new(options: &Common, id: &str, policy: Policy, uri: Uri, stop: Stop) -> Self {
        Self {
            options: options.clone(),
            id: id.to_owned(),
            begun: Instant::now(),
            started_at: DateTime::from_system_time(wall_clock()),
            policy,
            stop,
            pause: PauseFile::default(),
            connected: OnceLock::new(),
            opening_refused: AtomicBool::new(false),
            so_far: SoFar::default(),
            uri,
            disk: Arc::new(RealDisk::default()),
            last_sample: LastSample::default(),
            policies: watch::channel(None).1,
            #[cfg(test)]
            model: None,
        }
    }

    /// Begins a command that reports what the rules of the policy do: reads the policy and opens the outputs.
    ///
    /// Errors: a wrong command line or policy, or an output that cannot be written; nothing was contacted.
    pub(super) fn begin(options: &Common, id: &str) -> anyhow::Result<(Self, Vec<Output>)> {
        Self::begin_with(options, id, load::load)
    }

    /// Begins a command that reports what the rules of the policy do, in a process that listens to signals already. The signals
    /// also end the wait for a policy from standard input.
    ///
    /// Errors: as for [`Self::begin`], or the process was asked to stop.
    pub(super) async fn begin_under(stop: Stop, options: &Common, id: &str) -> anyhow::Result<(Self, Vec<Output>)> {
        let outputs = outputs::pair(options)?;
        let of_policy = options.clone();
        let loaded = async { anyhow::Ok(tokio::task::spawn_blocking(move || load::load(&of_policy)).await??) };
        let loaded = stop.idle(stop.or_fail("nothing was contacted", loaded)).await?;
        Self::loaded(options, id, outputs, loaded, || Ok(stop))
    }

    /// Begins a command that reports on a policy, connects to nothing, and needs no secret.
    ///
    /// Errors: as for [`Self::begin`].
    pub(super) fn begin_offline(options: &Common, id: &str) -> anyhow::Result<(Self, Vec<Output>)> {
        Self::begin_with(options, id, load::offline)
    }

    fn begin_with(
        options: &Common,
        id: &str,
        load: fn(&Common) -> Result<(Policy, Uri), Failure>,
    ) -> anyhow::Result<(Self, Vec<Output>)> {
        let outputs = outputs::pair(options)?;
        Self::loaded(options, id, outputs, load(options)?, Stop::listen)
    }

    /// Opens the outputs for a policy that was read. `listen` is called last.
    fn loaded(
        options: &Common,
        id: &str,
        outputs: Vec<(PathBuf, Format)>,
        (policy, uri): (Policy, Uri),
        listen: impl FnOnce() -> std::io::Result<Stop>,
    ) -> anyhow::Result<(Self, Vec<Output>)> {
        let outputs = outputs::open(outputs)?;
        refuse_invisible(&policy)?;
        Ok((Self::new(options, id, policy, uri, listen()?), outputs))
    }

    /// Begins a command with a single output. Accepts rules that cannot be swept.
    ///
    /// Errors: a wrong policy, or an output that cannot be written; nothing was contacted.
    pub(super) fn begin_single(options: &Common, id: &str, output: SingleOutput) -> anyhow::Result<(Self, Output)> {
        let (policy, uri) = load::load(options)?;
        let output = output.open()?;
        Ok((Self::new(options, id, policy, uri, Stop::listen()?), output))
    }

    /// Checks that there is a connection string.
    ///
    /// Errors: as for [`Uri::require`].
    pub(super) fn need_uri(&self) -> Result<(), Failure> {
        self.uri.require().map(drop)
    }

    /// Connects to the deployment of the policy.
    ///
    /// Errors: no connection string, no password, or no connection.
    pub(super) async fn connect(&self) -> Result<Deployment, Failure> {
        #[cfg(test)]
        if let Some(model) = &self.model {
            return crate::testing::model::connect(model.clone(), &self.id).await;
        }
        let uri = self.uri.with_password(&self.stop).await?;
        connect::connect(&uri, self.policy.connection.flavor, &self.id).await
    }

    /// Returns the form of progress that the options ask for.
    pub(super) fn show(&self) -> Show {
        let Common { progress, quiet, log_format, .. } = &self.options;
        match progress {
            When::Never => Show::Nothing,
            When::Auto if *quiet => Show::Nothing,
            // Bars would break a log of JSON objects.
            When::Auto | When::Always if terminal::can_redraw() && *log_format == LogFormat::Text => Show::Bars,
            When::Auto | When::Always => Show::Lines,
        }
    }

    /// Returns the values that the report needs of a run that contacted no server; commands that contact one add to them.
    pub(super) fn record(&self, command: ReportCommand) -> RunRecord<'_> {
        RunRecord {
            command,
            dry_run: false,
            run_id: self.id.clone(),
            as_of: None,
            started_at: self.started_at,
            duration_ms: millis(self.begun.elapsed()),
            signal_exit: self.stop.exit_code(),
            policy: &self.policy,
            server: None,
            plan: None,
            limits: self.policy.run,
            pacing_changes: self.so_far.pacing_changes(),
        }
    }
}

/// Returns an id for a new run, which all further lines of the log carry.
pub(super) fn new_id() -> String {
    let id = Uuid::new().to_string();
    log::begin_run(&id);
    id
}

/// Refuses a policy with a rule on a field that no client can see: such a rule can be compared with the service's own settings,
/// but not swept.
pub(super) fn refuse_invisible(policy: &Policy) -> Result<(), Failure> {
    let Some(rule) = policy.rules.iter().find(|rule| rule.field.as_deref() == Some(LAST_CHANGE)) else { return Ok(()) };
    let failure = Failure::usage(format!(
        "policy `{}`: rule `{}`: `field: _ts` is not visible to MongoDB clients of Azure Cosmos DB; nothing was contacted",
        policy.path, rule.name
    ));
    Err(failure.hint("the service's own TTL works on it: `sweeper native apply` sets it; or name a date field of the documents"))
}
