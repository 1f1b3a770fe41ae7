//! Deletes expired documents from MongoDB as a TTL index would, where a person wants to see, cap, pace and account for what goes.
//!
//! One way for the data:
//!
//! ```text
//! policy -> facts from the server -> plan -> dry run, or sweep -> report -> rendering
//! ```
//!
//! Values in, values out are [`policy`], [`expiry`], [`facts`], [`flavor`], [`plan`], [`approval`], [`pace`], [`schedule`],
//! [`native`], [`audit`], [`init`], [`instant`] and [`report`].
//!
//! Around them: [`cli`] reads the command line, and [`commands`] leads each command, with one file of its name. It goes through [`server`], which alone
//! talks to MongoDB, [`sweep`], which deletes, [`archive`], which keeps what is deleted, and [`lock`] and [`stop`], which keep runs apart and end
//! them. [`output`], [`log`] and [`progress`] are what others see of a run; [`failure`] and [`exit`] are how it ends.

pub mod approval;
pub mod archive;
pub mod audit;
pub mod cli;
pub mod commands;
pub mod exit;
pub mod expiry;
pub mod facts;
pub mod failure;
pub mod flavor;
pub mod init;
pub mod instant;
pub mod lock;
pub mod log;
pub mod native;
pub mod output;
pub mod pace;
pub mod plan;
pub mod policy;
pub mod progress;
pub mod report;
pub mod schedule;
pub mod server;
pub mod stop;
pub mod sweep;
pub mod text;
pub mod values;

#[cfg(test)]
mod floors;
