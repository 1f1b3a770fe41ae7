//! The signals of a process that is not ready for them yet.
//!
//! A signal that comes before its handler ends the process, without a report. To the first process of a container it does not
//! happen at all. Signals that are held back wait in the kernel instead.

use nix::sys::signal::{SigSet, Signal};

/// Holds back the signals that end a sweep, or let it read its policy again. Threads that begin later hold them back as well.
pub fn hold_back() {
    // Signals that exist can be held back. If not, they do what they always did.
    let _ = of_a_sweep().thread_block();
}

/// Lets the signals through that are held back, those as well that came in the meantime.
pub fn let_through() {
    let _ = of_a_sweep().thread_unblock();
}

fn of_a_sweep() -> SigSet {
    [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM].into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_signal_that_a_sweep_hears_is_held_back_until_it_is_let_through() {
        let held = || {
            let mask = SigSet::thread_get_mask().unwrap();
            [Signal::SIGHUP, Signal::SIGINT, Signal::SIGTERM].map(|signal| mask.contains(signal))
        };
        // A thread of its own, because a mask belongs to a thread.
        let masks = std::thread::spawn(move || {
            hold_back();
            let before = held();
            let of_later_threads = std::thread::spawn(held).join().unwrap();
            let_through();
            (before, of_later_threads, held())
        });
        assert_eq!(masks.join().unwrap(), ([true; 3], [true; 3], [false; 3]));
    }
}
