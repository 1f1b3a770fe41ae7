//! A mongos, simulated only by its `hello`. All documents are on one server behind it.

use std::io;

use mongodb::bson::Document;

use super::Call;

/// Forwards to mongod, and changes the reply to `hello`.
pub(super) async fn answer(call: &mut Call<'_>) -> io::Result<Document> {
    let mut reply = call.forward().await?;
    if matches!(call.name.as_str(), "hello" | "isMaster" | "ismaster") {
        // Source: MongoDB manual, "hello", "Sharded Instances".
        reply.insert("msg", "isdbgrid");
        reply.remove("topologyVersion");
    }
    Ok(reply)
}
