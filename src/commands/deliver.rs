//! Where the report goes and in which forms: known and tried before anything is contacted, written when the run is over.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use tracing::{error, warn};

use crate::cli::Common;
use crate::exit;
use crate::failure::Failure;
use crate::output::{self, Target};
use crate::report::{self, Format, Report};
use crate::text::plural;

/// One place of the report and the form that it takes there.
pub struct Output {
    pub target: Target,
    pub format: Format,
    /// What messages call the place.
    pub place: String,
}

impl Output {
    /// Tries whether a place can be written.
    ///
    /// Errors: it cannot; nothing was deleted then.
    fn open((path, format): (PathBuf, Format)) -> Result<Self, Failure> {
        let place = place(&path);
        match Target::open(&path) {
            Ok(target) => Ok(Self { target, format, place }),
            Err(cause) => Err(Failure::cannot_run(format!("creating the report {place}: {cause}; nothing was deleted"))),
        }
    }

    pub fn is_stdout(&self) -> bool {
        matches!(self.target, Target::Stdout)
    }

    /// Writes the text of a command that has one output; `what` is what messages call it.
    ///
    /// Errors: it cannot be written.
    pub fn write(self, what: &str, text: &str) -> Result<(), Failure> {
        let Self { target, place, .. } = self;
        target.write(text).map_err(|cause| Failure::cannot_run(format!("writing {what} to {place}: {cause}")))
    }
}

/// Reads `--output` and `--format`: the first format is the first output's, and so on; outputs beyond the last format go by their
/// extension. Without any output there is standard output.
///
/// Errors: more formats than outputs, an extension that stands for no format, one place given twice.
pub fn pair(common: &Common) -> Result<Vec<(PathBuf, Format)>, Failure> {
    let places = places(common);
    if common.format.len() > places.len() {
        let failure = Failure::usage(format!(
            "--format: {} for {}; expected no more formats than outputs; nothing was contacted",
            plural(common.format.len() as u64, "format"),
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
    let formats = common.format.iter().copied().map(Some).chain(std::iter::repeat(None));
    places
        .into_iter()
        .zip(formats)
        .map(|(path, format)| Ok((path.clone(), format.map_or_else(|| by_extension(&path), Ok)?)))
        .collect()
}

/// The places that are asked for; standard output where there is none.
pub fn places(common: &Common) -> Vec<PathBuf> {
    if common.output.is_empty() { vec![PathBuf::from("-")] } else { common.output.clone() }
}

fn by_extension(path: &Path) -> Result<Format, Failure> {
    let Some(extension) = path.extension().and_then(|extension| extension.to_str()) else { return Ok(Format::Table) };
    Format::of_extension(extension).ok_or_else(|| {
        Failure::usage(format!(
            "--output: the extension `.{extension}` stands for no format; expected .html, .json, .csv, .md or .txt, or --format"
        ))
    })
}

/// Tries whether every place can be written.
///
/// Errors: the first that cannot; nothing was deleted then.
pub fn open(pairs: Vec<(PathBuf, Format)>) -> Result<Vec<Output>, Failure> {
    pairs.into_iter().map(Output::open).collect()
}

/// The output of a command that has one alone, in one of the forms that it knows. It is yet to be opened.
pub struct One(PathBuf, Format);

impl One {
    /// Reads `--output` and `--format`.
    ///
    /// Errors: there are several outputs, or the form is another one.
    pub fn of(common: &Common, command: &str, known: &[Format]) -> Result<Self, Failure> {
        let (path, format) = only(pair(common)?, command)?;
        if known.contains(&format) {
            return Ok(Self(path, format));
        }
        let names: Vec<String> = known.iter().map(|format| format!("`{}`", format.name())).collect();
        let (last, others) = names.split_last().expect("every command knows a form");
        Err(Failure::usage(format!("--format: {command} knows {} and {last}; nothing was contacted", others.join(", "))))
    }

    /// The output of a command that writes a text of one form.
    ///
    /// Errors: there are several outputs, or a form is asked for.
    pub fn of_text(common: &Common, command: &str) -> Result<Self, Failure> {
        if !common.format.is_empty() {
            return Err(Failure::usage(format!("--format: what {command} writes has one form; nothing was contacted")));
        }
        Ok(Self(only(places(common), command)?, Format::Table))
    }

    /// Tries whether the place can be written.
    ///
    /// Errors: it cannot.
    pub fn open(self) -> Result<Output, Failure> {
        Output::open((self.0, self.1))
    }
}

/// The one output of a command that cannot have several.
///
/// Errors: there are several.
pub fn only<T>(outputs: Vec<T>, command: &str) -> Result<T, Failure> {
    let given = outputs.len();
    let several = format!("--output: {command} writes to one output, {given} are given; nothing was contacted");
    <[T; 1]>::try_from(outputs).map(|[output]| output).map_err(|_| Failure::usage(several))
}

/// Writes the report of a command with one output, and one line to stderr where the exit code is not 0 and no report is there to say why.
/// `summary` says how the command ended.
///
/// Errors: the report cannot be written.
pub fn deliver_one(common: &Common, output: Output, text: &str, exit_code: u8, summary: &str) -> Result<u8, Failure> {
    let is_stdout = output.is_stdout();
    if !(is_stdout && common.quiet) {
        output.write("the report", text).map_err(|failure| failure.also(summary))?;
    }
    if exit_code != exit::DONE && (common.quiet || !is_stdout) {
        error!("{summary}");
    }
    Ok(exit_code)
}

/// Writes the report to every place, also where one of them fails, and one line to stderr where the exit code is not 0 and no report is
/// there to say why. Gives the exit code.
pub fn deliver(common: &Common, report: &Report, outputs: Vec<Output>) -> u8 {
    let (mut shown, mut written) = (false, false);
    let mut unwritten = Vec::new();
    for output in outputs {
        let to_stdout = output.is_stdout();
        let Output { target, format, place } = output;
        if to_stdout && common.quiet {
            continue;
        }
        shown |= to_stdout;
        let colored = to_stdout && common.color.decide(std::io::stdout().is_terminal());
        let text = report::render(report, format, colored);
        match target.write(&text) {
            Ok(()) => written = true,
            Err(cause) => unwritten.push((format!("to {place}: {cause}"), text)),
        }
    }
    if let Some((_, text)) = unwritten.first() {
        let deleted = plural(report.totals.deleted_count, "document");
        let causes: Vec<&str> = unwritten.iter().map(|(cause, _)| cause.as_str()).collect();
        error!("writing the report {}; the run itself is over, {deleted} deleted", causes.join("; "));
        if !(written || shown || common.quiet) && output::to_stdout(text).is_ok() {
            warn!("the report was written to standard output instead");
        }
        return exit::CANNOT_RUN;
    }
    if report.exit_code != exit::DONE && !shown {
        error!("{}", report::reason(report));
    }
    report.exit_code
}

/// What messages call a place.
fn place(path: &Path) -> String {
    if output::is_stdout(path) { "standard output".to_owned() } else { format!("`{}`", path.display()) }
}
