//! Collections with native TTL settings, and reports of `sweeper native` about them.

use futures_util::TryStreamExt;
use mongodb::Database;
use mongodb::bson::{Bson, DateTime, Document, doc};
use serde_json::Value;
use ttl_sweeper::core::report::json::schema;
use ttl_sweeper::core::report::native::NativeReport;

use super::sweeper::{Case, Ran};

const DAY: i64 = 86_400_000;

pub(crate) async fn command(db: &Database, command: Document) {
    db.run_command(command.clone()).await.unwrap_or_else(|cause| panic!("{command}: {cause}"));
}

pub(crate) async fn index(db: &Database, collection: &str, key: Document, name: &str, options: Document) {
    let mut index = doc! { "key": key, "name": name };
    index.extend(options);
    command(db, doc! { "createIndexes": collection, "indexes": [index] }).await;
}

pub(crate) fn ttl(seconds: i32) -> Document {
    doc! { "expireAfterSeconds": seconds }
}

/// Returns the indexes of a collection except the one on `_id`, without their versions.
pub(crate) async fn indexes(db: &Database, collection: &str) -> Vec<Document> {
    let cursor = db.run_cursor_command(doc! { "listIndexes": collection }).await.expect("indexes");
    let mut all: Vec<Document> = cursor.try_collect().await.expect("indexes");
    all.retain(|index| index.get_str("name").ok() != Some("_id_"));
    for index in &mut all {
        index.remove("v");
    }
    all
}

/// Returns `expireAfterSeconds` of the collection itself.
pub(crate) async fn own_ttl(db: &Database, collection: &str) -> Option<Bson> {
    let command = doc! { "listCollections": 1, "filter": { "name": collection } };
    let listed: Vec<Document> = db.run_cursor_command(command).await.unwrap().try_collect().await.unwrap();
    listed[0].get_document("options").unwrap().get("expireAfterSeconds").cloned()
}

pub(crate) async fn aged(case: &Case, collection: &str, days: &[i64]) {
    let now = DateTime::now().timestamp_millis();
    let document = |(n, age): (usize, &i64)| doc! { "_id": n as i32, "at": DateTime::from_millis(now - age * DAY), "s": if n % 2 == 0 { "A" } else { "b" } };
    case.fill(collection, days.iter().enumerate().map(document)).await;
}

pub(crate) const RULES: &str = "  - {namespace: DB.same, field: at, expireAfter: 1h}
  - {namespace: DB.differs, field: at, expireAfter: 1d}
  - {namespace: DB.plain, field: at, expireAfter: 1d}
  - {name: made, namespace: DB.made, field: at, expireAfter: 1d, filter: {s: a, n: {$gte: 5}}, collation: {locale: en, strength: 2}}
  - {name: whole, namespace: DB.made, field: at, expireAfter: 2d}
  - {namespace: DB.clustered, field: _id, expireAfter: 1d}
  - {namespace: DB.series, field: t, expireAfter: 1d}
  - {namespace: DB.seriesOff, field: t, expireAfter: 1d, enabled: false}\n";

/// Creates collections for [`RULES`], and some settings for which there is no rule.
pub(crate) async fn deployment() -> Case {
    let case = Case::new().await;
    let db = &case.db;
    index(db, "same", doc! { "at": -1 }, "at_-1", ttl(3600)).await;
    index(db, "same", doc! { "other": 1 }, "other_1", ttl(5)).await;
    index(db, "same", doc! { "at": "hashed" }, "hashed", ttl(5)).await;
    index(db, "differs", doc! { "at": 1 }, "by date", ttl(60)).await;
    index(db, "plain", doc! { "$**": 1 }, "every", doc! {}).await;
    index(db, "plain", doc! { "at": 1, "s": 1 }, "at_1_s_1", doc! {}).await;
    index(db, "plain", doc! { "at": 1 }, "plain", doc! { "sparse": true }).await;
    index(db, "made", doc! { "s": 1 }, "at_1", doc! {}).await;
    command(db, doc! { "create": "clustered", "clusteredIndex": { "key": { "_id": 1 }, "unique": true } }).await;
    let series = |name: &str| doc! { "create": name, "timeseries": { "timeField": "t" }, "expireAfterSeconds": 5_i64 };
    command(db, series("series")).await;
    command(db, series("seriesOff")).await;
    aged(&case, "plain", &[0, 2, 3, 5]).await;
    case.fill("clustered", [doc! { "_id": DateTime::from_millis(0) }, doc! { "_id": DateTime::now() }]).await;
    case
}

pub(crate) async fn native(case: &Case, rules: &str, args: &[&str]) -> (Ran, Value) {
    let ran = case.run(rules, &[&["native"], args, &["--format", "json"]].concat()).await;
    let json = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    let schema = serde_json::from_str(&schema::<NativeReport>()).expect("the schema is JSON");
    let schema = jsonschema::options().build(&schema).expect("the schema is a schema");
    let errors: Vec<String> = schema.iter_errors(&json).map(|error| format!("{}: {error}", error.instance_path())).collect();
    assert!(errors.is_empty(), "{errors:#?}\n{}", ran.stdout);
    (ran, json)
}

/// Returns a value of every row.
pub(crate) fn column(report: &Value, path: &str) -> Vec<Value> {
    report["rows"].as_array().unwrap().iter().map(|row| row.pointer(path).cloned().unwrap_or(Value::Null)).collect()
}
