//! Confirmation before the first change.

use std::io::{self, IsTerminal};

use crate::base::failure::Failure;
use crate::base::stop::Stop;
use crate::base::text::fold_to;
use crate::base::{output, terminal};
use crate::core::report::{Report, preview};
use crate::shell::server::delete::grant::Consent;

/// Whether to ask: standard input is a terminal, and `--yes` is not given.
pub(crate) fn can_ask(yes: bool) -> bool {
    !yes && io::stdin().is_terminal()
}

/// Shows what a sweep deletes at most, and asks for confirmation. `report` is the report of a run that has deleted nothing yet.
///
/// Errors: as for [`ask`].
pub(crate) async fn ask_to_delete(stop: &Stop, report: &Report, colored: bool) -> anyhow::Result<Consent> {
    let Some(question) = preview::question(report) else { return Ok(Consent::NothingToDelete) };
    let width = output::terminal_width(io::stderr());
    let longer = format!("{question} `?` shows everything");
    let most = output::terminal_height(io::stderr()).saturating_sub(lines(&longer).len());
    let shown = preview::above_question(report, width, Some(most));
    let everything = preview::above_question(report, width, None);
    let question = if shown.is_whole { question } else { longer };
    ask(stop, &shown.text(colored), &everything.text(colored), &question, "nothing was deleted").await?;
    Ok(Consent::Given)
}

/// Shows some lines and a question, and waits for the answer; the answer `?` shows `everything` and the question again. The texts
/// are safe to print. `nothing` says what was not done if the answer is not `yes`, such as `nothing was deleted`.
///
/// Errors: any answer but the word `yes`, or a request to stop.
pub(crate) async fn ask(stop: &Stop, shown: &str, everything: &str, question: &str, nothing: &str) -> anyhow::Result<()> {
    let mut text = shown;
    loop {
        let asked = format!("{text}{} ", lines(question).join("\n"));
        let answer = stop.idle(async {
            tokio::select! {
                answer = answer_to(asked) => Some(answer),
                () = stop.asked() => None,
            }
        });
        let Some(answer) = answer.await else { return Err(stop.failure(nothing).into()) };
        match answer?.trim() {
            _ if stop.is_asked() => return Err(stop.failure(nothing).into()),
            "yes" => return Ok(()),
            "?" => text = everything,
            _ => return Err(Failure::cannot_run(format!("not confirmed: only the word `yes` confirms; {nothing}")).into()),
        }
    }
}

/// Shows a question, and reads the line that a person types. Dropped, it leaves a thread behind that waits for it.
pub(crate) async fn answer_to(question: String) -> io::Result<String> {
    let typed = tokio::task::spawn_blocking(move || {
        terminal::show(&question)?;
        let mut line = String::new();
        io::stdin().read_line(&mut line).map(|_| line)
    });
    typed.await.map_err(io::Error::other).flatten()
}

/// Returns the lines of a question, safe to print.
fn lines(question: &str) -> Vec<String> {
    fold_to(&format!("{question} [yes/no]"), "", output::terminal_width(io::stderr()))
}
