//! Made-up rules and reports for the unit tests of reports, guards and approvals.

pub(crate) mod facts;
pub(crate) mod sweep;

use bson::{DateTime, doc};
use serde_json::json;

use crate::base::instant::Instant;
use crate::core::expiry::Expiry;
use crate::core::facts::DataSize;
use crate::core::plan::Status;
use crate::core::plan::estimate::{Estimate, SpeedSource};
use crate::core::plan::findings::{CountObstacle, Decides, Expired, Findings, Told};
use crate::core::plan::holds::HeldBack;
use crate::core::plan::outcome::{Archived, End, Outcome, RuleOutcome, Swept};
use crate::core::plan::waits::Waited;
use crate::core::plan::{ChildRule, Decision, Family, ParentKey, PlannedRule, Selection, Sizes, SweepRule};
use crate::core::policy::DateFormat;
use crate::core::policy::namespace::Namespace;
use crate::core::policy::parse::parse;
use crate::core::report::rule::RuleReport;
use crate::core::report::{PolicyReport, Report, ReportCommand, SCHEMA_VERSION, Totals};

/// The instant that made-up runs take for now.
pub(crate) const NOW: i64 = 1_800_000_000_000;

/// Returns a line of a policy with a window of one minute, half a day away.
pub(crate) fn closed_window() -> String {
    let start = chrono::Utc::now() + chrono::Duration::hours(12);
    let end = start + chrono::Duration::minutes(1);
    format!("    window: {{start: '{}', end: '{}'}}\n", start.format("%H:%M"), end.format("%H:%M"))
}

/// Returns a rule for `app.c` that may be swept, in a collection of `document_count` documents of 100 bytes; `keys` are further
/// lines of the policy.
pub(crate) fn planned(keys: &str, document_count: u64) -> PlannedRule {
    let text = format!("version: 1\ncollections:\n  - namespace: app.c\n    field: at\n    expireAfter: 1h\n{keys}");
    let rule = parse("p", &text, &|_| None, true).expect("a policy").rules.remove(0);
    let namespace = Namespace { database: "app".into(), collection: "c".into() };
    let expiry = Expiry {
        field: "at".into(),
        format: DateFormat::Date,
        expire_after_seconds: Some(3600),
        ttl_field: None,
        not_before_1970: false,
        checks_path: false,
        filter: None,
        as_of: DateTime::from_millis(NOW),
    };
    let selection = Selection {
        uuid: Some(bson::Uuid::from_bytes([7; 16])),
        document_count,
        size: DataSize { average_bytes: Some(100.0), file: None },
        holds: rule.holds.as_ref().map(|holds| HeldBack::new(holds, &namespace, holds.by.of.clone())),
        periods: rule.periods.as_ref().map(|periods| HeldBack::of_periods(periods, &namespace, periods.by.of.clone(), &expiry)),
        ..Selection::of(&namespace, doc! { "at": { "$lte": DateTime::from_millis(NOW - 3_600_000) } })
    };
    let archive = rule.archive.clone();
    let sweep = SweepRule {
        name: rule.name.clone(),
        namespace: namespace.clone(),
        selection,
        expiry,
        limits: rule.limits.clone(),
        sizes: Sizes { batch: 2000, range: 8000 },
        head_index: None,
        archive,
        approved: None,
        family: None,
    };
    PlannedRule {
        field: rule.field.clone(),
        rule,
        namespace,
        collection: None,
        threshold: Some(DateTime::from_millis(NOW - 3_600_000)),
        relative_dates: Vec::new(),
        decision: Decision::Sweep(sweep),
        warnings: Vec::new(),
    }
}

/// Returns a rule for `app.c` with children in `app.d`, whose field `p` names their parent.
pub(crate) fn with_children() -> SweepRule {
    let Decision::Sweep(rule) = planned("", 3).decision else { unreachable!("a rule that may be swept") };
    let namespace = |collection: &str| Namespace { database: "app".into(), collection: collection.into() };
    let mut of_children = rule.clone();
    of_children.selection.namespace = namespace("d");
    let parent_key = ParentKey::id();
    let children = vec![ChildRule { field: "p".into(), parent_key, rule: of_children }];
    let family = Family { journal: namespace("j"), children, orphans: None, filter: None };
    SweepRule { family: Some(family), ..rule }
}

/// Returns counts of this many expired documents, the oldest of which is dated 1970.
pub(crate) fn counted(expired: u64) -> Findings {
    let oldest = (expired > 0).then(|| DateTime::from_millis(0));
    Findings {
        decides: Decides {
            expired: Some(Expired { count: expired, is_complete: true, oldest, measurements: None }),
            ..Decides::default()
        },
        told: Told { duration_ms: 10, ..Told::default() },
        ..Findings::default()
    }
}

/// Returns findings with an obstacle.
pub(crate) fn with_obstacle(obstacle: CountObstacle, mut findings: Findings) -> Findings {
    findings.decides.obstacle = Some(obstacle);
    findings
}

/// Returns the outcome of a sweep that deleted this many documents.
pub(crate) fn swept(deleted: u64, end: End) -> Swept {
    Swept {
        outcome: Outcome {
            deleted,
            batches: 1,
            uncertain: false,
            unconfirmed: 0,
            is_collection_gone: false,
            seen_none: false,
            weak_write_concern: None,
            paused: Waited::default(),
            fixed_latency: None,
            archived: Archived::default(),
            children: None,
            end,
        },
        lease_lost: None,
        archive: None,
        never_expires: None,
        held: None,
        pressure_unknown: None,
        written_bytes: None,
        warnings: Vec::new(),
        duration_ms: 5,
    }
}

/// Returns the outcome of a rule that was not to be swept.
pub(crate) fn not_swept() -> RuleOutcome {
    RuleOutcome::NotSwept { window_closed: false }
}

/// Returns the report of a dry run at [`NOW`] on a replica set.
pub(crate) fn dry_run(rules: Vec<RuleReport>) -> Report {
    let server = json!({
        "flavor": "mongodb", "recognisedBy": "an example", "version": "6.0.5", "topology": "replicaSet", "name": "rs0", "hosts": ["a:1", "b:1"],
    });
    Report {
        schema_version: SCHEMA_VERSION,
        command: ReportCommand::Sweep,
        dry_run: true,
        run_id: "r".into(),
        as_of: Some(Instant(DateTime::from_millis(NOW))),
        started_at: Instant(DateTime::from_millis(NOW)),
        duration_ms: 1,
        exit_code: 0,
        status: rules.iter().map(|rule| rule.status).max().unwrap_or(Status::Complete),
        policy: PolicyReport { path: "sweeper.yaml".into(), sha256: "0".repeat(64) },
        server: Some(serde_json::from_value(server).expect("a server")),
        plan: None,
        limits: None,
        pacing_changes: Vec::new(),
        totals: Totals::of(&rules, true, None),
        rules,
    }
}

/// Returns the report of a complete rule that has names but no counts.
pub(crate) fn report(name: &str, namespace: &str) -> RuleReport {
    RuleReport {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        expire_after_seconds: 3600,
        status: Status::Complete,
        ..RuleReport::default()
    }
}

/// Returns an estimate of a sweep that adds 150,000 bytes to the oplog.
pub(crate) fn estimate() -> Estimate {
    Estimate {
        documents: 1200,
        children: None,
        bytes: None,
        seconds: None,
        documents_per_second: 100.0,
        speed_source: SpeedSource::Assumption,
        oplog_bytes_per_document: Some(125.0),
        oplog_bytes: Some(150_000),
        oplog_window_seconds: None,
        oplog_window_after_seconds: None,
        oplog_unknown: None,
        reusable_bytes: None,
        compact_bytes: None,
        compact_members: None,
    }
}
