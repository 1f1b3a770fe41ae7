//! `sweeper import`: writes a policy from the native TTL settings of a deployment. Reads only, and needs no policy.

use bson::DateTime;
use tracing::warn;

use super::session::load;
use super::session::outputs::SingleOutput;
use crate::base::exit;
use crate::base::failure::Failure;
use crate::base::stop::Stop;
use crate::base::text::plural;
use crate::commands::cli::{Common, ImportArgs};
use crate::core::draft::import::{self, ImportSource};
use crate::core::flavor::Flavor;
use crate::core::policy::namespace::NamespacePattern;
use crate::core::policy::only::Only;
use crate::core::policy::parse::MAX_BYTES;
use crate::shell::server::connect;
use crate::shell::server::connect::uri;
use crate::shell::server::look::{catalog, overdue};

/// Writes the policy to standard output or the file of `--output`, which it replaces only if it is forced to. Returns the exit
/// code: 3 if a part of the catalog could not be read.
///
/// Errors: no connection, or no setting that deletes anything; then nothing was written.
pub(super) async fn command(options: &Common, args: &ImportArgs, run_id: &str) -> anyhow::Result<u8> {
    let output = SingleOutput::without_format(options, "import")?.open_new(args.force)?;
    let (uri, flavor) = load::connection(options)?;
    let stop = Stop::listen()?;
    let read = async { read(options, &uri.with_password(&stop).await?, flavor, run_id).await };
    let (policy, complete) = stop.or_fail("nothing was written", read).await?;
    output.write("the policy", &policy)?;
    Ok(if complete { exit::DONE } else { exit::RULE_FAILED })
}

/// Returns the text of the policy, and whether the whole catalog could be read.
async fn read(options: &Common, given: &str, flavor: Option<Flavor>, run_id: &str) -> anyhow::Result<(String, bool)> {
    let mut deployment = connect::connect(given, flavor, run_id).await?;
    deployment.facts.ttl_monitor = overdue::monitor(&deployment).await;
    let everything = NamespacePattern { database: "*".into(), collection: "*".into() };
    let mut catalog = catalog::catalog(&deployment, &[&everything])
        .await
        .map_err(|cause| Failure::cannot_run(format!("listing databases: {cause}; nothing was written")))?;
    let only = Only(&options.only);
    catalog.collections.retain(|collection| only.selects(None, &collection.namespace));
    let shown = uri::redacted(given);
    let source = ImportSource { uri: &shown, at: DateTime::now(), server: &deployment.facts };
    let imported = import::policy(&source, &catalog);
    for why in catalog.unreadable.iter().chain(&imported.left_out) {
        warn!("left out: {why}");
    }
    for why in &imported.warnings {
        warn!("{why}");
    }
    let seen = plural(catalog.collections.len() as u64, "collection");
    if imported.rules == 0 {
        let none = match imported.left_out.len() {
            0 => "no TTL setting".to_owned(),
            left_out => format!("no rule can stand for any of {}", plural(left_out as u64, "TTL setting")),
        };
        let failure = format!("importing from `{shown}`: {none} in {seen}; nothing was written");
        return Err(Failure::cannot_run(failure).into());
    }
    if imported.policy.len() > MAX_BYTES {
        let size = imported.policy.len();
        let failure =
            format!("importing from `{shown}`: the policy would have {size} bytes, {MAX_BYTES} are allowed; nothing was written");
        return Err(Failure::cannot_run(failure).hint("import a part of it with --only").into());
    }
    deployment.close().await;
    Ok((imported.policy, catalog.unreadable.is_empty()))
}
