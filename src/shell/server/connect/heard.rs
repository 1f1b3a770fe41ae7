//! Answers of the servers while a connection is made, from which follows what is wrong with a connection string.

use std::collections::BTreeMap;
use std::time::Duration;

use bson::{Bson, Document};
use parking_lot::Mutex;

use super::obstacle::ConnectObstacle;
use crate::shell::server::wire::error::{FailureStage, NO_SERVER, ServerError};

/// The last answer of each server to the driver's heartbeats.
pub(crate) struct Heard {
    /// Replica set that the connection string asks for.
    asked_set: Option<String>,
    servers: Mutex<BTreeMap<String, Server>>,
}

struct Server {
    answer: Result<Member, ServerError>,
    /// Whether the driver has left it out, because it has another name or belongs to another set.
    is_left_out: bool,
}

/// A server that answered.
struct Member {
    set: Option<String>,
    /// Names by which the members of the set call each other.
    hosts: Vec<String>,
    takes_writes: bool,
}

impl Heard {
    /// Creates the answers of servers that have not answered yet.
    pub(crate) fn new(asked_set: Option<String>) -> Self {
        Self { asked_set, servers: Mutex::default() }
    }

    /// Notes the reply of a server to `hello`.
    pub(crate) fn answered(&self, address: String, hello: &Document) {
        let hosts = hello.get_array("hosts").into_iter().flatten().filter_map(Bson::as_str).map(str::to_owned).collect();
        // Servers older than `hello` have the other name.
        let takes_writes = ["isWritablePrimary", "ismaster"].iter().any(|key| matches!(hello.get_bool(key), Ok(true)));
        let member = Member { set: hello.get_str("setName").ok().map(str::to_owned), hosts, takes_writes };
        self.servers.lock().insert(address, Server { answer: Ok(member), is_left_out: false });
    }

    /// Notes that a server did not answer.
    pub(crate) fn failed(&self, address: String, cause: ServerError) {
        self.servers.lock().insert(address, Server { answer: Err(cause), is_left_out: false });
    }

    /// Notes that the driver leaves out a server.
    pub(crate) fn left_out(&self, address: &str) {
        if let Some(server) = self.servers.lock().get_mut(address) {
            server.is_left_out = true;
        }
    }

    /// Whether no server has answered that the driver could use.
    pub(crate) fn is_hopeless(&self) -> bool {
        !self
            .servers
            .lock()
            .values()
            .any(|server| !server.is_left_out && server.answer.as_ref().is_ok_and(|member| self.is_of_asked_set(member)))
    }

    /// Returns the servers that did not answer in time: those of the connection string, and those that others named.
    pub(crate) fn silent(&self, seeds: &[String]) -> Vec<String> {
        let servers = self.servers.lock();
        let unheard = seeds.iter().filter(|seed| !servers.contains_key(*seed));
        let timed_out = servers.iter().filter(|(_, server)| server.answer.as_ref().is_err_and(ServerError::is_timeout));
        unheard.chain(timed_out.map(|(address, _)| address)).cloned().collect()
    }

    /// Says why no server could be selected within this time.
    pub(crate) fn why(&self, time: Duration) -> ServerError {
        let servers = self.servers.lock();
        let unreachable = |why: String, obstacle| ServerError::new(FailureStage::Unreachable, why).with_obstacle(obstacle);
        let in_time = format!("{NO_SERVER} ({} s)", time.as_secs_f64());
        let members: Vec<_> =
            servers.iter().filter_map(|(address, server)| Some((address, server, server.answer.as_ref().ok()?))).collect();
        if let Some((address, _, member)) = members.iter().find(|(_, _, member)| !self.is_of_asked_set(member)) {
            let belongs =
                member.set.as_ref().map_or_else(|| "no replica set".to_owned(), |set| format!("the replica set `{set}`"));
            let asked = self.asked_set.as_deref().unwrap_or_default();
            let why = format!("`{address}` belongs to {belongs}, but `replicaSet` of the connection string is `{asked}`");
            return unreachable(why, Some(ConnectObstacle::ReplicaSet));
        }
        let causes = causes(&servers);
        let is_left_out = members.iter().all(|(_, server, _)| server.is_left_out);
        if let Some((address, _, member)) = members.first().filter(|_| is_left_out) {
            let hosts: Vec<String> = member.hosts.iter().map(|host| format!("`{host}`")).collect();
            let why = format!("{in_time}: `{address}` did, but the members of its set are called {}{causes}", hosts.join(", "));
            return unreachable(why, Some(ConnectObstacle::MemberNames));
        }
        if !members.is_empty() && !members.iter().any(|(_, _, member)| member.takes_writes) {
            let why = format!("{in_time}: none of those that did is a primary{causes}");
            return unreachable(why, Some(ConnectObstacle::NoPrimary));
        }
        let obstacle = servers.values().filter_map(|server| server.answer.as_ref().err()?.obstacle()).min();
        unreachable(format!("{in_time}{causes}"), obstacle)
    }

    fn is_of_asked_set(&self, member: &Member) -> bool {
        self.asked_set.is_none() || self.asked_set == member.set
    }
}

/// Returns the servers that did not answer, by the reason.
fn causes(servers: &BTreeMap<String, Server>) -> String {
    let mut by_cause: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (address, server) in servers {
        if let Err(cause) = &server.answer {
            let cause = cause.to_string().trim_start_matches("network error: ").to_owned();
            by_cause.entry(cause).or_default().push(address);
        }
    }
    by_cause
        .iter()
        .map(|(cause, addresses)| format!("; {}: {cause}", addresses.join(", ")))
        .collect::<String>()
        .replacen("; ", ": ", 1)
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    const TIME: Duration = Duration::from_secs(5);

    fn member(set: &str) -> Document {
        doc! { "setName": set, "hosts": ["a:1", "b:1"], "isWritablePrimary": true }
    }

    fn refused() -> ServerError {
        ServerError::new(FailureStage::Network, "network error: no".into()).with_obstacle(Some(ConnectObstacle::Refused))
    }

    #[test]
    fn another_set_than_the_one_asked_for_is_named() {
        let heard = Heard::new(Some("rsX".into()));
        assert!(heard.is_hopeless(), "no answer yet");
        heard.answered("h:1".into(), &member("rs0"));
        heard.left_out("h:1");
        let why = heard.why(TIME);
        assert!(heard.is_hopeless() && why.is_unreachable());
        let said = "`h:1` belongs to the replica set `rs0`, but `replicaSet` of the connection string is `rsX`";
        assert_eq!(why.to_string(), said);
        assert_eq!(why.obstacle(), Some(ConnectObstacle::ReplicaSet));
        heard.answered("h:1".into(), &doc! { "ismaster": true });
        assert!(heard.why(TIME).to_string().starts_with("`h:1` belongs to no replica set"));
        heard.answered("h:1".into(), &member("rsX"));
        assert!(!heard.is_hopeless());
    }

    #[test]
    fn servers_that_fail_for_the_same_reason_are_named_together() {
        let heard = Heard::new(None);
        for address in ["h:1", "h:2"] {
            heard.failed(address.into(), refused());
        }
        let why = heard.why(TIME);
        assert_eq!(why.to_string(), "no suitable server answered in time (5 s): h:1, h:2: no");
        assert_eq!(why.obstacle(), Some(ConnectObstacle::Refused));
        let certificate = ServerError::new(FailureStage::Network, "wrong".into()).with_obstacle(Some(ConnectObstacle::HostName));
        heard.failed("h:3".into(), certificate);
        let why = heard.why(TIME);
        assert_eq!(why.to_string(), "no suitable server answered in time (5 s): h:1, h:2: no; h:3: wrong");
        assert_eq!(why.obstacle(), Some(ConnectObstacle::HostName));
    }

    #[test]
    fn servers_without_an_answer_are_silent_and_those_that_refuse_are_not() {
        let heard = Heard::new(None);
        heard.answered("a:1".into(), &member("rs0"));
        heard.failed("b:1".into(), refused());
        heard.failed("c:1".into(), ServerError::timeout(TIME));
        assert_eq!(heard.silent(&["a:1", "b:1", "d:1"].map(str::to_owned)), ["d:1", "c:1"]);
    }

    #[test]
    fn members_that_are_reached_by_other_names_only_are_named() {
        let heard = Heard::new(None);
        heard.answered("127.0.0.1:1".into(), &member("rs0"));
        assert!(!heard.is_hopeless());
        heard.left_out("127.0.0.1:1");
        heard.failed("a:1".into(), refused());
        assert!(heard.is_hopeless());
        let why = heard.why(TIME);
        assert!(why.to_string().ends_with("the members of its set are called `a:1`, `b:1`: a:1: no"), "{why}");
        assert_eq!(why.obstacle(), Some(ConnectObstacle::MemberNames));
    }

    #[test]
    fn a_set_without_a_primary_is_not_hopeless() {
        let heard = Heard::new(Some("rs0".into()));
        heard.answered("a:1".into(), &doc! { "setName": "rs0", "secondary": true });
        assert!(!heard.is_hopeless());
        assert_eq!(heard.why(TIME).obstacle(), Some(ConnectObstacle::NoPrimary));
    }
}
