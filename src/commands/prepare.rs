//! From the policy to the plan: connects, looks, decides. Reads only.

use std::time::Duration;

use bson::DateTime;

use super::{Run, archive};
use crate::approval::Approval;
use crate::cli::Common;
use crate::exit;
use crate::failure::Failure;
use crate::plan::{self, Plan, RunFacts};
use crate::policy::only::Only;
use crate::server::{Deployment, catalog, connect, error};

/// What the command line says of time.
pub struct At<'a> {
    /// `None`: the server's clock.
    pub as_of: Option<DateTime>,
    pub allow_clock_skew: bool,
    /// What was approved, and how old that may be.
    pub approval: Option<(&'a Approval, Duration)>,
}

/// Makes the plan of a run; a signal ends it at once.
pub async fn prepare(run: &Run, common: &Common, at: &At<'_>, uri: &str) -> Result<(Deployment, Plan), Failure> {
    run.stop.or_fail("nothing was deleted", look(run, common, at, uri)).await
}

/// The end of a run that was asked to stop before it deleted anything.
pub fn interrupted(run: &Run) -> Failure {
    run.stop.failure("nothing was deleted")
}

/// Connects for a command that makes no plan. `nothing` says what was not done, such as `nothing was read`.
///
/// Errors: no connection, or the deployment is not the one that the policy expects.
pub async fn connect(run: &Run, uri: &str, nothing: &str) -> Result<Deployment, Failure> {
    let connection = &run.policy.connection;
    let deployment = connect::connect(uri, connection.flavor, &run.id).await?;
    match deployment.facts.unexpected(&connection.expect) {
        None => Ok(deployment),
        Some(why) => Err(Failure { exit_code: exit::REFUSED, ..Failure::cannot_run(format!("{why}; {nothing}")) }),
    }
}

async fn look(run: &Run, common: &Common, at: &At<'_>, uri: &str) -> Result<(Deployment, Plan), Failure> {
    let only = Only(&common.only);
    let rules = only.rules(&run.policy)?;
    let connection = &run.policy.connection;
    let deployment = connect::connect(uri, connection.flavor, &run.id).await?;
    let _ = run.connected.set(deployment.clone());
    let targets = catalog::targets(&deployment, &rules, |rule, namespace| only.selects(Some(rule), namespace))
        .await
        .map_err(|cause| Failure::cannot_run(format!("listing databases: {}; nothing was deleted", error::explain(&cause))))?;
    let facts = RunFacts {
        server: &deployment.facts,
        expect: &connection.expect,
        as_of: at.as_of.unwrap_or(deployment.facts.local_time),
        allow_clock_skew: at.allow_clock_skew,
    };
    if targets.is_empty() {
        return Err(only.matches_nothing(&run.policy));
    }
    let mut plan = plan::plan(&facts, targets);
    if let Some((approval, most_age)) = at.approval {
        approval.hold_against(&run.policy, &deployment.facts, most_age, &mut plan);
    }
    archive::try_directories(&mut plan);
    Ok((deployment, plan))
}
