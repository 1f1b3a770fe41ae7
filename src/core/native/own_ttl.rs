//! The ttl of documents on Azure Cosmos DB (RU): whether the service itself obeys it.
//!
//! Source: Microsoft, "Expire data with Azure Cosmos DB for MongoDB".

use crate::core::facts::{Collection, CollectionKind, Scope};

/// The field in which the service looks for a document's own ttl.
const TTL: &str = "ttl";

/// Returns a sentence about what the service does with the ttl field of a rule; `None` on other services.
pub fn obeyed(ttl_field: &str, collection: &Collection) -> Option<String> {
    if collection.kind != CollectionKind::CosmosRu {
        return None;
    }
    if ttl_field != TTL {
        return Some(format!("the service itself reads only `{TTL}`, in lower case, and not `{ttl_field}`"));
    }
    let on_ts = collection.ttl().into_iter().find(|native| native.scope == Scope::LastChange);
    let setting = on_ts.and_then(|native| Some((native.index.clone()?, native.value()?)));
    Some(match setting {
        None => {
            format!("the service itself ignores `{TTL}` here, because there is no TTL index on `_ts`: only the rule obeys it")
        }
        Some((index, -1)) => {
            format!("the service itself obeys `{TTL}` here as well, counted from a document's last change (index `{index}`)")
        }
        Some((index, seconds)) => format!(
            "the service itself obeys `{TTL}` here as well, counted from a document's last change; it overrides the {seconds} s of the index \
             `{index}`"
        ),
    })
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;
    use crate::core::facts::IndexFacts;
    use crate::core::policy::namespace::Namespace;

    fn collection(kind: CollectionKind, seconds: Option<i32>) -> Collection {
        let index = IndexFacts {
            name: "_ts_1".into(),
            key: doc! { "_ts": 1 }.into_iter().collect(),
            partial: None,
            hidden: false,
            sparse: false,
            unique: false,
            collation: None,
            expire_after_seconds: seconds.map(Into::into),
        };
        let namespace = Namespace { database: "a".into(), collection: "c".into() };
        Collection { indexes: vec![index], ..Collection::new(namespace, kind) }
    }

    #[test]
    fn the_service_obeys_ttl_only_beside_an_index_on_ts_with_seconds() {
        for (ttl_field, seconds, part) in [
            ("ttl", None, "ignores `ttl` here, because there is no TTL index on `_ts`"),
            ("ttl", Some(-1), "obeys `ttl` here as well, counted from a document's last change (index `_ts_1`)"),
            ("ttl", Some(10), "it overrides the 10 s of the index `_ts_1`"),
            ("TTL", Some(10), "reads only `ttl`, in lower case, and not `TTL`"),
        ] {
            let said = obeyed(ttl_field, &collection(CollectionKind::CosmosRu, seconds)).unwrap();
            assert!(said.contains(part), "{ttl_field} {seconds:?}: {said}");
        }
        assert_eq!(obeyed("ttl", &collection(CollectionKind::Plain, Some(10))), None);
    }
}
