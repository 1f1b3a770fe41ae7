//! Write concerns under which a fail-over may take back what a server has acknowledged.

use bson::{Bson, Document};

use super::{ServerFacts, Topology};
use crate::core::flavor::Flavor;

impl ServerFacts {
    /// Returns the reason why a fail-over may take back a write that was acknowledged under a write concern; `None` if it cannot.
    ///
    /// Only MongoDB: the services replicate every write themselves, whatever the write concern says. A standalone server has no
    /// other to fail over to.
    pub fn weakness_of(&self, concern: &Document) -> Option<String> {
        if self.flavor != Flavor::MongoDb || self.topology == Topology::Standalone {
            return None;
        }
        let of_members = match concern.get("w") {
            Some(Bson::String(word)) if word == "majority" => None,
            Some(Bson::String(name)) => Some(format!("`w={name}` may be less than a majority of the members")),
            Some(number) => {
                let number = number.as_i64().or_else(|| number.as_i32().map(i64::from)).unwrap_or(0);
                self.falls_short(number).map(|of| format!("`w={number}` {of}"))
            }
            None => None,
        };
        let in_memory = || {
            (concern.get("j") == Some(&Bson::Boolean(false)))
                .then(|| "with `journal=false` members confirm what is not yet on their disks".to_owned())
        };
        of_members.or_else(in_memory)
    }

    /// Says that a number of members is not known to be a majority; `None` if it is.
    fn falls_short(&self, number: i64) -> Option<String> {
        match self.topology {
            Topology::ReplicaSet => {
                let members = self.hosts.len();
                let is_majority = usize::try_from(number).is_ok_and(|number| number > members / 2);
                (!is_majority).then(|| format!("is less than a majority of the {members} members"))
            }
            // Each shard has members of its own, which a mongos does not show.
            Topology::Sharded | Topology::Standalone => Some("may be less than a majority of a shard's members".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn all_below_a_majority_on_disk_is_weak_on_mongodb() {
        let server = |flavor, topology, members: usize| ServerFacts {
            topology,
            hosts: vec!["h:1".to_owned(); members],
            ..ServerFacts::made_up(flavor, "6.0.5", 17)
        };
        let set = |members| server(Flavor::MongoDb, Topology::ReplicaSet, members);
        for (members, concern, part) in [
            (3, doc! { "w": "majority" }, None),
            (3, doc! { "w": "majority", "j": true }, None),
            (3, doc! { "w": "majority", "j": false }, Some("`journal=false`")),
            (3, doc! { "w": 1_i64 }, Some("`w=1` is less than a majority of the 3 members")),
            (3, doc! { "w": 2_i64 }, None),
            (3, doc! { "w": 2_i64, "j": false }, Some("`journal=false`")),
            (4, doc! { "w": 2_i64 }, Some("of the 4 members")),
            (1, doc! { "w": 1_i64 }, None),
            (3, doc! { "w": "dc" }, Some("`w=dc` may be less")),
        ] {
            let weakness = set(members).weakness_of(&concern);
            assert_eq!(
                weakness.as_deref().map(|why| part.is_some_and(|part| why.contains(part))),
                part.map(|_| true),
                "{concern}: {weakness:?}"
            );
        }
        let one = doc! { "w": 1_i64, "j": false };
        assert!(server(Flavor::MongoDb, Topology::Sharded, 1).weakness_of(&one).is_some());
        assert_eq!(server(Flavor::MongoDb, Topology::Standalone, 1).weakness_of(&one), None);
        assert_eq!(server(Flavor::CosmosRu, Topology::ReplicaSet, 3).weakness_of(&one), None);
        assert_eq!(server(Flavor::DocumentDb, Topology::Sharded, 3).weakness_of(&one), None);
    }
}
