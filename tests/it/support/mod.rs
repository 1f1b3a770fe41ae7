//! Support shared by the server tests: a real mongod, and the real `sweeper` as a process.
pub(crate) mod archives;
pub(crate) mod audit;
pub(crate) mod cluster;
pub(crate) mod corpus;
pub(crate) mod exposition;
pub(crate) mod family;
pub(crate) mod faults;
pub(crate) mod filled;
pub(crate) mod mongod;
pub(crate) mod native;
pub(crate) mod oracle;
pub(crate) mod page;
pub(crate) mod ports;
