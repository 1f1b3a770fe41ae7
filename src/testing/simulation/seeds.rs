//! The seeds that are tried.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::simulate;
use super::trace::{EndedSimulation, Violation};

/// Seeds of each of the tests that `cargo test` runs.
const SEEDS: u64 = 200;

/// Smallest part of the seeds, in percent, in which runs have to delete while there is trouble. Else a simulation may say nothing
/// because nothing happens in it.
const MIN_DELETING: u64 = 60;

/// Simulates seeds on several threads, until `enough` of them have broken a promise; fails if one has, or if too few had deletes.
/// Returns the numbers of documents at the borders of what is promised.
fn try_all(seeds: Range<u64>, threads: usize, enough: usize) -> BTreeMap<String, u64> {
    let (next, deleting) = (AtomicU64::new(seeds.start), AtomicU64::new(0));
    let broken = Mutex::new(BTreeMap::new());
    let all_borders = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end || broken.lock().len() >= enough {
                        return;
                    }
                    let EndedSimulation { violation, deleted, borders, .. } = simulate(seed, false);
                    for (border, number) in borders {
                        *all_borders.lock().entry(border).or_default() += number;
                    }
                    if let Some(violation) = violation {
                        broken.lock().insert(seed, violation);
                    }
                    deleting.fetch_add(u64::from(deleted > 0), Ordering::Relaxed);
                }
            });
        }
    });
    let broken = broken.into_inner();
    let Some(first) = broken.keys().next() else {
        let (deleting, all) = (deleting.into_inner(), seeds.end - seeds.start);
        assert!(deleting * 100 >= all * MIN_DELETING, "runs deleted in only {deleting} of {all} seeds while there was trouble");
        return all_borders.into_inner();
    };
    let all: String =
        broken.iter().map(|(seed, Violation { step, what })| format!("seed {seed}, step {step}: {what}\n")).collect();
    panic!("{}\n{all}", told(*first));
}

/// Replays a seed, and returns its last steps with the promise that was broken.
fn told(seed: u64) -> String {
    let EndedSimulation { lines, violation, steps, .. } = simulate(seed, true);
    let Some(violation) = violation else {
        return format!("seed {seed} breaks no promise when it is replayed, in {steps} steps");
    };
    // The last steps before the promise was broken, and what follows at once.
    let at = lines.iter().position(|line| line.contains("VIOLATION")).unwrap_or(lines.len());
    let shown = &lines[at.saturating_sub(30)..lines.len().min(at + 5)];
    format!(
        "seed {seed}, step {}: {}\nall steps: SIMULATION_SEED={seed} cargo test --lib simulation::seeds::replay -- --nocapture --include-ignored\n{}",
        violation.step,
        violation.what,
        shown.join("\n")
    )
}

macro_rules! seeds {
    ($($name:ident: $part:literal;)+) => {
        $(#[test]
        fn $name() {
            try_all($part * SEEDS..($part + 1) * SEEDS, 1, 1);
        })+
    };
}

seeds! {
    first: 0;
    second: 1;
    third: 2;
    fourth: 3;
    fifth: 4;
    sixth: 5;
    seventh: 6;
    eighth: 7;
}

#[test]
fn two_simulations_of_a_seed_take_the_same_steps() {
    // In the last three, several deletes wait for the same read of the holds, the end of a pause, or a signal.
    for seed in [0, 7, 42, 99, 1001, 75, 218] {
        let (first, second) = (simulate(seed, true), simulate(seed, true));
        let (first, second) = (with_numbered_ids(first), with_numbered_ids(second));
        let difference = first.lines.iter().zip(&second.lines).find(|(a, b)| a != b);
        assert_eq!(difference, None, "seed {seed}");
        assert_eq!(first, second, "seed {seed}");
        assert_eq!(simulate(seed, false).digest, first.digest, "seed {seed}");
    }
}

/// Numbers the ObjectIds in the lines in the order in which they appear: the ObjectIds of the entries in the journal are not of
/// the seed's making.
fn with_numbered_ids(mut ended: EndedSimulation) -> EndedSimulation {
    let mut seen = BTreeMap::new();
    for line in &mut ended.lines {
        let parts: Vec<String> = line
            .split("ObjectId(\"")
            .map(|part| match part.get(..24).filter(|id| id.bytes().all(|byte| byte.is_ascii_hexdigit())) {
                Some(id) => {
                    let next = seen.len();
                    format!("{}{}", seen.entry(id.to_owned()).or_insert(next), &part[24..])
                }
                None => part.to_owned(),
            })
            .collect();
        *line = parts.join("ObjectId(\"");
    }
    ended
}

/// Tries the seeds that the environment names, on all processors.
#[test]
#[ignore = "takes the seeds from the environment"]
#[expect(clippy::print_stdout, reason = "the numbers are for a person")]
fn of_the_environment() {
    let seeds = std::env::var("SIMULATION_SEEDS").expect("SIMULATION_SEEDS=FROM..TO");
    let (from, to) = seeds.split_once("..").expect("FROM..TO");
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let enough = std::env::var("SIMULATION_ENOUGH").map_or(20, |enough| enough.parse().expect("a number"));
    let borders = try_all(from.parse().expect("a number")..to.parse().expect("a number"), threads, enough);
    for (border, number) in borders {
        println!("{number:>8} {border}");
    }
}

/// Shows every step of one seed.
#[test]
#[ignore = "takes the seed from the environment"]
#[expect(clippy::print_stdout, reason = "the steps are for a person")]
fn replay() {
    let seed = std::env::var("SIMULATION_SEED").expect("SIMULATION_SEED=NUMBER").parse().expect("a number");
    let ended = simulate(seed, true);
    for line in &ended.lines {
        println!("{line}");
    }
    assert_eq!(ended.violation, None);
}
