use bson::doc;

use super::*;
use crate::core::policy::place::locate;
use crate::core::policy::yaml::parse;

/// Returns a filter, or its problems, one per line.
fn filter(text: &str) -> Result<Document, String> {
    let parsed = parse_filter(&parse(text).unwrap(), &|name| (name == "STATE").then(|| "done".to_owned()));
    parsed.map_err(|problems| problems.into_iter().map(|(_, message)| message).collect::<Vec<_>>().join("\n"))
}

#[test]
fn filters_are_extended_json() {
    for (text, expected) in [
        ("{status: done}", doc! {"status": "done"}),
        ("{status: '${STATE}'}", doc! {"status": "done"}),
        ("{n: 5, big: 5000000000, f: 1.5, z: null}", doc! {"n": 5, "big": 5_000_000_000_i64, "f": 1.5, "z": Bson::Null}),
        ("{n: {$numberLong: '5'}}", doc! {"n": 5_i64}),
        ("{at: {$gt: {$date: '1970-01-01T00:00:01Z'}}}", doc! {"at": {"$gt": bson::DateTime::from_millis(1000)}}),
        (
            "{_id: {$oid: 000000000000000000000001}}",
            doc! {"_id": bson::oid::ObjectId::parse_str("000000000000000000000001").unwrap()},
        ),
        ("{$or: [{a: 1}, {b: {$exists: false}}]}", doc! {"$or": [{"a": 1}, {"b": {"$exists": false}}]}),
    ] {
        assert_eq!(filter(text), Ok(expected), "{text}");
    }
    // A sub-document equals only one with its keys in the same order, which `==` does not look at.
    let ordered = filter("{s: {z: 1, a: {y: 1, b: 2}}}").unwrap().to_string();
    assert_eq!(ordered, doc! {"s": {"z": 1, "a": {"y": 1, "b": 2}}}.to_string());
    for (text, part) in [
        ("{}", "empty filter"),
        ("[]", "expected a mapping"),
        ("5", "expected a mapping"),
        ("{a: .nan}", "$numberDouble"),
        ("{$where: 'true'}", "not allowed"),
        ("{a: {$elemMatch: {$where: x}}}", "not allowed"),
        ("{$_internalJsEmit: {}}", "`$_internalJsEmit` is not allowed"),
        ("{$expr: {$_internalJsEmit: {eval: x, this: $$ROOT}}}", "not allowed"),
        ("{$nor: [{$and: [{a: 1}, {a: {$not: {$_internalExprEq: 1}}}]}]}", "not allowed"),
        ("{$expr: {$let: {vars: {f: {$function: {body: x, args: [], lang: js}}}, in: $$f}}}", "not allowed"),
        ("{$expr: {$reduce: {input: $a, initialValue: 0, in: {$accumulator: {}}}}}", "not allowed"),
        ("{a: {$geoNear: [1, 2]}}", "not allowed"),
        ("{$and: [{$expr: {$gt: [{$rand: {}}, 0.5]}}]}", "another answer each time"),
        ("{$gt: 5}", "cannot stand at the top"),
        ("{a: 1, a: 2}", "duplicate key"),
        ("{1: 2}", "as a key"),
        ("{a: {$date: nonsense}}", "Extended JSON"),
        ("{a: {$oid: 12}}", "Extended JSON"),
        ("{a: '${UNSET}'}", "`UNSET` is not set"),
        (
            "{a: }",
            "`a`: found nothing (null); expected a value, in quotes if it begins with `&` or `#`, or `null`, which a missing field",
        ),
        ("{a, b: 1}", "`a`: found nothing (null)"),
        ("{b: &x , c: *x}", "`b`: found nothing (null)"),
        ("{a:1}", "no space after the colon of `a`; expected `a: ...`"),
        ("{a: {$gt 5}}", "`$gt 5` is a key without a value; expected a colon in it: `$gt: 5`"),
        ("'{a: 1}'", "found a string; expected a mapping: the same without the quotes around it"),
        ("a:1", "no space after the colon of `a`; expected `a: ...`"),
        ("{$or: [{a: 1}, {b: {$gt: }}]}", "`$gt`: found nothing (null)"),
        ("a:\n  $in:\n  - 1\n  -\n", "found nothing (null); expected a value, or `null`"),
        ("{<<: {a: 1}, b: 2}", "merge keys (`<<`) are not supported"),
        ("{a: !x 1}", "found `!x`, which without quotes is a tag of YAML; expected the value in quotes, or Extended JSON"),
        (
            "{a: !ObjectId 'x'}",
            "found `!ObjectId`, which without quotes is a tag of YAML; expected {$oid: \"...\"} with 24 hexadecimal digits",
        ),
    ] {
        let message = filter(text).unwrap_err();
        assert!(message.contains(part), "{text}: {message}");
    }
}

#[test]
fn all_problems_are_told_each_at_its_place() {
    for (text, expected) in [
        ("{a: {$gt: .nan}, b: , c: [!x 1, {d: 1, d: 2}]}", &[11, 18, 27, 40][..]),
        ("{a: {$oid: x}, b: [{$date: y}, 5]}", &[12, 28]),
        ("{$where: x, $gt: 5, a: [{$function: y}], b: {$exists: 'x'}}", &[2, 13, 26, 46]),
    ] {
        let problems = parse_filter(&parse(text).unwrap(), &|_| None).unwrap_err();
        let mut columns: Vec<usize> = problems.iter().map(|(path, _)| locate(text, path).unwrap().column).collect();
        columns.sort_unstable();
        assert_eq!(columns, expected, "{text}");
    }
}

#[test]
fn all_wrong_keys_of_a_collation_are_told() {
    let known = ["locale", "strength", "caseLevel"];
    for (text, expected) in [
        (
            "{locale: de, strenght: 2, caselevel: true}",
            "unknown key `strenght`; expected `strength`?\nunknown key `caselevel`; expected `caseLevel`?",
        ),
        (
            "{lokale: de, x: 1}",
            "unknown key `lokale`; expected `locale`?\nunknown key `x`; expected one of locale, strength, caseLevel",
        ),
        ("{strenght: 2}", "unknown key `strenght`; expected `strength`?\na collation needs a `locale`, such as `en` or `simple`"),
        ("{locale: ''}", "a collation needs a `locale`, such as `en` or `simple`"),
    ] {
        let problems = parse_collation(&parse(text).unwrap(), &known, &|_| None).unwrap_err();
        let messages: Vec<String> = problems.into_iter().map(|(_, message)| message).collect();
        assert_eq!(messages.join("\n"), expected, "{text}");
    }
}

#[test]
fn an_error_names_the_type_and_never_the_value() {
    for (text, key) in [
        ("{a: {$date: '${STATE}'}}", "$date"),
        ("{a: {$in: [{$oid: '${STATE}'}]}}", "$oid"),
        ("{a: {$date: {$numberLong: '${STATE}'}}}", "$numberLong"),
        ("{a: {$numberDecimal: '${STATE}'}}", "$numberDecimal"),
        ("{a: {$timestamp: {t: '${STATE}', i: 1}}}", "$timestamp"),
        ("{a: {$binary: {base64: '${STATE}', subType: '${STATE}'}}}", "$binary"),
        ("{a: {$uuid: '${STATE}'}}", "$uuid"),
        ("{a: {$regularExpression: {pattern: a, options: b, more: '${STATE}'}}}", "$regularExpression"),
    ] {
        let message = filter(text).unwrap_err();
        assert!(message.starts_with(&format!("not valid Extended JSON: the value of `{key}`; expected ")), "{text}: {message}");
        assert!(!message.contains("done"), "{text}: {message}");
    }
}

#[test]
fn the_values_that_stand_for_variables_are_known_with_their_types() {
    let env = |name: &str| Some(if name == "DAY" { "1970-01-01T00:00:01Z" } else { "done" }.to_owned());
    let node = parse("{a: x, b: 'is ${STATE}', c: {$in: [1, '${STATE}']}, d: {$gt: {$date: '${DAY}'}}}").unwrap();
    let variable = |value: Bson, text: &str, written: &str| Variable { value, text: text.into(), written: written.into() };
    let expected = [
        variable("is done".into(), "is done", "is ${STATE}"),
        variable("done".into(), "done", "${STATE}"),
        variable(bson::DateTime::from_millis(1000).into(), "1970-01-01T00:00:01Z", "${DAY}"),
    ];
    assert_eq!(variables(&node, &env), expected);
}
