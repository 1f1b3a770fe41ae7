//! Confirmation before the first change.

use std::io::{self, IsTerminal, Write};

use crate::failure::Failure;
use crate::report::lines::cost;
use crate::report::{RuleReport, Status, estimate};
use crate::server::grant::Consent;
use crate::stop::Stop;
use crate::text::{clean, count, page, plural};

/// Whether to ask: standard input is a terminal, and `--yes` is not given.
pub(super) fn can_ask(yes: bool) -> bool {
    !yes && io::stdin().is_terminal()
}

/// Shows the counts of all rules and asks for confirmation.
///
/// Errors: those of [`ask`].
pub(super) async fn ask_to_delete(stop: &Stop, rules: &[RuleReport]) -> anyhow::Result<Consent> {
    let ready: Vec<&RuleReport> =
        rules.iter().filter(|rule| rule.status == Status::Complete && rule.expired_count != Some(0)).collect();
    if ready.is_empty() {
        return Ok(Consent::NothingToDelete);
    }
    let width = ready.iter().map(|rule| clean(&rule.namespace).chars().count()).max().unwrap_or(0);
    let lines = ready.iter().map(|rule| {
        let expired = rule.expired_count.map_or_else(|| "?".to_owned(), count);
        let whole = rule.document_count.map_or_else(|| "?".to_owned(), count);
        let units = rule.estimated_request_units.map(|units| cost(units, rule.estimated_seconds));
        let expected = units.or_else(|| rule.estimate.as_ref().map(estimate::brief)).map(|expected| format!(", {expected}"));
        let namespace = clean(&rule.namespace);
        format!("  {namespace:<width$}  {expired:>13} of {whole:>13} documents{}", expected.unwrap_or_default())
    });
    let warnings = ready.iter().flat_map(|rule| rule.warnings.iter().map(|warning| (&rule.namespace, warning)));
    let lines = lines.chain(warnings.map(|(namespace, warning)| format!("  warning: {namespace}: {warning}")));
    let refused = rules.iter().filter(|rule| rule.status == Status::Refused);
    let lines = lines.chain(refused.map(|rule| format!("  refused: {}: {}", rule.namespace, rule.why().unwrap_or_default())));
    let total: u64 = ready.iter().filter_map(|rule| rule.expired_count).sum();
    let question = format!("delete {} from {}?", plural(total, "document"), plural(ready.len() as u64, "collection"));
    ask(stop, &lines.collect::<Vec<_>>(), &question, "nothing was deleted").await?;
    Ok(Consent::Given)
}

/// Shows some lines and a question, and waits for the answer. `nothing` says what was not done if the answer is not `yes`, such as
/// `nothing was deleted`.
///
/// Errors: any answer but the word `yes`, or a request to stop.
pub(super) async fn ask(stop: &Stop, lines: &[String], question: &str, nothing: &str) -> anyhow::Result<()> {
    show(lines, question)?;
    let answer = tokio::task::spawn_blocking(|| {
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).map(|_| answer)
    });
    let is_yes = tokio::select! {
        answer = answer => answer??.trim() == "yes",
        () = stop.asked() => false,
    };
    if is_yes {
        return Ok(());
    }
    let refused = Failure::cannot_run(format!("not confirmed: only the word `yes` confirms; {nothing}"));
    Err(if stop.is_asked() { stop.failure(nothing) } else { refused }.into())
}

fn show(lines: &[String], question: &str) -> io::Result<()> {
    let mut stderr = io::stderr().lock();
    write!(stderr, "{}{} [yes/no] ", page(lines), clean(question))?;
    stderr.flush()
}
