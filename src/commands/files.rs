//! The files of one command line: what a run writes takes the place of nothing that it was given beside.

use std::path::Path;

use super::deliver;
use crate::cli::{Common, SweepArgs};
use crate::failure::Failure;
use crate::output;

/// Errors: a report or the metrics would replace the policy, the saved plan, the file of the lock, or one another.
pub fn apart(common: &Common, args: Option<&SweepArgs>) -> Result<(), Failure> {
    let outputs = deliver::places(common);
    let mut files: Vec<(&str, &Path)> = vec![("--policy", &common.policy)];
    files.extend(args.and_then(|args| args.lock.as_deref()).map(|path| ("--lock", path)));
    files.extend(args.and_then(|args| args.plan.as_deref()).map(|path| ("--plan", path)));
    let metrics = args.and_then(|args| args.metrics_file.as_deref()).map(|path| ("--metrics-file", path));
    let written: Vec<(&str, &Path)> =
        metrics.into_iter().chain(outputs.iter().map(|path| ("--output", path.as_path()))).collect();
    for (written, path) in written {
        // `-` is a stream, and what is no regular file is not replaced.
        if output::is_stdout(path) || (path.exists() && !path.is_file()) {
            continue;
        }
        let is_same = |other: &&(&str, &Path)| output::canonical(other.1) == output::canonical(path);
        if let Some((other, _)) = files.iter().find(is_same) {
            let failure =
                Failure::usage(format!("{written}: `{}` is the file of {other}; nothing was contacted", path.display()));
            return Err(failure.hint("it would be overwritten; name a file of its own"));
        }
        if written == "--metrics-file" {
            files.push((written, path));
        }
    }
    Ok(())
}
