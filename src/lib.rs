//! Deletes expired documents from MongoDB as a TTL index would, where a person wants to see, cap, pace and account for what goes.
//!
//! One way for the data:
//!
//! ```text
//! policy -> facts from the server -> plan -> dry run, or sweep -> report -> rendering
//! ```
//!
//! [`policy`], [`expiry`], [`index`], [`plan`], [`approval`], [`pace`], [`native`], [`audit`] and [`report`] are values in, values out. [`run`] leads
//! a run through [`server`], which talks to MongoDB, and [`sweep`], which deletes.

pub mod approval;
pub mod archive;
pub mod audit;
pub mod cli;
pub mod digest;
pub mod exit;
pub mod expiry;
pub mod facts;
pub mod failure;
pub mod index;
pub mod init;
pub mod lock;
pub mod log;
pub mod native;
pub mod output;
pub mod pace;
pub mod plan;
pub mod policy;
pub mod progress;
pub mod report;
pub mod run;
pub mod server;
pub mod service;
pub mod stop;
pub mod sweep;
