//! `sweeper`: parses the command line, runs it, ends with the exit code.

use std::io::Write;
use std::process::ExitCode;

use ttl_sweeper::cli::{self, Cli};
use ttl_sweeper::{commands, exit, failure, log};

/// A document of 200 levels, the most that a server takes, is decoded by so many calls within each other.
const STACK_BYTES: usize = 16 * 1024 * 1024;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().collect();
    if args.len() < 2 {
        // Whoever types the name alone wants to know what there is. Where the environment sets an option, clap takes that for more.
        let _ = write!(std::io::stderr(), "{}", cli::command_line().render_help());
        return exit::USAGE.into();
    }
    let cli = Cli::read(&args).unwrap_or_else(|cause| cause.exit());
    log::install(cli.common.log_format, cli.common.verbose, cli.common.quiet);
    let quiet = cli.common.quiet;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).thread_stack_size(STACK_BYTES).enable_all().build();
    let result = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        let result = runtime.block_on(commands::run(cli));
        // A command that hangs must not keep the process alive.
        runtime.shutdown_background();
        result
    });
    match result {
        Ok(code) => code.into(),
        Err(cause) => {
            failure::say(&cause, quiet);
            failure::exit_code(&cause).into()
        }
    }
}
