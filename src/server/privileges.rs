//! Whether the connected user may do what a rule needs.

use std::collections::BTreeSet;

use bson::{Bson, Document, doc};
use mongodb::error::Result;

use super::Deployment;
use crate::policy::namespace::Namespace;

/// What a sweep of a collection needs.
const NEEDED: [&str; 3] = ["find", "remove", "listIndexes"];

/// The privileges of the connected user; `None` where the server asks for no user, so that everything is allowed.
pub struct Privileges(Option<Vec<Document>>);

/// Asks the server what the user may do.
pub async fn ask(deployment: &Deployment) -> Result<Privileges> {
    let status = deployment.client.database("admin").run_command(doc! { "connectionStatus": 1, "showPrivileges": true }).await?;
    let info = status.get_document("authInfo").cloned().unwrap_or_default();
    let documents = |key| info.get_array(key).into_iter().flatten().filter_map(Bson::as_document).cloned().collect::<Vec<_>>();
    let with_user = !documents("authenticatedUsers").is_empty();
    Ok(Privileges(with_user.then(|| documents("authenticatedUserPrivileges"))))
}

impl Privileges {
    /// The needed actions that the user lacks on a collection, with the command that grants them.
    pub fn missing(&self, namespace: &Namespace) -> Option<String> {
        let granted = self.0.as_ref()?;
        let allowed: BTreeSet<&str> = granted
            .iter()
            .filter(|privilege| privilege.get_document("resource").is_ok_and(|resource| covers(resource, namespace)))
            .flat_map(|privilege| privilege.get_array("actions").into_iter().flatten().filter_map(Bson::as_str))
            .collect();
        let missing: Vec<&str> =
            NEEDED.into_iter().filter(|action| !allowed.contains(action) && !allowed.contains("anyAction")).collect();
        if missing.is_empty() {
            return None;
        }
        Some(format!(
            "the user lacks {names} on this collection; grant: db.getSiblingDB(\"admin\").grantPrivilegesToRole(\"sweeper\", \
             [{{resource: {{db: {database:?}, collection: {collection:?}}}, actions: {missing:?}}}])",
            names = missing.join(", "),
            database = namespace.database,
            collection = namespace.collection,
        ))
    }
}

/// Whether a privilege's resource includes the collection. An empty name stands for every one, but for system collections.
fn covers(resource: &Document, namespace: &Namespace) -> bool {
    if resource.get_bool("anyResource").unwrap_or(false) {
        return true;
    }
    let part = |key, name: &str| resource.get_str(key).is_ok_and(|part| part.is_empty() || part == name);
    part("db", &namespace.database) && part("collection", &namespace.collection)
}
