//! TLS: private authorities, client certificates, encrypted keys, and X.509 users.

use crate::support::mongod::Mongod;
use crate::support::site::{Secured, Site, assert_silent_about};
use crate::support::sweeper::{Ran, id_set, ids};
use crate::support::tls::{CLIENT_SUBJECT, Certificates};
use mongodb::bson::{DateTime, Document, doc};
use mongodb::{Client, Collection};

const RULES: &str = "  - {namespace: app.c, field: at, expireAfter: 1h}\n";

/// Returns arguments for a server that accepts only TLS and asks clients for a certificate.
fn server_args(certificates: &Certificates) -> Vec<String> {
    let (server, ca) = (certificates.text("server.pem"), certificates.text("ca.pem"));
    ["--tlsMode", "requireTLS", "--tlsCertificateKeyFile", &server, "--tlsCAFile", &ca].map(str::to_owned).to_vec()
}

/// Empties the collection, then inserts document 1, which has expired, and document 2, which has not.
async fn refill(client: &Client) -> Collection<Document> {
    let c = client.database("app").collection("c");
    c.delete_many(doc! {}).await.expect("an empty collection");
    let now = DateTime::now();
    let documents = [doc! { "_id": 1, "at": DateTime::from_millis(0) }, doc! { "_id": 2, "at": now }];
    c.insert_many(documents).await.expect("an insert");
    c
}

async fn sweep(site: &Site, uri: &str) -> Ran {
    site.run(&format!("{uri}&serverSelectionTimeoutMS=1000"), RULES, &["sweep", "-vv"]).await
}

fn assert_not_connected(ran: &Ran, said: &[&str]) {
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains("connecting to") && ran.stderr.contains("nothing was deleted"), "{ran:?}");
    for part in said {
        assert!(ran.stderr.contains(part), "{part:?}: {ran:?}");
    }
    assert_silent_about(ran, &["Kind:", "labels", "Error {", "Custom {"]);
}

#[tokio::test]
async fn the_servers_certificate_is_checked_against_the_named_authority() {
    let (certificates, site) = (Certificates::new(), Site::new());
    let mut args = server_args(&certificates);
    args.push("--tlsAllowConnectionsWithoutCertificates".to_owned());
    let mut mongod = Mongod::spawn(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let plain = mongod.uri();
    mongod.options = format!("tls=true&tlsCAFile={}", certificates.text("ca.pem"));
    let c = refill(&mongod.client().await).await;

    let stranger = Certificates::new();
    for uri in [format!("{plain}&tls=true"), format!("{plain}&tls=true&tlsCAFile={}", stranger.text("ca.pem"))] {
        let ran = sweep(&site, &uri).await;
        assert_not_connected(&ran, &["certificate", "hint: ", "tlsCAFile"]);
    }
    assert_not_connected(&sweep(&site, &plain).await, &["no suitable server answered in time"]);
    assert_eq!(ids(&c).await, id_set([1, 2]));

    let ran = sweep(&site, &mongod.uri()).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(ids(&c).await, id_set([2]));
    // `ssl` is the older name of this option.
    refill(&mongod.client().await).await;
    let ran = sweep(&site, &mongod.uri().replace("tls=true", "ssl=true")).await;
    assert_eq!((ran.code, ids(&c).await), (Some(0), id_set([2])), "{ran:?}");
    refill(&mongod.client().await).await;
    let ran = sweep(&site, &format!("{plain}&tls=true&tlsAllowInvalidCertificates=true")).await;
    assert_eq!((ran.code, ids(&c).await), (Some(0), id_set([2])), "{ran:?}");
}

#[tokio::test]
async fn client_certificates_let_in_and_name_the_user() {
    let (certificates, site) = (Certificates::new(), Site::new());
    let mut args = server_args(&certificates);
    args.extend(["--setParameter", "authenticationMechanisms=MONGODB-X509,SCRAM-SHA-256"].map(str::to_owned));
    let ca = format!("tls=true&tlsCAFile={}", certificates.text("ca.pem"));
    let client_pem = certificates.text("client.pem");
    let options = format!("{ca}&tlsCertificateKeyFile={client_pem}");
    let server = Secured::start(&args.iter().map(String::as_str).collect::<Vec<_>>(), &options);
    let root = server.root().await;
    let c = refill(&root).await;
    let roles = vec![doc! { "role": "readWrite", "db": "app" }];
    server.admin(doc! { "createUser": "scram", "pwd": "Sesame", "roles": roles.clone(), "mechanisms": ["SCRAM-SHA-256"] }).await;
    let base = format!("mongodb://{}/?directConnection=true", server.host());
    let x509 = "authMechanism=MONGODB-X509";

    // Without a certificate the server closes the connection; with a certificate that names no user, authentication fails.
    let without = server.uri("scram", "Sesame").replace(&options, &ca);
    let ran = sweep(&site, &without).await;
    assert_not_connected(&ran, &["no suitable server answered in time"]);
    assert_silent_about(&ran, &["Sesame"]);
    let ran = sweep(&site, &format!("{base}&{options}&{x509}")).await;
    assert_not_connected(&ran, &["uthentication failed"]);
    assert_eq!(ids(&c).await, id_set([1, 2]));

    let ran = sweep(&site, &server.uri("scram", "Sesame")).await;
    assert_eq!((ran.code, ids(&c).await), (Some(0), id_set([2])), "{ran:?}");

    let user = doc! { "createUser": CLIENT_SUBJECT, "roles": roles };
    let made = root.database("$external").run_command(user).await;
    made.expect("an X.509 user");
    let encrypted = certificates.encrypted_client("Sesame:42");
    let with_password = format!("{ca}&tlsCertificateKeyFile={}&tlsCertificateKeyFilePassword=Sesame%3A42", encrypted.display());
    for options in [&options, &with_password] {
        refill(&root).await;
        let ran = sweep(&site, &format!("{base}&{options}&{x509}&authSource=%24external")).await;
        assert_eq!((ran.code, ids(&c).await), (Some(0), id_set([2])), "{ran:?}");
        assert_silent_about(&ran, &["Sesame"]);
    }

    refill(&root).await;
    for options in [with_password.replace("%3A42", "%3A43"), with_password.replace("Password=Sesame%3A42", "Password=")] {
        let ran = sweep(&site, &format!("{base}&{options}&{x509}")).await;
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("decrypt private key"), "{ran:?}");
        assert_silent_about(&ran, &["Sesame"]);
    }
    assert_eq!(ids(&c).await, id_set([1, 2]));
}

#[tokio::test]
async fn a_certificate_for_another_host_is_no_matter_of_the_authority() {
    let (certificates, site) = (Certificates::new(), Site::new());
    let mut args = server_args(&certificates);
    args.push("--tlsAllowConnectionsWithoutCertificates".to_owned());
    let mongod = Mongod::spawn(&args.iter().map(String::as_str).collect::<Vec<_>>());
    let uri = format!("{}&tls=true&tlsCAFile={}", mongod.uri(), certificates.text("ca.pem"));
    let ran = sweep(&site, &uri.replace("127.0.0.1", "localhost")).await;
    assert_not_connected(&ran, &["certificate not valid for name"]);
    assert!(!ran.stderr.contains("tlsCAFile"), "the authority is correct: {ran:?}");
}

#[tokio::test]
async fn a_file_that_is_not_there_is_named() {
    let site = Site::new();
    for option in ["tlsCAFile", "tlsCertificateKeyFile"] {
        let ran = sweep(&site, &format!("mongodb://user:Sesame@127.0.0.1:1/?tls=true&{option}=/no/such/file.pem")).await;
        assert!(matches!(ran.code, Some(1 | 2)), "{ran:?}");
        assert_silent_about(&ran, &["Sesame"]);
        assert!(ran.stderr.contains(option) || ran.stderr.contains("/no/such/file.pem"), "{ran:?}");
        assert_silent_about(&ran, &["network error"]);
    }
}
