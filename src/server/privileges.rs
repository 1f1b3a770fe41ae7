//! Whether the connected user may do what a rule needs.

use bson::{Bson, Document, doc};
use super::error::Result;

use super::Deployment;
use super::transport::Command;
use crate::plan::{SweepRule, buckets};
use crate::policy::namespace::Namespace;

/// What a sweep of a collection needs.
const NEEDED: [&str; 3] = ["find", "remove", "listIndexes"];

/// What taking, renewing and giving back a lease needs.
const NEEDED_FOR_LEASES: [&str; 3] = ["find", "insert", "update"];

/// The privileges of the connected user; `None` where the server asks for no user, so that everything is allowed.
pub struct Privileges(Option<Vec<Document>>);

/// Asks the server what the user may do.
pub async fn ask(deployment: &Deployment) -> Result<Privileges> {
    let status = deployment.send(Command::of("admin", &doc! { "connectionStatus": 1, "showPrivileges": true })?).await?;
    let info = status.get_document("authInfo").cloned().unwrap_or_default();
    let documents = |key| info.get_array(key).into_iter().flatten().filter_map(Bson::as_document).cloned().collect::<Vec<_>>();
    let with_user = !documents("authenticatedUsers").is_empty();
    Ok(Privileges(with_user.then(|| documents("authenticatedUserPrivileges"))))
}

impl Privileges {
    /// The needed actions that the user lacks on the rule's collection, or on the buckets behind it, with the command that grants them.
    pub fn missing(&self, rule: &SweepRule) -> Option<String> {
        if !rule.selection.is_buckets() {
            return self.lacking(&rule.namespace);
        }
        let buckets = &rule.selection.namespace;
        let lacking: Vec<&str> = ["find", "remove"].into_iter().filter(|action| !self.allows(buckets, action)).collect();
        let grant = buckets::grant(buckets);
        (!lacking.is_empty()).then(|| format!("the user lacks {} on `{buckets}`; {grant}", lacking.join(", ")))
    }

    /// What the user lacks to record runs in the history, and to show them.
    pub fn missing_for_history(&self, history: &Namespace) -> Option<String> {
        let needed = [("insert", "to record runs"), ("find", "for `sweeper history`")];
        let lacking: Vec<_> = needed.into_iter().filter(|(action, _)| !self.allows(history, action)).collect();
        let named: Vec<String> = lacking.iter().map(|(action, what_for)| format!("{action} {what_for}")).collect();
        let actions: Vec<&str> = lacking.iter().map(|(action, _)| *action).collect();
        let grant = grant(history, &actions);
        (!lacking.is_empty()).then(|| format!("the user lacks {} on `{history}`; {grant}", named.join(", ")))
    }

    fn allows(&self, namespace: &Namespace, action: &str) -> bool {
        let Some(granted) = &self.0 else { return true };
        granted
            .iter()
            .filter(|privilege| privilege.get_document("resource").is_ok_and(|resource| covers(resource, namespace)))
            .any(|privilege| {
                let actions = privilege.get_array("actions").into_iter().flatten().filter_map(Bson::as_str);
                actions.into_iter().any(|allowed| allowed == action || allowed == "anyAction")
            })
    }

    /// The actions that a run with `lock` lacks on the collection of the leases, with the command that grants them.
    pub fn missing_for_leases(&self, collection: &Namespace) -> Option<String> {
        let missing = self.missing_of(&NEEDED_FOR_LEASES, collection)?;
        let names = missing.join(", ");
        Some(format!("the user lacks {names} on `{collection}`, where the leases are; {}", grant(collection, &missing)))
    }

    fn lacking(&self, namespace: &Namespace) -> Option<String> {
        let missing = self.missing_of(&NEEDED, namespace)?;
        Some(format!("the user lacks {} on this collection; {}", missing.join(", "), grant(namespace, &missing)))
    }

    fn missing_of(&self, needed: &[&'static str], namespace: &Namespace) -> Option<Vec<&'static str>> {
        let missing: Vec<&str> = needed.iter().copied().filter(|action| !self.allows(namespace, action)).collect();
        (!missing.is_empty()).then_some(missing)
    }
}

/// The command of mongosh that grants actions on a collection.
fn grant(namespace: &Namespace, actions: &[&str]) -> String {
    let Namespace { database, collection } = namespace;
    format!(
        "grant: db.getSiblingDB(\"admin\").grantPrivilegesToRole(\"sweeper\", \
         [{{resource: {{db: {database:?}, collection: {collection:?}}}, actions: {actions:?}}}])"
    )
}

/// Whether a privilege's resource includes the collection. An empty name stands for every one, but for system collections; the built-in roles
/// `root` and `restore` have `{system_buckets: ""}`, without a database, for the buckets of all.
fn covers(resource: &Document, namespace: &Namespace) -> bool {
    if resource.get_bool("anyResource").unwrap_or(false) {
        return true;
    }
    let part = |key, name: &str| resource.get_str(key).is_ok_and(|part| part.is_empty() || part == name);
    let in_database = part("db", &namespace.database);
    match namespace.collection.strip_prefix(Namespace::BUCKETS) {
        Some(collection) => {
            let of_any_database = !resource.contains_key("db");
            (in_database || of_any_database) && part("system_buckets", collection)
                || in_database && resource.get_str("collection").is_ok_and(|name| name == namespace.collection)
        }
        None => in_database && part("collection", &namespace.collection),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_covered_by_privileges_on_buckets_alone() {
        let namespace = |collection: &str| Namespace { database: "app".into(), collection: collection.into() };
        let buckets = namespace("system.buckets.weather");
        for (resource, on_buckets, on_collection) in [
            (doc! { "db": "app", "system_buckets": "weather" }, true, false),
            (doc! { "db": "", "system_buckets": "weather" }, true, false),
            (doc! { "db": "other", "system_buckets": "weather" }, false, false),
            (doc! { "db": "app", "system_buckets": "other" }, false, false),
            (doc! { "system_buckets": "" }, true, false),
            (doc! { "system_buckets": "other" }, false, false),
            (doc! { "db": "app", "collection": "system.buckets.weather" }, true, false),
            (doc! { "db": "app", "collection": "weather" }, false, true),
            (doc! { "db": "", "collection": "" }, false, true),
            (doc! { "anyResource": true }, true, true),
            (doc! { "cluster": true }, false, false),
        ] {
            assert_eq!(covers(&resource, &buckets), on_buckets, "{resource}");
            assert_eq!(covers(&resource, &namespace("weather")), on_collection, "{resource}");
        }
    }
}
