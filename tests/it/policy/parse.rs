//! Policies: all errors are reported at once, each with its place; valid policies have the documented meaning.

use std::collections::HashMap;

use mongodb::bson::doc;
use ttl_sweeper::core::policy::{DateFormat, Policy, PolicyError, parse};

fn parse(text: &str) -> Result<Policy, PolicyError> {
    let env = HashMap::from([("HOST", "db.example.com"), ("KEEP", "7d"), ("SECRET", "hunter2"), ("NUMBER", "5")]);
    parse::parse("p.yaml", text, &|name| env.get(name).map(|value| (*value).to_owned()), false)
}

fn problems(text: &str) -> String {
    match parse(text) {
        Ok(policy) => panic!("no problem found in:\n{text}\n{policy:?}"),
        Err(error) => error.to_string(),
    }
}

/// Returns a policy with one rule, which has these keys in addition to the usual ones.
fn rule(keys: &str) -> String {
    format!("version: 1\ncollections:\n  - namespace: app.c\n    field: at\n    {keys}\n")
}

#[test]
fn the_example_is_valid_and_means_what_it_says() {
    let text = include_str!("../../../sweeper.example.yaml");
    let policy = parse(text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(policy.connection.uri.as_deref(), Some("mongodb://localhost:27017"));
    let names: Vec<&str> = policy.rules.iter().map(|rule| rule.name.as_str()).collect();
    let names: String = names.join(", ");
    let expected =
        "app.sessions, finished jobs, app.carts, app.events, app.imports, app.audit, app.orders, app.fs.files, metrics.weather";
    assert_eq!(names, expected);
    let children = |rule: usize| {
        let family = policy.rules[rule].family.as_ref().unwrap();
        family
            .children
            .iter()
            .map(|child| format!("{} {} {}", child.namespace, child.field, child.parent_field))
            .collect::<Vec<_>>()
    };
    assert_eq!(children(6), ["app.orderLines orderId _id", "app.orderNotes order number"]);
    assert_eq!(children(7), ["app.fs.chunks files_id _id"]);
    assert_eq!(policy.rules[7].field.as_deref(), Some("uploadDate"));
    let all = &policy.rules[1];
    assert_eq!(all.filter.as_ref().unwrap().get_str("status").unwrap(), "done");
    assert_eq!(
        (all.limits.batch_size, policy.rules[0].limits.batch_size),
        (Some(1000), Some(2000)),
        "a rule's own key overrides the defaults"
    );
    assert_eq!((all.limits.max_delete_percent, policy.rules[0].limits.max_delete_percent), (Some(20.0), Some(50.0)));
    assert_eq!(policy.rules[2].expire_after_seconds, None);
    assert_eq!(policy.rules[3].date_format, Some(DateFormat::EpochMillis));
    assert_eq!(policy.rules[4].date_format, Some(DateFormat::Iso8601));
    assert_eq!(policy.rules[3].archive.as_ref().unwrap().place.path().to_str(), Some("/backups/ttl"));
}

#[test]
fn a_byte_order_mark_is_no_part_of_the_policy() {
    let text = rule("expireAfter: 1h");
    let marked = parse(&format!("\u{feff}{text}")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(marked.rules, parse(&text).unwrap().rules);
    let problems = |text: &str| problems(text).replace('\u{feff}', "");
    let wrong = rule("expireAfter: 1");
    assert_eq!(problems(&format!("\u{feff}{wrong}")), problems(&wrong));
}

#[test]
fn one_place_of_the_connection_string_is_enough() {
    let of = |connection: &str| parse(&format!("{}connection: {connection}\n", rule("expireAfter: 1h")));
    let file = of("{uriFile: '/etc/${HOST}/uri'}").unwrap().connection;
    assert_eq!((file.uri, file.uri_file.unwrap().to_str()), (None, Some("/etc/db.example.com/uri")));
    let both = of("{uri: 'mongodb://h', uriFile: f}").unwrap_err().to_string();
    assert!(both.contains("`uriFile`: `uri` is there as well"), "{both}");
}

#[test]
fn all_problems_are_reported_at_once_with_line_rule_found_and_expected() {
    let text = "\
version: 2
colections: []
run: {maxDuration: 2}
collections:
  - name: sessions
    namespace: app.sessions
    field: lastModified
    expireAfterr: 1h
    batchSize: 0
  - namespace: admin.users
    field: at
    expireAfterSeconds: 1.5
    filter: {}
  - namespace: nocollection
    field: a..b
    expireAfter: 1 month
";
    let expected = "\
invalid policy `p.yaml`: 11 problems; nothing was contacted
  p.yaml:1:10: `version`: found the number 2; expected 1
  p.yaml:2:1: unknown key `colections`; expected `collections`?
  p.yaml:3:20: `maxDuration`: a number without a unit: 2; expected a duration such as `90d`, `12h`, `45m`, `30s`
  p.yaml:8:5: collections[0] `sessions`: unknown key `expireAfterr`; expected `expireAfter`?
  p.yaml:9:16: collections[0] `sessions`: `batchSize`: found the number 0; expected a whole number from 1 to 100000
  p.yaml:10:16: collections[1] `admin.users`: `namespace`: \"admin.users\": the databases `admin`, `config` and `local` belong to the server and are never swept
  p.yaml:12:25: collections[1] `admin.users`: `expireAfterSeconds`: found the number 1.5; expected a whole number from -1 to 2147483647
  p.yaml:13:13: collections[1] `admin.users`: `filter`: an empty filter; leave `filter` out to take every expired document
  p.yaml:14:16: collections[2] `nocollection`: `namespace`: \"nocollection\" has no collection; expected `database.collection`
  p.yaml:15:12: collections[2] `nocollection`: `field`: \"a..b\" has an empty part; expected a field path such as `lastModified` or `meta.createdAt`
  p.yaml:16:18: collections[2] `nocollection`: `expireAfter`: an unknown unit: \"1 month\"; months and years have no fixed length; expected days, such as `30d`";
    let found = problems(text);
    assert_eq!(found, expected);
}

#[test]
fn each_value_that_could_be_misread_is_refused() {
    for (keys, part) in [
        ("expireAfterSeconds: .nan", "found the number .nan; expected a whole number"),
        ("expireAfterSeconds: .inf", "expected a whole number"),
        (
            "expireAfterSeconds: 1e3",
            "`expireAfterSeconds`: found the number 1000.0; expected a whole number from -1 to 2147483647, such as 1000",
        ),
        ("expireAfterSeconds: 0600", "found the string \"0600\"; expected a whole number"),
        ("expireAfterSeconds: '60'", "found the string \"60\"; expected a whole number from -1 to 2147483647, such as 60"),
        ("expireAfterSeconds: ${NUMBER}", "found the string"),
        ("expireAfterSeconds:", "found nothing (null)"),
        ("expireAfterSeconds: ~", "found null"),
        ("expireAfterSeconds: -1", "-1 goes only with a `ttlField`"),
        ("expireAfterSeconds: -2", "expected a whole number from -1 to 2147483647"),
        ("expireAfterSeconds: 2147483648", "expected a whole number from -1 to 2147483647"),
        ("expireAfterSeconds: 99999999999999999999", "found the number 99999999999999999999"),
        ("expireAfterSeconds: true", "found the boolean true"),
        ("expireAfterSeconds: [1]", "found a list"),
        ("expireAfterSeconds: !int 5", "found `!int`, which without quotes is a tag of YAML"),
        ("expireAfter: 30", "a number without a unit"),
        ("expireAfter: '30'", "a number without a unit"),
        ("expireAfter: 1.5d", "a fraction"),
        ("expireAfter: -1d", "not a duration"),
        ("expireAfter: 3M", "an unknown unit"),
        ("expireAfter: 1y", "an unknown unit"),
        ("expireAfter: 90 days", "expected `90d`?"),
        ("expireAfter: 99999d", "longer than 2147483647 seconds"),
        ("{expireAfter: 1d, expireAfterSeconds: 5}", "expected"),
        ("expireAfter: 1d\n    expireAfterSeconds: 5", "both `expireAfterSeconds` and `expireAfter`"),
        ("expireAfter: 1d\n    expireAfter: 2d", "duplicate key `expireAfter`"),
        ("expireAfter: 1d\n    filter:", "`filter`: found nothing"),
        ("expireAfter: 1d\n    filter: {a: 1, a: 2}", "duplicate key `a`"),
        ("expireAfter: 1d\n    filter: {a: &d}", "p.yaml:6:17: `&d` marks an anchor of YAML, and no `*d` uses it"),
        ("expireAfter: 1d\n    filter: {a: &d , b: *d}", "`filter`: `a`: found nothing (null); expected a value, in quotes"),
        ("expireAfter: 1d\n    filter:\n      a:\n      b: 1", "`filter`: `a`: found nothing (null)"),
        ("expireAfter: 1d\n    filter: {a:1}", "`filter`: no space after the colon of `a`"),
        ("expireAfter: 1d\n    filter: {a: !!timestamp 2026-01-01}", "the tag `!!timestamp` has no effect here"),
        ("expireAfter: 1d\n    filter: {<<: {a: 1}}", "`filter`: merge keys (`<<`) are not supported"),
        ("expireAfter: &x 1d\n    name: &x n\n    hint: *x", "6:11: the anchor `&x` is declared in line 5 as well"),
        ("expireAfter: 1d\n    collation: {locale: de, strength: }", "`collation`: `strength`: found nothing (null)"),
        ("expireAfter: 1d\n    ttlField: a.b", "not a root-level field name"),
        ("expireAfter: 1d\n    ttlField: at", "holds the date itself"),
        ("expireAfter: 1d\n    dateFormat: text", "expected one of `date`, `epochSeconds`, `epochMillis`, `objectId`, `iso8601`"),
        ("expireAfter: 1d\n    dateFormat: epochMilis", "found the string \"epochMilis\"; expected `epochMillis`?"),
        ("expireAfter: 1d\n    dateFormat: ${SECRET}", "expected one of `date`"),
        ("expireAfterSecond: 5", "unknown key `expireAfterSecond`; expected `expireAfterSeconds`?"),
        ("expireAfter: 1d\n    achive: {}", "unknown key `achive`; expected `archive`?"),
        ("expireAfter: 1d\n    max_delete_percent: 5", "expected `maxDeletePercent`?"),
        ("expireAfter: 1d\n    maxDeletePercent: 0", "above 0 and at most 100"),
        (
            "expireAfter: 1d\n    maxDeletePercent: 5%",
            "found the string \"5%\"; expected a number above 0 and at most 100, without a `%`",
        ),
        (
            "expireAfter: 1d\n    collation: {locale: de, strenght: 2}",
            "`collation`: unknown key `strenght`; expected `strength`?",
        ),
        ("expireAfter: 1d\n    maxDeletePercent: 100.1", "above 0 and at most 100"),
        ("expireAfter: 1d\n    maxDeletePercent: .nan", "above 0 and at most 100"),
        ("expireAfter: 1d\n    maxDeletes: 0", "from 1 to"),
        ("expireAfter: 1d\n    enabled: yes", "expected `true` or `false`"),
        ("expireAfter: 1d\n    hint: {at: 1}", "`hint`: found a mapping; expected a string"),
        ("expireAfter: 1d\n    collation: {strength: 2}", "needs a `locale`"),
        ("expireAfter: 1d\n    exclude: [app.x]", "goes with a namespace that has a `*`"),
        ("expireAfter: 1d\n    maxLag: 10", "`maxLag`: a number without a unit: 10"),
        ("expireAfter: 1d\n    maxLag: 0s", "`maxLag`: found 0; expected at least `1s`"),
        ("expireAfter: 1d\n    maxHeadMs: 0", "`maxHeadMs`: found the number 0; expected a whole number from 1 to 60000"),
        ("expireAfter: 1d\n    maxHeadMs: 20.5", "`maxHeadMs`: found the number 20.5; expected a whole number"),
        ("expireAfter: 1d\n    maxHeadMs: 20ms", "`maxHeadMs`: found the string \"20ms\"; expected a whole number"),
        ("expireAfter: 1d\n    window: 01:00-05:00", "`window`: expected a mapping"),
        ("expireAfter: 1d\n    window: {start: '01:00'}", "`window`: no `end`; expected a time of the day"),
        ("expireAfter: 1d\n    window: {start: '1:00', end: '05:00'}", "`start`: \"1:00\" is not a time of the day"),
        ("expireAfter: 1d\n    window: {start: '01:00', end: '24:00'}", "`end`: \"24:00\" is not a time of the day"),
        ("expireAfter: 1d\n    window: {start: '01:00', end: '01:00'}", "`end`: the same as `start`"),
        ("expireAfter: 1d\n    window: {start: 100, end: '05:00'}", "`start`: found the number 100"),
        (
            "expireAfter: 1d\n    window: {start: '01:00', end: '05:00', timezone: Madrid}",
            "\"Madrid\" is not a time zone; expected \"Europe/Madrid\"?",
        ),
        ("expireAfter: 1d\n    window: {start: '01:00', end: '05:00', zone: UTC}", "unknown key `zone`"),
        ("expireAfter: 1d\n    archive: {}", "`archive`: neither `directory` nor `url`; expected one"),
        (
            "expireAfter: 1d\n    archive: {directory: /x, url: 's3://b'}",
            "both `directory` and `url`; expected exactly one of them",
        ),
        (
            "expireAfter: 1d\n    archive: {url: 'https://b/c'}",
            "`url`: found the URL of something else; expected `s3://BUCKET/PREFIX`",
        ),
        ("expireAfter: 1d\n    archive: {url: /x}", "`url`: found no URL; expected"),
        ("expireAfter: 1d\n    archive: {directory: 's3://b'}", "`directory`: a URL; expected the path of a directory, or `url`"),
        ("expireAfter: 1d\n    archive: /x", "`archive`: expected a mapping, found"),
        ("expireAfter: 1d\n    archive: {directory: ''}", "`directory`: an empty path"),
        ("expireAfter: 1d\n    archive: {directory: /x, compression: lz4}", "expected one of `zstd`, `gzip`"),
        ("expireAfter: 1d\n    archive: {directory: /x, level: 3}", "unknown key `level`"),
        ("expireAfter: 1d\n    archive: {directory: '${UNSET}'}", "`UNSET` is not set"),
        ("expireAfter: 1d\n    hint: |\n      at_1", "`hint`: ends in a line break, as a block of lines (`|` or `>`) does"),
        ("<<: {expireAfter: 1d}", "merge keys (`<<`) are not supported"),
        ("1: 2", "expected a key, found the number 1"),
        ("expireAfter: ${UNSET}", "`UNSET` is not set"),
        ("expireAfter: ${KEEP", "not closed"),
        ("expireAfter: “1d”", "p.yaml:5:18: `“` is no quote of YAML"),
        ("expireAfter: 1d,", "p.yaml:5:20: the `,` at the end is a part of the value"),
        ("expireAfter: #1d", "p.yaml:5:18: `#` behind a space begins a comment, so that no value is left"),
        ("expireAfter: 1d\u{a0}", "p.yaml:5:20: an invisible character (U+00A0)"),
        ("\texpireAfter: 1d", "found a tab character"),
    ] {
        let found = problems(&rule(keys));
        assert!(found.contains(part), "{keys}: {found}");
    }
}

#[test]
fn a_key_in_another_spelling_is_told_once() {
    for (rule, said) in [
        (
            "{namespace: a.b, field: at, expire_after_seconds: 5}",
            "unknown key `expire_after_seconds`; expected `expireAfterSeconds`?",
        ),
        ("{namespace: a.b, field: at, expireafter: 5d}", "unknown key `expireafter`; expected `expireAfter`?"),
        ("{name_space: a.b, field: at, expireAfter: 5d}", "unknown key `name_space`; expected `namespace`?"),
        ("{namespace: a.b, field:at, expireAfter: 5d}", "no space after the colon of `field`; expected `field: ...`"),
    ] {
        let found = problems(&format!("version: 1\ncollections:\n  - {rule}\n"));
        assert!(found.contains(": 1 problem;") && found.ends_with(said), "{found}");
    }
    let found = problems("version: 1\ndefaults: {expire_after: 1d}\ncollections:\n  - {namespace: a.b, field: at}\n");
    assert!(found.contains(": 1 problem;") && found.contains("2:12: unknown key `expire_after`"), "{found}");
    let found = problems("version: 1\ncollection:\n  - {namespace: a.b, field: at, expireAfter: 5d}\n");
    assert!(found.contains(": 1 problem;"), "{found}");
}

#[test]
fn a_connection_string_without_its_scheme_is_a_problem_and_is_not_shown() {
    let rules = "collections: [{namespace: a.b, field: at, expireAfter: 1d}]\n";
    for uri in ["localhost:27017", "u:hunter2@h", "''", "http://hunter2", "$MONGODB_URI"] {
        let found = problems(&format!("version: 1\nconnection: {{uri: '{uri}'}}\n{rules}"));
        let said = "`uri`: expected a connection string that begins with `mongodb://` or `mongodb+srv://`, or a variable such as `${MONGODB_URI}`";
        assert!(found.ends_with(said) && !found.contains("hunter2"), "{uri}: {found}");
    }
}

#[test]
fn what_is_no_policy_at_all_is_an_error() {
    for (text, part) in [
        ("", "no policy; expected YAML with the keys `version` and `collections`"),
        ("[]", "expected a mapping, found a list"),
        ("version: 1", "no `collections`"),
        ("version: 1\ncollections: []", "at least one rule"),
        ("version: 1\ncollections: {}", "at least one rule"),
        ("collections: [{namespace: a.b, field: c, expireAfter: 1d}]", "no `version`"),
        ("version: '1'\ncollections: []", "`version`: found the string \"1\"; expected 1, a whole number without quotes"),
        ("version: 1\n---\nversion: 1", "more than one YAML document"),
        ("version: 1\ncollections: [{namespace: a.b, field: $x, expireAfter: 1d}]", "starts with `$`"),
        ("version: 1\ncollections: [{field: b, expireAfter: 1d}]", "no `namespace`"),
        ("version: 1\ncollections: [{namespace: a.system.views, field: b, expireAfter: 1d}]", "never swept"),
        (
            "version: 1\nconnection: {flavor: cosmos}\ncollections: [{namespace: a.b, field: b, expireAfter: 1d}]",
            "expected `cosmosRu`?",
        ),
        ("version: 1\nlock: {}\ncollections: [{namespace: a.b, field: b, expireAfter: 1d}]", "no `collection`"),
        (
            "version: 1\nconnection: {expect: {}}\ncollections: [{namespace: a.b, field: b, expireAfter: 1d}]",
            "`expect` says nothing",
        ),
    ] {
        let found = problems(text);
        assert!(found.contains(part), "{text}: {found}");
    }
}

#[test]
fn a_text_made_to_hurt_the_parser_is_refused_in_words() {
    let nested = |open: &str, times: usize| format!("version: {}", open.repeat(times));
    for (text, part) in [
        (nested("[", 200_000), "levels deep"),
        (nested("{a: ", 200_000), "levels deep"),
        (nested("[", 900), ""),
        ("- ".repeat(400_000), "nested too deep"),
        ((0..900).map(|depth| format!("{}a:\n", " ".repeat(depth))).collect(), "nested too deep"),
        ("a: &a [*a]".to_owned(), ""),
        (format!("version: 1 # {}", "x".repeat(10_000_000)), "expected at most 1048576"),
        ("version: 1\n".repeat(9_000), "more problems"),
    ] {
        let found = problems(&text);
        assert!(found.contains(part) && found.len() < 10_000, "{:.200}", found);
    }
}

#[test]
fn names_are_unique_and_default_to_the_namespace() {
    let names = |rules: &str| {
        parse(&format!("version: 1\ndefaults: {{expireAfter: 1d}}\ncollections:\n{rules}"))
            .map(|policy| policy.rules.into_iter().map(|rule| rule.name).collect::<Vec<_>>())
            .map_err(|error| error.to_string())
    };
    assert_eq!(names("  - {namespace: a.b, field: x}\n  - {namespace: a.c, field: x}\n"), Ok(vec!["a.b".into(), "a.c".into()]));
    assert_eq!(
        names("  - {namespace: a.b, field: x}\n  - {namespace: a.b, field: y}\n"),
        Ok(vec!["a.b:x".into(), "a.b:y".into()])
    );
    let twice = names("  - {name: n, namespace: a.b, field: x}\n  - {name: n, namespace: a.c, field: x}\n").unwrap_err();
    assert!(twice.contains("p.yaml:5:5: collections[1]: its name is taken by collections[0]"), "{twice}");
    let same = names("  - {namespace: a.b, field: x}\n  - {namespace: a.b, field: x}\n").unwrap_err();
    assert!(same.contains("is taken"), "{same}");
}

#[test]
fn anchors_variables_and_yaml_numbers_mean_what_yaml_says() {
    let policy = parse(
        "version: 0x1\nconnection: {uri: 'mongodb://${HOST:-x}:${PORT:-27017}'}\ncollections:\n  - namespace: a.b\n    \
         field: x\n    expireAfter: ${KEEP}\n    filter: &f {state: done}\n  - {namespace: a.c, field: x, expireAfterSeconds: 0x10, filter: *f}\n",
    )
    .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(policy.connection.uri.as_deref(), Some("mongodb://db.example.com:27017"));
    assert_eq!(policy.rules[0].expire_after_seconds, Some(604_800));
    assert_eq!(policy.rules[1].expire_after_seconds, Some(16));
    assert_eq!(policy.rules[1].filter, Some(doc! { "state": "done" }));
}

#[test]
fn a_variable_never_shows_its_value() {
    for keys in [
        "expireAfter: ${SECRET}",
        "expireAfter: 1d\n    hint: '${SECRET}'\n    dateFormat: ${SECRET}",
        "expireAfter: 1d\n    ttlField: 'x.${SECRET}'",
    ] {
        let found = problems(&rule(keys));
        assert!(!found.contains("hunter2"), "{found}");
    }
}

#[test]
fn a_variable_of_the_connection_string_need_not_be_set_where_another_string_is_given() {
    let text = "version: 1\nconnection: {uri: '${UNSET}'}\ncollections: [{namespace: a.b, field: c, expireAfter: 1d}]";
    assert!(problems(text).contains("`UNSET` is not set"));
    assert_eq!(parse::parse("p.yaml", text, &|_| None, true).map(|policy| policy.connection.uri), Ok(None));
    for uri in ["5", "[]", "{a: b}", "true", "~", "!x y"] {
        for uri_given in [false, true] {
            let problems =
                parse::parse("p.yaml", &text.replace("'${UNSET}'", uri), &|_| None, uri_given).unwrap_err().to_string();
            assert!(problems.contains("uri") && problems.contains("expected a string"), "{uri}: {problems}");
        }
    }
}
