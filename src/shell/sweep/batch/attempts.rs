//! Decides what follows each reply to a batch: go on, ask again, send it in parts, or give it up. Decisions only: replies and
//! chance come in as values, waits go out as values.

use std::time::Duration;

use bson::oid::ObjectId;

use crate::core::pace;
use crate::shell::server::delete::restriction::Restriction;
use crate::shell::server::delete::{DeleteError, Reply};
use crate::shell::server::wire::overload::Overload;
use crate::shell::server::wire::retry::{MAX_REFUSALS, RETRY_WAITS};
use crate::shell::server::wire::transport::Extent;

/// Wait before a majority is asked again; the server itself has already waited for it.
const CONFIRM_AGAIN: Duration = Duration::from_millis(200);

/// The commands of one batch, one after another.
#[derive(Debug)]
pub(crate) struct Attempts {
    target: Box<Restriction>,
    /// Parts of a batch that was too large as a whole, not yet sent.
    parts: Vec<Restriction>,
    /// Whether a command that the members do not confirm in time is sent again until they do, or the sweep ends.
    awaits_members: bool,
    retries: usize,
    refusals: u32,
    /// The error of the last command.
    error: Option<DeleteError>,
    /// Confirmed deletes before the first unconfirmed one.
    confirmed_before: u64,
    /// Deletes confirmed by the primary only: after a fail-over the same documents may be deleted, and counted, once more.
    unconfirmed: u64,
    /// The election of the primary of the first unconfirmed delete, if it told it.
    election: Option<ObjectId>,
    /// Whether another primary may have been elected since the first unconfirmed delete.
    failed_over: bool,
    /// Confirmed deletes after the first unconfirmed one.
    confirmed_after: u64,
    uncertain: bool,
    /// Documents of the target that were deleted.
    of_target: u64,
    /// Whether a command for the target failed without a count.
    uncounted: bool,
    retried: bool,
    overloaded_after: Option<u64>,
    throttled: Duration,
}

/// The next step of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Send what is left, or a smaller part, at once.
    Next,
    /// Ask again whether the members have confirmed the delete; the documents are gone already.
    Confirm(Duration),
    /// Leave an overloaded service in peace for this time.
    Yield(Duration),
    /// Try again after an error that may pass.
    Retry(Duration),
    /// The batch is done, or given up.
    End,
}

/// The result of a batch.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct BatchResult {
    pub deleted: u64,
    /// The part of `deleted` that the members had not confirmed at the end, or that a fail-over may have brought back before
    /// that.
    pub unconfirmed: u64,
    /// Whether `deleted` is a lower bound: a reply was lost, or a fail-over may have restored documents that were then deleted
    /// again.
    pub uncertain: bool,
    /// The reason why the batch is not done; `None` if it is.
    pub error: Option<DeleteError>,
    /// Whether the batch was tried again after an error, so that its duration says nothing about the speed of the server.
    pub retried: bool,
    /// Documents that were deleted before the service first reported that it was overloaded.
    pub overloaded_after: Option<u64>,
    /// Time for which an overloaded service was left in peace.
    pub throttled: Duration,
    /// Time for which the pause file held its commands back.
    pub paused: Duration,
}

impl BatchResult {
    /// Adds the result of a later part of the same batch.
    pub(crate) fn add(&mut self, next: Self) {
        if let Some(before) = next.overloaded_after {
            self.overloaded_after.get_or_insert(self.deleted + before);
        }
        self.deleted += next.deleted;
        self.unconfirmed += next.unconfirmed;
        self.uncertain |= next.uncertain;
        self.error = next.error;
        self.retried |= next.retried;
        self.throttled += next.throttled;
        self.paused += next.paused;
    }
}

impl Attempts {
    pub(crate) fn new(target: Box<Restriction>, awaits_members: bool) -> Self {
        Self {
            target,
            parts: Vec::new(),
            awaits_members,
            retries: 0,
            refusals: 0,
            error: None,
            confirmed_before: 0,
            unconfirmed: 0,
            election: None,
            failed_over: false,
            confirmed_after: 0,
            uncertain: false,
            of_target: 0,
            uncounted: false,
            retried: false,
            overloaded_after: None,
            throttled: Duration::ZERO,
        }
    }

    /// Returns the restriction of the next command.
    pub(crate) fn target(&self) -> &Restriction {
        &self.target
    }

    /// Returns the message of the last command's error, which is empty if there was none.
    pub(crate) fn message(&self) -> &str {
        self.error.as_ref().map_or("", |error| &error.message)
    }

    /// Whether the reply to the last command is no longer waited for.
    pub(crate) fn gave_up(&self) -> bool {
        self.error.as_ref().is_some_and(|error| error.given_up)
    }

    /// Takes in the reply to the command for [`Self::target`], and returns the next step. `jitter` is from 0 to 1.
    pub(crate) fn next_step(&mut self, reply: Reply, jitter: f64) -> Step {
        self.count(&reply);
        if reply.deleted > 0 || reply.error.is_none() {
            (self.retries, self.refusals) = (0, 0);
        }
        self.error = reply.error;
        let Some(DeleteError { retryable, confirmation_timed_out, confirmation_cut, overload, .. }) = self.error else {
            return match self.parts.pop() {
                Some(part) => {
                    self.aim_at(part);
                    Step::Next
                }
                None => Step::End,
            };
        };
        if let Some(overload) = overload {
            self.overloaded_after.get_or_insert(self.deleted());
            // A batch that was too large at once may succeed in parts. With a service that does all or nothing there is no other
            // way.
            if matches!(overload, Overload::TooLarge | Overload::TimedOut | Overload::CacheFull)
                && let Some((first, second)) = self.target.halves()
            {
                self.aim_at(first);
                self.parts.push(second);
                if overload == Overload::TooLarge {
                    return Step::Next;
                }
            }
        }
        if confirmation_cut || confirmation_timed_out && self.awaits_members {
            return Step::Confirm(CONFIRM_AGAIN);
        }
        let lacks_room = match overload {
            Some(Overload::Throttled { retry_after }) => Some(retry_after),
            Some(Overload::CacheFull) => Some(None),
            _ => None,
        };
        match lacks_room {
            Some(retry_after) => {
                self.refusals += u32::from(reply.deleted == 0);
                if self.refusals > MAX_REFUSALS {
                    return Step::End;
                }
                let wait = retry_after.unwrap_or_else(|| pace::back_off(self.refusals, jitter));
                self.throttled += wait;
                Step::Yield(wait)
            }
            _ if retryable => match RETRY_WAITS.get(self.retries) {
                Some(wait) => {
                    self.retries += 1;
                    self.retried = true;
                    Step::Retry(*wait)
                }
                None => Step::End,
            },
            _ => Step::End,
        }
    }

    fn aim_at(&mut self, target: Restriction) {
        *self.target = target;
        (self.of_target, self.uncounted) = (0, false);
    }

    fn count(&mut self, reply: &Reply) {
        self.uncertain |= reply.error.as_ref().is_some_and(|error| error.reply_lost);
        self.of_target += reply.deleted;
        match (&reply.error, self.target.extent()) {
            (Some(error), _) => self.uncounted |= error.uncounted,
            // A part of the target was gone: deleted by the command without a count, or by others.
            (None, Extent::Documents(asked)) if self.uncounted && self.of_target < asked => self.uncertain = true,
            (None, _) => {}
        }
        self.note_election(reply);
        if reply.deleted == 0 {
            return;
        }
        // These may be other documents, or the same ones, restored by a fail-over.
        self.uncertain |= self.unconfirmed > 0;
        if reply.unconfirmed {
            self.unconfirmed = self.unconfirmed.max(reply.deleted);
        } else if self.unconfirmed > 0 {
            self.confirmed_after += reply.deleted;
        } else {
            self.confirmed_before += reply.deleted;
        }
    }

    /// Notes whether a reply comes from another primary than the primary of the first unconfirmed delete.
    fn note_election(&mut self, reply: &Reply) {
        if self.unconfirmed == 0 {
            if !reply.unconfirmed || reply.deleted == 0 {
                return;
            }
            self.election = reply.election;
        }
        self.failed_over |= match self.election {
            Some(first) => reply.election.is_some_and(|election| election != first),
            // A server that does not tell: each error that may be the error of a fail-over counts as one.
            None => {
                reply.error.as_ref().is_some_and(|error| error.retryable && error.overload.is_none() && !error.confirmation_cut)
            }
        };
    }

    /// Returns the part of the deletes that the members have not confirmed.
    fn unconfirmed(&self) -> u64 {
        match (&self.error, self.failed_over) {
            (Some(_), _) => self.unconfirmed,
            // A command that the members confirm confirms all earlier ones of the same primary too.
            (None, false) => 0,
            // Of the deletes that the fail-over took back, only those that were done again are known: others may have changed or
            // deleted the rest of the restored documents in between.
            (None, true) => self.unconfirmed.saturating_sub(self.confirmed_after),
        }
    }

    /// Returns the number of documents that are gone, provided that no fail-over follows.
    fn deleted(&self) -> u64 {
        self.confirmed_before + self.unconfirmed.max(self.confirmed_after)
    }

    /// Ends the batch.
    pub(crate) fn end(self) -> BatchResult {
        BatchResult {
            deleted: self.deleted(),
            unconfirmed: self.unconfirmed(),
            uncertain: self.uncertain,
            error: self.error,
            retried: self.retried,
            overloaded_after: self.overloaded_after,
            throttled: self.throttled,
            paused: Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    pub(super) mod schedules;
    mod tries;
    pub(super) mod uncounted;
}
