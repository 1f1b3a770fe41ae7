//! Commands that are not answered.

use std::io;
use std::time::Duration;

use mongodb::error::{Error, Result};

/// How long one command of a sweep may stay unanswered, where the connection string does not say: longer than any batch takes, and than a
/// majority that is only slow.
///
/// This is for a server that answers its heartbeat and nothing else. One that does not answer even that is given up by the driver, with all
/// its commands, after `heartbeatFrequencyMS` and `connectTimeoutMS`: 20 s by default.
pub const LONGEST_SILENCE: Duration = Duration::from_secs(600);

/// Awaits the reply to a command, but no longer than `limit`: then it counts as lost.
pub async fn within<T: Send + 'static>(limit: Duration, command: impl Future<Output = Result<T>> + Send + 'static) -> Result<T> {
    // Given up, but not dropped half-way: the driver's futures do not take that well (its README, "Cancellation safety").
    match tokio::time::timeout(limit, tokio::spawn(command)).await {
        Ok(ended) => ended.unwrap_or_else(|panic| Err(Error::custom(panic.to_string()))),
        Err(_) => {
            let why = format!("no answer within {} s", limit.as_secs_f64());
            Err(io::Error::new(io::ErrorKind::TimedOut, why).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::time::Instant;

    use super::*;
    use crate::server::error;

    #[tokio::test]
    async fn a_command_without_an_answer_is_a_lost_reply() {
        let begun = Instant::now();
        let silent = within::<()>(Duration::from_millis(1500), pending()).await.unwrap_err();
        assert!(begun.elapsed() >= Duration::from_millis(1500));
        assert!(error::is_reply_lost(&silent) && error::is_retryable(&silent));
        assert_eq!(error::explain(&silent), "network error: no answer within 1.5 s");
        assert_eq!(within(LONGEST_SILENCE, async { Ok(3) }).await.unwrap(), 3);
    }
}
