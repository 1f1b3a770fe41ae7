//! Report of `sweeper archive list` and `sweeper archive verify`: the archives in a directory, and whether they are whole.

use std::collections::BTreeSet;

use serde::Serialize;

use super::aligned::align;
use crate::base::exit;
use crate::base::text::{bytes, count, duration, fold_to, page, plural};

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ArchivesReport {
    pub schema_version: u32,
    /// `archive list` or `archive verify`.
    pub command: &'static str,
    pub directory: String,
    pub duration_ms: u64,
    pub exit_code: u8,
    /// Oldest first.
    pub archives: Vec<ArchiveReport>,
}

/// The archive of one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ArchiveReport {
    /// Path of its directory.
    pub archive: String,
    pub state: ArchiveState,
    /// Null if no record of it is left.
    pub run_id: Option<String>,
    pub started_at: Option<String>,
    pub namespaces: Vec<ArchivedNamespace>,
    /// Files that are in no record, by their paths in the archive.
    pub strays: Vec<String>,
    pub warnings: Vec<String>,
    /// The reason why the archive could not be read, or what is wrong with it.
    pub error: Option<String>,
}

/// State of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ArchiveState {
    Complete,
    /// The run that wrote it was cut off.
    Unfinished,
    /// A run writes to it.
    BeingWritten,
    Unreadable,
}

impl ArchiveState {
    fn words(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Unfinished => "not finished by its run",
            Self::BeingWritten => "being written",
            Self::Unreadable => "unreadable",
        }
    }
}

/// Documents of one namespace in an archive. Null is what the records do not say.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ArchivedNamespace {
    pub namespace: String,
    /// The rules that deleted the documents.
    pub rules: BTreeSet<String>,
    /// A document that was archived twice counts twice.
    pub document_count: Option<u64>,
    /// Bytes of the documents.
    pub bytes: Option<u64>,
    /// Bytes on the disk.
    pub compressed_bytes: Option<u64>,
    /// Whether every checksum and every document is right; null if that was not verified.
    pub whole: Option<bool>,
}

impl ArchivesReport {
    /// Returns the exit code of archives: 3 if anything is wrong with one.
    pub fn exit_code(archives: &[ArchiveReport]) -> u8 {
        let is_wrong = |archive: &ArchiveReport| archive.error.is_some() || !archive.strays.is_empty();
        if archives.iter().any(is_wrong) { exit::RULE_FAILED } else { exit::DONE }
    }

    fn namespaces(&self) -> impl Iterator<Item = &ArchivedNamespace> {
        self.archives.iter().flat_map(|archive| &archive.namespaces)
    }
}

/// Renders the report as text of so many columns; it ends with a newline.
pub fn render(report: &ArchivesReport, width: usize) -> String {
    let mut lines = Vec::new();
    for archive in &report.archives {
        let began = archive.started_at.as_ref().map_or_else(String::new, |at| format!(", begun at {at}"));
        let run = archive.run_id.as_ref().map_or_else(String::new, |id| format!(" by run {id}"));
        lines.push(format!("{}: {}{began}{run}", archive.archive, archive.state.words()));
        lines.extend(table(&archive.namespaces).into_iter().map(|line| format!("  {line}")));
        let strays = archive.strays.iter().map(|file| format!("error: `{file}` is in no record of the archive"));
        let notes = archive.warnings.iter().map(|warning| format!("warning: {warning}")).chain(strays);
        let notes = notes.chain(archive.error.iter().map(|why| format!("error: {why}")));
        lines.extend(notes.flat_map(|note| fold_to(&format!("  {note}"), "    ", width)));
        lines.push(String::new());
    }
    lines.extend(fold_to(&summary(report), "  ", width));
    page(lines)
}

fn table(namespaces: &[ArchivedNamespace]) -> Vec<String> {
    let head = ["namespace", "documents", "size", "on disk", "whole", "rules"].map(str::to_owned);
    let or_unknown = |number: Option<u64>, show: fn(u64) -> String| number.map_or_else(|| "-".to_owned(), show);
    let rows = namespaces.iter().map(|one| {
        [
            one.namespace.clone(),
            or_unknown(one.document_count, count),
            or_unknown(one.bytes, bytes),
            or_unknown(one.compressed_bytes, bytes),
            one.whole.map_or("-", |whole| if whole { "yes" } else { "no" }).to_owned(),
            one.rules.iter().cloned().collect::<Vec<_>>().join(", "),
        ]
    });
    let rows: Vec<_> = std::iter::once(head).chain(rows).collect();
    if namespaces.is_empty() { Vec::new() } else { align(&rows, |column| (1..4).contains(&column)) }
}

/// Returns the result in one line: what is wrong first, or what is there.
pub fn summary(report: &ArchivesReport) -> String {
    let sum = |of: fn(&ArchivedNamespace) -> Option<u64>| report.namespaces().filter_map(of).fold(0, u64::saturating_add);
    let wrong = report.archives.iter().find_map(|archive| {
        let stray = || archive.strays.first().map(|file| format!("`{file}` is in no record of it"));
        Some(format!("{}: {}", archive.archive, archive.error.clone().or_else(stray)?))
    });
    let what = wrong.unwrap_or_else(|| {
        format!(
            "{} with {}, {} on disk{}",
            plural(report.archives.len() as u64, "archive"),
            plural(sum(|one| one.document_count), "document"),
            bytes(sum(|one| one.compressed_bytes)),
            if report.command == VERIFY { ", all whole" } else { "" }
        )
    });
    format!("{} `{}`: {what}, in {}", report.command, report.directory, duration(report.duration_ms))
}

/// Name of the command that verifies.
pub const VERIFY: &str = "archive verify";
/// Name of the command that only lists.
pub const LIST: &str = "archive list";
