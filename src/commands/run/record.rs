//! Records of a run in addition to its report: metrics for a collector, a document in the history, a line in the log.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bson::{DateTime, Document};
use tokio::time::Instant;
use tracing::{error, warn};

use super::events;
use super::listen::StatusPage;
use crate::base::exit;
use crate::base::failure::{self, Failure};
use crate::base::instant::millis;
use crate::base::output::{self, OutputTarget, Readers};
use crate::commands::cli::SweepArgs;
use crate::commands::session::Session;
use crate::core::facts::ServerFacts;
use crate::core::plan::Status;
use crate::core::policy::namespace::Namespace;
use crate::core::report::history;
use crate::core::report::metrics::{self, Earlier, EndedRun};
use crate::core::report::{Report, ReportCommand, RunRecord, Totals};
use crate::shell::lock::Holder;
use crate::shell::server::delete::grant::RecordGrant;
use crate::shell::server::look::privileges;
use crate::shell::server::wire::error::ServerError;
use crate::shell::server::{self, Deployment};

/// Bytes of an earlier metrics file that are read; a longer file is not one of ours.
const MAX_METRICS_BYTES: u64 = 64 << 20;

/// Maximum time to wait for the history after the run had to end.
const MAX_LAST_WAIT: Duration = Duration::from_secs(5);

/// Maximum time to wait for the history of a run that has ended without the answers that it waited for.
const MAX_LAST_WORD: Duration = Duration::from_secs(1);

/// Records the end of a sweep, with or without a report.
pub(crate) struct Record {
    metrics_file: Option<PathBuf>,
    /// The page that shows the metrics over HTTP.
    page: Option<Arc<StatusPage>>,
    dry_run: bool,
    begun: Instant,
}

impl Record {
    /// Creates the record of a run that begins now.
    pub(crate) fn new(args: &SweepArgs, page: Option<Arc<StatusPage>>) -> Self {
        Self { metrics_file: args.metrics_file.clone(), page, dry_run: args.dry_run, begun: Instant::now() }
    }

    /// Tries to create the metrics file. Without one, only the page shows how the run ends.
    ///
    /// Errors: it cannot be created.
    pub(crate) fn open(&mut self) -> Result<(), Failure> {
        let Some(path) = self.metrics_file.take() else { return Ok(()) };
        if output::is_stdout(&path) {
            return Err(Failure::usage("--metrics-file: expected a file; standard output is for the report"));
        }
        OutputTarget::open(&path, Readers::All).map_err(|cause| {
            Failure::cannot_run(format!("creating the metrics file `{}`: {cause}; nothing was deleted", path.display()))
        })?;
        self.metrics_file = Some(path);
        Ok(())
    }

    /// Records a run that ended with a report. Returns the exit code of the process: 1 if only the metrics could not be written.
    pub(crate) fn ended(&self, report: &Report, exit_code: u8) -> u8 {
        let is_written = self.write(Some(report), report.duration_ms, exit_code);
        let exit_code = if exit_code == exit::DONE && !is_written { exit::CANNOT_RUN } else { exit_code };
        events::run_ended(report, exit_code);
        exit_code
    }

    /// Records a run that ended without a report.
    pub(crate) fn failed(&self, cause: &anyhow::Error) {
        self.write(None, millis(self.begun.elapsed()), failure::exit_code(cause));
    }

    /// Writes and shows the metrics, as far as they were asked for. Returns false if they could not be written.
    fn write(&self, report: Option<&Report>, duration_ms: u64, exit_code: u8) -> bool {
        let at = DateTime::now();
        let earlier = match (&self.page, &self.metrics_file) {
            (Some(page), _) => page.earlier(at),
            (None, Some(path)) => earlier(path, at),
            (None, None) => return true,
        };
        let text = |exit_code| {
            metrics::render(&EndedRun { at, duration_ms, exit_code, dry_run: self.dry_run, report, earlier: &earlier })
        };
        let written = self.metrics_file.as_ref().is_none_or(|path| {
            let written = output::replace_readable(path, &text(exit_code));
            if let Err(cause) = &written {
                error!("writing the metrics file `{}`: {cause}; the run itself is over", path.display());
            }
            written.is_ok()
        });
        if let Some(page) = &self.page {
            // The exit code of the run.
            let exit_code = if exit_code == exit::DONE && !written { exit::CANNOT_RUN } else { exit_code };
            page.ended(text(exit_code), exit_code);
        }
        written
    }
}

/// Returns what the file of an earlier run says; nothing if there is no such file.
pub(crate) fn earlier(path: &Path, now: DateTime) -> Earlier {
    let mut earlier = Earlier::default();
    // Only a file: a pipe may never end.
    let Some(file) = path.is_file().then(|| File::open(path).ok()).flatten() else { return earlier };
    let lines = BufReader::new(file.take(MAX_METRICS_BYTES)).split(b'\n');
    for line in lines.map_while(io::Result::ok) {
        if let Ok(line) = std::str::from_utf8(&line) {
            earlier.take(line, now);
        }
    }
    earlier
}

/// Records in the history that a sweep begins, if the policy asks for it: a run that is killed has a document as well. A record
/// that fails is a warning, and the run goes on.
pub(crate) async fn begin(session: &Session, dry_run: bool, as_of: DateTime) {
    let Some((namespace, deployment, grant)) = place(session, dry_run) else { return };
    // The end of the run says that it is not recorded there.
    if deployment.facts.unwritable(&session.policy.connection.expect).is_some() {
        return;
    }
    let run = RunRecord { server: Some(&deployment.facts), as_of: Some(as_of), ..session.record(ReportCommand::Sweep) };
    let written = async {
        let document = history::opening(&Report::new(run, Vec::new())).map_err(|cause| ServerError::other(cause.to_string()))?;
        server::own::history::begin(deployment, namespace, &session.id, with_process(document, session), &grant).await
    };
    let begun = tokio::select! {
        biased;
        begun = written => begun,
        () = session.stop.asked() => return,
    };
    if let Err(cause) = begun {
        let why = privileges::explain(&cause, namespace, &["insert", "update"]);
        warn!(
            "recording the beginning of the run in `{namespace}`: {why}; the run goes on, and leaves no record if it is killed"
        );
        // A document that the server refused was not written. After any other error it may be there.
        session.opening_refused.store(cause.code().is_some(), Ordering::Relaxed);
    }
}

/// Records the end of a sweep in the history, if the policy asks for it and there is a connection. A record that fails is a
/// warning, not an error.
pub(crate) async fn end(session: &Session, dry_run: bool, swept: &anyhow::Result<Report>) {
    let time_is_over = async {
        session.stop.asked_for(MAX_LAST_WAIT).await;
        format!("no answer within {} s after the run had to end", MAX_LAST_WAIT.as_secs())
    };
    end_in_time(
        session,
        dry_run,
        swept,
        time_is_over,
        "the run itself is not affected, but there it may stay as running, also after later runs",
    )
    .await;
}

/// Records the end of a run that was cut short, when the process has only a moment left.
pub(crate) async fn end_at_once(session: &Session, dry_run: bool, swept: &anyhow::Result<Report>) {
    let time_is_over = async {
        tokio::time::sleep(MAX_LAST_WORD).await;
        format!("no answer within {} s at the end of the run", MAX_LAST_WORD.as_secs())
    };
    end_in_time(session, dry_run, swept, time_is_over, "there it stays as running, also after later runs").await;
}

/// Records the end of a sweep until the time is over. `meaning` says what it means if that fails.
async fn end_in_time(
    session: &Session,
    dry_run: bool,
    swept: &anyhow::Result<Report>,
    time_is_over: impl Future<Output = String>,
    meaning: &str,
) {
    let Some((namespace, deployment, grant)) = place(session, dry_run) else { return };
    if let Some(why) = deployment.facts.unwritable(&session.policy.connection.expect) {
        return warn!("recording the run in `{namespace}`: {why}; it is not recorded there");
    }
    let failed;
    let (report, error) = match swept {
        Ok(report) => (report, None),
        Err(cause) => {
            failed = of_failure(session, failure::exit_code(cause), &deployment.facts);
            (&failed, Some(cause.to_string()))
        }
    };
    let recorded = async {
        let document = history::document(report, error.as_deref()).map_err(|cause| ServerError::other(cause.to_string()))?;
        let document = with_process(document, session);
        match session.opening_refused.load(Ordering::Relaxed) {
            true => server::own::history::insert(deployment, namespace, document, &grant).await,
            false => server::own::history::complete(deployment, namespace, &session.id, document, &grant).await,
        }
    };
    let recorded = tokio::select! {
        biased;
        recorded = recorded => recorded.map_err(|cause| cause.to_string()),
        why = time_is_over => Err(why),
    };
    if let Err(why) = recorded {
        warn!("recording the run in `{namespace}`: {why}; {meaning}");
    }
}

/// Returns the place of the history, if the policy asks for one, there is a connection, and it is no dry run.
fn place(session: &Session, dry_run: bool) -> Option<(&Namespace, &Deployment, RecordGrant)> {
    Some((session.policy.history.as_ref()?, session.connected.get()?, RecordGrant::new(dry_run)?))
}

/// Adds the process of the run, by which a person can tell whether it still runs.
fn with_process(mut document: Document, session: &Session) -> Document {
    let Holder { host, pid, .. } = Holder::me(&session.id, session.started_at);
    document.insert("host", host);
    document.insert("pid", i64::from(pid));
    document
}

/// Returns the report of a run that ended without one.
fn of_failure(session: &Session, exit_code: u8, server: &ServerFacts) -> Report {
    let record = RunRecord { server: Some(server), ..session.record(ReportCommand::Sweep) };
    let report = Report::new(record, Vec::new());
    let totals = Totals { expired_count: None, remaining_count: None, ..report.totals };
    Report { exit_code, status: Status::Failed, totals, ..report }
}
