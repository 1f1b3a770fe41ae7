//! Faults of the network and of the servers, as chances per command.

use std::ops::RangeInclusive;
use std::time::Duration;

use fastrand::Rng;

use crate::codes;

/// Chances of faults, each from 0 to 1, drawn for every command (a `getMore` is one).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Faults {
    /// The command gets no connection, and is not sent.
    pub not_sent: f64,
    /// The connection breaks before the command arrives, which is never carried out.
    pub cut_before: f64,
    /// The connection breaks while the command is under way or carried out. It may be carried out after the client knows.
    pub cut_while: f64,
    /// The connection breaks after the command was carried out, before its reply arrives.
    pub cut_after: f64,
    /// The command is carried out, and no reply ever comes.
    pub silent: f64,
    /// The command never arrives, and no reply ever comes.
    pub swallowed: f64,
    /// The server refuses the command as it does while it steps down or shuts down, before it did anything.
    pub refused: f64,
    /// The server refuses the command because it has too much to do, before it did anything (8.2).
    pub busy: f64,
    /// The server ends a delete between two documents, as it does while it steps down or shuts down.
    pub interrupted: f64,
    /// A cursor dies between two batches.
    pub lost_cursor: f64,
    /// The command takes up to [`Self::max_late`] on its way, and arrives after its client has given up.
    pub late: f64,
    /// A delete does so, besides.
    pub late_delete: f64,
    /// The reply takes as long.
    pub late_reply: f64,
    /// The server takes as long before it begins; its time limit counts.
    pub slow: f64,
    /// Longest time of a late or slow command.
    pub max_late: Duration,
}

/// The speed of the servers, in milliseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Pace {
    /// Time of a command on its way, in each direction.
    pub latency: RangeInclusive<u64>,
    /// Chance that a delete lets others run after a document.
    pub yields: f64,
    /// Time for which it does.
    pub pause: RangeInclusive<u64>,
    /// Time after which a majority has a write.
    pub replication: RangeInclusive<u64>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { latency: 0..=3, yields: 0.3, pause: 0..=3, replication: 0..=20 }
    }
}

/// The fate of one command.
#[derive(Debug)]
pub(crate) struct Fate {
    pub arrives_after: Duration,
    /// Time that the server takes before it begins.
    pub begins_after: Duration,
    pub returns_after: Duration,
    pub end: End,
}

/// The end of a command, as its client sees it.
#[derive(Debug)]
pub(crate) enum End {
    Answered,
    /// An error at once; the server never sees the command.
    Unsent,
    /// The connection breaks before the command arrives.
    CutBefore,
    /// The connection breaks after this time, whatever the server does.
    CutAt(Duration),
    CutAfter,
    Silent,
    Swallowed,
    Refused(i32),
}

impl Fate {
    /// Decides what happens to the next command.
    pub(crate) fn of_next(random: &mut Rng, faults: &Faults, pace: &Pace, is_delete: bool) -> Self {
        let latency = |random: &mut Rng| Duration::from_millis(random.u64(pace.latency.clone()));
        let (mut arrives_after, mut returns_after) = (latency(random), latency(random));
        let late = |random: &mut Rng| {
            let most = u64::try_from(faults.max_late.as_millis()).expect("a short time");
            Duration::from_millis(random.u64(0..=most))
        };
        if happens(random, faults.late) || is_delete && happens(random, faults.late_delete) {
            arrives_after += late(random);
        }
        if happens(random, faults.late_reply) {
            returns_after += late(random);
        }
        let begins_after = if happens(random, faults.slow) { late(random) } else { Duration::ZERO };
        let end = if happens(random, faults.not_sent) {
            End::Unsent
        } else if happens(random, faults.cut_before) {
            End::CutBefore
        } else if happens(random, faults.cut_while) {
            let whole = u64::try_from((arrives_after + begins_after).as_millis()).expect("a short time");
            End::CutAt(Duration::from_millis(random.u64(0..=whole + 20)))
        } else if happens(random, faults.cut_after) {
            End::CutAfter
        } else if happens(random, faults.silent) {
            End::Silent
        } else if happens(random, faults.swallowed) {
            End::Swallowed
        } else if happens(random, faults.refused) {
            End::Refused(passing_code(random))
        } else if happens(random, faults.busy) {
            End::Refused(codes::INGRESS_REQUEST_RATE_LIMIT_EXCEEDED)
        } else {
            End::Answered
        };
        Self { arrives_after, begins_after, returns_after, end }
    }
}

/// Tells whether something happens.
pub(crate) fn happens(random: &mut Rng, chance: f64) -> bool {
    // No draw for what never happens, so that a fault that is switched off changes nothing else.
    chance > 0.0 && random.f64() < chance
}

/// Returns the code of an error that passes.
fn passing_code(random: &mut Rng) -> i32 {
    const CODES: [i32; 5] = [
        codes::PRIMARY_STEPPED_DOWN,
        codes::NOT_WRITABLE_PRIMARY,
        codes::INTERRUPTED_DUE_TO_REPL_STATE_CHANGE,
        codes::INTERRUPTED_AT_SHUTDOWN,
        codes::SHUTDOWN_IN_PROGRESS,
    ];
    CODES[random.usize(0..CODES.len())]
}
