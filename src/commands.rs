//! One run from the command line to the exit code.

mod archive;
mod audit;
mod check;
mod confirm;
mod deliver;
mod diff;
mod events;
mod every;
mod files;
mod generate;
mod history;
mod import;
mod init;
mod interview;
mod load;
mod locks;
mod measure;
mod native;
mod prepare;
mod record;
mod remaining;
mod restore;
mod rules;
mod sweep;

use std::sync::OnceLock;
use std::time::Instant;

use bson::{DateTime, Uuid};

use crate::cli::{Cli, Command, Common};
use crate::facts::LAST_CHANGE;
use crate::failure::Failure;
use crate::instant::millis;
use crate::log;
use crate::policy::Policy;
use crate::report::{self, Report, RunRecord};
use crate::server::Deployment;
use crate::stop::Stop;
use deliver::{One, Output, deliver};
use record::Record;

/// What every command of one run knows from the beginning.
pub struct Run {
    pub id: String,
    pub begun: Instant,
    pub started_at: DateTime,
    pub policy: Policy,
    pub stop: Stop,
    /// The deployment, once there is a connection: a run that fails is recorded in its history as well.
    pub connected: OnceLock<Deployment>,
}

impl Run {
    fn new(id: &str, policy: Policy, stop: Stop) -> Self {
        Self { id: id.to_owned(), begun: Instant::now(), started_at: DateTime::now(), policy, stop, connected: OnceLock::new() }
    }

    /// What the report says of a run that asked no server; for the others more is to be filled in.
    fn record(&self, command: report::Command) -> RunRecord<'_> {
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
        }
    }
}

/// What a command that goes by a policy begins with.
struct Begun {
    run: Run,
    uri: load::Uri,
    outputs: Vec<Output>,
}

/// Runs the command and writes its report. Gives the exit code.
///
/// Errors: whatever kept the run from taking place; nothing was deleted then.
pub async fn run(cli: Cli) -> anyhow::Result<u8> {
    let Cli { common, command } = cli;
    let id = &new_id();
    match command {
        Command::Diff(args) => diff::compare(&common, &args),
        Command::History(args) => history::history(&common, &args, id).await,
        Command::Init(args) => init::init(&common, &args).await,
        Command::Import => import::import(&common, id).await,
        Command::Native { command } => native::native(&common, &command, id).await,
        Command::Restore(args) => restore::restore(&common, &args, id).await,
        Command::Sweep(args) => {
            files::apart(&common, Some(&args))?;
            let record = Record::open(&args)?;
            if let Some(every) = args.every {
                return every::stay(record, &common, &args, every, id).await;
            }
            let swept = async {
                let Begun { run, uri, outputs } = begin(&common, id)?;
                refuse_invisible(&run.policy)?;
                let report = sweep::sweep(run, &common, &args, &uri.require()?).await?;
                Ok((report, outputs))
            };
            recorded(&record, &common, swept).await
        }
        Command::Audit(args) => {
            files::apart(&common, None)?;
            let Begun { run, uri, outputs } = begin(&common, id)?;
            refuse_invisible(&run.policy)?;
            let report = audit::audit(&run, &common, &args, &uri.require()?).await?;
            Ok(deliver(&common, &report, outputs))
        }
        Command::Check(args) => {
            files::apart(&common, None)?;
            let Begun { run, uri, outputs } = begin(&common, id)?;
            refuse_invisible(&run.policy)?;
            let report = if args.connect {
                check::connected(&run, &common, &args, &uri.require()?).await?
            } else {
                check::offline(&run, &common)?
            };
            Ok(deliver(&common, &report, outputs))
        }
        Command::Schema(args) => generate::schema(&common, &args),
        Command::Completions(args) => generate::completions(&common, &args),
        Command::Man(args) => generate::man(&common, &args),
    }
}

/// An id for a run, which every line of the log carries from here on.
fn new_id() -> String {
    let id = Uuid::new().to_string();
    log::begin_run(&id);
    id
}

/// A rule by a field that no client can see can be held beside the service's own settings, but not swept.
fn refuse_invisible(policy: &Policy) -> Result<(), Failure> {
    let Some(rule) = policy.rules.iter().find(|rule| rule.field.as_deref() == Some(LAST_CHANGE)) else { return Ok(()) };
    let failure = Failure::usage(format!(
        "policy `{}`: rule `{}`: `field: _ts` is not visible to MongoDB clients of Azure Cosmos DB; nothing was contacted",
        policy.path, rule.name
    ));
    Err(failure.hint("the service's own TTL works on it: `sweeper native apply` sets it; or name a date field of the documents"))
}

/// Reads the policy, and tries whether the report can be written.
fn begin(common: &Common, id: &str) -> anyhow::Result<Begun> {
    let outputs = deliver::pair(common)?;
    let (policy, uri) = load::load(common)?;
    let outputs = deliver::open(outputs)?;
    Ok(Begun { run: Run::new(id, policy, Stop::listen()?), uri, outputs })
}

/// As [`begin`], for a command that has one output.
fn begin_one(common: &Common, id: &str, output: One) -> anyhow::Result<(Run, load::Uri, Output)> {
    let (policy, uri) = load::load(common)?;
    let output = output.open()?;
    Ok((Run::new(id, policy, Stop::listen()?), uri, output))
}

/// Delivers the report of a sweep, and writes down how it ended, however it did. Gives the exit code.
async fn recorded(
    record: &Record,
    common: &Common,
    swept: impl Future<Output = anyhow::Result<(Report, Vec<Output>)>>,
) -> anyhow::Result<u8> {
    let (report, outputs) = swept.await.inspect_err(|cause| record.failed(cause))?;
    let exit_code = deliver(common, &report, outputs);
    Ok(record.ended(&report, exit_code))
}
