//! One command, as the server carries it out.

use std::sync::Arc;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::codes;
use crate::failure::Failure;
use crate::model::Model;
use crate::state::State;
use crate::value::{integer, integer_in};

/// A command under way.
pub(crate) struct Call {
    pub model: Arc<Model>,
    /// Name of the client.
    pub client: Arc<str>,
    pub database: String,
    pub body: Document,
    /// The primary that carries it out.
    pub term: u64,
    /// The server's clock at the beginning, which is `$$NOW`.
    pub now: DateTime,
    pub begun: Instant,
    /// End of `maxTimeMS`, or of the server's own limit.
    deadline: Option<Instant>,
}

impl Call {
    /// Begins a command that has arrived, after a wait.
    pub(crate) async fn begin(model: Arc<Model>, client: Arc<str>, database: String, body: Document, wait: Duration) -> Self {
        let begun = Instant::now();
        let (term, now, release) = {
            let state = model.state.lock();
            (state.term, state.now(), state.release)
        };
        let limit = match integer_in(&body, "maxTimeMS") {
            // 0 is no limit.
            Some(millis) => (millis > 0).then(|| Duration::from_millis(millis.unsigned_abs())),
            None => body.keys().next().and_then(|name| release.default_max_time(name)),
        };
        let deadline = limit.map(|limit| begun + limit);
        let call = Self { model, client, database, body, term, now, begun, deadline };
        if !wait.is_zero() {
            let end = begun + wait;
            sleep_until(deadline.map_or(end, |deadline| end.min(deadline))).await;
        }
        call
    }

    /// Returns the namespace that the command is about.
    pub(crate) fn namespace(&self) -> Result<String, Failure> {
        match self.body.values().next() {
            Some(Bson::String(collection)) if !collection.is_empty() => Ok(format!("{}.{collection}", self.database)),
            _ => Err(Failure::new(73, "collection name has invalid type")),
        }
    }

    /// Returns the comment of the command, by which its run is known.
    pub(crate) fn comment(&self) -> &str {
        self.body.get_str("comment").unwrap_or_default()
    }

    /// Checks that the command may go on.
    pub(crate) fn check(&self, state: &State) -> Result<(), Failure> {
        state.check_term(self.term)?;
        match self.deadline {
            Some(deadline) if deadline <= Instant::now() => {
                Err(Failure::new(codes::MAX_TIME_MS_EXPIRED, "operation exceeded time limit"))
            }
            _ => Ok(()),
        }
    }

    /// Fails if the command has a field that it does not take. Those that every command takes are not listed.
    pub(crate) fn takes(&self, known: &[&str]) -> Result<(), Failure> {
        const OF_ALL: [&str; 8] =
            ["comment", "maxTimeMS", "readConcern", "writeConcern", "$db", "$readPreference", "lsid", "$clusterTime"];
        let unknown = self.body.keys().skip(1).find(|key| !known.contains(&key.as_str()) && !OF_ALL.contains(&key.as_str()));
        match unknown {
            Some(key) => Err(Failure::new(40_415, format!("BSON field '{key}' is an unknown field."))),
            None => Ok(()),
        }
    }

    /// Lets others run for a while.
    pub(crate) async fn pause(&self) {
        let millis = {
            let mut state = self.model.state.lock();
            let pause = state.pace.pause.clone();
            state.random.u64(pause)
        };
        rest(Duration::from_millis(millis)).await;
    }

    /// Waits until the instant of something that is yet to come, and that may be put off; `None` if it is past.
    pub(crate) async fn until(&self, due: impl Fn(&State) -> Option<Instant>) -> Result<(), Failure> {
        loop {
            let changed = self.model.changes.notified();
            let due = {
                let state = self.model.state.lock();
                self.check(&state)?;
                due(&state).filter(|due| *due > Instant::now())
            };
            let Some(due) = due else { return Ok(()) };
            let _ = timeout_at(self.deadline.map_or(due, |deadline| due.min(deadline)), changed).await;
        }
    }

    /// Waits until a majority has all writes so far, if the command asks for it, and completes its reply.
    pub(crate) async fn confirmed(&self, mut reply: Document) -> Result<Document, Failure> {
        // As in a replica set, where it is the term (seen with 6.0.5).
        let election = [0x7fff_ffff_u32.to_be_bytes().as_slice(), &self.term.to_be_bytes()].concat();
        reply.insert("electionId", ObjectId::from_bytes(election.try_into().expect("12 bytes")));
        reply.insert("ok", 1.0);
        let default = Document::new();
        let concern = self.body.get_document("writeConcern").unwrap_or(&default);
        let needs_majority = match concern.get("w") {
            None => false,
            Some(Bson::String(tag)) if tag == "majority" => true,
            Some(w) => match integer(w) {
                Some(0 | 1) => false,
                Some(_) => true,
                None => return Err(Failure::new(codes::BAD_VALUE, "the model does not know this write concern")),
            },
        };
        if !needs_majority {
            return Ok(reply);
        }
        let write = self.model.state.lock().written;
        let limit = integer_in(concern, "wtimeout").filter(|millis| *millis > 0);
        let deadline = limit.map(|millis| Instant::now() + Duration::from_millis(millis.unsigned_abs()));
        loop {
            let changed = self.model.changes.notified();
            let due = {
                let mut state = self.model.state.lock();
                if let Err(interrupted) = self.check(&state) {
                    if interrupted.code == codes::MAX_TIME_MS_EXPIRED {
                        return unconfirmed(reply, codes::MAX_TIME_MS_EXPIRED, "operation exceeded time limit");
                    }
                    // A primary that steps down says so; one that is gone says nothing.
                    return match state.random.bool() {
                        true => {
                            unconfirmed(reply, codes::PRIMARY_STEPPED_DOWN, "Primary stepped down while waiting for replication")
                        }
                        false => Err(interrupted),
                    };
                }
                match state.committed_at(write) {
                    Some(due) if due > Instant::now() => due,
                    _ => return Ok(reply),
                }
            };
            let until = [deadline, self.deadline].into_iter().flatten().fold(due, Instant::min);
            let _ = timeout_at(until, changed).await;
            if deadline.is_some_and(|deadline| deadline <= Instant::now() && deadline < due) {
                return unconfirmed(reply, codes::WRITE_CONCERN_TIMEOUT, "waiting for replication timed out");
            }
        }
    }
}

/// Waits; does not even look at the clock for no time at all.
pub(crate) async fn rest(time: Duration) {
    match time.is_zero() {
        true => tokio::task::yield_now().await,
        false => sleep(time).await,
    }
}

fn unconfirmed(mut reply: Document, code: i32, why: &str) -> Result<Document, Failure> {
    reply.insert("writeConcernError", doc! { "code": code, "errmsg": why });
    Ok(reply)
}
