//! The output of `sweeper import` is parsed back unchanged for all names and filters.

use crate::support::corpus::scalars;
use mongodb::bson::{Bson, DateTime, Document, doc, serialize_to_vec};
use ttl_sweeper::core::draft::import::{self, ImportSource, Imported};
use ttl_sweeper::core::facts::{
    Catalog, Collection, CollectionKind, IndexFacts, ServerFacts, ServerRole, TimeSeries, Topology, TtlMonitor,
};
use ttl_sweeper::core::flavor::Flavor;
use ttl_sweeper::core::policy::namespace::Namespace;
use ttl_sweeper::core::policy::{Policy, parse};

/// Returns the policy for one TTL index.
fn of_index(namespace: (&str, &str), field: &str, partial: Option<Document>) -> Imported {
    of_index_in(None, namespace, field, partial)
}

fn server(version: &str, set: Option<&str>) -> ServerFacts {
    ServerFacts {
        version: version.into(),
        flavor: Flavor::MongoDb,
        recognised_by: String::new(),
        capabilities: Flavor::MongoDb.capabilities(17),
        wire_version: 17,
        topology: Topology::Standalone,
        set_name: set.map(str::to_owned),
        hosts: Vec::new(),
        local_time: DateTime::from_millis(0),
        clock_skew_ms: 0,
        role: ServerRole::Unknown,
        ttl_monitor: TtlMonitor::Unknown,
    }
}

fn of_index_in(set: Option<&str>, namespace: (&str, &str), field: &str, partial: Option<Document>) -> Imported {
    let index = IndexFacts {
        name: "i".into(),
        key: vec![(field.into(), 1.into())],
        partial,
        hidden: false,
        sparse: false,
        unique: false,
        collation: None,
        expire_after_seconds: Some(60.into()),
    };
    let namespace = Namespace { database: namespace.0.into(), collection: namespace.1.into() };
    let collection = Collection { indexes: vec![index], ..Collection::new(namespace, CollectionKind::Plain) };
    of_collection(&server("6.0.5", set), collection)
}

fn of_collection(server: &ServerFacts, collection: Collection) -> Imported {
    let source = ImportSource { uri: "mongodb://h", at: DateTime::from_millis(0), server };
    import::policy(&source, &Catalog { collections: vec![collection], unreadable: Vec::new() })
}

#[test]
fn a_setting_by_which_the_server_deletes_nothing_is_told_with_its_rule() {
    let series = |extended_times| {
        let series = TimeSeries { time_field: "t".into(), extended_times, ..TimeSeries::default() };
        let namespace = Namespace { database: "app".into(), collection: "s".into() };
        let collection = Collection::new(namespace, CollectionKind::TimeSeries(series));
        Collection { expire_after_seconds: Some(Bson::Int64(60)), ..collection }
    };
    let of_old = of_collection(&server("7.0.28", None), series(Some(true)));
    let why = "app.s: MongoDB 7.0.28 deletes nothing from a time-series collection that has measurements before 1970 or after \
               2038-01-19; a sweep by this rule does delete";
    assert_eq!((of_old.rules, of_old.warnings), (1, vec![why.to_owned()]));
    assert!(of_old.policy.contains(&format!("  # Careful: {why}\n  - namespace: app.s")), "{}", of_old.policy);
    assert_eq!(of_collection(&server("7.0.28", None), series(Some(false))).warnings, Vec::<String>::new());
    let off = ServerFacts { ttl_monitor: TtlMonitor::Off, ..server("7.0.28", None) };
    let warnings = of_collection(&off, series(Some(true))).warnings;
    assert!(
        matches!(&warnings[..], [why] if why.contains("monitor is switched off") && why.contains("a sweep by these rules does"))
    );
}

fn read(imported: &Imported) -> Policy {
    let env = |name: &str| (name == "MONGODB_URI").then(String::new);
    parse::parse("p", &imported.policy, &env, false).unwrap_or_else(|error| panic!("{error}\n{}", imported.policy))
}

#[test]
fn filters_of_every_type_are_read_back_to_the_byte() {
    let mut values = scalars();
    values.extend([1_i64, i64::from(i32::MAX), i64::from(i32::MAX) + 1, -1].map(Bson::from));
    values.extend([1.0, 1e16, 1e300, 5e-324, -2.5].map(Bson::from));
    values.extend([0, 1, -1, 999, 253_402_300_800_000, i64::MIN].map(|millis| DateTime::from_millis(millis).into()));
    values.extend(
        ["null", "~", "5", "1e3", "0x10", "${HOME}", "$${HOME}", "a: b", "- a", "\u{2028}\n\t\0\u{feff}é😀", "#"].map(Bson::from),
    );
    values.push(doc! { "${HOME}": 1, "a": { "y": [1, { "c": 1_i64, "b": Bson::Null }], "x": "" } }.into());
    let odd_names = ["a.b", "1", "null", "é \u{85}", "a: b"];
    let filters = values.into_iter().map(|value| doc! { "s": { "$eq": value } });
    let filters = filters.chain(odd_names.map(|name| doc! { name: { "$gte": 5 }, "b": true, "a": { "$exists": true } }));
    for filter in filters {
        let imported = of_index(("app", "c"), "at", Some(filter.clone()));
        assert_eq!(imported.rules, 1, "{filter}: {:?}", imported.left_out);
        let found = read(&imported).rules[0].filter.clone().unwrap();
        assert_eq!(serialize_to_vec(&found).unwrap(), serialize_to_vec(&filter).unwrap(), "{filter}");
    }
}

#[test]
fn the_policy_runs_only_on_the_deployment_it_comes_from_and_has_a_limit() {
    let policy = read(&of_index_in(Some("rs: #0"), ("app", "c"), "at", None));
    assert_eq!(policy.connection.expect.replica_set.as_deref(), Some("rs: #0"));
    assert_eq!(policy.rules[0].limits.max_delete_percent, Some(50.0));
    assert_eq!(read(&of_index(("app", "c"), "at", None)).connection.expect.replica_set, None);
}

#[test]
fn names_are_read_back_or_left_out() {
    for (namespace, field) in [
        (("app", "a b"), "at"),
        (("app", "null"), "yes"),
        (("app", "a.b: - #"), "a.0.b"),
        (("app", "é\"\\\n\u{2029}"), "a${HOME}"),
        (("0", "1"), "5"),
    ] {
        let imported = of_index(namespace, field, None);
        let rules = read(&imported).rules;
        assert_eq!(
            (rules[0].namespace.to_string(), rules[0].field.as_deref()),
            (format!("{}.{}", namespace.0, namespace.1), Some(field))
        );
    }
    for (namespace, field, why) in [(("app", "*"), "at", "app.*"), (("app", "c"), "ref.$id", "has a part that starts with `$`")] {
        let imported = of_index(namespace, field, None);
        assert_eq!(imported.rules, 0);
        assert!(imported.left_out[0].contains(why), "{:?}", imported.left_out);
        assert!(imported.policy.contains("# Left out:"), "{}", imported.policy);
    }
    let odd = of_index(("app", "c"), "at", Some(doc! { "s": { "$eq": { "$oid": 5 } } }));
    assert_eq!((odd.rules, odd.left_out.len()), (0, 1), "{}", odd.policy);
}
