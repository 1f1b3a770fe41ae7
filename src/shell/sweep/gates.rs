//! The gates in front of each batch of a rule: one function asks all of them, and gives the room for the next batch or one reason
//! to wait.

pub(super) mod head;
pub(super) mod lag;
pub(super) mod oplog;
pub(super) mod pressure;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use super::budget::set_rate;
use super::{RuleSweep, RunContext};
use crate::core::pace::head::Took;
use crate::core::pace::pressure::{Pressure, UNWATCHED};
use crate::core::pace::rate::RateLimit;
use crate::core::pace::{ENOUGH, ENOUGH_WITH_HOLDS};
use crate::core::plan::waits::Wait;
use crate::core::policy::limits::Limits;
use crate::shell::server::wire::meter::Account;
use head::HeadGate;
use oplog::OplogGate;
use pressure::PressureGate;

/// Time between two looks at the lag of the members, at the oplog, and for the pause file.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// The gates of one rule, and what they know of its batches.
pub(super) struct Gates<'a> {
    sweep: Arc<RuleSweep>,
    run: RunContext<'a>,
    /// The limits of the rule that hold now.
    limits: Limits,
    /// The earliest start of the next batch, for the latency of the one before.
    pub(super) rests_until: Instant,
    /// `None` if no rule of the run has had a `minOplogWindow`, or the deployment has no oplog.
    pub(super) oplog: Option<OplogGate>,
    /// `None` if the rule has no `maxHeadMs`, or no index serves it.
    head: Option<HeadGate>,
    /// `None` if the load of the server is not watched.
    pub(super) pressure: Option<PressureGate>,
    /// `None` if the rule has no `rate`.
    pub(super) rate: Option<RateLimit>,
    /// Whether the next batch was found, and charged to the rates.
    is_paid: bool,
    /// The wait that was logged, as long as it lasts.
    said: Option<Wait>,
}

/// The room for the next batch. Each gate may leave less of it than it finds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    /// Maximum number of documents by the pace.
    pub size: u32,
    /// Maximum number of documents by the limits.
    pub limit: u64,
    /// Maximum number of batches in flight.
    pub batches: usize,
    /// Whether the next batch may be found while the one before is in flight.
    pub reads_ahead: bool,
    /// Whether it is the rule's turn: it has a permit of the run.
    pub has_turn: bool,
    /// Number of documents that the server deletes in a short time.
    pub gentle_size: u32,
}

impl Room {
    /// Returns the maximum number of documents of the next batch.
    pub(super) fn documents(&self) -> u64 {
        self.limit.min(self.size.into())
    }
}

/// A gate that is closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Closed {
    pub wait: Wait,
    pub why: String,
    /// Time after which the gates are to be asked again.
    pub again: Duration,
    /// Whether the rule waits in its turn, and other rules behind it.
    pub keeps_turn: bool,
}

impl Closed {
    fn new(wait: Wait, why: impl Into<String>, again: Duration) -> Self {
        Self { wait, why: why.into(), again, keeps_turn: false }
    }
}

/// A batch that has ended.
pub(super) struct EndedBatch {
    /// Number of documents that it asked for.
    pub asked: u64,
    /// Number of documents that are gone, or may be.
    pub gone: u64,
    /// `None` if the time says nothing about the server.
    pub latency: Option<Duration>,
    /// Time to leave the server in peace.
    pub rest: Duration,
}

impl<'a> Gates<'a> {
    /// Opens the gates of a rule, whose batches have at most `batch` documents.
    pub(super) fn open(sweep: &Arc<RuleSweep>, run: RunContext<'a>, limits: Limits, batch: u32) -> Self {
        let mut gates = Self {
            rests_until: Instant::now(),
            oplog: None,
            head: None,
            pressure: None,
            rate: None,
            is_paid: false,
            said: None,
            sweep: sweep.clone(),
            run,
            limits: limits.clone(),
        };
        gates.set_limits(limits, batch);
        gates
    }

    /// Replaces the limits. What the gates know of the batches stays.
    pub(super) fn set_limits(&mut self, limits: Limits, batch: u32) {
        let (sweep, watches) = (&self.sweep, self.run.watches);
        sweep.lag.set(limits.max_lag, watches.lag.get());
        let oplog = watches.oplog.get().and_then(Option::as_ref);
        self.oplog = oplog.map(|watch| OplogGate::new(sweep, &limits, batch, watch));
        let max_head = sweep.rule.head_index.as_ref().and(limits.max_head);
        match (&mut self.head, max_head) {
            (Some(gate), Some(max)) => gate.set_max(max),
            (_, max) => self.head = max.map(HeadGate::new),
        }
        match &mut self.pressure {
            Some(gate) if limits.max_dirty != Some(UNWATCHED) => gate.set_max_dirty(limits.max_dirty),
            _ => self.pressure = watches.load.get().and_then(|load| PressureGate::new(limits.max_dirty, load)),
        }
        set_rate(&mut self.rate, limits.rate);
        self.limits = limits;
    }

    /// Asks all gates, in order.
    ///
    /// Errors: the first one that is closed.
    pub(super) fn ask(&mut self, room: Room) -> Result<Room, Closed> {
        let asked = self.ask_each(room);
        let is_said = |said: &Wait| match &asked {
            Ok(_) => self.is_look_due(),
            Err(closed) => closed.wait == *said,
        };
        self.said = self.said.filter(is_said);
        asked
    }

    fn ask_each(&mut self, room: Room) -> Result<Room, Closed> {
        // The time for which the server is spared counts from the first of the waits for it that follow one another.
        let spared_since = self.pressure.as_mut().and_then(|gate| gate.spared_since.take());
        self.pause_file()?;
        self.latency()?;
        self.lag()?;
        self.oplog()?;
        self.head()?;
        let room = self.pressure(room, spared_since)?;
        let room = self.rates(room)?;
        self.units(room)
    }

    fn pause_file(&self) -> Result<(), Closed> {
        // The file is logged once for all rules.
        match self.sweep.pause.reason() {
            Some(why) => Err(Closed::new(Wait::PauseFile, why, CHECK_INTERVAL)),
            None => Ok(()),
        }
    }

    fn latency(&self) -> Result<(), Closed> {
        let rest = self.rests_until.saturating_duration_since(Instant::now());
        if rest.is_zero() {
            return Ok(());
        }
        let why = format!("the server is slower than {} ms per batch", self.limits.target_batch.as_millis());
        Err(Closed::new(Wait::Latency, why, rest))
    }

    fn lag(&mut self) -> Result<(), Closed> {
        let behind = self.sweep.lag.behind();
        self.closed_while(Wait::Lag, behind.map(|why| (why, CHECK_INTERVAL)))
    }

    fn oplog(&mut self) -> Result<(), Closed> {
        let too_short = self.oplog.as_ref().and_then(OplogGate::too_short);
        self.closed_while(Wait::Oplog, too_short.map(|why| (why, CHECK_INTERVAL)))
    }

    fn head(&mut self) -> Result<(), Closed> {
        let too_long = self.head.as_ref().and_then(HeadGate::too_long);
        self.closed_while(Wait::Head, too_long)
    }

    /// Closes a gate while there is a reason, and logs the first one.
    fn closed_while(&mut self, wait: Wait, reason: Option<(String, Duration)>) -> Result<(), Closed> {
        let Some((why, again)) = reason else { return Ok(()) };
        self.say(wait, &why);
        Err(Closed::new(wait, why, again))
    }

    /// Logs the reason of a wait, once as long as it lasts.
    fn say(&mut self, wait: Wait, why: &str) {
        if self.said != Some(wait) {
            let namespace = &self.sweep.rule.namespace;
            warn!(%namespace, "{namespace}: waiting: {why}");
            self.said = Some(wait);
        }
    }

    /// Closes while the server is at its limits, and otherwise for the rest that it needs.
    fn pressure(&mut self, mut room: Room, since: Option<Instant>) -> Result<Room, Closed> {
        let Some(gate) = &mut self.pressure else { return Ok(room) };
        let pressure = gate.pressure();
        if pressure.is_some() || gate.is_cramped() {
            room.batches = 1;
        }
        room.reads_ahead &= pressure.is_none();
        room.size = gate.batch_limit(room.size);
        let wait = gate.time_to_spare();
        if wait.is_zero() {
            return Ok(room);
        }
        let since = since.unwrap_or_else(Instant::now);
        let (is_long, is_strict) = (since.elapsed() >= pressure::MAX_CLOSED, gate.is_strict());
        if is_long && !is_strict {
            gate.passes = true;
        } else {
            gate.spared_since = Some(since);
        }
        let why = pressure.as_ref().map_or("the last batches may have filled the server's cache", Pressure::why);
        if is_long {
            self.say(Wait::Pressure, why);
        }
        if is_long && !is_strict { Ok(room) } else { Err(Closed::new(Wait::Pressure, why, wait)) }
    }

    /// Closes until the rates of rule and run allow a batch. The run's rate is waited for in the rule's turn: otherwise the rule
    /// that is asked first takes it all.
    fn rates(&self, mut room: Room) -> Result<Room, Closed> {
        let RunContext { budget, .. } = self.run;
        let enough = if self.sweep.rule.selection.has_keys() { ENOUGH_WITH_HOLDS } else { ENOUGH };
        let of_rule = self.rate.as_ref().map(|rate| u64::from(rate.batch_limit(enough, room.gentle_size)));
        let limits = [of_rule, budget.rate_limit(enough, room.gentle_size)];
        room.limit = limits.into_iter().flatten().fold(room.limit, u64::min);
        room.reads_ahead &= limits == [None, None];
        if self.is_paid {
            return Ok(room);
        }
        let of_rule = self.rate.as_ref().map_or(Duration::ZERO, |rate| rate.wait(budget.elapsed()));
        if !of_rule.is_zero() {
            return Err(Closed::new(Wait::Rate, "rate", of_rule));
        }
        let of_run = if room.has_turn { budget.rate_wait() } else { Duration::ZERO };
        if !of_run.is_zero() {
            return Err(Closed { keeps_turn: true, ..Closed::new(Wait::Rate, "rate", of_run) });
        }
        Ok(room)
    }

    /// Closes until the service has room for the next query, and the limit of request units too. A batch that was found asks for
    /// its units itself.
    fn units(&self, mut room: Room) -> Result<Room, Closed> {
        let RuleSweep { deployment, rule, .. } = &*self.sweep;
        room.limit = deployment.account().and_then(Account::batch_limit).map_or(room.limit, |most| room.limit.min(most));
        if self.is_paid {
            return Ok(room);
        }
        let wait = deployment.wait_to_find(&rule.selection.namespace, room.documents());
        if wait.is_zero() { Ok(room) } else { Err(Closed::new(Wait::Throttle, "request units", wait)) }
    }

    fn is_look_due(&self) -> bool {
        self.head.as_ref().is_some_and(HeadGate::is_due)
    }

    /// Returns the search for the oldest document, if it is due before the next batch.
    pub(super) fn look(&self) -> Option<impl Future<Output = Result<Took, String>> + use<>> {
        let max = self.head.as_ref().filter(|head| head.is_due())?.max();
        let sweep = self.sweep.clone();
        Some(async move { head::look(&sweep, max).await })
    }

    /// Takes in the time that the oldest document took to find.
    pub(super) fn looked(&mut self, took: Took) {
        if let Some(head) = &mut self.head {
            head.looked(took);
        }
    }

    /// Whether others use a cache that is full.
    pub(super) fn is_cramped(&self) -> bool {
        self.pressure.as_ref().is_some_and(PressureGate::is_cramped)
    }

    /// Charges a batch that was found to the rates.
    pub(super) fn taken(&mut self, documents: u64) {
        let RunContext { budget, .. } = self.run;
        if let Some(rate) = &mut self.rate {
            rate.take(documents, budget.elapsed());
        }
        budget.take_rate(documents);
        self.is_paid = true;
    }

    /// Records that the batch which was found last is sent.
    pub(super) fn sent(&mut self, documents: u64) {
        self.is_paid = false;
        if let Some(gate) = &mut self.pressure {
            gate.sent(documents);
        }
    }

    /// Records the end of a batch.
    pub(super) fn ended(&mut self, batch: &EndedBatch) {
        let EndedBatch { asked, gone, latency, rest } = *batch;
        self.rests_until = self.rests_until.max(Instant::now() + rest);
        if let Some(oplog) = &self.oplog {
            oplog.deleted(gone);
        }
        if let Some(gate) = &mut self.pressure {
            gate.ended(asked);
            latency.into_iter().for_each(|latency| gate.timed(latency));
        }
        if let Some(rate) = &mut self.rate {
            rate.settle(asked, gone);
        }
        self.run.budget.settle_rate(asked, gone);
    }
}
