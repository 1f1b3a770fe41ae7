//! The commands, each in a file of its name: from the command line to the exit code.

mod archive;
mod audit;
mod check;
mod confirm;
mod counts;
mod diff;
mod events;
mod every;
mod generate;
mod history;
mod import;
mod init;
mod interview;
mod load;
mod locks;
mod native;
mod outputs;
mod prepare;
mod record;
mod restore;
mod rules;
mod session;
mod sweep;

use crate::cli::{Cli, Command, Common};
use crate::report::Report;
use outputs::{Output, deliver};
use record::Record;
use session::{Session, new_id};

use session::Session as Run;

/// Runs the command and returns the exit code.
///
/// Errors: whatever kept the command from being carried out; nothing was deleted, inserted or changed then.
pub async fn run(cli: Cli) -> anyhow::Result<u8> {
    let Cli { common: options, command } = &cli;
    let id = &new_id();
    match command {
        Command::Init(args) => init::init(options, args).await,
        Command::Check(args) => {
            outputs::check_conflicts(options, None)?;
            let (session, outputs) = Session::begin(options, id)?;
            let report = if args.connect {
                check::connected(&session, options, args, session.uri()?).await?
            } else {
                check::offline(&session, options)?
            };
            Ok(deliver(options, &report, outputs))
        }
        Command::Audit(args) => {
            outputs::check_conflicts(options, None)?;
            let (session, outputs) = Session::begin(options, id)?;
            let report = audit::audit(&session, options, args, session.uri()?).await?;
            Ok(deliver(options, &report, outputs))
        }
        Command::Sweep(args) => {
            outputs::check_conflicts(options, Some(args))?;
            let record = Record::open(args)?;
            if let Some(every) = args.every {
                return every::keep_running(record, options, args, every, id).await;
            }
            let swept = async {
                let (session, outputs) = Session::begin(options, id)?;
                let uri = session.uri()?.to_owned();
                let report = sweep::sweep(session, options, args, &uri).await?;
                Ok((report, outputs))
            };
            recorded(&record, options, swept).await
        }
        Command::Diff(args) => diff::command(options, args),
        Command::History(args) => history::command(options, args, id).await,
        Command::Restore(args) => restore::command(options, args, id).await,
        Command::Import => import::import(options, id).await,
        Command::Native { command } => native::native(options, command, id).await,
        Command::Schema(args) => generate::schema(options, args),
        Command::Completions(args) => generate::completions(options, args),
        Command::Man(args) => generate::man(options, args),
    }
}

/// Delivers the report of a sweep and records its end, also if it failed. Returns the exit code.
async fn recorded(
    record: &Record,
    options: &Common,
    swept: impl Future<Output = anyhow::Result<(Report, Vec<Output>)>>,
) -> anyhow::Result<u8> {
    let (report, outputs) = swept.await.inspect_err(|cause| record.failed(cause))?;
    let exit_code = deliver(options, &report, outputs);
    Ok(record.ended(&report, exit_code))
}
