//! A case on the shared server, reached through the proxy that simulates one of Azure's services.

use std::time::Duration;

use mongodb::Client;
use mongodb::bson::{Document, doc};
use mongodb::error::{Error, ErrorKind};

use super::faults::{dated, days};
use super::pool;
use super::proxy::cosmos::CosmosRu;
use super::proxy::{Proxy, Service};
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

    /// Creates the same behind an account of Cosmos DB.
    pub(crate) async fn cosmos(settings: CosmosRu, documents: i32) -> Self {
        Self::new(Service::CosmosRu(settings), documents).await
    }

    pub(crate) async fn behind(service: Service, mut case: Case) -> Self {
        let mongod = tokio::task::spawn_blocking(pool::standalone).await.expect("the shared server");
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

/// Returns a command that deletes what expired a day ago.
pub(crate) fn delete_all() -> Document {
    doc! { "delete": "c", "deletes": [{ "q": { "at": { "$lte": days(-1) } }, "limit": 0 }] }
}

/// Returns the number of documents in the reply to a `delete`.
pub(crate) fn deleted(reply: &Document) -> i32 {
    reply.get_i32("n").unwrap()
}

/// Asserts that a reply has these fields with these values.
#[track_caller]
pub(crate) fn assert_says(reply: &Document, part: &Document) {
    assert!(part.iter().all(|(key, value)| reply.get(key) == Some(value)), "{part} in {reply}");
}

/// Returns the wait that the text of a refusal names.
pub(crate) fn wait_of(text: &str) -> Duration {
    let digits: String = text.split("RetryAfterMs=").nth(1).unwrap().chars().take_while(char::is_ascii_digit).collect();
    Duration::from_millis(digits.parse().unwrap())
}
