//! Retries of commands that can be sent again.

use std::slice::Iter;
use std::time::Duration;

use tracing::warn;

use super::codes;
use super::error::ServerError;
use super::overload::Overload;
use crate::core::pace;
use crate::core::policy::namespace::Namespace;

/// Waits before the same command is sent again; there are as many further attempts as waits.
pub(crate) const RETRY_WAITS: [Duration; 3] = [Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(5)];

/// Maximum number of times in a row that a service may refuse a command for lack of room before the refusal is final.
pub(crate) const MAX_REFUSALS: u32 = 20;

/// Number of refusals in a row during which only the service's own wait counts. A service that is still out of room after those
/// has other clients as well, and asks for too little.
const TRUSTED_REFUSALS: u32 = 5;

/// The attempts that one command has left.
///
/// Overloads are waited out in any case: throttling as long as the service asks, later at least as long as the growing pauses of
/// [`pace::back_off`], and at most [`MAX_REFUSALS`] times.
pub(crate) struct Retries {
    persistence: Persistence,
    waits: Iter<'static, Duration>,
    refusals: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Persistence {
    Several,
    Patient,
}

impl Retries {
    /// Allows further attempts after [`RETRY_WAITS`], as long as a server can be selected.
    pub(crate) fn several() -> Self {
        Self::new(Persistence::Several)
    }

    /// Allows further attempts after [`RETRY_WAITS`], each of which may wait for a server.
    pub(crate) fn patient() -> Self {
        Self::new(Persistence::Patient)
    }

    fn new(persistence: Persistence) -> Self {
        Self { persistence, waits: RETRY_WAITS.iter(), refusals: 0 }
    }

    /// Returns the wait before the next attempt; `None` if no attempt is left.
    pub(crate) fn wait(&mut self, cause: &ServerError) -> Option<Duration> {
        match cause.overload() {
            Some(Overload::Throttled { retry_after }) if self.refusals < MAX_REFUSALS => {
                self.refusals += 1;
                let back_off = |refusals| pace::back_off(refusals, fastrand::f64());
                Some(match retry_after {
                    None => back_off(self.refusals),
                    Some(asked) if self.refusals <= TRUSTED_REFUSALS => asked,
                    Some(asked) => asked.max(back_off(self.refusals - TRUSTED_REFUSALS)),
                })
            }
            Some(Overload::Throttled { .. } | Overload::TooLarge) => None,
            _ if cause.is_unreachable() && self.persistence != Persistence::Patient => None,
            _ if cause.may_pass() => self.again(),
            _ => None,
        }
    }

    /// Returns the same as [`Self::wait`], but `None` after a reply that did not come in time: for commands at the end of a run,
    /// which has waited enough.
    pub(crate) fn wait_unless_silent(&mut self, cause: &ServerError) -> Option<Duration> {
        self.wait(cause).filter(|_| !cause.is_timeout())
    }

    /// Returns the wait before a read begins again from its first document. A cursor may have been lost with its router, or a
    /// load balancer may have sent the request to another one.
    pub(crate) fn wait_to_read(&mut self, cause: &ServerError) -> Option<Duration> {
        if cause.has_code(codes::CURSOR_NOT_FOUND) { self.again() } else { self.wait(cause) }
    }

    /// Returns the next of [`RETRY_WAITS`], regardless of the error.
    pub(crate) fn again(&mut self) -> Option<Duration> {
        self.waits.next().copied()
    }
}

/// Makes attempts until one succeeds, or `next_wait` returns no wait before another attempt.
pub(crate) async fn retry<T, F: Future<Output = Result<T, ServerError>>>(
    mut next_wait: impl FnMut(&ServerError) -> Option<Duration>,
    mut attempt: impl FnMut() -> F,
) -> Result<T, ServerError> {
    loop {
        let cause = match attempt().await {
            Ok(reply) => return Ok(reply),
            Err(cause) => cause,
        };
        let Some(wait) = next_wait(&cause) else { return Err(cause) };
        tokio::time::sleep(wait).await;
    }
}

/// Reads from the first document until an attempt succeeds, as [`Retries::patient`] says, and logs each retry under this name.
pub(crate) async fn restarting<T, F: Future<Output = Result<T, ServerError>>>(
    reported_as: &Namespace,
    attempt: impl FnMut() -> F,
) -> Result<T, ServerError> {
    let mut retries = Retries::patient();
    let next_wait = |cause: &ServerError| {
        let wait = retries.wait_to_read(cause)?;
        log_retry(reported_as, cause, wait);
        Some(wait)
    };
    retry(next_wait, attempt).await
}

/// Logs that a read is tried again after a wait.
pub(crate) fn log_retry(namespace: &Namespace, cause: &ServerError, wait: Duration) {
    warn!(%namespace, "{namespace}: reading: {cause}; trying again in {} ms", wait.as_millis());
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::shell::server::wire::codes;
    use crate::shell::server::wire::error::FailureStage;

    fn failure(code: i32, message: &str) -> ServerError {
        ServerError::reported(code, message, "")
    }

    /// Fails every attempt with the error; returns the number of attempts and the time they took.
    async fn attempts(mut retries: Retries, cause: ServerError) -> (u32, Duration) {
        let (mut made, begun) = (0, Instant::now());
        let failed = retry(
            |cause| retries.wait(cause),
            || {
                made += 1;
                let cause = cause.clone();
                async { Err::<(), _>(cause) }
            },
        );
        assert_eq!(failed.await, Err(cause.clone()));
        (made, begun.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn trouble_that_passes_is_retried_after_fixed_waits() {
        let stepped_down = || failure(codes::PRIMARY_STEPPED_DOWN, "stepped down");
        assert_eq!(attempts(Retries::several(), stepped_down()).await, (4, Duration::from_millis(6200)));
        // microsoft/FluidFramework `mongoError`: Azure Cosmos DB reports passing trouble as InternalError too.
        assert_eq!(attempts(Retries::several(), failure(codes::INTERNAL_ERROR, "InternalError")).await.0, 4);
        let not_resolved = ServerError::new(FailureStage::Dns, "DNS: no answer".into());
        assert_eq!(attempts(Retries::several(), not_resolved).await, (4, Duration::from_millis(6200)));
        assert_eq!(attempts(Retries::several(), failure(codes::UNAUTHORIZED, "no")).await.0, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_patient_wait_for_a_server_again() {
        let unreachable = || ServerError::new(FailureStage::Unreachable, String::new());
        assert_eq!(attempts(Retries::several(), unreachable()).await.0, 1);
        assert_eq!(attempts(Retries::patient(), unreachable()).await.0, 4);
    }

    #[tokio::test(start_paused = true)]
    async fn throttling_is_waited_out_as_long_as_the_service_asks() {
        let throttled = |millis: u64| failure(16_500, &format!("Error=16500, RetryAfterMs={millis}, Details="));
        assert_eq!(attempts(Retries::several(), throttled(7000)).await, (MAX_REFUSALS + 1, Duration::from_secs(140)));
        // The first waits are the service's own; then each is at least 0.7 times the growing pause.
        let mut retries = Retries::several();
        let mut waits = (0..=MAX_REFUSALS).map_while(|_| retries.wait(&throttled(8)));
        assert!(waits.by_ref().take(5).all(|wait| wait == Duration::from_millis(8)));
        let least = (1..).map(|refusals| pace::back_off(refusals, 0.0));
        assert_eq!(waits.zip(least).filter(|(wait, least)| wait >= least).count(), 15);
        let away = failure(1, "Error=1, Details='Response status code does not indicate success: ServiceUnavailable (503)");
        assert_eq!(attempts(Retries::several(), away).await.0, 4);
        let too_large = failure(16, "Error=16, Details='... RequestEntityTooLarge (413)");
        assert_eq!(attempts(Retries::patient(), too_large).await.0, 1);
    }

    /// A command that goes out by another way than the ways of [`Deployment`](crate::shell::server::Deployment) and
    /// [`Query`](crate::shell::server::wire::find::Query) is not retried.
    #[test]
    fn only_callers_that_decide_on_each_error_themselves_send_a_command_without_retries() {
        fn files(folder: &std::path::Path) -> Vec<std::path::PathBuf> {
            let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
            entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
        }
        let all: Vec<_> = files(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/shell/server"))
            .into_iter()
            .filter(|path| !path.ends_with("tests.rs"))
            .collect();
        let names = |word: &str| {
            let naming = all.iter().filter(|path| {
                let text = std::fs::read_to_string(path).unwrap();
                text.split("#[cfg(test)]\nmod tests {").next().unwrap().contains(word)
            });
            let mut names: Vec<String> = naming.map(|path| path.file_stem().unwrap().to_string_lossy().into_owned()).collect();
            names.sort();
            names
        };
        // `find` retries whole reads, `insert` what was not inserted; `delete` leaves them to the batch; `lag`, `load` and
        // `oplog` poll.
        assert_eq!(names(".send_once("), ["compact", "delete", "find", "insert", "lag", "load", "oplog"]);
        assert_eq!(names(".open_once("), ["find"]);
        assert_eq!(names("transport.run("), ["meter", "recognise"]);
    }

    #[test]
    fn the_end_of_a_run_does_not_wait_for_silence_again() {
        let silent = ServerError::timeout(Duration::from_secs(1));
        assert_eq!(Retries::several().wait_unless_silent(&silent), None);
        assert_eq!(Retries::several().wait_unless_silent(&failure(16_500, "RetryAfterMs=8")), Some(Duration::from_millis(8)));
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_attempt_that_succeeds_is_the_result() {
        let mut made = 0;
        let mut retries = Retries::several();
        let reply = retry(
            |cause| retries.wait(cause),
            || {
                made += 1;
                let reply = if made == 2 { Ok(5) } else { Err(failure(codes::HOST_UNREACHABLE, "")) };
                async { reply }
            },
        );
        assert_eq!(reply.await, Ok(5));
    }
}
