//! The members of a replica set, and how far they are behind.

use std::time::Duration;

use bson::{Bson, Document, doc};

use crate::base::machine::Task;
use crate::base::values::integer_in;
use crate::base::watch;
use crate::core::facts::Topology;
use crate::shell::server::Deployment;
use crate::shell::server::wire::error::ServerError;
use crate::shell::server::wire::timeout::reply_within;
use crate::shell::server::wire::transport::{Patience, ServerCommand};

/// Time between two looks. Members report their positions to each other at least every two seconds.
const INTERVAL: Duration = Duration::from_secs(1);

/// Time limit of one look: an answer that takes longer is not worth relying on.
const MAX_LOOK_TIME: Duration = Duration::from_secs(5);

const LOOK: Patience = Patience::Limit(MAX_LOOK_TIME);

/// The lag of the slowest member of a replica set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Lag {
    /// No member has to follow the primary.
    NoSecondary,
    Known {
        /// `host:port`.
        member: String,
        /// The time between the last operations of the primary and of the member.
        lag: Duration,
    },
    /// The reason why the lag is unknown.
    Unknown(String),
}

impl Lag {
    /// Returns a sentence about a lag that exceeds `max` or is unknown; `None` for any other.
    pub(crate) fn behind(&self, max: Duration) -> Option<String> {
        match self {
            Lag::Known { member, lag } if *lag > max => {
                Some(format!("{member} is {} s behind, {} s are allowed", lag.as_secs(), max.as_secs()))
            }
            Lag::Unknown(why) => Some(format!("lag is unknown: {why}")),
            Lag::NoSecondary | Lag::Known { .. } => None,
        }
    }
}

/// A member of a replica set that holds data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SetMember {
    /// `host:port`.
    pub name: String,
    pub is_primary: bool,
}

/// Returns the members that hold data, hidden and delayed ones included, by their names.
///
/// Errors: the set does not answer, or does not tell.
pub(crate) async fn members(deployment: &Deployment) -> Result<Vec<SetMember>, ServerError> {
    let (_, status) = look(deployment.clone()).await?;
    Ok(with_data(&status))
}

fn with_data(status: &Document) -> Vec<SetMember> {
    let holds_data = |member: &&Document| state_of(member) != "ARBITER";
    let member = |member: &Document| {
        let name = member.get_str("name").ok()?.to_owned();
        Some(SetMember { name, is_primary: state(member) == "PRIMARY" })
    };
    let mut members: Vec<SetMember> = documents(status, "members").filter(holds_data).filter_map(member).collect();
    members.sort_by(|one, other| one.name.cmp(&other.name));
    members
}

/// Returns the lag of the slowest member now.
pub(crate) async fn now(deployment: &Deployment) -> Lag {
    match deployment.facts.topology {
        Topology::Standalone => Lag::NoSecondary,
        Topology::ReplicaSet | Topology::Sharded => read(look(deployment.clone()).await),
    }
}

/// The way to find out the lag of a deployment.
pub(crate) enum LagSource {
    /// No member follows: a standalone server, or a service that does not show its members.
    NoSecondary,
    /// The positions of the members, read every second.
    Members(LagWatch),
    /// The time in which a majority confirms a batch. Holds the reason why nothing more exact is known.
    Majority(String),
}

/// A task that watches the members until it is dropped.
pub(crate) struct LagWatch {
    _task: Task,
    receiver: watch::Receiver<Lag>,
}

impl LagWatch {
    /// Returns a receiver of the latest lag.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Lag> {
        self.receiver.clone()
    }
}

impl LagSource {
    /// Chooses the way that is open to the connected user, and begins to watch the members if they are visible.
    pub(crate) async fn open(deployment: &Deployment) -> Self {
        if !deployment.facts.capabilities.member_status {
            return Self::NoSecondary;
        }
        match deployment.facts.topology {
            Topology::Standalone => return Self::NoSecondary,
            Topology::Sharded => return Self::Majority("mongos does not show the members of the shards".into()),
            Topology::ReplicaSet => {}
        }
        let first = match look(deployment.clone()).await {
            Err(cause) if cause.is_unauthorized() => {
                return Self::Majority("`replSetGetStatus` and `replSetGetConfig` need the role `clusterMonitor`".into());
            }
            first => read(first),
        };
        let (sender, receiver) = watch::channel(first);
        let deployment = deployment.clone();
        let task = Task::begin(async move {
            loop {
                tokio::time::sleep(INTERVAL).await;
                sender.send_replace(read(look(deployment.clone()).await));
            }
        });
        Self::Members(LagWatch { _task: task, receiver })
    }
}

/// Returns the configuration of the replica set and its status.
async fn look(deployment: Deployment) -> Result<(Document, Document), ServerError> {
    let ask = async move {
        let config = deployment.send_once(ServerCommand::of("admin", &doc! { "replSetGetConfig": 1 }, LOOK)?).await?;
        let status = deployment.send_once(ServerCommand::of("admin", &doc! { "replSetGetStatus": 1 }, LOOK)?).await?;
        Ok((config, status))
    };
    reply_within(MAX_LOOK_TIME, ask).await
}

fn read(looked: Result<(Document, Document), ServerError>) -> Lag {
    match looked {
        Ok((config, status)) => slowest(&config, &status),
        Err(cause) if cause.is_timeout() => Lag::Unknown("the server does not answer".into()),
        Err(cause) => Lag::Unknown(cause.to_string()),
    }
}

/// Finds the slowest of the members that count: neither arbiters, which hold no data, nor hidden and delayed members, which do
/// not serve current reads.
fn slowest(config: &Document, status: &Document) -> Lag {
    let config = config.get_document("config").cloned().unwrap_or_default();
    let left_out: Vec<i64> = documents(&config, "members")
        .filter(|member| {
            let delay = integer_in(member, "secondaryDelaySecs").or(integer_in(member, "slaveDelay")).unwrap_or(0);
            let is = |key| member.get_bool(key).unwrap_or(false);
            is("arbiterOnly") || is("hidden") || delay > 0
        })
        .filter_map(|member| integer_in(member, "_id"))
        .collect();
    let members: Vec<&Document> = documents(status, "members").collect();
    let date = |member: &Document| member.get_datetime("optimeDate").ok().map(|date| date.timestamp_millis());
    let Some(primary) = members.iter().find(|member| state(member) == "PRIMARY").and_then(|member| date(member)) else {
        return Lag::Unknown("no member is primary".into());
    };
    let mut slowest = Lag::NoSecondary;
    for member in members {
        let counts = integer_in(member, "_id").is_some_and(|id| !left_out.contains(&id));
        if !counts || state(member) == "PRIMARY" {
            continue;
        }
        let name = member.get_str("name").unwrap_or("a member");
        let lag = match (state(member), date(member)) {
            // A member can be ahead of the last operation that the primary reports of itself.
            ("SECONDARY", Some(date)) => Duration::from_millis(u64::try_from(primary - date).unwrap_or(0)),
            (state, _) => return Lag::Unknown(format!("{name} is {state}")),
        };
        if !matches!(&slowest, Lag::Known { lag: max, .. } if *max >= lag) {
            slowest = Lag::Known { member: name.to_owned(), lag };
        }
    }
    slowest
}

fn state(member: &Document) -> &str {
    // A member that does not answer keeps its last state for a while.
    if integer_in(member, "health") == Some(0) { "unreachable" } else { state_of(member) }
}

fn state_of(member: &Document) -> &str {
    member.get_str("stateStr").unwrap_or("in an unknown state")
}

fn documents<'a>(document: &'a Document, key: &str) -> impl Iterator<Item = &'a Document> + use<'a> {
    document.get_array(key).into_iter().flatten().filter_map(Bson::as_document)
}

#[cfg(test)]
mod tests {
    use bson::DateTime;

    use super::*;

    const MINUTE: i64 = 60_000;

    fn member(id: i32, state: &str, millis: i64) -> Document {
        doc! { "_id": id, "name": format!("h{id}:27017"), "health": 1.0, "stateStr": state, "optimeDate": DateTime::from_millis(millis) }
    }

    fn of(config: Vec<Document>, members: Vec<Document>) -> Lag {
        slowest(&doc! { "config": { "members": config } }, &doc! { "members": members })
    }

    fn known(id: i32, millis: u64) -> Lag {
        Lag::Known { member: format!("h{id}:27017"), lag: Duration::from_millis(millis) }
    }

    #[test]
    fn the_slowest_member_counts_except_hidden_delayed_and_arbiters() {
        let config = vec![
            doc! { "_id": 0 },
            doc! { "_id": 1, "hidden": false, "secondaryDelaySecs": 0_i64 },
            doc! { "_id": 2, "priority": 0 },
            doc! { "_id": 3, "hidden": true },
            doc! { "_id": 4, "secondaryDelaySecs": 3600_i64 },
            doc! { "_id": 5, "slaveDelay": 3600 },
            doc! { "_id": 6, "arbiterOnly": true },
        ];
        let mut members = vec![
            member(0, "PRIMARY", MINUTE),
            member(1, "SECONDARY", MINUTE - 1),
            member(2, "SECONDARY", MINUTE - 2500),
            member(3, "SECONDARY", 0),
            member(4, "SECONDARY", 0),
            member(5, "SECONDARY", 0),
            doc! { "_id": 6, "name": "h6:27017", "health": 1.0, "stateStr": "ARBITER" },
        ];
        assert_eq!(of(config.clone(), members.clone()), known(2, 2500));
        members[2] = member(2, "SECONDARY", MINUTE + 5);
        assert_eq!(of(config.clone(), members.clone()), known(1, 1));
        assert_eq!(of(config.clone(), vec![members[0].clone(), members[3].clone()]), Lag::NoSecondary);

        members[2].insert("health", 0.0);
        assert_eq!(of(config.clone(), members.clone()), Lag::Unknown("h2:27017 is unreachable".into()));
        members[2] = member(2, "RECOVERING", MINUTE);
        assert_eq!(of(config.clone(), members.clone()), Lag::Unknown("h2:27017 is RECOVERING".into()));
        members[2].remove("optimeDate");
        members[2].insert("stateStr", "SECONDARY");
        assert_eq!(of(config.clone(), members.clone()), Lag::Unknown("h2:27017 is SECONDARY".into()));
        assert_eq!(of(config, members[1..].to_vec()), Lag::Unknown("no member is primary".into()));
    }

    #[test]
    fn every_member_but_an_arbiter_holds_data() {
        let mut down = member(2, "SECONDARY", 0);
        down.insert("health", 0.0);
        let arbiter = doc! { "_id": 3, "name": "h3:27017", "health": 1.0, "stateStr": "ARBITER" };
        let status = doc! { "members": [down, member(1, "PRIMARY", 0), arbiter, member(0, "RECOVERING", 0)] };
        let found: Vec<_> = with_data(&status).into_iter().map(|member| (member.name, member.is_primary)).collect();
        assert_eq!(found, [("h0:27017".into(), false), ("h1:27017".into(), true), ("h2:27017".into(), false)]);
    }

    #[test]
    fn at_the_limit_is_not_behind_and_the_unknown_is() {
        let max = Duration::from_secs(10);
        assert_eq!(known(1, 10_000).behind(max), None);
        assert_eq!(known(1, 10_001).behind(max).as_deref(), Some("h1:27017 is 10 s behind, 10 s are allowed"));
        assert_eq!(Lag::NoSecondary.behind(max), None);
        assert_eq!(Lag::Unknown("h1 is DOWN".into()).behind(max).as_deref(), Some("lag is unknown: h1 is DOWN"));
    }
}
