//! Requests to stop a run: SIGINT, SIGTERM, SIGHUP, a stop file, and the end of its maximum duration.
//!
//! The first signal lets the batch in flight end, the second ends the process at once, once it has said what it knows. A hang-up
//! is never the second: a terminal that is closed sends several, one by the kernel and one by the shell.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;
use tracing::{error, warn};

use crate::base::failure::Failure;
use crate::base::watch;
use crate::base::{exit, machine, signals, terminal};

/// Time for a report after the second signal; a third one ends the process without it.
const MAX_LAST_WORDS: Duration = Duration::from_secs(2);

/// Time after the first signal at which a run no longer waits for anything, and says what it knows. A container has ten seconds
/// before it is killed.
pub(crate) const MAX_TIME_TO_END: Duration = Duration::from_secs(8);

/// Interval between two looks for a file that stops or pauses runs.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(500);

/// SIGXFSZ, on every platform but MIPS: a file would become larger than the process may make it (`ulimit -f`).
const FILE_SIZE_EXCEEDED: i32 = 25;

/// The requests to stop one run.
#[derive(Clone)]
pub(crate) struct Stop {
    /// Exit code of the first signal.
    signals: watch::Receiver<Option<u8>>,
    /// Exit code of the second signal.
    again: watch::Receiver<Option<u8>>,
    /// Whether the process ends by itself after the second signal, because it has something to say.
    has_last_words: Arc<AtomicBool>,
    /// Whether the process waits for a person or for its next run, so that nothing is in flight.
    is_idle: Arc<AtomicBool>,
    /// Whether the stop file was seen.
    file: Option<watch::Receiver<bool>>,
    /// End of the maximum duration.
    end: Option<Instant>,
}

impl Stop {
    /// Takes over the signals for the rest of the process. SIGHUP is one of them unless the process was told to ignore it, as
    /// `nohup` does. Needs a tokio runtime.
    ///
    /// Errors: the operating system refuses the handlers.
    pub(crate) fn listen() -> std::io::Result<Self> {
        let hangup = (!ignores_hangup()).then(|| signal(SignalKind::hangup())).transpose()?;
        Self::listen_to(hangup)
    }

    /// Takes over the signals but SIGHUP, for a process to which that means something else.
    ///
    /// Errors: as for [`Self::listen`].
    pub(crate) fn listen_but_to_hangups() -> std::io::Result<Self> {
        Self::listen_to(None)
    }

    fn listen_to(hangup: Option<Signal>) -> std::io::Result<Self> {
        let (sender, signals) = watch::channel(None);
        let (sender_again, again) = watch::channel(None);
        let stop = Self { again, ..Self::by(signals) };
        let (waits, idle) = (stop.has_last_words.clone(), stop.is_idle.clone());
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let mut of_process = Signals { interrupt, terminate, hangup };
        // With a handler, the write fails with an error instead, and the run says what it deleted. The handler stays when this is
        // dropped.
        drop(signal(SignalKind::from_raw(FILE_SIZE_EXCEEDED))?);
        tokio::spawn(async move {
            let code = of_process.next().await;
            // Whoever is woken by the request is no longer idle.
            let was_idle = idle.load(Ordering::Relaxed);
            // The request is passed on before it is logged: nothing may come between.
            sender.send_replace(Some(code));
            if !was_idle {
                warn!("stopping after the batch in flight; a second signal stops at once");
            }
            // Its handler stays, so that further hang-ups change nothing.
            of_process.hangup = None;
            let code = of_process.next().await;
            sender_again.send_replace(Some(code));
            if waits.load(Ordering::Relaxed) {
                // A report may go to a pipe that is not read.
                let _ = tokio::time::timeout(MAX_LAST_WORDS, of_process.next()).await;
            } else {
                error!(
                    "a second signal ended the run at once: what was done is not reported, and a command that was sent may still be carried out"
                );
            }
            let _ = terminal::stderr().clear();
            terminal::settle();
            std::process::exit(i32::from(code));
        });
        signals::let_through();
        Ok(stop)
    }

    /// Creates the requests of a run that gets the exit codes of its signals from a channel.
    pub(crate) fn by(signals: watch::Receiver<Option<u8>>) -> Self {
        let (_, again) = watch::channel(None);
        Self { signals, again, has_last_words: Arc::default(), is_idle: Arc::default(), file: None, end: None }
    }

    /// Returns the same signals together with a stop file. Once the file was seen, the run is asked to stop even if the file is
    /// removed again.
    pub(crate) fn with_file(&self, path: Option<&PathBuf>) -> Self {
        Self { file: path.cloned().map(watch_file), ..self.clone() }
    }

    /// Returns the same requests, and one at the end of a maximum duration; `None` for no such end.
    pub(crate) fn with_end(&self, end: Option<Instant>) -> Self {
        Self { end, ..self.clone() }
    }

    /// Whether the run was asked to stop.
    pub(crate) fn is_asked(&self) -> bool {
        self.exit_code().is_some() || self.is_file_seen() || self.end.is_some_and(|end| end <= Instant::now())
    }

    /// Whether the stop file was seen.
    pub(crate) fn is_file_seen(&self) -> bool {
        self.file.as_ref().is_some_and(|seen| *seen.borrow())
    }

    /// Returns the exit code of the signal that came, the second if there were two.
    pub(crate) fn exit_code(&self) -> Option<u8> {
        self.again.borrow().or(*self.signals.borrow())
    }

    /// Waits until the run has to end whatever it waits for, and returns the reason: a second signal, or too long a time after
    /// the first. From then on the process has a short time to end by itself.
    pub(crate) async fn must_end(&self) -> String {
        self.has_last_words.store(true, Ordering::Relaxed);
        let too_long = async {
            come(&self.signals).await;
            tokio::time::sleep(MAX_TIME_TO_END).await;
        };
        tokio::select! {
            biased;
            () = come(&self.again) => "a second signal ended the run at once".to_owned(),
            () = too_long => format!("the run ended {} s after the signal, without the answers that it waited for", MAX_TIME_TO_END.as_secs()),
        }
    }

    /// Waits for a person or for the next run while nothing is in flight.
    pub(crate) async fn idle<T>(&self, wait: impl Future<Output = T>) -> T {
        self.is_idle.store(true, Ordering::Relaxed);
        let waited = wait.await;
        self.is_idle.store(false, Ordering::Relaxed);
        waited
    }

    /// Waits until the run is asked to stop.
    pub(crate) async fn asked(&self) {
        let by_file = async {
            let is_seen = match self.file.clone() {
                Some(mut file) => file.wait_for(|seen| *seen).await.is_ok(),
                None => false,
            };
            if !is_seen {
                std::future::pending::<()>().await;
            }
        };
        let by_end = async {
            match self.end {
                Some(end) => tokio::time::sleep_until(end).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = come(&self.signals) => {}
            () = by_file => {}
            () = by_end => {}
        }
    }

    /// Waits until the run was asked to stop so long ago.
    pub(crate) async fn asked_for(&self, time: Duration) {
        self.asked().await;
        tokio::time::sleep(time).await;
    }

    /// Runs some work until it is done or the run is asked to stop; the work may be dropped at any time. `nothing` names what was
    /// not done, such as `nothing was read`.
    ///
    /// Errors: the work's, or [`Stop::failure`].
    pub(crate) async fn or_fail<T, E: From<Failure>>(
        &self,
        nothing: &str,
        work: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        // Work that is done is not thrown away.
        tokio::select! {
            biased;
            done = work => done,
            () = self.asked() => Err(self.failure(nothing).into()),
        }
    }

    /// Returns the failure of a run that was asked to stop before it did anything. `nothing` names what was not done, such as
    /// `nothing was deleted`.
    pub(crate) fn failure(&self, nothing: &str) -> Failure {
        let (exit_code, why) = match self.exit_code() {
            Some(exit_code) => (exit_code, "interrupted"),
            None if self.is_file_seen() => (exit::LIMIT, "stopped by the stop file"),
            None => (exit::LIMIT, "stopped by the maximum duration"),
        };
        Failure { is_stop: true, ..Failure::cannot_run(format!("{why}; {nothing}")).exit_code(exit_code) }
    }
}

/// Waits until a signal has come.
async fn come(signal: &watch::Receiver<Option<u8>>) {
    if signal.clone().wait_for(Option::is_some).await.is_err() {
        // The listener lives as long as the runtime; without it no signal can come.
        std::future::pending::<()>().await;
    }
}

/// The signals of the process.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Option<Signal>,
}

impl Signals {
    /// Waits for the next signal, and returns its exit code.
    async fn next(&mut self) -> u8 {
        let hangup = async {
            match &mut self.hangup {
                Some(hangup) => hangup.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => exit::INTERRUPTED,
            _ = self.terminate.recv() => exit::TERMINATED,
            _ = hangup => exit::TERMINATED,
        }
    }
}

/// Whether the process was started so that SIGHUP does nothing, as `nohup` starts it. A system that does not tell counts as one
/// where it does something: it then ends a run, and nothing is lost.
fn ignores_hangup() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| is_hangup_ignored(&status))
}

/// Whether the status of a process (proc_pid_status(5)) has SIGHUP, the first signal, among those that it ignores.
fn is_hangup_ignored(status: &str) -> bool {
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// Returns the reason why a file of this kind, `stop` or `pause`, does so to a run: it exists, or its existence cannot be
/// determined.
pub(crate) fn find_file(kind: &str, path: &Path) -> Option<String> {
    match path.symlink_metadata() {
        Ok(_) => Some(format!("the {kind} file `{}` exists", path.display())),
        Err(cause) if matches!(cause.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => None,
        Err(cause) => Some(format!("cannot tell whether the {kind} file `{}` exists: {cause}", path.display())),
    }
}

/// Looks for the file until it is seen or all receivers are dropped. Needs a tokio runtime.
fn watch_file(path: PathBuf) -> watch::Receiver<bool> {
    let (sender, seen) = watch::channel(false);
    tokio::spawn(machine::here(async move {
        while !sender.is_closed() {
            if let Some(why) = find_file("stop", &path) {
                warn!("{why}: stopping after the batch in flight");
                sender.send_replace(true);
                // If the sender were dropped here, `wait_for` would fail for those who begin to wait later.
                sender.closed().await;
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }));
    seen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stop() -> (watch::Sender<Option<u8>>, Stop) {
        let (sender, signals) = watch::channel(None);
        (sender, Stop::by(signals))
    }

    /// Returns the failure of work that was stopped.
    fn stopped(message: &str, exit_code: u8) -> Failure {
        Failure { is_stop: true, ..Failure::cannot_run(message).exit_code(exit_code) }
    }

    #[tokio::test]
    async fn a_signal_ends_the_work_with_its_exit_code() {
        let (sender, stop) = stop();
        let done: Result<u8, Failure> = stop.or_fail("nothing was read", async { Ok(7) }).await;
        assert_eq!((done, stop.is_asked()), (Ok(7), false));
        sender.send_replace(Some(exit::TERMINATED));
        let dropped: Result<u8, Failure> = stop.or_fail("nothing was read", std::future::pending()).await;
        let failure = stopped("interrupted; nothing was read", exit::TERMINATED);
        assert_eq!((dropped, stop.is_asked(), stop.exit_code()), (Err(failure), true, Some(143)));
    }

    #[tokio::test]
    async fn a_stop_file_ends_the_run_that_it_belongs_to_also_after_it_was_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stop");
        let (_sender, signals) = stop();
        let stop = signals.with_file(Some(&path));
        assert!(!stop.is_asked());
        std::fs::write(&path, "").unwrap();
        stop.asked().await;
        std::fs::remove_file(&path).unwrap();
        stop.asked().await;
        assert!(stop.is_asked() && stop.exit_code().is_none() && !signals.is_asked());
        let failure = stopped("stopped by the stop file; nothing was deleted", exit::LIMIT);
        assert_eq!(stop.failure("nothing was deleted"), failure);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_the_maximum_duration_ends_the_run_that_it_belongs_to() {
        let (_sender, signals) = stop();
        let hour = Duration::from_secs(3600);
        let begun = Instant::now();
        let stop = signals.with_end(Some(begun + hour));
        assert!(!stop.is_asked());
        let dropped: Result<u8, Failure> = stop.or_fail("nothing was deleted", std::future::pending()).await;
        let failure = stopped("stopped by the maximum duration; nothing was deleted", exit::LIMIT);
        assert_eq!((dropped, begun.elapsed()), (Err(failure), hour));
        assert!(stop.is_asked() && !signals.is_asked() && !stop.with_end(None).is_asked());
    }

    #[tokio::test]
    async fn a_signal_that_can_no_longer_come_ends_nothing() {
        let (sender, stop) = stop();
        drop(sender);
        assert!(tokio::time::timeout(Duration::from_millis(20), stop.asked()).await.is_err());
        assert!(!stop.is_asked());
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_has_to_end_some_time_after_a_signal_and_not_after_other_requests() {
        let (sender, stop) = stop();
        let begun = Instant::now();
        let stop = stop.with_end(Some(begun));
        assert!(tokio::time::timeout(Duration::from_secs(60), stop.must_end()).await.is_err());
        sender.send_replace(Some(exit::TERMINATED));
        let begun = Instant::now();
        let why = stop.must_end().await;
        assert_eq!(
            (why.as_str(), begun.elapsed().as_secs()),
            ("the run ended 8 s after the signal, without the answers that it waited for", 8)
        );
    }

    #[test]
    fn only_the_mask_of_ignored_signals_says_that_hang_ups_are_ignored() {
        for (status, is_ignored) in [
            ("SigBlk:\t0000000000000001\nSigIgn:\t0000000000001001\n", true),
            ("SigBlk:\t0000000000000001\nSigIgn:\t0000000000001000\nSigCgt:\t0000000000000001\n", false),
            ("SigIgn:\t?\n", false),
            ("", false),
        ] {
            assert_eq!(is_hangup_ignored(status), is_ignored, "{status}");
        }
    }

    #[test]
    fn anything_by_that_name_is_there_and_what_cannot_be_told_is_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stop");
        assert_eq!(find_file("stop", &path), None);
        assert_eq!(find_file("stop", &path.join("below")), None);
        std::os::unix::fs::symlink("nowhere", &path).unwrap();
        assert!(find_file("stop", &path).unwrap().ends_with("stop` exists"));
        std::fs::write(dir.path().join("plain"), "").unwrap();
        assert_eq!(find_file("stop", &dir.path().join("plain/below")), None);
        assert!(find_file("stop", Path::new(&"x".repeat(5000))).unwrap().contains("cannot tell"));
    }
}
