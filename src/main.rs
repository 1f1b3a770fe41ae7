//! `sweeper`: parses the command line, runs it, ends with the exit code.

use std::fs::File;
use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::{Arc, Barrier};

use ttl_sweeper::base::{exit, failure, log, signals};
use ttl_sweeper::commands;
use ttl_sweeper::commands::cli::{self, Cli, Command};

/// Size of a thread's stack. Decoding recurses once per level of a document, and a server accepts up to 200 levels.
const STACK_BYTES: usize = 16 * 1024 * 1024;

/// Files that the runtime, its signals and a connection need, besides the three of every process.
const MIN_FILES: usize = 8;

/// Threads of the runtime besides the main one: two that do the work, and one that waits for files and names.
const MIN_THREADS: usize = 3;

fn main() -> ExitCode {
    signals::hold_back();
    let args: Vec<_> = std::env::args_os().collect();
    if args.len() < 2 {
        // clap's `arg_required_else_help` does not apply if the environment sets an option.
        let _ = write!(io::stderr(), "{}", cli::command_line().render_help());
        return exit::USAGE.into();
    }
    share_one_heap();
    let cli = match Cli::read(&args) {
        Ok(cli) => cli,
        Err(cause) if cause.use_stderr() => {
            let _ = write!(io::stderr(), "{}", cli::shown_error(&cause, &args));
            return exit::USAGE.into();
        }
        // The help or the version, which was asked for.
        Err(cause) => cause.exit(),
    };
    // A sweep lets them through as soon as it listens to them.
    if !matches!(&cli.command, Command::Sweep(_)) {
        signals::let_through();
    }
    let stays = matches!(&cli.command, Command::Sweep(args) if args.every.is_some());
    log::install(cli.common.log_format, cli.common.verbose, cli.common.quiet, stays);
    let quiet = cli.common.quiet;
    let built =
        || tokio::runtime::Builder::new_multi_thread().worker_threads(2).thread_stack_size(STACK_BYTES).enable_all().build();
    let runtime = check_room().and_then(|()| built());
    let result = runtime.map_err(anyhow::Error::from).and_then(|runtime| {
        let result = runtime.block_on(commands::run(cli));
        // A command that hangs must not keep the process alive.
        runtime.shutdown_background();
        result
    });
    let code = result.unwrap_or_else(|cause| {
        failure::log(&cause, quiet);
        failure::exit_code(&cause)
    });
    log::settle();
    code.into()
}

/// Checks that the process may open the files and start the threads that it needs: the runtime would panic.
///
/// Errors: the limit that is too low.
fn check_room() -> io::Result<()> {
    let too_low = |what: &str, option: &str, cause: io::Error| {
        io::Error::other(format!(
            "starting: no room for {what}: {cause}; nothing was contacted; raise the limit (`ulimit {option}`)"
        ))
    };
    let files: io::Result<Vec<File>> = (0..MIN_FILES).map(|_| File::open("/dev/null")).collect();
    files.map_err(|cause| too_low(&format!("{MIN_FILES} open files"), "-n", cause))?;
    let all_run = Arc::new(Barrier::new(MIN_THREADS + 1));
    let start = |_| {
        let all_run = all_run.clone();
        std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || all_run.wait())
    };
    let threads: io::Result<Vec<_>> = (0..MIN_THREADS).map(start).collect();
    // Threads that wait for others that cannot start end with the process.
    threads.map_err(|cause| too_low(&format!("{MIN_THREADS} threads"), "-u", cause))?;
    all_run.wait();
    Ok(())
}

/// Lets all threads share one heap, which gives back what is free at its end. Larger buffers, such as the buffers of documents of
/// several megabytes, are mappings of their own, which go back as soon as they are free.
///
/// A rule with 100,000 holds has commands of 2.5 MB, of which the driver makes copies. By default glibc keeps what was freed of
/// them in a heap per thread: a third more memory. As mappings they take the least memory, but the system has to clear their
/// pages again and again, which took an eighth of the time of such a sweep.
fn share_one_heap() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    #[expect(unsafe_code, reason = "no crate has a safe call for it")]
    // SAFETY: sets three numbers, before there is a second thread.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
        libc::mallopt(libc::M_MMAP_THRESHOLD, 6 * 1024 * 1024);
        libc::mallopt(libc::M_TRIM_THRESHOLD, 8 * 1024 * 1024);
    }
}
