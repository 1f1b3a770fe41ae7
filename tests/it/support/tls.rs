//! Certificates for the TLS tests: a private authority, one server and one client.

use std::path::{Path, PathBuf};
use std::process::Command;

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use tempfile::TempDir;

/// The subject of the client's certificate, as MongoDB writes the name of an X.509 user.
pub(crate) const CLIENT_SUBJECT: &str = "OU=clients,O=sweeper,CN=sweeper";

/// PEM files in a temporary directory.
pub(crate) struct Certificates {
    dir: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Certificates {
    /// Creates an authority that is trusted nowhere else, a server certificate for 127.0.0.1 and a client certificate.
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let key = KeyPair::generate().expect("a key");
        let mut params = params(&[], &[(DnType::CommonName, "Test authority")]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let ca = params.self_signed(&key).expect("a self-signed certificate");
        write(&dir.path().join("ca.pem"), &ca.pem());
        let issuer = Issuer::new(params, key);

        let server = params_for(
            &["127.0.0.1"],
            &[(DnType::OrganizationName, "servers"), (DnType::CommonName, "mongod")],
            ExtendedKeyUsagePurpose::ServerAuth,
        );
        // Not the organization of the client: MongoDB takes a client with the organization of the server for a member of the
        // cluster.
        let client = params_for(
            &[],
            &[
                (DnType::CommonName, "sweeper"),
                (DnType::OrganizationName, "sweeper"),
                (DnType::OrganizationalUnitName, "clients"),
            ],
            ExtendedKeyUsagePurpose::ClientAuth,
        );
        for (name, params) in [("server", server), ("client", client)] {
            write_signed(dir.path(), name, &params, &issuer);
        }
        Self { dir, issuer }
    }

    /// Writes certificate and key of a server with another name, and returns their path.
    pub(crate) fn server_for(&self, host: &str) -> String {
        let subject = [(DnType::CommonName, "mongod")];
        write_signed(self.dir.path(), "other", &params_for(&[host], &subject, ExtendedKeyUsagePurpose::ServerAuth), &self.issuer);
        self.text("other.pem")
    }

    /// Writes certificate and key of a server whose certificate ended in 2021, and returns their path.
    pub(crate) fn expired_server(&self) -> String {
        let mut params = params_for(&["127.0.0.1"], &[(DnType::CommonName, "mongod")], ExtendedKeyUsagePurpose::ServerAuth);
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2021, 1, 1);
        write_signed(self.dir.path(), "expired", &params, &self.issuer);
        self.text("expired.pem")
    }

    /// Writes certificate and key of an authority for 127.0.0.1, and returns their path.
    pub(crate) fn authority_as_server(&self) -> String {
        let mut params = params(&["127.0.0.1"], &[(DnType::CommonName, "Authority and server")]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a self-signed certificate");
        write(&self.path("self.pem"), &(certificate.pem() + &key.serialize_pem()));
        self.text("self.pem")
    }

    /// Returns the certificate of the client with its key encrypted under a password, as `openssl` writes it.
    pub(crate) fn encrypted_client(&self, password: &str) -> PathBuf {
        let output = Command::new("openssl")
            .args(["pkcs8", "-topk8", "-v2", "aes-256-cbc", "-in"])
            .arg(self.path("client.key"))
            .args(["-passout", &format!("pass:{password}")])
            .output()
            .expect("the command openssl is installed: it encrypts the key for this test");
        assert!(output.status.success(), "openssl pkcs8: {}", String::from_utf8_lossy(&output.stderr));
        let key = String::from_utf8(output.stdout).expect("PEM is text");
        assert!(key.contains("ENCRYPTED PRIVATE KEY"), "{key}");
        let certificate = std::fs::read_to_string(self.path("client.crt")).expect("the certificate");
        let path = self.path("client-encrypted.pem");
        write(&path, &(certificate + &key));
        path
    }

    /// Returns the path of `ca.pem`, `server.pem` or `client.pem`; the last two hold certificate and key.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Returns the path for a connection string or an argument. Paths of temporary directories need no escapes.
    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

fn params(names: &[&str], subject: &[(DnType, &str)]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
    let mut params = CertificateParams::new(names).expect("valid names");
    params.distinguished_name = rcgen::DistinguishedName::new();
    for (kind, value) in subject {
        params.distinguished_name.push(kind.clone(), *value);
    }
    params
}

fn params_for(names: &[&str], subject: &[(DnType, &str)], purpose: ExtendedKeyUsagePurpose) -> CertificateParams {
    let mut params = params(names, subject);
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![purpose];
    params
}

/// Writes a certificate with a new key, apart and together.
fn write_signed(dir: &Path, name: &str, params: &CertificateParams, issuer: &Issuer<'static, KeyPair>) {
    let key = KeyPair::generate().expect("a key");
    let certificate = params.signed_by(&key, issuer).expect("a signed certificate");
    write(&dir.join(format!("{name}.key")), &key.serialize_pem());
    write(&dir.join(format!("{name}.crt")), &certificate.pem());
    write(&dir.join(format!("{name}.pem")), &(certificate.pem() + &key.serialize_pem()));
}

fn write(path: &Path, text: &str) {
    std::fs::write(path, text).unwrap_or_else(|cause| panic!("writing {}: {cause}", path.display()));
}
