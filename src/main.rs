//! `sweeper`: parses the command line, runs it, ends with the exit code.

use std::process::ExitCode;

use clap::Parser;
use ttl_sweeper::cli::Cli;
use ttl_sweeper::{failure, log, run};

fn main() -> ExitCode {
    let cli = Cli::parse();
    log::install(cli.common.log_format, cli.common.verbose, cli.common.quiet);
    let quiet = cli.common.quiet;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let result = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        let result = runtime.block_on(run::run(cli));
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
