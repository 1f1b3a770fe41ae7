//! Sweeps of a sharded collection, one of whose shards is a replica set that loses its primary.

use std::time::Duration;

use crate::support::cluster::Cluster;
use crate::support::faults::{days, heal, pause_deletes, slow_down, until_deleted_from};
use crate::support::mongod::Mongod;
use crate::support::proxy::router::Sharded;
use crate::support::replica_set::ReplicaSet;
use crate::support::sweeper::{Case, Report, id_set};
use mongodb::Client;
use mongodb::bson::{Bson, doc};

const DOCUMENTS: i32 = 900;

/// Documents on the set.
const ON_SET: usize = DOCUMENTS as usize / 2;

/// A cluster of one mongod and a set of three.
struct Sets {
    set: ReplicaSet,
    /// Leads to the primary of the set.
    client: Client,
    /// Keeps the first shard running.
    first: Mongod,
}

impl Sets {
    async fn start() -> Self {
        let servers = || (ReplicaSet::start(3, &[]), Mongod::start(&[]));
        let (set, first) = tokio::task::spawn_blocking(servers).await.expect("the servers");
        set.prefer_no_member().await;
        let client = Client::with_uri_str(set.uri()).await.expect("a client");
        Self { set, client, first }
    }

    /// Returns the cluster with a filled collection `c`. Every third document is live.
    async fn cluster(&self, name: &str, key: &str) -> Cluster {
        let mut members: Vec<u16> = self.set.members.iter().map(|member| member.port).collect();
        // The router asks the first one until it learns better.
        members.swap(0, self.set.primary(&self.client).await);
        let shards = vec![self.first.client().await, self.client.clone()];
        let cluster = Cluster::over(vec![vec![self.first.port], members], shards, name).await;
        let split: [Bson; 1] = [(DOCUMENTS / 2).into()];
        cluster.shard("c", Sharded::halves(doc! { key: 1 }, split)).await;
        let documents = (0..DOCUMENTS).map(|n| {
            let at = if n % 3 == 0 { days(3) } else { days(-3 - i64::from(n % 90)) };
            doc! { "_id": n, "n": n, "at": at }
        });
        cluster.case.fill("c", documents).await;
        cluster.case.index_on_date("c").await;
        cluster
    }

    async fn slow_down(&self) {
        for member in &self.set.members {
            slow_down(&member.client().await, "delete", 200).await;
        }
    }

    /// Returns a sweep during which something happens to the set once it has deleted.
    async fn swept(&mut self, cluster: &Cluster, keys: &str, happens: impl AsyncFnOnce(&mut Self)) -> Report {
        self.slow_down().await;
        let rules = format!("  - {{namespace: DB.c, field: at, expireAfter: 1d, batchSize: 50{keys}}}\n");
        let (report, ()) = tokio::join!(cluster.case.report(&rules, &[]), async {
            let of_set = Case::at(&self.set.uri(), self.client.clone(), cluster.case.db.name());
            until_deleted_from(&of_set, "c", ON_SET).await;
            happens(self).await;
        });
        report
    }

    /// Asserts that what is live is left, that the run says so, and that the next run finds nothing.
    async fn assert_exact(&self, cluster: &Cluster, report: &Report, what: &str) {
        for member in &self.set.members {
            heal(&member.client().await).await;
        }
        assert_eq!((report.ran.code, report.rule(0, "status")), (Some(0), &"complete".into()), "{what}: {report:?}");
        assert_eq!(report.rule(0, "remainingCount"), 0, "{what}: {report:?}");
        let live = id_set((0..DOCUMENTS).filter(|n| n % 3 == 0));
        assert_eq!(cluster.case.ids("c").await, live, "{what}: {report:?}");
        // A delete whose reply was lost is uncertain, and is counted at least by what the next ones found.
        let deleted = report.rule(0, "deletedCount").as_i64().expect("a count");
        let gone = i64::from(DOCUMENTS / 3 * 2);
        assert!(deleted == gone || deleted < gone && report.rule(0, "uncertain") == true, "{what}: {deleted}: {report:?}");
        let again = cluster.case.report("  - {namespace: DB.c, field: at, expireAfter: 1d}\n", &[]).await;
        assert_eq!((again.ran.code, again.rule(0, "deletedCount")), (Some(0), &0.into()), "{what}: {again:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_whose_primary_dies_or_steps_down_is_waited_for() {
    let mut sets = Sets::start().await;
    for (n, (key, keys)) in [("_id", ""), ("n", ""), ("n", ", maxDeletes: 100000")].into_iter().enumerate() {
        let cluster = sets.cluster(&format!("died{n}"), key).await;
        let primary = sets.set.primary(&sets.client).await;
        let report = sets
            .swept(&cluster, keys, async |sets| {
                pause_deletes(&sets.client).await;
                // By then a delete waits there: one takes 200 ms.
                tokio::time::sleep(Duration::from_secs(1)).await;
                sets.set.members[primary].kill();
            })
            .await;
        sets.set.members[primary].restart();
        assert!(report.ran.stderr.contains("trying again in"), "{report:?}");
        sets.assert_exact(&cluster, &report, &format!("died, {key}{keys}")).await;

        let cluster = sets.cluster(&format!("stepped{n}"), key).await;
        let primary = sets.set.primary(&sets.client).await;
        let report = sets
            .swept(&cluster, keys, async |sets| {
                let step_down = doc! { "replSetStepDown": 10, "secondaryCatchUpPeriodSecs": 0, "force": true };
                let admin = sets.set.members[primary].client().await.database("admin");
                admin.run_command(step_down).await.expect("a step-down");
            })
            .await;
        // A step-down between two deletes is met by a read, which the router repeats.
        sets.assert_exact(&cluster, &report, &format!("stepped down, {key}{keys}")).await;
    }
}
