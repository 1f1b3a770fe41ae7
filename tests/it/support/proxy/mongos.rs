//! A mongos, as far as it can be told from outside: what it says of itself. The documents are all on one server behind it.

use std::io;

use mongodb::bson::Document;

use super::Call;

/// Answers as the server does, under another name.
pub async fn answer(call: &mut Call<'_>) -> io::Result<Document> {
    let mut reply = call.forward().await?;
    if matches!(call.name.as_str(), "hello" | "isMaster" | "ismaster") {
        // Source: MongoDB manual, "hello", "Sharded Instances".
        reply.insert("msg", "isdbgrid");
        reply.remove("topologyVersion");
    }
    Ok(reply)
}
