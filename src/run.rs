//! One run from the command line to the exit code.

mod check;
mod confirm;
mod load;
mod measure;
mod only;
mod prepare;
mod rules;
mod sweep;

use std::io::IsTerminal;
use std::time::Instant;

use bson::{DateTime, Uuid};
use tracing::{error, warn};

use crate::cli::{Cli, Command, Common};
use crate::failure::Failure;
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

/// Runs the command and writes its report. Gives the exit code.
///
/// Errors: whatever kept the run from taking place; nothing was deleted then.
pub async fn run(cli: Cli) -> anyhow::Result<u8> {
    let Cli { common, command } = cli;
    let format = format(&common)?;
    let (policy, uri) = load::load(&common)?;
    let target = match Target::open(common.output.as_deref()) {
        Ok(target) => target,
        Err(cause) => {
            let path = common.output.unwrap_or_default();
            return Err(
                Failure::cannot_run(format!("creating the report `{}`: {cause}; nothing was deleted", path.display())).into()
            );
        }
    };
    let run =
        Run { id: Uuid::new().to_string(), begun: Instant::now(), started_at: DateTime::now(), policy, stop: Stop::listen()? };
    let report = match command {
        Command::Sweep(args) => sweep::sweep(&run, &common, &args, &uri.require()?).await?,
        Command::Check(args) if args.connect => check::connected(&run, &common, &args, &uri.require()?).await?,
        Command::Check(_) => check::offline(&run, &common)?,
    };
    Ok(deliver(&common, &report, target, format))
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
        let place = common.output.as_ref().map_or_else(|| "standard output".to_owned(), |path| format!("`{}`", path.display()));
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

/// Milliseconds since an instant.
pub fn millis(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX)
}
