//! Random documents and holds of every type: what is left is what a `$lookup` of the server finds a hold for.

use fastrand::Rng;
use futures_util::TryStreamExt;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Binary, Bson, DateTime, Document, doc, spec::BinarySubtype};

use crate::support::faults::days;
use crate::support::sweeper::{Case, id_set};

/// Documents of one collection. More: `SWEEPER_TEST_HELD_DOCUMENTS=50000`.
fn documents() -> usize {
    std::env::var("SWEEPER_TEST_HELD_DOCUMENTS").ok().and_then(|number| number.parse().ok()).unwrap_or(1500)
}

/// Returns a value that a hold may have.
fn key(random: &mut Rng) -> Bson {
    let n = random.i32(0..40);
    match random.u8(0..12) {
        0 => n.into(),
        1 => i64::from(n).into(),
        2 => f64::from(n).into(),
        3 => (f64::from(n) + 0.5).into(),
        4 => Bson::Decimal128(format!("{n}.{}", ["0", "00", "5", "50"][random.usize(0..4)]).parse().unwrap()),
        5 => format!("k{n}").into(),
        6 => format!("K{n}").into(),
        7 => DateTime::from_millis(n.into()).into(),
        8 => ObjectId::from_bytes([u8::try_from(n).unwrap(); 12]).into(),
        9 => doc! { "a": n % 5, "b": [1] }.into(),
        10 => Binary { subtype: BinarySubtype::Generic, bytes: vec![u8::try_from(n % 7).unwrap(); 3] }.into(),
        _ => match n % 4 {
            0 => true.into(),
            1 => (-0.0).into(),
            2 => f64::INFINITY.into(),
            _ => (1_i64 << 60).into(),
        },
    }
}

/// Returns a value that a document may have.
fn value(random: &mut Rng) -> Option<Bson> {
    match random.u8(0..16) {
        0 => None,
        1 => Some(Bson::Null),
        2 => Some(f64::NAN.into()),
        3 => Some(Bson::MaxKey),
        4 => Some(((1_i64 << 60) + i64::from(random.u8(0..3))).into()),
        5..=7 => Some((0..random.usize(0..4)).map(|_| key(random)).collect::<Vec<_>>().into()),
        8 => Some(Bson::Array(vec![Bson::Array(vec![key(random)]), key(random)])),
        _ => Some(key(random)),
    }
}

/// Returns a document with the value at the path, perhaps through a list.
fn document(random: &mut Rng, id: i32, path: &str) -> Document {
    let mut document = doc! { "_id": id, "at": days(if random.u8(0..10) == 0 { 3 } else { -3 }), "s": "X" };
    let inner = |random: &mut Rng, name: &str| value(random).map_or_else(Document::new, |value| doc! { name: value });
    match path.split_once('.') {
        None => document.extend(inner(random, path)),
        Some((root, name)) => {
            let below = match random.u8(0..4) {
                0 => (0..random.usize(0..3)).map(|_| Bson::from(inner(random, name))).collect::<Vec<_>>().into(),
                1 => key(random),
                _ => Bson::from(inner(random, name)),
            };
            document.insert(root, below);
        }
    }
    document
}

/// Returns the `_id`s of the documents that have not expired or that a hold keeps, by the server.
async fn expected(case: &Case, path: &str, collation: Option<&Document>) -> Vec<Bson> {
    let lookup = doc! { "from": "holds", "localField": path, "foreignField": "k", "pipeline": [{ "$match": { "active": true } }], "as": "held" };
    let stays = doc! { "$or": [{ "at": { "$gt": days(-1) } }, { "held": { "$ne": [] } }] };
    let stages = vec![doc! { "$lookup": lookup }, doc! { "$match": stays }, doc! { "$project": { "_id": 1 } }];
    let mut command = doc! { "aggregate": "c", "pipeline": stages, "cursor": { "batchSize": 1_000_000 } };
    command.extend(collation.map(|collation| ("collation".to_owned(), Bson::from(collation.clone()))));
    let cursor = case.db.run_cursor_command(command).await.unwrap();
    let found: Vec<Document> = cursor.try_collect().await.unwrap();
    found.into_iter().map(|mut document| document.remove("_id").unwrap()).collect()
}

#[tokio::test]
async fn what_is_left_is_what_a_lookup_finds_a_hold_for() {
    let folding = doc! { "locale": "en", "strength": 2 };
    for (seed, path, of_collection, of_rule) in
        [(1, "t", None, false), (2, "m.t", None, false), (3, "t", Some(&folding), false), (4, "t", None, true)]
    {
        let mut random = Rng::with_seed(seed);
        let case = Case::new().await;
        let mut create = doc! { "create": "c" };
        create.extend(of_collection.map(|collation| ("collation".to_owned(), Bson::from(collation.clone()))));
        case.db.run_command(create).await.unwrap();
        let all: Vec<Document> = (0..documents()).map(|id| document(&mut random, id as i32, path)).collect();
        case.fill("c", all).await;
        let hold = |random: &mut Rng| doc! { "k": key(random), "active": random.bool() };
        case.fill("holds", (0..60).map(|_| hold(&mut random))).await;
        // What does not count may have any key.
        case.fill("holds", [doc! { "k": Bson::Null, "active": false }, doc! { "active": false }]).await;
        if random.bool() {
            case.db
                .run_command(doc! { "createIndexes": "c", "indexes": [{ "key": { "at": 1 }, "name": "at_1" }] })
                .await
                .unwrap();
        }
        let collation = of_collection.or(of_rule.then_some(&folding));
        let left = expected(&case, path, collation).await;
        let of_rule = if of_rule { ", filter: {s: x}, collation: {locale: en, strength: 2}" } else { "" };
        let rule = format!(
            "  - {{namespace: DB.c, field: at, expireAfter: 1d, batchSize: 400, holds: {{collection: DB.holds, key: {{of: {path}, in: k}}, filter: {{active: true}}}}{of_rule}}}\n"
        );
        let dry = case.report(&rule, &["--dry-run"]).await;
        let swept = case.report(&rule, &[]).await;
        assert_eq!(swept.ran.code, Some(0), "{seed}: {swept:?}");
        assert_eq!(case.ids("c").await, id_set(left.iter().cloned()), "{seed}: {swept:?}");
        assert_eq!(swept.rule(0, "deletedCount"), dry.rule(0, "expiredCount"), "{seed}");
        let live = case.collection("c").count_documents(doc! { "at": { "$gt": days(-1) } }).await.unwrap();
        assert_eq!(dry.rule(0, "heldCount"), left.len() as u64 - live, "{seed}: {dry:?}");
        assert!(live > 0 && left.len() as u64 > live && left.len() < documents(), "{seed}");
    }
}
