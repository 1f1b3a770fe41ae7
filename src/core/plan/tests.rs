mod guards;

use std::sync::LazyLock;

use bson::{Bson, doc};

use super::*;
use crate::core::facts::{Collection, Figures, IndexFacts, ServerRole, TimeSeries, Topology, TtlMonitor};
use crate::core::flavor::Flavor;
use crate::core::policy::parse::parse;

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

/// Returns what a run knows of a server, from which the policy expects nothing.
fn facts(server: &ServerFacts) -> RunFacts<'_> {
    static EXPECT: LazyLock<Expect> = LazyLock::new(Expect::default);
    RunFacts { server, expect: &EXPECT, as_of: DateTime::from_millis(NOW), allow_clock_skew: false, strict: false }
}

fn namespace() -> Namespace {
    Namespace { database: "d".into(), collection: "c".into() }
}

fn seen(kind: CollectionKind, indexes: Vec<IndexFacts>, document_count: u64) -> NamespaceFacts {
    let collection = Collection { indexes, ..Collection::new(namespace(), kind) };
    NamespaceFacts::Collection(Box::new(collection), Figures { document_count, ..Figures::default() })
}

fn index(field: &str) -> IndexFacts {
    IndexFacts::made_up(&format!("{field}_1"), &[field])
}

fn series() -> TimeSeries {
    TimeSeries { time_field: "t".into(), shows_buckets: true, ..TimeSeries::default() }
}

/// Plans one rule with these keys over one namespace.
fn planned(server: &ServerFacts, keys: &str, seen: NamespaceFacts) -> PlannedRule {
    let text = format!("version: 1\ncollections: [{{namespace: d.c, expireAfter: 1h{keys}}}]\n");
    let rule = parse("p", &text, &|_| None, true).unwrap().rules.remove(0);
    let run = facts(server);
    plan(&run, vec![Target { rule, namespace: namespace(), seen, children: Vec::new() }]).rules.remove(0)
}

#[test]
fn a_strict_run_refuses_a_namespace_that_does_not_exist_instead_of_warning() {
    let rule = planned(&server(0), ", field: at", NamespaceFacts::Missing).rule;
    let server = server(0);
    for (strict, decision, warnings) in [(false, "skip: no such namespace", 1), (true, "noSuchNamespace, countable: false", 0)] {
        let run = RunFacts { strict, ..facts(&server) };
        let planned = plan(
            &run,
            vec![Target { rule: rule.clone(), namespace: namespace(), seen: NamespaceFacts::Missing, children: Vec::new() }],
        );
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
        (field, NamespaceFacts::NotLookedFor, "skip: disabled in the policy"),
        (field, NamespaceFacts::Missing, "skip: no such namespace"),
        (field, NamespaceFacts::Unreadable { error: "why".into() }, "fail: why"),
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
    assert_eq!(short(&planned(&skewed, ", field: at", NamespaceFacts::Missing).decision), "skip: no such namespace");
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
    assert_eq!((sweep.limits.max_deletes, sweep.sizes.batch, sweep.selection.document_count), (Some(7), 50, 9));
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
        let found = planned.decision.countable().unwrap().sizes;
        assert_eq!((found.batch, found.range), sizes, "{flavor:?}{keys}");
        let is_warned = planned.warnings.iter().any(|warning| warning.starts_with("`batchSize`"));
        assert_eq!(is_warned, warned, "{flavor:?}{keys}: {:?}", planned.warnings);
    }
}

/// Returns the facts of a collection with this shard key.
fn seen_with(shard_key: Vec<String>) -> NamespaceFacts {
    let figures = Figures { document_count: 1, shard_key, ..Figures::default() };
    NamespaceFacts::Collection(Box::new(Collection::new(namespace(), CollectionKind::Plain)), figures)
}

#[test]
fn batches_are_larger_where_each_is_divided_among_shards() {
    for (shard_key, keys, batch) in [(vec!["k".into()], "", 8000), (vec!["k".into()], ", batchSize: 50", 50), (vec![], "", 2000)]
    {
        let planned = planned(&server(0), &format!(", field: at{keys}"), seen_with(shard_key));
        assert_eq!(planned.decision.countable().unwrap().sizes.batch, batch, "{keys}");
    }
}

#[test]
fn dates_in_the_id_are_read_as_the_collection_keeps_them() {
    use crate::core::policy::DateFormat::{Date, ObjectId};
    let server_from_6_1 = ServerFacts { wire_version: 18, ..server(0) };
    for kind in [CollectionKind::Plain, CollectionKind::Clustered] {
        let planned = planned(&server_from_6_1, ", field: at", seen(kind, vec![], 1));
        assert!(!planned.decision.countable().unwrap().expiry.not_before_1970, "only dates in the key of the storage");
    }
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
    assert_eq!(warnings(", field: at", NamespaceFacts::Missing), ["no such namespace: `d.c`"]);
    assert!(warnings(", field: at", seen(CollectionKind::Plain, vec![index("at")], 1)).is_empty());
    let unused = warnings(", field: at, maxRequestUnits: 400", seen(CollectionKind::Plain, vec![index("at")], 1));
    assert!(unused.len() == 1 && unused[0].contains("`maxRequestUnits`"), "{unused:?}");
    let native = IndexFacts { expire_after_seconds: Some(Bson::Int32(60)), ..index("at") };
    let twice = warnings(", field: at", seen(CollectionKind::Plain, vec![native], 1));
    assert!(twice.len() == 1 && twice[0].contains("at_1"), "{twice:?}");
}

#[test]
fn a_time_series_is_swept_and_warned_of_by_its_time_field() {
    let collection = Collection {
        expire_after_seconds: Some(60.into()),
        ..Collection::new(namespace(), CollectionKind::TimeSeries(series()))
    };
    // A count of 0 is no warning: measurements are not counted.
    let of_series = planned(&server(0), "", NamespaceFacts::Collection(Box::new(collection), Figures::default()));
    assert_eq!(of_series.field.as_deref(), Some("t"));
    assert_eq!(of_series.warnings.len(), 1, "{:?}", of_series.warnings);
    assert!(of_series.warnings[0].ends_with("deletes from it as well"), "{:?}", of_series.warnings);
    // The server deletes nothing from a collection without documents, nor by another field.
    let ttl = |field| IndexFacts { expire_after_seconds: Some(60.into()), ..index(field) };
    for (field, documents, warnings) in [("at", 1, 1), ("at", 0, 0), ("other", 1, 0)] {
        let found = planned(&server(0), ", field: at", seen(CollectionKind::Plain, vec![ttl(field)], documents)).warnings;
        assert_eq!(found.len(), warnings, "{field} {documents}: {found:?}");
        assert!(found.iter().all(|warning| warning.ends_with("deletes from this collection as well")), "{found:?}");
    }
}

#[test]
fn the_services_own_ttl_is_told_from_one_by_an_index() {
    for (seconds, words) in [(Bson::Int32(-1), "by their own `ttl`"), (Bson::Int64(60), "60 s after their last change")] {
        let ttl = IndexFacts { expire_after_seconds: Some(seconds), ..index("_ts") };
        let server = ServerFacts { capabilities: Flavor::CosmosRu.capabilities(17), ..server(0) };
        let warnings = planned(&server, ", field: at", seen(CollectionKind::CosmosRu, vec![ttl], 1)).warnings;
        assert!(warnings.len() == 1 && warnings[0].contains(words), "{warnings:?}");
    }
}

#[test]
fn orphans_of_a_collection_that_does_not_exist_are_refused() {
    let text = |orphans| {
        format!(
            "version: 1\njournal: {{collection: d.journal}}\ncollections: [{{namespace: d.c, field: at, expireAfter: 1h, orphans: {orphans}, \
             children: [{{namespace: d.lines, field: c}}]}}]"
        )
    };
    for (orphans, decision) in [(true, "children, countable: false"), (false, "skip: no such namespace")] {
        let rule = parse("p", &text(orphans), &|_| None, true).unwrap().rules.remove(0);
        let server = server(0);
        let run = facts(&server);
        let target = Target { rule, namespace: namespace(), seen: NamespaceFacts::Missing, children: Vec::new() };
        assert_eq!(short(&plan(&run, vec![target]).rules[0].decision), decision);
    }
}

#[test]
fn keys_that_a_service_cannot_follow_are_warned_of_where_they_have_no_effect() {
    let keys = [
        ("maxRequestUnits", ", maxRequestUnits: 400"),
        ("maxLag", ", maxLag: 5s"),
        ("minOplogWindow", ", minOplogWindow: 1h"),
        ("maxDirty", ", maxDirty: 3"),
        ("concurrency", ", concurrency: 2"),
        ("concurrency", ", concurrency: 1"),
    ];
    for (flavor, expected) in [
        (Flavor::MongoDb, [true, false, false, false, false, false]),
        (Flavor::CosmosRu, [false, true, true, true, true, false]),
        (Flavor::DocumentDb, [true, true, true, true, false, false]),
    ] {
        let server = ServerFacts { flavor, capabilities: flavor.capabilities(17), ..server(0) };
        let found = keys.map(|(key, text)| {
            let warnings =
                planned(&server, &format!(", field: at{text}"), seen(CollectionKind::Plain, vec![index("at")], 1)).warnings;
            assert!(warnings.iter().all(|warning| warning.starts_with(&format!("`{key}`"))), "{flavor:?}{text}: {warnings:?}");
            warnings.len() == 1
        });
        assert_eq!(found, expected, "{flavor:?}");
    }
}

#[test]
fn documents_are_found_before_they_are_deleted_only_where_a_delete_cannot_keep_what_the_rule_asks_for() {
    let finds_first = |keys: &str, shard_key: Vec<String>| {
        planned(&server(0), &format!(", field: at{keys}"), seen_with(shard_key)).decision.countable().unwrap().finds_first()
    };
    for (keys, expected) in [
        ("", false),
        (", maxDeletePercent: 5", false),
        (", rate: 5", true),
        (", maxRequestUnits: 400", true),
        (", maxDeletes: 5", true),
        (", archive: {directory: /backups}", true),
    ] {
        assert_eq!(finds_first(keys, Vec::new()), expected, "{keys}");
    }
    assert!(finds_first("", vec!["k".into()]));
}

#[test]
fn a_rule_with_an_archive_has_one_more_batch_in_flight_unless_it_or_the_service_says_otherwise() {
    let concurrency = |keys: &str, of_service: u32, request_charge: bool| {
        let mut server = server(0);
        (server.capabilities.concurrency, server.capabilities.request_charge) = (of_service, request_charge);
        let planned = planned(&server, &format!(", field: at{keys}"), seen_with(Vec::new()));
        let rule = planned.decision.countable().unwrap();
        rule.concurrency(&rule.limits, &server.capabilities)
    };
    let archive = ", archive: {directory: /backups}";
    for (keys, of_service, request_charge, expected) in [
        ("", 2, false, 2),
        (archive, 2, false, 3),
        (archive, 1, false, 1),
        (", concurrency: 5", 2, false, 5),
        (&format!("{archive}, concurrency: 2"), 2, false, 2),
        (&format!("{archive}, concurrency: 2"), 2, true, 1),
    ] {
        assert_eq!(concurrency(keys, of_service, request_charge), expected, "{keys} {of_service} {request_charge}");
    }
}

#[test]
fn a_rule_tells_the_filter_of_the_policy_from_what_its_children_add() {
    let text = |of_child: &str| {
        format!(
            "version: 1\njournal: {{collection: d.journal}}\ncollections: [{{namespace: d.c, field: at, expireAfter: 1h, filter: {{kind: x}}, \
             children: [{{namespace: d.lines, field: c{of_child}}}]}}]"
        )
    };
    let of = |text: &str| {
        let rule = parse("p", text, &|_| None, true).unwrap().rules.remove(0);
        let server = ServerFacts { topology: Topology::ReplicaSet, ..server(0) };
        let run = facts(&server);
        let children = rule.family.iter().flat_map(|family| &family.children).map(|child| crate::core::facts::SeenChild {
            child: child.clone(),
            seen: seen(CollectionKind::Plain, vec![index("c")], 1),
            field: crate::core::facts::SeenField::default(),
            parent_field: crate::core::facts::SeenField::default(),
        });
        let target =
            Target { children: children.collect(), rule, namespace: namespace(), seen: seen(CollectionKind::Plain, vec![], 1) };
        match plan(&run, vec![target]).rules.remove(0).decision {
            Decision::Sweep(sweep) => sweep,
            other => panic!("{other:?}"),
        }
    };
    let own = doc! { "kind": "x" };
    let by_id = of(&text(""));
    assert_eq!((by_id.own_filter(), by_id.of_unclear_key()), (Some(&own), None));
    let by_number = of(&text(", parentField: number"));
    let one_key =
        doc! { "$and": [{ "number": { "$not": { "$type": "array" } } }, { "number": { "$not": { "$type": "regex" } } }] };
    assert_eq!(by_number.own_filter(), Some(&own));
    assert_eq!(by_number.selection.filter, Some(doc! { "$and": [&own, &one_key] }));
    let late = doc! { "at": { "$lte": DateTime::from_millis(NOW - 3_600_000) } };
    assert_eq!(by_number.of_unclear_key(), Some(doc! { "$and": [late, { "$and": [own, { "$nor": [one_key] }] }] }));
    let without = of("version: 1\ncollections: [{namespace: d.c, field: at, expireAfter: 1h, filter: {kind: x}}]");
    assert_eq!((without.own_filter(), without.of_unclear_key()), (Some(&doc! { "kind": "x" }), None));
}

#[test]
fn ids_are_folded_and_the_storage_ordered_as_the_collection_says() {
    let bound = |keys: &str, kind, collation: Option<Document>| {
        let collection = Collection { collation, ..Collection::new(namespace(), kind) };
        let figures = Figures { document_count: 1, ..Figures::default() };
        let planned =
            planned(&server(0), &format!(", field: at{keys}"), NamespaceFacts::Collection(Box::new(collection), figures));
        let Decision::Sweep(rule) = planned.decision else { panic!("{:?}", planned.decision) };
        (rule.selection.folds_ids, rule.selection.storage)
    };
    let english = || Some(doc! { "locale": "en" });
    for (keys, collation, folds) in [
        ("", None, false),
        ("", english(), false),
        (", collation: {locale: en}", None, true),
        (", collation: {locale: en}", english(), false),
        (", collation: {locale: fr}", english(), true),
    ] {
        assert_eq!(bound(keys, CollectionKind::Plain, collation.clone()), (folds, Storage::Plain), "{keys} {collation:?}");
    }
    assert_eq!(bound("", CollectionKind::Clustered, None), (false, Storage::Clustered));
    // A service whose deletes take no collation is not asked to use one.
    for (flavor, keys, expected) in [
        (Flavor::CosmosRu, ", field: at, collation: {locale: en}", "collation, countable: false"),
        (Flavor::CosmosRu, ", field: at", "sweep"),
        (Flavor::MongoDb, ", field: at, collation: {locale: en}", "sweep"),
    ] {
        let server = ServerFacts { capabilities: flavor.capabilities(17), ..server(0) };
        assert_eq!(short(&planned(&server, keys, seen(CollectionKind::Plain, vec![], 1)).decision), expected, "{keys}");
    }
}

#[test]
fn what_a_time_series_cannot_do_is_refused() {
    for (keys, expected) in [
        ("", "sweep"),
        (", field: t", "sweep"),
        (", dateFormat: epochMillis", "timeSeries, countable: false"),
        (", hint: x_1", "timeSeries, countable: false"),
    ] {
        let found = planned(&server(0), keys, seen(CollectionKind::TimeSeries(series()), vec![], 1)).decision;
        assert_eq!(short(&found), expected, "{keys}");
    }
}

#[test]
fn the_command_that_creates_an_index_quotes_its_names() {
    let namespace = Namespace { database: "a".into(), collection: "b\"c".into() };
    assert_eq!(create_index(&namespace, "at.x"), r#"db.getSiblingDB("a").getCollection("b\"c").createIndex({"at.x": 1})"#);
}

#[test]
fn a_path_is_looked_up_by_an_expression_only_where_an_index_may_hold_a_literal_name() {
    for (flavor, field, checks) in [
        (Flavor::DocumentDb, "a.b", true),
        (Flavor::DocumentDb, "at", false),
        (Flavor::MongoDb, "a.b", false),
        (Flavor::MongoDb, "at", false),
    ] {
        let server = ServerFacts { flavor, capabilities: flavor.capabilities(21), ..server(0) };
        let planned = planned(&server, &format!(", field: {field}"), seen(CollectionKind::Plain, vec![], 1));
        assert_eq!(planned.decision.countable().unwrap().expiry.checks_path, checks, "{flavor:?} {field}");
    }
}
