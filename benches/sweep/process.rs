//! Resources that processes use, as Linux accounts for them.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeVal;
use nix::unistd::{SysconfVar, sysconf};

/// Time between two looks at the memory of a process. Its peak only grows, so the last look misses at most this much of the end.
const LOOK_EVERY: Duration = Duration::from_millis(2);

/// A process that has ended.
pub(crate) struct Ended {
    pub begun: Instant,
    pub ended: Instant,
    pub output: Output,
    /// Peak of the resident memory in bytes.
    pub peak: u64,
    /// Processor time, user and system.
    pub cpu: Duration,
}

/// Runs a command to its end. No other child may be waited for meanwhile, because the processor time is taken from the sum over
/// all children.
pub(crate) fn run(mut command: Command) -> Ended {
    let before = cpu_of_children();
    let over = AtomicBool::new(false);
    let begun = Instant::now();
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("a process");
    let pid = child.id();
    thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut peak = 0;
            while !over.load(Ordering::Relaxed) {
                // A process that has ended but has not been waited for has no resident memory any more.
                peak = peak_of(pid).unwrap_or(peak);
                thread::sleep(LOOK_EVERY);
            }
            peak
        });
        let output = child.wait_with_output().expect("the process ends");
        let ended = Instant::now();
        over.store(true, Ordering::Relaxed);
        let peak = watch.join().expect("the peak");
        Ended { begun, ended, output, peak, cpu: cpu_of_children().saturating_sub(before) }
    })
}

/// Returns the peak of a process's resident memory so far, in bytes; `None` if the process has ended.
///
/// Does not use `ru_maxrss`, which begins with the peak of the process that started the child, here larger than sweeper's.
fn peak_of(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// Returns the processor time, user and system, of a running process.
pub(crate) fn cpu(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process that runs");
    // The name is in brackets and may contain anything; utime and stime are the 12th and 13th field after it.
    let (_, fields) = stat.rsplit_once(')').expect("the name of the process");
    let ticks: u64 = fields.split_whitespace().skip(11).take(2).map(|field| field.parse::<u64>().expect("ticks")).sum();
    let per_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().expect("ticks per second");
    Duration::from_secs_f64(ticks as f64 / per_second as f64)
}

fn cpu_of_children() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("the usage of the children");
    let duration = |time: TimeVal| Duration::new(time.tv_sec() as u64, time.tv_usec() as u32 * 1000);
    duration(usage.user_time()) + duration(usage.system_time())
}
