//! What a restore did, as values and as text.

use serde::Serialize;

use super::text::{clean, count, duration, fold, plural};

#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RestoreReport {
    pub schema_version: u32,
    /// Always `restore`.
    pub command: &'static str,
    pub dry_run: bool,
    pub archive: String,
    /// The run that wrote the archive.
    pub run_id: String,
    /// Whether that run has ended; false: it was cut off.
    pub complete: bool,
    pub duration_ms: u64,
    pub exit_code: u8,
    pub namespaces: Vec<NamespaceReport>,
    pub warnings: Vec<String>,
}

/// One namespace of the archive. Of a dry run the counts are what would be done.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NamespaceReport {
    /// In the archive.
    pub namespace: String,
    /// Where the documents go.
    pub to: String,
    /// In the archive; a document that was archived twice counts twice.
    pub document_count: u64,
    pub inserted_count: u64,
    pub replaced_count: u64,
    /// There already, byte by byte the same.
    pub same_count: u64,
    /// There already, different, and kept as they are.
    pub different_count: u64,
    /// Not inserted: another document has the same value in a unique index.
    pub conflict_count: u64,
    /// Not inserted: the server would not take them.
    pub refused_count: u64,
    /// Bytes at the end of the archive that are no whole segment.
    pub cut_bytes: u64,
    pub error: Option<String>,
}

pub fn render(report: &RestoreReport) -> String {
    let mut lines = vec![
        format!("sweeper restore of {}{}", clean(&report.archive), if report.dry_run { ", dry run" } else { "" }),
        format!("written by run {}", clean(&report.run_id)),
        String::new(),
    ];
    for namespace in &report.namespaces {
        let mut title = clean(&namespace.namespace);
        if namespace.to != namespace.namespace {
            title = format!("{title} to {}", clean(&namespace.to));
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
        if let Some(error) = &namespace.error {
            lines.push(format!("error: {title}: {}", clean(error)));
        }
    }
    lines.push(String::new());
    lines.extend(report.warnings.iter().map(|warning| fold(&format!("warning: {}", clean(warning)), "  ")));
    let inserted: u64 = report.namespaces.iter().map(|namespace| namespace.inserted_count).sum();
    let what = if report.dry_run { "would insert" } else { "inserted" };
    let nothing = if report.dry_run { "; nothing was written (dry run)" } else { "" };
    lines.push(format!("{what} {}{nothing}, in {}", plural(inserted, "document"), duration(report.duration_ms)));
    lines.push(String::new());
    lines.join("\n")
}
