//! A rule with a collation under which different `_id`s are equal: limits hold, and every expired document is deleted.

use crate::support::sweeper::Case;
use mongodb::bson::{Bson, DateTime, doc};

#[tokio::test]
async fn no_id_stands_for_another_whatever_it_is() {
    let make: [fn(&str) -> Bson; 4] = [
        |text| Bson::String(text.to_owned()),
        |text| Bson::String(format!("{text}.*\0")),
        |text| Bson::Document(doc! { "k": text }),
        |text| Bson::String(format!("{text}$\n[x]\\E{}", "q".repeat(20_000))),
    ];
    for (index, make) in make.into_iter().enumerate() {
        for indexed in [false, true] {
            let case = Case::new().await;
            let texts = ["abc", "Abc", "aBc", "abC", "ABc", "AbC", "aBC", "ABC"];
            let old = DateTime::from_millis(1_577_836_800_000);
            case.fill("c", texts.map(|text| doc! { "_id": make(text), "at": old, "s": "X" })).await;
            if indexed {
                case.db
                    .run_command(doc! { "createIndexes": "c", "indexes": [{ "key": { "at": 1 }, "name": "at" }] })
                    .await
                    .unwrap();
            }
            let rule = |limit: &str| {
                format!(
                    "  - {{namespace: DB.c, field: at, expireAfter: 1d, filter: {{s: x}}, collation: {{locale: en, strength: 2}}{limit}}}\n"
                )
            };
            let limited = case.report(&rule(", maxDeletes: 3"), &[]).await;
            assert_eq!(
                (limited.ran.code, limited.rule(0, "deletedCount")),
                (Some(4), &3.into()),
                "{index} {indexed} {limited:?}"
            );
            assert_eq!(case.ids("c").await.len(), 5, "{index} {indexed}");
            let rest = case.report(&rule(""), &[]).await;
            assert_eq!((rest.ran.code, rest.rule(0, "deletedCount")), (Some(0), &5.into()), "{index} {indexed} {rest:?}");
        }
    }
}
