//! What to do after each reply to a batch: go on, ask again, send it in parts, give it up. Decisions only: replies and chance come in as
//! values, waits go out as values.

#[cfg(test)]
mod schedules;

use std::time::Duration;

use crate::pace;
use crate::server::delete::{Reply, Restriction, Trouble};
use crate::server::overload::Overload;
use crate::server::retry::{MAX_REFUSALS, RETRY_WAITS};

/// Wait before a majority is asked again; the server itself has waited for it before.
const CONFIRM_AGAIN: Duration = Duration::from_millis(200);

/// The commands that one batch takes.
#[derive(Debug)]
pub struct Attempts {
    aim: Box<Restriction>,
    /// Parts of a batch that was too large as a whole, not yet sent.
    parts: Vec<Restriction>,
    /// Whether members that do not confirm in time are asked again for as long as the sweep goes on.
    awaits_members: bool,
    retries: usize,
    refusals: u32,
    /// Why the last command did not do all it was asked.
    trouble: Option<Trouble>,
    /// Deleted for good, before anything was deleted that was not.
    firm: u64,
    /// Deleted on a primary alone: after a fail-over the same documents may be deleted, and counted, once more.
    weak: u64,
    /// Deleted for good since then.
    later: u64,
    uncertain: bool,
    retried: bool,
    overloaded: Option<u64>,
    throttled: Duration,
}

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Send what is left, or a smaller part, at once.
    Next,
    /// Ask again whether the members know by now: the documents are gone already.
    Confirm(Duration),
    /// Leave a service alone that has no room.
    Yield(Duration),
    /// Try again after trouble that may pass.
    Retry(Duration),
    /// The batch is done, or given up.
    End,
}

/// What a batch came to.
#[derive(Debug, PartialEq, Default)]
pub struct Tally {
    pub deleted: u64,
    /// Of `deleted`, what the members were not known to have at the end.
    pub unconfirmed: u64,
    /// Whether `deleted` is a lower bound: a reply was lost, or a fail-over may have brought back what was then deleted again.
    pub uncertain: bool,
    /// Why the batch is not done; `None` where it is.
    pub trouble: Option<Trouble>,
    /// Whether it was tried again after trouble: how long it took says nothing of how fast the server is.
    pub retried: bool,
    /// Documents that were done before the service first said that it was too much.
    pub overloaded: Option<u64>,
    /// How long the service was left alone for that.
    pub throttled: Duration,
}

impl Tally {
    /// Takes in what came after.
    pub fn add(&mut self, next: Self) {
        if let Some(before) = next.overloaded {
            self.overloaded.get_or_insert(self.deleted + before);
        }
        self.deleted += next.deleted;
        // A later command that is done by the members has told them of all that went before.
        self.unconfirmed = if next.trouble.is_some() { self.unconfirmed + next.unconfirmed } else { 0 };
        self.uncertain |= next.uncertain;
        self.trouble = next.trouble;
        self.retried |= next.retried;
        self.throttled += next.throttled;
    }
}

impl Attempts {
    pub fn new(aim: Box<Restriction>, awaits_members: bool) -> Self {
        Self {
            aim,
            parts: Vec::new(),
            awaits_members,
            retries: 0,
            refusals: 0,
            trouble: None,
            firm: 0,
            weak: 0,
            later: 0,
            uncertain: false,
            retried: false,
            overloaded: None,
            throttled: Duration::ZERO,
        }
    }

    /// What the next command is aimed at.
    pub fn aim(&self) -> &Restriction {
        &self.aim
    }

    /// Why the last command did not do all it was asked.
    pub fn why(&self) -> &str {
        self.trouble.as_ref().map_or("", |trouble| &trouble.why)
    }

    /// Learns from the reply to the command that [`Self::aim`] was for. `jitter` is from 0 to 1.
    pub fn take(&mut self, reply: Reply, jitter: f64) -> Step {
        self.count(&reply);
        if reply.deleted > 0 || reply.trouble.is_none() {
            (self.retries, self.refusals) = (0, 0);
        }
        self.trouble = reply.trouble;
        let Some(Trouble { retryable, unconfirmed, overload, .. }) = self.trouble else {
            return match self.parts.pop() {
                Some(part) => {
                    *self.aim = part;
                    Step::Next
                }
                None => Step::End,
            };
        };
        if let Some(overload) = overload {
            self.overloaded.get_or_insert(self.deleted());
            // What was too much at once may pass in parts; where a service does all or nothing, nothing else would.
            if matches!(overload, Overload::TooLarge | Overload::TimedOut)
                && let Some((first, second)) = self.aim.halves()
            {
                *self.aim = first;
                self.parts.push(second);
                if overload == Overload::TooLarge {
                    return Step::Next;
                }
            }
        }
        if unconfirmed && self.awaits_members {
            return Step::Confirm(CONFIRM_AGAIN);
        }
        match overload {
            Some(Overload::Throttled { retry_after }) => {
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

    fn count(&mut self, reply: &Reply) {
        self.uncertain |= reply.trouble.as_ref().is_some_and(|trouble| trouble.reply_lost);
        if reply.deleted == 0 {
            return;
        }
        // Nobody can tell whether these are other documents, or the same ones that a fail-over has brought back.
        self.uncertain |= self.weak > 0;
        if reply.weak {
            self.weak = self.weak.max(reply.deleted);
        } else if self.weak > 0 {
            self.later += reply.deleted;
        } else {
            self.firm += reply.deleted;
        }
    }

    /// As many as are gone for sure, if no fail-over comes now.
    fn deleted(&self) -> u64 {
        self.firm + self.weak.max(self.later)
    }

    pub fn end(self) -> Tally {
        Tally {
            deleted: self.deleted(),
            // A later command that is done by the members has told them of all that went before.
            unconfirmed: if self.trouble.is_some() { self.weak } else { 0 },
            uncertain: self.uncertain,
            trouble: self.trouble,
            retried: self.retried,
            overloaded: self.overloaded,
            throttled: self.throttled,
        }
    }
}
