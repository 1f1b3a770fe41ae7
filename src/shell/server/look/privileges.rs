//! Privileges of the connected user: those that a rule needs, and the message about those that are missing.

use bson::{Bson, Document, doc};

use crate::core::plan::holds::HeldBack;
use crate::core::plan::{Family, SweepRule};
use crate::core::policy::namespace::Namespace;
use crate::shell::server::Deployment;
use crate::shell::server::wire::error::{Result, ServerError};

/// Actions that a sweep of a collection needs.
const NEEDED: [&str; 3] = ["find", "remove", "listIndexes"];

/// Actions that taking, renewing and releasing a lease needs.
pub(crate) const NEEDED_FOR_LEASES: [&str; 3] = ["find", "insert", "update"];

/// Actions that deleting children needs in their collection.
const NEEDED_FOR_CHILDREN: [&str; 3] = ["find", "remove", "listIndexes"];

/// Actions that the journal, and the leases in it, need.
pub(crate) const NEEDED_FOR_JOURNAL: [&str; 4] = ["find", "insert", "update", "remove"];

/// The privileges of the connected user; `None` if the server does not ask for a user, so that everything is allowed, or does not
/// show them.
pub(crate) struct Privileges(Option<Vec<Document>>);

/// Asks the server for the privileges of the user. If it does not show them, also returns the reason.
///
/// The DocumentDB engine names neither user nor privileges (microsoft/documentdb, `constant.rs` of the gateway). Azure Cosmos DB
/// (RU) has no `connectionStatus` (Microsoft, "Supported features and syntax", 4.2 to 7.0).
///
/// Errors: no answer.
pub(crate) async fn ask(deployment: &Deployment) -> Result<(Privileges, Option<String>)> {
    if !deployment.facts.capabilities.connection_status {
        // It would count as an error in the metrics of the service.
        return Ok((Privileges(None), Some("the service has no `connectionStatus`".into())));
    }
    let status = match deployment.read("admin", doc! { "connectionStatus": 1, "showPrivileges": true }).await {
        Ok(status) => status,
        Err(cause) if cause.is_unavailable() => return Ok((Privileges(None), Some(cause.to_string()))),
        Err(cause) => return Err(cause),
    };
    let info = status.get_document("authInfo").cloned().unwrap_or_default();
    let documents = |key| info.get_array(key).into_iter().flatten().filter_map(Bson::as_document).cloned().collect::<Vec<_>>();
    let with_user = !documents("authenticatedUsers").is_empty();
    if !with_user && !deployment.facts.capabilities.shows_privileges {
        return Ok((Privileges(None), Some("`connectionStatus` names no user".into())));
    }
    Ok((Privileges(with_user.then(|| documents("authenticatedUserPrivileges"))), None))
}

impl Privileges {
    /// Returns a sentence about the actions that a sweep of the rule's collection, or of the buckets behind it, and of its
    /// children needs and the user lacks.
    pub(crate) fn missing(&self, rule: &SweepRule) -> Option<String> {
        let of_rule = match rule.selection.is_buckets() {
            true => self.missing_of(&["find", "remove"], &rule.selection.namespace),
            false => self.missing_of(&NEEDED, &rule.namespace),
        };
        of_rule
            .or_else(|| self.missing_for_children(rule.family.as_ref()?))
            .or_else(|| rule.selection.held_back().find_map(|held| self.missing_for_keys(held)))
    }

    /// Returns a sentence about the right to read holds or periods, if the user lacks it.
    fn missing_for_keys(&self, held: &HeldBack) -> Option<String> {
        self.missing_of(&["find"], &held.collection).map(|missing| format!("`{}`: {missing}", held.noun()))
    }

    /// Returns a sentence about the actions that deleting children, and the journal, needs and the user lacks.
    fn missing_for_children(&self, family: &Family) -> Option<String> {
        let of_children = family.children.iter().find_map(|child| {
            self.missing_of(&NEEDED_FOR_CHILDREN, &child.rule.selection.namespace).map(|missing| format!("`children`: {missing}"))
        });
        let of_journal = || self.missing_of(&NEEDED_FOR_JOURNAL, &family.journal).map(|missing| format!("`journal`: {missing}"));
        of_children.or_else(of_journal)
    }

    /// Returns a sentence about the actions that recording and showing runs in the history needs and the user lacks.
    pub(crate) fn missing_for_history(&self, history: &Namespace) -> Option<String> {
        self.missing_of(&["insert", "update", "find"], history)
    }

    /// Returns a sentence about the actions that leases in this collection need and the user lacks.
    pub(crate) fn missing_for_leases(&self, collection: &Namespace) -> Option<String> {
        self.missing_of(&NEEDED_FOR_LEASES, collection).map(|missing| format!("`lock`: {missing}"))
    }

    fn missing_of(&self, needed: &[&str], namespace: &Namespace) -> Option<String> {
        let missing: Vec<&str> = needed.iter().copied().filter(|action| !self.allows(namespace, action)).collect();
        (!missing.is_empty()).then(|| needs(namespace, &missing))
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
}

/// Returns the reason why a command failed, with the privileges it needs if the server refused it to the user.
pub(crate) fn explain(cause: &ServerError, namespace: &Namespace, actions: &[&str]) -> String {
    if cause.is_unauthorized() { format!("{cause}; {}", needs(namespace, actions)) } else { cause.to_string() }
}

/// Names the actions that the user needs on a namespace, with the command of mongosh that grants them. An empty collection stands
/// for every collection of the database except those behind time-series collections, because `readWrite` on a database does not
/// include them.
fn needs(namespace: &Namespace, actions: &[&str]) -> String {
    let Namespace { database, collection } = namespace;
    let (place, resource) = match collection.strip_prefix(Namespace::BUCKETS) {
        Some(collection) => (format!("`{namespace}`"), format!("system_buckets: {collection:?}")),
        None if collection.is_empty() => (format!("the database `{database}`"), "collection: \"\"".to_owned()),
        None => (format!("`{namespace}`"), format!("collection: {collection:?}")),
    };
    let names: Vec<String> = actions.iter().map(|action| format!("`{action}`")).collect();
    format!(
        "the user needs {} on {place}; grant to one of its roles, such as `sweeper`: db.getSiblingDB(\"admin\").grantPrivilegesToRole(\"sweeper\", \
         [{{resource: {{db: {database:?}, {resource}}}, actions: {actions:?}}}])",
        names.join(", ")
    )
}

/// Whether a privilege's resource includes the collection. An empty name stands for every collection except the collections of
/// the system. The built-in roles `root` and `restore` have `{system_buckets: ""}`, without a database, for the buckets of all
/// databases.
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
    use crate::shell::server::wire::codes;
    use crate::testing::made_up::with_children;
    use crate::testing::scripted::{Script, ScriptedReply};

    #[tokio::test(start_paused = true)]
    async fn privileges_that_the_service_does_not_show_are_unknown() {
        let error = |code, message: &str| ScriptedReply::Error(ServerError::reported(code, message, ""));
        let namespace = Namespace { database: "app".into(), collection: "c".into() };
        for code in [codes::UNAUTHORIZED, codes::COMMAND_NOT_FOUND, codes::COMMAND_NOT_SUPPORTED] {
            let refused = error(code, "Command connectionStatus not supported");
            let script = Script::new([error(16_500, "Error=16500, RetryAfterMs=30, Details="), refused]);
            let (privileges, unknown) = ask(&script.deployment()).await.unwrap();
            assert_eq!(privileges.missing_for_history(&namespace), None);
            assert_eq!(unknown, Some(format!("Command connectionStatus not supported (code {code})")));
            assert_eq!(script.sent().len(), 2);
        }
        let script = Script::new([error(codes::DUPLICATE_KEY, "something else")]);
        assert!(ask(&script.deployment()).await.is_err());
        let script = Script::new([]);
        let mut deployment = script.deployment();
        deployment.facts.capabilities.connection_status = false;
        let (_, unknown) = ask(&deployment).await.unwrap();
        assert!(unknown.is_some() && script.sent().is_empty(), "a service that is known to refuse it is not asked");
    }

    #[test]
    fn a_missing_privilege_is_named_with_the_command_that_grants_it() {
        let needs =
            |collection: &str| needs(&Namespace { database: "app".into(), collection: collection.into() }, &["find", "remove"]);
        let grant = "grant to one of its roles, such as `sweeper`: db.getSiblingDB(\"admin\").grantPrivilegesToRole(\"sweeper\", [{resource: ";
        for (collection, place, resource) in [
            ("c", "`app.c`", "{db: \"app\", collection: \"c\"}"),
            ("system.buckets.c", "`app.system.buckets.c`", "{db: \"app\", system_buckets: \"c\"}"),
            ("", "the database `app`", "{db: \"app\", collection: \"\"}"),
        ] {
            let expected =
                format!("the user needs `find`, `remove` on {place}; {grant}{resource}, actions: [\"find\", \"remove\"]}}])");
            assert_eq!(needs(collection), expected);
        }
    }

    #[test]
    fn what_a_rule_with_children_needs_of_them_and_of_the_journal_is_missed() {
        let rule = with_children();
        let grant = |collection: &str, actions: &[&str]| doc! { "resource": { "db": "app", "collection": collection }, "actions": actions };
        let all = [
            grant("c", &NEEDED),
            grant("d", &["find", "remove", "listIndexes"]),
            grant("j", &["find", "insert", "update", "remove"]),
        ];
        assert_eq!(Privileges(Some(all.to_vec())).missing(&rule), None);
        for (index, action, words) in [
            (1, "find", "`children`: the user needs `find` on `app.d`"),
            (1, "remove", "`children`: the user needs `remove` on `app.d`"),
            (2, "insert", "`journal`: the user needs `insert` on `app.j`"),
            (2, "remove", "`journal`: the user needs `remove` on `app.j`"),
        ] {
            let mut granted = all.to_vec();
            let actions = granted[index].get_array_mut("actions").unwrap();
            actions.retain(|granted| granted.as_str() != Some(action));
            let missing = Privileges(Some(granted)).missing(&rule).unwrap();
            assert!(missing.starts_with(words), "{missing}");
        }
    }

    #[test]
    fn buckets_are_covered_only_by_privileges_on_buckets() {
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
