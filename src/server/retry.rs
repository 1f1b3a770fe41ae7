//! Retries of commands that can be sent again.

use std::slice::Iter;
use std::time::Duration;

use super::error::ServerError;
use super::overload::Overload;
use crate::pace;

/// Waits before the same command is sent again; there are as many further attempts as waits.
pub(crate) const RETRY_WAITS: [Duration; 3] = [Duration::from_millis(200), Duration::from_secs(1), Duration::from_secs(5)];

/// Maximum number of times in a row that a service may refuse a command for lack of room before the refusal is final.
pub(crate) const MAX_REFUSALS: u32 = 20;

/// The attempts that one command has left.
///
/// Overloads are waited out in any case: throttling as long as the service asks, at most [`MAX_REFUSALS`] times.
pub(crate) struct Retries {
    persistence: Persistence,
    waits: Iter<'static, Duration>,
    refusals: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Persistence {
    None,
    Once,
    Several,
    Patient,
}

impl Retries {
    /// Allows one further attempt at once, as drivers retry reads.
    pub(crate) fn once() -> Self {
        Self::new(Persistence::Once)
    }

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

    /// Returns the wait before the next attempt; `None` if there is none.
    pub(crate) fn wait(&mut self, cause: &ServerError) -> Option<Duration> {
        match cause.overload() {
            Some(Overload::Throttled { retry_after }) if self.refusals < MAX_REFUSALS => {
                self.refusals += 1;
                Some(retry_after.unwrap_or_else(|| pace::back_off(self.refusals, fastrand::f64())))
            }
            Some(Overload::Throttled { .. } | Overload::TooLarge) => None,
            Some(Overload::TimedOut | Overload::Unavailable) => self.again(),
            None if !cause.is_retryable() => None,
            None if cause.is_unreachable() && self.persistence != Persistence::Patient => None,
            None => match self.persistence {
                Persistence::None => None,
                Persistence::Once => {
                    self.persistence = Persistence::None;
                    Some(Duration::ZERO)
                }
                Persistence::Several | Persistence::Patient => self.again(),
            },
        }
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

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::server::codes;
    use crate::server::error::FailureStage;

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
        assert_eq!(attempts(Retries::once(), stepped_down()).await, (2, Duration::ZERO));
        assert_eq!(attempts(Retries::several(), stepped_down()).await, (4, Duration::from_millis(6200)));
        assert_eq!(attempts(Retries::several(), failure(codes::UNAUTHORIZED, "no")).await.0, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn only_the_patient_wait_for_a_server_again() {
        let unreachable = || ServerError::new(FailureStage::Unreachable, String::new());
        assert_eq!(attempts(Retries::once(), unreachable()).await.0, 1);
        assert_eq!(attempts(Retries::several(), unreachable()).await.0, 1);
        assert_eq!(attempts(Retries::patient(), unreachable()).await.0, 4);
    }

    #[tokio::test(start_paused = true)]
    async fn throttling_is_waited_out_as_long_as_the_service_asks() {
        let throttled = failure(16_500, "Error=16500, RetryAfterMs=40, Details=");
        assert_eq!(attempts(Retries::once(), throttled).await, (MAX_REFUSALS + 1, Duration::from_millis(800)));
        let away = failure(1, "Error=1, Details='Response status code does not indicate success: ServiceUnavailable (503)");
        assert_eq!(attempts(Retries::once(), away).await.0, 4);
        let too_large = failure(16, "Error=16, Details='... RequestEntityTooLarge (413)");
        assert_eq!(attempts(Retries::patient(), too_large).await.0, 1);
    }

    #[tokio::test]
    async fn a_later_attempt_that_succeeds_is_the_result() {
        let mut made = 0;
        let mut retries = Retries::once();
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
