//! TLS: private authorities, client certificates, encrypted keys, and X.509 users.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

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
    let ran = sweep(&site, &plain).await;
    assert_not_connected(&ran, &["closed the connection without an answer", "hint: add `tls=true`"]);
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
    assert_not_connected(&ran, &["no suitable server answered in time", "tlsCertificateKeyFile="]);
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
        let said =
            "`tlsCertificateKeyFilePassword` does not decrypt the private key of `tlsCertificateKeyFile`; nothing was contacted";
        assert!(ran.stderr.contains(said), "{ran:?}");
        assert_silent_about(&ran, &["Sesame"]);
    }
    assert_eq!(ids(&c).await, id_set([1, 2]));
}

/// Returns a server that accepts only TLS and has this certificate.
fn with_certificate(certificates: &Certificates, pem: &str) -> Mongod {
    let ca = certificates.text("ca.pem");
    let args = ["--tlsMode", "requireTLS", "--tlsCertificateKeyFile", pem, "--tlsCAFile", &ca];
    Mongod::spawn(&[&args[..], &["--tlsAllowConnectionsWithoutCertificates"]].concat())
}

#[tokio::test]
async fn a_certificate_for_another_host_is_no_matter_of_the_authority() {
    let (certificates, site) = (Certificates::new(), Site::new());
    let mongod = with_certificate(&certificates, &certificates.server_for("db.example.com"));
    let ran = sweep(&site, &format!("{}&tls=true&tlsCAFile={}", mongod.uri(), certificates.text("ca.pem"))).await;
    let host = format!("127.0.0.1:{}: the server's certificate is not for `127.0.0.1`, but for `db.example.com`", mongod.port);
    assert_not_connected(&ran, &[&host, "hint: connect by a name that is in the certificate"]);
    assert!(!ran.stderr.contains("tlsCAFile"), "the authority is correct: {ran:?}");
}

#[tokio::test]
async fn the_certificate_of_an_authority_as_that_of_a_server_is_named() {
    let (certificates, site) = (Certificates::new(), Site::new());
    let pem = certificates.authority_as_server();
    let mongod = with_certificate(&certificates, &pem);
    let ran = sweep(&site, &format!("{}&tls=true&tlsCAFile={pem}", mongod.uri())).await;
    assert_not_connected(&ran, &["a CA certificate as its server certificate", "basicConstraints=critical,CA:FALSE"]);
    assert_silent_about(&ran, &["Other", "CaUsed"]);
}

/// Played by `openssl s_server`: a mongod does not start with a certificate that has expired.
#[tokio::test]
async fn an_expired_certificate_is_named() {
    let (certificates, site) = (Certificates::new(), Site::new());
    let mut server = Command::new("openssl")
        .args(["s_server", "-accept", "127.0.0.1:0", "-cert", &certificates.expired_server(), "-naccept", "100"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("the command openssl is installed: it plays a server");
    let lines = BufReader::new(server.stdout.take().expect("a pipe")).lines();
    let said = lines.map_while(Result::ok).find_map(|line| Some(line.strip_prefix("ACCEPT 127.0.0.1:")?.to_owned()));
    let port = said.expect("the port of openssl s_server");
    let uri = format!("mongodb://127.0.0.1:{port}/?directConnection=true&tls=true&tlsCAFile={}", certificates.text("ca.pem"));
    let ran = sweep(&site, &uri).await;
    server.kill().expect("an end");
    server.wait().expect("the end");
    assert_not_connected(&ran, &["the server's certificate expired", "days ago", "hint: renew the server's certificate"]);
}

#[tokio::test]
async fn tls_with_a_server_that_has_none_is_named() {
    let (site, mongod) = (Site::new(), Mongod::start(&[]));
    let ran = sweep(&site, &format!("{}&tls=true", mongod.uri())).await;
    assert_not_connected(&ran, &["closed the connection", "hint: leave out `tls=true` if the server has no TLS"]);
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
