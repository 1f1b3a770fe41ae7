//! Replica sets of real servers.

use std::time::Duration;

use mongodb::Client;
use mongodb::bson::{Document, doc};
use mongodb::options::ClientOptions;

use super::mongod::{Mongod, block_on};

/// A replica set; the first member becomes the primary.
pub(crate) struct ReplicaSet {
    pub members: Vec<Mongod>,
}

impl ReplicaSet {
    /// Starts `size` members under the name `rs0` and waits for a primary.
    pub(crate) fn start(size: usize, extra: &[&str]) -> Self {
        let args: Vec<&str> = ["--replSet", "rs0"].iter().chain(extra).copied().collect();
        let members: Vec<Mongod> = (0..size).map(|_| Mongod::start(&args)).collect();
        let set = Self { members };
        block_on(async {
            let hosts: Vec<Document> = set
                .members
                .iter()
                .enumerate()
                .map(|(id, member)| {
                    doc! { "_id": id as i32, "host": format!("127.0.0.1:{}", member.port), "priority": if id == 0 { 2 } else { 1 } }
                })
                .collect();
            let config = doc! { "_id": "rs0", "members": hosts, "settings": { "electionTimeoutMillis": 2000 } };
            let admin = set.members[0].client().await.database("admin");
            admin.run_command(doc! { "replSetInitiate": config }).await.expect("the set is initiated");
            for _ in 0..300 {
                let hello = admin.run_command(doc! { "hello": 1 }).await.expect("hello");
                if matches!(hello.get_bool("isWritablePrimary"), Ok(true)) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
            panic!("no primary in 30 s");
        });
        set
    }

    pub(crate) fn uri(&self) -> String {
        let hosts: Vec<String> = self.members.iter().map(|member| format!("127.0.0.1:{}", member.port)).collect();
        format!("mongodb://{}/?replicaSet=rs0", hosts.join(","))
    }

    pub(crate) async fn client(&self) -> Client {
        Client::with_options(ClientOptions::parse(self.uri()).await.expect("options")).expect("a client")
    }
}
