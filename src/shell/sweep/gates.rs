//! Gates that hold a rule back: for its members, the oplog, the oldest document and the load of the server.

pub(super) mod head;
pub(super) mod lag;
pub(super) mod oplog;
pub(super) mod pressure;
