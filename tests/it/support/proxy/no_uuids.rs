//! A server that announces MongoDB 6.0 and does not take `collectionUUID`, as services that imitate a version do.

use std::io;

use mongodb::bson::{Document, doc};

use super::Call;

/// Forwards to mongod, but for commands with `collectionUUID`.
pub(super) async fn answer(call: &mut Call<'_>) -> io::Result<Document> {
    if call.command.contains_key("collectionUUID") {
        // As mongod 5.0 answers (`src/mongo/idl/idl_parser.cpp`).
        let why = format!("BSON field '{}.collectionUUID' is an unknown field.", call.name);
        return Ok(doc! { "ok": 0.0, "errmsg": why, "code": 40415, "codeName": "Location40415" });
    }
    call.forward().await
}
