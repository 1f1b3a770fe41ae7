//! Report of a restore, as values and as text.

use serde::Serialize;

use super::ServerReport;
use crate::base::text::{count, duration, fold_to, page, plural};

/// Report of one restore.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreReport {
    pub schema_version: u32,
    /// Always `restore`.
    pub command: &'static str,
    pub dry_run: bool,
    pub archive: String,
    /// The deployment that the documents are inserted into.
    pub server: ServerReport,
    /// Id of the run that wrote the archive; null if its journal was lost.
    pub run_id: Option<String>,
    /// Whether that run has ended; false if it was cut off.
    pub complete: bool,
    pub duration_ms: u64,
    pub exit_code: u8,
    pub namespaces: Vec<NamespaceReport>,
    /// Files in the archive that belong to no archive, and were not restored.
    pub strays: Vec<String>,
    pub warnings: Vec<String>,
}

/// One namespace of the archive. In a dry run the counts are of documents that would be inserted or replaced.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceReport {
    /// Namespace in the archive.
    pub namespace: String,
    /// Namespace that the documents are inserted into.
    pub to: String,
    /// Documents in the archive; one that was archived twice counts twice.
    pub document_count: u64,
    /// The documents among them that the journal does not list, and that were found in the file nevertheless.
    pub unlisted_count: u64,
    pub inserted_count: u64,
    pub replaced_count: u64,
    /// Documents that the collection already has, equal byte by byte.
    pub same_count: u64,
    /// Documents that the collection already has in another state, which is kept.
    pub different_count: u64,
    /// Documents that were not inserted, because another one has the same value in a unique index.
    pub conflict_count: u64,
    /// Documents that were not inserted, because the server refused them.
    pub refused_count: u64,
    /// Whether the counts of what was written are lower bounds, because a reply was lost.
    pub uncertain: bool,
    /// Bytes at the end of the archive that are not a whole segment.
    pub cut_bytes: u64,
    pub error: Option<String>,
}

/// Renders the report as text of so many columns; it ends with a newline.
pub fn render(report: &RestoreReport, width: usize) -> String {
    let mut lines = vec![
        format!("sweeper restore of {}{}", report.archive, if report.dry_run { ", dry run" } else { "" }),
        report.run_id.as_ref().map_or("written by an unknown run".to_owned(), |id| format!("written by run {id}")),
        into(&report.server),
        String::new(),
    ];
    for namespace in &report.namespaces {
        let mut title = namespace.namespace.clone();
        if namespace.to != namespace.namespace {
            title = format!("{title} to {}", namespace.to);
        }
        lines.push(format!("{title}: {} in the archive", plural(namespace.document_count, "document")));
        let would = if report.dry_run { "would be " } else { "" };
        for (number, what) in [
            (namespace.inserted_count, format!("{would}inserted")),
            (namespace.replaced_count, format!("{would}replaced")),
            (namespace.same_count, "there already, the same".into()),
            (namespace.different_count, "there already, different, and kept".into()),
            (namespace.conflict_count, "in conflict: another document has the same value in a unique index".into()),
            (namespace.refused_count, "refused by the server".into()),
        ] {
            if number > 0 {
                lines.push(format!("{:>13} {what}", count(number)));
            }
        }
        if namespace.uncertain {
            lines.push(format!("{:>13} a reply was lost: more may have been inserted or replaced", ""));
        }
        if let Some(error) = &namespace.error {
            lines.push(format!("error: {title}: {error}"));
        }
    }
    lines.push(String::new());
    lines.extend(report.warnings.iter().flat_map(|warning| fold_to(&format!("warning: {warning}"), "  ", width)));
    lines.push(ended(report));
    page(lines)
}

/// Names the deployment that the documents are inserted into.
fn into(server: &ServerReport) -> String {
    let set = server.name.as_ref().map(|name| format!(", {name}")).unwrap_or_default();
    format!("into {} {}{set} at {}", server.flavor, server.version, server.hosts.join(", "))
}

/// Returns the outcome of a restore in one line: the first error, or the documents that were inserted.
pub fn summary(report: &RestoreReport) -> String {
    let first = report.namespaces.iter().find_map(|namespace| Some((&namespace.to, namespace.error.as_ref()?)));
    let what = match first {
        Some((to, why)) => format!("{to}: {why}"),
        None if report.namespaces.iter().any(|namespace| namespace.conflict_count > 0) => "documents in conflict".to_owned(),
        None if !report.strays.is_empty() => format!("{}, in no record", report.strays.join(", ")),
        None => ended(report),
    };
    format!("restoring `{}`: {what}", report.archive)
}

fn ended(report: &RestoreReport) -> String {
    let inserted: u64 = report.namespaces.iter().map(|namespace| namespace.inserted_count).sum();
    let what = if report.dry_run { "would insert" } else { "inserted" };
    let least = if report.namespaces.iter().any(|namespace| namespace.uncertain) { "at least " } else { "" };
    let nothing = if report.dry_run { "; nothing was written (dry run)" } else { "" };
    format!("{what} {least}{}{nothing}, in {}", plural(inserted, "document"), duration(report.duration_ms))
}

/// Returns what an archive has lost, and what was left in it, in words. `complete` is false if the run that wrote it was cut off.
pub fn left(complete: bool, losses: Vec<String>, strays: &[String], namespaces: &[NamespaceReport]) -> Vec<String> {
    let mut left = Vec::new();
    if !complete {
        left.push("the run that wrote this archive did not end; what is whole in it was read".to_owned());
    }
    left.extend(losses);
    left.extend(strays.iter().map(|file| format!("`{file}` is in no record of the archive, and was not restored")));
    for NamespaceReport { namespace, unlisted_count, cut_bytes, .. } in namespaces {
        if *unlisted_count > 0 {
            left.push(format!("{namespace}: {} found that the journal does not list", plural(*unlisted_count, "document")));
        }
        if *cut_bytes > 0 {
            left.push(format!("{namespace}: {cut_bytes} bytes at the end are cut off, and no whole documents"));
        }
    }
    left
}

/// Returns the warnings about restored documents. `made` are the collections that were not there before.
pub fn advice(namespaces: &[NamespaceReport], made: &[String]) -> Vec<String> {
    let has_new = |namespace: &&NamespaceReport| namespace.inserted_count + namespace.replaced_count > 0;
    let mut warnings = Vec::new();
    if namespaces.iter().any(|namespace| has_new(&namespace)) {
        warnings
            .push("restored documents are still expired: the next sweep deletes them again, and a TTL index at once".to_owned());
    }
    let bare = namespaces.iter().filter(has_new).filter(|namespace| made.contains(&namespace.to));
    let bare: Vec<String> = bare.map(|namespace| format!("`{}`", namespace.to)).collect();
    if !bare.is_empty() {
        let restores = "`mongorestore` restores them from the metadata files of the archive";
        warnings.push(format!("new collections have no indexes and options yet: {}; {restores}", bare.join(", ")));
    }
    warnings
}
