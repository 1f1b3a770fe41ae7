//! `sweeper diff`: two saved reports beside each other. Contacts nothing.

use std::path::Path;

use tracing::error;

use super::deliver::{self, Output};
use crate::cli::{Common, DiffArgs};
use crate::exit;
use crate::failure::Failure;
use crate::report::diff::{diff, to_json, to_text};
use crate::report::{Format, Report, SCHEMA_VERSION};

/// Writes what changed. Gives the exit code, which does not depend on whether anything did.
pub fn compare(common: &Common, args: &DiffArgs) -> anyhow::Result<u8> {
    let (path, format) = deliver::only(deliver::pair(common)?, "diff")?;
    if !matches!(format, Format::Table | Format::Json) {
        return Err(Failure::usage("--format: diff knows `table` and `json`").into());
    }
    let (old, new) = (read(&args.old)?, read(&args.new)?);
    let Output { target, place, .. } = deliver::only(deliver::open(vec![(path, format)])?, "diff")?;
    let name = |path: &Path| path.display().to_string();
    let diff = diff((&name(&args.old), &old), (&name(&args.new), &new));
    let text = if format == Format::Json { to_json(&diff) } else { to_text(&diff) };
    match target.write(&text) {
        Ok(()) => Ok(exit::DONE),
        Err(cause) => {
            error!("writing to {place}: {cause}");
            Ok(exit::CANNOT_RUN)
        }
    }
}

fn read(path: &Path) -> Result<Report, Failure> {
    let failure = |why: String| Failure::usage(format!("reading the report `{}`: {why}", path.display()));
    let text = std::fs::read_to_string(path).map_err(|cause| failure(cause.to_string()))?;
    let report: Report = serde_json::from_str(&text)
        .map_err(|cause| failure(format!("{cause}; expected the JSON report of an audit, a sweep or a check")))?;
    if report.schema_version != SCHEMA_VERSION {
        return Err(failure(format!("a report of schema {}; expected {SCHEMA_VERSION}", report.schema_version)));
    }
    Ok(report)
}
