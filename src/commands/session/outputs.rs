//! Outputs of a command: found, checked and opened before anything is contacted, written when the command is done.

use std::io::{ErrorKind, IsTerminal};
use std::path::{Path, PathBuf};

use serde::Serialize;
use tracing::{error, info, warn};

use crate::base::exit;
use crate::base::failure::Failure;
use crate::base::log;
use crate::base::output::{self, OutputTarget, Readers};
use crate::base::text::plural;
use crate::commands::cli::{Common, SweepArgs};
use crate::core::report::{self, Format, Report, TableStyle, json};

/// An open output and the format of what is written to it.
pub(crate) struct Output {
    pub target: OutputTarget,
    pub format: Format,
    /// Name in messages.
    place: String,
}

impl Output {
    /// Checks that a place can be written.
    ///
    /// Errors: it cannot.
    fn open(path: &Path, format: Format, readers: Readers) -> Result<Self, Failure> {
        let place = place(path);
        match OutputTarget::open(path, readers) {
            Ok(target) => Ok(Self { target, format, place }),
            Err(cause) => Err(Failure::cannot_run(format!("creating the report {place}: {cause}; nothing was deleted"))),
        }
    }

    pub(crate) fn is_stdout(&self) -> bool {
        matches!(self.target, OutputTarget::Stdout)
    }

    /// Whether a file is written as a whole, and no pipe, device or standard output.
    fn is_file(&self) -> bool {
        matches!(self.target, OutputTarget::Replace(..) | OutputTarget::Create(..))
    }

    /// Renders a report as JSON, or as text for any other format.
    pub(crate) fn json_or_text<T: Serialize>(&self, report: &T, to_text: impl Fn(&T) -> String) -> String {
        if self.format == Format::Json { json::render(report) } else { to_text(report) }
    }

    /// Returns the look of text that is written there.
    pub(crate) fn look(&self, options: &Common) -> TableStyle {
        if self.is_stdout() { look(options) } else { TableStyle { is_detailed: options.verbose > 0, ..TableStyle::default() } }
    }

    /// Writes the text of a command with a single output; `what` names the text in messages.
    ///
    /// Errors: it cannot be written.
    pub(crate) fn write(self, what: &str, text: &str) -> Result<(), Failure> {
        let is_file = self.is_file();
        let Self { target, place, .. } = self;
        target.write(text).map_err(|cause| Failure::cannot_run(format!("writing {what} to {place}: {cause}")))?;
        wrote(&place, is_file);
        Ok(())
    }
}

/// Refuses outputs that would overwrite another file of the same command line.
///
/// Errors: a report or the metrics would replace the policy, the saved plan, the lock file, or each other.
pub(crate) fn check_conflicts(options: &Common, args: Option<&SweepArgs>) -> Result<(), Failure> {
    let outputs = places(options);
    let mut files: Vec<(&str, &Path)> = vec![("--policy", &options.policy)];
    files.extend(args.and_then(|args| args.lock.as_deref()).map(|path| ("--lock", path)));
    files.extend(args.and_then(|args| args.plan.as_deref()).map(|path| ("--plan", path)));
    let metrics = args.and_then(|args| args.metrics_file.as_deref()).map(|path| ("--metrics-file", path));
    let written: Vec<(&str, &Path)> =
        metrics.into_iter().chain(outputs.iter().map(|path| ("--output", path.as_path()))).collect();
    for (option, path) in written {
        // Standard output, pipes and devices are written to directly, so nothing is replaced.
        if output::is_stdout(path) || (path.exists() && !path.is_file()) {
            continue;
        }
        let is_same = |other: &&(&str, &Path)| output::canonical(other.1) == output::canonical(path);
        if let Some((other, _)) = files.iter().find(is_same) {
            let failure = Failure::usage(format!("{option}: `{}` is the file of {other}; nothing was contacted", path.display()));
            return Err(failure.hint("it would be overwritten; name a file of its own"));
        }
        if option == "--metrics-file" {
            files.push((option, path));
        }
    }
    Ok(())
}

/// Reads `--output` and `--format`. The first format belongs to the first output and so on; outputs without a format take it from
/// their extension. Without any output the report goes to standard output.
///
/// Errors: more formats than outputs, an unknown extension, or an output that is given twice.
pub(crate) fn pair(options: &Common) -> Result<Vec<(PathBuf, Format)>, Failure> {
    let places = places(options);
    if options.format.len() > places.len() {
        let failure = Failure::usage(format!(
            "--format: {} for {}; expected no more formats than outputs; nothing was contacted",
            plural(options.format.len() as u64, "format"),
            plural(places.len() as u64, "output"),
        ));
        return Err(failure.hint("give each format its own output, such as `--format html -o audit.html --format json -o -`"));
    }
    for (index, path) in places.iter().enumerate() {
        if places[..index].iter().any(|earlier| output::canonical(earlier) == output::canonical(path)) {
            let failure = Failure::usage(format!("--output: {} is given twice; nothing was contacted", place(path)));
            return Err(failure.hint("each output needs a file of its own; one of them may be `-`, standard output"));
        }
    }
    let formats = options.format.iter().copied().map(Some).chain(std::iter::repeat(None));
    places
        .into_iter()
        .zip(formats)
        .map(|(path, format)| Ok((path.clone(), format.map_or_else(|| by_extension(&path), Ok)?)))
        .collect()
}

/// Returns the paths of `--output`; standard output if none is given.
fn places(options: &Common) -> Vec<PathBuf> {
    if options.output.is_empty() { vec![PathBuf::from("-")] } else { options.output.clone() }
}

fn by_extension(path: &Path) -> Result<Format, Failure> {
    let Some(extension) = path.extension().and_then(|extension| extension.to_str()) else { return Ok(Format::Table) };
    Format::of_extension(extension).ok_or_else(|| {
        Failure::usage(format!(
            "--output: the extension `.{extension}` stands for no format; expected .html, .json, .csv, .md or .txt, or --format"
        ))
    })
}

/// Opens all outputs.
///
/// Errors: the first that cannot be written.
pub(crate) fn open(pairs: Vec<(PathBuf, Format)>) -> Result<Vec<Output>, Failure> {
    pairs.into_iter().map(|(path, format)| Output::open(&path, format, Readers::Group)).collect()
}

/// The output of a command that has exactly one, not yet open.
pub(crate) struct SingleOutput {
    path: PathBuf,
    format: Format,
    readers: Readers,
}

impl SingleOutput {
    /// Reads `--output` and `--format` of a command that has only the `known` formats.
    ///
    /// Errors: several outputs, or another format.
    pub(crate) fn with_format(options: &Common, command: &str, known: &[Format]) -> Result<Self, Failure> {
        let (path, format) = single(pair(options)?, command)?;
        if known.contains(&format) {
            return Ok(Self { path, format, readers: Readers::Group });
        }
        let names: Vec<String> = known.iter().map(|format| format!("`{}`", format.name())).collect();
        let (last, others) = names.split_last().expect("every command has a format");
        Err(Failure::usage(format!("--format: {command} knows {} and {last}; nothing was contacted", others.join(", "))))
    }

    /// Reads `--output` of a command that writes only one format, and no report.
    ///
    /// Errors: several outputs, or a format.
    pub(crate) fn without_format(options: &Common, command: &str) -> Result<Self, Failure> {
        if !options.format.is_empty() {
            return Err(Failure::usage(format!("--format: {command} writes only one format; nothing was contacted")));
        }
        Ok(Self { path: single(places(options), command)?, format: Format::Table, readers: Readers::All })
    }

    /// Checks that a policy can be written there, and replaces an existing file only if it is forced to.
    ///
    /// Errors: the file exists, or it cannot be written.
    pub(crate) fn open_new(self, force: bool) -> Result<Output, Failure> {
        Ok(Output { target: open_new(&self.path, force)?, format: self.format, place: place(&self.path) })
    }

    /// Checks that the output can be written.
    ///
    /// Errors: it cannot.
    pub(crate) fn open(self) -> Result<Output, Failure> {
        Output::open(&self.path, self.format, self.readers)
    }
}

/// Checks that a policy can be written, and replaces an existing file only if it is forced to.
///
/// Errors: the file exists, or it cannot be written.
pub(crate) fn open_new(path: &Path, force: bool) -> Result<OutputTarget, Failure> {
    let open = if force { OutputTarget::open } else { OutputTarget::create };
    let target = open(path, Readers::All);
    target.map_err(|cause| {
        let shown = path.display();
        if cause.kind() == ErrorKind::AlreadyExists {
            return Failure::usage(format!("writing the policy `{shown}`: it already exists; nothing was written"))
                .hint("--force replaces it; -o FILE writes another one");
        }
        Failure::cannot_run(format!("writing the policy `{shown}`: {cause}; nothing was written"))
    })
}

/// Returns the only output of a command that cannot have several.
///
/// Errors: there are several.
pub(crate) fn single<T>(outputs: Vec<T>, command: &str) -> Result<T, Failure> {
    let given = outputs.len();
    let several = format!("--output: {command} writes to one output, {given} are given; nothing was contacted");
    <[T; 1]>::try_from(outputs).map(|[output]| output).map_err(|_| Failure::usage(several))
}

/// Writes the report of a command with a single output. If the exit code is not 0 and the report is not on standard output, logs
/// `summary`, which says how the command ended. Returns the exit code.
///
/// Errors: the report cannot be written.
pub(crate) fn deliver_single(options: &Common, output: Output, text: &str, exit_code: u8, summary: &str) -> Result<u8, Failure> {
    let is_stdout = output.is_stdout();
    if !(is_stdout && options.quiet) {
        output.write("the report", text).map_err(|failure| failure.also(summary))?;
    }
    if exit_code != exit::DONE && (options.quiet || !is_stdout) {
        error!("{summary}");
    }
    Ok(exit_code)
}

/// Writes the report to every output, even if one of them fails. If the exit code is not 0 and the report is not on standard
/// output, logs the reason. Returns the exit code.
///
/// For a process that `stays`, to run again, it is no error that another run is at work.
pub(crate) fn deliver(options: &Common, report: &Report, outputs: Vec<Output>, stays: bool) -> u8 {
    let (mut is_shown, mut is_written) = (false, false);
    let mut unwritten = Vec::new();
    for output in outputs {
        let (to_stdout, is_file, look) = (output.is_stdout(), output.is_file(), output.look(options));
        let Output { target, format, place } = output;
        if to_stdout && options.quiet {
            continue;
        }
        is_shown |= to_stdout;
        match target.write(&report::render(report, format, look)) {
            Ok(()) => {
                is_written = true;
                wrote(&place, is_file);
            }
            Err(cause) => unwritten.push((format!("to {place}: {cause}"), format)),
        }
    }
    if let Some((_, format)) = unwritten.first() {
        let deleted = plural(report.totals.deleted_count, "document");
        let causes: Vec<&str> = unwritten.iter().map(|(cause, _)| cause.as_str()).collect();
        error!("writing the report {}; the run itself is over, {deleted} deleted", causes.join("; "));
        if !(is_written || is_shown || options.quiet) {
            // A person reads no page of HTML, but a script behind a pipe may wait for the format that it has asked for.
            let format = if std::io::stdout().is_terminal() { Format::Table } else { *format };
            if output::to_stdout(&report::render(report, format, look(options))).is_ok() {
                warn!("the report was written to standard output instead");
            }
        }
        return exit::CANNOT_RUN;
    }
    if ![exit::DONE, exit::FOUND].contains(&report.exit_code) && !is_shown {
        let reason = report::reason(report);
        match report.exit_code {
            exit::LOCKED if stays => warn!("{reason}"),
            _ => error!("{reason}"),
        }
    }
    report.exit_code
}

/// Returns the look of text on standard output.
fn look(options: &Common) -> TableStyle {
    let stdout = std::io::stdout();
    let colored = options.color.decide(stdout.is_terminal());
    TableStyle { colored, width: output::terminal_width(stdout), is_detailed: options.verbose > 0 }
}

/// Says which file was written.
fn wrote(place: &str, is_file: bool) {
    if is_file {
        info!(target: log::PROGRESS, "wrote {place}");
    }
}

/// Returns the name of an output in messages.
fn place(path: &Path) -> String {
    if output::is_stdout(path) { "standard output".to_owned() } else { format!("`{}`", path.display()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::cli::{Cli, Command};

    fn read(line: &str) -> Cli {
        let args: Vec<_> = line.split(' ').map(std::ffi::OsString::from).collect();
        Cli::read(&args).unwrap_or_else(|error| panic!("{line}: {error}"))
    }

    fn paired(line: &str) -> Result<Vec<(String, Format)>, String> {
        let pairs = pair(&read(line).common).map_err(|failure| failure.message)?;
        Ok(pairs.into_iter().map(|(path, format)| (path.display().to_string(), format)).collect())
    }

    #[test]
    fn formats_go_to_outputs_in_order_and_the_others_take_theirs_from_the_extension() {
        let pair = |path: &str, format| (path.to_owned(), format);
        assert_eq!(paired("sweeper audit"), Ok(vec![pair("-", Format::Table)]));
        assert_eq!(paired("sweeper audit --format json"), Ok(vec![pair("-", Format::Json)]));
        let both = vec![pair("a.csv", Format::Html), pair("b.json", Format::Json), pair("c", Format::Table)];
        assert_eq!(paired("sweeper audit --format html -o a.csv -o b.json -o c"), Ok(both));
    }

    #[test]
    fn outputs_that_cannot_be_meant_are_refused() {
        for (line, why) in [
            ("sweeper audit --format json --format html -o a", "2 formats for 1 output"),
            ("sweeper audit -o a.json -o ./a.json", "is given twice"),
            ("sweeper audit -o a.pdf", "the extension `.pdf`"),
        ] {
            assert!(paired(line).is_err_and(|message| message.contains(why)), "{line}");
        }
        let options = read("sweeper history --format html").common;
        let refused = SingleOutput::with_format(&options, "history", &[Format::Table, Format::Json]).err();
        assert!(refused.is_some_and(|failure| failure.message.contains("history knows `table` and `json`")));
        let options = read("sweeper import -o a -o b").common;
        let refused = SingleOutput::without_format(&options, "import").err();
        assert!(refused.is_some_and(|failure| failure.message.contains("one output, 2 are given")));
    }

    #[test]
    fn no_output_is_another_file_of_the_command_line() {
        let conflict = |line: &str| {
            let Cli { common, command: Command::Sweep(args) } = read(line) else { panic!("{line}") };
            check_conflicts(&common, Some(&args)).err().map(|failure| failure.message)
        };
        assert_eq!(conflict("sweeper sweep -o a.json --metrics-file a.prom --lock a.lock --plan p.json"), None);
        for (options, other) in [
            ("-o sweeper.yaml", "--policy"),
            ("-o ./a.lock --lock a.lock", "--lock"),
            ("-o p.json --plan p.json", "--plan"),
            ("-o a.prom --metrics-file a.prom", "--metrics-file"),
            ("--metrics-file sweeper.yaml", "--policy"),
        ] {
            let message = conflict(&format!("sweeper sweep {options}"));
            assert!(message.is_some_and(|message| message.contains(&format!("is the file of {other}"))), "{options}");
        }
    }
}
