//! The log on standard error: lines such as `warning: ...` for people, or one JSON object per line for machines.

use std::fmt;

use chrono::{SecondsFormat, Utc};
use parking_lot::RwLock;
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::writer::MakeWriter;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry};

use crate::base::terminal;
use crate::base::text::{clean_json, page, without_os_numbers};

/// Target of the lines about the beginning and the end of rules and runs. The text format shows them only with `-v`, because the
/// report says the same; the JSON format always shows them.
pub const RUN: &str = "sweeper::run";

/// Target of the lines about the progress of a run.
pub const PROGRESS: &str = "sweeper::progress";

/// Name of the field with the lines below a message; the log shows them as they are, and not as a field.
const BELOW: &str = "below";

/// Separator of the lines in the field [`BELOW`], which holds one string. No text from outside keeps it.
const BREAK: char = '\0';

/// Logs an error with further lines below it. `exit_code` is the exit code of the run, if the error ends it.
pub fn error_with(message: &str, exit_code: Option<u8>, below: &[String]) {
    let below: Vec<String> = below.iter().map(|line| line.replace(BREAK, "\\0")).collect();
    let below = below.join(&BREAK.to_string());
    tracing::error!(target: "sweeper", event = exit_code.map(|_| "runEnds"), exitCode = exit_code, below, "{message}");
}

/// Id of the current run. Not a field of a span, because events of the driver and of spawned tasks belong to the run as well.
static RUN_ID: RwLock<String> = RwLock::new(String::new());

/// Format of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object per line
    Json,
}

/// Beginning of each line of the log, before its level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stamp {
    None,
    /// The time, in the text of a process that stays.
    Time,
    /// The priority of sd-daemon(3), which journald takes off again.
    Priority,
}

impl Stamp {
    /// Returns the text in front of a line of this level.
    fn of(self, level: &Level) -> String {
        match self {
            Self::None => String::new(),
            Self::Time => format!("{} ", now()),
            Self::Priority => match *level {
                Level::ERROR => "<3>",
                Level::WARN => "<4>",
                Level::INFO => "<6>",
                _ => "<7>",
            }
            .to_owned(),
        }
    }
}

/// Whether standard error goes to journald, which says in the environment by device and inode which stream it reads.
fn is_journal() -> bool {
    let named = std::env::var("JOURNAL_STREAM").ok();
    let of_stderr = rustix::fs::fstat(std::io::stderr()).ok().map(|stat| format!("{}:{}", stat.st_dev, stat.st_ino));
    named.is_some() && named == of_stderr
}

fn now() -> String {
    Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true)
}

/// Installs the log for the rest of the process. The text of one that `stays` has the time in each line, unless journald adds it.
///
/// `verbose` is the number of `-v`: 0 shows warnings, 1 also the steps of the run, 2 also every command that is sent (without its
/// body). `quiet` shows only errors.
pub fn install(format: LogFormat, verbose: u8, quiet: bool, stays: bool) {
    let stamp = match (is_journal(), stays) {
        (true, _) => Stamp::Priority,
        (false, true) => Stamp::Time,
        (false, false) => Stamp::None,
    };
    let layer = layer(format, stamp, terminal::stderr).with_filter(targets(format, verbose, quiet));
    tracing_subscriber::registry().with(layer).init();
}

/// Waits until the log is written, but not for a reader that does not read it: it never holds the end of the process.
pub fn settle() {
    terminal::settle();
}

/// Sets the run id of all further JSON lines.
pub fn begin_run(id: &str) {
    id.clone_into(&mut RUN_ID.write());
}

/// Returns the levels that are shown, by target.
fn targets(format: LogFormat, verbose: u8, quiet: bool) -> Targets {
    let level = match (quiet, verbose) {
        (true, _) => LevelFilter::ERROR,
        (false, 0) => LevelFilter::WARN,
        (false, 1) => LevelFilter::INFO,
        (false, _) => LevelFilter::DEBUG,
    };
    let progress = if quiet { LevelFilter::OFF } else { LevelFilter::INFO };
    let run = match (format, quiet, verbose) {
        (LogFormat::Json, true, _) => LevelFilter::ERROR,
        (LogFormat::Text, true, _) | (LogFormat::Text, false, 0) => LevelFilter::OFF,
        _ => LevelFilter::INFO,
    };
    Targets::new()
        .with_target("ttl_sweeper", level)
        .with_target("sweeper", level)
        .with_target(PROGRESS, progress)
        .with_target(RUN, run)
}

/// Returns the layer that formats and writes events.
fn layer<W>(format: LogFormat, stamp: Stamp, writer: W) -> Box<dyn Layer<Registry> + Send + Sync>
where
    W: for<'w> MakeWriter<'w> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(writer);
    match format {
        LogFormat::Text => layer.event_format(TextFormat(stamp)).boxed(),
        LogFormat::Json => layer.event_format(Json(stamp)).boxed(),
    }
}

/// Formats an event as `level: message` with the lines below it, without its other fields. A line break inside of a message is
/// shown as an escape: no name from outside can write a line of the log.
struct TextFormat(Stamp);

impl<S: Subscriber + for<'a> LookupSpan<'a>, N: for<'a> FormatFields<'a> + 'static> FormatEvent<S, N> for TextFormat {
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let metadata = event.metadata();
        let word = match *metadata.level() {
            Level::ERROR => "error",
            Level::WARN => "warning",
            Level::INFO => "info",
            _ => "debug",
        };
        let LogFields { message, below, .. } = LogFields::of(event);
        let stamp = self.0.of(metadata.level());
        let lines = std::iter::once(format!("{word}: {message}")).chain(below);
        write!(writer, "{}", page(lines.map(|line| format!("{stamp}{line}"))))
    }
}

/// Formats an event as one JSON object: timestamp, level, run id, message and all other fields.
struct Json(Stamp);

impl<S: Subscriber + for<'a> LookupSpan<'a>, N: for<'a> FormatFields<'a> + 'static> FormatEvent<S, N> for Json {
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let metadata = event.metadata();
        let fields = LogFields::of(event);
        let mut line = Map::new();
        line.insert("timestamp".into(), json!(now()));
        line.insert("level".into(), json!(metadata.level().as_str()));
        line.insert("runId".into(), json!(*RUN_ID.read()));
        let message: Vec<String> = std::iter::once(fields.message).chain(fields.below).collect();
        line.insert("message".into(), json!(message.join("\n")));
        line.extend(fields.others);
        line.insert("target".into(), json!(metadata.target()));
        // An object has its time already.
        let stamp = if self.0 == Stamp::Priority { self.0.of(metadata.level()) } else { String::new() };
        writeln!(writer, "{stamp}{}", clean_json(&Value::Object(line).to_string()))
    }
}

/// The message of an event, and its other fields, which have the names of the report.
#[derive(Default)]
struct LogFields {
    message: String,
    /// Lines below the message.
    below: Vec<String>,
    others: Map<String, Value>,
}

impl LogFields {
    fn of(event: &Event<'_>) -> Self {
        let mut fields = Self::default();
        event.record(&mut fields);
        fields.message = without_os_numbers(&fields.message);
        fields.below.iter_mut().for_each(|line| *line = without_os_numbers(line));
        fields
    }

    fn enter(&mut self, field: &Field, value: Value) {
        self.others.insert(field.name().to_owned(), value);
    }
}

impl Visit for LogFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.enter(field, Value::String(text));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            BELOW => self.below = value.split(BREAK).filter(|line| !line.is_empty()).map(str::to_owned).collect(),
            _ => self.enter(field, json!(value)),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.enter(field, json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.enter(field, json!(value));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.enter(field, json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.enter(field, json!(value));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing::{info, warn};

    use super::*;

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// Returns the text written while `events` logs.
    fn written(format: LogFormat, verbose: u8, events: impl FnOnce()) -> String {
        stamped(format, Stamp::None, verbose, events)
    }

    fn stamped(format: LogFormat, stamp: Stamp, verbose: u8, events: impl FnOnce()) -> String {
        let all = Captured::default();
        let writer = all.clone();
        let layer = layer(format, stamp, move || writer.clone()).with_filter(targets(format, verbose, false));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), events);
        String::from_utf8(all.0.lock().clone()).unwrap()
    }

    #[test]
    fn text_shows_the_level_and_the_message_only() {
        let text = written(LogFormat::Text, 0, || {
            warn!(target: "ttl_sweeper", documents = 5, "half of it");
            info!(target: "ttl_sweeper", "not shown");
            info!(target: PROGRESS, "5 deleted");
        });
        assert_eq!(text, "warning: half of it\ninfo: 5 deleted\n");
    }

    #[test]
    fn journald_learns_the_priority_of_each_line_and_other_readers_of_a_process_that_stays_the_time() {
        let log = || {
            error_with("a", None, &["b".to_owned()]);
            warn!(target: "ttl_sweeper", "c");
            info!(target: PROGRESS, "d");
        };
        let text = stamped(LogFormat::Text, Stamp::Priority, 0, log);
        assert_eq!(text, "<3>error: a\n<3>b\n<4>warning: c\n<6>info: d\n");
        let json = stamped(LogFormat::Json, Stamp::Priority, 0, log);
        assert!(json.starts_with("<3>{\"timestamp\":") && json.contains("\n<4>{") && json.contains("\n<6>{"), "{json}");
        let text = stamped(LogFormat::Text, Stamp::Time, 0, log);
        let lines: Vec<(&str, &str)> = text.lines().map(|line| line.split_once(' ').unwrap()).collect();
        assert!(lines.iter().all(|(time, _)| chrono::DateTime::parse_from_rfc3339(time).is_ok()), "{text}");
        assert_eq!(lines.iter().map(|(_, said)| *said).collect::<Vec<_>>(), ["error: a", "b", "warning: c", "info: d"]);
        assert!(stamped(LogFormat::Json, Stamp::Time, 0, log).starts_with("{\"timestamp\":"));
    }

    #[test]
    fn an_error_of_the_operating_system_is_said_without_its_number() {
        let cause = std::io::Error::from_raw_os_error(2);
        let text = written(LogFormat::Text, 0, || error_with(&format!("reading `p`: {cause}; and `q`: {cause}"), None, &[]));
        assert_eq!(text, "error: reading `p`: No such file or directory; and `q`: No such file or directory\n");
        assert_eq!(without_os_numbers("a (os error b) (os error 1"), "a (os error b) (os error 1");
    }

    #[test]
    fn no_name_writes_a_line_of_its_own_or_speaks_to_the_terminal() {
        let hostile = "a\u{1b}[2J\nerror: b\r\0\u{9b}c";
        let log = || {
            warn!(target: "ttl_sweeper", rule = hostile, "{hostile}");
            error_with(hostile, Some(1), &[format!("  {hostile}"), "hint: d".into()]);
        };
        let shown = r"a\u{1b}[2J\u{a}error: b\u{d}\u{0}\u{9b}c";
        let below = shown.replace(r"\u{0}", r"\0");
        let text = written(LogFormat::Text, 0, log);
        assert_eq!(text, format!("warning: {shown}\nerror: {shown}\n  {below}\nhint: d\n"));
        let json = written(LogFormat::Json, 0, log);
        assert_eq!(json.lines().count(), 2);
        assert!(json.lines().all(|line| !line.contains(|c: char| c.is_control())), "{json:?}");
        let first: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
        assert_eq!((first["message"].as_str(), first["rule"].as_str()), (Some(hostile), Some(hostile)));
    }

    #[test]
    fn json_shows_every_field_with_its_type() {
        let text = written(LogFormat::Json, 0, || info!(target: RUN, documents = 5_u64, rule = "a\"b", done = true, "ended"));
        let line: Value = serde_json::from_str(&text).unwrap();
        let shown = json!([line["level"], line["message"], line["documents"], line["rule"], line["done"], line["target"]]);
        assert_eq!(shown, json!(["INFO", "ended", 5, "a\"b", true, RUN]));
        assert!(line["timestamp"].is_string() && line["runId"].is_string(), "{text}");
    }

    #[test]
    fn levels_follow_the_options() {
        use LogFormat::{Json, Text};
        let shows = |format, verbose, quiet, target, level| targets(format, verbose, quiet).would_enable(target, &level);
        for format in [Text, Json] {
            for (verbose, quiet, most) in
                [(0, true, Level::ERROR), (0, false, Level::WARN), (1, false, Level::INFO), (2, false, Level::DEBUG)]
            {
                for level in [Level::ERROR, Level::WARN, Level::INFO, Level::DEBUG] {
                    assert_eq!(
                        shows(format, verbose, quiet, "ttl_sweeper::sweep", level),
                        level <= most,
                        "{verbose} {quiet} {level}"
                    );
                }
                assert_eq!(shows(format, verbose, quiet, PROGRESS, Level::INFO), !quiet);
                assert!(!shows(format, verbose, quiet, "mongodb", Level::ERROR));
            }
        }
        assert!(shows(Json, 0, false, RUN, Level::INFO) && !shows(Text, 0, false, RUN, Level::INFO));
        assert!(shows(Text, 1, false, RUN, Level::INFO) && !shows(Text, 0, true, RUN, Level::ERROR));
        assert!(shows(Json, 0, true, RUN, Level::ERROR) && !shows(Json, 0, true, RUN, Level::INFO));
    }
}
