//! Compares the predicates of rules, as the model of a server evaluates them, with the oracle: every value around the instants at
//! which something changes, with every ttl.

use bson::{Bson, DateTime, Document, doc};

use super::{Filter, Format, Rule};
use crate::core::expiry::Expiry;
use crate::core::policy::DateFormat;
use crate::testing::simulation::documents::in_format;
use crate::testing::simulation::scenario::START;

/// The instant at which expiry is judged, in the middle of a second.
const AS_OF: i64 = START + 500;

/// A value of the ttl that expires documents long before the rule does.
const OWN: i32 = 5;

const FORMATS: [Format; 5] = [Format::Date, Format::EpochSeconds, Format::EpochMillis, Format::ObjectId, Format::Iso8601];

fn rule(format: Format, expire_after: Option<i64>, has_ttl: bool, filter: Filter) -> Rule {
    Rule { namespace: "app.c".into(), field: "at", format, expire_after, ttl_field: has_ttl.then_some("ttl"), filter }
}

fn expiry(rule: &Rule) -> Expiry {
    Expiry {
        field: rule.field.into(),
        format: match rule.format {
            Format::Date => DateFormat::Date,
            Format::EpochSeconds => DateFormat::EpochSeconds,
            Format::EpochMillis => DateFormat::EpochMillis,
            Format::ObjectId => DateFormat::ObjectId,
            Format::Iso8601 => DateFormat::Iso8601,
        },
        expire_after_seconds: rule.expire_after.map(|seconds| seconds.try_into().unwrap()),
        ttl_field: rule.ttl_field.map(str::to_owned),
        not_before_1970: false,
        checks_path: false,
        filter: match rule.filter {
            Filter::Nothing => None,
            Filter::Done => Some(doc! { "status": "done" }),
            Filter::NotHeld => Some(doc! { "status": { "$ne": "held" } }),
        },
        as_of: DateTime::from_millis(AS_OF),
    }
}

/// Returns values around the end of each lifetime, around the bounds of the units, and others.
fn dates(format: Format) -> Vec<Option<Bson>> {
    let mut dates = Vec::new();
    for lifetime in [0, 1, OWN.into(), 60, i32::MAX.into()] {
        for off in [-1000, -500, -1, 0, 1, 500] {
            dates.extend((0..3).map(|how| in_format(format, AS_OF - lifetime * 1000 + off, how)));
        }
    }
    let (long_ago, later) = (in_format(format, AS_OF - 90_000, 1), in_format(format, AS_OF + 90_000, 1));
    for edge in [100_000_000_000_i64, 8_640_000_000_000_000] {
        for off in -1..=1 {
            for number in [edge + off, -edge + off] {
                dates.push(number.into());
                dates.push(vec![number.into(), long_ago.clone()].into());
            }
        }
    }
    dates.extend([f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(Bson::Double));
    // The model reads a space for a zero, and a second too many for the next one.
    dates.extend(["2020-01- 5T00:00:00Z", "2020-01-05T 0:00:00Z", "2020-01-05T00:00:60Z"].map(Bson::from));
    dates.extend(["x".into(), Bson::Null, true.into(), "1.5".parse::<bson::Decimal128>().unwrap().into()]);
    dates.extend(FORMATS.map(|other| in_format(other, AS_OF - 90_000, 0)));
    dates.extend([
        vec![later.clone(), long_ago.clone()].into(),
        vec![later.clone(), later.clone()].into(),
        vec![f64::NAN.into(), "x".into(), long_ago.clone()].into(),
        vec![Bson::from(vec![long_ago.clone()])].into(),
        Bson::Array(Vec::new()),
        doc! { "d": long_ago }.into(),
    ]);
    dates.into_iter().map(Some).chain([None]).collect()
}

fn ttls() -> Vec<Option<Bson>> {
    let (least, most) = (i64::from(i32::MIN), i64::from(i32::MAX));
    let mut ttls: Vec<Bson> = [OWN, 1, 0, -1, -2, i32::MAX, i32::MIN].map(Bson::Int32).into();
    ttls.extend([OWN.into(), 0, -1, -2, most, most + 1, least, least - 1, i64::MAX].map(Bson::Int64));
    ttls.extend([f64::from(OWN), 5.5, 0.0, 0.5, -0.5, -1.0, -2.0, most as f64, 2_147_483_648.0].map(Bson::Double));
    ttls.extend([-2_147_483_648.0, -2_147_483_649.0, 1e300, f64::NAN, f64::INFINITY].map(Bson::Double));
    ttls.extend(["5".into(), Bson::Null, false.into(), "5".parse::<bson::Decimal128>().unwrap().into()]);
    ttls.extend([vec![Bson::Int32(OWN)].into(), doc! { "n": OWN }.into()]);
    ttls.into_iter().map(Some).chain([None]).collect()
}

/// Returns a document for each pair of a date and a ttl; three in turn differ in their status.
fn documents(format: Format) -> Vec<Document> {
    let mut statuses = [Some("done"), Some("held"), None].into_iter().cycle();
    let mut documents = Vec::new();
    for date in dates(format) {
        for ttl in ttls() {
            let mut document = Document::new();
            let fields = [("at", date.clone()), ("ttl", ttl), ("status", statuses.next().flatten().map(Bson::from))];
            document.extend(fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
            documents.push(document);
        }
    }
    documents
}

/// Fails if a filter does not select exactly the documents that are expected.
fn assert_selects(filter: &Document, documents: &[Document], is_expected: impl Fn(&Document) -> bool) {
    let selected = server_model::selected(filter, documents);
    let mut differ = documents.iter().zip(&selected).filter(|(document, is_selected)| is_expected(document) != **is_selected);
    assert_eq!(differ.next(), None, "{filter}");
    assert!(selected.contains(&true) && selected.contains(&false), "{filter}");
}

#[test]
fn a_predicate_selects_exactly_the_documents_that_have_expired() {
    for format in FORMATS {
        let mut documents = documents(format);
        if format == Format::Iso8601 {
            // In a build for tests the expression for a string takes long. No cycle of the dates, ttls and statuses has a
            // multiple of 5.
            documents = documents.into_iter().step_by(5).collect();
        }
        for (expire_after, has_ttl) in [(Some(60), false), (Some(60), true), (None, true), (Some(0), true)] {
            let filter = if has_ttl { Filter::NotHeld } else { Filter::Done };
            let rule = rule(format, expire_after, has_ttl, filter);
            let expiry = expiry(&rule);
            let checked = Expiry { checks_path: true, ..expiry.clone() };
            if format == Format::Iso8601 {
                // Strings are looked up by an expression anyway.
                assert_eq!(checked.predicate(), expiry.predicate());
            } else {
                assert_selects(&checked.predicate(), &documents, |document| rule.is_expired(document, AS_OF));
            }
            assert_selects(&expiry.predicate(), &documents, |document| rule.is_expired(document, AS_OF));
        }
    }
}

#[test]
fn numbers_in_another_unit_are_counted_whatever_else_their_document_holds() {
    for format in [Format::EpochSeconds, Format::EpochMillis] {
        let rule = rule(format, Some(60), false, Filter::Done);
        assert_selects(&expiry(&rule).implausible_epoch().unwrap(), &documents(format), |document| {
            let at = document.get("at").unwrap_or(&Bson::Null);
            let values = at.as_array().map_or(std::slice::from_ref(at), Vec::as_slice);
            let is_wrong = values.iter().filter_map(|value| rule.date(value)).any(|date| rule.is_in_another_unit(date));
            is_wrong && rule.selects(document)
        });
    }
}

#[test]
fn documents_that_their_ttl_keeps_and_those_whose_ttl_does_not_count_are_told_apart() {
    let rule = rule(Format::Date, Some(60), true, Filter::NotHeld);
    let documents = documents(Format::Date);
    let is_old = |document: &Document| {
        // The shortest ttl is a second.
        let date = document.get("at").and_then(|value| rule.earliest(value));
        date.is_some_and(|date| date <= (AS_OF - 1000) as f64) && rule.selects(document)
    };
    let own = |document: &Document| Rule { expire_after: None, ..rule.clone() }.lifetime(document);
    let by_rule = |document: &Document| rule.lifetime(document) == Some(60.0) && own(document).is_none();
    let expiry = expiry(&rule);
    assert_selects(&expiry.ttl_ignored().unwrap(), &documents, |document| {
        is_old(document) && document.contains_key("ttl") && by_rule(document)
    });
    assert_selects(&expiry.ttl_not_positive().unwrap(), &documents, |document| {
        let is_kept = rule.lifetime(document).is_none();
        let is_never = document.get("ttl").is_some_and(|ttl| [(-1).into(), Bson::Int64(-1), (-1.0).into()].contains(ttl));
        is_old(document) && is_kept && !is_never
    });
}

/// Returns a document with a value at each place where a path could lead, through documents and lists.
fn nested(value: &Bson, depth: usize) -> Vec<Bson> {
    if depth == 0 {
        return vec![value.clone(), vec![value.clone(), "x".into()].into(), vec![Bson::from(vec![value.clone()])].into()];
    }
    let mut all = Vec::new();
    for inner in nested(value, depth - 1) {
        all.extend(["a", "b", "0", "1", "01"].map(|name| Bson::from(doc! { name: inner.clone() })));
        all.push(vec![inner.clone()].into());
        all.push(vec!["x".into(), inner.clone()].into());
    }
    all
}

#[test]
fn the_date_at_a_path_is_found_by_an_expression_wherever_the_server_finds_it() {
    let date = Bson::from(DateTime::from_millis(AS_OF - 90_000));
    let documents: Vec<Document> = nested(&date, 3).into_iter().map(|inner| doc! { "a": inner }).collect();
    for path in ["a", "a.b", "a.0", "a.0.b", "a.b.1", "a.01", "a.1.0.b", "a.b.a.b", "a.0.1"] {
        let rule = Expiry { field: path.into(), ..expiry(&rule(Format::Date, Some(60), false, Filter::Nothing)) };
        let expected = server_model::selected(&rule.predicate(), &documents);
        let found = server_model::selected(&Expiry { checks_path: true, ..rule }.predicate(), &documents);
        let differs = documents.iter().zip(expected.iter().zip(&found)).find(|(_, (expected, found))| expected != found);
        assert_eq!(differs, None, "{path}");
        assert!(path == "a" || expected.contains(&true), "{path}");
    }
}
