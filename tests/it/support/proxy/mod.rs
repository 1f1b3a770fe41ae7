//! A wire-protocol proxy in front of a real mongod. It simulates services that speak MongoDB's protocol without being MongoDB:
//! Azure Cosmos DB for MongoDB (RU) and the engine of Azure DocumentDB. mongod stores the documents and runs the deletes. It also
//! plays a mongos in front of several mongods.

pub(crate) mod cosmos;
pub(crate) mod document_db;
pub(crate) mod errors;
pub(crate) mod fault;
mod mongos;
mod no_uuids;
mod partial;
pub(crate) mod router;
mod upstream;
mod wire;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use mongodb::bson::Document;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use cosmos::{Account, CosmosRu, Statistics, Usage};
use document_db::DocumentDb;
use fault::{Fault, Faults};
use router::Router;
use upstream::Upstream;

/// The service that the proxy simulates.
pub(crate) enum Service {
    CosmosRu(CosmosRu),
    DocumentDb(DocumentDb),
    Mongos,
    /// A mongos in front of several mongods, of which the proxy's is the first.
    Router(Arc<Router>),
    /// A server that refuses `collectionUUID`.
    NoUuids,
    /// A member of a replica set, as it is. What is simulated is the network.
    Member,
}

/// A command as it was received, before any change.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub name: String,
    /// Name and target: `find c`, `getMore c`, `explain find`; commands of the driver itself have kinds of their own.
    pub kind: String,
    pub body: Document,
    pub at: Instant,
}

/// A proxy on a free loopback port. Dropping it closes its connections.
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    listening: JoinHandle<()>,
}

struct Shared {
    mongod_port: u16,
    host: String,
    player: Player,
    faults: Faults,
    requests: Mutex<Vec<Request>>,
    /// Whether the network in front of the proxy is cut.
    is_cut: watch::Sender<bool>,
}

enum Player {
    CosmosRu(Box<Account>),
    DocumentDb(DocumentDb),
    Mongos,
    Router(Arc<Router>),
    NoUuids,
    Member,
}

/// A command on its way to the server.
pub(crate) struct Call<'a> {
    pub name: String,
    pub kind: String,
    pub command: Document,
    /// Length of the message that contained the command.
    pub bytes: usize,
    pub upstream: &'a mut Upstream,
    /// Address of the proxy.
    pub host: &'a str,
    /// The last command on this connection with a request charge.
    pub last: &'a mut Option<Statistics>,
    /// The number of documents after which a `delete` must stop, and the error for the rest.
    pub stop: Option<(u64, Document)>,
}

impl Call<'_> {
    /// Forwards the command to mongod.
    pub(crate) async fn forward(&mut self) -> io::Result<Document> {
        self.upstream.run(&self.command).await
    }
}

impl Proxy {
    pub(crate) async fn start(mongod_port: u16, service: Service) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("the port of a listener");
        let player = match service {
            Service::CosmosRu(settings) => Player::CosmosRu(Box::new(Account::new(settings))),
            Service::DocumentDb(settings) => Player::DocumentDb(settings),
            Service::Mongos => Player::Mongos,
            Service::Router(router) => Player::Router(router),
            Service::NoUuids => Player::NoUuids,
            Service::Member => Player::Member,
        };
        let shared = Shared {
            mongod_port,
            host: address.to_string(),
            player,
            faults: Faults::default(),
            requests: Mutex::default(),
            is_cut: watch::Sender::new(false),
        };
        let shared = Arc::new(shared);
        if let Player::CosmosRu(account) = &shared.player {
            let mut upstream = Upstream::connect(mongod_port).await.expect("a connection to mongod");
            account.prepare(&mut upstream).await.expect("collections in another form");
        }
        let listening = tokio::spawn(listen(listener, Arc::clone(&shared)));
        Self { address, shared, listening }
    }

    /// Returns a connection string like the one in Azure's portal, except for user and TLS.
    pub(crate) fn uri(&self) -> String {
        let host = self.address;
        match self.shared.player {
            Player::CosmosRu(_) => {
                format!("mongodb://{host}/?replicaSet=globaldb&retrywrites=false&maxIdleTimeMS=120000&appName=@account@")
            }
            Player::DocumentDb(_) => format!("mongodb://{host}/?retrywrites=false&maxIdleTimeMS=120000"),
            Player::Mongos | Player::Router(_) => format!("mongodb://{host}/"),
            Player::NoUuids | Player::Member => format!("mongodb://{host}/?directConnection=true"),
        }
    }

    /// Returns all commands received so far, in order.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the commands of one name received so far.
    pub(crate) fn requests_of(&self, name: &str) -> Vec<Request> {
        self.requests().into_iter().filter(|request| request.name == name).collect()
    }

    /// Returns the consumption of request units; none for a service without request units.
    pub(crate) fn usage(&self) -> Usage {
        match &self.shared.player {
            Player::CosmosRu(account) => account.usage(),
            Player::DocumentDb(_) | Player::Mongos | Player::Router(_) | Player::NoUuids | Player::Member => Usage::default(),
        }
    }

    /// Plays the part of Cosmos DB's background task that deletes what native TTL has expired.
    pub(crate) async fn purge(&self) {
        if let Player::CosmosRu(account) = &self.shared.player {
            let mut upstream = Upstream::connect(self.shared.mongod_port).await.expect("a connection to mongod");
            account.purge(&mut upstream).await.expect("a purge");
        }
    }

    /// Closes all connections, with the commands on them, and each new one, until [`Self::heal`].
    pub(crate) fn cut(&self) {
        self.shared.is_cut.send_replace(true);
    }

    pub(crate) fn heal(&self) {
        self.shared.is_cut.send_replace(false);
    }

    /// Returns the planned faults.
    pub(crate) fn faults(&self) -> &Faults {
        &self.shared.faults
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listening.abort();
    }
}

/// Returns the name of the field in `hello`, or the older `isMaster`, that marks a server which accepts writes.
fn writable(command: &str) -> &'static str {
    if command == "hello" { "isWritablePrimary" } else { "ismaster" }
}

fn kind(name: &str, body: &Document) -> String {
    if body.contains_key("client") {
        return format!("{name} of a handshake");
    }
    if matches!(name, "hello" | "isMaster") && !body.contains_key("lsid") {
        return format!("{name} of a monitor");
    }
    let target = match name {
        "getMore" => body.get_str("collection").ok(),
        "explain" => body.get_document("explain").ok().and_then(|explained| explained.keys().next()).map(String::as_str),
        _ => body.get_str(name).ok(),
    };
    target.map_or_else(|| name.to_owned(), |target| format!("{name} {target}"))
}

/// Serves each connection in a separate task; the tasks end with this one.
async fn listen(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    while let Ok((client, _)) = listener.accept().await {
        while connections.try_join_next().is_some() {}
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let mut cut = shared.is_cut.subscribe();
            tokio::select! {
                _ = cut.wait_for(|is_cut| *is_cut) => Ok(()),
                served = serve(client, Arc::clone(&shared)) => served,
            }
        });
    }
}

/// Answers commands until one side closes or breaks the connection, and then closes the other side.
async fn serve(mut client: TcpStream, shared: Arc<Shared>) -> io::Result<()> {
    client.set_nodelay(true)?;
    let mut upstream = Upstream::connect(shared.mongod_port).await?;
    let mut last = None;
    while let Some(message) = wire::read(&mut client).await? {
        let name = message.body.keys().next().cloned().unwrap_or_default();
        let kind = kind(&name, &message.body);
        shared.note(&name, &kind, &message.body);
        let (id, answered, bytes) = (message.id, message.answered, message.bytes);
        let mut command = message.body;
        // If asked to, mongod would compress its replies.
        command.remove("compression");
        let host = &shared.host;
        let call = Call { name, kind, command, bytes, upstream: &mut upstream, host, last: &mut last, stop: None };
        let Some(reply) = shared.answer(call).await? else { return Ok(()) };
        if answered {
            wire::write(&mut client, id, &reply).await?;
        }
    }
    Ok(())
}

impl Shared {
    fn note(&self, name: &str, kind: &str, body: &Document) {
        let request = Request { name: name.to_owned(), kind: kind.to_owned(), body: body.clone(), at: Instant::now() };
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(request);
    }

    /// Returns the reply, or `None` to close the connection instead.
    async fn answer(&self, mut call: Call<'_>) -> io::Result<Option<Document>> {
        let fault = self.faults.take(&call.name, &call.kind);
        match &fault {
            Some(Fault::Answer { reply, done: false }) => return Ok(Some(reply.clone())),
            Some(Fault::Close { done: false }) => return Ok(None),
            Some(Fault::Delay(time)) => tokio::time::sleep(*time).await,
            Some(Fault::Hold(gate)) => gate.opened().await,
            Some(Fault::WriteError { after, error }) => call.stop = Some((*after, error.clone())),
            _ => {}
        }
        let reply = match &self.player {
            Player::CosmosRu(account) => account.answer(&mut call).await?,
            Player::DocumentDb(cluster) => cluster.answer(&mut call).await?,
            Player::Mongos => mongos::answer(&mut call).await?,
            Player::Router(router) => router.answer(&mut call).await?,
            Player::NoUuids => no_uuids::answer(&mut call).await?,
            Player::Member => call.forward().await?,
        };
        Ok(match fault {
            Some(Fault::Answer { reply, .. }) => Some(reply),
            Some(Fault::Close { .. }) => None,
            Some(Fault::Hold(gate)) => {
                gate.note(&reply);
                Some(reply)
            }
            Some(Fault::Silence) => std::future::pending().await,
            _ => Some(reply),
        })
    }
}
