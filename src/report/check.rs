//! What `check` shows on a terminal: one line per rule, ok or what is wrong.

use super::text::{clean, count, plural};
use super::{Report, Status};

pub fn render(report: &Report) -> String {
    let mut lines = Vec::new();
    let width = report.rules.iter().map(|rule| clean(&rule.name).chars().count()).max().unwrap_or(0);
    for rule in &report.rules {
        let word = if rule.status == Status::Complete { "ok" } else { rule.status.word() };
        let name = clean(&rule.name);
        let mut facts = vec![clean(&rule.namespace)];
        if let Some(documents) = rule.document_count {
            facts.push(format!("{} documents", count(documents)));
        }
        match (&rule.index, &rule.strategy) {
            (Some(index), _) => facts.push(format!("index {}", clean(index))),
            (None, Some(_)) => facts.push("collection scan".to_owned()),
            (None, None) => {}
        }
        facts.extend(rule.reason.iter().chain(&rule.error).map(|text| clean(text)));
        lines.push(format!("{word:<8} {name:<width$}  {}", facts.join(", ")));
        lines.extend(rule.warnings.iter().map(|warning| format!("{:<8} {name:<width$}  warning: {}", "", clean(warning))));
    }
    let bad = report.totals.failed + report.totals.refused;
    lines.push(format!(
        "{}: {}, {}",
        clean(&report.policy.path),
        plural(report.totals.rules as u64, "rule"),
        match (bad, &report.server) {
            (0, Some(server)) => format!("ready to sweep on {} {} {}", server.flavor, clean(&server.version), server.topology),
            (0, None) => "no problem found; nothing was contacted (`--connect` looks at the deployment as well)".to_owned(),
            (bad, _) => format!("{bad} would not run"),
        }
    ));
    lines.push(String::new());
    lines.join("\n")
}
