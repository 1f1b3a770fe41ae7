//! Servers that several tests use.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::mongod::Mongod;

/// What the first test that needs it starts. It ends with the last one that holds it: a static value would outlive the tests, and its
/// process this one.
pub struct Shared<T>(Mutex<Weak<T>>);

impl<T> Shared<T> {
    pub const fn new() -> Self {
        Self(Mutex::new(Weak::new()))
    }

    pub fn get(&self, start: impl FnOnce() -> T) -> Arc<T> {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shared.upgrade().unwrap_or_else(|| {
            let started = Arc::new(start());
            *shared = Arc::downgrade(&started);
            started
        })
    }
}

/// Returns the standalone server of all tests that need none of their own.
pub fn standalone() -> Arc<Mongod> {
    static STANDALONE: Shared<Mongod> = Shared::new();
    STANDALONE.get(|| Mongod::start(&[]))
}
