//! Sizes batches and spaces them out in time. Arithmetic only: time comes in as values.

pub(crate) mod head;
mod latency;
pub(crate) mod pressure;
pub(crate) mod rate;
pub(crate) mod units;

use std::time::Duration;

use latency::LatencyLine;

/// Maximum rest: the next batch then shows whether the server has recovered.
const MAX_REST: Duration = Duration::from_secs(10);

/// Number of documents in a batch for which the cost of the command itself is negligible.
pub(crate) const ENOUGH: u32 = 100;

/// The same where each command carries the keys of all holds: the server takes 10 ms for 100,000 of them.
pub(crate) const ENOUGH_WITH_HOLDS: u32 = 10_000;

/// The share of the target that the size is fitted to: no rest follows a batch that by chance takes somewhat longer.
const AIM: f64 = 0.8;

/// Time that the documents of a batch may take where each command holds up other clients.
const GENTLE_TARGET: Duration = Duration::from_millis(10);

/// Batches of one size after which one of another size shows again which part of the latency is fixed.
const BATCHES_PER_PROBE: u32 = 8;

/// Minimum time spent on the fixed part of the latency that is worth reporting.
const MIN_FIXED_TOTAL: Duration = Duration::from_secs(5);

/// The size of batches and the rest between them, adjusted so that the latency which a batch causes stays near a target.
///
/// The latency of a command is a fixed part (the network, a majority far away, a service) and a cost for each document. Only the
/// second is the sweep's doing, and only it becomes less with smaller batches.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Pace {
    size: u32,
    max: u32,
    target: Duration,
    /// Whether commands hold up other clients, so that many short ones hurt less than a few long ones.
    is_gentle: bool,
    rest: Duration,
    line: LatencyLine,
    /// Whether the next batch has another size, to find the fixed part of the latency.
    probes: bool,
    /// Batches since the last one that was a probe.
    since_probe: u32,
    /// Whether the server has ever reported an overload: from then on batches grow by little.
    careful: bool,
    timed: Timed,
}

/// The sums over all batches that were timed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Timed {
    batches: u32,
    /// Those that were as large as the policy allows.
    largest: u32,
    latency: Duration,
    fixed: Duration,
}

/// The measurements of a batch that the pace depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchTiming {
    /// Documents that the batch asked for.
    pub documents: u64,
    /// `None` if the time says nothing about the server.
    pub latency: Option<Duration>,
    /// Documents that were deleted before a service first reported an overload; `None` if it reported none.
    pub overloaded_after: Option<u64>,
}

impl Pace {
    /// Creates a pace. `first` is the size of the first batch, while the speed of the server is unknown. `max` is never
    /// exceeded. `target` is the desired latency that the documents of one delete command cause.
    pub(crate) fn new(first: u32, max: u32, target: Duration) -> Self {
        Self {
            size: first.min(max).max(1),
            max,
            target,
            is_gentle: false,
            rest: Duration::ZERO,
            line: LatencyLine::default(),
            probes: false,
            since_probe: 0,
            careful: false,
            timed: Timed::default(),
        }
    }

    /// Replaces the size that is never exceeded, and the desired latency.
    pub(crate) fn set_limits(&mut self, max: u32, target: Duration) {
        (self.size, self.max, self.target) = (self.size.min(max).max(1), max, target);
    }

    /// Sets whether commands hold up other clients.
    pub(crate) fn set_gentle(&mut self, is_gentle: bool) {
        self.is_gentle = is_gentle;
    }

    /// Returns the latency that the documents of a command should not exceed.
    fn target(&self) -> Duration {
        if self.is_gentle { self.gentle_target() } else { self.target }
    }

    /// Returns the latency in seconds to which the size is fitted.
    fn aim(&self) -> f64 {
        self.target().as_secs_f64() * AIM
    }

    /// Returns a latency that is short, but not shorter than the fixed part, during which the server is free for others.
    fn gentle_target(&self) -> Duration {
        GENTLE_TARGET.max(self.line.fixed()).min(self.target)
    }

    /// Returns the number of documents that the server deletes in a short time; as many as there may be as long as that is
    /// unknown.
    pub(crate) fn gentle_size(&self) -> u32 {
        let of_one = self.line.caused_by(1).as_secs_f64();
        // A cast from float saturates.
        if of_one > 0.0 { (self.gentle_target().as_secs_f64() / of_one) as u32 } else { u32::MAX }
    }

    /// Returns the number of documents that the next batch may take at most; at least 1.
    pub(crate) fn batch_size(&self) -> u32 {
        match self.probes {
            false => self.size,
            // A smaller batch is harmless, but small ones are made smaller only where they cannot be made larger.
            true if self.size / 2 >= ENOUGH || self.size > self.max / 2 => (self.size / 2).max(1),
            true => self.size * 2,
        }
    }

    /// Returns the number of documents that no batch exceeds.
    pub(crate) fn max_batch_size(&self) -> u32 {
        self.max
    }

    /// Returns the time to leave the server in peace before the next batch: the time by which the documents of the last one
    /// exceeded the target.
    pub(crate) fn rest(&self) -> Duration {
        self.rest
    }

    /// Returns the fixed part of the mean latency if it, rather than the documents, took most of the time of the sweep.
    pub(crate) fn decisive_fixed_latency(&self) -> Option<Duration> {
        let Timed { batches, largest, latency, fixed } = self.timed;
        let is_decisive = fixed >= MIN_FIXED_TOTAL && fixed >= latency / 2 && largest >= batches / 2;
        is_decisive.then(|| fixed / batches.max(1))
    }

    /// Adjusts size and rest after a batch.
    pub(crate) fn record(&mut self, batch: &BatchTiming) {
        let saturated = |documents: u64| u32::try_from(documents).unwrap_or(u32::MAX);
        match (batch.overloaded_after, batch.latency) {
            (Some(done), _) => self.shrink_to(saturated(done)),
            (None, Some(latency)) => self.approach_target(saturated(batch.documents), latency),
            (None, None) => self.rest = Duration::ZERO,
        }
    }

    /// Grows the size, at most to the double, if the documents took less than half of the target, and shrinks it above the
    /// target. It is fitted to somewhat less than the target.
    ///
    /// A batch that was cut short by a limit says little about the server: the size does not grow after it.
    fn approach_target(&mut self, documents: u32, latency: Duration) {
        self.line.observe(documents.max(1), latency);
        let target = self.target();
        let fixed = self.line.fixed().min(latency);
        self.timed.batches += 1;
        self.timed.largest += u32::from(fills(documents, self.max));
        self.timed.latency += latency;
        self.timed.fixed += fixed;

        // Until the fixed part is known, all of the latency may be the sweep's doing.
        let own = latency - fixed;
        self.rest = own.saturating_sub(target).min(MAX_REST);
        // The line averages out what one batch has met by chance.
        let caused = if self.line.has_spread() { own.min(self.line.caused_by(documents)) } else { own };
        self.since_probe = if self.probes || self.line.has_spread() { 0 } else { self.since_probe + 1 };
        self.probes = false;
        if caused > target {
            self.shrink_from(documents, caused);
        } else if caused < target / 2 {
            if fills(documents, self.size) {
                let most = if self.careful { self.size / 10 + 1 } else { self.size };
                // A cast from float saturates.
                let aim = (f64::from(documents) * self.aim() / caused.as_secs_f64()) as u32;
                self.size = aim.min(self.size.saturating_add(most)).clamp(self.size, self.max);
            }
        } else {
            self.probes = !self.line.is_known() || self.since_probe >= BATCHES_PER_PROBE;
        }
    }

    /// Shrinks the size in proportion to the latency that `documents` caused.
    fn shrink_from(&mut self, documents: u32, caused: Duration) {
        let ratio = self.aim() / caused.as_secs_f64();
        // At least to half while the fixed part is unknown: only sizes that differ tell it.
        let ratio = if self.line.is_known() { ratio } else { ratio.min(0.5) };
        // A batch this small is made even smaller only where the documents are known to be what takes long.
        let least = if self.line.caused_by(ENOUGH) > self.target { 1 } else { ENOUGH.min(self.size) };
        // A cast from float saturates; it rounds down, to the smaller batch.
        self.size = ((f64::from(documents) * ratio) as u32).clamp(least, self.size);
        self.probes = documents <= least && !self.line.has_spread();
    }

    /// Shrinks the size to the number of documents that an overloaded server managed.
    fn shrink_to(&mut self, documents: u32) {
        self.careful = true;
        self.size = if documents == 0 { self.size / 2 } else { documents.min(self.size) }.max(1);
    }
}

/// Whether a batch has about the documents that it may have. One that ends with a date has somewhat less, and so has one whose
/// end is guessed: a guess keeps a distance of three standard deviations, which is 60 of 200 documents.
fn fills(documents: u32, size: u32) -> bool {
    documents >= size - size / 3
}

/// Returns the wait before repeating a command that an overloaded server refused without naming a wait. Each wait is half as long
/// again as the one before.
///
/// `attempt` counts from 0; `jitter` is from 0 to 1 and keeps many clients from returning at the same moment.
pub(crate) fn back_off(attempt: u32, jitter: f64) -> Duration {
    const FIRST: f64 = 0.25;
    const MAX: f64 = 5.0;
    let seconds = (FIRST * 1.5_f64.powi(attempt.min(30).cast_signed())).min(MAX);
    Duration::from_secs_f64(seconds * (0.7 + 0.6 * jitter.clamp(0.0, 1.0)))
}

#[cfg(test)]
mod tests {
    mod simulation;

    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn took(documents: u64, latency: u64) -> BatchTiming {
        BatchTiming { documents, latency: Some(MS(latency)), overloaded_after: None }
    }

    fn overloaded(done: u64) -> BatchTiming {
        BatchTiming { documents: 100, latency: None, overloaded_after: Some(done) }
    }

    /// Returns size and rest at the beginning and after each batch.
    fn steps(pace: &mut Pace, batches: &[(u64, u64)]) -> Vec<(u32, u64)> {
        let mut steps = vec![(pace.batch_size(), 0)];
        for (documents, latency) in batches {
            pace.record(&took(*documents, *latency));
            steps.push((pace.batch_size(), u64::try_from(pace.rest().as_millis()).unwrap()));
        }
        steps
    }

    #[test]
    fn batches_grow_while_fast_and_shrink_at_once_when_their_documents_take_long() {
        let mut pace = Pace::new(500, 2000, MS(200));
        let found = steps(&mut pace, &[(500, 20), (1000, 40), (2000, 80), (2000, 400), (2000, 400), (1000, 200)]);
        assert_eq!(found, [(500, 0), (1000, 0), (2000, 0), (2000, 0), (1486, 200), (1156, 200), (1156, 0)]);
    }

    #[test]
    fn a_latency_that_smaller_batches_do_not_reduce_does_not_shrink_them() {
        let mut pace = Pace::new(500, 2000, MS(200));
        let found = steps(&mut pace, &[(500, 255), (250, 253), (250, 252), (500, 256), (1000, 260), (2000, 270)]);
        assert_eq!(found, [(500, 0), (250, 55), (500, 0), (500, 0), (1000, 0), (2000, 0), (2000, 0)]);
        // Between half of the target and the target a smaller batch tells whether growing would do harm.
        let mut pace = Pace::new(500, 2000, MS(200));
        let found = steps(&mut pace, &[(500, 105), (250, 102), (500, 105), (1000, 110)]);
        assert_eq!(found, [(500, 0), (250, 0), (500, 0), (1000, 0), (2000, 0)]);
    }

    #[test]
    fn a_gentle_pace_is_one_of_short_commands() {
        // Returns the size and the rest in milliseconds after many batches of a server with a fixed latency and a cost of each
        // document.
        let end = |pace: &mut Pace, fixed: f64, per_document: f64| {
            for _ in 0..60 {
                let documents = pace.batch_size();
                let latency = Duration::from_secs_f64((fixed + per_document * f64::from(documents)) / 1000.0);
                pace.record(&BatchTiming { documents: documents.into(), latency: Some(latency), overloaded_after: None });
            }
            (pace.size, (pace.rest().as_secs_f64() * 1000.0).round() as u32)
        };
        let mut pace = Pace::new(500, 2000, MS(200));
        pace.set_gentle(true);
        assert_eq!(end(&mut pace, 0.0, 0.04), (200, 0));
        // Not below a hundred on a slow server, which has a rest as long as the command.
        assert_eq!(end(&mut pace, 0.0, 1.0), (100, 90));
        let (size, rest) = end(&mut pace, 50.0, 0.04);
        assert!(
            (1000..1200).contains(&size) && rest == 0,
            "{size} documents take about as long as the command by itself, then {rest} ms of rest"
        );
        pace.set_gentle(false);
        assert_eq!(end(&mut pace, 0.0, 0.04), (2000, 0));
        let mut pace = Pace::new(500, 2000, MS(5));
        pace.set_gentle(true);
        // The last batch was a probe of the double size.
        assert_eq!(end(&mut pace, 0.0, 0.04), (100, 3), "the policy asks for less");
    }

    #[test]
    fn fewer_than_a_hundred_documents_go_only_where_they_are_known_to_take_long() {
        let mut pace = Pace::new(500, 2000, MS(200));
        let found = steps(&mut pace, &[(500, 60_000), (100, 60_000), (100, 60_000), (100, 60_000)]);
        assert_eq!(found, [(500, 0), (100, 10_000), (200, 0), (200, 0), (200, 0)]);
        let mut pace = Pace::new(500, 2000, MS(200));
        let found = steps(&mut pace, &[(500, 5000), (100, 1000), (20, 200)]);
        assert_eq!(found, [(500, 0), (100, 4800), (16, 800), (16, 0)]);
    }

    #[test]
    fn the_limits_of_the_size_hold() {
        let mut pace = Pace::new(500, 3, MS(1));
        assert_eq!((pace.batch_size(), pace.max_batch_size()), (3, 3));
        for _ in 0..5 {
            let size = pace.batch_size();
            pace.record(&took(size.into(), u64::from(size) * 36_000));
        }
        assert_eq!((pace.batch_size(), pace.rest()), (1, MAX_REST));
        for _ in 0..20 {
            pace.record(&took(pace.batch_size().into(), 0));
        }
        assert_eq!((pace.batch_size(), pace.rest()), (3, MS(0)));
    }

    #[test]
    fn a_short_batch_does_not_let_the_size_grow() {
        let mut pace = Pace::new(500, 2000, MS(200));
        pace.record(&took(3, 1));
        assert_eq!(pace.batch_size(), 500);
    }

    #[test]
    fn a_batch_that_ends_with_a_date_lets_the_size_grow() {
        let mut pace = Pace::new(500, 2000, MS(200));
        assert_eq!(steps(&mut pace, &[(333, 1), (334, 1), (992, 1)]), [(500, 0), (500, 0), (1000, 0), (2000, 0)]);
        // By what its documents took, not by what it could have had.
        let mut pace = Pace::new(500, 2000, MS(200));
        assert_eq!(steps(&mut pace, &[(400, 80)]), [(500, 0), (800, 0)]);
    }

    #[test]
    fn an_overloaded_server_gets_what_it_can_do_and_little_more() {
        let mut pace = Pace::new(100, 1000, MS(200));
        pace.record(&took(100, 1));
        pace.record(&overloaded(73));
        let mut sizes = vec![pace.batch_size()];
        for done in [0, 0, 90] {
            pace.record(&overloaded(done));
            sizes.push(pace.batch_size());
        }
        pace.record(&took(18, 1));
        sizes.push(pace.batch_size());
        for _ in 0..10 {
            pace.record(&overloaded(0));
        }
        sizes.push(pace.batch_size());
        assert_eq!(sizes, [73, 36, 18, 18, 20, 1]);
    }

    #[test]
    fn waits_grow_to_a_limit_and_differ() {
        let millis = |attempt, jitter| back_off(attempt, jitter).as_millis();
        assert_eq!([0, 1, 2, 8, 100].map(|attempt| millis(attempt, 0.5)), [250, 375, 562, 5000, 5000]);
        assert_eq!((millis(100, 0.0), millis(100, 1.0)), (3500, 6500));
    }

    #[test]
    fn at_the_target_and_at_half_of_it_the_size_stays() {
        for (latency, size) in [(80, 1000), (99, 808), (100, 500), (200, 500), (201, 250)] {
            let mut pace = Pace::new(500, 2000, MS(200));
            pace.record(&took(500, latency));
            assert_eq!(pace.size, size, "{latency} ms");
        }
    }

    #[test]
    fn small_batches_are_probed_by_larger_ones_where_these_are_allowed() {
        for (size, max, probe) in [(500, 2000, 250), (200, 2000, 100), (199, 2000, 398), (50, 100, 100), (51, 100, 25), (1, 1, 1)]
        {
            let pace = Pace { probes: true, ..Pace::new(size, max, MS(200)) };
            assert_eq!(pace.batch_size(), probe, "{size} {max}");
        }
    }
}
