use super::*;

#[test]
fn a_share_may_be_the_limit_and_not_one_document_more() {
    for (limit, expired, documents, refused) in [
        (Some(50.0), 500, 1000, false),
        (Some(50.0), 501, 1000, true),
        (Some(0.1), 1, 1000, false),
        (Some(0.1), 2, 1000, true),
        (Some(100.0), 1000, 1000, false),
        // The collection's own count may lag behind: the share is then 100 %.
        (Some(100.0), 1001, 1000, false),
        (Some(99.9), 1001, 1000, true),
        (Some(1.0), 0, 0, false),
        (None, 1000, 1000, false),
    ] {
        let refusal = share(limit, expired, documents, DOCUMENT);
        assert_eq!(refusal.is_some(), refused, "{limit:?} {expired} {documents}");
        assert!(refusal.is_none_or(|refusal| refusal.guard == Guard::MaxDeletePercent));
    }
    let detail = share(Some(50.0), 2_000, 3_000, "bucket").expect("a refusal").detail;
    assert!(detail.starts_with("2,000 of 3,000 buckets have expired, 66.67 %, and 50 % may be deleted"), "{detail}");
}

#[test]
fn no_index_is_asked_for_where_none_can_serve() {
    let text = "{version: 1, collections: [{namespace: a.b, field: at, dateFormat: iso8601, expireAfter: 1d}]}";
    let mut rule = crate::core::policy::parse::parse("p", text, &|_| None, true).unwrap().rules.remove(0);
    let namespace = Namespace { database: "a".into(), collection: "b".into() };
    let of = |rule: &Rule, documents| scan(rule, &namespace, "at", None, documents).map(|refusal| refusal.detail);
    let detail = of(&rule, SCAN_GUARD_DOCUMENTS + 1).unwrap();
    assert!(detail.contains("no index serves dates in strings") && !detail.contains("createIndex"), "{detail}");
    assert_eq!(of(&rule, SCAN_GUARD_DOCUMENTS), None);
    rule.allow_collection_scan = true;
    assert_eq!(of(&rule, SCAN_GUARD_DOCUMENTS + 1), None);
}

#[test]
fn enough_documents_are_the_fewest_of_which_the_share_may_go_and_at_most_two_more() {
    for limit in [0.01, 0.3, 1.0, 33.3, 50.0, 79.99, 99.99] {
        for expired in [1, 2, 3, 7, 999, 1000, 123_456_789] {
            let enough = enough_documents(Some(limit), expired).unwrap();
            assert_eq!(share(Some(limit), expired, enough, DOCUMENT), None, "{limit} {expired}");
            assert!(share(Some(limit), expired, enough - 3, DOCUMENT).is_some(), "{limit} {expired} {enough}");
        }
    }
    // Any share, or nothing that has a share.
    assert_eq!((enough_documents(None, 5), enough_documents(Some(100.0), 5)), (None, None));
    assert_eq!((enough_documents(Some(1.0), 0), enough_documents(Some(0.0), 0)), (None, None));
    assert_eq!(enough_documents(Some(0.0), 1), Some(u64::MAX));
}

#[test]
fn the_tolerance_of_an_approval_is_one_percent_rounded_up() {
    for (count, most) in [(0, 0), (1, 2), (99, 100), (100, 101), (101, 103), (1000, 1010), (u64::MAX, u64::MAX)] {
        let approved = Approved::of(count);
        assert_eq!(approved, Approved { count, most });
        assert_eq!(approved.refusal(most), None, "{count}");
    }
    let refusal = Approved::of(100).refusal(102).expect("a refusal");
    assert_eq!(refusal.guard, Guard::Plan);
    assert!(
        refusal.detail.starts_with("102 documents have expired, 100 were approved, and 1 % more is tolerated"),
        "{refusal:?}"
    );
}

#[test]
fn every_guard_has_its_word() {
    for (guard, word) in [
        (Guard::Clock, "clock"),
        (Guard::Expect, "expect"),
        (Guard::Detached, "detached"),
        (Guard::AsOf, "asOf"),
        (Guard::Plan, "plan"),
        (Guard::Lock, "lock"),
        (Guard::UnknownField, "unknownField"),
        (Guard::UnknownType, "unknownType"),
        (Guard::MaxDeletePercent, "maxDeletePercent"),
        (Guard::MinOplogWindow, "minOplogWindow"),
        (Guard::CollectionScan, "collectionScan"),
        (Guard::Hint, "hint"),
        (Guard::NoSuchNamespace, "noSuchNamespace"),
        (Guard::View, "view"),
        (Guard::Capped, "capped"),
        (Guard::TimeSeries, "timeSeries"),
        (Guard::Field, "field"),
        (Guard::Collation, "collation"),
        (Guard::DateFormat, "dateFormat"),
        (Guard::Archive, "archive"),
        (Guard::Children, "children"),
        (Guard::Holds, "holds"),
    ] {
        assert_eq!(guard.to_string(), word);
    }
}

#[test]
fn only_types_that_are_refused_are_named() {
    let planned = crate::testing::made_up::planned("    filter: {s: {$ne: done}, n: {$ne: 4}}\n", 7);
    let fields = crate::core::plan::fields::named(&planned).into_iter().filter(|field| !field.is_of_dates());
    let all = fields.map(|field| UnknownField { field, is_known: true, similar: None, is_elsewhere: false, is_strict: false });
    let (types, names): (Vec<_>, Vec<_>) = all.partition(|unknown| unknown.field.compared.is_some());
    let passed = |unknown: &UnknownField| UnknownField { is_elsewhere: true, ..unknown.clone() };
    assert!(!passed(&types[1]).is_refused());
    let detail = unknown_type(&[types[0].clone(), passed(&types[1]), names[1].clone()]).unwrap().detail;
    assert!(detail.ends_with("set `allowUnknownTypes: [s]`"), "{detail}");
    assert_eq!(unknown_type(&names), None);
}
