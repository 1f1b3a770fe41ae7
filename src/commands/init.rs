//! `sweeper init`: writes a first policy, from options or from the answers to a few questions. Changes nothing in the deployment.

use std::io::{self, IsTerminal, Write};
use std::path::Path;

use super::interview;
use super::session::outputs;
use crate::base::failure::Failure;
use crate::base::text::plural;
use crate::base::{exit, terminal};
use crate::commands::cli::{Common, InitArgs};
use crate::core::policy::answer::Answer;

/// Asks for what the options leave open, and writes the policy. Returns the exit code.
///
/// Errors: the file exists, an option is invalid, or there is no terminal to ask on; then nothing was written.
pub(super) async fn command(options: &Common, args: &InitArgs) -> anyhow::Result<u8> {
    let path = match options.output.as_slice() {
        [] => &options.policy,
        several => outputs::single(several.iter().collect(), "init")?,
    };
    let shown = path.display().to_string();
    let target = outputs::open_new(path, args.force)?;
    judge(args)?;
    let missing: Vec<&str> = [("--namespace", &args.namespace), ("--field", &args.field), ("--expire-after", &args.expire_after)]
        .into_iter()
        .filter(|(_, given)| given.is_empty())
        .map(|(option, _)| option)
        .collect();
    let draft = match missing.as_slice() {
        [] => interview::unasked(options, args).await?,
        _ if io::stdin().is_terminal() => interview::interview(options, args).await?,
        _ => {
            let missing = missing.join(", ");
            let failure =
                format!("writing the policy `{shown}`: no terminal to ask on; also expected {missing}; nothing was written");
            return Err(Failure::usage(failure).into());
        }
    };
    // Answers that are valid by themselves can still contradict each other; a sweep must accept the file.
    draft.check(&shown).map_err(|invalid| Failure::usage(invalid.to_string()))?;
    target.write(&draft.yaml()).map_err(|cause| Failure::cannot_run(format!("writing the policy `{shown}`: {cause}")))?;
    if !options.quiet {
        next_steps(options, path)?;
    }
    Ok(exit::DONE)
}

/// Checks each option by itself, before anything is asked.
fn judge(args: &InitArgs) -> Result<(), Failure> {
    let percent: Vec<String> = args.max_delete_percent.iter().map(f64::to_string).collect();
    for (option, answer, given) in [
        ("--namespace", Answer::Namespace, &args.namespace),
        ("--field", Answer::Field, &args.field),
        ("--expire-after", Answer::ExpireAfter, &args.expire_after),
        ("--ttl-field", Answer::TtlField, &args.ttl_field),
        ("--date-format", Answer::DateFormat, &args.date_format),
        ("--max-delete-percent", Answer::MaxDeletePercent, &percent),
    ] {
        let usage = |why: String| Failure::usage(format!("{option}: {why}; nothing was written"));
        given.iter().try_for_each(|text| answer.check(text)).map_err(usage)?;
        let rules = args.namespace.len();
        if answer != Answer::Namespace && given.len() > 1 && given.len() != rules {
            let (given, rules) = (plural(given.len() as u64, "value"), plural(rules as u64, "--namespace"));
            return Err(usage(format!("{given} for {rules}; expected one for all rules, or one for each, in the same order")));
        }
    }
    Ok(())
}

/// Prints the name of the file and the next commands.
fn next_steps(options: &Common, path: &Path) -> io::Result<()> {
    let mut stderr = terminal::stderr();
    if path.as_os_str() != "-" {
        writeln!(stderr, "wrote {}", path.display())?;
    }
    if options.uri.is_some() || options.uri_file.is_some() {
        writeln!(stderr, "The file does not contain the connection string; it refers to ${{MONGODB_URI}}.")?;
    }
    let named = if path == Path::new("sweeper.yaml") { String::new() } else { format!(" -p {}", path.display()) };
    writeln!(stderr, "Now:")?;
    if std::env::var_os("MONGODB_URI").is_none() {
        writeln!(stderr, "  export MONGODB_URI='mongodb://...'")?;
    }
    let width = 24 + named.len();
    for (command, what) in [
        ("check", "is it right?"),
        ("check --connect", "does it fit the deployment?"),
        ("sweep --dry-run", "what would go? deletes nothing"),
    ] {
        writeln!(stderr, "  {:<width$}  {what}", format!("sweeper {command}{named}"))?;
    }
    Ok(())
}
