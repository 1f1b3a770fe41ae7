//! The latency of delete commands as a line over their size: a fixed part, and a cost of each document.

use std::time::Duration;

/// Weight that an observation keeps when the next one arrives: the last seven or so decide.
const MEMORY: f64 = 0.85;

/// Minimum variance of the sizes, relative to the square of their mean, for the line to have a slope. One batch of half the size
/// among six others has more.
const MIN_SPREAD: f64 = 0.02;

/// A line through the last observations, by least squares. Recent observations weigh more.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct LatencyLine {
    weight: f64,
    sizes: f64,
    latencies: f64,
    squares: f64,
    products: f64,
    /// The last line that could be told from the observations.
    known: Option<Parts>,
}

/// The two parts of a latency, in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Parts {
    /// The part that smaller batches do not reduce.
    fixed: f64,
    /// The cost of each document.
    per_document: f64,
}

impl LatencyLine {
    /// Adds the observation of a command for `documents`.
    pub(super) fn observe(&mut self, documents: u32, latency: Duration) {
        let (size, latency) = (f64::from(documents), latency.as_secs_f64());
        for (sum, value) in [
            (&mut self.weight, 1.0),
            (&mut self.sizes, size),
            (&mut self.latencies, latency),
            (&mut self.squares, size * size),
            (&mut self.products, size * latency),
        ] {
            *sum = *sum * MEMORY + value;
        }
        if self.has_spread() {
            self.known = Some(self.parts());
        }
    }

    /// Whether the last observations differ enough in size to tell the two parts of the latency.
    pub(super) fn has_spread(&self) -> bool {
        let mean = self.sizes / self.weight;
        self.variance() >= MIN_SPREAD * mean * mean
    }

    /// Whether the two parts of the latency have ever been told.
    pub(super) fn is_known(&self) -> bool {
        self.known.is_some()
    }

    /// Returns the part of the latency that smaller batches do not reduce; zero as long as it is unknown.
    pub(super) fn fixed(&self) -> Duration {
        Duration::from_secs_f64(self.known.map_or(0.0, |parts| parts.fixed))
    }

    /// Returns the part of the latency of a command for `documents` that they cause; zero as long as it is unknown.
    pub(super) fn caused_by(&self, documents: u32) -> Duration {
        Duration::from_secs_f64(self.known.map_or(0.0, |parts| parts.per_document * f64::from(documents)))
    }

    fn variance(&self) -> f64 {
        let mean = self.sizes / self.weight;
        self.squares / self.weight - mean * mean
    }

    /// Returns the two parts, neither of which is negative.
    fn parts(&self) -> Parts {
        let (size, latency) = (self.sizes / self.weight, self.latencies / self.weight);
        let covariance = self.products / self.weight - size * latency;
        let slope = (covariance / self.variance()).max(0.0);
        // A line that meets the axis below zero is replaced by the one through the origin.
        let slope = slope.min(latency / size);
        Parts { fixed: (latency - slope * size).max(0.0), per_document: slope }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(observations: &[(u32, u64)]) -> (bool, u128, u128) {
        let mut line = LatencyLine::default();
        for (documents, millis) in observations {
            line.observe(*documents, Duration::from_millis(*millis));
        }
        let round = |time: Duration| (time.as_secs_f64() * 1000.0).round() as u128;
        (line.is_known(), round(line.fixed()), round(line.caused_by(1000)))
    }

    #[test]
    fn sizes_that_differ_tell_the_two_parts() {
        assert_eq!(line(&[]), (false, 0, 0));
        assert_eq!(line(&[(500, 250), (500, 252), (490, 249)]), (false, 0, 0));
        assert_eq!(line(&[(500, 255), (250, 252), (1000, 261)]), (true, 249, 12));
        assert_eq!(line(&[(500, 100), (1000, 200), (250, 50)]), (true, 0, 200));
        // Noise that makes the larger batch the faster one, and costs that grow faster than the size.
        assert_eq!(line(&[(500, 300), (1000, 300), (1000, 200), (500, 200)]), (true, 230, 16));
        assert_eq!(line(&[(500, 50), (1000, 400)]).1, 0);
    }

    #[test]
    fn the_last_observations_decide() {
        let slow = std::iter::repeat_n([(500, 1000), (1000, 2000)], 10).flatten();
        let fast = std::iter::repeat_n([(500, 255), (1000, 260)], 20).flatten();
        assert_eq!(line(&slow.chain(fast).collect::<Vec<_>>()), (true, 250, 13));
    }

    #[test]
    fn a_size_that_stays_does_not_change_what_is_known() {
        let same = std::iter::repeat_n((1000, 260), 50);
        let observations: Vec<_> = [(500, 255), (1000, 260)].into_iter().chain(same).collect();
        assert_eq!(line(&observations), (true, 250, 10));
    }
}
