//! The commands, from the command line to the exit code, each in a file that has its name.

mod archive;
mod audit;
mod check;
pub mod cli;
mod confirm;
mod diff;
mod every;
mod generate;
mod history;
mod import;
mod init;
mod interview;
mod native;
mod reclaim;
mod restore;
mod run;
mod session;
mod survey;
mod sweep;
mod why;

use cli::{Cli, Command};

/// Runs the command and returns the exit code.
///
/// Errors: the reason why the command could not be carried out; in that case nothing was deleted, inserted or changed.
pub async fn run(cli: Cli) -> anyhow::Result<u8> {
    let Cli { common: options, command } = &cli;
    let id = &session::new_id();
    match command {
        Command::Init(args) => init::command(options, args).await,
        Command::Check(args) => check::command(options, args, id).await,
        Command::Audit(args) => audit::command(options, args, id).await,
        Command::Sweep(args) => match args.every {
            None => sweep::command(options, args, id).await,
            Some(every) => every::command(options, args, every, id).await,
        },
        Command::Diff(args) => diff::command(options, args),
        Command::History(args) => history::command(options, args, id).await,
        Command::Why(args) => why::command(options, args, id).await,
        Command::Archive { command } => archive::command(options, command).await,
        Command::Restore(args) => restore::command(options, args, id).await,
        Command::Import(args) => import::command(options, args, id).await,
        Command::Native { command } => native::command(options, command, id).await,
        Command::Reclaim(args) => reclaim::command(options, args, id).await,
        Command::Schema(args) => generate::schema(options, args),
        Command::Completions(args) => generate::completions(options, args),
        Command::Man(args) => generate::man(options, args),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    pub(crate) mod simulated;
}
