//! Waiting for locks that other runs hold, up to `--lock-wait`, and the lock on a file.

use std::path::Path;
use std::time::Duration;

use bson::DateTime;
use tracing::info;

use crate::base::failure::Failure;
use crate::base::instant::millis;
use crate::base::text::duration;
use crate::base::{exit, log};
use crate::commands::session::Session;
use crate::shell::lock::file::{self, FileLock};
use crate::shell::lock::{Attempt, Holder};

/// Interval between two attempts to take a lock that another run holds.
const TRY_EVERY: Duration = Duration::from_millis(500);

/// Limit on the time that a run waits for locks that other runs hold.
pub(crate) struct LockWait<'a> {
    pub session: &'a Session,
    /// Maximum time, counted from the start of the run; `None`: no wait.
    pub max: Option<Duration>,
}

impl LockWait<'_> {
    /// Waits until the next attempt is due. Returns false once the time is over. Logs the reason, unless `is_logged` says that
    /// this was done before.
    ///
    /// Errors: the run was asked to stop.
    pub(crate) async fn again(&self, is_logged: &mut bool, why: impl FnOnce() -> String) -> Result<bool, Failure> {
        let left = self.max.unwrap_or_default().saturating_sub(self.session.begun.elapsed());
        if left.is_zero() {
            return Ok(false);
        }
        if !*is_logged {
            let max = duration(millis(left));
            info!(target: log::PROGRESS, "waiting for at most {max}: {}", why());
            *is_logged = true;
        }
        tokio::select! {
            biased;
            () = self.session.stop.asked() => Err(self.interrupted()),
            () = tokio::time::sleep(TRY_EVERY.min(left)) => Ok(true),
        }
    }

    pub(crate) fn interrupted(&self) -> Failure {
        self.session.stop.failure("nothing was deleted")
    }
}

/// Takes the lock on a file.
///
/// Errors: another process holds it, or the file cannot serve as a lock.
pub(crate) async fn take_file(path: &Path, wait: &LockWait<'_>) -> Result<FileLock, Failure> {
    let shown = path.display();
    let mut is_logged = false;
    loop {
        let me = Holder::me(&wait.session.id, DateTime::now());
        let attempt = file::attempt(path, &me)
            .map_err(|cause| Failure::cannot_run(format!("taking the lock `{shown}`: {cause}; nothing was contacted")))?;
        let occupant = match attempt {
            Attempt::Taken(lock) => return Ok(lock),
            Attempt::Held(occupant) => occupant,
        };
        let why = || format!("the lock `{shown}` is held by {}", occupant.name());
        if !wait.again(&mut is_logged, why).await? {
            let failure = Failure::cannot_run(format!("{}; nothing was contacted", why()));
            return Err(failure.exit_code(exit::LOCKED).hint("`--lock-wait DUR` waits for it"));
        }
    }
}
