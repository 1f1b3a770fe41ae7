//! From the policy to the plan: connects, inspects the deployment, plans. Reads only.

use std::time::Duration;

use bson::DateTime;

use super::{Session, directories};
use crate::base::exit;
use crate::base::failure::Failure;
use crate::core::facts::{Catalog, NamespaceFacts};
use crate::core::plan::{self, ChildRule, Plan, PlannedRule, RunFacts};
use crate::core::policy::namespace::{Namespace, NamespacePattern};
use crate::core::policy::only::{NothingSelected, Only};
use crate::core::report::approval::Approval;
use crate::shell::server::Deployment;
use crate::shell::server::connect::detached;
use crate::shell::server::look::{catalog, overdue};
use crate::shell::server::own::journal::{self, ChildPlace, Named};

/// Connects for a command that makes no plan. `nothing` names what was not done in case of an error, such as `nothing was read`.
///
/// Errors: no connection, or not the deployment that the policy expects.
pub(crate) async fn connect(session: &Session, nothing: &str) -> Result<Deployment, Failure> {
    let connection = &session.policy.connection;
    let deployment = session.connect().await?;
    match deployment.facts.unexpected(&connection.expect) {
        None => Ok(deployment),
        Some(why) => Err(Failure::cannot_run(format!("{why}; {nothing}")).exit_code(exit::REFUSED)),
    }
}

/// Adds to the facts the part that the server has in a larger deployment. `nothing` names what was not done in case of an error.
///
/// Errors: no answer.
pub(crate) async fn find_part(deployment: &mut Deployment, nothing: &str) -> Result<(), Failure> {
    deployment.facts.role = detached::look(deployment).await.map_err(|cause| {
        Failure::cannot_run(format!("looking whether the server is a part of a larger deployment: {cause}; {nothing}"))
            .hint("the server answered until then: run again, and read the log of the server if it fails again")
    })?;
    Ok(())
}

/// Reads the collections that a pattern matches, for a command that needs to see all of them. `nothing` names what was not done
/// in case of an error.
///
/// Errors: a database or a collection cannot be read.
pub(crate) async fn whole_catalog(
    deployment: &Deployment,
    patterns: &[&NamespacePattern],
    nothing: &str,
) -> Result<Catalog, Failure> {
    let catalog = catalog::catalog(deployment, patterns)
        .await
        .map_err(|cause| Failure::cannot_run(format!("listing databases: {cause}; {nothing}")))?;
    match catalog.unreadable.first() {
        None => Ok(catalog),
        Some(why) => Err(Failure::cannot_run(format!("{why}; {nothing}"))),
    }
}

/// Options of a plan that come from the command line.
pub(crate) struct PlanOptions<'a> {
    /// Instant of the plan; `None`: the server's clock.
    pub as_of: Option<DateTime>,
    pub allow_clock_skew: bool,
    /// Whether a namespace that does not exist, or a field that no document has, is a refusal and not a warning.
    pub strict: bool,
    /// The approval to hold the plan against, and its maximum age.
    pub approval: Option<(&'a Approval, Duration)>,
}

/// Connects and plans. Nothing is written, so a request to stop ends it at once.
///
/// Errors: no connection, no rule or namespace selected, or a request to stop.
pub(crate) async fn plan(session: &Session, options: &PlanOptions<'_>) -> Result<(Deployment, Plan), Failure> {
    session.stop.or_fail("nothing was deleted", inspect_and_plan(session, options)).await
}

async fn inspect_and_plan(session: &Session, options: &PlanOptions<'_>) -> Result<(Deployment, Plan), Failure> {
    let only = Only(&session.options.only);
    let rules = only.rules(&session.policy)?;
    let connection = &session.policy.connection;
    let mut deployment = session.connect().await?;
    find_part(&mut deployment, "nothing was deleted").await?;
    deployment.facts.ttl_monitor = overdue::monitor(&deployment).await;
    let _ = session.connected.set(deployment.clone());
    let targets = catalog::targets(&deployment, &rules, |rule, namespace| only.selects(Some(rule), namespace))
        .await
        .map_err(|cause| Failure::cannot_run(format!("listing databases: {cause}; nothing was deleted")))?;
    let seen = targets.iter().find_map(|target| match &target.seen {
        NamespaceFacts::Collection(collection, _) => collection.identity(),
        _ => None,
    });
    if let Some((namespace, uuid)) = seen {
        deployment = deployment.without_refused_uuids(&namespace, uuid).await;
    }
    let facts = RunFacts {
        server: &deployment.facts,
        expect: &connection.expect,
        as_of: options.as_of.unwrap_or(deployment.facts.local_time),
        allow_clock_skew: options.allow_clock_skew,
        strict: options.strict,
    };
    if targets.is_empty() {
        return Err(only.nothing_selected(&session.policy).into());
    }
    let mut plan = plan::plan(&facts, targets);
    if let Some((approval, max_age)) = options.approval {
        approval.hold_against(&session.policy, &deployment.facts, max_age, &mut plan);
    }
    directories::try_these(session.disk.as_ref(), &mut plan).await;
    if let Some(journal) = &session.policy.journal {
        warn_of_unclaimed(&deployment, journal, &mut plan).await;
    }
    Ok((deployment, plan))
}

/// Warns of children that the journal names and no rule of the plan has, as after a run of another policy or of other rules.
async fn warn_of_unclaimed(deployment: &Deployment, journal: &Namespace, plan: &mut Plan) {
    // A journal that cannot be read fails the rules with children.
    let Ok(named) = journal::named(deployment, journal).await else { return };
    for Named { parents, key, place } in named {
        let is_swept = |planned: &PlannedRule| planned.namespace.to_string() == parents;
        let is_it = |child: &ChildRule| child.parent_key.field == key && ChildPlace::of(child) == place;
        let has = |planned: &PlannedRule| {
            let family = planned.decision.countable().and_then(|rule| rule.family.as_ref());
            family.is_some_and(|family| family.children.iter().any(is_it))
        };
        if plan.rules.iter().any(|planned| is_swept(planned) && has(planned)) {
            continue;
        }
        let ChildPlace { namespace, field } = &place;
        for planned in plan.rules.iter_mut().filter(|planned| is_swept(planned)) {
            planned.warnings.push(format!(
                "the journal `{journal}` names parents whose children in `{namespace}` (`{field}`) are yet to be deleted, and no rule of this run has \
                 these children: they wait for a run of a policy that has them"
            ));
        }
    }
}

impl From<NothingSelected> for Failure {
    fn from(nothing: NothingSelected) -> Self {
        Self::usage(nothing.message).hint(nothing.hint)
    }
}
