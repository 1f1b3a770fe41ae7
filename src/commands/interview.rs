//! The questions of `sweeper init`, on standard error; answers come from standard input. With a connection string they offer what
//! the deployment has.

mod look;

use std::io;

use tracing::warn;

use crate::base::failure::Failure;
use crate::base::instant::rfc3339;
use crate::base::terminal;
use crate::base::text::{clean, count, fold, page, plural};
use crate::commands::cli::{Common, InitArgs};
use crate::core::draft::{DateField, Draft, DraftRule};
use crate::core::facts::{Collection, CollectionKind};
use crate::core::policy::answer::Answer;
use crate::core::policy::{DateFormat, duration};
use crate::shell::server::look::sample::Counted;
use look::{Look, look_for, sampled};

/// Collections or fields in one list.
const MAX_SHOWN: usize = 15;

/// The options of one rule. Each is given once for all rules, or once for each.
struct Given<'a> {
    namespace: Option<&'a String>,
    field: Option<&'a String>,
    expire_after: Option<&'a String>,
    ttl_field: Option<&'a String>,
    date_format: Option<&'a String>,
}

impl<'a> Given<'a> {
    fn of(args: &'a InitArgs, index: usize) -> Self {
        let of_rule = |values: &'a [String]| if let [one] = values { Some(one) } else { values.get(index) };
        Self {
            namespace: args.namespace.get(index),
            field: of_rule(&args.field),
            expire_after: of_rule(&args.expire_after),
            ttl_field: of_rule(&args.ttl_field),
            date_format: of_rule(&args.date_format),
        }
    }
}

/// Asks for what the options leave open.
///
/// Errors: the connection string is empty or cannot be read, an option names a view or a capped collection, or the answers end
/// before the questions do.
pub(super) async fn interview(options: &Common, args: &InitArgs) -> anyhow::Result<Draft> {
    let look = look_for(options, args).await?;
    let mut rules: Vec<DraftRule> = Vec::new();
    loop {
        let given = Given::of(args, rules.len());
        let namespace = match given.namespace {
            Some(namespace) => namespace.clone(),
            None if rules.is_empty() => ask_namespace(look.as_ref())?,
            // The options name all.
            None if !args.namespace.is_empty() => break,
            None => match ask_another(look.as_ref(), &rules)? {
                Some(namespace) => namespace,
                None => break,
            },
        };
        rules.push(ask_rule(look.as_ref(), &given, namespace).await?);
    }
    let max_delete_percent = match args.max_delete_percent {
        Some(percent) => percent,
        None => ask(
            "Refuse to delete more than this share of a collection, in percent",
            Some(&Draft::PERCENT.to_string()),
            |answer| {
                let percent = answer.trim_end_matches(['%', ' ']).parse().map_err(|_| format!("{answer:?} is not a number"))?;
                Answer::MaxDeletePercent.check(&f64::to_string(&percent)).map(|()| percent)
            },
        )?,
    };
    let replica_set = match look {
        Some(look) => look.close().await,
        None => None,
    };
    Ok(Draft { rules, max_delete_percent, replica_set })
}

/// Asks for what the options of one rule leave open.
async fn ask_rule(look: Option<&Look>, given: &Given<'_>, namespace: String) -> anyhow::Result<DraftRule> {
    let chosen = look.and_then(|look| look.collection(&namespace));
    if look.is_some() && chosen.is_none() && !namespace.contains('*') {
        say(&format!("(no collection `{namespace}` was found)"))?;
    }
    let ttl = chosen.and_then(existing_ttl);
    if let Some((field, seconds)) = &ttl {
        say(&format!(
            "The server already deletes there, {} after `{}`. `sweeper import` writes a policy from all such settings.",
            duration::format(i64::from(*seconds)),
            field
        ))?;
    }
    let is_time_series = chosen.is_some_and(|collection| matches!(collection.kind, CollectionKind::TimeSeries(_)));
    let (field, date_format) = match (given.field, is_time_series) {
        (Some(field), _) => (Some(field.clone()), None),
        (None, true) => (None, None),
        (None, false) => {
            let fields = match (look, chosen) {
                (Some(look), Some(collection)) => sampled(&look.deployment, collection).await,
                _ => Vec::new(),
            };
            let (field, format) = ask_field(&fields, ttl.as_ref().map(|(field, _)| field.as_str()))?;
            (Some(field), format)
        }
    };
    let expire_after = match given.expire_after {
        Some(expire_after) => expire_after.clone(),
        None => {
            let default = ttl.map(|(_, seconds)| duration::format(i64::from(seconds)));
            ask("Time from that date until a document expires (such as 90d, 12h, 45m)", default.as_deref(), |answer| {
                Answer::ExpireAfter.check(answer).map(|()| answer.to_owned())
            })?
        }
    };
    Ok(DraftRule {
        namespace,
        field,
        date_format: given.date_format.cloned().or(date_format),
        expire_after,
        ttl_field: given.ttl_field.cloned(),
    })
}

/// Makes the draft of a policy from the options, which leave nothing open. With a connection string it looks at what they name,
/// and warns of what does not fit.
///
/// Errors: the connection string is empty or cannot be read, or an option names a view or a capped collection.
pub(super) async fn unasked(options: &Common, args: &InitArgs) -> anyhow::Result<Draft> {
    let look = look_for(options, args).await?;
    let mut rules = Vec::new();
    for (index, namespace) in args.namespace.iter().enumerate() {
        let Given { field, expire_after, ttl_field, date_format, .. } = Given::of(args, index);
        let mut date_format = date_format.cloned();
        if let (Some(look), Some(field)) = (&look, field) {
            let found = fitting_format(look, namespace, field).await;
            date_format = date_format.or(found);
        }
        rules.push(DraftRule {
            namespace: namespace.clone(),
            field: field.cloned(),
            date_format,
            expire_after: expire_after.cloned().unwrap_or_default(),
            ttl_field: ttl_field.cloned(),
        });
    }
    let replica_set = match look {
        Some(look) => look.close().await,
        None => None,
    };
    Ok(Draft { rules, max_delete_percent: args.max_delete_percent.unwrap_or(Draft::PERCENT), replica_set })
}

/// Returns the format that the policy has to name for a field, by the documents that are there. Warns of a collection and of a
/// field that are not.
async fn fitting_format(look: &Look, namespace: &str, field: &str) -> Option<String> {
    let Some(collection) = look.collection(namespace) else {
        if !namespace.contains('*') {
            warn!("no collection `{namespace}` was found; written anyway, check the spelling");
        }
        return None;
    };
    let fields = sampled(&look.deployment, collection).await;
    let known = fields.iter().find(|known| known.path == field);
    if known.is_none() {
        warn!("none of the documents looked at has a date in `{field}` of `{namespace}`; is its name right?");
    }
    known.and_then(format_of).map(str::to_owned)
}

/// Returns the format that a policy has to name for a field; `None` if it is the usual one.
fn format_of(field: &DateField) -> Option<&'static str> {
    match field.format {
        // Without a format the kind of the collection decides what `_id` holds.
        DateFormat::Date if field.path == "_id" => Some("date"),
        DateFormat::Date | DateFormat::ObjectId => None,
        DateFormat::EpochMillis => Some("epochMillis"),
        DateFormat::EpochSeconds => Some("epochSeconds"),
        DateFormat::Iso8601 => Some("iso8601"),
    }
}

/// Shows the collections, and asks for one.
fn ask_namespace(look: Option<&Look>) -> anyhow::Result<String> {
    let (collections, shown) = collections(look);
    let width = width(shown.iter().map(|counted| clean(&counted.collection.namespace.to_string())));
    for (index, Counted { collection, documents }) in shown.iter().enumerate() {
        let kind = if matches!(collection.kind, CollectionKind::TimeSeries(_)) { "bucket" } else { "document" };
        let documents = documents.map_or_else(|| "not counted".to_owned(), |documents| plural(documents, kind));
        let ttl = existing_ttl(collection).map(|(field, _)| format!(", TTL on {field}")).unwrap_or_default();
        let name = clean(&collection.namespace.to_string());
        say(&format!("{:>3}  {name:<width$}  {documents}{ttl}", index + 1))?;
    }
    if collections.len() > shown.len() {
        say(&format!("     and {} more", count((collections.len() - shown.len()) as u64)))?;
    }
    let (question, only) = match shown {
        [] => ("Which collection, as database.collection", None),
        [_] => ("Which collection, by number or as database.collection", Some("1")),
        _ => ("Which collection, by number or as database.collection", None),
    };
    ask(question, only, |answer| chosen(look, answer))
}

/// Asks for one more collection; `None` if there is to be no other rule.
fn ask_another(look: Option<&Look>, rules: &[DraftRule]) -> anyhow::Result<Option<String>> {
    ask("Add another collection (Enter to finish)", Some(""), |answer| {
        match answer {
            "" | "none" | "no" | "n" => return Ok(None),
            "y" | "yes" => return Err("which one? expected its number, or database.collection".to_owned()),
            _ => {}
        }
        let namespace = chosen(look, answer)?;
        match rules.iter().any(|rule| rule.namespace == namespace) {
            true => Err(format!("`{namespace}` has a rule already")),
            false => Ok(Some(namespace)),
        }
    })
}

/// Returns all collections, and those that are shown.
fn collections(look: Option<&Look>) -> (&[Counted], &[Counted]) {
    let all = look.map_or(&[][..], |look| look.listed.fit.as_slice());
    (all, &all[..all.len().min(MAX_SHOWN)])
}

/// Returns the namespace that an answer means: by its number, by the name of its collection if only one database has it, or as a
/// whole.
///
/// Errors: it is not one, or one that cannot be swept.
fn chosen(look: Option<&Look>, answer: &str) -> Result<String, String> {
    let (collections, shown) = collections(look);
    let names: Vec<_> = collections.iter().map(|counted| &counted.collection.namespace).collect();
    let mut named = names.iter().filter(|name| name.collection == answer);
    if let Some(name) = numbered(answer, &names[..shown.len()]).or(named.next().filter(|_| named.next().is_none())) {
        return Ok(name.to_string());
    }
    Answer::Namespace.check(answer)?;
    look.map_or(Ok(()), |look| look.judge(answer))?;
    Ok(answer.to_owned())
}

/// Asks for the field; returns it with its format if the policy has to name the format.
fn ask_field(fields: &[DateField], ttl_field: Option<&str>) -> anyhow::Result<(String, Option<String>)> {
    let shown = &fields[..fields.len().min(MAX_SHOWN)];
    let width = width(shown.iter().map(|field| clean(&field.path)));
    for (index, field) in shown.iter().enumerate() {
        let what = match field.format {
            DateFormat::Date => "dates",
            DateFormat::ObjectId => "made",
            DateFormat::EpochMillis => "milliseconds",
            DateFormat::EpochSeconds => "seconds",
            DateFormat::Iso8601 => "strings",
        };
        let day = |at| rfc3339(at).chars().take(10).collect::<String>();
        let (oldest, newest) = (day(field.oldest), day(field.newest));
        let span = if oldest == newest { oldest } else { format!("{oldest} to {newest}") };
        let documents = plural(field.documents as u64, "document");
        say(&format!("{:>3}  {:<width$}  in {documents}: {what}, {span}", index + 1, clean(&field.path)))?;
    }
    let first = shown.first().filter(|field| field.format != DateFormat::ObjectId).map(|field| field.path.as_str());
    let default = ttl_field.or(first);
    let question =
        if shown.is_empty() { "Which field holds the date" } else { "Which field holds the date, by number or by name" };
    ask(question, default, |answer| {
        let known = numbered(answer, shown).or_else(|| fields.iter().find(|field| field.path == answer));
        let Some(field) = known else {
            Answer::Field.check(answer)?;
            if !fields.is_empty() {
                // Documents without the field never expire, but it may still be the right one.
                say(&format!("(none of the documents looked at has a date in `{}`)", answer))
                    .map_err(|cause| cause.to_string())?;
            }
            return Ok((answer.to_owned(), None));
        };
        Ok((field.path.clone(), format_of(field).map(str::to_owned)))
    })
}

/// Returns the field and the seconds of the first setting by which the server deletes.
fn existing_ttl(collection: &Collection) -> Option<(String, u32)> {
    collection.ttl().iter().find_map(|ttl| ttl.deletes_after().ok().map(|(field, seconds)| (field.to_owned(), seconds)))
}

/// Returns the width of a column in characters; names longer than 40 may exceed it.
fn width(names: impl Iterator<Item = String>) -> usize {
    names.map(|name| name.chars().count()).filter(|width| *width <= 40).max().unwrap_or(0)
}

/// Returns the item of the line whose number is the answer.
fn numbered<'a, T>(answer: &str, shown: &'a [T]) -> Option<&'a T> {
    shown.get(answer.parse::<usize>().ok()?.checked_sub(1)?)
}

/// Asks until the answer is accepted; an empty answer stands for the default, if there is one.
fn ask<T>(question: &str, default: Option<&str>, accept: impl Fn(&str) -> Result<T, String>) -> anyhow::Result<T> {
    loop {
        let shown = default.filter(|default| !default.is_empty()).map(|default| format!(" [{default}]")).unwrap_or_default();
        terminal::show(&format!("{}: ", clean(&format!("{question}{shown}"))))?;
        let mut answer = String::new();
        if io::stdin().read_line(&mut answer)? == 0 {
            return Err(Failure::cannot_run("the questions were not answered; nothing was written").into());
        }
        let answer = match (answer.trim(), default) {
            ("", Some(default)) => default,
            ("", None) => continue,
            (answer, _) => answer,
        };
        match accept(answer) {
            Ok(taken) => return Ok(taken),
            Err(why) => say(&format!("  {why}"))?,
        }
    }
}

fn say(line: &str) -> io::Result<()> {
    let indent = if line.starts_with("  ") { "     " } else { "" };
    terminal::show(&page(fold(line, indent)))
}
