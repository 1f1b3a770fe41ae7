//! The guards against clock skew and large collection scans: exact limits, and the clocks with a real process.

use crate::support::shim::Shim;
use crate::support::sweeper::{Case, Report, id_set, run};
use mongodb::bson::{Bson, DateTime, doc};
use ttl_sweeper::facts::{Collection, Figures, IndexFacts, Kind, Seen, ServerFacts, Target, Topology};
use ttl_sweeper::flavor::Flavor;
use ttl_sweeper::plan::{Decision, RunFacts, plan};
use ttl_sweeper::policy::Expect;
use ttl_sweeper::policy::namespace::Namespace;
use ttl_sweeper::policy::parse::parse;

const NOW: i64 = 1_800_000_000_000;

fn server(clock_skew_ms: i64) -> ServerFacts {
    ServerFacts {
        flavor: Flavor::MongoDb,
        recognised_by: String::new(),
        capabilities: Flavor::MongoDb.capabilities(17),
        version: "6.0.5".into(),
        wire_version: 17,
        topology: Topology::Standalone,
        set_name: None,
        hosts: vec!["h:27017".into()],
        local_time: DateTime::from_millis(NOW),
        clock_skew_ms,
    }
}

/// Returns the guard that refuses a rule, or `None`.
fn guard(
    server: &ServerFacts,
    as_of: i64,
    allow_clock_skew: bool,
    extra: &str,
    (document_count, indexes): (u64, Vec<IndexFacts>),
) -> Option<String> {
    let text = format!("version: 1\ncollections:\n  - {{namespace: d.c, field: at, expireAfter: 1h{extra}}}\n");
    let policy = parse("p", &text, &|_| None, true).unwrap();
    let namespace = Namespace { database: "d".into(), collection: "c".into() };
    let collection = Collection { indexes, ..Collection::new(namespace.clone(), Kind::Plain) };
    let seen = Seen::Collection(Box::new(collection), Figures { document_count, ..Figures::default() });
    let target = Target { rule: policy.rules[0].clone(), namespace, seen };
    let run = RunFacts { server, expect: &Expect::default(), as_of: DateTime::from_millis(as_of), allow_clock_skew };
    match &plan(&run, vec![target]).rules[0].decision {
        Decision::Refuse { refusal, .. } => Some(refusal.guard.to_string()),
        Decision::Sweep(_) => None,
        other => panic!("{other:?}"),
    }
}

#[test]
fn clocks_may_be_five_minutes_apart_and_not_a_millisecond_more() {
    for (skew, allowed, expected) in [
        (300_000, false, None),
        (-300_000, false, None),
        (300_001, false, Some("clock")),
        (-300_001, false, Some("clock")),
        (300_001, true, None),
        (i64::from(i32::MAX) * -1000, true, None),
    ] {
        let found = guard(&server(skew), NOW, allowed, "", (0, Vec::new()));
        assert_eq!(found.as_deref(), expected, "{skew} {allowed}");
    }
}

#[test]
fn now_may_be_set_up_to_the_clock_of_the_server_and_not_a_millisecond_later() {
    for (as_of, expected) in [(NOW - 1, None), (NOW, None), (NOW + 1, Some("asOf")), (i64::MAX / 2, Some("asOf"))] {
        let found = guard(&server(0), as_of, true, "", (0, Vec::new()));
        assert_eq!(found.as_deref(), expected, "{as_of}");
    }
}

#[test]
fn one_million_documents_may_be_gone_through_without_an_index_and_not_one_more() {
    let index = |key: &str| IndexFacts {
        name: "i".into(),
        key: vec![(key.into(), Bson::Int32(1))],
        partial: None,
        hidden: false,
        sparse: false,
        collation: None,
        expire_after_seconds: None,
    };
    let hidden = IndexFacts { hidden: true, ..index("at") };
    let partial = IndexFacts { partial: Some(doc! { "s": 1 }), ..index("at") };
    for (facts, extra, expected) in [
        ((1_000_000, vec![index("_id")]), "", None),
        ((1_000_001, vec![index("_id")]), "", Some("collectionScan")),
        ((1_000_001, vec![]), ", allowCollectionScan: true", None),
        ((1_000_001, vec![index("at")]), "", None),
        ((1_000_001, vec![hidden]), "", Some("collectionScan")),
        ((1_000_001, vec![partial.clone()]), "", Some("collectionScan")),
        ((1_000_001, vec![partial.clone()]), ", filter: {s: 2}", Some("collectionScan")),
        ((1_000_001, vec![partial]), ", filter: {s: 1}", None),
    ] {
        let shown = format!("{facts:?} {extra}");
        assert_eq!(guard(&server(0), NOW, false, extra, facts).as_deref(), expected, "{shown}");
    }
}

#[tokio::test]
async fn a_client_whose_clock_is_wrong_deletes_nothing_unless_told_and_then_by_the_clock_of_the_server() {
    let case = Case::new().await;
    let shim = Shim::new(&case);
    let now = DateTime::now().timestamp_millis();
    let at = |id: i32, seconds: i64| doc! { "_id": id, "at": DateTime::from_millis(now + seconds * 1000) };
    // By the clock of the client, ten minutes ahead, the second one would have expired too.
    case.fill("c", [at(0, -10), at(1, 300), at(2, 900)]).await;
    let rules = "  - {namespace: DB.c, field: at, expireAfterSeconds: 0}\n";
    for (shift, args, code, left) in [
        ("600", &["--dry-run"][..], 0, 0..3),
        ("600", &[], 5, 0..3),
        ("-600", &[], 5, 0..3),
        ("200", &[], 0, 1..3),
        ("600", &["--allow-clock-skew"], 0, 1..3),
    ] {
        let mut command = case.command(rules, &[&["sweep", "--format", "json"], args].concat());
        shim.shift(&mut command, shift);
        let ran = run(command).await;
        let report = Report { json: serde_json::from_str(&ran.stdout).unwrap(), ran };
        assert_eq!(report.ran.code, Some(code), "{report:?}");
        if left.start == 0 {
            assert_eq!(report.rule(0, "reason"), "clock", "{report:?}");
            let error = report.rule(0, "error").as_str().unwrap();
            assert!(error.contains("--allow-clock-skew") && error.contains(" s apart"), "{error}");
        }
        assert_eq!(case.ids("c").await, id_set(left), "{shift} {args:?}");
    }
}
