//! The end of every wait for a reply.

use std::time::Duration;

use tokio::time::{Instant, timeout};

use super::error::ServerError;
use super::transport::Patience;
use crate::base::machine;

/// The time that a command is waited for unless the connection string says otherwise (`socketTimeoutMS`): longer than any batch
/// takes, and longer than a majority that is merely slow.
///
/// It is for a server that answers its heartbeat and nothing else. A server that does not even answer its heartbeat is given up
/// by the driver, with all its commands, after `heartbeatFrequencyMS` and `connectTimeoutMS`: 20 s by default.
pub(crate) const MAX_COMMAND_TIME: Duration = Duration::from_secs(600);

/// Interval at which a server is asked whether it is still at work on a command.
const ASK_EVERY: Duration = Duration::from_secs(30);

/// Time without work on a command after which its reply is lost and not merely on its way: a batch of 16 MB may come over a slow
/// line.
const LAST_REPLY: Duration = Duration::from_secs(60);

/// Maximum time to wait for a command that a server claims to be at work on.
const MAX_RUNNING_TIME: Duration = Duration::from_secs(24 * 3600);

/// Awaits the reply to a command as long as the patience lasts; after that it counts as lost. `is_running` asks the server
/// whether it is still at work on the command, and returns `None` if the server does not tell. `remind` is called after each
/// further [`MAX_COMMAND_TIME`] or shorter limit.
///
/// The command runs in a task of its own, because the driver's futures should not be dropped half-way (its README,
/// "Cancellation safety"). A command whose reply is lost is dropped all the same, and so is one that ends when it is no longer
/// awaited. The driver then closes the connection of the command, on which nothing can be sent any more (mongo-rust-driver 3.8
/// `cmap/worker.rs`, `check_in`).
pub(crate) async fn reply_in_time<T, F>(
    (patience, ends_unawaited): (Patience, bool),
    command: impl Future<Output = Result<T, ServerError>> + Send + 'static,
    is_running: impl Fn() -> F + Send + 'static,
    remind: impl Fn(Duration) + Send + 'static,
) -> Result<T, ServerError>
where
    T: Send + 'static,
    F: Future<Output = Option<bool>> + Send,
{
    let waiting = async move {
        tokio::pin!(command);
        let limit = match patience {
            Patience::Limit(limit) => return timeout(limit, command).await.unwrap_or_else(|_| Err(ServerError::timeout(limit))),
            Patience::WhileRunning(limit) => limit,
        };
        let begun = Instant::now();
        let mut wait = ReplyWait { limit, idle_since: None, reminders: 0 };
        loop {
            if let Ok(reply) = timeout(limit.min(ASK_EVERY), &mut command).await {
                return reply;
            }
            let is_running = is_running().await;
            match wait.judge(begun.elapsed(), is_running) {
                ReplyVerdict::Lost => return Err(ServerError::timeout(tenths(begun.elapsed()))),
                ReplyVerdict::Wait => {}
                ReplyVerdict::WaitAndRemind => remind(begun.elapsed()),
            }
        }
    };
    in_task_unless(ends_unawaited, waiting).await
}

/// Awaits the reply to a command for at most `limit`; after that it counts as lost.
pub(crate) async fn reply_within<T: Send + 'static>(
    limit: Duration,
    command: impl Future<Output = Result<T, ServerError>> + Send + 'static,
) -> Result<T, ServerError> {
    reply_in_time((Patience::Limit(limit), false), command, || std::future::ready(None), |_| {}).await
}

/// Awaits some work that goes on to its end even if it is no longer waited for.
pub(crate) async fn in_task<T: Send + 'static>(
    work: impl Future<Output = Result<T, ServerError>> + Send + 'static,
) -> Result<T, ServerError> {
    tokio::spawn(machine::here(work)).await.unwrap_or_else(|panic| Err(ServerError::other(panic.to_string())))
}

/// Awaits some work that ends when it is no longer awaited, or otherwise goes on to its end.
pub(crate) async fn in_task_unless<T: Send + 'static>(
    ends_unawaited: bool,
    work: impl Future<Output = Result<T, ServerError>> + Send + 'static,
) -> Result<T, ServerError> {
    match ends_unawaited {
        true => work.await,
        false => in_task(work).await,
    }
}

/// A wait for a command that may take long.
struct ReplyWait {
    limit: Duration,
    /// Time at which the server was first found not to be at work on the command.
    idle_since: Option<Duration>,
    reminders: u32,
}

#[derive(Debug, PartialEq)]
enum ReplyVerdict {
    Wait,
    WaitAndRemind,
    Lost,
}

impl ReplyWait {
    /// Judges by the server's answer. Times count from the beginning of the wait.
    fn judge(&mut self, waited: Duration, is_running: Option<bool>) -> ReplyVerdict {
        if is_running != Some(false) {
            self.idle_since = None;
        }
        let lost = match is_running {
            Some(true) => waited >= MAX_RUNNING_TIME,
            Some(false) => waited - *self.idle_since.get_or_insert(waited) >= self.limit.min(LAST_REPLY),
            None => waited >= self.limit,
        };
        if lost {
            ReplyVerdict::Lost
        } else if waited >= self.limit * (self.reminders + 1) {
            self.reminders += 1;
            ReplyVerdict::WaitAndRemind
        } else {
            ReplyVerdict::Wait
        }
    }
}

/// Returns a time as it is worth showing.
fn tenths(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX) / 100 * 100)
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Arc;

    use parking_lot::Mutex;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn a_command_without_an_answer_is_a_lost_reply() {
        let begun = Instant::now();
        let silent = reply_within::<()>(Duration::from_millis(1500), pending()).await.unwrap_err();
        assert_eq!(begun.elapsed(), Duration::from_millis(1500));
        assert!(silent.is_timeout() && silent.is_reply_lost() && silent.is_retryable());
        assert_eq!(silent.to_string(), "network error: no answer within 1.5 s");
        assert_eq!(reply_within(MAX_COMMAND_TIME, async { Ok(3) }).await, Ok(3));
    }

    /// Waits for a reply that comes after `time`, if ever. `answers` are the server's; the last one is repeated. Returns the time
    /// waited, and the times of the reminders.
    async fn waited(
        limit: Duration,
        time: Option<Duration>,
        answers: &[Option<bool>],
    ) -> (Result<(), ServerError>, Duration, Vec<u64>) {
        let (begun, reminded) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
        let command = async move {
            match time {
                Some(time) => tokio::time::sleep(time).await,
                None => pending().await,
            }
            Ok(())
        };
        let left = Mutex::new(answers.to_vec());
        let is_running = move || {
            let mut left = left.lock();
            let answer = if left.len() > 1 { left.remove(0) } else { left[0] };
            std::future::ready(answer)
        };
        let note = reminded.clone();
        let remind = move |waited: Duration| note.lock().push(waited.as_secs());
        let reply = reply_in_time((Patience::WhileRunning(limit), false), command, is_running, remind).await;
        let reminded = reminded.lock().clone();
        (reply, begun.elapsed(), reminded)
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_is_waited_for_while_the_server_is_at_work_on_it() {
        let hour = 60 * MINUTE;
        let (reply, took, reminded) = waited(MAX_COMMAND_TIME, Some(hour + MINUTE), &[Some(true)]).await;
        assert_eq!((reply, took, reminded), (Ok(()), hour + MINUTE, vec![600, 1200, 1800, 2400, 3000, 3600]));
        let (reply, took, _) = waited(MAX_COMMAND_TIME, None, &[Some(true)]).await;
        assert!(reply.unwrap_err().is_reply_lost());
        assert_eq!(took, MAX_RUNNING_TIME);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reply_is_lost_once_the_server_is_idle_for_a_while() {
        let answers = [Some(true), Some(true), Some(false)];
        let (reply, took, _) = waited(MAX_COMMAND_TIME, None, &answers).await;
        assert!(reply.unwrap_err().is_timeout());
        assert_eq!(took, 3 * ASK_EVERY + LAST_REPLY);
        // It was only on its way.
        let (reply, took, _) = waited(MAX_COMMAND_TIME, Some(2 * MINUTE), &answers).await;
        assert_eq!((reply, took), (Ok(()), 2 * MINUTE));
        // The server is asked more often if the limit is short.
        let second = Duration::from_secs(1);
        assert_eq!(waited(second, None, &[Some(false)]).await.1, 2 * second);
        // One answer in between begins the wait again.
        let (_, took, _) = waited(second, None, &[Some(false), Some(true), Some(false)]).await;
        assert_eq!(took, 4 * second);
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_goes_on_unawaited_unless_it_ends_then() {
        for ends_unawaited in [false, true] {
            let ended = Arc::new(Mutex::new(false));
            let mark = ended.clone();
            let command = async move {
                tokio::time::sleep(Duration::from_secs(2)).await;
                *mark.lock() = true;
                Ok(())
            };
            let patience = (Patience::Limit(MINUTE), ends_unawaited);
            let reply = reply_in_time(patience, command, || std::future::ready(None), |_| {});
            assert!(timeout(Duration::from_secs(1), reply).await.is_err());
            tokio::time::sleep(Duration::from_secs(5)).await;
            assert_eq!(*ended.lock(), !ends_unawaited);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_tell_is_given_the_limit() {
        for limit in [MAX_COMMAND_TIME, Duration::from_secs(2)] {
            let (reply, took, _) = waited(limit, None, &[None]).await;
            assert_eq!((reply.unwrap_err().is_timeout(), took), (true, limit));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_command_that_is_no_longer_waited_for_still_ends_in_time() {
        struct Ended(Arc<Mutex<bool>>);
        impl Drop for Ended {
            fn drop(&mut self) {
                *self.0.lock() = true;
            }
        }
        let ended = Arc::new(Mutex::new(false));
        let mark = Ended(ended.clone());
        let command = async move {
            let _mark = mark;
            pending::<Result<(), ServerError>>().await
        };
        let waiting = reply_within(MINUTE, command);
        timeout(Duration::from_secs(1), waiting).await.unwrap_err();
        assert!(!*ended.lock());
        tokio::time::sleep(MINUTE).await;
        assert!(*ended.lock());
    }
}
