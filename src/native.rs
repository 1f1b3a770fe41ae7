//! The TTL settings of a deployment, and the rules of a policy beside them. Values in, values out: reading and changing the settings is the
//! business of [`crate::server::native`].

pub mod change;
pub mod diff;
pub mod import;
pub mod possible;
pub mod report;
mod shell;
pub mod verdict;
pub mod yaml;

use bson::{Bson, Document};

use crate::facts::IndexFacts;
use crate::policy::namespace::Namespace;
use crate::values::integer;

/// Where Azure Cosmos DB (RU) keeps the time of a document's last change. Source: Microsoft, "Time to live" of Azure Cosmos DB for MongoDB.
pub const LAST_CHANGE: &str = "_ts";

/// What invalid values were repaired to, and what the server calls an inactive TTL. Source: mongod, `kExpireAfterSecondsForInactiveTTLIndex`.
const INACTIVE: i64 = 2_147_483_647;

/// Whatever of a deployment's collections concerns TTL.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Catalog {
    /// In the order of their names; with views, without what belongs to the server.
    pub collections: Vec<Collection>,
    /// What could not be looked at, and why.
    pub unreadable: Vec<String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Collection {
    pub namespace: Namespace,
    pub kind: Kind,
    /// The default collation.
    pub collation: Option<Document>,
    /// `expireAfterSeconds` of the collection itself.
    pub expire_after_seconds: Option<Bson>,
    pub indexes: Vec<IndexFacts>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    Plain,
    Capped,
    Clustered,
    View,
    /// Of Azure Cosmos DB (RU): its TTL counts from the last change.
    CosmosRu,
    TimeSeries {
        time_field: String,
        /// How long after `expireAfterSeconds` the server still keeps a bucket, counted from its first measurement.
        bucket_max_span_seconds: Option<i64>,
    },
}

/// What a TTL setting belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    Index,
    Clustered,
    TimeSeries,
    /// The index on `_ts`.
    LastChange,
}

/// One native TTL setting, as the catalog shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct NativeTtl {
    pub scope: Scope,
    /// Name of the index.
    pub index: Option<String>,
    /// The field that holds the date; several of a compound index.
    pub field: String,
    /// Whether it is on one field, in ascending or descending order: the server deletes by no other index.
    pub single: bool,
    pub expire_after_seconds: Bson,
    pub partial: Option<Document>,
    pub collation: Option<Document>,
    /// The server deletes by a hidden index as well.
    pub hidden: bool,
}

impl NativeTtl {
    /// Seconds after the date at which the server deletes.
    ///
    /// Errors: why it never does.
    pub fn seconds(&self) -> Result<u32, String> {
        if !self.single {
            return Err(format!("the server never deletes by an index of this kind ({})", self.field));
        }
        let shown = match &self.expire_after_seconds {
            Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) => &self.expire_after_seconds,
            _ => return Err("its expireAfterSeconds is no number".to_owned()),
        };
        match integer(shown) {
            Some(seconds) if (0..INACTIVE).contains(&seconds) => {
                u32::try_from(seconds).map_err(|_| format!("its expireAfterSeconds is {shown}"))
            }
            Some(seconds) if seconds >= INACTIVE => {
                Err(format!("its expireAfterSeconds is {shown}, by which the server says that it is inactive"))
            }
            _ => Err(format!("its expireAfterSeconds is {shown}: the server deletes nothing by it")),
        }
    }
}

impl Collection {
    /// The TTL settings: the collection's own, then those of its indexes.
    pub fn ttl(&self) -> Vec<NativeTtl> {
        let own = match &self.kind {
            Kind::Clustered => Some((Scope::Clustered, "_id")),
            Kind::TimeSeries { time_field, .. } => Some((Scope::TimeSeries, time_field.as_str())),
            Kind::Plain | Kind::Capped | Kind::View | Kind::CosmosRu => None,
        };
        let own = own.zip(self.expire_after_seconds.clone()).map(|((scope, field), expire_after_seconds)| NativeTtl {
            scope,
            index: None,
            field: field.to_owned(),
            single: true,
            expire_after_seconds,
            partial: None,
            collation: None,
            hidden: false,
        });
        let mut all: Vec<NativeTtl> = own.into_iter().chain(self.indexes.iter().filter_map(of_index)).collect();
        if self.kind == Kind::CosmosRu {
            all.iter_mut().filter(|ttl| ttl.field == LAST_CHANGE).for_each(|ttl| ttl.scope = Scope::LastChange);
        }
        all
    }
}

fn of_index(index: &IndexFacts) -> Option<NativeTtl> {
    let field = single_field(index);
    let parts = index.key.iter().map(|(name, direction)| format!("{name}: {}", direction.to_string().replace('"', "")));
    Some(NativeTtl {
        scope: Scope::Index,
        index: Some(index.name.clone()),
        single: field.is_some(),
        field: field.map_or_else(|| parts.collect::<Vec<_>>().join(", "), str::to_owned),
        expire_after_seconds: index.expire_after_seconds.clone()?,
        // An empty one leaves nothing out.
        partial: index.partial.clone().filter(|partial| !partial.is_empty()),
        collation: index.collation.clone(),
        hidden: index.hidden,
    })
}

/// The field of an index by which the server can delete: on one field, in ascending or descending order, neither `_id` nor a wildcard.
pub fn single_field(index: &IndexFacts) -> Option<&str> {
    match index.key.as_slice() {
        [(field, direction)] if field != "_id" && !field.ends_with("$**") => integer(direction).map(|_| field.as_str()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    fn index(key: Document, expire_after_seconds: impl Into<Bson>) -> NativeTtl {
        of_index(&IndexFacts {
            name: "i".into(),
            key: key.into_iter().collect(),
            partial: None,
            hidden: false,
            sparse: false,
            collation: None,
            expire_after_seconds: Some(expire_after_seconds.into()),
        })
        .unwrap()
    }

    #[test]
    fn seconds_are_what_the_server_deletes_by() {
        for (value, expected) in [
            (Bson::Int32(60), Ok(60)),
            (Bson::Int64(60), Ok(60)),
            (Bson::Double(1.9), Ok(1)),
            (Bson::Double(-0.5), Ok(0)),
            (Bson::Int32(2_147_483_646), Ok(2_147_483_646)),
            (Bson::Int32(i32::MAX), Err("its expireAfterSeconds is 2147483647, by which the server says that it is inactive")),
            (Bson::Double(1e300), Err("inactive")),
            (Bson::Double(f64::NAN), Err("its expireAfterSeconds is NaN: the server deletes nothing by it")),
            (Bson::Int32(-1), Err("its expireAfterSeconds is -1: the server deletes nothing by it")),
            (Bson::Null, Err("its expireAfterSeconds is no number")),
            ("60".into(), Err("its expireAfterSeconds is no number")),
        ] {
            match (index(doc! { "at": -1 }, value.clone()).seconds(), expected) {
                (Ok(seconds), Ok(expected)) => assert_eq!(seconds, expected, "{value}"),
                (Err(why), Err(expected)) => assert!(why.ends_with(expected), "{value}: {why}"),
                (found, _) => panic!("{value}: {found:?}"),
            }
        }
    }

    #[test]
    fn the_server_deletes_by_an_index_on_one_field_in_order_alone() {
        for (key, expected) in [
            (doc! { "at": 1 }, true),
            (doc! { "a.b": -5 }, true),
            (doc! { "at": 1.5 }, true),
            (doc! { "_id.t": 1 }, true),
            (doc! { "_id": 1 }, false),
            (doc! { "at": "hashed" }, false),
            (doc! { "_fts": "text", "_ftsx": 1 }, false),
            (doc! { "at": "2dsphere" }, false),
            (doc! { "$**": 1 }, false),
            (doc! { "a.$**": 1 }, false),
            (doc! { "at": 1, "b": 1 }, false),
        ] {
            assert_eq!(index(key.clone(), 60).seconds().is_ok(), expected, "{key}");
        }
    }
}
