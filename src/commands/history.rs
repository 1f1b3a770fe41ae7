//! `sweeper history`: shows the last runs recorded in the policy's `history`. Reads only.

use std::io::IsTerminal;

use tracing::warn;

use super::session::Session;
use super::session::outputs::SingleOutput;
use super::session::prepare;
use crate::base::exit;
use crate::base::failure::Failure;
use crate::base::text::plural;
use crate::commands::cli::{Common, HistoryArgs};
use crate::core::policy::namespace::Namespace;
use crate::core::report::Format;
use crate::core::report::history::{History, render};
use crate::shell::server::own::history;

/// Shows the runs. Returns the exit code, which is 0 even if no run is recorded.
///
/// Errors: the policy has no `history`, it cannot be read, or the output cannot be written.
pub(super) async fn command(options: &Common, args: &HistoryArgs, id: &str) -> anyhow::Result<u8> {
    let output = SingleOutput::with_format(options, "history", &[Format::Table, Format::Json, Format::Csv, Format::Markdown])?;
    let (session, output) = Session::begin_single(options, id, output)?;
    let Some(namespace) = session.policy.history.clone() else {
        let failure = Failure::usage(format!(
            "policy `{}`: no `history`, so no run is recorded; nothing was contacted",
            session.policy.path
        ));
        return Err(failure.hint("write `history: {collection: ops.sweeperRuns}` into the policy").into());
    };
    session.need_uri()?;
    let history = session.stop.or_fail("nothing was read", read(&session, args, &namespace)).await?;
    let unicode = !output.is_stdout() || !std::io::stdout().is_terminal() || is_utf8();
    let text = render(&history, output.format, unicode, output.look(options));
    output.write("the history", &text)?;
    Ok(exit::DONE)
}

async fn read(session: &Session, args: &HistoryArgs, namespace: &Namespace) -> Result<History, Failure> {
    let only = &session.options.only;
    let deployment = prepare::connect(session, "nothing was read").await?;
    let last = usize::try_from(args.last).unwrap_or(usize::MAX);
    let (documents, is_cut) = history::newest(&deployment, namespace, last, !only.is_empty())
        .await
        .map_err(|cause| Failure::cannot_run(format!("reading `{namespace}`: {cause}")))?;
    deployment.close().await;
    if is_cut {
        warn!(
            "`{namespace}` has more than {} documents, which this service cannot sort: the runs shown may not be the newest",
            history::MAX_READ
        );
    }
    let history = History::new(namespace.to_string(), &documents, only);
    if history.runs.is_empty() && !documents.is_empty() && !only.is_empty() {
        let runs = plural(documents.len() as u64, "recorded run");
        warn!("--only {}: no rule or namespace of {runs} matches", only.join(" --only "));
    }
    if history.runs.len() < documents.len() && only.is_empty() {
        warn!("{} documents of `{namespace}` record no run of sweeper and are left out", documents.len() - history.runs.len());
    }
    Ok(history)
}

/// Whether the locale says that the terminal shows UTF-8. The first of the three variables that is set decides.
fn is_utf8() -> bool {
    let locale =
        ["LC_ALL", "LC_CTYPE", "LANG"].into_iter().filter_map(|name| std::env::var(name).ok()).find(|value| !value.is_empty());
    locale.is_some_and(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}
