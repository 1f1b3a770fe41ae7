//! Tests of what a plan refuses or warns of: wrong clocks, scans, a part of a deployment, archives.

use super::*;

/// Returns the guard that refuses a rule, or `None`.
fn guard(server: &ServerFacts, as_of: i64, allow_clock_skew: bool, keys: &str, seen: NamespaceFacts) -> Option<String> {
    let text = format!("version: 1\ncollections: [{{namespace: d.c, field: at, expireAfter: 1h{keys}}}]\n");
    let rule = parse("p", &text, &|_| None, true).unwrap().rules.remove(0);
    let run = RunFacts { as_of: DateTime::from_millis(as_of), allow_clock_skew, ..facts(server) };
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
        (rule.head_index, planned.warnings)
    };
    let mongodb = server(0);
    let by_date = Some("at_1".to_owned());
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
        let run = facts(&server);
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
    for (role, expected) in [
        (ServerRole::Unknown, "sweep"),
        (ServerRole::Whole, "sweep"),
        (ServerRole::ConfigServers, "sweep"),
        (ServerRole::Member, "detached, countable: true"),
        (ServerRole::Shard, "detached, countable: true"),
    ] {
        let server = ServerFacts { role, ..server(0) };
        assert_eq!(short(&planned(&server, ", field: at", all()).decision), expected, "{role:?}");
        let elsewhere = Expect { replica_set: Some("rs0".into()), ..Expect::default() };
        let unwritable = server.unwritable(&Expect::default());
        assert_eq!(unwritable.is_some(), role.detached().is_some(), "{role:?}");
        assert!(server.unwritable(&elsewhere).is_some_and(|why| why.starts_with("the policy expects")), "{role:?}");
    }
}

#[test]
fn what_an_archive_cannot_hold_is_not_deleted() {
    let folding = doc! { "locale": "en", "strength": 2 };
    let simple = doc! { "locale": "simple" };
    let refused = |flavor: Flavor, keys: &str, kind, collation: Option<Document>| {
        let capabilities = flavor.capabilities(17);
        let collection = Collection { collation, ..Collection::new(namespace(), kind) };
        let seen = NamespaceFacts::Collection(Box::new(collection), Figures { document_count: 1, ..Figures::default() });
        let server = ServerFacts { capabilities, ..server(0) };
        match planned(&server, keys, seen).decision {
            Decision::Refuse { refusal, countable: Some(_) } if refusal.guard == Guard::Archive => Some(refusal.detail),
            Decision::Sweep(_) => None,
            other => panic!("{other:?}"),
        }
    };
    let (to, plain) = (", field: at, archive: {directory: /backups}", CollectionKind::Plain);
    for (flavor, keys, kind, collation, why) in [
        (Flavor::MongoDb, to.to_owned(), plain.clone(), None, None),
        (Flavor::MongoDb, to.to_owned(), CollectionKind::Clustered, Some(simple), None),
        (Flavor::MongoDb, format!("{to}, collation: {{locale: simple}}"), plain.clone(), None, None),
        (Flavor::MongoDb, ", field: at, collation: {locale: en}".to_owned(), plain.clone(), Some(folding.clone()), None),
        (Flavor::CosmosRu, ", field: at".to_owned(), plain.clone(), None, None),
        (Flavor::CosmosRu, to.to_owned(), plain.clone(), None, Some("cannot compare whole documents")),
        (Flavor::MongoDb, to.to_owned(), plain.clone(), Some(folding), Some("the collection's collation")),
        (Flavor::MongoDb, format!("{to}, collation: {{locale: en}}"), plain, None, Some("with `collation` different texts")),
        (
            Flavor::MongoDb,
            ", archive: {directory: /backups}".to_owned(),
            CollectionKind::TimeSeries(series()),
            None,
            Some("the buckets of time-series"),
        ),
    ] {
        let found = refused(flavor, &keys, kind, collation);
        assert_eq!(found.is_some(), why.is_some(), "{flavor:?} {keys}: {found:?}");
        assert!(found.zip(why).is_none_or(|(found, why)| found.contains(why)), "{keys}");
    }
}
