//! `sweeper why`: explains why one document is deleted or kept. Reads only.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal};

use bson::{Bson, Document};

use super::session::Session;
use super::session::outputs::SingleOutput;
use super::session::prepare::{self, PlanOptions};
use super::survey::{self, Level};
use crate::base::exit;
use crate::base::failure::Failure;
use crate::base::instant::Instant;
use crate::base::machine::wall_clock;
use crate::base::text::{self, plural};
use crate::base::values::mongosh;
use crate::commands::cli::{Common, WhyArgs};
use crate::core::audit::sample::canonical;
use crate::core::plan::findings::Findings;
use crate::core::plan::{Plan, PlannedRule};
use crate::core::policy::namespace::Namespace;
use crate::core::policy::{Child, Policy, Rule, nearest};
use crate::core::report::why::{self, ByRule, ChildWhy, Parent, RuleWhy, WhyReport};
use crate::core::report::{Format, SCHEMA_VERSION, ServerReport};
use crate::shell::server::Deployment;
use crate::shell::server::look::{one_document, one_family};
use crate::shell::server::wire::error::ServerError;

/// Runs the command, and returns the exit code, which is 0 whatever becomes of the document.
///
/// Errors: a usage error, no connection, or no such document.
pub(super) async fn command(options: &Common, args: &WhyArgs, id: &str) -> anyhow::Result<u8> {
    let output = SingleOutput::with_format(options, "why", &[Format::Table, Format::Json])?;
    let ids = mongosh::candidates(&args.id).map_err(|why| {
        Failure::usage(format!("why: `{}`: {why}; nothing was contacted", args.id))
            .hint("write the `_id` as mongosh shows it, such as 'ObjectId(\"...\")', or as Extended JSON")
    })?;
    // The namespace selects its rules, whatever their names.
    let of_namespace = Common { only: vec![args.namespace.clone()], ..options.clone() };
    let (mut session, output) = Session::begin_single(&of_namespace, id, output)?;
    session.need_uri()?;
    // The rules for its parents explain a child.
    let parents = parents(&session.policy, &args.namespace);
    session.options.only.extend(parents);
    let report = explain(&session, args, &ids).await?;
    // Lines are whole for programs that look for words in them.
    let width = if io::stdout().is_terminal() { output.look(options).width } else { usize::MAX };
    let text = output.json_or_text(&report, |report| why::render(report, width));
    output.write("the explanation", &text)?;
    Ok(exit::DONE)
}

async fn explain(session: &Session, args: &WhyArgs, ids: &[Bson]) -> Result<WhyReport, Failure> {
    let options = PlanOptions { as_of: args.as_of, allow_clock_skew: true, strict: false, approval: None };
    let none = |failure: Failure| match failure.exit_code {
        // Nothing is selected: the namespace is the only pattern.
        exit::USAGE => uncovered(&session.policy, &args.namespace),
        _ => failure,
    };
    let (deployment, plan) = prepare::plan(session, &options).await.map_err(none)?;
    let nothing = "nothing was changed";
    let findings = survey::whole(session, &deployment, &plan, Level::Why, nothing).await?;
    let (id, rules, child_of) = session.stop.or_fail(nothing, judge(session, &deployment, &plan, &findings, args, ids)).await?;
    let report = WhyReport {
        schema_version: SCHEMA_VERSION,
        command: "why",
        run_id: session.id.clone(),
        server: ServerReport::from(&deployment.facts),
        as_of: Instant(plan.as_of),
        namespace: args.namespace.clone(),
        id: canonical(&id),
        taken_by: why::taken_by(&rules, &child_of),
        rules,
        child_of,
    };
    deployment.close().await;
    Ok(report)
}

/// Returns the failure of a namespace that no rule is for, with the nearest one, and what the rules cover.
fn uncovered(policy: &Policy, namespace: &str) -> Failure {
    let children = |rule: &Rule| -> Vec<String> {
        rule.family.iter().flat_map(|family| &family.children).map(|child| child.namespace.to_string()).collect()
    };
    let covered: BTreeSet<String> =
        policy.rules.iter().flat_map(|rule| [vec![rule.namespace.to_string()], children(rule)].concat()).collect();
    let names = covered.iter().map(String::as_str);
    // The collection by itself, without its database, means the one that has it.
    let of_collection = names.clone().find(|name| name.split_once('.').is_some_and(|(_, collection)| collection == namespace));
    let near =
        of_collection.or_else(|| nearest(namespace, names)).map(|near| format!("; expected `{near}`?")).unwrap_or_default();
    let listed: Vec<String> = covered.iter().map(|name| format!("`{name}`")).collect();
    Failure::usage(format!("why: no rule covers `{namespace}`, and none has it as children{near}"))
        .hint(format!("the rules cover {}", listed.join(", ")))
}

/// Names an `_id` with its type.
fn typed(id: &Bson) -> String {
    let shown = text::id(&canonical(id));
    match id {
        Bson::String(_) => format!("the string {shown}"),
        Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Decimal128(_) => {
            let number = shown.trim_start_matches("NumberLong(\"").trim_end_matches("\")");
            format!("the number {number}")
        }
        _ => shown,
    }
}

/// Returns the collections of parents whose children are in a collection.
fn parents(policy: &Policy, namespace: &str) -> Vec<String> {
    let has_it = |children: &[Child]| children.iter().any(|child| child.namespace.to_string() == namespace);
    let of_children = |rule: &&Rule| rule.family.as_ref().is_some_and(|family| has_it(&family.children));
    policy.rules.iter().filter(of_children).map(|rule| rule.namespace.to_string()).collect()
}

/// Returns the document's `_id`, what each rule for its collection makes of it, and what each rule for its parent does.
async fn judge(
    session: &Session,
    deployment: &Deployment,
    plan: &Plan,
    findings: &[Findings],
    args: &WhyArgs,
    ids: &[Bson],
) -> Result<(Bson, Vec<RuleWhy>, Vec<ChildWhy>), Failure> {
    let all = || plan.rules.iter().zip(findings);
    let rules: Vec<(&PlannedRule, &Findings)> =
        all().filter(|(planned, _)| planned.namespace.to_string() == args.namespace).collect();
    let with_children = all().flat_map(|(planned, findings)| {
        let children = planned.rule.family.iter().flat_map(|family| &family.children);
        children.map(move |child| (planned, findings, child))
    });
    let as_child: Vec<(&PlannedRule, &Findings, &Child)> =
        with_children.filter(|(.., child)| child.namespace.to_string() == args.namespace).collect();
    let by_rule = rules.first().map(|(planned, _)| &planned.namespace);
    let Some(namespace) = by_rule.or(as_child.first().map(|(.., child)| &child.namespace)) else {
        return Err(uncovered(&session.policy, &args.namespace));
    };
    let countable = || rules.iter().filter_map(|(planned, _)| planned.decision.countable());
    if countable().any(|rule| rule.selection.is_buckets()) {
        let failure = Failure::usage(format!("why: `{namespace}` is a time-series collection; nothing was read"));
        return Err(failure.hint("whole buckets go there, each by its latest measurement: `sweeper audit` shows some of them"));
    }
    let fields: BTreeSet<&str> = countable().flat_map(why::fields).collect();
    let found = one_document::find(deployment, namespace, ids, &fields).await.map_err(|cause| unread(namespace, &cause))?;
    let [document] = found.as_slice() else {
        let looked_for: Vec<String> = ids.iter().map(typed).collect();
        let many = if found.is_empty() { "no document".to_owned() } else { plural(found.len() as u64, "document") };
        let failure =
            Failure::cannot_run(format!("why: {many} of `{namespace}` found whose `_id` is {}", looked_for.join(" or ")));
        // An `_id` is unique on each shard only, unless it is the shard key.
        let are_twins = found.len() > 1 && found.iter().all(|document| document.get("_id") == found[0].get("_id"));
        return Err(failure.hint(match are_twins {
            true => "documents on different shards can have one `_id`, and `why` does not tell them apart; dry run and audit count each",
            false => {
                "write the `_id` with its type: a string as '\"5\"', a number as 5, or 'ObjectId(\"...\")', 'UUID(\"...\")', Extended JSON"
            }
        }));
    };
    let id = document.get("_id").cloned().unwrap_or(Bson::Null);
    let judge = Judge { deployment, plan };
    let (mut explained, mut child_of) = (Vec::new(), Vec::new());
    for (planned, findings) in rules {
        explained.push(judge.by_rule(planned, findings, document).await.map_err(|cause| unread(namespace, &cause))?);
    }
    for (planned, findings, child) in as_child {
        let parent = judge.parent(planned, findings, child, &id).await.map_err(|cause| {
            Failure::cannot_run(format!("why: looking for the parent of the document of `{namespace}`: {cause}"))
        })?;
        child_of.push(ChildWhy::of(&found_on(planned, findings), child, &parent));
    }
    Ok((id, explained, child_of))
}

/// Returns a rule with what is known of its next sweep.
fn found_on<'a>(planned: &'a PlannedRule, findings: &'a Findings) -> ByRule<'a> {
    ByRule { planned, findings, window_closed: planned.rule.limits.is_window_closed(wall_clock().into()) }
}

/// The judgement on documents by the rules of a plan.
struct Judge<'a> {
    deployment: &'a Deployment,
    plan: &'a Plan,
}

impl Judge<'_> {
    /// Explains a document by a rule for its collection.
    async fn by_rule(&self, planned: &PlannedRule, findings: &Findings, document: &Document) -> Result<RuleWhy, ServerError> {
        let Some(rule) = planned.decision.countable() else {
            return Ok(RuleWhy::of(&found_on(planned, findings), document, None, Vec::new(), self.plan.as_of));
        };
        let id = document.get("_id").unwrap_or(&Bson::Null);
        let keys = &findings.goes_by.keys;
        let rule = &if keys.are_of(&rule.selection) { rule.with_keys(keys) } else { rule.without_keys() };
        let deployment = self.deployment.of_rule(rule);
        let clauses = why::clauses(rule.own_filter());
        let found = one_document::judge(&deployment, rule, id, &clauses).await?;
        let children = one_family::children_of(&deployment, rule, id).await?;
        Ok(RuleWhy::of(&found_on(planned, findings), document, Some(&found), children, self.plan.as_of))
    }

    /// Finds the parent of a child, and explains it.
    async fn parent(&self, planned: &PlannedRule, findings: &Findings, child: &Child, id: &Bson) -> Result<Parent, ServerError> {
        let (deployment, parents) = (self.deployment, &planned.namespace);
        let Some(parent) = one_family::named_parent(deployment, child, id).await? else { return Ok(Parent::Unnamed) };
        let fields = planned.decision.countable().into_iter().flat_map(why::fields).collect();
        let id_of_parent = one_family::parent_with(deployment, parents, child, &parent).await?;
        let found = match &id_of_parent {
            Some(id) => one_document::find(deployment, parents, std::slice::from_ref(id), &fields).await?,
            None => Vec::new(),
        };
        if let Some(document) = found.first() {
            let why = Box::new(self.by_rule(planned, findings, document).await?);
            return Ok(Parent::There { id: canonical(&parent), why });
        }
        let orphan = one_family::orphan(deployment, planned, child, id, &parent).await?;
        Ok(Parent::Gone { id: canonical(&parent), orphan })
    }
}

fn unread(namespace: &Namespace, cause: &dyn std::fmt::Display) -> Failure {
    Failure::cannot_run(format!("why: reading the document of `{namespace}`: {cause}"))
}
