//! The clocks and the tasks of this machine. In a simulation there are several machines, on one clock that follows tokio's.

use std::time::SystemTime;

use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Returns the time of the wall clock, which continues while the machine sleeps, and which can be set.
pub(crate) fn wall_clock() -> SystemTime {
    #[cfg(test)]
    if let Some(now) = crate::testing::machines::wall_clock() {
        return now;
    }
    SystemTime::now()
}

/// Returns the time of the monotonic clock, which cannot be set, and which stops while the machine sleeps.
pub(crate) fn monotonic_clock() -> Instant {
    #[cfg(test)]
    if let Some(now) = crate::testing::machines::monotonic_clock() {
        return now;
    }
    Instant::now()
}

/// Keeps a task on the machine of the task that spawns it: in a simulation it sleeps and ends with that machine.
pub(crate) fn here<F: Future>(task: F) -> impl Future<Output = F::Output> {
    #[cfg(test)]
    let task = crate::testing::machines::here(task);
    task
}

/// Work on this machine that ends when this is dropped.
pub(crate) struct Task(JoinHandle<()>);

impl Task {
    /// Begins the work. Needs a tokio runtime.
    pub(crate) fn begin(work: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(tokio::spawn(here(work)))
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
