//! Comparison of a deployment's native TTL settings with the rules of a policy. Values in, values out: `server` reads and changes
//! the settings.

pub mod change;
pub mod diff;
pub mod notes;
pub mod own_ttl;
pub mod target;
pub mod verdict;
