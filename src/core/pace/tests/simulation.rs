//! Sweeps of servers that are only numbers, in virtual time: the speed that the pace reaches, and the load that it causes.

use std::time::Duration;

use crate::base::progress::time_left;
use crate::core::pace::rate::RateLimit;
use crate::core::pace::{BatchTiming, ENOUGH, Pace};

const TARGET: Duration = Duration::from_millis(200);

const MINUTE: Duration = Duration::from_secs(60);

/// The latency of a server, in milliseconds: `fixed + per_document * documents`, give or take `noise` (a share).
#[derive(Clone, Copy)]
struct Server {
    fixed: f64,
    per_document: f64,
    noise: f64,
}

/// A batch in flight.
struct InFlight {
    ends: Duration,
    documents: u32,
    latency: Duration,
}

/// The sweep of a server with two commands in flight.
struct Sweep {
    pace: Pace,
    rate: Option<RateLimit>,
    random: fastrand::Rng,
    now: Duration,
    rests_until: Duration,
    in_flight: Vec<InFlight>,
    /// The size of each batch, in the order in which they began, with the time that its documents took.
    batches: Vec<(u32, Duration)>,
    rested: Duration,
    /// The documents that were deleted by the middle and by the end of the first minute.
    first_minute: (u32, u32),
}

impl Sweep {
    fn new(seed: u64) -> Self {
        Self {
            pace: Pace::new(500, 2000, TARGET),
            rate: None,
            random: fastrand::Rng::with_seed(seed),
            now: Duration::ZERO,
            rests_until: Duration::ZERO,
            in_flight: Vec::new(),
            batches: Vec::new(),
            rested: Duration::ZERO,
            first_minute: (0, 0),
        }
    }

    /// Deletes so many documents.
    fn delete(&mut self, server: Server, mut documents: u32) {
        while documents > 0 || !self.in_flight.is_empty() {
            if documents > 0 && self.in_flight.len() < 2 {
                self.rested += self.rests_until.saturating_sub(self.now);
                self.now = self.now.max(self.rests_until);
                let mut size = self.pace.batch_size().min(documents);
                if let Some(rate) = &mut self.rate {
                    self.now += rate.wait(self.now);
                    size = size.min(rate.batch_limit(ENOUGH, self.pace.gentle_size()));
                    rate.take(size.into(), self.now);
                }
                documents -= size;
                let noise = 1.0 + server.noise * (self.random.f64() * 2.0 - 1.0);
                let millis = (server.fixed + server.per_document * f64::from(size)) * noise;
                let latency = Duration::from_secs_f64(millis / 1000.0);
                let caused = Duration::from_secs_f64(server.per_document * f64::from(size) / 1000.0);
                self.batches.push((size, caused));
                self.in_flight.push(InFlight { ends: self.now + latency, documents: size, latency });
                continue;
            }
            let first = (0..self.in_flight.len()).min_by_key(|index| self.in_flight[*index].ends).unwrap();
            let InFlight { ends, documents, latency } = self.in_flight.swap_remove(first);
            self.now = self.now.max(ends);
            if self.now <= MINUTE / 2 {
                self.first_minute.0 += documents;
            }
            if self.now <= MINUTE {
                self.first_minute.1 += documents;
            }
            self.pace.record(&BatchTiming { documents: documents.into(), latency: Some(latency), overloaded_after: None });
            self.rests_until = self.rests_until.max(self.now + self.pace.rest());
        }
    }
}

#[test]
fn a_fixed_latency_costs_no_more_than_it_must() {
    for seed in 0..50 {
        for fixed in [100.0, 250.0, 400.0, 2000.0] {
            for noise in [0.0, 0.1, 0.3] {
                let mut sweep = Sweep::new(seed);
                sweep.delete(Server { fixed, per_document: 0.005, noise }, 1_000_000);
                let least = Duration::from_secs_f64(1_000_000.0 / 2000.0 * (fixed / 1000.0) / 2.0);
                let ratio = sweep.now.as_secs_f64() / least.as_secs_f64();
                let allowed = if noise * fixed < 200.0 { 1.3 } else { 1.6 };
                assert!(ratio <= allowed, "{ratio} times at {fixed} ms, noise {noise}, seed {seed}");
                // The last batch has what is left.
                let smallest = sweep.batches.iter().rev().skip(1).map(|(size, _)| *size).min();
                assert!(
                    noise * fixed >= 200.0 || smallest >= Some(100),
                    "{smallest:?} at {fixed} ms, noise {noise}, seed {seed}"
                );
                let said = sweep.pace.decisive_fixed_latency().expect("the fixed latency decides").as_secs_f64() * 1000.0;
                assert!((0.7..1.3).contains(&(said / fixed)), "{said} for {fixed} ms, noise {noise}, seed {seed}");
            }
        }
    }
}

#[test]
fn batches_with_guessed_ends_grow_until_they_are_the_largest() {
    for first in [200, 300, 500, 1000] {
        let mut pace = Pace::new(first, 8000, TARGET);
        for _ in 0..10 {
            // Three standard deviations fewer, of the guess and of what it is made from.
            let size = f64::from(pace.batch_size());
            let documents = size - 3.0 * (2.0 * size).sqrt();
            let latency = Duration::from_secs_f64(documents * 0.000_005);
            pace.record(&BatchTiming { documents: documents as u64, latency: Some(latency), overloaded_after: None });
        }
        assert_eq!(pace.batch_size(), 8000, "from {first}");
    }
}

#[test]
fn a_server_whose_documents_take_long_is_spared() {
    for seed in 0..50 {
        for (fixed, per_document) in [(1.0, 0.4), (1.0, 2.0), (250.0, 2.0), (250.0, 10.0), (5.0, 40.0)] {
            for noise in [0.0, 0.1, 0.3] {
                let mut sweep = Sweep::new(seed);
                sweep.delete(Server { fixed, per_document, noise }, 100_000);
                let (first, later) = sweep.batches.split_at(20);
                let mean = |batches: &[(u32, Duration)]| {
                    batches.iter().map(|(_, caused)| *caused).sum::<Duration>() / batches.len() as u32
                };
                let context = format!("{per_document} ms each after {fixed} ms, noise {noise}, seed {seed}");
                // Noise on a high fixed part looks like work, and work like noise.
                let allowed = TARGET.mul_f64(1.1) + Duration::from_secs_f64(2.0 * noise * fixed / 1000.0);
                assert!(mean(later) <= allowed, "{:?}: {context}", mean(later));
                assert!(first.iter().skip(6).all(|(_, caused)| *caused <= allowed * 4), "{first:?}: {context}");
                assert!(per_document < 1.0 || sweep.pace.decisive_fixed_latency().is_none(), "{context}");
            }
        }
    }
}

#[test]
fn a_server_that_changes_is_followed() {
    for seed in 0..50 {
        let fast = Server { fixed: 5.0, per_document: 0.01, noise: 0.1 };
        let far = Server { fixed: 300.0, ..fast };
        let busy = Server { per_document: 1.0, ..fast };
        let mut sweep = Sweep::new(seed);
        for (server, documents, size) in
            [(fast, 100_000, 2000), (far, 100_000, 2000), (busy, 40_000, 200), (fast, 100_000, 2000), (busy, 40_000, 200)]
        {
            let before = sweep.batches.len();
            sweep.delete(server, documents);
            let batches = &sweep.batches[before..];
            let tail = &batches[batches.len() - batches.len() / 3..];
            let mean = tail.iter().map(|(size, _)| f64::from(*size)).sum::<f64>() / tail.len() as f64;
            let ratio = mean / f64::from(size);
            assert!((0.4..1.3).contains(&ratio), "{mean} and not {size} at {} ms, seed {seed}: {tail:?}", server.fixed);
        }
    }
}

#[test]
fn after_a_minute_the_time_that_is_left_is_known_within_a_quarter() {
    for seed in 0..20 {
        // The first batches of a server that takes 40 ms for a document fill most of the minute.
        for (fixed, per_document, documents) in [
            (1.0, 2.0, 400_000),
            (250.0, 2.0, 400_000),
            (250.0, 10.0, 60_000),
            (400.0, 0.005, 2_000_000),
            (5.0, 20.0, 30_000),
            (100.0, 0.5, 500_000),
        ] {
            for noise in [0.0, 0.1, 0.3] {
                let mut sweep = Sweep::new(seed);
                sweep.delete(Server { fixed, per_document, noise }, documents);
                let (middle, end) = sweep.first_minute;
                let expected = time_left(u64::from(documents - end), u64::from(end - middle), MINUTE / 2).unwrap();
                let ratio = expected.as_secs_f64() / (sweep.now - MINUTE).as_secs_f64();
                let context = format!("{per_document} ms each after {fixed} ms, noise {noise}, seed {seed}: {:?}", sweep.now);
                assert!(sweep.now > MINUTE * 2 && (0.75..1.25).contains(&ratio), "{ratio}: {context}");
            }
        }
    }
}

#[test]
fn the_sweep_rests_only_for_what_it_causes() {
    let mut sweep = Sweep::new(1);
    sweep.delete(Server { fixed: 1000.0, per_document: 0.005, noise: 0.0 }, 1_000_000);
    // The fixed part is unknown to the first batches, two of which are in flight.
    assert!(sweep.rested <= Duration::from_secs(2), "{:?}", sweep.rested);
}

#[test]
fn a_rate_is_reached_however_long_each_command_takes() {
    for seed in 0..20 {
        for (fixed, rate) in [
            (0.5, 5000),
            (0.5, 40_000),
            (20.0, 20_000),
            (100.0, 1000),
            (100.0, 5000),
            (100.0, 20_000),
            (400.0, 1000),
            (400.0, 5000),
        ] {
            for noise in [0.0, 0.3] {
                let mut sweep = Sweep::new(seed);
                sweep.rate = Some(RateLimit::new(rate));
                sweep.delete(Server { fixed, per_document: 0.012, noise }, rate * 60);
                let context = format!("{rate} a second at {fixed} ms, noise {noise}, seed {seed}: {:?}", sweep.now);
                assert!((MINUTE.mul_f64(0.98)..MINUTE.mul_f64(1.1)).contains(&sweep.now), "{context}");
                let largest = sweep.batches.iter().map(|(size, _)| *size).max().unwrap();
                assert!(fixed > 1.0 || largest <= (rate / 250).max(100), "{largest} documents: {context}");
            }
        }
    }
}

#[test]
fn a_rate_that_cannot_be_reached_does_not_make_commands_long() {
    for seed in 0..20 {
        let mut sweep = Sweep::new(seed);
        sweep.rate = Some(RateLimit::new(400_000));
        // The rate allows 1600 documents in a batch from the beginning.
        sweep.delete(Server { fixed: 1.0, per_document: 0.012, noise: 0.3 }, 4_000_000);
        let longest = sweep.batches.iter().skip(50).map(|(_, caused)| *caused).max().unwrap();
        assert!(longest <= Duration::from_millis(20), "{longest:?}, seed {seed}");
        let mut sweep = Sweep::new(seed);
        sweep.rate = Some(RateLimit::new(50_000));
        sweep.delete(Server { fixed: 1.0, per_document: 0.1, noise: 0.3 }, 400_000);
        let longest = sweep.batches.iter().skip(50).map(|(_, caused)| *caused).max().unwrap();
        assert!(longest <= Duration::from_millis(25), "{longest:?}, seed {seed}");
    }
}

#[test]
fn batches_become_small_again_once_the_rate_is_reached_with_small_ones() {
    let mut sweep = Sweep::new(1);
    sweep.rate = Some(RateLimit::new(5000));
    let near = Server { fixed: 1.0, per_document: 0.012, noise: 0.1 };
    sweep.delete(Server { fixed: 100.0, ..near }, 100_000);
    assert!(sweep.batches.last().unwrap().0 >= 200);
    sweep.delete(near, 1_000_000);
    assert_eq!(sweep.batches.last().unwrap().0, 100);
}

#[test]
fn latencies_that_differ_by_chance_cost_little_rest() {
    for (noise, allowed) in [(0.1, 0.001), (0.2, 0.012), (0.3, 0.07)] {
        let (mut rested, mut all) = (Duration::ZERO, Duration::ZERO);
        for per_document in [0.035, 0.05, 0.07, 0.15, 0.4] {
            for seed in 0..20 {
                let mut sweep = Sweep::new(seed);
                sweep.pace = Pace::new(500, 8000, TARGET);
                sweep.delete(Server { fixed: 5.0, per_document, noise }, 300_000);
                rested += sweep.rested;
                all += sweep.now;
            }
        }
        let share = rested.as_secs_f64() / all.as_secs_f64();
        assert!(share <= allowed, "{share} of the time, noise {noise}");
    }
}
