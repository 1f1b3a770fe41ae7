//! Known reasons why no connection can be made: recognised by the words of the driver, of rustls and of the operating system, and
//! said in words for people.

use crate::base::text::{duration, plural};

/// A known reason why no connection can be made, the most telling first: where several servers fail for different reasons, the
/// first one is explained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ConnectObstacle {
    /// The driver does not speak the wire version of the server.
    WireVersion,
    Authentication,
    /// Something else than a server of MongoDB answered.
    OtherProtocol,
    /// A reply of the server is broken.
    UnreadableReply,
    /// The server belongs to another replica set than the connection string says.
    ReplicaSet,
    /// The members of the set have names that this machine does not reach.
    MemberNames,
    /// Members of the set answered, but none that takes writes.
    NoPrimary,
    /// The authority that signed the server's certificate is not trusted.
    Authority,
    /// The server's certificate is for another host.
    HostName,
    /// The server uses a CA certificate as its server certificate.
    AuthorityAsServer,
    /// The server's certificate is no longer valid, or not yet.
    Dates,
    /// The server's certificate is not accepted for another reason.
    Certificate,
    ClientCertificate,
    /// Something else than TLS came in answer to a TLS handshake.
    NoTls,
    /// The connection was closed during the TLS handshake.
    ClosedInHandshake,
    /// The connection was closed after the TLS handshake, before an answer.
    ClosedAfterHandshake,
    /// The connection was closed without an answer.
    Closed,
    /// The name of a host has no address.
    Unresolved,
    /// Nothing listens at the address.
    Refused,
    /// Something takes connections and does not answer.
    Silent,
}

impl ConnectObstacle {
    /// Returns what to do about the obstacle. `with_tls` says whether the connection string asks for TLS.
    pub(crate) fn hint(self, with_tls: bool) -> &'static str {
        match self {
            Self::WireVersion => {
                "the server is older than MongoDB 4.2, and so are accounts of Azure Cosmos DB with the API version 3.6 (wire version 6) or 4.0 (7): \
                 upgrade the account's API version to 4.2 or later, under Features in the Azure portal"
            }
            Self::Authentication => "check user, password and `authSource` of the connection string",
            Self::OtherProtocol => "check host and port: another program listens there",
            Self::UnreadableReply => {
                "check host and port, and what lies in between (proxy, gateway, firewall); the log of the server may say more"
            }
            Self::ReplicaSet => {
                "correct `replicaSet` in the connection string, or check that host and port belong to the set that you mean"
            }
            Self::MemberNames => {
                "let this machine resolve and reach the names of the members, or add `directConnection=true` to use only the server that is named"
            }
            Self::NoPrimary => "wait until the members have elected a primary; `rs.status()` shows why there is none",
            Self::Authority => {
                "name the authority that signed the server's certificate with `tlsCAFile=` in the connection string; \
                 if a file is named, it holds another one"
            }
            Self::HostName => {
                "connect by a name that is in the certificate, or give the server a certificate for this name (subjectAltName)"
            }
            Self::AuthorityAsServer => {
                "give the server a certificate of its own, signed by the authority: `openssl req -x509` makes a CA certificate \
                 unless it gets `-addext basicConstraints=critical,CA:FALSE`"
            }
            Self::Dates => "renew the server's certificate; if its dates are right, set the clock of this machine",
            Self::Certificate => {
                "give the server a certificate for TLS servers that is signed by an authority named with `tlsCAFile=`"
            }
            Self::ClientCertificate | Self::ClosedAfterHandshake => {
                "the server may ask for a certificate of the client: name it with `tlsCertificateKeyFile=` in the connection string"
            }
            Self::NoTls => "leave out `tls=true` if the server has no TLS, and check that a MongoDB server listens on the port",
            Self::Closed if !with_tls => {
                "add `tls=true` to the connection string if the server accepts only TLS, and check that a MongoDB server listens on the port"
            }
            Self::Closed | Self::ClosedInHandshake => {
                "leave out `tls=true` if the server has no TLS; otherwise look for the reason in the log of the server"
            }
            Self::Unresolved => "check how the host is written, and that this machine can resolve it",
            Self::Refused => "check host and port, and that the server runs and listens on this address",
            Self::Silent if with_tls => {
                "check host and port: another program may listen there; leave out `tls=true` \
                 if the server has no TLS, and see whether it hangs"
            }
            Self::Silent => {
                "check host and port: another program may listen there; add `tls=true` \
                 if the server accepts only TLS, and see whether it hangs"
            }
        }
    }
}

/// Says in words for people why a connection broke, if the words are known. They are taken from rustls 0.23 (`error.rs`),
/// tokio-rustls 0.26, the standard library and the operating system; none of them reports the reason in another way through the
/// driver.
pub(crate) fn known(words: &str) -> Option<(ConnectObstacle, String)> {
    use ConnectObstacle::{
        Authentication, ClientCertificate, Closed, ClosedAfterHandshake, ClosedInHandshake, NoTls, OtherProtocol, Refused,
        UnreadableReply, Unresolved, WireVersion,
    };
    if let Some((_, why)) = words.split_once("invalid peer certificate: ") {
        return Some(certificate(why));
    }
    let says = |part: &str| words.contains(part);
    let (obstacle, said) = if says("wire version") {
        (WireVersion, words.trim_end_matches('.'))
    } else if says("uthentication failed") {
        return Some((Authentication, refused_user(words)));
    } else if is_other_protocol(words) {
        (OtherProtocol, "what answers there does not speak MongoDB's protocol")
    } else if says("CertificateRequired") {
        (ClientCertificate, "the server asks for a certificate of the client")
    } else if says("received fatal alert") {
        (ClosedAfterHandshake, "the server refused the TLS connection")
    } else if says("InvalidContentType") {
        (NoTls, "the server does not answer in TLS")
    } else if says("tls handshake eof") {
        (ClosedInHandshake, "the server closed the connection during the TLS handshake, as one without TLS does")
    } else if says("close_notify") {
        (ClosedAfterHandshake, "the server closed the connection after the TLS handshake")
    } else if says("unexpected end of file") || says("Connection reset") || says("Broken pipe") {
        (Closed, "the server closed the connection without an answer")
    } else if says("early eof") {
        (UnreadableReply, "the connection was closed in the middle of a reply")
    } else if says("failed to lookup address") || says("No DNS results") {
        (Unresolved, "the name cannot be resolved")
    } else if says("Connection refused") {
        (Refused, "connection refused: nothing listens there")
    } else if says("No such file or directory") {
        (Refused, "there is no such socket")
    } else {
        return None;
    };
    Some((obstacle, said.to_owned()))
}

/// Whether the driver's words are of bytes that no server of MongoDB sends (mongo-rust-driver 3.8 `cmap/conn/wire`).
fn is_other_protocol(words: &str) -> bool {
    let parts = ["wire protocol opcode", "Invalid op code", "Message length", "OP_MSG response", "the reply would be"];
    parts.iter().any(|part| words.contains(part))
}

/// Says why a server takes no user, from the driver's `SCRAM failure: Authentication failed`.
pub(crate) fn refused_user(words: &str) -> String {
    let (mechanism, why) = words.split_once(" failure: ").unwrap_or(("", words));
    let says = |part: &str| why.contains(part);
    let why = if mechanism == "MONGODB-X509" && says("uthentication failed") {
        "the server has no user for the client's certificate"
    } else if says("uthentication failed") {
        "the server does not accept user and password"
    } else if says("not enabled") || says("nsupported mechanism") || says("not supported") {
        "the server does not offer this mechanism"
    } else if says("cred") {
        "no credentials were found"
    } else {
        "the server broke it off"
    };
    let mechanism = mechanism.rsplit(' ').next().filter(|name| !name.is_empty()).map(|name| format!(" ({name})"));
    format!("authentication failed{}: {why}", mechanism.unwrap_or_default())
}

/// Says why a certificate is not accepted. The name of a kind without words of its own is debug text of rustls, and is left out.
fn certificate(why: &str) -> (ConnectObstacle, String) {
    use ConnectObstacle::{Authority, AuthorityAsServer, Certificate, Dates, HostName};
    let says = |part: &str| why.contains(part);
    if says("UnknownIssuer") || says("BadSignature") {
        (Authority, "the server's certificate is not signed by an authority that is trusted here".into())
    } else if says("not valid for name") {
        (HostName, other_name(why))
    } else if says("CaUsedAsEndEntity") {
        (AuthorityAsServer, "the server uses a CA certificate as its server certificate".into())
    } else if says("certificate expired") || says("Expired") {
        (Dates, format!("the server's certificate expired{}", ago(why).unwrap_or_default()))
    } else if says("not valid yet") || says("NotValidYet") {
        (Dates, "the server's certificate is not valid yet".into())
    } else if says("extended key usage") || says("InvalidPurpose") {
        (Certificate, "the server's certificate is not meant for servers".into())
    } else {
        (Certificate, "the server's certificate is not valid".into())
    }
}

/// Names the hosts of a certificate that is for another one:
/// `certificate not valid for name "a"; certificate is only valid for DnsName("b")`.
fn other_name(why: &str) -> String {
    let mut quoted = why.split('"').skip(1).step_by(2);
    let Some(wanted) = quoted.next() else { return "the server's certificate is for another host".into() };
    let others: Vec<String> = quoted.take(3).map(|name| format!("`{name}`")).collect();
    let others = if others.is_empty() { String::new() } else { format!(", but for {}", others.join(", ")) };
    format!("the server's certificate is not for `{wanted}`{others}")
}

/// Returns the time since a certificate expired, from `... (86400 seconds ago)`.
fn ago(why: &str) -> Option<String> {
    let (_, since) = why.rsplit_once('(')?;
    let seconds: u64 = since.split(' ').next()?.parse().ok()?;
    Some(match seconds / 86_400 {
        0 => format!(" {} ago", duration(seconds * 1000)),
        days => format!(" {} ago", plural(days, "day")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_said_without_debug_text() {
        use ConnectObstacle::{
            Authority, AuthorityAsServer, Certificate, ClientCertificate, Closed, ClosedAfterHandshake, ClosedInHandshake, Dates,
            HostName, NoTls, OtherProtocol, Refused, UnreadableReply, Unresolved,
        };
        for (words, obstacle, said) in [
            ("invalid peer certificate: UnknownIssuer", Authority, "not signed by an authority that is trusted here"),
            ("invalid peer certificate: BadSignature", Authority, "not signed by an authority that is trusted here"),
            (
                "invalid peer certificate: certificate not valid for name \"localhost\"; certificate is only valid for \
                 DnsName(\"a.example.com\") or IpAddress(127.0.0.1)",
                HostName,
                "the server's certificate is not for `localhost`, but for `a.example.com`",
            ),
            (
                "invalid peer certificate: certificate not valid for name \"localhost\"; certificate is not valid for any names",
                HostName,
                "the server's certificate is not for `localhost`",
            ),
            (
                "invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))",
                AuthorityAsServer,
                "a CA certificate as its server certificate",
            ),
            (
                "invalid peer certificate: certificate expired: verification time 90 (UNIX), but certificate is not valid after 30 \
                 (60 seconds ago)",
                Dates,
                "the server's certificate expired 1m 00s ago",
            ),
            ("invalid peer certificate: NotValidYet", Dates, "not valid yet"),
            ("invalid peer certificate: InvalidPurpose", Certificate, "not meant for servers"),
            ("invalid peer certificate: Other(OtherError(UnsupportedCertVersion))", Certificate, "certificate is not valid"),
            ("received fatal alert: CertificateRequired", ClientCertificate, "asks for a certificate"),
            ("received fatal alert: HandshakeFailure", ClosedAfterHandshake, "refused the TLS connection"),
            ("received corrupt message of type InvalidContentType", NoTls, "does not answer in TLS"),
            ("tls handshake eof", ClosedInHandshake, "during the TLS handshake"),
            (
                "peer closed connection without sending TLS close_notify: https://",
                ClosedAfterHandshake,
                "after the TLS handshake",
            ),
            ("I/O error: unexpected end of file", Closed, "without an answer"),
            ("I/O error: Connection reset by peer (os error 104)", Closed, "without an answer"),
            ("failed to lookup address information: Name or service not known", Unresolved, "cannot be resolved"),
            ("I/O error: Connection refused (os error 111)", Refused, "nothing listens there"),
            ("I/O error: No such file or directory (os error 2)", Refused, "there is no such socket"),
            ("I/O error: early eof", UnreadableReply, "in the middle of a reply"),
            ("Invalid wire protocol opcode: 1347703880", OtherProtocol, "does not speak MongoDB's protocol"),
            ("Message length 1213486160 over maximum 48000000", OtherProtocol, "does not speak MongoDB's protocol"),
        ] {
            let (found, shown) = known(words).unwrap();
            assert_eq!(found, obstacle, "{words}");
            assert!(shown.contains(said), "{words}: {shown}");
            for debug in ["Other", "Error", "os error", "Unknown", "https", "DnsName"] {
                assert!(!shown.contains(debug), "{words}: {shown}");
            }
        }
        assert_eq!(known("the answer is 42"), None);
    }

    #[test]
    fn a_refused_user_is_said_in_plain_words() {
        for (words, said) in [
            ("SCRAM failure: Authentication failed.", "(SCRAM): the server does not accept user and password"),
            (
                "MONGODB-X509 failure: Authentication failed.",
                "(MONGODB-X509): the server has no user for the client's certificate",
            ),
            (
                "PLAIN failure: Received authentication for mechanism PLAIN which is not enabled",
                "(PLAIN): the server does not offer this mechanism",
            ),
            ("MONGODB-AWS failure: failed to get creds: x", "(MONGODB-AWS): no credentials were found"),
            ("SCRAM failure: mismatched nonce", "(SCRAM): the server broke it off"),
            ("bad auth : Authentication failed.", ": the server does not accept user and password"),
        ] {
            assert_eq!(refused_user(words).strip_prefix("authentication failed").unwrap().trim_start(), said, "{words}");
        }
    }

    #[test]
    fn a_closed_connection_means_the_opposite_with_and_without_tls() {
        assert!(ConnectObstacle::Closed.hint(false).contains("add `tls=true`"));
        assert!(ConnectObstacle::Closed.hint(true).contains("leave out `tls=true`"));
        assert!(ConnectObstacle::ClosedInHandshake.hint(true).contains("leave out `tls=true`"));
    }
}
