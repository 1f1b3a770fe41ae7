//! Statistics and plans of the router, each with the statistics and plans of the shards in it.

use mongodb::bson::{Bson, Document, doc};

use super::super::upstream::{is_ok, whole};
use super::{Answer, Asked, Router, shard_name};

/// Figures of a collection that a mongos adds up.
const SUMS: [&str; 5] = ["count", "size", "storageSize", "totalIndexSize", "totalSize"];

impl Router {
    /// Returns the statistics of a collection: sums, and the statistics of each shard.
    ///
    /// Source: s/commands/cluster_coll_stats_cmd.cpp.
    pub(super) async fn coll_stats(&self, asked: &Asked) -> Answer {
        let shards = asked.shards_of(&Document::new());
        let mut all = doc! { "sharded": asked.sharded.is_some(), "ns": format!("{}.{}", asked.database, asked.collection) };
        let mut of_shards = Document::new();
        let mut sums = [0; SUMS.len()];
        for shard in shards {
            let stats = self.run(shard, &asked.command).await?;
            if !is_ok(&stats) {
                return Ok(stats);
            }
            sums.iter_mut().zip(SUMS).for_each(|(sum, name)| *sum += whole(&stats, name));
            of_shards.insert(shard_name(shard), stats);
        }
        all.extend(SUMS.iter().zip(sums).map(|(name, sum)| ((*name).to_owned(), Bson::Int64(sum))));
        if sums[0] > 0 {
            all.insert("avgObjSize", sums[1] as f64 / sums[0] as f64);
        }
        all.insert("shards", of_shards);
        all.insert("ok", 1.0);
        Ok(all)
    }

    /// Returns the plan of each shard that the explained command goes to.
    ///
    /// Source: s/query/cluster_explain.cpp; for an aggregation s/query/cluster_aggregation_planner.cpp.
    pub(super) async fn explain(&self, asked: &Asked) -> Answer {
        let explained = asked.command.get_document("explain").cloned().unwrap_or_default();
        let name = explained.keys().next().cloned().unwrap_or_default();
        let collection = explained.get_str(&name).unwrap_or_default();
        let filter = match name.as_str() {
            "delete" | "update" => {
                let list = if name == "delete" { "deletes" } else { "updates" };
                let first = explained.get_array(list).ok().and_then(|list| list.first()?.as_document()).cloned();
                first.and_then(|first| first.get_document("q").ok().cloned())
            }
            "count" | "distinct" => explained.get_document("query").ok().cloned(),
            _ => explained.get_document("filter").ok().cloned(),
        };
        let asked = Asked {
            database: asked.database.clone(),
            collection: collection.to_owned(),
            sharded: self.sharded(&asked.database, collection),
            command: asked.command.clone(),
        };
        let shards = asked.shards_of(&filter.unwrap_or_default());
        let (mut plans, mut by_name, mut run) = (Vec::new(), Document::new(), Vec::new());
        for shard in &shards {
            let reply = self.run(*shard, &asked.command).await?;
            if !is_ok(&reply) {
                return Ok(reply);
            }
            let mut plan = doc! { "shardName": shard_name(*shard) };
            plan.extend(reply.get_document("queryPlanner").cloned().unwrap_or_default());
            plans.push(plan);
            run.extend(reply.get_document("executionStats").ok().cloned());
            by_name.insert(shard_name(*shard), reply);
        }
        if name == "aggregate" {
            return Ok(doc! { "mergeType": "mongos", "shards": by_name, "ok": 1.0 });
        }
        let stage = if shards.len() == 1 { "SINGLE_SHARD" } else { "SHARD_MERGE" };
        let planner = doc! { "mongosPlannerVersion": 1, "winningPlan": { "stage": stage, "shards": plans } };
        let mut reply = doc! { "queryPlanner": planner, "ok": 1.0 };
        if !run.is_empty() {
            let sum = |key: &str| run.iter().map(|stats| whole(stats, key)).sum::<i64>();
            let totals =
                ["nReturned", "totalKeysExamined", "totalDocsExamined"].map(|key| (key.to_owned(), Bson::Int64(sum(key))));
            let mut stats = Document::from_iter(totals);
            stats.insert("executionStages", doc! { "stage": stage, "shards": run });
            reply.insert("executionStats", stats);
        }
        Ok(reply)
    }
}
