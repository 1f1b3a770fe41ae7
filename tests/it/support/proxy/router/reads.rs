//! Reads of the router: finds, aggregations and counts, merged from the shards.

use std::io;
use std::sync::atomic::Ordering;

use futures_util::future::try_join_all;
use mongodb::bson::{Bson, Document, doc};
use server_model::compare;

use super::super::upstream::{documents, is_ok, whole};
use super::{Answer, Asked, Router};

/// The field in which each shard sends the sort key of a document. A mongos calls it `$sortKey`, a name that a mongod takes from
/// a mongos only.
const SORT_KEY: &str = "__sortKey";

impl Router {
    /// Sends a find to the shards that may own the documents, and merges what they find: in the order of the sort, otherwise
    /// shard after shard.
    ///
    /// Source: s/query/cluster_find.cpp (each shard gets skip + limit and no skip), s/query/async_results_merger.cpp.
    pub(super) async fn find(&self, asked: &Asked) -> Answer {
        let command = &asked.command;
        let filter = command.get_document("filter").cloned().unwrap_or_default();
        let (skip, limit) = (whole(command, "skip"), whole(command, "limit"));
        let mut of_shard = command.clone();
        for key in ["skip", "singleBatch"] {
            of_shard.remove(key);
        }
        if limit > 0 {
            of_shard.insert("limit", skip + limit);
        }
        let sort = command.get_document("sort").ok().filter(|sort| !sort.is_empty() && !sort.contains_key("$natural"));
        if sort.is_some() {
            let mut projection = command.get_document("projection").cloned().unwrap_or_default();
            projection.insert(SORT_KEY, doc! { "$meta": "sortKey" });
            of_shard.insert("projection", projection);
        }
        let mut found = match self.gather_all(asked, &filter, &of_shard).await? {
            Ok(found) => found,
            Err(refusal) => return Ok(refusal),
        };
        if let Some(sort) = sort {
            let directions: Vec<bool> =
                sort.values().map(|direction| direction.as_i32() == Some(-1) || direction.as_i64() == Some(-1)).collect();
            let mut keyed: Vec<(Vec<Bson>, Bson)> = found.into_iter().map(with_sort_key).collect();
            keyed.sort_by(|(a, _), (b, _)| {
                let orders = a.iter().zip(b).zip(&directions).map(|((a, b), is_down)| {
                    let order = compare(a, b);
                    if *is_down { order.reverse() } else { order }
                });
                orders.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then)
            });
            found = keyed.into_iter().map(|(_, document)| document).collect();
        }
        found.drain(..usize::try_from(skip).unwrap_or(0).min(found.len()));
        if limit > 0 {
            found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        }
        let is_whole = command.get_bool("singleBatch").unwrap_or(false);
        let batch_size = command.get("batchSize").map(|_| whole(command, "batchSize")).filter(|_| !is_whole);
        Ok(self.opened(asked, found, if is_whole { Some(i64::MAX) } else { batch_size }))
    }

    /// Reads all that the shards of a query find at the same time, in the order of the shards.
    async fn gather_all(&self, asked: &Asked, filter: &Document, of_shard: &Document) -> io::Result<Result<Vec<Bson>, Document>> {
        let mut found = Vec::new();
        let shards = asked.shards_of(filter).into_iter();
        let read = shards.map(async |shard| self.gather(shard, &self.of_owned(asked, shard, of_shard)).await);
        for of_one in try_join_all(read).await? {
            match of_one {
                Ok(of_one) => found.extend(of_one),
                Err(refusal) => return Ok(Err(refusal)),
            }
        }
        Ok(Ok(found))
    }

    /// Restricts a find, an aggregation, a count or a delete to the documents that a shard owns, if orphans are played. A count
    /// without a query counts orphans. No test updates one.
    ///
    /// Source: db/exec/shard_filter.cpp, db/exec/write_stage_common.cpp; MongoDB manual, "count".
    pub(super) fn of_owned(&self, asked: &Asked, shard: usize, command: &Document) -> Document {
        let mut command = command.clone();
        let Some(sharded) = asked.sharded.as_ref().filter(|_| self.has_orphans.load(Ordering::Relaxed)) else { return command };
        let owned = sharded.owned(shard);
        let and = |filter: Option<&Document>| doc! { "$and": [filter.cloned().unwrap_or_default(), owned.clone()] };
        if command.contains_key("find") {
            command.insert("filter", and(command.get_document("filter").ok()));
        } else if let Some(query) = command.get_document("query").ok().filter(|query| !query.is_empty()) {
            command.insert("query", and(Some(query)));
        } else if command.contains_key("deletes") {
            let own = |statement: &Document| {
                let mut own = statement.clone();
                own.insert("q", and(statement.get_document("q").ok()));
                Bson::Document(own)
            };
            let statements: Vec<Bson> = documents(&command, "deletes").map(own).collect();
            command.insert("deletes", statements);
        } else if let Ok(Some(Bson::Document(first))) = command.get_array("pipeline").map(|stages| stages.first().cloned())
            && let Ok(filter) = first.get_document("$match")
        {
            let stages = command.get_array("pipeline").into_iter().flatten().skip(1).cloned();
            let stages: Vec<Bson> = std::iter::once(doc! { "$match": and(Some(filter)) }.into()).chain(stages).collect();
            command.insert("pipeline", stages);
        }
        command
    }

    /// Runs an aggregation: whole on one shard if only that can own the documents. Otherwise the shards carry out the first
    /// stages, and the first shard the others on what all of them found (s/query/cluster_aggregate.cpp).
    pub(super) async fn aggregate(&self, asked: &Asked) -> Answer {
        let batch_size = asked
            .command
            .get_document("cursor")
            .ok()
            .and_then(|cursor| Some(cursor).filter(|cursor| cursor.contains_key("batchSize")));
        let batch_size = batch_size.map(|cursor| whole(cursor, "batchSize"));
        let stages: Vec<Document> = documents(&asked.command, "pipeline").cloned().collect();
        let first = stages.first().and_then(|stage| stage.get_document("$match").ok());
        let filter = first.cloned().unwrap_or_default();
        let mut whole_command = asked.command.clone();
        whole_command.insert("cursor", doc! {});
        let shards = asked.shards_of(&filter);
        // Statistics have a document for each shard.
        let is_of_each =
            stages.first().is_some_and(|stage| stage.contains_key("$collStats") || stage.contains_key("$indexStats"));
        if shards.len() == 1 || is_of_each {
            return Ok(match self.gather_all(asked, &filter, &whole_command).await? {
                Ok(found) => self.opened(asked, found, batch_size),
                Err(refusal) => refusal,
            });
        }
        let (of_shard, merging) = split(&stages);
        let mut part = whole_command;
        part.insert("pipeline", of_shard);
        let mut merge = doc! { "aggregate": 1 };
        for key in ["collation", "let", "maxTimeMS", "comment", "$db"] {
            merge.extend(asked.command.get(key).map(|value| (key.to_owned(), value.clone())));
        }
        let found = match self.gather_all(asked, &Document::new(), &part).await? {
            Ok(found) => found,
            Err(refusal) => return Ok(refusal),
        };
        let mut rest = vec![doc! { "$documents": { "$literal": found } }];
        rest.extend(merging);
        merge.insert("pipeline", rest);
        merge.insert("cursor", doc! {});
        Ok(match self.gather(0, &merge).await? {
            Ok(found) => self.opened(asked, found, batch_size),
            Err(refusal) => refusal,
        })
    }

    /// Adds up the counts of the shards.
    ///
    /// Source: s/commands/cluster_count_cmd.h: each shard gets skip + limit, and the sum is cut.
    pub(super) async fn count(&self, asked: &Asked) -> Answer {
        let filter = asked.command.get_document("query").cloned().unwrap_or_default();
        let (skip, limit) = (whole(&asked.command, "skip"), whole(&asked.command, "limit"));
        let mut of_shard = asked.command.clone();
        of_shard.remove("skip");
        if limit > 0 {
            of_shard.insert("limit", skip + limit);
        }
        let shards = asked.shards_of(&filter).into_iter();
        let replies =
            try_join_all(shards.map(async |shard| self.run(shard, &self.of_owned(asked, shard, &of_shard)).await)).await?;
        if let Some(refusal) = replies.iter().find(|reply| !is_ok(reply)) {
            return Ok(refusal.clone());
        }
        let sum: i64 = replies.iter().map(|reply| whole(reply, "n")).sum();
        let left = (sum - skip).max(0);
        Ok(doc! { "n": if limit > 0 { left.min(limit) } else { left }, "ok": 1.0 })
    }
}

/// Whether a group needs no field of its documents: shards send those fields only that the merging stages need
/// (`limitFieldsSentFromShardsToMerger` in s/query/cluster_aggregation_planner.cpp).
fn counts_only(group: &Document) -> bool {
    group.iter().all(|(name, value)| if name == "_id" { *value == Bson::Null } else { *value == doc! { "$sum": 1 }.into() })
}

/// Stages that look at one document after another, so that each shard carries them out.
const OF_ONE_DOCUMENT: [&str; 6] = ["$match", "$project", "$addFields", "$set", "$unset", "$replaceWith"];

/// Returns the stages of an aggregation that each shard carries out, which begin with a condition, and the stages for what the
/// shards return.
///
/// Source: `distributedPlanLogic` in db/pipeline/document_source_limit.h and document_source_group.cpp.
fn split(stages: &[Document]) -> (Vec<Document>, Vec<Document>) {
    let is_of_one = |stage: &&Document| stage.keys().all(|name| OF_ONE_DOCUMENT.contains(&name.as_str()));
    let of_one = stages.iter().take_while(is_of_one).count();
    let (mut of_shard, mut merging) = (stages[..of_one].to_vec(), stages[of_one..].to_vec());
    if !of_shard.first().is_some_and(|stage| stage.contains_key("$match")) {
        of_shard.insert(0, doc! { "$match": {} });
    }
    let counts = merging.get(1).and_then(|stage| stage.get_document("$group").ok()).is_some_and(counts_only);
    if let Some(first) = merging.first_mut() {
        let merged = first.get_document("$group").ok().and_then(of_groups);
        let is_limit = first.contains_key("$limit");
        if merged.is_some() || is_limit {
            of_shard.push(first.clone());
        }
        if is_limit && counts {
            of_shard.push(doc! { "$project": { "_id": 1 } });
        }
        if let Some(merged) = merged {
            *first = doc! { "$group": merged };
        }
    }
    (of_shard, merging)
}

/// Returns the stage that makes one group of the groups of the shards; `None` if that takes more than the values of these.
fn of_groups(group: &Document) -> Option<Document> {
    let merged = |(name, value): (&String, &Bson)| {
        let value: Bson = match (name.as_str(), value.as_document().and_then(|value| value.keys().next())) {
            ("_id", _) => "$_id".into(),
            (_, Some(kind)) if ["$sum", "$min", "$max"].contains(&kind.as_str()) => doc! { kind: format!("${name}") }.into(),
            _ => return None,
        };
        Some((name.clone(), value))
    };
    group.iter().map(merged).collect()
}

/// Takes the sort key out of a document that a shard has sent.
fn with_sort_key(found: Bson) -> (Vec<Bson>, Bson) {
    let Bson::Document(mut document) = found else { return (Vec::new(), found) };
    let key = document.remove(SORT_KEY).and_then(|key| key.as_array().cloned()).unwrap_or_default();
    (key, Bson::Document(document))
}
