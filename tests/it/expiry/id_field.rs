//! `field: _id`: the second inside an ObjectId, or an `_id` that is a Date.

use crate::support::server::{Server, on_servers};
use crate::support::sweeper::{Case, id_set};
use crate::support::version::version;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Bson, DateTime, Document, doc};

const AS_OF: &str = "2024-05-01T12:00:00.123Z";
const S: u32 = 1_714_561_200;
const T: i64 = S as i64 * 1000 + 123;

fn object_id(seconds: u32, byte: u8) -> Bson {
    let mut bytes = [byte; 12];
    bytes[..4].copy_from_slice(&seconds.to_be_bytes());
    ObjectId::from_bytes(bytes).into()
}

fn old_object_ids() -> Vec<Bson> {
    [(S, 0xff), (S, 0), (S - 1, 0xff), (0, 0), (1, 7)].map(|(seconds, byte)| object_id(seconds, byte)).to_vec()
}

fn new_object_ids() -> Vec<Bson> {
    [(S + 1, 0), (S + 3600, 0), (0x8000_0000, 0), (u32::MAX, 0xff)].map(|(seconds, byte)| object_id(seconds, byte)).to_vec()
}

fn others() -> Vec<Bson> {
    vec![
        Bson::Null,
        0.into(),
        1_i64.into(),
        0.5.into(),
        "000000000000000000000000".into(),
        true.into(),
        doc! { "_id": object_id(0, 0) }.into(),
        DateTime::from_millis(i64::MAX).into(),
        Bson::MinKey,
        Bson::MaxKey,
    ]
}

fn old_dates() -> Vec<Bson> {
    [T, T - 1, 0, -1, i64::MIN].map(|millis| DateTime::from_millis(millis).into()).to_vec()
}

fn new_dates() -> Vec<Bson> {
    [T + 1, T + 3_600_000, i64::MAX - 1].map(|millis| DateTime::from_millis(millis).into()).to_vec()
}

fn documents(ids: &[Vec<Bson>]) -> Vec<Document> {
    ids.concat().into_iter().map(|id| doc! { "_id": id }).collect()
}

async fn the_creation_time_inside_the_id_decides_whatever_else_is_there(server: &Server) {
    let case = server.case().await;
    let all = documents(&[old_object_ids(), new_object_ids(), others(), old_dates(), new_dates()]);
    for name in ["plain", "named"] {
        case.fill(name, all.clone()).await;
    }
    let rules = "  - {namespace: DB.plain, field: _id, expireAfter: 1h, batchSize: 2}\n  \
                   - {namespace: DB.named, field: _id, expireAfter: 1h, dateFormat: objectId, hint: _id_}\n";
    let dry = case.report(rules, &["--dry-run", "--as-of", AS_OF]).await;
    let swept = case.report(rules, &["--as-of", AS_OF]).await;
    let expected = id_set([new_object_ids(), others(), old_dates(), new_dates()].concat());
    for (n, name) in ["plain", "named"].into_iter().enumerate() {
        assert_eq!(dry.rule(n, "expiredCount"), 5, "{dry:?}");
        assert_eq!(dry.rule(n, "oldestExpired"), "1970-01-01T00:00:00.000Z");
        assert_eq!(swept.rule(n, "deletedCount"), 5, "{swept:?}");
        assert_eq!(swept.rule(n, "index"), "_id_");
        assert_eq!(case.ids(name).await, expected, "{name}");
    }
}

async fn dates_as_ids_go_where_the_rule_says_so(server: &Server) {
    let case = server.case().await;
    case.fill("c", documents(&[old_object_ids(), others(), old_dates(), new_dates()])).await;
    let rules = "  - {namespace: DB.c, field: _id, expireAfter: 1h, dateFormat: date}\n";
    let swept = case.report(rules, &["--as-of", AS_OF]).await;
    assert_eq!(swept.rule(0, "deletedCount"), 5, "{swept:?}");
    assert_eq!(case.ids("c").await, id_set([old_object_ids(), others(), new_dates()].concat()));
}

#[tokio::test]
async fn a_clustered_collection_goes_by_date_unless_the_rule_says_object_id() {
    let case = Case::new().await;
    let others: Vec<Bson> = others();
    for name in ["dates", "objects"] {
        let create = doc! { "create": name, "clusteredIndex": { "key": { "_id": 1 }, "unique": true, "name": "by id" } };
        case.db.run_command(create).await.expect("a clustered collection");
        case.fill(name, documents(&[old_object_ids(), new_object_ids(), others.clone(), old_dates(), new_dates()])).await;
    }
    let rules = "  - {namespace: DB.dates, field: _id, expireAfter: 1h, batchSize: 2}\n  \
                   - {namespace: DB.objects, field: _id, expireAfter: 1h, dateFormat: objectId, batchSize: 2}\n";
    let dry = case.report(rules, &["--dry-run", "--as-of", AS_OF]).await;
    let swept = case.report(rules, &["--as-of", AS_OF]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    // From 7.0 on the TTL monitor keeps clustered documents with dates before 1970.
    let ancient = if version(&case.db).await.major >= 7 { old_dates().split_off(3) } else { Vec::new() };
    for (n, expired) in [5 - ancient.len(), 5].into_iter().enumerate() {
        assert_eq!(dry.rule(n, "expiredCount"), expired, "{dry:?}");
        assert_eq!(swept.rule(n, "deletedCount"), expired, "{swept:?}");
    }
    let dates = [old_object_ids(), new_object_ids(), others.clone(), ancient, new_dates()].concat();
    assert_eq!(case.ids("dates").await, id_set(dates));
    let objects = [new_object_ids(), others, old_dates(), new_dates()].concat();
    assert_eq!(case.ids("objects").await, id_set(objects));
}

async fn an_own_ttl_counts_from_the_second_inside_the_id(server: &Server) {
    let case = server.case().await;
    // One second apart, around 20 s ago and around the rule's hour.
    let now = S + 3600;
    let ages = [(now - 20, 20), (now - 19, 20), (S, 20), (now - 1, 1), (now, 1)];
    let own = ages.map(|(second, ttl)| doc! { "_id": object_id(second, 1), "ttl": ttl });
    let rest = [(S, 2), (S + 1, 2)].map(|(second, byte)| doc! { "_id": object_id(second, byte) });
    let never = [doc! { "_id": object_id(5, 0), "ttl": -1 }, doc! { "_id": object_id(6, 0), "ttl": 0 }];
    let ancient = doc! { "_id": object_id(0x8000_0000, 0), "ttl": 20 };
    let all = own.into_iter().chain(rest).chain(never).chain([ancient, doc! { "_id": "s", "ttl": 20 }]);
    case.fill("c", all.collect::<Vec<_>>()).await;
    let rules = "  - {namespace: DB.c, field: _id, expireAfter: 1h, ttlField: ttl}\n";
    let swept = case.report(rules, &["--as-of", AS_OF]).await;
    assert_eq!(swept.ran.code, Some(0), "{swept:?}");
    let kept = [
        object_id(now - 19, 1),
        object_id(now, 1),
        object_id(S + 1, 2),
        object_id(5, 0),
        object_id(6, 0),
        object_id(0x8000_0000, 0),
        "s".into(),
    ];
    assert_eq!(case.ids("c").await, id_set(kept));
    assert_eq!(swept.rule(0, "deletedCount"), 4);
    assert_eq!(swept.rule(0, "neverExpires")["ttlNotPositive"], 1);
}

on_servers!(
    the_creation_time_inside_the_id_decides_whatever_else_is_there,
    dates_as_ids_go_where_the_rule_says_so,
    an_own_ttl_counts_from_the_second_inside_the_id
);
