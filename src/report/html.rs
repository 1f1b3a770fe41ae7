//! The report as one HTML page that asks for nothing from elsewhere: for a browser or a mail, for light and dark, for paper, and for
//! readers who let no script run.

mod charts;
mod detail;
mod overview;
mod rule;
mod rules;
mod words;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, Markup, PreEscaped, html};
use sha2::{Digest, Sha256};

use super::{Command, Report, RuleReport, Status, lines};

const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/sort.js");

/// Rules are shown unfolded where there are no more of them than this.
const MOST_OPEN: usize = 12;

/// Charts, samples and tables take room: of more rules than this only the worst and largest have them.
const MOST_IN_FULL: usize = 200;

pub fn render(report: &Report) -> String {
    // Those without anything to say have only a row, where there are many of them.
    let folds = lines::shown(report).1 > 0;
    let (quiet, loud) = (0..report.rules.len()).partition::<Vec<_>, _>(|index| folds && lines::is_quiet(&report.rules[*index]));
    let in_full = in_full(report, &loud);
    let verdict = overview::verdict(report);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="Content-Security-Policy" content=(content_security_policy());
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                meta name="referrer" content="no-referrer";
                title { (title(report)) ": " (verdict) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header { (overview::head(report, &verdict)) }
                main {
                    (overview::attention(report))
                    (rules::rules(report, &loud, &quiet))
                    @if !loud.is_empty() { h2 { "Each rule" } }
                    @if in_full.len() < loud.len() {
                        p.note {
                            "Charts, samples and tables are shown for the " (in_full.len()) " rules that went wrong or have most \
                             expired documents; the JSON report has those of all."
                        }
                    }
                    @for &index in &loud {
                        (rule::article(report, index, loud.len() <= MOST_OPEN, in_full.binary_search(&index).is_ok()))
                    }
                }
                footer { "Written by sweeper " (env!("CARGO_PKG_VERSION")) ". This page loads nothing and sends nothing." }
                script { (PreEscaped(SCRIPT)) }
            }
        }
    };
    let mut page = page.into_string();
    page.push('\n');
    page
}

/// What the run was.
fn title(report: &Report) -> &'static str {
    match report.command {
        Command::Check => "sweeper check",
        Command::Audit => "sweeper audit",
        Command::Sweep if report.dry_run => "sweeper dry run",
        Command::Sweep => "sweeper sweep",
    }
}

/// Nothing is loaded from anywhere, and no script runs but the page's own.
fn content_security_policy() -> String {
    let hash = STANDARD.encode(Sha256::digest(SCRIPT));
    format!("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'")
}

/// The rules that get charts and tables, in the order of the report.
fn in_full(report: &Report, loud: &[usize]) -> Vec<usize> {
    let weight = |rule: &RuleReport| {
        let went_wrong = Some(rule.status).filter(|status| *status >= Status::Refused);
        (went_wrong, rule.expired_count.max(Some(rule.deleted_count)))
    };
    let mut chosen = loud.to_vec();
    chosen.sort_by_key(|index| std::cmp::Reverse(weight(&report.rules[*index])));
    chosen.truncate(MOST_IN_FULL);
    chosen.sort_unstable();
    chosen
}

fn status(report: &Report, status: Status) -> Markup {
    let is_ok = report.command == Command::Check && status == Status::Complete;
    html! { span class={"status " (status)} { @if is_ok { "ok" } @else { (status) } } }
}
