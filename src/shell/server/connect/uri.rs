//! Connection strings written for any driver: options that this driver refuses are dropped or replaced with a warning, or
//! explained in an error.

use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

/// A connection string that the driver accepts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Prepared {
    pub uri: String,
    /// Time after which the reply to a command counts as lost, if the string sets one: `socketTimeoutMS`.
    pub command_timeout: Option<Duration>,
    /// The options that were dropped or changed, each with the reason and without its value.
    pub warnings: Vec<String>,
}

/// The treatment of an option.
enum Treatment {
    Drop(&'static str),
    Replace(&'static str, &'static str),
    Refuse(&'static str),
}

/// Prepares a connection string for the driver.
///
/// Errors: the reason why it cannot be used. Neither warnings nor errors hold user names, passwords or other values.
pub(crate) fn prepare(uri: &str) -> Result<Prepared, String> {
    if !uri.starts_with("mongodb://") && !uri.starts_with("mongodb+srv://") {
        return Err("it does not start with `mongodb://` or `mongodb+srv://`".into());
    }
    let Some((base, query)) = uri.split_once('?') else {
        return Ok(Prepared { uri: uri.to_owned(), command_timeout: None, warnings: Vec::new() });
    };
    let mut warnings = Vec::new();
    let mut kept: Vec<String> = Vec::new();
    let mut command_timeout = None;
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        // 0 means no limit.
        let millis = value.parse().ok().filter(|millis| key.eq_ignore_ascii_case("socketTimeoutMS") && *millis > 0);
        command_timeout = millis.map(Duration::from_millis).or(command_timeout);
        match treatment(&key.to_lowercase(), &value.to_lowercase()) {
            None if kept.iter().any(|other| other.eq_ignore_ascii_case(pair)) => {
                warnings.push("connection string: an option is repeated; used once".into())
            }
            None => kept.push(pair.to_owned()),
            Some(Treatment::Drop(why)) => warnings.push(format!("connection string: `{key}` is ignored: {why}")),
            Some(Treatment::Replace(with, why)) => {
                warnings.push(format!("connection string: `{key}` is read as `{with}`: {why}"));
                if !kept.iter().any(|other| other.eq_ignore_ascii_case(with)) {
                    kept.push(with.to_owned());
                }
            }
            Some(Treatment::Refuse(why)) => return Err(format!("`{key}`: {why}")),
        }
    }
    let uri = if kept.is_empty() { base.to_owned() } else { format!("{base}?{}", kept.join("&")) };
    Ok(Prepared { uri, command_timeout, warnings })
}

/// Options that the Rust driver 3.8 does not accept, by their lower-case names.
fn treatment(key: &str, value: &str) -> Option<Treatment> {
    use Treatment::{Drop, Refuse, Replace};
    Some(match (key, value) {
        ("timeoutms", _) => Drop(
            "this driver has no such time limit; `--max-duration` bounds a run, and a dead server is noticed by its heartbeat",
        ),
        ("sockettimeoutms", _) => Drop(
            "it limits the wait for each reply, unless the server says that it is at work on the command; a dead server is noticed by its heartbeat",
        ),
        ("waitqueuetimeoutms" | "waitqueuemultiple", _) => Drop("the pool's queue is not limited"),
        ("uuidrepresentation", _) => Drop("it does not concern deletes"),
        ("tlsdisableocspendpointcheck" | "tlsdisablecertificaterevocationcheck", _) => {
            Drop("certificate revocation is not checked")
        }
        ("sslinvalidhostnameallowed" | "tlsallowinvalidhostnames", "true") => {
            Refuse("this driver always checks the host name; use a certificate for the name you connect to")
        }
        ("sslinvalidhostnameallowed" | "tlsallowinvalidhostnames", _) => Drop("the host name is always checked"),
        ("ssl_cert_reqs", "cert_none") => Replace("tlsAllowInvalidCertificates=true", "that is its current name"),
        ("ssl_cert_reqs", _) => Drop("certificates are checked"),
        ("ssl_ca_certs" | "sslcertificateauthorityfile", _) => Refuse("write `tlsCAFile`, its current name"),
        ("ssl_certfile" | "ssl_keyfile" | "sslclientcertificatekeyfile", _) => {
            Refuse("write `tlsCertificateKeyFile`, its current name")
        }
        ("connect", "direct") => Replace("directConnection=true", "that is its current name"),
        ("connect", _) => Drop("the topology is found by asking"),
        ("slaveok", _) => Drop("it has long been replaced by `readPreference`"),
        ("usenewurlparser" | "useunifiedtopology" | "usecreateindex" | "autoreconnect" | "keepalive", _) => {
            Drop("it belongs to the Node.js driver")
        }
        ("proxyhost" | "proxyport" | "proxyusername" | "proxypassword", _) => Refuse("this program connects through no proxy"),
        ("maxstalenessseconds", "-1") => Drop("-1 is the default"),
        _ => return None,
    })
}

/// Returns the scheme and the hosts, which may be shown. Only the scheme and the hosts of a string that has one meaning: anything
/// else may be part of a password that is not percent-encoded.
pub(crate) fn redacted(uri: &str) -> String {
    let Some((scheme, rest)) = split(uri) else { return "<redacted>".to_owned() };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, tail) = rest.split_at(end);
    let (user, hosts) = authority.rsplit_once('@').map_or((false, authority), |(_, hosts)| (true, hosts));
    let is_host = |host: &str| {
        (host.ends_with(']') || host.rsplit_once(':').is_none_or(|(_, port)| port.parse::<u16>().is_ok()))
            && host.chars().all(|c| c.is_ascii_alphanumeric() || "-._:[]%".contains(c))
    };
    if !hosts.split(',').all(is_host) || may_be_password(tail) {
        return format!("{scheme}://<redacted>");
    }
    format!("{scheme}://{}{hosts}", if user { "<redacted>@" } else { "" })
}

/// Returns the scheme and what follows it; `None` if the string does not begin with a scheme of MongoDB.
fn split(uri: &str) -> Option<(&str, &str)> {
    uri.split_once("://").filter(|(scheme, _)| ["mongodb", "mongodb+srv"].contains(scheme))
}

/// Whether what follows the hosts may still be part of the password: it has an `@` elsewhere than in the `appName`, where Azure
/// writes it.
pub(super) fn may_be_password(tail: &str) -> bool {
    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    let is_plain =
        |pair: &str| !pair.contains('@') || pair.split('=').next().is_some_and(|key| key.eq_ignore_ascii_case("appName"));
    path.contains('@') || !query.split('&').all(is_plain)
}

/// Returns the values of a connection string that are secret whoever reads them: the password, and the values of options that
/// hold one.
pub(crate) fn secrets(uri: &str) -> Vec<String> {
    let passwords = user_infos(uri).filter_map(|user_info| Some(user_info.split_once(':')?.1));
    let of_options = options(uri).filter_map(|(key, value)| match (key.to_lowercase().as_str(), value?) {
        ("tlscertificatekeyfilepassword", value) => Some(value),
        ("authmechanismproperties", value) => value.split(',').find_map(|pair| pair.strip_prefix("AWS_SESSION_TOKEN:")),
        _ => None,
    });
    passwords.chain(of_options).flat_map(as_written_and_decoded).collect()
}

/// Whether a connection string sets the time in which a server must be found.
pub(crate) fn sets_time(uri: &str) -> bool {
    let limits = ["serverSelectionTimeoutMS", "connectTimeoutMS"];
    options(uri).any(|(key, _)| limits.iter().any(|limit| limit.eq_ignore_ascii_case(key)))
}

/// Whether a connection string has a user whose password is missing. Users of X.509, Kerberos, AWS and OIDC have none.
pub(crate) fn lacks_password(uri: &str) -> bool {
    let is_without = |(key, value): (&str, Option<&str>)| {
        key.eq_ignore_ascii_case("authMechanism")
            && value.is_some_and(|value| {
                ["MONGODB-X509", "GSSAPI", "MONGODB-AWS", "MONGODB-OIDC"].iter().any(|name| name.eq_ignore_ascii_case(value))
            })
    };
    user(uri).is_some_and(|user| !user.is_empty() && !user.contains(':')) && !options(uri).any(is_without)
}

/// Returns the connection string with a password for its user.
pub(crate) fn with_password(uri: &str, password: &str) -> String {
    let password = utf8_percent_encode(password, NON_ALPHANUMERIC);
    match user(uri).zip(split(uri)) {
        Some((user, (scheme, rest))) => format!("{scheme}://{user}:{password}{}", &rest[user.len()..]),
        None => uri.to_owned(),
    }
}

/// Returns user and password of a connection string that has one meaning.
fn user(uri: &str) -> Option<&str> {
    let (_, rest) = split(uri).filter(|_| !redacted(uri).ends_with("<redacted>"))?;
    let authority = &rest[..rest.find(['/', '?']).unwrap_or(rest.len())];
    authority.rsplit_once('@').map(|(user, _)| user)
}

/// Returns what may be user and password, up to each `@`: a password that is not percent-encoded may hold one too.
fn user_infos(uri: &str) -> impl Iterator<Item = &str> {
    let rest = split(uri).map_or(uri, |(_, rest)| rest);
    rest.match_indices('@').map(|(at, _)| &rest[..at])
}

/// Returns the options of a connection string; one without `=` has no value.
fn options(uri: &str) -> impl Iterator<Item = (&str, Option<&str>)> {
    let query = uri.split_once('?').map_or("", |(_, query)| query);
    query.split('&').map(|pair| pair.split_once('=').map_or((pair, None), |(key, value)| (key, Some(value))))
}

fn as_written_and_decoded(value: &str) -> [String; 2] {
    [value.to_owned(), percent_decode_str(value).decode_utf8_lossy().into_owned()]
}

/// Returns the files that a connection string names, each with its option.
pub(crate) fn files(uri: &str) -> Vec<(&'static str, String)> {
    let query = uri.split_once('?').map_or("", |(_, query)| query);
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs
        .filter_map(|(key, value)| {
            let option = ["tlsCAFile", "tlsCertificateKeyFile"].into_iter().find(|option| option.eq_ignore_ascii_case(key))?;
            Some((option, percent_decode_str(value).decode_utf8_lossy().into_owned()))
        })
        .collect()
}

/// Maximum length of a file of certificates; the lists of operating systems have some 200 KiB.
const MAX_BYTES: u64 = 4 << 20;

/// Checks that a file of a connection string can be read, and that one of authorities holds a certificate: without one the driver
/// trusts nobody, and does not say so.
pub(crate) fn check_file(option: &str, path: &str) -> io::Result<()> {
    let mut text = Vec::new();
    File::open(path)?.take(MAX_BYTES).read_to_end(&mut text)?;
    let holds_none = !String::from_utf8_lossy(&text).contains("-----BEGIN CERTIFICATE-----");
    match option == "tlsCAFile" && holds_none {
        true => Err(io::Error::other("it holds no certificate; expected certificates in PEM")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_of_other_drivers_are_dropped_replaced_or_explained() {
        let prepared =
            prepare("mongodb://u:p%40ss@h:1/db?timeoutMS=5&w=1&retryWrites=true&socketTimeoutMS=9&connect=direct&w=1").unwrap();
        assert_eq!(prepared.uri, "mongodb://u:p%40ss@h:1/db?w=1&retryWrites=true&directConnection=true");
        assert_eq!(prepared.warnings.len(), 4);
        assert_eq!(prepared.command_timeout, Some(Duration::from_millis(9)));
        assert!(prepared.warnings.iter().all(|warning| !warning.contains("p%40ss")));
        let prepared = prepare("mongodb://a:b@h:10255/?ssl=true&appName=@acct@&uuidRepresentation=standard").unwrap();
        assert_eq!(prepared.uri, "mongodb://a:b@h:10255/?ssl=true&appName=@acct@");
        assert_eq!(prepare("mongodb://h?timeoutMS=1").unwrap().uri, "mongodb://h");
        assert_eq!(prepare("mongodb://h/?socketTimeoutMS=0&timeoutMS=5").unwrap().command_timeout, None);
        assert!(prepare("mongodb://h/?tlsAllowInvalidHostnames=true").unwrap_err().contains("host name"));
        assert!(prepare("localhost:27017").unwrap_err().contains("mongodb://"));
    }

    #[test]
    fn passwords_and_tokens_are_secret_as_written_and_decoded() {
        assert_eq!(secrets("mongodb://u:p%40ss@h/?authSource=admin"), ["p%40ss", "p@ss"]);
        assert_eq!(secrets("u:p:a@ss@h:1/?tlsCAFile=file:///x"), ["p:a", "p:a", "p:a@ss", "p:a@ss"]);
        let of_options = secrets("mongodb://h/?TLSCertificateKeyFilePassword=pw&authMechanismProperties=AWS_SESSION_TOKEN:t");
        assert_eq!(of_options, ["pw", "pw", "t", "t"]);
        assert_eq!(secrets("mongodb://u@h/?appName=x@y"), ["x@y"; 0]);
    }

    #[test]
    fn a_missing_password_is_noticed_and_put_in() {
        for (uri, lacks) in [
            ("mongodb://u@h:1/?a=b", true),
            ("mongodb+srv://u@h", true),
            ("mongodb://u:@h", false),
            ("mongodb://u:p@h", false),
            ("mongodb://@h", false),
            ("mongodb://h/?appName=@a@", false),
            ("mongodb://u@h/?authMechanism=MONGODB-X509", false),
            ("mongodb://u@h/?authmechanism=mongodb-aws", false),
            ("mongodb://u@h/?authMechanism=SCRAM-SHA-256", true),
            ("mongodb://u@x/@h", false),
            ("u@h", false),
        ] {
            assert_eq!(lacks_password(uri), lacks, "{uri}");
        }
        let whole = with_password("mongodb://u%40x@h1,h2/db?a=b", "p@ss:/é");
        assert_eq!(whole, "mongodb://u%40x:p%40ss%3A%2F%C3%A9@h1,h2/db?a=b");
        assert!(secrets(&whole).contains(&"p@ss:/é".to_owned()));
    }

    #[test]
    fn a_time_limit_in_the_string_is_noticed() {
        assert!(sets_time("mongodb://h/?a=b&serverselectiontimeoutms=9"));
        assert!(sets_time("mongodb://h/?connectTimeoutMS=9"));
        assert!(!sets_time("mongodb://h/?socketTimeoutMS=9"));
    }

    #[test]
    fn only_hosts_are_shown() {
        for (uri, shown) in [
            ("mongodb://u:secret@h1:1,h2:2/db?x=1", "mongodb://<redacted>@h1:1,h2:2"),
            ("mongodb+srv://u:se/cr?et@h/db", "mongodb+srv://<redacted>"),
            ("mongodb://u:se?cr@et@h/db", "mongodb://<redacted>"),
            ("mongodb://user:First/Second@h", "mongodb://<redacted>"),
            ("mongodb://user:FirstSecond", "mongodb://<redacted>"),
            ("mongodb://[::1]:27017", "mongodb://[::1]:27017"),
            ("mongodb://[::1]/", "mongodb://[::1]"),
            ("mongodb://h", "mongodb://h"),
            ("mongodb://a:b@h:10255/?ssl=true&appName=@acct@", "mongodb://<redacted>@h:10255"),
            ("secret", "<redacted>"),
            ("u:secret@127.0.0.1:1/?tlsCAFile=file:///x", "<redacted>"),
            ("mongo://u:secret@h", "<redacted>"),
            ("http://secret/?x=mongodb://h", "<redacted>"),
            ("mongodb://u:first@second/rest@h:1", "mongodb://<redacted>"),
            ("mongodb://u:first@second/?a=b@h:1", "mongodb://<redacted>"),
            ("mongodb://u:first@second;rest", "mongodb://<redacted>"),
            ("mongodb://u:first@sec\u{1b}ond", "mongodb://<redacted>"),
        ] {
            assert_eq!(redacted(uri), shown, "{uri}");
        }
    }
}
