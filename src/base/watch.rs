//! A channel of the latest value, as tokio's `watch`, which wakes its receivers in the order in which they began to wait. The
//! order of tokio's `watch` is random, and a simulation has to take the same steps again.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::sync::watch::error::RecvError;
use tokio::sync::watch::{self, Ref};

/// The side that sets the value.
#[derive(Debug)]
pub(crate) struct Sender<T> {
    // Dropped before `wakes`, so that whoever is woken by the end of the channel finds it closed.
    values: watch::Sender<T>,
    wakes: WakesAtTheEnd,
}

/// The side that reads the value, and waits for others.
#[derive(Debug)]
pub(crate) struct Receiver<T> {
    values: watch::Receiver<T>,
    wakes: Arc<Notify>,
}

/// Wakes all receivers when the sender is dropped.
#[derive(Debug)]
struct WakesAtTheEnd(Arc<Notify>);

impl Drop for WakesAtTheEnd {
    fn drop(&mut self) {
        self.0.notify_waiters();
    }
}

/// Creates a channel with its first value, which the receiver has seen.
pub(crate) fn channel<T>(first: T) -> (Sender<T>, Receiver<T>) {
    let sender = Sender::new(first);
    let receiver = sender.subscribe();
    (sender, receiver)
}

impl<T> Sender<T> {
    pub(crate) fn new(first: T) -> Self {
        Self { values: watch::Sender::new(first), wakes: WakesAtTheEnd(Arc::default()) }
    }

    /// Returns a receiver that has seen the present value.
    pub(crate) fn subscribe(&self) -> Receiver<T> {
        Receiver { values: self.values.subscribe(), wakes: self.wakes.0.clone() }
    }

    pub(crate) fn borrow(&self) -> Ref<'_, T> {
        self.values.borrow()
    }

    /// Sets the value, and returns the one before.
    pub(crate) fn send_replace(&self, value: T) -> T {
        let before = self.values.send_replace(value);
        self.wakes.0.notify_waiters();
        before
    }

    pub(crate) fn send_modify(&self, modify: impl FnOnce(&mut T)) {
        self.values.send_modify(modify);
        self.wakes.0.notify_waiters();
    }

    /// Changes the value; receivers see a new one only if `modify` returns true.
    pub(crate) fn send_if_modified(&self, modify: impl FnOnce(&mut T) -> bool) {
        if self.values.send_if_modified(modify) {
            self.wakes.0.notify_waiters();
        }
    }

    /// Whether no receiver exists any more.
    pub(crate) fn is_closed(&self) -> bool {
        self.values.is_closed()
    }

    /// Resolves once no receiver exists any more.
    pub(crate) async fn closed(&self) {
        self.values.closed().await;
    }
}

impl<T> Receiver<T> {
    pub(crate) fn borrow(&self) -> Ref<'_, T> {
        self.values.borrow()
    }

    /// Returns the present value, which counts as seen from now on.
    pub(crate) fn borrow_and_update(&mut self) -> Ref<'_, T> {
        self.values.borrow_and_update()
    }

    /// Takes the present value as seen.
    pub(crate) fn mark_unchanged(&mut self) {
        self.values.mark_unchanged();
    }

    /// Resolves once there is a value that this receiver has not seen, which then counts as seen.
    ///
    /// Errors: the sender is gone.
    pub(crate) async fn changed(&mut self) -> Result<(), RecvError> {
        loop {
            // First, so that no value falls between the look and the wait.
            let woken = self.wakes.notified();
            // Before the look: nothing is sent after the end.
            let end = self.values.has_changed().err();
            if self.values.borrow_and_update().has_changed() {
                return Ok(());
            }
            if let Some(end) = end {
                return Err(end);
            }
            woken.await;
        }
    }

    /// Resolves once the value, from the present one on, is of a kind.
    ///
    /// Errors: the sender is gone.
    pub(crate) async fn wait_for(&mut self, mut is_wanted: impl FnMut(&T) -> bool) -> Result<(), RecvError> {
        while !is_wanted(&self.values.borrow_and_update()) {
            self.changed().await?;
        }
        Ok(())
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Self { values: self.values.clone(), wakes: self.wakes.clone() }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::join_all;
    use parking_lot::Mutex;

    use super::*;

    #[tokio::test]
    async fn those_who_wait_are_woken_in_the_order_in_which_they_came() {
        for _ in 0..20 {
            let (sender, receiver) = channel(0);
            let woken = Mutex::new(Vec::new());
            let waits = (0..10).map(async |number| {
                receiver.clone().wait_for(|value| *value == 2).await.unwrap();
                woken.lock().push(number);
            });
            let sends = async {
                for value in [1, 2] {
                    tokio::task::yield_now().await;
                    sender.send_replace(value);
                }
            };
            tokio::join!(join_all(waits.collect::<Vec<_>>()), sends);
            assert_eq!(*woken.lock(), Vec::from_iter(0..10));
        }
    }

    #[tokio::test]
    async fn a_value_is_seen_once_and_the_last_one_also_after_the_end() {
        let (sender, mut receiver) = channel(0);
        sender.send_replace(1);
        sender.send_modify(|value| *value += 1);
        receiver.changed().await.unwrap();
        assert_eq!(*receiver.borrow(), 2);
        sender.send_if_modified(|_| false);
        let mut other = receiver.clone();
        let waits = tokio::spawn(async move { (receiver.changed().await.is_ok(), receiver.changed().await.is_err()) });
        tokio::task::yield_now().await;
        assert!(!waits.is_finished());
        sender.send_replace(3);
        drop(sender);
        assert_eq!(waits.await.unwrap(), (true, true));
        assert!(other.wait_for(|value| *value == 3).await.is_ok() && other.wait_for(|value| *value == 4).await.is_err());
    }

    #[tokio::test]
    async fn the_end_wakes_those_who_wait() {
        let (sender, mut receiver) = channel(());
        let waits = tokio::spawn(async move { receiver.changed().await.is_err() });
        tokio::task::yield_now().await;
        drop(sender);
        assert!(waits.await.unwrap());
    }
}
