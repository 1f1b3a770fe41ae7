//! Servers shared by several tests.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::mongod::Mongod;
use super::pool::pool;

/// A value that the first test that needs it creates, and that ends with the pool. In a static variable it would never be
/// dropped, and the server process would outlive the tests.
pub(crate) struct Shared<T>(Mutex<Weak<T>>);

impl<T: Send + Sync + 'static> Shared<T> {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Weak::new()))
    }

    pub(crate) fn get(&self, start: impl FnOnce() -> T) -> Arc<T> {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let started = Arc::new(start());
            *shared = Arc::downgrade(&started);
            pool().keep(started.clone());
            started
        })
    }
}

/// Returns the standalone server of all tests that can share one.
pub(crate) fn standalone() -> Arc<Mongod> {
    static STANDALONE: Shared<Mongod> = Shared::new();
    STANDALONE.get(|| Mongod::start(&[]))
}
