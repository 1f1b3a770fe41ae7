//! Report as one HTML page that loads nothing: for a browser or a mail, for light and dark, for paper, and for readers without
//! scripts.

mod charts;
mod detail;
mod overview;
mod rule;
mod rules;
mod words;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use maud::{DOCTYPE, PreEscaped, html};
use sha2::{Digest, Sha256};

use super::{Report, RuleReport, lines};
use crate::core::plan::Status;

const STYLE: &str = include_str!("html/style.css");
const SCRIPT: &str = include_str!("html/sort.js");

/// Maximum number of rules that a page shows unfolded.
const MAX_OPEN: usize = 12;

/// Maximum number of rules with charts, samples and tables, which take room. If there are more, only the worst and largest have
/// them.
const MAX_IN_FULL: usize = 200;

pub(super) fn render(report: &Report) -> String {
    // If many rules have nothing to report, each of them has only a row in the table.
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
                title { (words::title(report)) ": " (verdict) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                header { (overview::head(report, &verdict)) }
                main {
                    (overview::attention(report))
                    (overview::warnings(report))
                    (rules::rules(report, &loud, &quiet))
                    @if !loud.is_empty() { h2 { "Each rule" } }
                    @if in_full.len() < loud.len() {
                        p.note {
                            "Charts, samples and tables are shown for the " (in_full.len()) " rules that went wrong or have most \
                             expired documents; the JSON report has all."
                        }
                    }
                    @for &index in &loud {
                        (rule::article(report, index, loud.len() <= MAX_OPEN, in_full.binary_search(&index).is_ok()))
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

/// Returns the policy by which a browser loads nothing and runs only the page's own script.
fn content_security_policy() -> String {
    let hash = STANDARD.encode(Sha256::digest(SCRIPT));
    format!("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{hash}'; base-uri 'none'; form-action 'none'")
}

/// Returns the indexes of the rules that get charts and tables, in the order of the report.
fn in_full(report: &Report, loud: &[usize]) -> Vec<usize> {
    let weight = |rule: &RuleReport| {
        let went_wrong = Some(rule.status).filter(|status| *status >= Status::Refused);
        (went_wrong, rule.expired_count.max(Some(rule.deleted_count)))
    };
    let mut chosen = loud.to_vec();
    chosen.sort_by_key(|index| std::cmp::Reverse(weight(&report.rules[*index])));
    chosen.truncate(MAX_IN_FULL);
    chosen.sort_unstable();
    chosen
}
