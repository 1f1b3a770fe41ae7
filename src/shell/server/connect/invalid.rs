//! Reasons why the driver does not take a connection string, in words for people. The driver's own words quote values, and are
//! not passed on.

use std::net::Ipv4Addr;

use super::uri::may_be_password;
use crate::core::policy::nearest;

/// A kind of value of an option.
#[derive(Clone, Copy)]
enum OptionKind {
    Boolean,
    /// A whole number from the first to the second.
    Whole(i64, i64),
    /// Any of these words, in any case if the flag is set.
    Words(&'static [&'static str]),
    Text,
}

/// Mechanisms of authentication that the program has.
const MECHANISMS: &[&str] = if cfg!(feature = "cloud-auth") {
    &["SCRAM-SHA-1", "SCRAM-SHA-256", "MONGODB-X509", "PLAIN", "MONGODB-OIDC", "MONGODB-AWS"]
} else {
    &["SCRAM-SHA-1", "SCRAM-SHA-256", "MONGODB-X509", "PLAIN"]
};

/// Options that the driver 3.8 accepts (`client/options.rs`).
const OPTIONS: [(&str, OptionKind); 38] = [
    ("appName", OptionKind::Text),
    ("authMechanism", OptionKind::Words(MECHANISMS)),
    ("authMechanismProperties", OptionKind::Text),
    ("authSource", OptionKind::Text),
    ("compressors", OptionKind::Words(&["snappy", "zlib", "zstd"])),
    ("connectTimeoutMS", OptionKind::Whole(0, i64::MAX)),
    ("directConnection", OptionKind::Boolean),
    ("enableOverloadRetargeting", OptionKind::Boolean),
    ("heartbeatFrequencyMS", OptionKind::Whole(500, i64::MAX)),
    ("journal", OptionKind::Boolean),
    ("loadBalanced", OptionKind::Boolean),
    ("localThresholdMS", OptionKind::Whole(0, i64::MAX)),
    ("maxAdaptiveRetries", OptionKind::Whole(0, 0xFFFF_FFFF)),
    ("maxConnecting", OptionKind::Whole(1, 0xFFFF_FFFF)),
    ("maxIdleTimeMS", OptionKind::Whole(0, i64::MAX)),
    ("maxPoolSize", OptionKind::Whole(1, 0xFFFF_FFFF)),
    ("maxStalenessSeconds", OptionKind::Whole(90, i64::MAX)),
    ("minPoolSize", OptionKind::Whole(0, 0xFFFF_FFFF)),
    ("readConcernLevel", OptionKind::Text),
    ("readPreference", OptionKind::Words(&["primary", "primaryPreferred", "secondary", "secondaryPreferred", "nearest"])),
    ("readPreferenceTags", OptionKind::Text),
    ("replicaSet", OptionKind::Text),
    ("retryReads", OptionKind::Boolean),
    ("retryWrites", OptionKind::Boolean),
    ("serverMonitoringMode", OptionKind::Words(&["auto", "poll", "stream"])),
    ("serverSelectionTimeoutMS", OptionKind::Whole(0, i64::MAX)),
    ("srvMaxHosts", OptionKind::Whole(0, 0xFFFF_FFFF)),
    ("srvServiceName", OptionKind::Text),
    ("ssl", OptionKind::Boolean),
    ("tls", OptionKind::Boolean),
    ("tlsAllowInvalidCertificates", OptionKind::Boolean),
    ("tlsCAFile", OptionKind::Text),
    ("tlsCertificateKeyFile", OptionKind::Text),
    ("tlsCertificateKeyFilePassword", OptionKind::Text),
    ("tlsInsecure", OptionKind::Boolean),
    ("w", OptionKind::Text),
    ("wtimeoutMS", OptionKind::Whole(0, i64::MAX)),
    ("zlibCompressionLevel", OptionKind::Whole(-1, 9)),
];

/// Shape of a connection string, as messages tell it.
const SHAPE: &str = "expected `mongodb://user:password@host:port/?options`";

/// Says why the driver does not take a connection string, by the string itself and by the driver's words.
///
/// `is_ambiguous` says that its hosts may be part of a password: nothing of it is named then.
pub(super) fn why(uri: &str, words: &str, is_ambiguous: bool) -> String {
    let rest = uri.split_once("://").map_or(uri, |(_, rest)| rest);
    if is_ambiguous {
        if let Some(why) = of_port(rest) {
            return why;
        }
        let codes: Vec<String> = RESERVED.chars().map(code).collect();
        return format!("it has no clear meaning; {SHAPE}; in user and password write {}", codes.join(", "));
    }
    let (before, query) = rest.split_once('?').unwrap_or((rest, ""));
    let authority = before.split('/').next().unwrap_or_default();
    let (user_info, hosts) = authority.rsplit_once('@').map_or((None, authority), |(user, hosts)| (Some(user), hosts));
    let of_user = || user_info.and_then(of_user);
    let of_hosts = || hosts.split(',').find_map(of_host);
    let found = of_user().or_else(of_hosts).or_else(|| of_options(query));
    found.or_else(|| by_words(words).map(str::to_owned)).unwrap_or_else(|| format!("it is not valid; {SHAPE}"))
}

/// Characters that stand in no user and no password as they are.
const RESERVED: &str = "@:/?#[]%";

fn code(reserved: char) -> String {
    format!("`{reserved}` as `%{:02X}`", u32::from(reserved))
}

/// Says what is wrong with user and password. Only the characters are named that have to be written in another way.
fn of_user(user_info: &str) -> Option<String> {
    let (user, password) = user_info.split_once(':').map_or((user_info, None), |(user, password)| (user, Some(password)));
    [("user", Some(user)), ("password", password)].into_iter().find_map(|(name, text)| {
        let text = text?;
        let is_code = |at: usize| text.as_bytes().get(at + 1..at + 3).is_some_and(|code| code.iter().all(u8::is_ascii_hexdigit));
        let is_wrong = |reserved: &char| text.match_indices(*reserved).any(|(at, _)| *reserved != '%' || !is_code(at));
        let codes: Vec<String> = RESERVED.chars().filter(is_wrong).map(code).collect();
        if !codes.is_empty() {
            return Some(format!("its {name} has characters that are percent-encoded there; write {}", codes.join(", ")));
        }
        let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
        decoded.is_err().then(|| format!("its {name} has percent-encoded bytes that are not UTF-8"))
    })
}

/// Says what is wrong with the first port that is none, in a string whose hosts may be part of a password. Of these only an
/// address of IP or the digits of a port are named.
fn of_port(rest: &str) -> Option<String> {
    let (authority, tail) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let (has_user, hosts) = authority.rsplit_once('@').map_or((false, authority), |(_, hosts)| (true, hosts));
    let is_name = |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-._:[]".contains(c));
    if may_be_password(tail) {
        return None;
    }
    hosts.split(',').find_map(|host| {
        let (name, port) = host.rsplit_once(':').filter(|(name, _)| !host.ends_with(']') && is_name(name))?;
        let is_address =
            name == "localhost" || name.parse::<Ipv4Addr>().is_ok() || (name.starts_with('[') && name.ends_with(']'));
        if is_port(port) {
            return None;
        }
        let is_number = port.chars().all(|c| c.is_ascii_digit());
        Some(match (is_address, has_user, port.is_empty()) {
            (true, _, _) => format!("`{host}`: {A_PORT}"),
            (false, true, true) => format!("a host ends in `:`; {A_PORT}, or none without the `:`"),
            (false, true, false) if is_number => format!("the port `{port}`: {A_PORT}"),
            (false, true, false) => format!("the port of a host is no number; {A_PORT}"),
            (false, false, _) => {
                format!("what follows a `:` is no port; {A_PORT}, or `@` and a host behind user and password")
            }
        })
    })
}

const A_PORT: &str = "expected a port from 1 to 65535";

fn of_host(host: &str) -> Option<String> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, port)) => (name, port.strip_prefix(':')),
            None => return Some(format!("`{host}` has no `]`; expected an address of IPv6 such as `[::1]:27017`")),
        },
        None if host.matches(':').count() > 1 => {
            return Some(format!("`{host}` has several colons; expected `[::1]:27017` for IPv6"));
        }
        None => host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port))),
    };
    if name.is_empty() {
        return Some(format!("a host is missing; {SHAPE}"));
    }
    (!port.is_none_or(is_port)).then(|| format!("`{host}`: {A_PORT}"))
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok_and(|port| port > 0)
}

/// Says what is wrong with one of the options. Values are not named.
fn of_options(query: &str) -> Option<String> {
    let mut seen: Vec<String> = Vec::new();
    query.split('&').filter(|pair| !pair.is_empty()).find_map(|pair| {
        // A text without `=` may be part of a password.
        let Some((key, value)) = pair.split_once('=') else {
            return Some("an option has no value; expected `name=value`".to_owned());
        };
        let Some((name, kind)) = OPTIONS.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)) else {
            let near = nearest(key, OPTIONS.iter().map(|(name, _)| *name)).map(|near| format!("; expected `{near}`?"));
            return Some(format!("unknown option `{key}`{}", near.unwrap_or_default()));
        };
        if seen.contains(&key.to_lowercase()) && *name != "readPreferenceTags" {
            return Some(format!("`{name}` is repeated with another value; expected it once"));
        }
        seen.push(key.to_lowercase());
        let value = percent_encoding::percent_decode_str(value).decode_utf8_lossy();
        expected(name, *kind, &value).map(|expected| format!("`{name}`: expected {expected}"))
    })
}

/// Returns what is expected of an option in place of its value; `None` if the value is of its kind.
fn expected(name: &str, kind: OptionKind, value: &str) -> Option<String> {
    match kind {
        OptionKind::Text => None,
        OptionKind::Boolean => (!["true", "false"].contains(&value)).then(|| "`true` or `false`".to_owned()),
        OptionKind::Whole(min, max) => {
            let unit = if name.ends_with("MS") { " of milliseconds" } else { "" };
            let until = if max < i64::MAX { format!(" and at most {max}") } else { String::new() };
            let is_one = value.parse::<i64>().is_ok_and(|value| (min..=max).contains(&value));
            (!is_one).then(|| format!("a whole number{unit}, at least {min}{until}"))
        }
        OptionKind::Words(words) => {
            // The driver takes the names of mechanisms only in capital letters.
            let is_word = |part: &str| {
                words.iter().any(|word| if name == "authMechanism" { *word == part } else { word.eq_ignore_ascii_case(part) })
            };
            let listed: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
            (!value.split(',').all(is_word)).then(|| format!("one of {}", listed.join(", ")))
        }
    }
}

/// Says what the driver's words mean about options that do not go together, and about files.
fn by_words(words: &str) -> Option<&'static str> {
    const KNOWN: [(&str, &str); 25] = [
        ("TLS options are set", "`tls` or `ssl` is `false`, and another option asks for TLS; leave one of them out"),
        ("TLS is disabled", "`tls` or `ssl` is `false`, and another option asks for TLS; leave one of them out"),
        ("if tls=false", "`tls` or `ssl` is `false`, and another option asks for TLS; leave one of them out"),
        ("cannot set both tlsinsecure", "`tlsInsecure` and `tlsAllowInvalidCertificates` are both given; leave one of them out"),
        ("SRV-style URI", "`directConnection=true` does not go with `mongodb+srv://`; leave it out"),
        ("srvMaxHosts and", "`srvMaxHosts` goes with neither `replicaSet` nor `loadBalanced=true`; leave it out"),
        ("non-SRV URI", "`srvServiceName` and `srvMaxHosts` go only with `mongodb+srv://`; leave them out"),
        ("with loadBalanced=true", "`loadBalanced=true` takes one host, without `replicaSet` and `directConnection`"),
        ("seeds with directConnection", "`directConnection=true` takes one host; leave it out, or name one host"),
        ("a port cannot be", "`mongodb+srv://` takes a host without a port; leave the port out"),
        ("with 'mongodb+srv'", "`mongodb+srv://` takes exactly one host"),
        ("empty authSource", "`authSource` is empty; expected a database such as `admin`"),
        ("username and mechanism", "no user before the `@`; expected `user:password@`"),
        ("sername provided for", "`authMechanism` needs a user; expected `user:password@` before the host"),
        ("Username for PLAIN", "`authMechanism` needs a user; expected `user:password@` before the host"),
        ("No password provided", "`authMechanism` needs a password; expected `user:password@` before the host"),
        ("specified with MONGODB-X509", "`authMechanism=MONGODB-X509` takes no password; leave it out"),
        ("only $external", "`authMechanism=MONGODB-X509` takes only `authSource=$external`; leave `authSource` out"),
        ("database name", "the name of the database has characters that no name has; options follow a `?`"),
        ("authMechanismProperties", "`authMechanismProperties`: expected pairs such as `NAME:value`, with commas between them"),
        ("valid read preference tag", "`readPreferenceTags`: expected pairs such as `dc:east`, with commas between them"),
        ("staleness", "`maxStalenessSeconds` goes only with a `readPreference` other than `primary`"),
        ("read preference", "`readPreferenceTags` goes only with a `readPreference` other than `primary`"),
        ("decrypt private key", "`tlsCertificateKeyFilePassword` does not decrypt the private key of `tlsCertificateKeyFile`"),
        ("`w` option", "`w`: expected `majority`, a number of members, or a tag"),
    ];
    let of_file = || {
        if words.contains("root certificate") {
            return Some("`tlsCAFile`: expected certificates in PEM");
        }
        let is_file = ["PEM", "certificate", "private key"].iter().any(|part| words.contains(part));
        is_file.then_some("`tlsCertificateKeyFile`: expected a certificate and its private key in PEM")
    };
    KNOWN.iter().find(|(part, _)| words.contains(part)).map(|(_, said)| *said).or_else(of_file)
}

#[cfg(test)]
mod tests {
    use mongodb::options::ClientOptions;

    use super::*;

    async fn said(uri: &str) -> String {
        let cause = ClientOptions::parse(uri).await.expect_err(uri);
        why(uri, &cause.to_string(), false)
    }

    #[tokio::test]
    async fn whatever_the_driver_refuses_is_said_in_words_of_our_own() {
        let no_tls = "`tls` or `ssl` is `false`, and another option asks for TLS; leave one of them out";
        let milliseconds = "`serverSelectionTimeoutMS`: expected a whole number of milliseconds, at least 0";
        let secondary = "`maxStalenessSeconds` goes only with a `readPreference` other than `primary`";
        let balanced = "`loadBalanced=true` takes one host, without `replicaSet` and `directConnection`";
        for (uri, expected) in [
            ("mongodb://u:p@ss@h", "its password has characters that are percent-encoded there; write `@` as `%40`"),
            (
                "mongodb://u:p:s@s@h",
                "its password has characters that are percent-encoded there; write `@` as `%40`, `:` as `%3A`",
            ),
            ("mongodb://u:p%ss@h", "its password has characters that are percent-encoded there; write `%` as `%25`"),
            ("mongodb://a[b:p@h", "its user has characters that are percent-encoded there; write `[` as `%5B`"),
            ("mongodb://u:%ff@h", "its password has percent-encoded bytes that are not UTF-8"),
            ("mongodb://u:p@/", "a host is missing; expected `mongodb://user:password@host:port/?options`"),
            ("mongodb://a,", "a host is missing; expected `mongodb://user:password@host:port/?options`"),
            ("mongodb://h:0", "`h:0`: expected a port from 1 to 65535"),
            ("mongodb://[::1:27017", "`[::1:27017` has no `]`; expected an address of IPv6 such as `[::1]:27017`"),
            ("mongodb://::1/", "`::1` has several colons; expected `[::1]:27017` for IPv6"),
            ("mongodb+srv://h:1/", "`mongodb+srv://` takes a host without a port; leave the port out"),
            ("mongodb+srv://a,b/", "`mongodb+srv://` takes exactly one host"),
            ("mongodb+srv://h/?directConnection=true", "`directConnection=true` does not go with `mongodb+srv://`; leave it out"),
            ("mongodb://h/?replicset=rs", "unknown option `replicset`; expected `replicaSet`?"),
            ("mongodb://h/?authsorce=x", "unknown option `authsorce`; expected `authSource`?"),
            ("mongodb://h/?elsewhere=x", "unknown option `elsewhere`"),
            ("mongodb://h/?authSource", "an option has no value; expected `name=value`"),
            ("mongodb://h/?w=1&w=2", "`w` is repeated with another value; expected it once"),
            ("mongodb://h/?tls=yes", "`tls`: expected `true` or `false`"),
            ("mongodb://h/?retrywrites=1", "`retryWrites`: expected `true` or `false`"),
            ("mongodb://h/?serverSelectionTimeoutMS=5s", milliseconds),
            ("mongodb://h/?maxPoolSize=x", "`maxPoolSize`: expected a whole number, at least 1 and at most 4294967295"),
            (
                "mongodb://h/?zlibCompressionLevel=12",
                "`zlibCompressionLevel`: expected a whole number, at least -1 and at most 9",
            ),
            ("mongodb://h/?compressors=zlib,lz4", "`compressors`: expected one of `snappy`, `zlib`, `zstd`"),
            (
                "mongodb://h/?readPreference=x",
                "`readPreference`: expected one of `primary`, `primaryPreferred`, `secondary`, `secondaryPreferred`, `nearest`",
            ),
            ("mongodb://h/?w=-1", "`w`: expected `majority`, a number of members, or a tag"),
            ("mongodb://h/?tls=true&ssl=false", no_tls),
            ("mongodb://h/?tls=false&ssl=true", no_tls),
            ("mongodb://h/?tls=false&tlsInsecure=true", no_tls),
            ("mongodb://h/?tls=false&tlsCAFile=x", no_tls),
            (
                "mongodb://h/?tlsInsecure=true&tlsAllowInvalidCertificates=true",
                "`tlsInsecure` and `tlsAllowInvalidCertificates` are both given; leave one of them out",
            ),
            ("mongodb://h/?authSource=", "`authSource` is empty; expected a database such as `admin`"),
            ("mongodb://@h", "no user before the `@`; expected `user:password@`"),
            ("mongodb://h/?authMechanism=SCRAM-SHA-1", "`authMechanism` needs a user; expected `user:password@` before the host"),
            ("mongodb://u@h/?authMechanism=PLAIN", "`authMechanism` needs a password; expected `user:password@` before the host"),
            ("mongodb://u:p@h/?authMechanism=MONGODB-X509", "`authMechanism=MONGODB-X509` takes no password; leave it out"),
            (
                "mongodb://u@h/?authMechanism=MONGODB-X509&authSource=a",
                "`authMechanism=MONGODB-X509` takes only `authSource=$external`; leave `authSource` out",
            ),
            ("mongodb://h/a%20b", "the name of the database has characters that no name has; options follow a `?`"),
            (
                "mongodb://h/?authMechanismProperties=x",
                "`authMechanismProperties`: expected pairs such as `NAME:value`, with commas between them",
            ),
            (
                "mongodb://h/?readPreference=nearest&readPreferenceTags=x",
                "`readPreferenceTags`: expected pairs such as `dc:east`, with commas between them",
            ),
            (
                "mongodb://h/?readPreferenceTags=a:b",
                "`readPreferenceTags` goes only with a `readPreference` other than `primary`",
            ),
            ("mongodb://h/?maxStalenessSeconds=100", secondary),
            ("mongodb://h/?readPreference=primary&maxStalenessSeconds=100", secondary),
            ("mongodb://h/?srvMaxHosts=1", "`srvServiceName` and `srvMaxHosts` go only with `mongodb+srv://`; leave them out"),
            ("mongodb://a,b/?directConnection=true", "`directConnection=true` takes one host; leave it out, or name one host"),
            ("mongodb://a,b/?loadBalanced=true", balanced),
            ("mongodb://a/?loadBalanced=true&replicaSet=x", balanced),
        ] {
            assert_eq!(said(uri).await, expected, "{uri}");
        }
        let mechanism = said("mongodb://u:p@h/?authMechanism=scram-sha-1").await;
        assert!(mechanism.starts_with("`authMechanism`: expected one of `SCRAM-SHA-1`, `SCRAM-SHA-256`, "), "{mechanism}");
    }

    /// A name that the driver does not know would be recommended, and one that is missing would be called unknown.
    #[tokio::test]
    async fn the_options_are_those_of_the_driver() {
        for (name, kind) in OPTIONS {
            let value = match kind {
                OptionKind::Boolean => "true".to_owned(),
                OptionKind::Whole(min, _) => min.to_string(),
                OptionKind::Words(words) => words[0].to_owned(),
                OptionKind::Text => "a:b".to_owned(),
            };
            let cause = ClientOptions::parse(format!("mongodb://u:p@h/?{name}={value}")).await.err();
            let unknown = cause.map(|cause| cause.to_string()).filter(|cause| cause.contains("invalid option"));
            assert_eq!(unknown, None, "{name}");
        }
    }

    #[test]
    fn a_port_that_is_none_is_named_where_it_cannot_be_a_password() {
        let port = "expected a port from 1 to 65535";
        let unclear = format!("what follows a `:` is no port; {port}, or `@` and a host behind user and password");
        for (uri, said) in [
            ("mongodb://localhost:99999/", format!("`localhost:99999`: {port}")),
            ("mongodb://127.0.0.1:abc", format!("`127.0.0.1:abc`: {port}")),
            ("mongodb://[::1]:70000/?x=y", format!("`[::1]:70000`: {port}")),
            ("mongodb://u:hunter2@127.0.0.1:/", format!("`127.0.0.1:`: {port}")),
            ("mongodb://u:hunter2@a:1,b.example.com:99999/", format!("the port `99999`: {port}")),
            ("mongodb://u:hunter2@h:/", format!("a host ends in `:`; {port}, or none without the `:`")),
            ("mongodb://u:p@ss:hunter2", format!("the port of a host is no number; {port}")),
            ("mongodb://u:hunter2", unclear.clone()),
            ("mongodb://db:99999", unclear),
        ] {
            let found = why(uri, "hunter2", true);
            assert_eq!(found, said, "{uri}");
            assert!(!found.contains("hunter2"), "{found}");
        }
    }

    #[test]
    fn nothing_is_named_of_a_string_without_a_clear_meaning() {
        let said = why("mongodb://u:hunter2/x@h", "hunter2", true);
        let codes =
            "`@` as `%40`, `:` as `%3A`, `/` as `%2F`, `?` as `%3F`, `#` as `%23`, `[` as `%5B`, `]` as `%5D`, `%` as `%25`";
        let shape = "expected `mongodb://user:password@host:port/?options`";
        assert_eq!(said, format!("it has no clear meaning; {shape}; in user and password write {codes}"));
    }
}
