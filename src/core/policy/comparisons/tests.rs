use super::super::filter::parse_filter;
use super::super::yaml::parse;
use super::*;

fn compared(filter: &str) -> Vec<Comparison> {
    of_filter(&parse_filter(&parse(filter).unwrap(), &|_| None).unwrap(), &[])
}

/// Returns the comparisons of a filter; a `!` marks those for which a rule is refused.
fn shown(filter: &str) -> String {
    let word = |found: Comparison| {
        let mark = if found.is_guarded { "!" } else { "" };
        format!("{}:{:?}{mark}", found.path, found.value_type)
    };
    compared(filter).into_iter().map(word).collect::<Vec<_>>().join(" ")
}

#[test]
fn a_comparison_is_guarded_wherever_a_wrong_type_may_select_more() {
    for (filter, expected) in [
        ("{a: 1, b: {$gt: x}, c: {$in: [true, null]}}", "a:Number b:String c:Boolean!"),
        ("{a: {$ne: 1}, b: {$nin: [1, x, null]}}", "a:Number! b:Number! b:String!"),
        ("{a: {$not: {$gt: 5}}, b: {$not: {$regex: x}}, c: {$not: {$mod: [2, 0]}}}", "a:Number! b:String! c:Number!"),
        ("{$nor: [{a: 1}, {$or: [{$and: [{b: {$gt: x}}]}]}]}", "a:Number! b:String!"),
        ("{$or: [{a: 1}, {a: {$ne: 2}}]}", "a:Number!"),
        ("{a: {$exists: true, $type: string, $size: 3}, b: null, c: {$ne: null}, d: {$gt: {$minKey: 1}}}", ""),
        ("{a: {$ne: 1, $exists: true}}", "a:Number!"),
        ("{a: {$gte: 2026-11-24}, b: /x/i, c: {$lt: x}}", "a:String! b:String! c:String"),
        ("{i: {$elemMatch: {q: {$ne: 1}, r: 2}}}", "i.q:Number! i.r:Number"),
        ("{i: {$not: {$elemMatch: {$gt: 5}}}}", "i:Number!"),
        ("{i: {$all: [{$elemMatch: {q: 1}}, x]}}", "i.q:Number i:String"),
        ("{s: {$ne: {id: '5', in: {k: true}}}}", "s:Object! s.id:String! s.in:Object! s.in.k:Boolean!"),
        ("{s: {$nin: [[1], [x]]}}", "s:Array! s:Number! s:String!"),
        ("{$comment: x, a: {$bitsAllSet: 1}}", "a:Bits"),
    ] {
        assert_eq!(shown(filter), expected, "{filter}");
    }
}

#[test]
fn the_types_are_looked_for_where_the_filter_compares_them() {
    for (filter, having) in [
        ("{a.b: {$ne: 1}}", doc! { "a.b": { "$type": "number" } }),
        ("{i: {$elemMatch: {q: 1}}}", doc! { "i": { "$elemMatch": { "q": { "$type": "number" } } } }),
        ("{i: {$elemMatch: {$elemMatch: {$gt: true}}}}", doc! { "i": { "$elemMatch": { "$elemMatch": { "$type": "bool" } } } }),
        ("{$expr: {$gt: [$a, true]}}", doc! { "$expr": { "$in": [{ "$type": "$a" }, ["bool"]] } }),
    ] {
        assert_eq!(compared(filter)[0].having, having, "{filter}");
    }
    let inside = compared("{s: {$ne: {id: 5}}}").remove(1);
    assert_eq!((inside.having, inside.having_any), (doc! { "s.id": { "$type": "number" } }, None));
}

#[test]
fn expressions_are_compared_by_the_types_that_are_known() {
    for (filter, expected) in [
        ("{$expr: {$lt: [$a, 5]}}", "a:Number!"),
        ("{$expr: {$lt: ['x', $a.b]}}", "a.b:String!"),
        ("{$expr: {$gt: [$a, $$NOW]}}", "a:Date!"),
        ("{$expr: {$gt: [$a, {$subtract: [$$NOW, 5]}]}}", "a:Date!"),
        ("{$expr: {$not: [{$in: [$a, [1, x]]}]}}", "a:Number! a:String!"),
        ("{$expr: {$in: [1, $a]}}", "a:Number!"),
        ("{$expr: {$lt: [{$year: $a}, '2020']}}", "a:String!"),
        ("{$expr: {$lt: [{$year: $a}, 2020]}}", ""),
        ("{$expr: {$eq: [$a, $b]}}", ""),
        ("{$expr: {$eq: [$a, null]}}", ""),
        ("{$expr: {$eq: [1, x]}}", ""),
        ("{$expr: {$eq: [$a, {$literal: $b}]}}", "a:String!"),
        ("{$expr: {$let: {vars: {c: x, f: $a.b}, in: {$lt: [$$f, $$c]}}}}", "a.b:String!"),
        ("{$expr: {$anyElementTrue: [{$map: {input: $i, as: e, in: {$eq: [$$e.q, 1]}}}]}}", "i.q:Number!"),
        ("{$expr: {$eq: [{$type: $a}, string]}}", ""),
        ("{$expr: {$switch: {branches: [{case: {$eq: [$a, x]}, then: true}], default: {$ne: [$b, 1]}}}}", "a:String! b:Number!"),
    ] {
        assert_eq!(shown(filter), expected, "{filter}");
    }
    // A value that stands in for a missing one is no value of a document.
    let found = compared("{$expr: {$ne: [{$ifNull: [$a, false]}, true]}}").remove(0);
    assert!(found.having.to_string().contains("\"$ifNull\": [\"$a\", null, null]"), "{:?}", found.having);
}

#[test]
fn limits_of_a_schema_are_met_by_other_types() {
    for (filter, expected) in [
        (
            "{$jsonSchema: {properties: {a: {minimum: 5}, b: {enum: [x]}, c: {properties: {d: {pattern: x}}}}}}",
            "a:Number! b:String c.d:String!",
        ),
        ("{$jsonSchema: {not: {properties: {b: {enum: [x, 1]}}}}}", "b:String! b:Number!"),
    ] {
        assert_eq!(shown(filter), expected, "{filter}");
    }
}

#[test]
fn a_path_is_allowed_by_its_name_or_one_above() {
    let found = compared("{s: {$ne: {id: 5}}}");
    let allowed = |paths: &[&str]| -> Vec<bool> {
        let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
        found.iter().map(|found| found.is_allowed(&paths)).collect()
    };
    assert_eq!(allowed(&["s"]), [true, true]);
    assert_eq!(allowed(&["s.id"]), [false, true]);
    assert_eq!(allowed(&["s.i", "t"]), [false, false]);
}
