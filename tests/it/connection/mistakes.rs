//! Mistakes in a connection string are named: another replica set, a host or a port that is not there, and how long that takes.

use crate::support::mongod::Mongod;
use crate::support::ports::{ClosedPort, listener};
use crate::support::replica_set::ReplicaSet;
use crate::support::site::{Site, assert_silent_about};
use crate::support::sweeper::{Ran, sweeper};
use crate::support::terminal::Terminal;

const RULES: &str = "  - {namespace: app.c, field: at, expireAfter: 1h}\n";

fn assert_said(ran: &Ran, said: &[&str]) {
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
    for part in ["connecting to", "nothing was deleted", "hint: "].iter().chain(said) {
        assert!(ran.stderr.contains(part), "{part:?}: {ran:?}");
    }
    assert_silent_about(ran, &["firewalls", "Kind:", "os error"]);
}

#[tokio::test]
async fn another_replica_set_than_the_one_that_is_asked_for_is_named() {
    let (site, set, single) = (Site::new(), ReplicaSet::start(1, &[]), Mongod::start(&[]));
    let (member, single) = (format!("127.0.0.1:{}", set.members[0].port), format!("127.0.0.1:{}", single.port));
    let of_set = format!("`{member}` belongs to the replica set `rs0`, but `replicaSet` of the connection string is `rsX`");
    let of_none = format!("`{single}` belongs to no replica set, but `replicaSet` of the connection string is `rsX`");
    for (uri, said) in [
        (format!("mongodb://{member}/?replicaSet=rsX"), &of_set),
        (format!("mongodb://{member}/?replicaSet=rsX&directConnection=true"), &of_set),
        (format!("mongodb://{single}/?replicaSet=rsX"), &of_none),
    ] {
        let ran = site.run(&format!("{uri}&serverSelectionTimeoutMS=5000"), RULES, &["sweep"]).await;
        assert_said(&ran, &[said, "hint: correct `replicaSet`"]);
    }
}

#[tokio::test]
async fn a_host_that_has_no_address_and_a_port_where_nothing_listens_are_told_apart() {
    let (site, closed) = (Site::new(), ClosedPort::new());
    let of = |host: &str| format!("mongodb://user:Sesame@{host}/?serverSelectionTimeoutMS=1000");
    let ran = site.run(&of("nowhere.invalid:27017"), RULES, &["sweep"]).await;
    assert_said(&ran, &["nowhere.invalid:27017: the name cannot be resolved", "hint: check how the host is written"]);
    assert_silent_about(&ran, &["Sesame"]);
    let ran = site.run(&of(&format!("127.0.0.1:{}", closed.port)), RULES, &["sweep"]).await;
    let said = format!("(1 s): 127.0.0.1:{}: connection refused: nothing listens there", closed.port);
    assert_said(&ran, &[&said, "hint: check host and port"]);
}

/// A reply in MongoDB's protocol whose document has an element of a type that does not exist.
const BROKEN_BSON: &[u8] = b"\x20\0\0\0\x01\0\0\0\0\0\0\0\xdd\x07\0\0\0\0\0\0\0\x0b\0\0\0\x63ok\0ab\0";

/// The beginning of such a reply.
const CUT_OFF: &[u8] = BROKEN_BSON.split_at(20).0;

/// A reply that is shorter than its own header.
const TOO_SHORT: &[u8] = b"\x04\0\0\0\x01\0\0\0\0\0\0\0\xdd\x07\0\0";

#[tokio::test]
async fn a_port_that_says_nothing_and_one_that_says_something_else_are_told_apart() {
    let site = Site::new();
    let other =
        ["what answers there does not speak MongoDB's protocol", "hint: check host and port: another program listens there"];
    let unreadable = |why| [why, "hint: check host and port, and what lies in between"];
    for (answer, options, said) in [
        (&b""[..], "", ["something listens there, but does not answer as a MongoDB server does", "add `tls=true` if"]),
        (b"", "&connectTimeoutMS=300", ["something listens there, but does not answer", "see whether it hangs"]),
        (b"", "&tls=true", ["something listens there, but does not answer", "leave out `tls=true` if"]),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "", other),
        (b"SSH-2.0-OpenSSH_9.2p1\r\n", "", other),
        (BROKEN_BSON, "", unreadable("the reply cannot be read: it ")),
        (CUT_OFF, "", unreadable("the connection was closed in the middle of a reply")),
        (TOO_SHORT, "", unreadable("the reply cannot be read: its length is wrong")),
    ] {
        let host = format!("127.0.0.1:{}", listener(answer));
        let uri = format!("mongodb://user:Sesame@{host}/?serverSelectionTimeoutMS=1000{options}");
        for args in [&["sweep", "--dry-run"][..], &["check", "--connect"]] {
            let ran = site.run(&uri, RULES, args).await;
            assert_said(&ran, &[&format!("in time (1 s): {host}: {}", said[0]), said[1]]);
            assert_silent_about(&ran, &["Sesame", "driver", "eof"]);
        }
    }
}

/// The time comes from the message; no clock is read here.
#[tokio::test]
async fn a_person_at_a_terminal_is_told_what_is_tried_and_waits_for_five_seconds() {
    let (site, closed) = (Site::new(), ClosedPort::new());
    let policy = site.policy("", RULES);
    let uri = format!("mongodb://127.0.0.1:{}/", closed.port);
    let command = |uri: &str| {
        let mut command = sweeper(&["sweep", "--yes", "--uri", uri, "--policy"]);
        command.arg(&policy);
        command
    };
    let on_terminal = |uri: &str| Terminal::open(&command(uri)).end();
    let limits = ["serverSelectionTimeoutMS=7000", "serverSelectionTimeoutMS=6000&connectTimeoutMS=20000"];
    let limited = limits.map(|limit| format!("{uri}?{limit}"));
    let (plain, selection, connect, elsewhere) =
        tokio::join!(on_terminal(&uri), on_terminal(&limited[0]), on_terminal(&limited[1]), site.run(&uri, RULES, &["sweep"]),);
    assert!(plain.stdout.contains("connecting to `mongodb://127.0.0.1:"), "{plain:?}");
    assert!(plain.stdout.contains("no answer yet; trying for 5 s") && plain.stdout.contains("in time (5 s)"), "{plain:?}");
    for (ran, said) in [(&selection, "in time (7 s)"), (&connect, "in time (6 s)")] {
        assert!(ran.stdout.contains(said) && !ran.stdout.contains("trying for"), "{said}: {ran:?}");
    }
    assert_said(&elsewhere, &["in time (30 s)"]);
    assert_silent_about(&elsewhere, &["trying for"]);
}
