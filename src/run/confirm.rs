//! The question before the first delete.

use std::io::{self, IsTerminal, Write};

use crate::report::text::{clean, count, plural};
use crate::report::{RuleReport, Status};
use crate::server::grant::Consent;
use crate::stop::Stop;

/// Whether there is somebody to ask.
pub fn can_ask(yes: bool) -> bool {
    !yes && io::stdin().is_terminal()
}

/// Shows what would go and asks. Only the word `yes` is a yes; a signal is a no.
pub async fn ask(stop: &Stop, rules: &[RuleReport]) -> io::Result<Consent> {
    let ready: Vec<&RuleReport> =
        rules.iter().filter(|rule| rule.status == Status::Complete && rule.expired_count != Some(0)).collect();
    if ready.is_empty() {
        return Ok(Consent::NothingToDelete);
    }
    show(&ready)?;
    answer(stop).await
}

/// Waits for the answer to a question that was asked. Only the word `yes` is a yes; a signal is a no.
pub async fn answer(stop: &Stop) -> io::Result<Consent> {
    let answer = tokio::task::spawn_blocking(|| {
        let mut answer = String::new();
        io::stdin().read_line(&mut answer).map(|_| answer)
    });
    tokio::select! {
        answer = answer => Ok(if answer.map_err(io::Error::other)??.trim() == "yes" { Consent::Given } else { Consent::Refused }),
        () = stop.asked() => Ok(Consent::Refused),
    }
}

fn show(ready: &[&RuleReport]) -> io::Result<()> {
    let mut stderr = io::stderr().lock();
    let width = ready.iter().map(|rule| clean(&rule.namespace).chars().count()).max().unwrap_or(0);
    for rule in ready {
        let expired = rule.expired_count.map_or_else(|| "?".to_owned(), count);
        let whole = rule.document_count.map_or_else(|| "?".to_owned(), count);
        writeln!(stderr, "  {:<width$}  {expired:>13} of {whole:>13} documents", clean(&rule.namespace))?;
    }
    let total: u64 = ready.iter().filter_map(|rule| rule.expired_count).sum();
    write!(stderr, "delete {} from {}? [yes/no] ", plural(total, "document"), plural(ready.len() as u64, "collection"))?;
    stderr.flush()
}
