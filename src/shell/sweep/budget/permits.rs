//! The delete commands of a run that may be in flight at the same time.

use std::cell::Cell;
use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The right to have one delete command in flight, or to read for one.
pub(crate) type Permit = OwnedSemaphorePermit;

/// A number of permits, which may change.
#[derive(Debug)]
pub(super) struct Permits {
    /// First come, first served: rules that ask again after each batch take turns.
    semaphore: Arc<Semaphore>,
    /// Number of permits at most.
    most: Cell<usize>,
    /// Permits above that number, which are not given out again.
    excess: Cell<usize>,
}

impl Permits {
    /// Creates so many permits; `None` for any number.
    pub(super) fn new(most: Option<u32>) -> Self {
        let most = number(most);
        Self { semaphore: Arc::new(Semaphore::new(most)), most: Cell::new(most), excess: Cell::new(0) }
    }

    /// Changes the number of permits. Those that are held stay until they are returned.
    pub(super) fn set(&self, most: Option<u32>) {
        let most = number(most);
        let before = self.most.replace(most);
        if most < before {
            let free = self.semaphore.forget_permits(before - most);
            self.excess.set(self.excess.get() + (before - most - free));
        } else {
            let kept = self.excess.get().min(most - before);
            self.excess.set(self.excess.get() - kept);
            self.semaphore.add_permits(most - before - kept);
        }
    }

    /// Waits for a permit.
    pub(super) async fn acquire(&self) -> Permit {
        loop {
            // The semaphore is never closed.
            let permit = self.semaphore.clone().acquire_owned().await.expect("an open semaphore");
            match self.excess.get().checked_sub(1) {
                None => return permit,
                Some(left) => {
                    self.excess.set(left);
                    permit.forget();
                }
            }
        }
    }
}

fn number(most: Option<u32>) -> usize {
    most.and_then(|most| usize::try_from(most).ok()).unwrap_or(Semaphore::MAX_PERMITS)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    /// Takes all permits that are free.
    fn all(permits: &Permits) -> Vec<Permit> {
        std::iter::from_fn(|| permits.acquire().now_or_never()).collect()
    }

    #[tokio::test]
    async fn a_number_that_becomes_smaller_holds_once_permits_are_returned_and_a_larger_one_at_once() {
        let permits = Permits::new(Some(4));
        let mut held = all(&permits);
        assert_eq!(held.len(), 4);
        held.pop();
        permits.set(Some(2));
        assert_eq!(all(&permits).len(), 0);
        held.pop();
        assert_eq!(all(&permits).len(), 0, "two are held");
        let third = held.pop();
        let waiting = permits.acquire();
        tokio::pin!(waiting);
        drop(third);
        held.extend(waiting.now_or_never());
        assert_eq!((held.len(), all(&permits).len()), (2, 0));
        // Permits in excess are kept first.
        permits.set(Some(1));
        permits.set(Some(4));
        held.extend(all(&permits));
        assert_eq!(held.len(), 4);
        permits.set(Some(1));
        permits.set(Some(3));
        held.truncate(2);
        held.extend(all(&permits));
        assert_eq!(held.len(), 3);
        drop(held);
        assert_eq!(all(&permits).len(), 3);
    }

    #[tokio::test]
    async fn any_number_may_become_a_number_and_any_number_again() {
        let permits = Permits::new(None);
        let first = permits.acquire().await;
        permits.set(Some(1));
        assert_eq!(all(&permits).len(), 0);
        drop(first);
        assert_eq!(all(&permits).len(), 1);
        permits.set(None);
        assert!(permits.acquire().now_or_never().is_some());
    }
}
