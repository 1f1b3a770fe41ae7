//! Logs on stderr: `warning: ...` lines for people, or one JSON object per line for machines.

use std::fmt;

use chrono::{SecondsFormat, Utc};
use parking_lot::RwLock;
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// Target of the lines that say how a rule or a run begins and ends. People see them with `-v`, for the report says the same; machines
/// always do.
pub const RUN: &str = "sweeper::run";

/// Target of the lines that say how far a run is.
pub const PROGRESS: &str = "sweeper::progress";

/// The run that lines are about. Not a span: what the driver and the tasks of a batch say belongs to the run as well.
static RUN_ID: RwLock<String> = RwLock::new(String::new());

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// Lines for people
    Text,
    /// One JSON object per line
    Json,
}

/// Installs the log for the rest of the process.
///
/// `verbose` is the number of `-v`: 0 shows warnings, 1 what is being done, 2 every command that is sent (without its body). `quiet`
/// leaves errors only.
pub fn install(format: LogFormat, verbose: u8, quiet: bool) {
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
    let targets = Targets::new()
        .with_target("ttl_sweeper", level)
        .with_target("sweeper", level)
        .with_target(PROGRESS, progress)
        .with_target(RUN, run);
    let layer = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let layer = match format {
        LogFormat::Text => layer.event_format(Plain).boxed(),
        LogFormat::Json => layer.event_format(Json).boxed(),
    };
    tracing_subscriber::registry().with(layer.with_filter(targets)).init();
}

/// From here on lines for machines are about this run.
pub fn begin_run(id: &str) {
    id.clone_into(&mut RUN_ID.write());
}

/// `level: message`; the other fields are for machines.
struct Plain;

impl<S: Subscriber + for<'a> LookupSpan<'a>, N: for<'a> FormatFields<'a> + 'static> FormatEvent<S, N> for Plain {
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let word = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warning",
            Level::INFO => "info",
            _ => "debug",
        };
        writeln!(writer, "{word}: {}", Fields::of(event).message)
    }
}

/// One object: when, how bad, which run, what, and whatever the event knows in numbers.
struct Json;

impl<S: Subscriber + for<'a> LookupSpan<'a>, N: for<'a> FormatFields<'a> + 'static> FormatEvent<S, N> for Json {
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let metadata = event.metadata();
        let fields = Fields::of(event);
        let mut line = Map::new();
        line.insert("timestamp".into(), json!(Utc::now().to_rfc3339_opts(SecondsFormat::Millis, true)));
        line.insert("level".into(), json!(metadata.level().as_str()));
        line.insert("runId".into(), json!(*RUN_ID.read()));
        line.insert("message".into(), Value::String(fields.message));
        line.extend(fields.others);
        line.insert("target".into(), json!(metadata.target()));
        writeln!(writer, "{}", Value::Object(line))
    }
}

/// What an event says: its text, and its other fields under the names of the report.
#[derive(Default)]
struct Fields {
    message: String,
    others: Map<String, Value>,
}

impl Fields {
    fn of(event: &Event<'_>) -> Self {
        let mut fields = Self::default();
        event.record(&mut fields);
        fields
    }

    fn enter(&mut self, field: &Field, value: Value) {
        self.others.insert(field.name().to_owned(), value);
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let text = format!("{value:?}");
        if field.name() == "message" {
            self.message = text;
        } else {
            self.enter(field, Value::String(text));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.message);
        } else {
            self.enter(field, json!(value));
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
