//! Invalid policies and command lines: exit code 2, all errors on stderr, and no server is contacted.

use std::io::ErrorKind;
use std::net::TcpListener;

use crate::support::sweeper::{run, sweeper};

const RULE: &str = "{namespace: app.c, field: at, expireAfter: 1d}";

/// Runs with a policy of these bytes against a listener and returns stderr. Asserts that each run exits with 2 without
/// connecting.
async fn refused(policy: &[u8], args: &[&str]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("policy.yaml");
    std::fs::write(&path, policy).unwrap();
    let uri = format!("mongodb://{}/?serverSelectionTimeoutMS=500", listener.local_addr().unwrap());
    let mut command = sweeper(args);
    command.arg("--uri").arg(uri).arg("--policy").arg(&path);
    let ran = run(command).await;
    let shown = policy.len().min(200);
    assert_eq!(ran.code, Some(2), "{:?} {args:?}: {ran:?}", String::from_utf8_lossy(&policy[..shown]));
    assert_eq!(ran.stdout, "");
    assert!(!ran.stderr.contains("panicked"), "{ran:?}");
    let contacted = listener.accept();
    assert!(contacted.is_err_and(|cause| cause.kind() == ErrorKind::WouldBlock), "{args:?} contacted the server");
    ran.stderr
}

#[tokio::test]
async fn a_policy_that_is_wrong_contacts_nobody() {
    let rules = |rule: &str| format!("version: 1\ncollections:\n  - {rule}\n");
    let family = |keys: &str| {
        format!("{}journal: {{collection: ops.j}}\n", rules(&format!("{{namespace: app.c, field: at, expireAfter: 1d, {keys}}}")))
    };
    let deep = "- ".repeat(50_000);
    let mappings: String = (0..3000).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
    let bomb: String = (1..10).map(|n| format!("x{n}: &x{n} [{}]\n", vec![format!("*x{}", n - 1); 9].join(", "))).collect();
    let cases = [
        (String::new(), ""),
        ("---\n".into(), ""),
        ("\u{feff}".into(), ""),
        ("version: 1\n".into(), "collections"),
        ("version: 2\ncollections: []\n".into(), "version"),
        (rules("{namespace: app, field: at, expireAfter: 1d}"), "no collection"),
        (rules("{namespace: app.c, namespace: app.d, field: at, expireAfter: 1d}"), "namespace"),
        (rules("{namespace: app.c, field: at, expireAfter: 1d, expire: 3}"), "expire"),
        (rules("{namespace: app.c, field: at, expireAfterSeconds: .nan}"), "expireAfterSeconds"),
        (rules("{namespace: app.c, field: at, expireAfterSeconds: .inf}"), "expireAfterSeconds"),
        (rules("{namespace: app.c, field: at, expireAfterSeconds: -1}"), "ttlField"),
        (rules("{namespace: app.c, field: at, expireAfterSeconds: 2147483648}"), "2147483647"),
        (rules("{namespace: app.c, field: at, expireAfter: 3}"), "expireAfter"),
        (rules("{namespace: app.c, field: at, expireAfter: 1mo}"), "expireAfter"),
        (rules("{namespace: app.c, field: at, expireAfter: 1d, filter: {a: '${SWEEPER_TEST_UNSET}'}}"), "SWEEPER_TEST_UNSET"),
        (family("children: [{namespace: app.d, field: c}]").replace("journal: {collection: ops.j}", ""), "has no `journal`"),
        (family("children: [{namespace: app.d, field: c}]").replace("app.c,", "app.*,"), "without a `*`"),
        (family("children: [{namespace: app.d, field: c}], collation: {locale: en}"), "byte by byte"),
        (family("children: [{namespace: app.c, field: c}]"), "number 1 names the rule's own collection"),
        (family("children: [{namespace: ops.j, field: c}]"), "keep their own records"),
        (family("children: [{namespace: app.d, field: c}, {namespace: app.d, field: c}]"), "is there twice"),
        (family("children: [{namespace: app.d, field: _id}]"), "cannot name its parent"),
        (family("children: [{namespace: app.d}]"), "no `field`"),
        (family("children: [{namespace: app.d, field: c, parent: p}]"), "unknown key `parent`"),
        (family("children: [{namespace: app.d, field: c, parentField: ''}]"), "parentField"),
        (family("children: [{namespace: app.d, field: c}, {namespace: app.d, field: c, parentField: p}]"), "is there twice"),
        (family("children: []"), "at least one mapping"),
        (family("gridfs: fs"), "expected `DATABASE.BUCKET.files`"),
        (family("orphans: true"), "neither `children` nor `gridfs`"),
        (family("gridfs: ''"), "not the name of a bucket"),
        (rules(&format!("{RULE}\n\t- {RULE}")), ":4:"),
        (rules(&format!("{RULE}\n\t- {RULE}")), "found a tab character"),
        (format!("{}---\n{}", rules(RULE), rules(RULE)), "document"),
        (format!("{}version: 1\n", rules(RULE)), "version"),
        (rules(RULE).replace("app", "a\0p"), ""),
        ("[".repeat(100_000) + "\n", "deep"),
        ("{a: ".repeat(100_000) + "\n", "deep"),
        (deep, ""),
        (mappings, ""),
        (format!("x0: &x0 [1, 2]\n{bomb}"), ""),
        (format!("{}#{}\n", rules(RULE), "x".repeat(10 << 20)), "1048576"),
    ];
    for (policy, part) in cases {
        for args in [&["sweep"][..], &["check", "--connect"]] {
            let said = refused(policy.as_bytes(), args).await;
            assert!(said.contains("nothing was contacted") && said.contains(part), "{part}: {said}");
            assert!(said.starts_with("error: ") && said.len() < 5000, "{said}");
        }
    }
    let said = refused(b"version: 1\n\xff\xfe", &["sweep"]).await;
    assert!(said.contains("line 2 is not UTF-8") && said.contains("hint: save the file as UTF-8"), "{said}");
}

#[tokio::test]
async fn every_problem_of_a_policy_is_said_at_once_with_its_line() {
    let policy = "version: 1
collections:
  - {namespace: app.a, field: at}
  - {namespace: app.b, field: $b, expireAfter: 1d}
  - {namespace: admin.c, field: at, expireAfter: 1d}
";
    let said = refused(policy.as_bytes(), &["sweep"]).await;
    for line in [":3:", ":4:", ":5:"] {
        assert!(said.contains(line), "{line}: {said}");
    }
}

#[tokio::test]
async fn a_command_line_that_is_wrong_contacts_nobody() {
    let policy = format!("version: 1\ncollections:\n  - {RULE}\n");
    for args in [
        &["sweep", "--max-deletes", "0"][..],
        &["sweep", "--max-deletes", "-1"],
        &["sweep", "--rate", "0"],
        &["sweep", "--max-duration", "90"],
        &["sweep", "--max-duration", "0s"],
        &["sweep", "--as-of", "yesterday"],
        &["sweep", "--as-of", "2026-01-31T02:00:00"],
        &["sweep", "--format", "pdf"],
        &["sweep", "-o", "report.pdf"],
        &["sweep", "--only", "other"],
        &["sweep", "-q", "-v"],
        &["sweep", "--force"],
        &["swep"],
    ] {
        let said = refused(policy.as_bytes(), args).await;
        assert!(said.starts_with("error: "), "{args:?}: {said}");
    }
}

#[tokio::test]
async fn a_policy_that_cannot_be_read_is_named() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().join("absent.yaml"), dir.path().to_owned()] {
        let mut command = sweeper(&["sweep", "--uri", "mongodb://127.0.0.1:1", "--policy"]);
        command.arg(&path);
        let ran = run(command).await;
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains(&*path.to_string_lossy()), "{ran:?}");
    }
    let ran = run(sweeper(&["sweep", "--uri", "mongodb://127.0.0.1:1", "--policy", "/dev/zero"])).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
}
