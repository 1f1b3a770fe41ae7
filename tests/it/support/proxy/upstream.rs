//! The proxy's own connection to the mongod behind it.

use std::io;

use mongodb::bson::{Bson, Document};
use tokio::net::TcpStream;

use super::wire;

/// One connection to mongod. Each client of the proxy has its own, as it would without the proxy.
pub struct Upstream(TcpStream);

impl Upstream {
    pub async fn connect(port: u16) -> io::Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        Ok(Self(stream))
    }

    /// Runs a command, `$db` included, and returns mongod's reply, which may be an error, without the times of a cluster: neither service
    /// has them.
    pub async fn run(&mut self, command: &Document) -> io::Result<Document> {
        wire::write(&mut self.0, 0, command).await?;
        let reply = wire::read(&mut self.0).await?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut body = reply.body;
        for key in ["$clusterTime", "operationTime", "topologyVersion", "electionId", "opTime"] {
            body.remove(key);
        }
        Ok(body)
    }
}

/// Whether mongod, or the service, calls the command done.
pub fn is_ok(reply: &Document) -> bool {
    whole(reply, "ok") == 1
}

/// A whole number of a command or a reply, 0 where there is none.
pub fn whole(document: &Document, key: &str) -> i64 {
    match document.get(key) {
        Some(Bson::Int32(n)) => i64::from(*n),
        Some(Bson::Int64(n)) => *n,
        // A cast from float saturates.
        Some(Bson::Double(n)) => *n as i64,
        Some(Bson::Boolean(true)) => 1,
        _ => 0,
    }
}

/// The statements of a `delete`, the stages of a pipeline, the members of a batch.
pub fn documents<'a>(document: &'a Document, key: &str) -> impl Iterator<Item = &'a Document> + use<'a> {
    document.get_array(key).into_iter().flatten().filter_map(Bson::as_document)
}
