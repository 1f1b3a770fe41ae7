use bson::{Bson, doc};

use super::*;
use crate::facts::{Collection, Figures, IndexFacts, Part, TimeSeries, Topology, TtlMonitor};
use crate::flavor::Flavor;
use crate::policy::parse::parse;

const NOW: i64 = 1_800_000_000_000;

fn server(clock_skew_ms: i64) -> ServerFacts {
    ServerFacts {
        topology: Topology::Standalone,
        hosts: vec!["h:27017".into()],
        local_time: DateTime::from_millis(NOW),
        clock_skew_ms,
        ..ServerFacts::made_up(Flavor::MongoDb, "6.0.5", 17)
    }
}

fn namespace() -> Namespace {
    Namespace { database: "d".into(), collection: "c".into() }
}

fn seen(kind: CollectionKind, indexes: Vec<IndexFacts>, document_count: u64) -> Seen {
    let collection = Collection { indexes, ..Collection::new(namespace(), kind) };
    Seen::Collection(Box::new(collection), Figures { document_count, ..Figures::default() })
}

fn index(field: &str) -> IndexFacts {
    IndexFacts::made_up(&format!("{field}_1"), &[field])
}

fn series() -> TimeSeries {
    TimeSeries { time_field: "t".into(), shows_buckets: true, ..TimeSeries::default() }
}

/// Plans one rule with these keys over one namespace.
fn planned(server: &ServerFacts, keys: &str, seen: Seen) -> PlannedRule {
    let text = format!("version: 1\ncollections: [{{namespace: d.c, expireAfter: 1h{keys}}}]\n");
    let rule = parse("p", &text, &|_| None, true).unwrap().rules.remove(0);
    let run = RunFacts {
        server,
        expect: &Expect::default(),
        as_of: DateTime::from_millis(NOW),
        allow_clock_skew: false,
        strict: false,
    };
    plan(&run, vec![Target { rule, namespace: namespace(), seen, children: Vec::new() }]).rules.remove(0)
}

#[test]
fn a_strict_run_refuses_a_namespace_that_does_not_exist_instead_of_warning() {
    let rule = planned(&server(0), ", field: at", Seen::Missing).rule;
    let server = server(0);
    for (strict, decision, warnings) in [(false, "skip: no such namespace", 1), (true, "noSuchNamespace, countable: false", 0)] {
        let run = RunFacts {
            server: &server,
            expect: &Expect::default(),
            as_of: DateTime::from_millis(NOW),
            allow_clock_skew: false,
            strict,
        };
        let planned =
            plan(&run, vec![Target { rule: rule.clone(), namespace: namespace(), seen: Seen::Missing, children: Vec::new() }]);
        let rule = &planned.rules[0];
        assert_eq!((planned.strict, short(&rule.decision).as_str(), rule.warnings.len()), (strict, decision, warnings));
    }
}

/// Returns the decision in short: its kind, the guard, and whether the documents can be counted.
fn short(decision: &Decision) -> String {
    match decision {
        Decision::Sweep(_) => "sweep".into(),
        Decision::Skip(reason) => format!("skip: {reason}"),
        Decision::Fail(error) => format!("fail: {error}"),
        Decision::Refuse { refusal, countable } => format!("{}, countable: {}", refusal.guard, countable.is_some()),
    }
}

#[test]
fn every_kind_of_namespace_has_its_decision() {
    let (at, field) = (|| vec![index("at")], ", field: at");
    for (keys, seen, expected) in [
        (field, Seen::NotLookedFor, "skip: disabled in the policy"),
        (field, Seen::Missing, "skip: no such namespace"),
        (field, Seen::Unreadable { error: "why".into() }, "fail: why"),
        (field, seen(CollectionKind::View, vec![], 0), "view, countable: false"),
        (field, seen(CollectionKind::Capped, at(), 1), "capped, countable: false"),
        (field, seen(CollectionKind::Plain, at(), 1), "sweep"),
        (field, seen(CollectionKind::Clustered, at(), 1), "sweep"),
        ("", seen(CollectionKind::Plain, at(), 1), "field, countable: false"),
        ("", seen(CollectionKind::TimeSeries(series()), vec![], 1), "sweep"),
        (field, seen(CollectionKind::TimeSeries(series()), vec![], 1), "timeSeries, countable: false"),
        (", field: at, hint: gone_1", seen(CollectionKind::Plain, at(), 1), "hint, countable: true"),
        (field, seen(CollectionKind::Plain, vec![], 1_000_000), "sweep"),
        (field, seen(CollectionKind::Plain, vec![], 1_000_001), "collectionScan, countable: true"),
        (field, seen(CollectionKind::Plain, at(), 1_000_001), "sweep"),
    ] {
        assert_eq!(short(&planned(&server(0), keys, seen.clone()).decision), expected, "{keys} {seen:?}");
    }
}

#[test]
fn the_guard_of_the_run_comes_after_the_hint_and_before_the_scan() {
    let skewed = server(300_001);
    for (keys, kind, documents, expected) in [
        (", field: at", CollectionKind::Plain, 1, "clock, countable: true"),
        (", field: at", CollectionKind::Plain, 1_000_001, "clock, countable: true"),
        (", field: at, hint: gone_1", CollectionKind::Plain, 1, "hint, countable: true"),
        (", field: at", CollectionKind::View, 1, "view, countable: false"),
        ("", CollectionKind::TimeSeries(series()), 1, "clock, countable: true"),
    ] {
        assert_eq!(short(&planned(&skewed, keys, seen(kind, vec![], documents)).decision), expected, "{keys} {documents}");
    }
    assert_eq!(short(&planned(&skewed, ", field: at", Seen::Missing).decision), "skip: no such namespace");
}

#[test]
fn a_rule_is_bound_with_its_index_its_limits_and_its_predicate() {
    let keys = ", field: at, maxDeletes: 7, batchSize: 50, filter: {kind: x}";
    let planned = planned(&server(0), keys, seen(CollectionKind::Plain, vec![index("other"), index("at")], 9));
    let threshold = DateTime::from_millis(NOW - 3_600_000);
    assert_eq!((planned.threshold, planned.field.as_deref()), (Some(threshold), Some("at")));
    let sweep = planned.decision.countable().unwrap();
    assert_eq!(sweep.selection.predicate, bson::doc! { "$and": [{ "at": { "$lte": threshold } }, { "kind": "x" }] });
    assert_eq!(sweep.selection.index.as_ref().map(|index| index.name.as_str()), Some("at_1"));
    assert_eq!((sweep.limits.max_deletes, sweep.limits.batch_size, sweep.selection.document_count), (Some(7), 50, 9));
    assert_eq!((sweep.approved, &sweep.namespace, &sweep.selection.namespace), (None, &namespace(), &namespace()));
}

#[test]
fn batches_are_as_long_as_the_service_takes_and_only_a_longer_one_that_was_asked_for_is_warned_of() {
    for (flavor, keys, sizes, warned) in [
        // Of the documents that a command goes through along the storage only a part goes.
        (Flavor::MongoDb, "", (2000, 8000), false),
        (Flavor::MongoDb, ", batchSize: 100000", (100_000, 100_000), false),
        (Flavor::MongoDb, ", batchSize: 50", (50, 50), false),
        (Flavor::CosmosRu, "", (1000, 1000), false),
        (Flavor::CosmosRu, ", batchSize: 2000", (1000, 1000), true),
        (Flavor::DocumentDb, "", (25_000, 25_000), false),
        (Flavor::DocumentDb, ", batchSize: 2000", (2000, 2000), false),
        (Flavor::DocumentDb, ", batchSize: 25001", (25_000, 25_000), true),
    ] {
        let server = ServerFacts { flavor, capabilities: flavor.capabilities(21), ..server(0) };
        let planned = planned(&server, &format!(", field: at{keys}"), seen(CollectionKind::Plain, vec![], 1));
        let limits = &planned.decision.countable().unwrap().limits;
        assert_eq!((limits.batch_size, limits.range_size), sizes, "{flavor:?}{keys}");
        let is_warned = planned.warnings.iter().any(|warning| warning.starts_with("`batchSize`"));
        assert_eq!(is_warned, warned, "{flavor:?}{keys}: {:?}", planned.warnings);
    }
}

#[test]
fn dates_in_the_id_are_read_as_the_collection_keeps_them() {
    use crate::policy::DateFormat::{Date, ObjectId};
    for (kind, wire_version, format, not_before_1970) in [
        (CollectionKind::Plain, 21, ObjectId, false),
        (CollectionKind::Clustered, 17, Date, false),
        (CollectionKind::Clustered, 18, Date, true),
    ] {
        let server = ServerFacts { wire_version, ..server(0) };
        let planned = planned(&server, ", field: _id", seen(kind, vec![], 1));
        let expiry = &planned.decision.countable().unwrap().expiry;
        assert_eq!((expiry.format, expiry.not_before_1970), (format, not_before_1970), "{wire_version}");
    }
}

#[test]
fn warnings_name_keys_without_effect_and_namespaces_that_do_not_exist() {
    let warnings = |keys, seen| planned(&server(0), keys, seen).warnings;
    assert_eq!(warnings(", field: at", Seen::Missing), ["no such namespace: `d.c`"]);
    assert!(warnings(", field: at", seen(CollectionKind::Plain, vec![index("at")], 1)).is_empty());
    let unused = warnings(", field: at, maxRequestUnits: 400", seen(CollectionKind::Plain, vec![index("at")], 1));
    assert!(unused.len() == 1 && unused[0].contains("`maxRequestUnits`"), "{unused:?}");
    let native = IndexFacts { expire_after_seconds: Some(Bson::Int32(60)), ..index("at") };
    let twice = warnings(", field: at", seen(CollectionKind::Plain, vec![native], 1));
    assert!(twice.len() == 1 && twice[0].contains("at_1"), "{twice:?}");
}

/// Returns the guard that refuses a rule, or `None`.
fn guard(server: &ServerFacts, as_of: i64, allow_clock_skew: bool, keys: &str, seen: Seen) -> Option<String> {
    let text = format!("version: 1\ncollections: [{{namespace: d.c, field: at, expireAfter: 1h{keys}}}]\n");
    let rule = parse("p", &text, &|_| None, true).unwrap().rules.remove(0);
    let run =
        RunFacts { server, expect: &Expect::default(), as_of: DateTime::from_millis(as_of), allow_clock_skew, strict: false };
    match &plan(&run, vec![Target { rule, namespace: namespace(), seen, children: Vec::new() }]).rules[0].decision {
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
        let found = guard(&server(skew), NOW, allowed, "", seen(CollectionKind::Plain, Vec::new(), 0));
        assert_eq!(found.as_deref(), expected, "{skew} {allowed}");
    }
}

#[test]
fn now_may_be_set_up_to_the_clock_of_the_server_and_not_a_millisecond_later() {
    for (as_of, expected) in [(NOW - 1, None), (NOW, None), (NOW + 1, Some("asOf")), (i64::MAX / 2, Some("asOf"))] {
        let found = guard(&server(0), as_of, true, "", seen(CollectionKind::Plain, Vec::new(), 0));
        assert_eq!(found.as_deref(), expected, "{as_of}");
    }
}

#[test]
fn one_million_documents_may_be_gone_through_without_an_index_and_not_one_more() {
    let hidden = IndexFacts { hidden: true, ..index("at") };
    let partial = IndexFacts { partial: Some(doc! { "s": 1 }), ..index("at") };
    for ((count, indexes), keys, expected) in [
        ((1_000_000, vec![index("_id")]), "", None),
        ((1_000_001, vec![index("_id")]), "", Some("collectionScan")),
        ((1_000_001, vec![]), ", allowCollectionScan: true", None),
        ((1_000_001, vec![index("at")]), "", None),
        ((1_000_001, vec![hidden]), "", Some("collectionScan")),
        ((1_000_001, vec![partial.clone()]), "", Some("collectionScan")),
        ((1_000_001, vec![partial.clone()]), ", filter: {s: 2}", Some("collectionScan")),
        ((1_000_001, vec![partial]), ", filter: {s: 1}", None),
    ] {
        let shown = format!("{count} {indexes:?} {keys}");
        let found = guard(&server(0), NOW, false, keys, seen(CollectionKind::Plain, indexes, count));
        assert_eq!(found.as_deref(), expected, "{shown}");
    }
}

#[test]
fn the_limit_of_the_oldest_document_goes_with_an_index_that_serves_its_query() {
    let head = |server: &ServerFacts, keys: &str, kind, indexes| {
        let planned = planned(server, &format!(", maxHeadMs: 20{keys}"), seen(kind, indexes, 1));
        let Decision::Sweep(rule) = planned.decision else { panic!("{:?}", planned.decision) };
        (rule.limits.max_head.map(|max| (max.time.as_millis(), max.index)), planned.warnings)
    };
    let mongodb = server(0);
    let by_date = Some((20, "at_1".to_owned()));
    for keys in [", field: at", ", field: at, hint: x_1", ", field: at, dateFormat: iso8601", ", field: at, order: storage"] {
        let indexes = vec![index("x"), index("at")];
        assert_eq!(head(&mongodb, keys, CollectionKind::Plain, indexes), (by_date.clone(), vec![]), "{keys}");
    }
    let other = ServerFacts { capabilities: Flavor::DocumentDb.capabilities(17), ..server(0) };
    for (server, keys, kind, indexes, why) in [
        (&mongodb, ", field: at", CollectionKind::Plain, vec![index("x")], "no index begins with `at`"),
        (&mongodb, "", CollectionKind::TimeSeries(series()), vec![index("t")], "a time-series collection"),
        (&other, ", field: at", CollectionKind::Plain, vec![index("at")], "is for MongoDB"),
    ] {
        let (limit, warnings) = head(server, keys, kind, indexes);
        assert_eq!((limit, warnings.len()), (None, 1));
        assert!(warnings[0].starts_with("`maxHeadMs` ") && warnings[0].contains(why), "{warnings:?}");
    }
}

#[test]
fn the_servers_own_ttl_is_said_to_delete_only_where_its_monitor_may_run() {
    let text = "version: 1
journal: {collection: d.journal}
collections: [{namespace: d.c, field: at, expireAfter: 1h, holds: {collection: d.holds, key: k}, children: [{namespace: d.lines, field: c}]}]";
    let rule = parse("p", text, &|_| None, true).unwrap().rules.remove(0);
    for (ttl_monitor, as_well) in
        [(TtlMonitor::On, 3), (TtlMonitor::Unknown, 3), (TtlMonitor::Off, 0), (TtlMonitor::Maintenance, 0)]
    {
        let server = ServerFacts { ttl_monitor, ..server(0) };
        let run = RunFacts {
            server: &server,
            expect: &Expect::default(),
            as_of: DateTime::from_millis(NOW),
            allow_clock_skew: false,
            strict: false,
        };
        let ttl = IndexFacts { expire_after_seconds: Some(60.into()), ..index("at") };
        let target = Target {
            rule: rule.clone(),
            namespace: namespace(),
            seen: seen(CollectionKind::Plain, vec![ttl], 5),
            children: Vec::new(),
        };
        let warnings = plan(&run, vec![target]).rules.remove(0).warnings;
        let count = |words: &str| warnings.iter().filter(|warning| warning.contains(words)).count();
        assert_eq!(
            (count("as well"), count("deletes nothing")),
            (as_well, usize::from(as_well == 0)),
            "{ttl_monitor:?}: {warnings:?}"
        );
    }
}

#[test]
fn a_part_of_a_deployment_without_the_rest_is_refused_unless_another_one_was_expected() {
    let all = || seen(CollectionKind::Plain, vec![index("at")], 1);
    for (part, expected) in [
        (Part::Unknown, "sweep"),
        (Part::Whole, "sweep"),
        (Part::ConfigServers, "sweep"),
        (Part::Member, "detached, countable: true"),
        (Part::Shard, "detached, countable: true"),
    ] {
        let server = ServerFacts { part, ..server(0) };
        assert_eq!(short(&planned(&server, ", field: at", all()).decision), expected, "{part:?}");
        let elsewhere = Expect { replica_set: Some("rs0".into()), ..Expect::default() };
        let unwritable = server.unwritable(&Expect::default());
        assert_eq!(unwritable.is_some(), part.detached().is_some(), "{part:?}");
        assert!(server.unwritable(&elsewhere).is_some_and(|why| why.starts_with("the policy expects")), "{part:?}");
    }
}
