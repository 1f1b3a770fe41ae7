//! `sweeper archive list` and `archive verify`: the archives in a directory. Contacts no server, and writes nothing.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::session::load;
use super::session::outputs::{SingleOutput, deliver_single};
use crate::base::failure::Failure;
use crate::base::instant::millis;
use crate::base::stop::Stop;
use crate::base::text::without_os_numbers;
use crate::commands::cli::{ArchiveArgs, ArchiveCommand, Common};
use crate::core::policy::only::Only;
use crate::core::report::archives::{self, ArchiveReport, ArchiveState, ArchivedNamespace, ArchivesReport, LIST, VERIFY};
use crate::core::report::{Format, SCHEMA_VERSION};
use crate::shell::archive::disk::{self, Disk};
use crate::shell::archive::reader::{self, Stored};
use crate::shell::archive::{blocking, directory};

/// Lists or verifies archives. Returns the exit code, which is 3 if anything is wrong with one of them.
///
/// Errors: the directory cannot be read, or holds no archive that was asked for.
pub(super) async fn command(options: &Common, command: &ArchiveCommand) -> anyhow::Result<u8> {
    let begun = Instant::now();
    let (name, ArchiveArgs { directory }, verifies) = match command {
        ArchiveCommand::List(args) => (LIST, args, false),
        ArchiveCommand::Verify(args) => (VERIFY, args, true),
    };
    load::check_place(directory)?;
    let output = SingleOutput::with_format(options, name, &[Format::Table, Format::Json])?.open()?;
    let shown = directory.display().to_string();
    let (path, only) = (directory.clone(), options.only.clone());
    let read = blocking(move || Ok(read(&path, &Only(&only), verifies)));
    let read = async { read.await.map_err(|why| Failure::cannot_run(format!("reading `{shown}`: {why}")))? };
    // A thread that reads does not end before the process does.
    let archives = Stop::listen()?.or_fail("nothing was written", read).await?;
    let report = ArchivesReport {
        schema_version: SCHEMA_VERSION,
        command: name,
        directory: shown,
        duration_ms: millis(begun.elapsed()),
        exit_code: ArchivesReport::exit_code(&archives),
        archives,
    };
    let text = output.json_or_text(&report, |report| archives::render(report, output.look(options).width));
    Ok(deliver_single(options, output, &text, report.exit_code, &archives::summary(&report))?)
}

fn read(path: &Path, only: &Only, verifies: bool) -> Result<Vec<ArchiveReport>, Failure> {
    let disk = disk::below(path);
    let shown = path.display();
    let runs =
        directory::runs(disk.as_ref(), path).map_err(|cause| Failure::cannot_run(format!("reading `{shown}`: {cause}")))?;
    if runs.is_empty() {
        let failure = Failure::cannot_run(format!("reading `{shown}`: no archive of a run is in it"));
        return Err(failure.hint("expected the directory that `archive` of a policy names, or the directory of one run"));
    }
    let archives = runs.iter().map(|run| archive(&disk, run, only, verifies));
    let is_selected = |archive: &ArchiveReport| only.0.is_empty() || !archive.namespaces.is_empty();
    let mut archives: Vec<_> = archives.filter(is_selected).collect();
    // Names tell runs of one second in no order.
    archives.sort_by(|one, other| one.started_at.cmp(&other.started_at));
    if archives.is_empty() {
        return Err(Failure::usage(format!("--only {}: no namespace of an archive matches", only.0.join(" --only "))));
    }
    Ok(archives)
}

fn archive(disk: &Arc<dyn Disk>, run: &Path, only: &Only, verifies: bool) -> ArchiveReport {
    let mut report = ArchiveReport {
        archive: run.display().to_string(),
        state: ArchiveState::Unreadable,
        run_id: None,
        started_at: None,
        namespaces: Vec::new(),
        strays: Vec::new(),
        warnings: Vec::new(),
        error: None,
    };
    let is_being_written = directory::is_being_written(disk.as_ref(), run);
    let Stored { run_id, started_at, complete, files, losses, strays } = match reader::open(disk.clone(), run) {
        Ok(stored) => stored,
        // Its records change while they are read.
        Err(_) if is_being_written => return ArchiveReport { state: ArchiveState::BeingWritten, ..report },
        Err(why) => return ArchiveReport { error: Some(without_os_numbers(&why)), ..report },
    };
    report.state = match complete {
        true => ArchiveState::Complete,
        false if is_being_written => ArchiveState::BeingWritten,
        false => ArchiveState::Unfinished,
    };
    let verifies = verifies && report.state != ArchiveState::BeingWritten;
    (report.run_id, report.started_at) = (run_id, started_at);
    if report.state != ArchiveState::BeingWritten {
        (report.warnings, report.strays) = (losses, strays);
    }
    let mut wrong = Vec::new();
    for file in files.into_iter().filter(|file| only.selects(None, &file.namespace)) {
        let recorded = file.recorded();
        let mut namespace = ArchivedNamespace {
            namespace: file.namespace.to_string(),
            document_count: recorded.as_ref().map(|recorded| recorded.documents),
            bytes: recorded.as_ref().map(|recorded| recorded.bytes),
            compressed_bytes: recorded.as_ref().map(|recorded| recorded.compressed_bytes),
            rules: recorded.map(|recorded| recorded.rules).unwrap_or_default(),
            whole: None,
        };
        if verifies {
            let verified = file.verify();
            namespace.document_count = verified.as_ref().ok().map(|verified| verified.documents).or(namespace.document_count);
            let why = verified.map_or_else(Some, |verified| verified.lost().map(|why| format!("{}: {why}", namespace.namespace)));
            namespace.whole = Some(why.is_none());
            wrong.extend(why);
        }
        report.namespaces.push(namespace);
    }
    report.error = (!wrong.is_empty()).then(|| without_os_numbers(&wrong.join("; ")));
    report
}
