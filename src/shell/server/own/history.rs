//! The history in the database: one document per run.

use std::time::Duration;

use bson::{Document, doc};
use tokio::time::Instant;

use crate::core::policy::namespace::Namespace;
use crate::shell::server::Deployment;
use crate::shell::server::delete::grant::RecordGrant;
use crate::shell::server::wire::error::{Result, ServerError};
use crate::shell::server::wire::find::Query;
use crate::shell::server::wire::retry::Retries;
use crate::shell::server::wire::transport::{Patience, ReadPreference, ServerCommand};

/// Time limit of one attempt to record a run: enough for a fail-over, while nothing else delays the end of the process.
const MAX_WRITE_TIME: Duration = Duration::from_secs(20);

/// Time after which no further attempt begins.
const MAX_ATTEMPTS_TIME: Duration = Duration::from_secs(20);

/// Number of documents of one find if cursors do not last.
const PAGE: u32 = 200;

/// Maximum number of documents read from a collection that the server cannot sort.
pub(crate) const MAX_READ: usize = 10_000;

/// Inserts the document of a run that begins, without `_id` in it. If the run has a document already, that stays as it is: a
/// command that arrives late does not take back what the end of the run has written.
pub(crate) async fn begin(
    deployment: &Deployment,
    namespace: &Namespace,
    run_id: &str,
    document: Document,
    grant: &RecordGrant,
) -> Result<()> {
    update(deployment, namespace, run_id, doc! { "$setOnInsert": document }, grant).await
}

/// Replaces the document of a run that has begun by the document of its end.
pub(crate) async fn complete(
    deployment: &Deployment,
    namespace: &Namespace,
    run_id: &str,
    document: Document,
    grant: &RecordGrant,
) -> Result<()> {
    update(deployment, namespace, run_id, document, grant).await
}

async fn update(
    deployment: &Deployment,
    namespace: &Namespace,
    run_id: &str,
    update: Document,
    grant: &RecordGrant,
) -> Result<()> {
    let update = doc! {
        "update": &namespace.collection,
        "updates": [{ "q": { "_id": run_id }, "u": update, "upsert": true, "multi": false }],
        "writeConcern": &deployment.write_concern,
    };
    write(deployment, namespace, update, grant).await
}

/// Inserts the document of a run whose beginning could not be recorded.
pub(crate) async fn insert(
    deployment: &Deployment,
    namespace: &Namespace,
    document: Document,
    grant: &RecordGrant,
) -> Result<()> {
    let insert = doc! {
        "insert": &namespace.collection,
        "documents": [document],
        "ordered": true,
        "writeConcern": &deployment.write_concern,
    };
    write(deployment, namespace, insert, grant).await
}

async fn write(deployment: &Deployment, namespace: &Namespace, command: Document, _grant: &RecordGrant) -> Result<()> {
    let command = ServerCommand::of(&namespace.database, &deployment.marked(command), Patience::Limit(MAX_WRITE_TIME))?;
    let (mut retries, begun) = (Retries::several(), Instant::now());
    let next_wait = |cause: &ServerError| {
        // The run has already waited for an unreachable server, or for a reply that did not come, and ends rather than wait
        // again.
        retries.wait_unless_silent(cause).filter(|_| begun.elapsed() < MAX_ATTEMPTS_TIME)
    };
    deployment.create(&command, next_wait).await
}

/// Reads the newest documents, the newest first, with their rules only if `with_rules` is set. Also returns whether there are too
/// many documents to know which are the newest.
pub(crate) async fn newest(
    deployment: &Deployment,
    namespace: &Namespace,
    last: usize,
    with_rules: bool,
) -> Result<(Vec<Document>, bool)> {
    if deployment.facts.capabilities.sorts {
        let page = Page { filter: doc! {}, sort: doc! { "startedAt": -1 }, limit: u32::try_from(last).unwrap_or(u32::MAX) };
        return Ok((find(deployment, namespace, page, with_rules).await?, false));
    }
    // Without a sort by date all documents are read, in the order of their `_id`s.
    let (mut newest, mut read, mut filter) = (Vec::new(), 0, doc! {});
    loop {
        let page = Page { filter: filter.clone(), sort: doc! { "_id": 1 }, limit: PAGE };
        let documents = find(deployment, namespace, page, with_rules).await?;
        read += documents.len();
        let Some(after) = documents.last().and_then(|document| document.get("_id")).cloned() else {
            return Ok((newest, false));
        };
        newest.extend(documents);
        newest.sort_by_key(|document| std::cmp::Reverse(document.get_datetime("startedAt").ok().copied()));
        newest.truncate(last);
        if read >= MAX_READ {
            return Ok((newest, true));
        }
        filter = doc! { "_id": { "$gt": after } };
    }
}

struct Page {
    filter: Document,
    sort: Document,
    limit: u32,
}

async fn find(deployment: &Deployment, namespace: &Namespace, page: Page, with_rules: bool) -> Result<Vec<Document>> {
    // One reply holds the page, so that no cursor has to last.
    let find = Query::find(namespace, page.filter).sort(page.sort).limit(page.limit.into()).batch_size(page.limit);
    let find = if with_rules { find } else { find.projection(doc! { "rules": 0 }) };
    find.read_preference(ReadPreference::ConnectionString).all(deployment).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::server::wire::codes;
    use crate::testing::scripted::{Script, ScriptedReply};

    async fn inserted(answers: Vec<ScriptedReply>) -> (Result<()>, usize) {
        let script = Script::new(answers);
        let namespace = Namespace { database: "ops".into(), collection: "runs".into() };
        let grant = RecordGrant::new(false).unwrap();
        let result = insert(&script.deployment(), &namespace, doc! { "_id": "run" }, &grant).await;
        (result, script.sent().len())
    }

    #[tokio::test(start_paused = true)]
    async fn a_beginning_that_arrives_late_leaves_the_end_as_it_is() {
        let script = Script::new((0..2).map(|_| ScriptedReply::Reply(doc! { "n": 1, "ok": 1.0 })));
        let namespace = Namespace { database: "ops".into(), collection: "runs".into() };
        let (deployment, grant) = (script.deployment(), RecordGrant::new(false).unwrap());
        begin(&deployment, &namespace, "run", doc! { "status": "running" }, &grant).await.unwrap();
        complete(&deployment, &namespace, "run", doc! { "_id": "run", "status": "complete" }, &grant).await.unwrap();
        let updates: Vec<Document> =
            script.sent().iter().map(|command| command.get_array("updates").unwrap()[0].as_document().unwrap().clone()).collect();
        let of_run = |update: Document| doc! { "q": { "_id": "run" }, "u": update, "upsert": true, "multi": false };
        assert_eq!(updates[0], of_run(doc! { "$setOnInsert": { "status": "running" } }));
        assert_eq!(updates[1], of_run(doc! { "_id": "run", "status": "complete" }));
    }

    #[tokio::test(start_paused = true)]
    async fn a_run_whose_reply_was_lost_is_recorded_once() {
        let stepped_down = || ScriptedReply::Error(ServerError::reported(codes::PRIMARY_STEPPED_DOWN, "stepped down", ""));
        let error = doc! { "index": 0, "code": codes::DUPLICATE_KEY, "errmsg": "E11000 duplicate key error" };
        let there = doc! { "n": 0, "ok": 1.0, "writeErrors": [error] };
        let duplicate = || ScriptedReply::Reply(there.clone());
        assert_eq!(inserted(vec![ScriptedReply::Reply(doc! { "n": 1, "ok": 1.0 })]).await, (Ok(()), 1));
        assert_eq!(inserted(vec![stepped_down(), duplicate()]).await, (Ok(()), 2));
        // A fail-over may take back what is there.
        let mut unconfirmed = there.clone();
        unconfirmed.insert("writeConcernError", doc! { "code": codes::PRIMARY_STEPPED_DOWN, "errmsg": "stepped down" });
        let taken_back =
            vec![stepped_down(), ScriptedReply::Reply(unconfirmed), ScriptedReply::Reply(doc! { "n": 1, "ok": 1.0 })];
        assert_eq!(inserted(taken_back).await, (Ok(()), 3));
        let (result, attempts) = inserted((0..4).map(|_| stepped_down()).collect()).await;
        assert!(result.is_err() && attempts == 4);
        let unmet = doc! { "n": 1, "ok": 1.0, "writeConcernError": { "code": 64, "errmsg": "waiting" } };
        assert!(inserted(vec![ScriptedReply::Reply(unmet)]).await.0.is_err());
        let silent = ScriptedReply::Error(ServerError::timeout(MAX_WRITE_TIME));
        assert_eq!(inserted(vec![silent]).await.1, 1);
    }
}
