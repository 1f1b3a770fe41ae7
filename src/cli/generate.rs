//! Options of the commands that write out what belongs to the program: schemas, completions, manual pages.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use clap_complete::Shell;

#[derive(Debug, Args)]
pub struct SchemaArgs {
    /// Of what
    #[arg(value_name = "OF", default_value = "policy")]
    pub of: SchemaOf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SchemaOf {
    /// The policy, draft-07: for editors
    Policy,
    /// The keys of the policy, as Markdown: for people
    Keys,
    /// The report of `--format json`, draft 2020-12
    Report,
}

#[derive(Debug, Args)]
pub struct CompletionsArgs {
    pub shell: Shell,
}

#[derive(Debug, Args)]
pub struct ManArgs {
    /// Write a page for each command into this directory
    #[arg(long, value_name = "DIR", conflicts_with = "output")]
    pub directory: Option<PathBuf>,
}
