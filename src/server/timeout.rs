//! A time limit for commands.

use std::time::Duration;

use super::error::ServerError;
use crate::machine;

/// The time limit of one command of a sweep unless the connection string sets one: longer than any batch takes, and longer than a
/// majority that is merely slow.
///
/// The limit is for a server that answers its heartbeat and nothing else. A server that does not even answer its heartbeat is
/// given up by the driver, with all its commands, after `heartbeatFrequencyMS` and `connectTimeoutMS`: 20 s by default.
pub(crate) const MAX_COMMAND_TIME: Duration = Duration::from_secs(600);

/// Awaits a command for at most `limit`; after that its reply counts as lost. `None` for no limit.
pub(crate) async fn with_timeout<T: Send + 'static>(
    limit: Option<Duration>,
    command: impl Future<Output = Result<T, ServerError>> + Send + 'static,
) -> Result<T, ServerError> {
    let Some(limit) = limit else { return command.await };
    // An abandoned command continues in a task of its own, because the driver's futures should not be dropped half-way (its
    // README, "Cancellation safety").
    match tokio::time::timeout(limit, tokio::spawn(machine::here(command))).await {
        Ok(ended) => ended.unwrap_or_else(|panic| Err(ServerError::other(panic.to_string()))),
        Err(_) => Err(ServerError::timeout(limit)),
    }
}

/// Awaits a future, however long it takes, and calls `remind` with the time waited after each `interval`.
pub(crate) async fn with_reminders<T>(interval: Duration, waited_for: impl Future<Output = T>, remind: impl Fn(Duration)) -> T {
    let begun = tokio::time::Instant::now();
    tokio::pin!(waited_for);
    loop {
        match tokio::time::timeout(interval, &mut waited_for).await {
            Ok(ended) => return ended,
            Err(_) => remind(begun.elapsed()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::future::pending;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_command_without_an_answer_is_a_lost_reply() {
        let begun = tokio::time::Instant::now();
        let silent = with_timeout::<()>(Some(Duration::from_millis(1500)), pending()).await.unwrap_err();
        assert_eq!(begun.elapsed(), Duration::from_millis(1500));
        assert!(silent.is_timeout() && silent.is_reply_lost() && silent.is_retryable());
        assert_eq!(silent.to_string(), "network error: no answer within 1.5 s");
        assert_eq!(with_timeout(Some(MAX_COMMAND_TIME), async { Ok(3) }).await, Ok(3));
        assert_eq!(with_timeout(None, async { Ok(3) }).await, Ok(3));
    }

    #[tokio::test(start_paused = true)]
    async fn an_abandoned_command_still_comes_to_its_end() {
        let ended = Arc::new(AtomicBool::new(false));
        let mark = ended.clone();
        let command = async move {
            tokio::time::sleep(Duration::from_secs(2)).await;
            mark.store(true, Ordering::SeqCst);
            Ok(())
        };
        with_timeout(Some(Duration::from_secs(1)), command).await.unwrap_err();
        assert!(!ended.load(Ordering::SeqCst));
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(ended.load(Ordering::SeqCst));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_answer_is_waited_for_with_a_reminder_at_each_interval() {
        let reminders = RefCell::new(Vec::new());
        let slow = async {
            tokio::time::sleep(Duration::from_millis(2500)).await;
            7
        };
        assert_eq!(with_reminders(Duration::from_secs(1), slow, |waited| reminders.borrow_mut().push(waited)).await, 7);
        assert_eq!(reminders.into_inner(), [Duration::from_secs(1), Duration::from_secs(2)]);
    }
}
