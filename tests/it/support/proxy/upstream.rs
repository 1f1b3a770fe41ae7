//! The connection between the proxy and its mongod.

use std::io;

use mongodb::bson::{Bson, Document};
use tokio::net::TcpStream;

use super::wire;

/// A connection to mongod. Each client of the proxy gets a separate one, as without the proxy.
pub(crate) struct Upstream(TcpStream);

impl Upstream {
    pub(crate) async fn connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        Ok(Self(stream))
    }

    /// Runs a command, `$db` included, and returns the reply or error of mongod without cluster times, which neither service has.
    pub(crate) async fn run(&mut self, command: &Document) -> io::Result<Document> {
        wire::write(&mut self.0, 0, command).await?;
        let reply = wire::read(&mut self.0).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut body = reply.body;
        for key in ["$clusterTime", "operationTime", "topologyVersion", "electionId", "opTime"] {
            body.remove(key);
        }
        Ok(body)
    }
}

/// Whether the reply of mongod or the service reports success.
pub(super) fn is_ok(reply: &Document) -> bool {
    whole(reply, "ok") == 1
}

/// Returns an integer of a command or a reply, or 0 if it is missing.
pub(super) fn whole(document: &Document, key: &str) -> i64 {
    match document.get(key) {
        Some(Bson::Int32(n)) => i64::from(*n),
        Some(Bson::Int64(n)) => *n,
        // A cast from float saturates.
        Some(Bson::Double(n)) => *n as i64,
        Some(Bson::Boolean(true)) => 1,
        _ => 0,
    }
}

/// Returns the size of a document in bytes.
pub(super) fn size(document: &Document) -> usize {
    document.to_vec().map_or(0, |bytes| bytes.len())
}

/// Returns the documents in a list: the statements of a `delete`, the stages of a pipeline, the documents of a batch.
pub(super) fn documents<'a>(document: &'a Document, key: &str) -> impl Iterator<Item = &'a Document> + use<'a> {
    document.get_array(key).into_iter().flatten().filter_map(Bson::as_document)
}
