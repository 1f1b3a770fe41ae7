//! A simulated machine: its tasks stop while it sleeps and end when it is killed, and its clocks can be wrong.

use std::cell::RefCell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::time::Instant;

thread_local! {
    /// The machine of the task that is being polled.
    static CURRENT: RefCell<Option<Arc<Machine>>> = const { RefCell::new(None) };
}

/// A machine of a simulation.
pub(crate) struct Machine {
    /// Beginning of the simulation by tokio's clock, and the time of the wall clock at it.
    begun: Instant,
    began_at: SystemTime,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Time by which the wall clock was set forward, and back.
    forward: Duration,
    back: Duration,
    /// When the wall clock was last set forward.
    set_at: Option<Instant>,
    /// Time for which the machine has slept.
    slept: Duration,
    is_asleep: bool,
    is_killed: bool,
    /// Tasks that wait for the machine to wake up.
    waiting: Vec<Waker>,
}

impl Machine {
    /// Switches a machine on whose wall clock shows a time.
    pub(crate) fn new(began_at: SystemTime) -> Arc<Self> {
        Arc::new(Self { begun: Instant::now(), began_at, state: Mutex::default() })
    }

    /// Runs a task on this machine, and all tasks that it spawns.
    pub(crate) fn run<F: Future>(self: &Arc<Self>, task: F) -> OnMachine<F> {
        OnMachine { machine: Some(self.clone()), task: Some(Box::pin(task)) }
    }

    /// Puts the machine to sleep for a time, in which its monotonic clock stops and its wall clock goes on.
    pub(crate) async fn sleep(&self, time: Duration) {
        self.state.lock().is_asleep = true;
        tokio::time::sleep(time).await;
        let waiting = {
            let mut state = self.state.lock();
            state.is_asleep = false;
            state.slept += time;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Kills the processes on the machine: none of their tasks goes on.
    pub(crate) fn kill(&self) {
        let waiting = {
            let mut state = self.state.lock();
            state.is_killed = true;
            std::mem::take(&mut state.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Whether the machine sleeps, or has slept.
    pub(crate) fn has_slept(&self) -> bool {
        let state = self.state.lock();
        state.is_asleep || !state.slept.is_zero()
    }

    pub(crate) fn is_killed(&self) -> bool {
        self.state.lock().is_killed
    }

    /// Sets the wall clock forward.
    pub(crate) fn set_forward(&self, by: Duration) {
        let mut state = self.state.lock();
        state.forward += by;
        state.set_at = Some(Instant::now());
    }

    /// Whether the wall clock was set forward at most a time ago.
    pub(crate) fn was_set_within(&self, time: Duration) -> bool {
        self.state.lock().set_at.is_some_and(|set_at| set_at.elapsed() <= time)
    }

    /// Sets the wall clock back.
    pub(crate) fn set_back(&self, by: Duration) {
        self.state.lock().back += by;
    }

    pub(crate) fn wall_clock(&self) -> SystemTime {
        let state = self.state.lock();
        self.began_at + self.begun.elapsed() + state.forward - state.back
    }

    fn monotonic_clock(&self) -> Instant {
        Instant::now() - self.state.lock().slept
    }
}

/// Returns the wall clock of the machine of the current task; `None` outside of simulations.
pub(crate) fn wall_clock() -> Option<SystemTime> {
    current().map(|machine| machine.wall_clock())
}

/// Returns the monotonic clock of the machine of the current task; `None` outside of simulations.
pub(crate) fn monotonic_clock() -> Option<Instant> {
    current().map(|machine| machine.monotonic_clock())
}

/// Returns the machine of the current task; `None` outside of simulations.
pub(crate) fn current() -> Option<Arc<Machine>> {
    CURRENT.with_borrow(Clone::clone)
}

/// Keeps a task on the machine of the current one.
pub(crate) fn here<F: Future>(task: F) -> OnMachine<F> {
    OnMachine { machine: current(), task: Some(Box::pin(task)) }
}

/// A task on a machine, if it is on one.
pub(crate) struct OnMachine<F> {
    machine: Option<Arc<Machine>>,
    /// `None` once the machine was killed.
    task: Option<Pin<Box<F>>>,
}

impl<F: Future> Future for OnMachine<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        if let Some(machine) = self.machine.clone() {
            let mut state = machine.state.lock();
            if state.is_asleep || state.is_killed {
                let is_killed = state.is_killed;
                state.waiting.push(context.waker().clone());
                drop(state);
                if is_killed {
                    self.task = None;
                }
                return Poll::Pending;
            }
        }
        let before = CURRENT.replace(self.machine.clone());
        let polled = self.task.as_mut().expect("a task that was not killed").as_mut().poll(context);
        CURRENT.set(before);
        polled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::machine;

    const S: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_sleeps_does_nothing_meanwhile_and_only_its_wall_clock_goes_on() {
        let began_at = SystemTime::UNIX_EPOCH + 1_000_000 * S;
        let machine = Machine::new(began_at);
        let task = tokio::spawn(machine.run(async {
            let spawned = tokio::spawn(machine::here(async {
                tokio::time::sleep(S).await;
                (machine::wall_clock(), machine::monotonic_clock())
            }));
            let begun = machine::monotonic_clock();
            let (wall, monotonic) = spawned.await.unwrap();
            (wall, monotonic - begun)
        }));
        tokio::task::yield_now().await;
        machine.sleep(10 * S).await;
        assert_eq!(task.await.unwrap(), (began_at + 10 * S, Duration::ZERO));
        machine.set_forward(5 * S);
        machine.set_back(2 * S);
        assert_eq!(machine.run(async { machine::wall_clock() }).await, began_at + 13 * S);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_of_a_machine_goes_on_once_it_was_killed() {
        let machine = Machine::new(SystemTime::UNIX_EPOCH);
        let (sender, mut seen) = crate::base::watch::channel(0);
        let task = tokio::spawn(machine.run(async move {
            let ticks = async move {
                loop {
                    tokio::time::sleep(S).await;
                    sender.send_modify(|ticks| *ticks += 1);
                }
            };
            tokio::spawn(machine::here(ticks)).await
        }));
        tokio::time::sleep(S * 7 / 2).await;
        machine.kill();
        tokio::time::sleep(10 * S).await;
        assert_eq!(*seen.borrow(), 3);
        // The tasks are gone, with all that they held.
        assert!(seen.wait_for(|_| false).await.is_err() && !task.is_finished() && machine.is_killed());
    }
}
