//! Sharded collections, where an `_id` is unique on each shard only: what a sweep archived and deleted comes back whole, and
//! every document of the archive is in one count.

use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::support::archives::{archive, directory, into, restored};
use crate::support::cluster::{Cluster, middle};
use crate::support::faults::days;
use crate::support::proxy::fault::Fault;
use crate::support::proxy::router::Sharded;
use crate::support::sweeper::Ran;
use mongodb::bson::{Bson, Document, RawDocumentBuf, Timestamp, doc};
use serde_json::Value;
use ttl_sweeper::core::policy::Compression;
use ttl_sweeper::core::policy::namespace::Namespace;
use ttl_sweeper::shell::archive::writer::Archive;

/// Number of `_id`s that two expired documents share.
const TWINS: i32 = 40;

/// A collection `c` whose expired documents were archived and deleted.
struct Swept {
    cluster: Cluster,
    archive: PathBuf,
    before: BTreeSet<(usize, Vec<u8>)>,
    live: BTreeSet<(usize, Vec<u8>)>,
}

/// Returns the document with this `_id` of one of two twins, which differ in everything that a shard key of these tests names.
fn twin(id: i32, side: usize) -> RawDocumentBuf {
    let document = doc! {
        "_id": id,
        "tenant": (["acme", "zeta"][side]),
        "at": days([-3, -30][side]),
        "a": { "x": 0, "b": ([10, 90][side] + id % 5) },
        "v": format!("{id} of {side}"),
    };
    raw(document)
}

fn raw(document: Document) -> RawDocumentBuf {
    RawDocumentBuf::try_from(&document).unwrap()
}

/// Returns all shard keys of these tests. With the flag, two documents can have one `_id`.
fn keys() -> Vec<(Sharded, bool)> {
    let tenant_hash = Sharded::halves(doc! { "tenant": "hashed" }, middle());
    assert_ne!(tenant_hash.shard_of(&["acme".into()]), tenant_hash.shard_of(&["zeta".into()]));
    vec![
        (Sharded::halves(doc! { "tenant": 1 }, ["m".into()]), true),
        (Sharded::halves(doc! { "_id": "hashed" }, middle()), false),
        (Sharded::halves(doc! { "at": 1 }, [days(-10).into()]), true),
        (Sharded::halves(doc! { "tenant": 1, "at": 1 }, ["m".into(), Bson::MinKey]), true),
        (Sharded::halves(doc! { "a.b": 1 }, [50.into()]), true),
        (tenant_hash, true),
    ]
}

async fn swept(sharded: Sharded, has_twins: bool, rule: &str) -> Swept {
    let cluster = Cluster::new().await;
    cluster.shard("c", sharded).await;
    let sides = if has_twins { 2 } else { 1 };
    let documents: Vec<_> = (0..TWINS).flat_map(|id| (0..sides).map(move |side| twin(id, side))).collect();
    cluster.fill("c", &documents).await;
    let live = doc! { "_id": 1000, "tenant": "acme", "at": days(3), "a": { "b": 10 } };
    cluster.fill("c", &[raw(live)]).await;
    let before = cluster.documents("c").await;
    let rule = format!(
        "  - {{namespace: DB.c, field: at, expireAfter: 1d, {rule}archive: {{directory: {}}}}}\n",
        directory(&cluster.case).display()
    );
    let ran = cluster.case.run(&rule, &["sweep"]).await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let live = cluster.documents("c").await;
    assert_eq!((live.len(), before.len()), (1, documents.len() + 1), "{ran:?}");
    Swept { archive: archive(&directory(&cluster.case)), cluster, before, live }
}

/// Returns the counts of a report that are not 0.
fn counts(report: &Value) -> Vec<(&'static str, u64)> {
    let names = ["inserted", "replaced", "same", "different", "conflict", "refused"];
    let count = |name: &&'static str| (*name, report["namespaces"][0][format!("{name}Count")].as_u64().unwrap());
    names.iter().map(count).filter(|(_, count)| *count > 0).collect()
}

/// Restores the archive, which must end with this exit code and these counts.
async fn restores(swept: &Swept, args: &[&str], code: i32, expected: &[(&str, u64)]) -> (Value, Ran) {
    let (report, ran) = restored(&swept.cluster.case, &swept.archive, args).await;
    assert_eq!((ran.code, counts(&report).as_slice()), (Some(code), expected), "{ran:?}");
    (report, ran)
}

#[tokio::test]
async fn what_was_archived_and_deleted_comes_back_whole() {
    for (sharded, has_twins) in keys() {
        let shown = sharded.key.to_string();
        let swept = swept(sharded, has_twins, "").await;
        let all = swept.before.len() as u64 - 1;
        restores(&swept, &["--dry-run"], 0, &[("inserted", all)]).await;
        assert_eq!(swept.cluster.documents("c").await, swept.live, "{shown}");
        restores(&swept, &[], 0, &[("inserted", all)]).await;
        assert_eq!(swept.cluster.documents("c").await, swept.before, "{shown}");
        for args in [&[][..], &["--dry-run"], &["--replace"]] {
            restores(&swept, args, 0, &[("same", all)]).await;
            assert_eq!(swept.cluster.documents("c").await, swept.before, "{shown}");
        }
        what_changed_is_kept_or_replaced(&swept, has_twins).await;
    }
}

/// Changes three of the restored documents and removes one, and restores the archive again.
async fn what_changed_is_kept_or_replaced(swept: &Swept, has_twins: bool) {
    let cluster = &swept.cluster;
    let all = swept.before.len() as u64 - 1;
    let change = async |id: i32, shards: &[usize]| {
        for shard in shards {
            let collection = cluster.on_shard(*shard).collection::<Document>("c");
            collection.update_one(doc! { "_id": id }, doc! { "$set": { "v": "mine" } }).await.unwrap();
        }
    };
    change(1, &[0, 1]).await;
    change(2, &[if has_twins { 0 } else { cluster.shard_with(2).await }]).await;
    let gone = cluster.shard_with(3).await;
    cluster.on_shard(gone).collection::<Document>("c").delete_one(doc! { "_id": 3 }).await.unwrap();
    let changed = if has_twins { 3 } else { 2 };
    let mine = cluster.documents("c").await;
    for args in [&["--dry-run"][..], &[]] {
        restores(swept, args, 0, &[("inserted", 1), ("same", all - changed - 1), ("different", changed)]).await;
        let now = cluster.documents("c").await;
        // All that was there has stayed as it was; the one that was missing is back.
        assert!(now.is_superset(&mine), "{args:?}");
        let back: Vec<_> = now.difference(&mine).collect();
        assert!(back.iter().all(|document| swept.before.contains(document)), "{args:?}");
        assert_eq!(back.len(), usize::from(args.is_empty()), "{args:?}");
    }
    let mine = cluster.documents("c").await;
    restores(swept, &["--replace", "--dry-run"], 0, &[("replaced", changed), ("same", all - changed)]).await;
    assert_eq!(cluster.documents("c").await, mine);
    restores(swept, &["--replace"], 0, &[("replaced", changed), ("same", all - changed)]).await;
    assert_eq!(cluster.documents("c").await, swept.before);
}

#[tokio::test]
async fn a_living_document_of_another_shard_is_another_document() {
    let (sharded, has_twins) = keys().remove(0);
    let swept = swept(sharded, has_twins, "").await;
    let all = swept.before.len() as u64 - 1;
    // The shard of `acme` has documents with the same `_id`s now, but one, whose `_id` is taken on the shard of `zeta`, by
    // another tenant.
    let living: Vec<_> = (1..TWINS).map(|id| raw(doc! { "_id": id, "tenant": "acme", "mine": true })).collect();
    swept.cluster.fill("c", &living).await;
    swept.cluster.fill("c", &[raw(doc! { "_id": 0, "tenant": "zoe", "mine": true })]).await;
    let mine = swept.cluster.documents("c").await;
    let (kept, of_zeta) = (u64::try_from(TWINS - 1).unwrap(), u64::try_from(TWINS - 1).unwrap());
    // A dry run cannot know the shard of a document.
    restores(&swept, &["--dry-run"], 0, &[("inserted", of_zeta + 2), ("different", kept)]).await;
    assert_eq!(swept.cluster.documents("c").await, mine);
    restores(&swept, &[], 3, &[("inserted", of_zeta + 1), ("different", kept), ("conflict", 1)]).await;
    let now = swept.cluster.documents("c").await;
    assert!(now.is_superset(&mine) && now.len() as u64 == mine.len() as u64 + of_zeta + 1);
    restores(&swept, &["--replace"], 3, &[("replaced", kept), ("same", all - kept - 1), ("conflict", 1)]).await;
    // All are back but the one whose place is taken, and that one is untouched.
    let (now, lost) = (
        swept.cluster.documents("c").await,
        swept.before.difference(&swept.live).find(|(shard, bytes)| *shard == 1 && id(bytes) == 0),
    );
    let taken = mine.iter().filter(|(shard, bytes)| *shard == 1 && id(bytes) == 0);
    let expected = swept.before.iter().filter(|document| Some(*document) != lost).chain(taken);
    assert_eq!(now, expected.cloned().collect());
}

fn id(bytes: &[u8]) -> i32 {
    Document::from_reader(bytes).unwrap().get_i32("_id").unwrap()
}

/// Writes an archive of these documents by hand, and opens a case for it.
async fn written(sharded: Sharded, documents: &[RawDocumentBuf]) -> Swept {
    let cluster = Cluster::new().await;
    cluster.shard("c", sharded).await;
    let archive = Archive::new(&directory(&cluster.case), "11111111-1111-1111-1111-111111111111", days(-1));
    let namespace = Namespace { database: cluster.case.db.name().into(), collection: "c".into() };
    let file = archive.begin(&namespace, Compression::Zstd, "{}", false).unwrap();
    file.lock().await.append("DB.c", documents.iter().map(|document| document.as_bytes())).unwrap();
    drop(file);
    archive.end(Vec::new()).unwrap();
    Swept { archive: archive.path().to_owned(), cluster, before: BTreeSet::new(), live: BTreeSet::new() }
}

/// Returns the documents that are on the shards, each without its shard.
async fn there(swept: &Swept) -> BTreeSet<Vec<u8>> {
    swept.cluster.documents("c").await.into_iter().map(|(_, bytes)| bytes).collect()
}

#[tokio::test]
async fn strange_values_of_a_shard_key_are_told_apart_as_the_server_does() {
    let empty = Timestamp { time: 0, increment: 0 };
    let documents: Vec<_> = [
        doc! { "_id": 1, "a": { "b": 1 } },
        doc! { "_id": 1, "a": { "b": { "x": 1 } } },
        // Missing is null, which comes before every number.
        doc! { "_id": 2 },
        doc! { "_id": 3, "a": 5 },
        doc! { "_id": 4, "a": { "b": Bson::Null } },
        // The server sets an empty timestamp in an insert, and refuses a name with `$` in a replacement.
        doc! { "_id": 5, "a": { "b": 1 }, "t": empty },
        doc! { "_id": 5, "a": { "b": 90 }, "t": empty },
        doc! { "_id": 6, "t": empty },
        doc! { "_id": 7, "a": { "b": 90 }, "$x": 1 },
        // Equal to the living one in everything but the types.
        doc! { "_id": 8, "a": { "b": 7 } },
        doc! { "_id": 9_i64, "a": { "b": 90 } },
        // No shard takes an array.
        doc! { "_id": 10, "a": { "b": [1] } },
        doc! { "_id": 11, "a": [{ "b": 1 }] },
    ]
    .into_iter()
    .map(raw)
    .collect();
    let taken: BTreeSet<Vec<u8>> = documents[..11].iter().map(|document| document.as_bytes().to_vec()).collect();
    let swept = written(Sharded::halves(doc! { "a.b": 1 }, [50.into()]), &documents).await;
    let living = [doc! { "_id": 8, "a": { "b": 7_i64 } }, doc! { "_id": 9, "a": { "b": 90.0 } }].map(raw);
    swept.cluster.fill("c", &living).await;
    restores(&swept, &["--dry-run"], 3, &[("inserted", 11), ("refused", 2)]).await;
    let (report, _) = restores(&swept, &[], 3, &[("inserted", 9), ("different", 2), ("refused", 2)]).await;
    assert!(report["namespaces"][0]["error"].as_str().unwrap().contains("an array in the shard key"), "{report}");
    let mut expected = taken.clone();
    documents[9..11].iter().for_each(|document| assert!(expected.remove(document.as_bytes())));
    expected.extend(living.map(RawDocumentBuf::into_bytes));
    assert_eq!(there(&swept).await, expected);
    // The server keeps the type of a shard key and an `_id` in a replacement, or refuses it; every document is in one count.
    let (report, _) = restored(&swept.cluster.case, &swept.archive, &["--replace"]).await;
    assert_eq!(counts(&report).iter().map(|(_, count)| count).sum::<u64>(), 13, "{report}");
    for (shard, id) in [(0, 5), (1, 5), (0, 6), (1, 7)] {
        let collection = swept.cluster.on_shard(shard).collection::<Document>("c");
        collection.update_one(doc! { "_id": id }, doc! { "$set": { "t": 5 } }).await.unwrap();
    }
    let (report, _) = restored(&swept.cluster.case, &swept.archive, &["--replace"]).await;
    assert!(report["namespaces"][0]["replacedCount"].as_u64().unwrap() >= 4, "{report}");
    assert!(there(&swept).await.is_superset(&documents[..9].iter().map(|document| document.as_bytes().to_vec()).collect()));
}

#[tokio::test]
async fn a_text_that_a_collation_calls_equal_is_another_shard_key() {
    let collation = doc! { "locale": "en", "strength": 2 };
    let sharded = Sharded { collation: Some(collation), ..Sharded::halves(doc! { "tenant": 1 }, ["a".into()]) };
    let documents = [doc! { "_id": 1, "tenant": "acme", "v": 1 }, doc! { "_id": 2, "tenant": "acme", "v": 1 }].map(raw);
    let swept = written(sharded, &documents).await;
    let upper = [1, 2].map(|id| raw(doc! { "_id": id, "tenant": "ACME", "v": "mine" }));
    swept.cluster.fill("c", &upper).await;
    swept.cluster.fill("c", &[raw(doc! { "_id": 2, "tenant": "acme", "v": "mine" })]).await;
    restores(&swept, &["--replace"], 0, &[("inserted", 1), ("replaced", 1)]).await;
    let all: BTreeSet<_> = documents.into_iter().chain(upper).map(RawDocumentBuf::into_bytes).collect();
    assert_eq!(there(&swept).await, all);
}

#[tokio::test]
async fn a_shard_key_that_may_not_be_read_is_an_error_and_not_a_guess() {
    let swept = written(keys().remove(0).0, &[twin(1, 0), twin(1, 1)]).await;
    swept.cluster.fill("c", &[twin(1, 0)]).await;
    swept.cluster.router.hide_config();
    let before = there(&swept).await;
    for args in [&[][..], &["--replace"], &["--dry-run"]] {
        let (report, _) = restores(&swept, args, 3, &[]).await;
        let error = report["namespaces"][0]["error"].as_str().unwrap();
        assert!(error.contains("its shard key is not known") && error.contains("config.collections"), "{error}");
        assert!(error.contains("nothing was inserted there"), "{error}");
        assert_eq!(there(&swept).await, before);
    }
    // A collection that the router calls unsharded, and one that is yet to be created, need no key.
    swept.cluster.case.db.create_collection("plain").await.unwrap();
    for to in ["plain", "fresh"] {
        let moved = into(&swept.cluster.case, "c", to);
        let (report, _) = restores(&swept, &["--namespace", &moved], 0, &[("inserted", 1), ("different", 1)]).await;
        assert_eq!(report["namespaces"][0]["error"], Value::Null, "{report}");
    }
}

/// A delete can compare no document of more than thirty levels.
#[tokio::test]
async fn a_document_that_cannot_be_archived_stays_and_the_rule_is_complete() {
    for has_index in [false, true] {
        let cluster = Cluster::new().await;
        cluster.shard("c", keys().remove(0).0).await;
        let deep = (0..40).fold(doc! {}, |inner, _| doc! { "a": inner });
        let deep = raw(doc! { "_id": 99, "tenant": "acme", "at": days(-3), "v": deep });
        cluster.fill("c", &(0..20).map(|id| twin(id, 0)).chain([deep]).collect::<Vec<_>>()).await;
        if has_index {
            cluster.case.index_on_date("c").await;
        }
        let to = directory(&cluster.case);
        let rule = format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, archive: {{directory: {}}}}}\n", to.display());
        let report = cluster.case.report(&rule, &[]).await;
        assert_eq!((report.ran.code, report.rule(0, "status")), (Some(0), &"complete".into()), "{report:?}");
        assert_eq!((report.rule(0, "deletedCount"), report.rule(0, "remainingCount")), (&20.into(), &1.into()), "{report:?}");
        assert_eq!(cluster.documents("c").await.len(), 1);
    }
}

/// In a collection without the shard key only one document can have an `_id`.
#[tokio::test]
async fn twins_that_a_collection_cannot_hold_are_named_and_none_takes_the_place_of_another() {
    let by_tenant = || keys().remove(0).0;
    let n = TWINS as u64;
    let restore = async |swept: &Swept, args: &[&str], code, expected: &[(&str, u64)]| {
        let moved = into(&swept.cluster.case, "c", "plain");
        restores(swept, &[&["--namespace", &moved], args].concat(), code, expected).await.0["namespaces"][0]["error"].clone()
    };
    let swept_twins = swept(by_tenant(), true, "").await;
    let left_out = format!("{n} documents left out: others, with another `tenant`, are there under the same `_id`");
    for args in [&["--dry-run"][..], &["--dry-run", "--replace"], &[]] {
        let error = restore(&swept_twins, args, 3, &[("inserted", n), ("different", n)]).await;
        assert!(error.as_str().unwrap().contains(&left_out), "{error}");
    }
    let one_of_each = swept_twins.cluster.documents("plain").await;
    for args in [&["--dry-run", "--replace"][..], &["--replace"], &[]] {
        let error = restore(&swept_twins, args, 3, &[("same", n), ("different", n)]).await;
        assert!(error.as_str().unwrap().contains(&left_out), "{args:?}: {error}");
        assert_eq!(swept_twins.cluster.documents("plain").await, one_of_each, "{args:?}");
    }
    // The same where the collection was dropped since; with its shard key all come back.
    let case = &swept_twins.cluster.case;
    case.collection("c").drop().await.unwrap();
    restores(&swept_twins, &[], 3, &[("inserted", n), ("different", n)]).await;
    case.collection("c").drop().await.unwrap();
    swept_twins.cluster.shard("c", by_tenant()).await;
    restores(&swept_twins, &[], 0, &[("inserted", 2 * n)]).await;

    // A document with another state, and the same tenant, is the same document.
    let unique = swept(by_tenant(), false, "").await;
    assert_eq!(restore(&unique, &[], 0, &[("inserted", n)]).await, Value::Null);
    unique.cluster.case.collection("plain").update_one(doc! { "_id": 1 }, doc! { "$set": { "v": "new" } }).await.unwrap();
    restore(&unique, &[], 0, &[("same", n - 1), ("different", 1)]).await;
    restore(&unique, &["--replace"], 0, &[("replaced", 1), ("same", n - 1)]).await;
}

#[tokio::test]
async fn a_reply_that_counts_nothing_or_too_little_ends_in_one_count_or_an_error() {
    let documents = [twin(1, 0), twin(1, 1), twin(2, 0)];
    let swept = written(keys().remove(0).0, &documents).await;
    swept.cluster.fill("c", &[raw(doc! { "_id": 1, "tenant": "acme" })]).await;
    // Not carried out, and carried out: the counts say what is there.
    let none = || doc! { "n": 0, "nModified": 0, "ok": 1.0 };
    swept.cluster.proxy.faults().next("update", 1, Fault::Answer { reply: none(), done: false });
    restores(&swept, &["--replace"], 0, &[("inserted", 2), ("replaced", 1)]).await;
    let all: BTreeSet<Vec<u8>> = documents.map(RawDocumentBuf::into_bytes).into();
    assert_eq!(there(&swept).await, all);
    swept.cluster.on_shard(0).collection::<Document>("c").delete_many(doc! {}).await.unwrap();
    let reply = doc! { "n": 1, "ok": 1.0 };
    swept.cluster.proxy.faults().next("insert", 1, Fault::Answer { reply, done: true });
    let (report, _) = restores(&swept, &[], 3, &[("inserted", 1), ("same", 1)]).await;
    assert!(report["namespaces"][0]["error"].as_str().unwrap().contains("the reply counts 1 as inserted"), "{report}");
    assert_eq!(report["namespaces"][0]["uncertain"], true, "{report}");
    restores(&swept, &[], 0, &[("same", 3)]).await;
}

/// A batch that was found before another one deleted its documents is archived again: such a document counts twice, in a dry run
/// too.
#[tokio::test]
async fn a_document_that_is_in_the_archive_twice_has_two_counts() {
    let swept = swept(keys().remove(0).0, true, "batchSize: 30, ").await;
    let all = swept.before.len() as u64 - 1;
    let (dry, _) = restored(&swept.cluster.case, &swept.archive, &["--dry-run"]).await;
    let (report, ran) = restored(&swept.cluster.case, &swept.archive, &[]).await;
    assert_eq!((ran.code, counts(&report)), (Some(0), counts(&dry)), "{ran:?}");
    assert_eq!(report["namespaces"][0]["insertedCount"], all, "{report}");
    assert_eq!(swept.cluster.documents("c").await, swept.before);
}
