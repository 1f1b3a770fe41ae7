use std::time::Duration;

use bson::oid::ObjectId;
use bson::{DateTime, Timestamp};

use super::*;
use crate::core::plan::SweepRule;
use crate::core::policy::RunLimits;
use crate::shell::server::look::children::FoundOrphans;
use crate::shell::server::watch::Watches;
use crate::shell::server::watch::lag::LagSource;
use crate::shell::sweep::engine::tests::{sweep_of, with_run};
use crate::testing::made_up::sweep::ids_of;
use crate::testing::made_up::with_children;
use crate::testing::scripted::Script;
use crate::testing::scripted::ScriptedReply::{self, Batch, End, Reply};

#[test]
fn parents_and_children_go_by_a_majority_whatever_the_connection_string_says() {
    let with_children = with_children();
    let alone = SweepRule { family: None, ..with_children.clone() };
    let mut deployment = Script::new([]).deployment();
    deployment.write_concern = doc! { "w": 1, "j": true };
    let sweep = sweep_of(&deployment, &with_children, &Watches::none());
    let majority = doc! { "w": "majority", "j": true };
    assert_eq!((sweep.write_concern(), sweep.children[0].write_concern()), (majority.clone(), majority));
    assert!(!sweep.is_of_children && sweep.children[0].is_of_children);
    assert_eq!(sweep_of(&deployment, &alone, &Watches::none()).write_concern(), doc! { "w": 1, "j": true });
}

/// Returns the reply to the read by which a look at parents begins.
fn confirmed() -> ScriptedReply {
    Reply(doc! { "cursor": { "firstBatch": [] }, "operationTime": Timestamp { time: 1, increment: 1 }, "ok": 1.0 })
}

#[test]
fn children_wait_for_members_that_lag_as_their_parents_do() {
    let mut rule = with_children();
    let max_lag = Some(Duration::from_secs(5));
    rule.limits.max_lag = max_lag;
    rule.family.as_mut().unwrap().children[0].rule.limits.max_lag = max_lag;
    let watches = Watches { lag: LagSource::Majority("mongos".into()).into(), ..Watches::none() };
    let sweep = sweep_of(&Script::new([]).deployment(), &rule, &watches);
    for sweep in [&sweep, &sweep.children[0]] {
        assert!(sweep.lag.is_bound());
        assert_eq!(sweep.write_concern(), doc! { "w": "majority", "wtimeout": 5000_i64 });
    }
}

/// Returns the sweep of a rule with children.
fn of_children(script: &Arc<Script>) -> Arc<RuleSweep> {
    sweep_of(&script.deployment(), &with_children(), &Watches::none())
}

/// Does something with the sweep of a rule with children.
async fn with_parents<T>(sweep: &Arc<RuleSweep>, act: impl AsyncFnOnce(&mut ParentSweep<'_>) -> T) -> T {
    let family = sweep.rule.family.as_ref().unwrap();
    with_run(&RunLimits::default(), async |run| act(&mut ParentSweep::new(sweep, family, run, run)).await).await
}

/// Finishes a journal with one entry, of parent 1 and with children in these places. Returns the commands that were sent after
/// the entry was read.
async fn finish(places: &[(&str, &str)], after: impl IntoIterator<Item = ScriptedReply>) -> Vec<Document> {
    let children: Vec<Document> =
        places.iter().map(|(namespace, field)| doc! { "namespace": *namespace, "field": *field }).collect();
    let at = DateTime::from_millis(1_600_000_000_000);
    let entry = doc! { "_id": 7, "run": "earlier", "at": at, "field": "_id", "parents": [1], "children": children };
    let script = Script::new([Batch(vec![entry]), confirmed()].into_iter().chain(after));
    if let Err(super::End::Failed(why)) =
        with_parents(&of_children(&script), async |parents| parents.finish_journal().await).await
    {
        panic!("{why}: {:?}", script.sent());
    }
    assert!(script.sent()[0].to_string().contains(r#""namespace": "app.c", "run": { "$ne": "r" }"#));
    let sent = script.sent().into_iter().skip(1).collect::<Vec<_>>();
    assert_eq!(sent[0].get_document("readConcern").unwrap(), &doc! { "level": "linearizable" });
    let after = doc! { "level": "majority", "afterClusterTime": Timestamp { time: 1, increment: 1 } };
    assert_eq!(sent[1].get_document("readConcern").unwrap(), &after);
    sent
}

#[tokio::test(start_paused = true)]
async fn an_entry_goes_once_all_its_children_are_done_and_stays_with_those_that_the_rule_does_not_have() {
    let done = || Reply(doc! { "n": 1, "ok": 1.0 });
    let write = |sent: &[Document]| {
        let write = sent.iter().find(|command| command.contains_key("delete") || command.contains_key("update"));
        write.map(|command| command.to_string())
    };
    let mine = ("app.d", "p");
    // The parent is gone, and no child is found; then comes the next entry.
    let sent = finish(&[mine], [End, End, done(), End]).await;
    assert!(write(&sent).unwrap().starts_with(r#"{ "delete": "j""#), "{sent:?}");
    let other = ("app.e", "p");
    let sent = finish(&[mine, other], [End, End, done(), End]).await;
    let pulled = r#"{ "$pullAll": { "children": [{ "namespace": "app.d", "field": "p" }] } }"#;
    assert!(write(&sent).unwrap().starts_with(r#"{ "update": "j""#) && write(&sent).unwrap().contains(pulled), "{sent:?}");
    // Another field of the same collection names another parent.
    for others in [&[other][..], &[("app.d", "q")]] {
        let sent = finish(others, [End, End]).await;
        assert_eq!(write(&sent), None, "{sent:?}");
        assert!(sent.iter().all(|command| command.get("find") != Some(&"d".into())), "{sent:?}");
    }
    // What another rule has done in the meantime.
    let sent = finish(&[], [End, done(), End]).await;
    assert!(write(&sent).unwrap().starts_with(r#"{ "delete": "j""#), "{sent:?}");
}

#[tokio::test(start_paused = true)]
async fn a_parent_that_is_there_was_not_deleted_by_the_earlier_run_and_is_forgotten() {
    let parent = Batch(vec![doc! { "_id": 1 }]);
    let sent = finish(&[("app.d", "p")], [parent, End, End, Reply(doc! { "n": 1, "ok": 1.0 }), End]).await;
    let deletes: Vec<&str> = sent.iter().filter_map(|command| command.get_str("delete").ok()).collect();
    assert_eq!(deletes, ["j"], "{sent:?}");
    // Its children are not looked for.
    let of_children = sent.iter().find(|command| command.get("find") == Some(&"d".into())).unwrap().to_string();
    assert!(of_children.contains(r#""$nin": [1]"#), "{of_children}");
}

#[tokio::test(start_paused = true)]
async fn only_parents_that_a_majority_has_are_entered_and_deleted_by_a_clock_that_was_read_before() {
    let at = DateTime::from_millis(1_600_000_000_000);
    let there = Batch(vec![doc! { "_id": 2 }]);
    let entered = Reply(doc! { "n": 1, "ok": 1.0 });
    let script = Script::new([Reply(doc! { "localTime": at, "ok": 1.0 }), confirmed(), there, End, entered]);
    let ids = [1, 2].map(|id| RawValue::of(id).unwrap());
    let batch = ids_of([1, 2]);
    let sweep = of_children(&script);
    let entered = with_parents(&sweep, async |parents| parents.enter_in_journal(&batch).await);
    let Ok((batch, entries)) = entered.await else { panic!("{:?}", script.sent()) };
    let children = sweep.outcome_by_now().children.expect("the rule has children");
    assert_eq!((batch, children.left), (ids_of([2]), 1));
    let [entry] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!((entry.at, entry.parents.as_slice()), (at, &ids[1..]));
    let sent = script.sent();
    let [clock, confirming, look, insert] = &sent[..] else { panic!("{sent:?}") };
    assert!(clock.contains_key("hello"), "{clock}");
    assert_eq!(confirming.get_document("readConcern").unwrap(), &doc! { "level": "linearizable" });
    let after = doc! { "level": "majority", "afterClusterTime": Timestamp { time: 1, increment: 1 } };
    assert_eq!(look.get_document("readConcern").unwrap(), &after);
    assert_eq!(insert.get_document("writeConcern").unwrap(), &doc! { "w": "majority" });
    assert_eq!(insert.get_array("documents").unwrap()[0].as_document().unwrap()["parents"], vec![Bson::from(2)].into());
}

#[tokio::test(start_paused = true)]
async fn parents_are_entered_by_their_keys_and_the_delete_repeats_these() {
    let mut rule = with_children();
    rule.family.as_mut().unwrap().children[0].parent_key = ParentKey { field: "n".into(), index: None };
    let there = Batch((1..=5).map(|id| doc! { "_id": id }).collect());
    let pattern = bson::Regex { pattern: bson::raw::cstr!("^a").into(), options: bson::raw::cstr!("").into() };
    let keys = Batch(vec![
        doc! { "_id": 1, "key": "a" },
        doc! { "_id": 2 },
        doc! { "_id": 3, "key": null },
        doc! { "_id": 4, "key": ["a", "b"] },
        doc! { "_id": 5, "key": pattern },
    ]);
    let (clock, entered) = (Reply(doc! { "localTime": DateTime::MIN, "ok": 1.0 }), Reply(doc! { "n": 1, "ok": 1.0 }));
    let script = Script::new([clock, confirmed(), there, End, keys, End, entered]);
    let sweep = sweep_of(&script.deployment(), &rule, &Watches::none());
    let ids: Vec<RawValue> = (1..=5).map(|id| RawValue::of(id).unwrap()).collect();
    let batch = ids_of(1..=5);
    let Ok((batch, entries)) = with_parents(&sweep, async |parents| parents.enter_in_journal(&batch).await).await else {
        panic!("{:?}", script.sent());
    };
    // Those with several keys stay, and so does one that gets another key meanwhile. One without a key has no children.
    let keys = doc! { "$and": [{ "n": { "$in": ["a", null, null] } }, { "n": { "$not": { "$type": "array" } } }] };
    let condition = RawDocumentBuf::try_from(&doc! { "$and": [keys] }).unwrap();
    assert_eq!(batch, Restriction::of_ids(condition, ids[..3].iter().collect()));
    let [entry] = &entries[..] else { panic!("{entries:?}") };
    assert_eq!(
        (entry.field.as_str(), entry.parents.as_slice(), entry.ids.as_slice()),
        ("n", &[RawValue::of("a").unwrap()][..], &ids[..1])
    );
    assert_eq!(entry.children, [ChildPlace { namespace: "app.d".into(), field: "p".into() }]);
}

#[tokio::test(start_paused = true)]
async fn the_children_of_a_parent_that_is_there_with_another_key_stay() {
    let mut rule = with_children();
    rule.family.as_mut().unwrap().children[0].parent_key = ParentKey { field: "n".into(), index: None };
    let entry = doc! {
        "_id": 7, "run": "earlier", "at": DateTime::MIN, "field": "n", "parents": ["a", "b"], "ids": [1, 2],
        "children": [{ "namespace": "app.d", "field": "p" }],
    };
    // No parent has one of the keys any more. The first is there all the same, and the second is gone.
    let there = Batch(vec![doc! { "_id": 1 }]);
    let done = Reply(doc! { "n": 1, "ok": 1.0 });
    let script = Script::new([Batch(vec![entry]), confirmed(), End, confirmed(), there, End, End, done, End]);
    let sweep = sweep_of(&script.deployment(), &rule, &Watches::none());
    if with_parents(&sweep, async |parents| parents.finish_journal().await).await.is_err() {
        panic!("{:?}", script.sent());
    }
    let sent = script.sent();
    let of_children = sent.iter().find(|command| command.get("find") == Some(&"d".into())).unwrap().to_string();
    assert!(of_children.contains(r#""$in": ["a", "b"], "$nin": ["a"]"#), "{of_children}");
}

#[tokio::test]
async fn what_became_of_the_children_is_added_to_what_became_of_the_parents() {
    with_parents(&of_children(&Script::new([])), async |parents| {
        let sweep = parents.engine.sweep.clone();
        let of_parents = sweep.outcome.lock().clone();
        *sweep.outcome.lock() = Outcome { batches: 2, unconfirmed: 4, ..of_parents };
        let of_child = &sweep.children[0];
        of_child.before_orphans.set(6).unwrap();
        *of_child.outcome.lock() = Outcome { batches: 3, deleted: 10, unconfirmed: 5, uncertain: true, ..Outcome::default() };
        let outcome = sweep.outcome_by_now();
        assert_eq!((outcome.deleted, outcome.batches, outcome.unconfirmed, outcome.uncertain), (0, 5, 9, true));
        let [of_child] = &outcome.children.as_ref().unwrap().collections[..] else { panic!("{:?}", outcome.children) };
        assert_eq!((of_child.deleted, of_child.orphans, of_child.uncertain), (10, 4, true));
    })
    .await;
}

/// Deletes what a pass has found: the orphans of one parent, if any is still there, among others that the pass could tell of or
/// not. Returns whether they are looked for again.
async fn pass(parents: &mut ParentSweep<'_>, script: &Script, is_there: bool, has_more: bool) -> bool {
    let id = ObjectId::from_bytes([1; 12]);
    let old = doc! { "_id": 7, "first": id, "last": id, "count": 1 };
    let has_parents = || Batch(vec![doc! { "_id": 1 }]);
    script.then([has_parents(), has_parents(), Batch(if is_there { vec![old] } else { Vec::new() }), End, confirmed(), End]);
    if is_there {
        let clock = Reply(doc! { "localTime": DateTime::from_millis(0), "ok": 1.0 });
        let deleted = Reply(doc! { "n": 1, "ok": 1.0 });
        script.then([Batch(vec![doc! { "_id": id, "p": 7 }]), End, clock, confirmed(), End, deleted]);
    } else {
        script.then([End]);
    }
    let found = FoundOrphans { count: 1, old: 1, parents: vec![RawValue::of(7).unwrap()], has_more };
    match parents.delete_found_orphans(0, &found).await {
        Ok(goes_on) => goes_on,
        Err(super::End::Failed(why)) => panic!("{why}: {:?}", script.sent().last()),
        Err(_) => panic!("{:?}", script.sent().last()),
    }
}

#[tokio::test(start_paused = true)]
async fn orphans_are_looked_for_again_only_if_the_pass_could_not_tell_of_all_and_some_went() {
    let script = Script::new([]);
    with_parents(&of_children(&script), async |parents| {
        for (is_there, has_more, goes_on) in
            [(true, true, true), (false, true, false), (true, false, false), (false, false, false)]
        {
            assert_eq!(pass(parents, &script, is_there, has_more).await, goes_on, "{is_there} {has_more}");
        }
        assert_eq!(parents.children[0].engine.outcome().deleted, 2);
    })
    .await;
}
