//! The native TTL settings of a deployment compared with the rules of a policy. These are values only; [`crate::server`] reads and changes the
//! settings.

pub mod change;
pub mod diff;
pub mod import;
pub mod report;
pub mod target;
pub mod verdict;
pub mod yaml;
