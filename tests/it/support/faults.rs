//! Faults that a test injects into a server or a run: fail points, signals, slow commands. Also the server's log of commands.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures_util::TryStreamExt;
use mongodb::bson::{Bson, DateTime, Document, doc};
use mongodb::{Client, Collection};
use serde_json::Value;

use super::mongod::{Mongod, launch};
use super::pool::Alone;
use super::replica_set::ReplicaSet;
use super::sweeper::{Case, Ran};

/// Returns a server that this case has to itself, because fail points and the log are of a whole server.
pub(crate) async fn alone() -> (Alone<Mongod>, Case) {
    let mongod = Alone::<Mongod>::take().await;
    let case = Case::on(&mongod, "t").await;
    (mongod, case)
}

/// Returns a replica set of one member that this case has to itself.
pub(crate) async fn set_alone() -> (Alone<ReplicaSet>, Case) {
    let set = Alone::<ReplicaSet>::take().await;
    let case = Case::at(&set.uri(), set.client().await, "t");
    (set, case)
}

impl Mongod {
    /// Ends the server as a crash would, if it runs, and starts it again with the same data and port but without fail points.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.child = launch(self.dir.path(), self.port, &self.extra);
        assert!(self.listens(), "the server did not restart: {}", self.last_words());
    }
}

impl ReplicaSet {
    /// Changes the configuration of the set. A fail-over meanwhile, which a busy machine brings about by itself, is waited for.
    pub(crate) async fn reconfigure(&self, change: impl Fn(&mut Document)) {
        let admin = self.client().await.database("admin");
        let begun = Instant::now();
        loop {
            let reply = admin.run_command(doc! { "replSetGetConfig": 1 }).await.expect("the configuration");
            let mut config = reply.get_document("config").expect("the configuration").clone();
            config.insert("version", config.get_i32("version").expect("a version") + 1);
            change(&mut config);
            let Err(cause) = admin.run_command(doc! { "replSetReconfig": config }).await else { return };
            assert!(begun.elapsed() < Duration::from_secs(60), "another configuration: {cause}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Gives all members the same priority: one that returns must not become the primary again only because it was the first.
    pub(crate) async fn prefer_no_member(&self) {
        self.reconfigure(|config| {
            for member in config.get_array_mut("members").unwrap() {
                member.as_document_mut().unwrap().insert("priority", 1);
            }
        })
        .await;
    }

    /// Lets the members elect another primary only when a test tells them to, however long the machine keeps them waiting.
    pub(crate) async fn never_elect(&self) {
        self.reconfigure(|config| {
            config.get_document_mut("settings").unwrap().insert("electionTimeoutMillis", 600_000);
        })
        .await;
    }

    /// Waits for a primary and returns its index.
    pub(crate) async fn primary(&self, client: &Client) -> usize {
        for _ in 0..300 {
            // This fails if the last primary is down and no other is known yet.
            let hello = client.database("admin").run_command(doc! { "hello": 1 }).await.unwrap_or_default();
            let primary = hello.get_str("primary").unwrap_or_default();
            let is_primary = |member: &Mongod| primary.ends_with(&format!(":{}", member.port));
            if let Some(index) = self.members.iter().position(is_primary) {
                return index;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("no primary in time");
    }
}

/// Waits until a run has deleted from a collection that had `full` documents.
pub(crate) async fn until_deleted_from(case: &Case, collection: &str, full: usize) {
    let begun = Instant::now();
    while case.ids(collection).await.len() == full {
        assert!(begun.elapsed() < Duration::from_secs(60), "nothing was deleted within 60 s");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Makes commands of `sweeper` fail or wait, as mongod's fail point `failCommand` reads `data`; commands of the test are not
/// affected. Returns how many commands met the fail point until now, of all tests that had this server.
pub(crate) async fn fail_commands(client: &Client, mode: impl Into<Bson>, data: Document) -> i32 {
    let mut data = data;
    data.insert("appName", "sweeper");
    let command = doc! { "configureFailPoint": "failCommand", "mode": mode.into(), "data": data };
    let begun = Instant::now();
    loop {
        match client.database("admin").run_command(command.clone()).await {
            Ok(reply) => return reply.get_i32("count").expect("a count"),
            // A member that changes its role closes its connections.
            Err(cause) => assert!(begun.elapsed() < Duration::from_secs(60), "a fail point: {cause}"),
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Makes the server wait for `millis` before it runs each `command` of `sweeper`.
pub(crate) async fn slow_down(client: &Client, command: &str, millis: i32) {
    let data = doc! { "failCommands": [command], "blockConnection": true, "blockTimeMS": millis };
    fail_commands(client, "alwaysOn", data).await;
}

/// Ends the fail point. Returns the same as [`fail_commands`].
pub(crate) async fn heal(client: &Client) -> i32 {
    fail_commands(client, "off", doc! {}).await
}

/// Makes deletes wait on the server before they read a document, until [`resume_deletes`]. Can be combined with
/// [`fail_commands`].
pub(crate) async fn pause_deletes(client: &Client) {
    pause(client, "alwaysOn").await;
}

pub(crate) async fn resume_deletes(client: &Client) {
    pause(client, "off").await;
}

async fn pause(client: &Client, mode: &str) {
    client
        .database("admin")
        .run_command(doc! { "configureFailPoint": "hangDuringBatchRemove", "mode": mode })
        .await
        .expect("a fail point");
}

/// Returns the number of such commands of `sweeper` in progress on the server.
pub(crate) async fn running(client: &Client, command: &str) -> usize {
    operations(client, command, doc! {}).await.len()
}

/// Returns the operation ids of such commands that also match a filter.
async fn operations(client: &Client, command: &str, filter: Document) -> Vec<Bson> {
    let stages = [
        doc! { "$currentOp": { "allUsers": true } },
        doc! { "$match": filter },
        doc! { "$match": { "appName": "sweeper", "$or": [
            { format!("command.{command}"): { "$exists": true } },
            // A delete in progress shows its statement instead of the command.
            { "op": if command == "delete" { "remove" } else { "-" } },
        ] } },
    ];
    let cursor = client.database("admin").aggregate(stages).await.expect("currentOp");
    let operations: Vec<Document> = cursor.try_collect().await.expect("all operations");
    operations.iter().filter_map(|operation| operation.get("opid").cloned()).collect()
}

/// Waits until such a command of `sweeper` is in progress on the server, and is not just about to be answered.
pub(crate) async fn until_running(client: &Client, command: &str) {
    until_running_with(client, command, doc! {}).await;
}

/// Like [`until_running`], for deletes from one of several collections that are swept at the same time.
pub(crate) async fn until_deleting_from(collection: &Collection<Document>) {
    let filter = doc! { "ns": collection.namespace().to_string() };
    until_running_with(collection.client(), "delete", filter).await;
}

async fn until_running_with(client: &Client, command: &str, filter: Document) {
    let mut before = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        let now = operations(client, command, filter.clone()).await;
        if now.iter().any(|operation| before.contains(operation)) {
            return;
        }
        before = now;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the server received no `{command}`");
}

/// Returns the commands of one name that a server started by [`alone`] has run for `sweeper`, from its log, oldest first.
pub(crate) fn logged(mongod: &Mongod, command: &str) -> Vec<Value> {
    every_logged(mongod).into_iter().filter(|attributes| attributes["command"].get(command).is_some()).collect()
}

pub(crate) fn every_logged(mongod: &Mongod) -> Vec<Value> {
    let log = std::fs::read_to_string(mongod.dir.path().join("log")).expect("the log of mongod");
    log.lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|line| line["msg"] == "Slow query" && line["attr"]["appName"] == "sweeper")
        .map(|mut line| line["attr"].take())
        .collect()
}

/// Returns the deletes that a server started by [`alone`] has run for `sweeper`, with the numbers of examined and deleted
/// documents.
pub(crate) fn removed(mongod: &Mongod) -> Vec<Value> {
    every_logged(mongod).into_iter().filter(|attributes| attributes["type"] == "remove").collect()
}

/// Returns the `_id`s in each delete command of the log; every command must list `_id`s.
pub(crate) fn batches(mongod: &Mongod) -> Vec<Vec<Value>> {
    let ids = |attributes: &Value| attributes["command"]["deletes"][0]["q"]["$and"][0]["_id"]["$in"].as_array().cloned();
    logged(mongod, "delete")
        .iter()
        .map(|command| ids(command).unwrap_or_else(|| panic!("a delete without `_id`s: {command}")))
        .collect()
}

/// Starts `sweeper` without waiting for it.
pub(crate) fn start(mut command: Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("sweeper starts")
}

/// Waits for the end of a process started by [`start`].
pub(crate) async fn end(child: Child) -> Ran {
    tokio::task::spawn_blocking(move || child.wait_with_output().expect("sweeper ends").into())
        .await
        .expect("waiting for the process")
}

/// Sends a signal such as `INT`.
pub(crate) fn signal(child: &Child, name: &str) {
    send(child.id(), name);
}

/// Sends a signal such as `STOP` to a process that the test has started.
pub(crate) fn send(pid: u32, name: &str) {
    let kill = format!("kill -{name} {pid}");
    let sent = Command::new("sh").args(["-c", &kill]).status();
    assert!(sent.expect("a shell").success());
}

/// A process that is stopped, and so entirely silent, until the value is dropped.
pub(crate) struct Stopped(u32);

impl Stopped {
    pub(crate) fn new(pid: u32) -> Self {
        send(pid, "STOP");
        Self(pid)
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        send(self.0, "CONT");
    }
}

/// Returns the date this many days from now; negative days are in the past.
pub(crate) fn days(days: i64) -> DateTime {
    DateTime::from_millis(DateTime::now().timestamp_millis() + days * 86_400_000)
}

/// Returns documents with the `_id`s of a range and the same date.
pub(crate) fn dated(ids: std::ops::Range<i32>, at: DateTime) -> impl Iterator<Item = Document> {
    ids.map(move |id| doc! { "_id": id, "at": at })
}

/// Creates a collection of many documents, with `_id`s from 0 and the same date, without sending them over the wire.
pub(crate) async fn fill_many(case: &Case, name: &str, documents: i32, at: DateTime) {
    let stages = vec![
        doc! { "$documents": [{ "_id": { "$range": [0, documents] } }] },
        doc! { "$unwind": "$_id" },
        doc! { "$set": { "at": at } },
        doc! { "$out": name },
    ];
    case.db.run_command(doc! { "aggregate": 1, "pipeline": stages, "cursor": {} }).await.expect("an aggregate");
}

/// Waits until the run has noticed a signal; returns its message.
pub(crate) fn until_heard(child: &mut Child) -> String {
    let stderr = child.stderr.take().unwrap();
    BufReader::new(stderr).lines().next().unwrap().unwrap()
}
