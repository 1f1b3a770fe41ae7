//! `sweeper schema`, `completions` and `man`: descriptions of the program for editors, shells and readers.

use std::path::Path;
use std::{fs, io};

use clap::Command;
use clap_mangen::Man;

use super::session::outputs::SingleOutput;
use crate::base::exit;
use crate::base::failure::Failure;
use crate::commands::cli::{self, Common, CompletionsArgs, ManArgs, SchemaArgs, SchemaOf};
use crate::core::policy;
use crate::core::report::history::History;
use crate::core::report::native::NativeReport;
use crate::core::report::reclaim::ReclaimReport;
use crate::core::report::{Report, json};

/// Environment variables, each with the option that it stands for.
const ENVIRONMENT: [(&str, &str, &str); 2] = [
    ("uri", "MONGODB_URI", "Connection string, unless \\-\\-uri gives one"),
    ("policy", "SWEEPER_POLICY", "The policy, unless \\-\\-policy names one"),
];

/// Writes a JSON Schema, or the documentation of the policy's keys.
///
/// Errors: the file cannot be created.
pub(super) fn schema(options: &Common, args: &SchemaArgs) -> anyhow::Result<u8> {
    let schema = match args.of {
        SchemaOf::Policy => policy::schema::json_schema(),
        SchemaOf::Keys => policy::docs::keys_as_markdown(),
        SchemaOf::Report => json::schema::<Report>(),
        SchemaOf::History => json::schema::<History>(),
        SchemaOf::Native => json::schema::<NativeReport>(),
        SchemaOf::Reclaim => json::schema::<ReclaimReport>(),
    };
    write(options, "schema", "the schema", &schema)
}

/// Writes the completions of a shell.
///
/// Errors: the file cannot be created.
pub(super) fn completions(options: &Common, args: &CompletionsArgs) -> anyhow::Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut cli::command_line(), "sweeper", &mut script);
    write(options, "completions", "the completions", &String::from_utf8(script)?)
}

/// Writes the manual page of `sweeper`, or with `--directory` one for each command.
///
/// Errors: a file cannot be written.
pub(super) fn man(options: &Common, args: &ManArgs) -> anyhow::Result<u8> {
    let mut command = cli::command_line().disable_help_subcommand(true);
    command.build();
    let Some(directory) = &args.directory else {
        return write(options, "man", "the manual page", &page(&command)?);
    };
    pages(&command, directory)
        .map_err(|cause| Failure::cannot_run(format!("writing manual pages to `{}`: {cause}", directory.display())))?;
    Ok(exit::DONE)
}

fn pages(command: &Command, directory: &Path) -> io::Result<()> {
    fs::create_dir_all(directory)?;
    fs::write(directory.join(Man::new(command.clone()).get_filename()), page(command)?)?;
    command.get_subcommands().filter(|inner| !inner.is_hide_set()).try_for_each(|inner| pages(inner, directory))
}

/// Renders a manual page section by section, because `Man::render` would join the lines of the examples.
fn page(command: &Command) -> io::Result<String> {
    let man = Man::new(command.clone()).source(concat!("sweeper ", env!("CARGO_PKG_VERSION"))).manual("sweeper");
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    synopsis(command).render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    if command.has_subcommands() {
        man.render_subcommands_section(&mut page)?;
    }
    man.render_options_section(&mut page)?;
    let mut page = String::from_utf8(page).map_err(io::Error::other)?;
    page.push_str(&environment(command));
    let after = command.get_after_long_help().or(command.get_after_help()).map(ToString::to_string).unwrap_or_default();
    for line in after.lines() {
        match line.strip_suffix(':').filter(|_| !line.starts_with(' ')) {
            Some(title) => page.push_str(&format!(".SH {}\n.nf\n", title.to_uppercase())),
            None if line.is_empty() => page.push_str(".fi\n"),
            None => page.push_str(&format!("{}\n", roff(line.strip_prefix("  ").unwrap_or(line)))),
        }
    }
    if !after.is_empty() {
        page.push_str(".fi\n");
    }
    Ok(page)
}

/// Returns a page whose synopsis names only the options that are the command's own.
fn synopsis(command: &Command) -> Man {
    Man::new(command.clone().mut_args(|arg| match arg.get_help_heading() {
        Some(cli::COMMON) => arg.hide(true),
        _ => arg,
    }))
}

/// Returns the section about the variables that mean something for a command.
fn environment(command: &Command) -> String {
    let is_shown = |id: &str| command.get_arguments().any(|arg| arg.get_id() == id && !arg.is_hide_set());
    let shown = ENVIRONMENT.iter().filter(|(option, ..)| is_shown(option));
    let entries: String = shown.map(|(_, variable, meaning)| format!(".TP\n\\fB{variable}\\fR\n{meaning}\n")).collect();
    if entries.is_empty() { entries } else { format!(".SH ENVIRONMENT\n{entries}") }
}

/// Escapes a line, so that roff takes it as text.
fn roff(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line }
}

fn write(options: &Common, command: &str, what: &str, text: &str) -> anyhow::Result<u8> {
    SingleOutput::without_format(options, command)?.open()?.write(what, text)?;
    Ok(exit::DONE)
}
