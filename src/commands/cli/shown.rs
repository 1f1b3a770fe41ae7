//! Which common options the help of a command shows.

use clap::Arg;

/// Common options that the short help shows. `--help` shows them all.
const IN_SHORT_HELP: [&str; 5] = ["policy", "uri", "only", "output", "format"];

/// Options of commands that only print.
const NEEDS_NOTHING: [&str; 7] = ["policy", "uri", "uri_file", "only", "format", "progress", "color"];

/// Common options that mean nothing for a command: its help leaves them out. They are accepted all the same, so that a shell's
/// alias with such an option serves every command.
const MEANINGLESS: [(&str, &[&str]); 13] = [
    ("init", &["only", "format", "progress", "color"]),
    ("check", &["progress"]),
    ("diff", &["policy", "uri", "uri_file", "progress"]),
    ("history", &["progress"]),
    ("why", &["only", "progress", "color"]),
    ("archive", &["policy", "uri", "uri_file", "progress", "color"]),
    ("restore", &["progress", "color"]),
    ("import", &["format", "progress", "color"]),
    ("native", &["progress"]),
    ("reclaim", &["progress"]),
    ("schema", &NEEDS_NOTHING),
    ("completions", &NEEDS_NOTHING),
    ("man", &NEEDS_NOTHING),
];

/// Returns the common options as the help of a command of the first level and of its subcommands shows them.
pub(super) fn common(command: &str, options: &[Arg]) -> Vec<Arg> {
    let meaningless = MEANINGLESS.iter().find(|(name, _)| *name == command).map_or(&[][..], |(_, options)| options);
    let shown = |arg: &Arg| {
        let id = arg.get_id().as_str();
        arg.clone().hide(meaningless.contains(&id)).hide_short_help(!IN_SHORT_HELP.contains(&id))
    };
    options.iter().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::commands::cli::Cli;

    #[test]
    fn the_tables_name_commands_and_common_options() {
        let root = Cli::command();
        let options: Vec<&str> = root.get_arguments().map(|arg| arg.get_id().as_str()).collect();
        for (command, meaningless) in MEANINGLESS {
            assert!(root.find_subcommand(command).is_some(), "{command}");
            for option in meaningless.iter().chain(&IN_SHORT_HELP) {
                assert!(options.contains(option), "{command}: {option}");
            }
        }
    }

    #[test]
    fn a_command_shows_what_means_something_for_it() {
        let options: Vec<Arg> = Cli::command().get_arguments().cloned().collect();
        let shown = |command: &str| -> Vec<String> {
            let common = common(command, &options);
            common.iter().filter(|arg| !arg.is_hide_set()).map(|arg| arg.get_id().to_string()).collect()
        };
        assert_eq!(shown("sweep").len(), options.len());
        assert_eq!(shown("schema"), ["output", "log_format", "verbose", "quiet"]);
        assert!(
            common("sweep", &options)
                .iter()
                .all(|arg| arg.is_hide_short_help_set() != IN_SHORT_HELP.contains(&arg.get_id().as_str()))
        );
    }
}
