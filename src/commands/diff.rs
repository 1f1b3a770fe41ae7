//! `sweeper diff`: compares two saved reports. Contacts nothing.

use std::path::Path;

use super::session::outputs::SingleOutput;
use crate::base::exit;
use crate::base::failure::Failure;
use crate::commands::cli::{Common, DiffArgs};
use crate::core::policy::only::Only;
use crate::core::report::diff::{diff, to_csv, to_text};
use crate::core::report::json::unread;
use crate::core::report::{Format, Report, SCHEMA_VERSION};

/// Writes the changes and returns the exit code, which says whether there are any only with `--detailed-exitcode`.
///
/// Errors: a report cannot be read, or the output cannot be written.
pub(super) fn command(options: &Common, args: &DiffArgs) -> anyhow::Result<u8> {
    let output = SingleOutput::with_format(options, "diff", &[Format::Table, Format::Json, Format::Csv])?;
    let (mut old, mut new) = (read(&args.old)?, read(&args.new)?);
    let only = Only(&options.only);
    for report in [&mut old, &mut new] {
        report.rules.retain(|rule| only.selects_named(&rule.name, &rule.namespace));
    }
    if !options.only.is_empty() && old.rules.is_empty() && new.rules.is_empty() {
        let failure = format!("--only {}: no rule or namespace of either report matches", options.only.join(" --only "));
        return Err(Failure::usage(failure).into());
    }
    let output = output.open()?;
    let name = |path: &Path| path.display().to_string();
    let diff = diff((&name(&args.old), &old), (&name(&args.new), &new), !options.only.is_empty());
    let text = match output.format {
        Format::Csv => to_csv(&diff),
        _ => output.json_or_text(&diff, |diff| to_text(diff, output.look(options))),
    };
    output.write("the comparison", &text)?;
    Ok(if args.detailed_exitcode && !diff.changes.is_empty() { exit::FOUND } else { exit::DONE })
}

fn read(path: &Path) -> Result<Report, Failure> {
    let failure = |why: String| Failure::usage(format!("reading the report `{}`: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|cause| failure(cause.to_string()))?;
    let report: Report = serde_json::from_str(&text)
        .map_err(|cause| failure(format!("{}; expected the JSON report of an audit, a sweep or a check", unread(&cause))))?;
    if report.schema_version != SCHEMA_VERSION {
        return Err(failure(format!("a report of schema {}; expected {SCHEMA_VERSION}", report.schema_version)));
    }
    Ok(report)
}
