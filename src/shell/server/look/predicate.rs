//! A look at whether the server understands the predicate of a rule. Reads only.

use std::time::Duration;

use bson::{Document, doc};

use crate::core::plan::SweepRule;
use crate::shell::server::Deployment;
use crate::shell::server::wire::error::ServerError;
use crate::shell::server::wire::find::Query;

/// Time limit of the look.
const MAX_TIME: Duration = Duration::from_secs(2);

/// Returns what the server objects to in the predicate of a rule; `None` if it has a plan for it, or does not say.
///
/// A service may refuse `explain` for reasons of its own. What it says then counts only if it refuses a find as well, which looks
/// at no document.
pub(crate) async fn objection(deployment: &Deployment, rule: &SweepRule) -> Option<String> {
    let selection = &rule.selection;
    let find = |filter: Document| {
        let query = Query::find(&selection.namespace, filter).collation(selection.collation.as_ref()).limit(1);
        query.max_time(Some(MAX_TIME)).read_preference(deployment.read_options.preference)
    };
    let explained = find(selection.predicate.clone()).explain(deployment, "queryPlanner").await;
    if !explained.is_err_and(|cause| is_answer(&cause)) {
        return None;
    }
    let none = doc! { "$and": [{ "_id": { "$in": [] } }, &selection.predicate] };
    let found = find(none).shrunk_by_caller().first_batch(deployment).await;
    found.err().filter(is_answer).filter(|cause| !cause.is_unavailable()).map(|cause| cause.to_string())
}

/// Whether an error is the server's answer to the command, and would be the same again.
fn is_answer(cause: &ServerError) -> bool {
    cause.code().is_some() && !cause.may_pass() && !cause.has_code(crate::shell::server::wire::codes::MAX_TIME_MS_EXPIRED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::plan::Decision;
    use crate::shell::server::wire::codes;
    use crate::testing::made_up::planned;
    use crate::testing::scripted::{Script, ScriptedReply};

    #[tokio::test]
    async fn only_what_a_find_is_refused_for_is_an_objection() {
        let Decision::Sweep(rule) = planned("    filter: {a: {$gte2: 5}}\n", 5000).decision else { panic!("a rule") };
        let error = |code| ScriptedReply::Error(ServerError::reported(code, "unknown operator: $gte2", ""));
        let no_explain = || error(codes::COMMAND_NOT_FOUND);
        let bad = || error(codes::BAD_VALUE);
        let none = || ScriptedReply::Batch(Vec::new());
        for (replies, objects) in [
            (vec![bad(), bad()], true),
            (vec![no_explain(), bad()], true),
            (vec![no_explain(), none()], false),
            (vec![no_explain(), no_explain()], false),
            (vec![bad(), error(codes::UNAUTHORIZED)], false),
            (vec![bad(), error(codes::MAX_TIME_MS_EXPIRED)], false),
            (vec![error(codes::MAX_TIME_MS_EXPIRED)], false),
        ] {
            let script = Script::new(replies);
            let said = objection(&script.deployment(), &rule).await;
            assert_eq!(said.is_some_and(|said| said.contains("$gte2")), objects, "{:?}", script.sent());
        }
    }
}
