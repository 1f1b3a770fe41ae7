//! The server of the suites that run on every product: mongod, or the server that the environment names.

use std::sync::{Mutex, PoisonError};

use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::{Client, Database};
use ttl_sweeper::core::flavor::Flavor;

use super::cluster::{Cluster, middle};
use super::proxy::router::Sharded;
use super::sweeper::Case;

/// The reason for which a test on another server is ignored, and the message of one that runs without such a server.
pub(crate) const HELP: &str = "set SWEEPER_TEST_URI to the connection string of a server on which the tests may create and drop databases \
                               (test_...), and SWEEPER_TEST_FLAVOR to its flavor: mongodb, documentDb or cosmosRu; or SWEEPER_TEST_ROUTER \
                               to a shard key for the router of the tests: hashed (of the `_id`), _id, at, tenant, or tenant,at";

/// A server on which a suite runs.
pub(crate) struct Server(On);

enum On {
    /// The mongod that many tests share.
    Shared,
    /// A router in front of two mongods, on which every collection is sharded by the same key.
    Router { sharded: Sharded, clusters: Mutex<Vec<Cluster>> },
    Named {
        uri: String,
        flavor: Flavor,
        /// The databases made for this test.
        made: Mutex<Vec<Database>>,
    },
}

impl Server {
    pub(crate) fn mongod() -> Self {
        Self(On::Shared)
    }

    /// Returns the server that the environment names; panics with [`HELP`] if it names none.
    pub(crate) fn named() -> Self {
        if let Ok(key) = std::env::var("SWEEPER_TEST_ROUTER") {
            return Self(On::Router { sharded: sharded(&key), clusters: Mutex::default() });
        }
        let variable = |name| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set; {HELP}"));
        let (uri, name) = (variable("SWEEPER_TEST_URI"), variable("SWEEPER_TEST_FLAVOR"));
        let flavors = [Flavor::MongoDb, Flavor::DocumentDb, Flavor::CosmosRu];
        let flavor = flavors.into_iter().find(|flavor| flavor.name() == name);
        let flavor = flavor.unwrap_or_else(|| panic!("SWEEPER_TEST_FLAVOR is `{name}`; {HELP}"));
        Self(On::Named { uri, flavor, made: Mutex::default() })
    }

    pub(crate) fn flavor(&self) -> Flavor {
        match &self.0 {
            On::Shared | On::Router { .. } => Flavor::MongoDb,
            On::Named { flavor, .. } => *flavor,
        }
    }

    /// Whether an index holds such values. The DocumentDB engine refuses code with a scope in one (`pgbsonelement.c`: "Invalid
    /// single value document").
    pub(crate) fn indexes(&self, value: &Bson) -> bool {
        match value {
            Bson::JavaScriptCodeWithScope(_) => self.flavor() != Flavor::DocumentDb,
            Bson::Array(items) => items.iter().all(|item| self.indexes(item)),
            Bson::Document(document) => document.values().all(|inner| self.indexes(inner)),
            _ => true,
        }
    }

    /// Leaves out the documents with a value that no index holds, and those with a list where the shard key has no list.
    pub(crate) fn indexable(&self, documents: &[Document]) -> Vec<Document> {
        let is_key = |document: &Document| !(self.shards_by_date() && matches!(document.get("at"), Some(Bson::Array(_))));
        let is_indexable = |document: &&Document| is_key(document) && document.values().all(|value| self.indexes(value));
        documents.iter().filter(is_indexable).cloned().collect()
    }

    pub(crate) fn is_router(&self) -> bool {
        matches!(self.0, On::Router { .. })
    }

    /// Whether the date `at` is in the shard key of every collection.
    pub(crate) fn shards_by_date(&self) -> bool {
        matches!(&self.0, On::Router { sharded, .. } if sharded.key.contains_key("at"))
    }

    /// Creates a case with a new database.
    pub(crate) async fn case(&self) -> Case {
        match &self.0 {
            On::Shared => Case::new().await,
            On::Router { sharded, clusters } => {
                let cluster = Cluster::new().await;
                cluster.router.shard_new_collections(sharded.clone());
                let client = Client::with_uri_str(&cluster.case.uri).await.expect("a client");
                let case = Case::at(&cluster.case.uri, client, cluster.case.db.name());
                clusters.lock().unwrap_or_else(PoisonError::into_inner).push(cluster);
                case
            }
            On::Named { uri, made, .. } => {
                let client = Client::with_uri_str(uri).await.expect("SWEEPER_TEST_URI is a connection string");
                let id = ObjectId::new();
                let case = Case::at(uri, client, &format!("test_{id}"));
                made.lock().unwrap_or_else(PoisonError::into_inner).push(case.db.clone());
                case
            }
        }
    }

    /// Drops the databases that the test has made on a server of others.
    pub(crate) async fn clean(self) {
        let On::Named { made, .. } = self.0 else { return };
        for database in made.into_inner().unwrap_or_else(PoisonError::into_inner) {
            database.drop().await.expect("the database of the test is dropped");
        }
    }
}

/// Returns the shard key that SWEEPER_TEST_ROUTER names, with two chunks; panics with [`HELP`] if it names another one.
fn sharded(key: &str) -> Sharded {
    let two_days_ago = || Bson::from(DateTime::from_millis(DateTime::now().timestamp_millis() - 2 * 86_400_000));
    match key {
        "hashed" => Sharded::halves(doc! { "_id": "hashed" }, middle()),
        "_id" => Sharded::halves(doc! { "_id": 1 }, [Bson::from(10)]),
        "at" => Sharded::halves(doc! { "at": 1 }, [two_days_ago()]),
        "tenant" => Sharded::halves(doc! { "tenant": 1 }, ["t3".into()]),
        "tenant,at" => Sharded::halves(doc! { "tenant": 1, "at": 1 }, ["t3".into(), two_days_ago()]),
        other => panic!("SWEEPER_TEST_ROUTER is `{other}`; {HELP}"),
    }
}

/// Makes two tests of each function that takes a [`Server`]: one on mongod, and an ignored one on the server that the environment
/// names.
macro_rules! on_servers {
    ($($name:ident),+ $(,)?) => {
        mod on_mongod {
            $(
                #[tokio::test]
                async fn $name() {
                    super::$name(&$crate::support::server::Server::mongod()).await;
                }
            )+
        }

        mod on_any_server {
            $(
                // A test may block its own thread, and the router has to go on.
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                #[ignore = "needs SWEEPER_TEST_URI and SWEEPER_TEST_FLAVOR, or SWEEPER_TEST_ROUTER"]
                async fn $name() {
                    let server = $crate::support::server::Server::named();
                    super::$name(&server).await;
                    server.clean().await;
                }
            )+
        }
    };
}
pub(crate) use on_servers;
