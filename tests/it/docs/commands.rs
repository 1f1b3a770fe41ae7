//! The parser of the command line accepts every command line of the documentation.

use std::collections::BTreeSet;
use std::ffi::OsString;

use clap::error::ErrorKind;
use ttl_sweeper::commands::cli::{self, Cli};

use super::pages;

/// Fails unless `sweeper` accepts the arguments.
pub(super) fn accepted(place: &str, args: &[String]) {
    if let Err(error) = read(args)
        && !matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion)
    {
        panic!("{place}: sweeper {}: {error}", args.join(" "));
    }
}

fn read(args: &[String]) -> Result<Cli, clap::Error> {
    let args: Vec<OsString> = std::iter::once("sweeper").chain(args.iter().map(String::as_str)).map(OsString::from).collect();
    Cli::read(&args)
}

/// Splits a simple command as a shell does, with quotes and comments.
pub(super) fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars() {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, _) if c.is_whitespace() => words.extend(word.take()),
            (None, _) => word.get_or_insert_default().push(c),
        }
    }
    assert!(quote.is_none(), "{line}: a quotation mark is open");
    words.into_iter().chain(word).collect()
}

/// Returns the arguments of `sweeper` in a line of a shell script, a crontab or a terminal session; `None` for other lines.
fn arguments(line: &str) -> Option<Vec<String>> {
    let mut words = words(line.strip_prefix("$ ").unwrap_or(line)).into_iter().skip_while(|word| {
        let is_time = word.chars().all(|c| c.is_ascii_digit() || "*/-,".contains(c));
        let is_variable = word.split_once('=').is_some_and(|(name, _)| name.chars().all(|c| c.is_ascii_uppercase() || c == '_'));
        is_time || is_variable
    });
    let program = words.next()?;
    (program == "sweeper" || program.ends_with("/sweeper")).then(|| words.take_while(|word| word != "|" && word != ";").collect())
}

#[test]
fn every_command_line_is_accepted() {
    let mut seen = 0;
    for page in pages::all() {
        for block in page.blocks(&["sh", "cron"]) {
            for args in block.text.lines().filter_map(arguments) {
                accepted(&block.place, &args);
                seen += 1;
            }
        }
        // Terminal sessions: only lines with a prompt are commands.
        for block in page.blocks(&["console", "text"]) {
            for args in block.text.lines().filter(|line| line.starts_with("$ ")).filter_map(arguments) {
                accepted(&block.place, &args);
                seen += 1;
            }
        }
    }
    assert!(seen > 25, "{seen}");
}

#[test]
fn commands_named_in_the_text_exist() {
    let mut seen = 0;
    for page in pages::all() {
        for (place, code) in page.code().filter(|(_, code)| code.starts_with("sweeper ") && !code.starts_with("sweeper COMMAND"))
        {
            let args = arguments(code).unwrap_or_else(|| panic!("{place}: {code}"));
            seen += 1;
            match read(&args) {
                Ok(_) => {}
                // The text may mention a command without its required arguments.
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::DisplayHelp
                            | ErrorKind::MissingRequiredArgument
                            | ErrorKind::MissingSubcommand
                            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                    ) => {}
                Err(error) => panic!("{place}: {code}: {error}"),
            }
        }
    }
    assert!(seen > 20, "{seen}");
}

/// Returns the long options of a command and of all its subcommands.
fn options(command: &clap::Command) -> BTreeSet<String> {
    let own = command.get_arguments().filter_map(clap::Arg::get_long).map(|name| format!("--{name}"));
    own.chain(command.get_subcommands().flat_map(options)).collect()
}

#[test]
fn options_named_in_the_text_exist() {
    let mut command = cli::command_line();
    command.build();
    let known = options(&command);
    let mut seen = 0;
    for page in pages::all() {
        for (place, code) in page.code().filter(|(_, code)| code.starts_with("--")) {
            let name = code.split([' ', '=']).next().expect("a word");
            assert!(known.contains(name), "{place}: {code}");
            seen += 1;
        }
    }
    assert!(seen > 30, "{seen}");
}

#[test]
fn the_readme_lists_every_command() {
    let readme = pages::one("README.md");
    let rows: Vec<String> =
        readme.prose().filter(|(_, line)| line.starts_with("| `sweeper ")).map(|(_, line)| line.to_owned()).collect();
    for command in cli::command_line().get_subcommands().filter(|command| command.get_name() != "help") {
        let name = command.get_name();
        let named = |row: &String| row.starts_with(&format!("| `sweeper {name}")) || row.contains(&format!(", `{name}`"));
        assert!(rows.iter().any(named), "{name}");
    }
}
