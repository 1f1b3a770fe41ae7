//! `sweeper restore`: verifies an archive and inserts the documents that are missing. Needs no policy.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use bson::RawDocumentBuf;
use tracing::error;

use super::confirm;
use super::session::outputs::{SingleOutput, deliver_single};
use super::session::{load, prepare};
use crate::base::exit;
use crate::base::failure::Failure;
use crate::base::instant::millis;
use crate::base::stop::{self, Stop};
use crate::base::text::{page, plural, without_os_numbers};
use crate::commands::cli::{Common, RestoreArgs};
use crate::core::policy::namespace::{Namespace, NamespacePattern};
use crate::core::policy::only::Only;
use crate::core::report::restore::{self, NamespaceReport, RestoreReport};
use crate::core::report::{Format, SCHEMA_VERSION, ServerReport};
use crate::shell::archive::blocking;
use crate::shell::archive::disk::{self, Disk};
use crate::shell::archive::reader::{self, Stored, Verified};
use crate::shell::server::look::privileges;
use crate::shell::server::own::insert::Put;
use crate::shell::server::own::put_back::{Present, RestoreTarget};
use crate::shell::server::{Deployment, connect};

/// Maximum number of documents that are looked up and inserted at a time, and their maximum size together.
type MaxChunk = (usize, usize);

const MAX_CHUNK: MaxChunk = (1000, 8 * 1024 * 1024);

/// The maximum on a service that bills each request. Such a service takes requests of 2 MB (Microsoft, "Azure Cosmos DB service
/// quotas"), and ends what its units do not suffice for half-way.
const MAX_BILLED_CHUNK: MaxChunk = (100, 1024 * 1024);

/// Maximum time to wait for an insert that is under way after a signal.
const MAX_LAST_WAIT: Duration = stop::MAX_TIME_TO_END;

/// A file of the archive and the collection to restore it to.
pub(super) struct RestorePart {
    file: Verified,
    to: Namespace,
}

/// Restores the documents of an archive. Returns the exit code, which is 3 if a document could not be inserted, or if a file in
/// the archive is in no record.
///
/// Errors: a damaged archive, no connection, or no confirmation; nothing was inserted then.
pub(super) async fn command(options: &Common, args: &RestoreArgs, id: &str) -> anyhow::Result<u8> {
    let begun = Instant::now();
    load::check_place(&args.archive)?;
    let output = SingleOutput::with_format(options, "restore", &[Format::Table, Format::Json])?;
    let (uri, flavor, expect) = load::target(options)?;
    let output = output.open()?;
    let stop = Stop::listen()?;
    let (stored, parts) = stop.or_fail("nothing was inserted", verify(options, args, disk::below(&args.archive))).await?;
    let connected = async {
        let mut deployment = connect::connect(&uri.with_password(&stop).await?, flavor, id).await?;
        prepare::find_part(&mut deployment, "nothing was inserted").await?;
        Ok::<_, Failure>(deployment)
    };
    let deployment = stop.or_fail("nothing was inserted", connected).await?;
    if let Some(why) = deployment.facts.unwritable(&expect) {
        return Err(Failure::cannot_run(format!("{why}; nothing was inserted")).exit_code(exit::REFUSED).into());
    }
    if !args.dry_run && confirm::can_ask(args.yes) {
        ask(&stop, &deployment, &parts).await?;
    }
    let (report, left) = restored(&deployment, &stop, args, (stored, parts), begun).await;
    deployment.close().await;
    let text = output.json_or_text(&report, |report| restore::render(report, output.look(options).width));
    let exit_code = deliver_single(options, output, &text, report.exit_code, &restore::summary(&report))?;
    if options.quiet && !left.is_empty() {
        // Errors are all that is shown with -q.
        error!("restoring `{}`: {}", report.archive, left.join("; "));
    }
    Ok(exit_code)
}

/// Restores what was verified. Returns the report, and what is left to say of the archive.
pub(super) async fn restored(
    deployment: &Deployment,
    stop: &Stop,
    args: &RestoreArgs,
    (stored, parts): (Stored, Vec<RestorePart>),
    begun: Instant,
) -> (RestoreReport, Vec<String>) {
    let (mut namespaces, mut made) = (Vec::new(), Vec::new());
    for part in parts {
        let mut report = NamespaceReport {
            namespace: part.file.namespace.to_string(),
            to: part.to.to_string(),
            document_count: part.file.documents,
            unlisted_count: part.file.unlisted,
            cut_bytes: part.file.cut,
            ..NamespaceReport::default()
        };
        let (lost, shard_key) = (part.file.lost(), part.file.shard_key.clone());
        let mut done = Put::default();
        let present = if args.replace { Present::Replace } else { Present::Keep };
        let looked = stop.or_fail("nothing was inserted there", async {
            let target = RestoreTarget::open(deployment, &part.to, &shard_key, present, args.dry_run).await;
            target.map_err(|cause| Failure::cannot_run(format!("looking at the collection: {cause}; nothing was inserted there")))
        });
        let ended = match looked.await {
            Ok(Ok(target)) => {
                if !target.exists() {
                    made.push(report.to.clone());
                }
                let ended = put(deployment, target, present, stop, part, &mut done).await;
                ended.and_then(|()| complete(&report, &done)).and_then(|()| match done.twins {
                    0 => Ok(()),
                    twins => Err(left_out(twins, &shard_key)),
                })
            }
            Ok(Err(why)) => Err(format!("{why}; nothing was inserted there; --namespace FROM=TO names another collection")),
            Err(failure) => Err(failure.message),
        };
        enter(&mut report, done, lost, ended.err());
        namespaces.push(report);
    }
    let failed = |report: &NamespaceReport| report.error.is_some() || report.conflict_count + report.refused_count > 0;
    let has_failed = namespaces.iter().any(failed) || !stored.strays.is_empty();
    let server = ServerReport::from(&deployment.facts);
    let left = restore::left(stored.complete, stored.losses, &stored.strays, &namespaces);
    let report = RestoreReport {
        schema_version: SCHEMA_VERSION,
        command: "restore",
        dry_run: args.dry_run,
        archive: args.archive.display().to_string(),
        server,
        run_id: stored.run_id,
        complete: stored.complete,
        duration_ms: millis(begun.elapsed()),
        exit_code: stop.exit_code().unwrap_or(if has_failed { exit::RULE_FAILED } else { exit::DONE }),
        warnings: left.iter().cloned().chain(restore::advice(&namespaces, &made)).collect(),
        strays: stored.strays,
        namespaces,
    };
    (report, left)
}

/// Reads the selected files of the archive and verifies their checksums.
pub(super) async fn verify(
    options: &Common,
    args: &RestoreArgs,
    disk: Arc<dyn Disk>,
) -> Result<(Stored, Vec<RestorePart>), Failure> {
    let shown = args.archive.display().to_string();
    let unreadable =
        move |why: String| Failure::cannot_run(format!("reading the archive `{shown}`: {why}; nothing was inserted"));
    let path = args.archive.clone();
    let mut stored = blocking(move || reader::open(disk, &path)).await.map_err(&unreadable)?;
    let moves = moves(args, &stored)?;
    let only = Only(&options.only);
    let files: Vec<_> =
        std::mem::take(&mut stored.files).into_iter().filter(|file| only.selects(None, &file.namespace)).collect();
    if files.is_empty() && !options.only.is_empty() {
        return Err(Failure::usage(format!(
            "--only {}: no namespace of the archive matches; nothing was inserted",
            options.only.join(" --only ")
        )));
    }
    let verified = blocking(move || files.into_iter().map(|file| file.verify()).collect::<Result<Vec<_>, String>>());
    let verified = verified.await.map_err(|why| {
        unreadable(why).hint("what is whole in a file can be read with `zstd -dc` or `gzip -dc`, and the rest with --only")
    })?;
    let parts = verified.into_iter().map(|file| {
        let moved = moves.iter().find(|(from, _)| *from == file.namespace);
        RestorePart { to: moved.map_or_else(|| file.namespace.clone(), |(_, to)| to.clone()), file }
    });
    Ok((stored, parts.collect()))
}

/// Returns the pairs of `--namespace FROM=TO`. A namespace may contain `=` too, so FROM is matched against the namespaces of the
/// archive.
fn moves(args: &RestoreArgs, stored: &Stored) -> Result<Vec<(Namespace, Namespace)>, Failure> {
    let read = |text: &String| {
        let wrong = |why: String| Failure::usage(format!("--namespace {text}: {why}; nothing was contacted"));
        let begins = |namespace: &Namespace| text.strip_prefix(&namespace.to_string())?.strip_prefix('=').map(str::to_owned);
        let known = stored.files.iter().find_map(|file| Some((file.namespace.clone(), begins(&file.namespace)?)));
        let Some((from, to)) = known else {
            let names: Vec<String> = stored.files.iter().map(|file| format!("`{}`", file.namespace)).collect();
            return Err(wrong(format!("expected FROM=TO with a namespace of the archive: {}", names.join(", "))));
        };
        let to = NamespacePattern::parse(&to).map_err(wrong)?;
        if to.is_glob() {
            return Err(wrong("the target cannot have a `*`".into()));
        }
        Ok((from, Namespace { database: to.database, collection: to.collection }))
    };
    args.namespace.iter().map(read).collect()
}

async fn ask(stop: &Stop, deployment: &Deployment, parts: &[RestorePart]) -> anyhow::Result<()> {
    let shown = page(parts.iter().map(|part| format!("  {}: {}", part.to, plural(part.file.documents, "document"))));
    let total: u64 = parts.iter().map(|part| part.file.documents).sum();
    let (documents, collections) = (plural(total, "document"), plural(parts.len() as u64, "collection"));
    let set = deployment.facts.set_name.as_ref().map(|set| format!("the replica set {set}, ")).unwrap_or_default();
    let hosts = deployment.facts.hosts.join(", ");
    let question = format!("insert the missing ones of {documents} into {collections} of {set}{hosts}?");
    confirm::ask(stop, &shown, &shown, &question, "nothing was inserted").await
}

/// Restores one file, and adds to `done` what was inserted.
///
/// Errors: the reason, if not all of it could be restored.
async fn put(
    deployment: &Deployment,
    mut target: RestoreTarget<'_>,
    present: Present,
    stop: &Stop,
    part: RestorePart,
    done: &mut Put,
) -> Result<(), String> {
    let RestorePart { mut file, to } = part;
    let places = std::mem::take(&mut file.segments);
    let mut places: Vec<_> = places.into_iter().collect();
    // If a document was archived in several states, the last one counts: without --replace the first insert wins, with it the
    // last.
    if present == Present::Keep {
        places.reverse();
    }
    let max = if deployment.facts.capabilities.request_charge { MAX_BILLED_CHUNK } else { MAX_CHUNK };
    let file = Arc::new(file);
    for place in places {
        let from = file.clone();
        let mut documents = blocking(move || from.read(&place)).await?;
        if present == Present::Keep {
            documents.reverse();
        }
        for chunk in chunks(&documents, max) {
            if stop.is_asked() {
                return Err("interrupted; run it again for the rest".into());
            }
            let put = tokio::select! {
                biased;
                put = target.put(chunk, done) => put,
                () = stop.asked_for(MAX_LAST_WAIT) => {
                    done.is_uncertain |= !target.is_dry();
                    let waited = MAX_LAST_WAIT.as_secs();
                    return Err(format!("no answer within {waited} s after the signal; run it again for the rest"));
                }
            };
            put.map_err(|cause| {
                let actions: &[&str] =
                    if present == Present::Replace { &["find", "insert", "update"] } else { &["find", "insert"] };
                let why = privileges::explain(&cause, &to, actions);
                format!("{why}; run it again for the rest: documents that are there already stay as they are")
            })?;
        }
    }
    Ok(())
}

/// Says that documents were left out because others have their `_id`s.
fn left_out(twins: u64, shard_key: &[String]) -> String {
    let paths: Vec<String> = shard_key.iter().filter(|path| *path != "_id").map(|path| format!("`{path}`")).collect();
    let paths = paths.join(" and ");
    format!(
        "{} left out: others, with another {paths}, are there under the same `_id`; shard the collection by {paths}, and run it again",
        plural(twins, "document")
    )
}

/// Checks that every document of a file is in one count.
///
/// Errors: the difference in words.
fn complete(report: &NamespaceReport, done: &Put) -> Result<(), String> {
    let (documents, counted) = (report.document_count, done.counted());
    match counted == documents {
        true => Ok(()),
        false => Err(format!(
            "the counts are wrong: they add up to {counted}, and the archive has {}; run it again, and compare the collection with the archive",
            plural(documents, "document")
        )),
    }
}

/// Splits documents into chunks that fit into one command each.
fn chunks(mut documents: &[RawDocumentBuf], (max_documents, max_bytes): MaxChunk) -> Vec<&[RawDocumentBuf]> {
    let mut chunks = Vec::new();
    while !documents.is_empty() {
        let mut bytes = 0;
        let fitting = documents.iter().take(max_documents).take_while(|document| {
            bytes += document.as_bytes().len();
            bytes <= max_bytes
        });
        let (chunk, rest) = documents.split_at(fitting.count().max(1));
        chunks.push(chunk);
        documents = rest;
    }
    chunks
}

/// Enters the result into the report of a namespace.
fn enter(report: &mut NamespaceReport, done: Put, lost: Option<String>, error: Option<String>) {
    report.inserted_count = done.inserted;
    report.uncertain = done.is_uncertain;
    report.replaced_count = done.replaced;
    report.same_count = done.same;
    report.different_count = done.different;
    report.conflict_count = done.conflicts;
    report.refused_count = done.refused;
    let unconfirmed = done.unconfirmed.map(|why| format!("written, but not confirmed by the members: {why}"));
    let refused = done.why.map(|why| format!("refused: {why}"));
    let why: Vec<String> = [error, lost, unconfirmed, refused].into_iter().flatten().collect();
    report.error = (!why.is_empty()).then(|| without_os_numbers(&why.join("; ")));
}
