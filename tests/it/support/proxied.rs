//! A case on the shared server, reached through the proxy that simulates one of Azure's services.

use mongodb::Client;
use mongodb::bson::Document;
use mongodb::error::{Error, ErrorKind};

use super::faults::{dated, days};
use super::proxy::{Proxy, Service};
use super::shared;
use super::sweeper::Case;

/// A case whose `uri` leads through the proxy, for `sweeper`. The client of the case connects directly.
pub(crate) struct Proxied {
    pub case: Case,
    pub proxy: Proxy,
    /// A client that connects through the proxy.
    pub client: Client,
}

impl Proxied {
    /// Creates a collection `c` with this many documents, all of the same expired date.
    pub(crate) async fn new(service: Service, documents: i32) -> Self {
        let case = Case::new().await;
        case.fill("c", dated(0..documents, days(-3))).await;
        Self::behind(service, case).await
    }

    pub(crate) async fn behind(service: Service, mut case: Case) -> Self {
        let mongod = tokio::task::spawn_blocking(shared::standalone).await.expect("the shared server");
        let proxy = Proxy::start(mongod.port, service).await;
        case.uri = proxy.uri();
        let client = Client::with_uri_str(proxy.uri()).await.expect("a client");
        Self { case, proxy, client }
    }

    /// Runs a command through the proxy.
    pub(crate) async fn run(&self, command: Document) -> Result<Document, Error> {
        self.client.database(self.case.db.name()).run_command(command).await
    }

    /// Counts the documents left in `c` on mongod itself.
    pub(crate) async fn left(&self) -> usize {
        self.case.ids("c").await.len()
    }
}

/// Returns code and text of a command that failed.
pub(crate) fn refused(answer: Result<Document, Error>) -> (i32, String) {
    match *answer.expect_err("a refusal").kind {
        ErrorKind::Command(command) => (command.code, command.message),
        other => panic!("{other:?}"),
    }
}

/// Returns code and text of the first write error.
pub(crate) fn write_error(reply: &Document) -> (i32, &str) {
    let first = reply.get_array("writeErrors").ok().and_then(|errors| errors.first()?.as_document());
    let first = first.unwrap_or_else(|| panic!("no write error: {reply}"));
    (first.get_i32("code").expect("a code"), first.get_str("errmsg").expect("a text"))
}
