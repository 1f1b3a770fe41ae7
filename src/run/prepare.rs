//! From the policy to the plan: connects, looks, decides. Reads only.

use bson::DateTime;

use super::only::Only;
use super::{Run, archive};
use crate::cli::Common;
use crate::exit;
use crate::failure::Failure;
use crate::plan::{self, Plan, RunFacts};
use crate::server::{Deployment, connect, error, inspect};

/// What the command line says of time.
pub struct At {
    /// `None`: the server's clock.
    pub as_of: Option<DateTime>,
    pub allow_clock_skew: bool,
}

/// Makes the plan of a run; a signal ends it at once.
pub async fn prepare(run: &Run, common: &Common, at: &At, uri: &str) -> Result<(Deployment, Plan), Failure> {
    tokio::select! {
        prepared = look(run, common, at, uri) => prepared,
        () = run.stop.asked() => Err(interrupted(run)),
    }
}

/// The end of a run that was asked to stop before it deleted anything.
pub fn interrupted(run: &Run) -> Failure {
    let exit_code = run.stop.exit_code().unwrap_or(exit::INTERRUPTED);
    Failure { exit_code, ..Failure::cannot_run("interrupted; nothing was deleted") }
}

async fn look(run: &Run, common: &Common, at: &At, uri: &str) -> Result<(Deployment, Plan), Failure> {
    let only = Only(&common.only);
    let rules = only.rules(&run.policy)?;
    let connection = &run.policy.connection;
    let deployment = connect::connect(uri, connection.flavor, &run.id).await?;
    let targets = inspect::targets(&deployment, &rules)
        .await
        .map_err(|cause| Failure::cannot_run(format!("listing databases: {}; nothing was deleted", error::explain(&cause))))?;
    let facts = RunFacts {
        server: &deployment.facts,
        expect: &connection.expect,
        as_of: at.as_of.unwrap_or(deployment.facts.local_time),
        allow_clock_skew: at.allow_clock_skew,
    };
    let mut plan = plan::plan(&facts, only.targets(&run.policy, targets)?);
    archive::try_directories(&mut plan);
    Ok((deployment, plan))
}
