//! `sweeper why`: explains what the rules make of one document. Reads only.

use std::collections::BTreeSet;

use bson::Bson;

use super::fields;
use super::holds::{self, RunHolds};
use super::outputs::SingleOutput;
use super::prepare::{self, PlanOptions};
use super::session::Session;
use crate::audit::sample::canonical;
use crate::cli::{Common, WhyArgs};
use crate::exit;
use crate::failure::Failure;
use crate::instant::Instant;
use crate::plan::{Plan, PlannedRule};
use crate::policy::namespace::Namespace;
use crate::report::counts::Counts;
use crate::report::why::{self, RuleWhy, WhyReport};
use crate::report::{Format, SCHEMA_VERSION, ServerReport};
use crate::server::{Deployment, one_document};
use crate::text::plural;
use crate::values::mongosh;

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
    let (session, output) = Session::begin_single(&of_namespace, id, output)?;
    session.need_uri()?;
    let report = explain(&session, args, &ids).await?;
    let text = output.json_or_text(&report, why::render);
    output.write("the explanation", &text)?;
    Ok(exit::DONE)
}

async fn explain(session: &Session, args: &WhyArgs, ids: &[Bson]) -> Result<WhyReport, Failure> {
    let options = PlanOptions { as_of: args.as_of, allow_clock_skew: true, strict: false, asks_monitor: false, approval: None };
    let none = |failure: Failure| match failure.exit_code {
        // Nothing is selected: the namespace is the only pattern.
        exit::USAGE => {
            Failure::usage(format!("why: no rule of the policy is for `{}`, or no such collection exists", args.namespace))
        }
        _ => failure,
    };
    let (deployment, plan) = prepare::plan(session, &options).await.map_err(none)?;
    // Documents in another namespace may have what those in this one lack, so that a rule with a glob is not refused for it.
    let of_one = |planned: &'_ PlannedRule| !planned.rule.namespace.is_glob();
    let looked =
        fields::look(session, &deployment, &plan, false, |planned| planned.decision.countable().filter(|_| of_one(planned)));
    let judged = async { judge(&deployment, &plan, &looked.await, args, ids).await };
    let judged = session.stop.or_fail("nothing was changed", judged).await?;
    let (id, rules) = judged;
    let report = WhyReport {
        schema_version: SCHEMA_VERSION,
        command: "why",
        run_id: session.id.clone(),
        server: ServerReport::from(&deployment.facts),
        as_of: Instant(plan.as_of),
        namespace: args.namespace.clone(),
        id: canonical(&id),
        taken_by: why::taken_by(&rules),
        rules,
    };
    deployment.close().await;
    Ok(report)
}

/// Returns the document's `_id`, and what each rule makes of the document.
async fn judge(
    deployment: &Deployment,
    plan: &Plan,
    counts: &[Counts],
    args: &WhyArgs,
    ids: &[Bson],
) -> Result<(Bson, Vec<RuleWhy>), Failure> {
    let all = plan.rules.iter().zip(counts);
    let (rules, counts): (Vec<&PlannedRule>, Vec<&Counts>) =
        all.filter(|(planned, _)| planned.namespace.to_string() == args.namespace).unzip();
    let Some(namespace) = rules.first().map(|planned| &planned.namespace) else {
        return Err(Failure::usage(format!("why: `{}` is no namespace of a rule; expected database.collection", args.namespace)));
    };
    let countable = || rules.iter().filter_map(|planned| planned.decision.countable());
    if countable().any(|rule| rule.selection.is_buckets()) {
        let failure = Failure::usage(format!("why: `{namespace}` is a time-series collection; nothing was read"));
        return Err(failure.hint("whole buckets go there, each by its latest measurement: `sweeper audit` shows some of them"));
    }
    let fields: BTreeSet<&str> = countable().flat_map(why::fields).collect();
    let found = one_document::find(deployment, namespace, ids, &fields).await.map_err(|cause| unread(namespace, &cause))?;
    let [document] = found.as_slice() else {
        let failure = Failure::cannot_run(format!(
            "why: {} of `{namespace}` with the `_id` `{}`",
            plural(found.len() as u64, "document"),
            args.id
        ));
        return Err(failure.hint(
            "write the `_id` as mongosh shows it: a string in quotes, or 'ObjectId(\"...\")', 'NumberLong(5)', 'UUID(\"...\")'",
        ));
    };
    let id = document.get("_id").cloned().unwrap_or(Bson::Null);
    let holds = RunHolds::new(deployment, plan);
    let mut explained = Vec::new();
    for (planned, counts) in rules.into_iter().zip(counts) {
        let mut counts = counts.clone();
        let found = match planned.decision.countable() {
            Some(rule) => {
                let rule = &holds.enter(rule, &mut counts).await.unwrap_or_else(|| holds::none(rule));
                let clauses = why::clauses(rule.selection.filter.as_ref());
                let judged = one_document::judge(&deployment.of_rule(rule), rule, &id, &clauses).await;
                Some(judged.map_err(|cause| unread(namespace, &cause))?)
            }
            None => None,
        };
        explained.push(RuleWhy::of(planned, &counts, document, found.as_ref(), plan.as_of));
    }
    Ok((id, explained))
}

fn unread(namespace: &Namespace, cause: &dyn std::fmt::Display) -> Failure {
    Failure::cannot_run(format!("why: reading the document of `{namespace}`: {cause}"))
}
