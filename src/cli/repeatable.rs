//! Options that may be given several times, before the command and after it. clap alone would keep the values of one place only.

use std::ffi::OsString;

use clap::{ArgAction, ArgMatches, Command, CommandFactory, Parser};

use super::Cli;

impl Cli {
    /// Reads a command line, whose first word is the program's name.
    ///
    /// Errors: what is wrong with it, or the help that it asks for.
    pub fn read(args: &[OsString]) -> Result<Self, clap::Error> {
        let mut cli = Self::try_parse_from(args)?;
        let places = by_place(Self::command()).try_get_matches_from(args)?;
        cli.common.only = all(&places, "only");
        cli.common.output = all(&places, "output");
        cli.common.format = all(&places, "format");
        Ok(cli)
    }
}

/// The same command line, but each place keeps what was given there.
fn by_place(command: Command) -> Command {
    let is_repeatable = |arg: &clap::Arg| arg.is_global_set() && matches!(arg.get_action(), ArgAction::Append);
    let own: Vec<_> = command.get_arguments().filter(|arg| is_repeatable(arg)).map(|arg| arg.clone().global(false)).collect();
    let command = command.mut_args(|arg| if is_repeatable(&arg) { arg.global(false) } else { arg });
    with_args(command, &own)
}

fn with_args(command: Command, own: &[clap::Arg]) -> Command {
    command.mut_subcommands(|inner| with_args(inner.args(own), own))
}

/// The values of all places in the order of the command line.
fn all<T: Clone + Send + Sync + 'static>(places: &ArgMatches, id: &str) -> Vec<T> {
    let here = places.get_many(id).into_iter().flatten().cloned();
    let after = places.subcommand().map(|(_, inner)| all(inner, id));
    here.chain(after.into_iter().flatten()).collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::cli::Common;
    use crate::report::Format;

    fn read(line: &str) -> Common {
        let args: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        Cli::read(&args).unwrap_or_else(|error| panic!("{line}: {error}")).common
    }

    #[test]
    fn values_before_and_after_the_command_all_count_in_their_order() {
        for line in [
            "sweeper -o a.json -o b.json --only a --only b --format json --format html sweep",
            "sweeper -o a.json --only a --format json sweep -o b.json --only b --format html",
            "sweeper sweep -o a.json -o b.json --only a --only b --format json --format html",
            "sweeper -o a.json --only a --format json native diff -o b.json --only b --format html",
            "sweeper native -o a.json --only a --format json diff -o b.json --only b --format html",
        ] {
            let common = read(line);
            assert_eq!(common.output, ["a.json", "b.json"].map(PathBuf::from), "{line}");
            assert_eq!(common.only, ["a", "b"], "{line}");
            assert_eq!(common.format, [Format::Json, Format::Html], "{line}");
        }
        let common = read("sweeper --only a native --only b diff --only c");
        assert_eq!(common.only, ["a", "b", "c"]);
        assert!(common.output.is_empty() && common.format.is_empty());
    }
}
