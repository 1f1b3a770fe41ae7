//! What the server tests share: a real mongod, and the real `sweeper` as a process.

// Each test file uses its own part of this.
#![allow(dead_code)]

pub mod archives;
pub mod audit;
pub mod corpus;
pub mod exposition;
pub mod faults;
pub mod filled;
pub mod mongod;
pub mod native;
pub mod oracle;
pub mod page;
pub mod proxied;
pub mod proxy;
pub mod reference;
pub mod shim;
pub mod site;
pub mod sweeper;
pub mod terminal;
pub mod tls;
