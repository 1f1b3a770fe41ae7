//! Options of the connection string: dropped, explained, refused, or passed on to the server.

use std::time::Duration;

use crate::support::mongod::Mongod;
use crate::support::site::{Site, assert_silent_about};
use crate::support::sweeper::{Case, Ran, id_set};
use mongodb::Client;
use mongodb::bson::{DateTime, Document, doc};
use serde_json::{Value, json};

const RULES: &str = "  - {namespace: DB.c, field: at, expireAfter: 1h}\n";

/// Empties the collection, then inserts document 1, which has expired, and document 2, which has not.
async fn refill(case: &Case) {
    case.collection("c").delete_many(doc! {}).await.expect("an empty collection");
    let now = DateTime::now();
    let expired = DateTime::from_millis(now.timestamp_millis() - 86_400_000);
    case.fill("c", [doc! { "_id": 1, "at": expired }, doc! { "_id": 2, "at": now }]).await;
}

/// Sweeps with these options added to the connection string.
async fn sweep(case: &mut Case, options: &str) -> Ran {
    let plain = case.uri.clone();
    case.uri = format!("{plain}&{options}");
    let ran = case.run(RULES, &["sweep", "-vv", "--format", "json"]).await;
    case.uri = plain;
    ran
}

#[tokio::test]
async fn options_of_other_drivers_are_dropped_with_a_warning() {
    let mut case = Case::new().await;
    for (options, named) in [
        ("timeoutMS=60000", "timeoutMS"),
        ("socketTimeoutMS=60000", "socketTimeoutMS"),
        ("sockettimeoutms=60000", "sockettimeoutms"),
        ("waitQueueTimeoutMS=100", "waitQueueTimeoutMS"),
        ("uuidRepresentation=standard", "uuidRepresentation"),
        ("useNewUrlParser=true&useUnifiedTopology=true", "useUnifiedTopology"),
        ("maxStalenessSeconds=-1", "maxStalenessSeconds"),
        ("tlsDisableOCSPEndpointCheck=true", "tlsDisableOCSPEndpointCheck"),
        ("slaveOk=true", "slaveOk"),
        ("directConnection=true", "repeated"),
        ("appName=x&appName=x", "repeated"),
    ] {
        refill(&case).await;
        let ran = sweep(&mut case, options).await;
        assert_eq!(ran.code, Some(0), "{options}: {ran:?}");
        assert_eq!(case.ids("c").await, id_set([2]), "{options}");
        let warning = ran.stderr.lines().find(|line| line.starts_with("warning: connection string"));
        assert!(warning.is_some(), "{options}: {ran:?}");
        assert!(ran.stderr.contains(named), "{options}: {ran:?}");
    }
}

#[tokio::test]
async fn an_option_under_its_old_and_its_new_name_is_used_once() {
    let mut case = Case::new().await;
    refill(&case).await;
    assert!(case.uri.contains("directConnection=true"));
    let ran = sweep(&mut case, "connect=direct").await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(case.ids("c").await, id_set([2]));
}

#[tokio::test]
async fn options_that_cannot_be_followed_are_explained() {
    let mut case = Case::new().await;
    refill(&case).await;
    for (options, said) in [
        ("noSuchOption=Sesame", "nosuchoption"),
        // Without a value it could be part of a password.
        ("authSource", "an option has no value; expected `name=value`"),
        ("tls=true&ssl=false", "`tls` or `ssl` is `false`, and another option asks for TLS; leave one of them out"),
        ("authSorce=Sesame", "unknown option `authSorce`; expected `authSource`?"),
        ("w=1&w=2&appName=Sesame", "repeated"),
        ("w=0", "w=0"),
        ("w=0&journal=false", "w=0"),
        ("w=-1", "`w`: expected `majority`, a number of members, or a tag"),
        ("tlsAllowInvalidHostnames=true", "host name"),
        ("ssl_ca_certs=/etc/ssl/Sesame.pem", "tlsCAFile"),
        ("compressors=lz4", "`compressors`: expected one of `snappy`, `zlib`, `zstd`"),
        ("serverSelectionTimeoutMS=Sesame", "serverselectiontimeoutms"),
    ] {
        let ran = sweep(&mut case, options).await;
        assert_eq!(ran.code, Some(2), "{options}: {ran:?}");
        assert_eq!(ran.stdout, "", "{options}");
        let error = ran.stderr.lines().find(|line| line.starts_with("error: ")).unwrap_or_default();
        assert!(
            error.contains("reading the connection string") && error.to_lowercase().contains(&said.to_lowercase()),
            "{options}: {ran:?}"
        );
        assert!(!ran.stderr.contains("command "), "{options}: nothing was contacted: {ran:?}");
        assert_silent_about(&ran, &["Sesame"]);
    }
    assert_eq!(case.ids("c").await, id_set([1, 2]));
}

#[tokio::test]
async fn a_write_concern_that_the_server_refuses_deletes_nothing() {
    let mut case = Case::new().await;
    refill(&case).await;
    for options in ["w=2", "w=nosuchtag"] {
        let ran = sweep(&mut case, options).await;
        assert_eq!(ran.code, Some(3), "{options}: {ran:?}");
        assert_eq!(case.ids("c").await, id_set([1, 2]), "{options}");
    }
}

/// A separate server, because these tests measure server-wide figures.
struct Lone {
    mongod: Mongod,
    client: Client,
    site: Site,
}

impl Lone {
    async fn new() -> Self {
        let mongod = Mongod::start(&[
            "--networkMessageCompressors",
            "zlib,snappy,zstd",
            "--setParameter",
            "logComponentVerbosity={command: {verbosity: 1}}",
        ]);
        Self { client: mongod.client().await, mongod, site: Site::new() }
    }

    /// Sweeps ten expired documents from a new collection, with these options in the connection string.
    async fn sweep(&self, collection: &str, options: &str) {
        let expired = DateTime::from_millis(0);
        let documents = (0..10).map(|id| doc! { "_id": id, "at": expired });
        let c = self.client.database("app").collection::<Document>(collection);
        c.insert_many(documents).await.expect("an insert");
        let rules = format!("  - {{namespace: app.{collection}, field: at, expireAfter: 1h}}\n");
        let uri = format!("{}&{options}", self.mongod.uri());
        let report = self.site.report(&uri, &rules, &[]).await;
        assert_eq!(report.ran.code, Some(0), "{options}: {report:?}");
        assert_eq!(c.count_documents(doc! {}).await.expect("a count"), 0, "{options}");
    }

    /// Returns the delete command on a collection from the log of the server.
    async fn logged(&self, collection: &str) -> Value {
        for _ in 0..100 {
            let log = std::fs::read_to_string(self.mongod.dir.path().join("log")).expect("the server's log");
            let attrs = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let mut attrs = attrs.map(|mut entry| entry["attr"].take());
            if let Some(found) = attrs.find(|attr| attr["command"]["delete"] == collection) {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("no delete from {collection} in the server's log");
    }

    /// Returns the bytes that the server has received and sent with a compressor.
    async fn compressed(&self, compressor: &str) -> [i64; 2] {
        let status = self.client.database("admin").run_command(doc! { "serverStatus": 1 }).await;
        let status = status.expect("serverStatus");
        let network = status.get_document("network").expect("network");
        let of = network.get_document("compression").and_then(|all| all.get_document(compressor));
        let of = of.unwrap_or_else(|_| panic!("{compressor} in {network}"));
        ["decompressor", "compressor"]
            .map(|side| of.get_document(side).and_then(|side| side.get_i64("bytesIn")).expect("bytesIn"))
    }
}

#[tokio::test]
async fn the_write_concern_and_the_names_reach_the_delete_command() {
    let lone = Lone::new().await;
    for (n, (options, concern, app)) in [
        ("retryWrites=true", json!({ "w": "majority" }), "sweeper"),
        ("w=1&appName=nightly", json!({ "w": 1 }), "nightly"),
        ("w=majority&wtimeoutMS=4321", json!({ "w": "majority", "wtimeout": 4321 }), "sweeper"),
        ("w=1&journal=true", json!({ "w": 1, "j": true }), "sweeper"),
        ("journal=false", json!({ "w": "majority", "j": false }), "sweeper"),
    ]
    .into_iter()
    .enumerate()
    {
        let collection = format!("c{n}");
        lone.sweep(&collection, options).await;
        let logged = lone.logged(&collection).await;
        assert_eq!(logged["command"]["writeConcern"], concern, "{options}: {logged}");
        assert_eq!(logged["appName"], app, "{options}");
        let comment = logged["command"]["comment"].as_str().unwrap_or_default();
        assert!(comment.starts_with("sweeper "), "the comment names the run: {logged}");
    }
}

#[tokio::test]
async fn each_compressor_is_used_when_it_is_asked_for() {
    let lone = Lone::new().await;
    lone.sweep("plain", "retryWrites=true").await;
    for compressor in ["zlib", "snappy", "zstd"] {
        assert_eq!(lone.compressed(compressor).await, [0, 0], "{compressor} before it was asked for");
    }
    for (options, compressor) in
        [("compressors=zlib", "zlib"), ("compressors=snappy,zlib", "snappy"), ("compressors=zstd", "zstd")]
    {
        lone.sweep(compressor, options).await;
        let bytes = lone.compressed(compressor).await;
        assert!(bytes.iter().all(|bytes| *bytes > 0), "{options}: {bytes:?}");
    }
}

/// Without the cargo feature the driver calls such a string invalid, and a person looks for the mistake in it.
#[tokio::test]
async fn a_mechanism_that_is_not_part_of_the_program_is_named() {
    let mut case = Case::new().await;
    let ran = sweep(&mut case, "authMechanism=MONGODB-AWS").await;
    assert_eq!((ran.code, ran.stderr.contains("the cargo feature `cloud-auth`")), (Some(2), true), "{ran:?}");
}
