//! Report of `sweeper reclaim`: the space that each member would give back, or has.

use std::fmt;

use schemars::JsonSchema;
use serde::Serialize;

use super::aligned::{Tone, align, paint, table};
use super::{PolicyReport, SCHEMA_VERSION, ServerReport};
use crate::base::exit;
use crate::base::instant::Instant;
use crate::base::text::{bytes, duration, page};
use crate::core::facts::FileSize;

/// Share of a file that has to be free for the server to give some of it back in any case.
///
/// Source: WiredTiger, `block_compact.c`: a fifth in the first four fifths of the file. Of less, 6.0.5 gave nothing back.
const LEAST_FREE: f64 = 0.2;

/// Free bytes of a file up to which the server gives nothing back (WiredTiger, `block_compact.c`).
const LEAST_FREE_BYTES: u64 = 1 << 20;

/// Report of `sweeper reclaim`.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(title = "sweeper reclaim")]
pub struct ReclaimReport {
    #[schemars(extend("const" = SCHEMA_VERSION))]
    pub schema_version: u32,
    #[schemars(extend("const" = "reclaim"))]
    pub command: &'static str,
    pub dry_run: bool,
    #[schemars(extend("format" = "uuid"))]
    pub run_id: String,
    pub started_at: Instant,
    pub duration_ms: u64,
    pub exit_code: u8,
    pub policy: PolicyReport,
    pub server: ServerReport,
    /// Members in the order in which they are compacted, each with all namespaces.
    pub rows: Vec<ReclaimRow>,
    pub totals: ReclaimTotals,
}

/// One namespace on one member.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "row")]
pub struct ReclaimRow {
    /// `host:port`.
    pub member: String,
    pub role: MemberRole,
    pub namespace: String,
    /// Size of the files of the collection and its indexes; null if the member did not tell.
    pub file_bytes: Option<u64>,
    /// The part of it that `compact` would give back, before the run; null if the member did not tell.
    pub reclaimable_bytes: Option<u64>,
    /// Bytes by which the files became smaller; null if nothing was compacted, or the member did not tell.
    pub freed_bytes: Option<u64>,
    pub duration_ms: u64,
    pub status: ReclaimStatus,
    pub reason: Option<String>,
}

/// Part that a member plays in its replica set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "memberRole")]
pub enum MemberRole {
    Secondary,
    Primary,
    /// A server without a replica set.
    Standalone,
}

impl MemberRole {
    /// Whether all clients write to the member.
    pub fn serves_all(self) -> bool {
        self != Self::Secondary
    }
}

impl fmt::Display for MemberRole {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        self.serialize(f)
    }
}

/// Outcome of one namespace on one member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "reclaimStatus")]
pub enum ReclaimStatus {
    /// Would be compacted. Only in a dry run.
    Planned,
    /// Compacted.
    Done,
    /// Has too little to give back, so that nothing was sent.
    Nothing,
    /// Left out: the primary without `--primary`.
    Skipped,
    /// Not compacted, or not to the end.
    NotDone,
    /// Not compacted, or not to the end, because the run was asked to stop.
    Interrupted,
}

impl fmt::Display for ReclaimStatus {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(match self {
            Self::Planned => "ready",
            Self::Done => "done",
            Self::Nothing => "nothing",
            Self::Skipped => "skipped",
            Self::NotDone => "not done",
            Self::Interrupted => "interrupted",
        })
    }
}

/// Sums over all rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "totals")]
pub struct ReclaimTotals {
    /// Bytes that the files to be compacted could give back, before the run.
    pub reclaimable_bytes: u64,
    pub freed_bytes: u64,
    pub not_done: u64,
}

impl ReclaimTotals {
    /// Sums up rows.
    pub fn of(rows: &[ReclaimRow]) -> Self {
        let is_meant = |row: &&ReclaimRow| row.status != ReclaimStatus::Skipped;
        Self {
            reclaimable_bytes: rows.iter().filter(is_meant).filter_map(|row| row.reclaimable_bytes).sum(),
            freed_bytes: rows.iter().filter_map(|row| row.freed_bytes).sum(),
            not_done: rows.iter().filter(|row| row.status == ReclaimStatus::NotDone).count() as u64,
        }
    }
}

/// Returns the bytes that `compact` gives back of some files.
pub fn reclaimable(files: &[FileSize]) -> u64 {
    let is_compacted = |file: &&FileSize| file.free > LEAST_FREE_BYTES && file.free as f64 >= file.size as f64 * LEAST_FREE;
    files.iter().filter(is_compacted).map(|file| file.free).sum()
}

/// Returns the exit code. `stopped` is the exit code of a run that was asked to stop.
pub fn exit_code(rows: &[ReclaimRow], stopped: Option<u8>) -> u8 {
    let any = |status| rows.iter().any(|row| row.status == status);
    match stopped {
        Some(code) if any(ReclaimStatus::Interrupted) => code,
        _ if any(ReclaimStatus::NotDone) => exit::RULE_FAILED,
        _ => exit::DONE,
    }
}

/// Renders a report as text that ends with a newline.
pub fn to_text(report: &ReclaimReport, colored: bool) -> String {
    rows(&report.rows, colored) + &page([summary(report)])
}

/// Renders rows as a table, with the reasons below it.
pub fn rows(rows: &[ReclaimRow], colored: bool) -> String {
    let size = |size: Option<u64>| size.map_or_else(|| "-".to_owned(), bytes);
    let cells = |row: &ReclaimRow| {
        [
            row.member.clone(),
            row.role.to_string(),
            row.namespace.clone(),
            size(row.file_bytes),
            size(row.reclaimable_bytes),
            size(row.freed_bytes),
            if row.duration_ms == 0 { "-".to_owned() } else { duration(row.duration_ms) },
            row.status.to_string(),
        ]
    };
    let head = ["member", "role", "namespace", "files", "reclaimable", "given back", "time", "status"].map(str::to_owned);
    let all: Vec<[String; 8]> = std::iter::once(head).chain(rows.iter().map(cells)).collect();
    let lines = align(&all, |column| (3..7).contains(&column));
    let tones = std::iter::once(Tone::Plain).chain(rows.iter().map(|row| tone(row.status)));
    let mut text = table(tones.zip(lines).collect(), colored);
    let mut said: Vec<String> = Vec::new();
    for row in rows {
        let Some(reason) = &row.reason else { continue };
        let line = format!("{}: {}: {reason}", row.member, row.status);
        if !said.contains(&line) {
            text += &(paint(&line, tone(row.status), colored) + "\n");
            said.push(line);
        }
    }
    text
}

fn tone(status: ReclaimStatus) -> Tone {
    match status {
        ReclaimStatus::Planned | ReclaimStatus::Done | ReclaimStatus::Nothing | ReclaimStatus::Skipped => Tone::Plain,
        ReclaimStatus::Interrupted => Tone::Warning,
        ReclaimStatus::NotDone => Tone::Error,
    }
}

/// Renders one line with the space that the members give back, and what was not done.
pub fn summary(report: &ReclaimReport) -> String {
    let ReclaimTotals { reclaimable_bytes, freed_bytes, .. } = report.totals;
    let mut parts = vec![match report.dry_run {
        true => format!("would give back {}", bytes(reclaimable_bytes)),
        false => format!("gave back {}", bytes(freed_bytes)),
    }];
    for status in [ReclaimStatus::NotDone, ReclaimStatus::Interrupted, ReclaimStatus::Skipped] {
        let number = report.rows.iter().filter(|row| row.status == status).count();
        parts.extend((number > 0).then(|| format!("{number} {status}")));
    }
    if report.dry_run {
        parts.push("nothing was compacted (dry run)".to_owned());
    }
    let server = &report.server;
    let time = duration(report.duration_ms);
    format!("{} on {} {} {}: {}, in {time}", report.policy.path, server.flavor, server.version, server.topology, parts.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    fn row(status: ReclaimStatus, reclaimable: u64, freed: Option<u64>) -> ReclaimRow {
        ReclaimRow {
            member: "h:1".into(),
            role: MemberRole::Secondary,
            namespace: "app.c".into(),
            file_bytes: Some(9 * MB),
            reclaimable_bytes: Some(reclaimable),
            freed_bytes: freed,
            duration_ms: 0,
            status,
            reason: None,
        }
    }

    #[test]
    fn only_files_that_the_server_compacts_count() {
        let file = |size, free| FileSize { size, free };
        let files = [file(100 * MB, 90 * MB), file(2 * MB, MB), file(2 * MB, MB + 1), file(15 * MB, 3 * MB)];
        assert_eq!(reclaimable(&files), 94 * MB + 1);
        assert_eq!(reclaimable(&[file(15 * MB + 1, 3 * MB)]), 0);
        assert_eq!(reclaimable(&[]), 0);
    }

    #[test]
    fn the_exit_code_tells_what_was_not_done_and_the_primary_is_not_missed() {
        let of = |statuses: &[ReclaimStatus], stopped| {
            exit_code(&statuses.iter().map(|status| row(*status, 1, None)).collect::<Vec<_>>(), stopped)
        };
        use ReclaimStatus::*;
        assert_eq!(of(&[Done, Nothing, Skipped], None), exit::DONE);
        assert_eq!(of(&[Done, NotDone], None), exit::RULE_FAILED);
        assert_eq!(of(&[NotDone, Interrupted], Some(exit::LIMIT)), exit::LIMIT);
        assert_eq!(of(&[Done], Some(exit::INTERRUPTED)), exit::DONE, "the signal came after the end");
        assert_eq!(of(&[Planned], None), exit::DONE);
    }

    #[test]
    fn the_totals_leave_out_a_primary_that_is_skipped() {
        let rows =
            [row(ReclaimStatus::Done, 5, Some(4)), row(ReclaimStatus::Skipped, 7, None), row(ReclaimStatus::NotDone, 6, Some(1))];
        assert_eq!(ReclaimTotals::of(&rows), ReclaimTotals { reclaimable_bytes: 11, freed_bytes: 5, not_done: 1 });
    }
}
