//! One run from the command line to the exit code.

mod archive;
mod check;
mod confirm;
mod import;
mod load;
mod measure;
mod native;
mod only;
mod prepare;
mod restore;
mod rules;
mod sweep;

use std::io::IsTerminal;
use std::time::Instant;

use bson::{DateTime, Uuid};
use tracing::{error, warn};

use crate::cli::{Cli, Command, Common};
use crate::failure::Failure;
use crate::native::LAST_CHANGE;
use crate::output::{self, Target};
use crate::policy::Policy;
use crate::report::text::plural;
use crate::report::{self, Format, Report};
use crate::stop::Stop;

/// What every command of one run knows from the beginning.
pub struct Run {
    pub id: String,
    pub begun: Instant,
    pub started_at: DateTime,
    pub policy: Policy,
    pub stop: Stop,
}

/// What a command that goes by a policy begins with.
struct Begun {
    run: Run,
    uri: load::Uri,
    target: Target,
    format: Format,
}

/// Runs the command and writes its report. Gives the exit code.
///
/// Errors: whatever kept the run from taking place; nothing was deleted then.
pub async fn run(cli: Cli) -> anyhow::Result<u8> {
    let Cli { common, command } = cli;
    match command {
        Command::Import => import::import(&common).await,
        Command::Restore(args) => restore::restore(&common, &args).await,
        Command::Native { command } => native::native(begin(&common)?, &common, &command).await,
        Command::Sweep(args) => {
            let Begun { run, uri, target, format } = begin(&common)?;
            refuse_invisible(&run.policy)?;
            let report = sweep::sweep(&run, &common, &args, &uri.require()?).await?;
            Ok(deliver(&common, &report, target, format))
        }
        Command::Check(args) => {
            let Begun { run, uri, target, format } = begin(&common)?;
            refuse_invisible(&run.policy)?;
            let report = if args.connect {
                check::connected(&run, &common, &args, &uri.require()?).await?
            } else {
                check::offline(&run, &common)?
            };
            Ok(deliver(&common, &report, target, format))
        }
    }
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
fn begin(common: &Common) -> anyhow::Result<Begun> {
    let format = format(common)?;
    let (policy, uri) = load::load(common)?;
    let target = Target::open(common.output.as_deref())
        .map_err(|cause| Failure::cannot_run(format!("creating the report {}: {cause}; nothing was deleted", place(common))))?;
    let run =
        Run { id: Uuid::new().to_string(), begun: Instant::now(), started_at: DateTime::now(), policy, stop: Stop::listen()? };
    Ok(Begun { run, uri, target, format })
}

fn format(common: &Common) -> Result<Format, Failure> {
    if let Some(format) = common.format {
        return Ok(format);
    }
    let Some(extension) = common.output.as_ref().and_then(|path| path.extension()?.to_str().map(str::to_owned)) else {
        return Ok(Format::Table);
    };
    Format::of_extension(&extension).ok_or_else(|| {
        Failure::usage(format!(
            "--output: the extension `.{extension}` stands for no format; expected .json, .csv, .md or .txt, or --format"
        ))
    })
}

/// Writes the report, and one line to stderr where the exit code is not 0 and the report is not there to say why.
fn deliver(common: &Common, report: &Report, target: Target, format: Format) -> u8 {
    let to_stdout = matches!(target, Target::Stdout);
    let colored = to_stdout && common.color.decide(std::io::stdout().is_terminal());
    let text = report::render(report, format, colored);
    if !(to_stdout && common.quiet)
        && let Err(cause) = target.write(&text)
    {
        let place = place(common);
        let deleted = plural(report.totals.deleted_count, "document");
        error!("writing the report to {place}: {cause}; the run itself is over, {deleted} deleted");
        if !to_stdout && !common.quiet && output::to_stdout(&text).is_ok() {
            warn!("the report was written to standard output instead");
        }
        return crate::exit::CANNOT_RUN;
    }
    if report.exit_code != crate::exit::DONE && (common.quiet || !to_stdout) {
        error!("{}", report::reason(report));
    }
    report.exit_code
}

/// What messages call the place that the report goes to.
fn place(common: &Common) -> String {
    common.output.as_ref().map_or_else(|| "standard output".to_owned(), |path| format!("`{}`", path.display()))
}

/// Milliseconds since an instant.
pub fn millis(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX)
}
