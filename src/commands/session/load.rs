//! Reads the policy, and finds the deployment that a command is for.

use std::io::{ErrorKind, Read};
use std::path::Path;

use super::connection::Uri;
use crate::base::failure::Failure;
use crate::base::secrets;
use crate::commands::cli::Common;
use crate::core::flavor::Flavor;
use crate::core::policy::parse::MAX_BYTES;
use crate::core::policy::{BucketUrl, Expect, Policy, parse};

/// Reads and validates the policy. `--uri`, `--uri-file` and `MONGODB_URI` override its connection string.
///
/// Errors: it cannot be read, or it is invalid; the message lists all of its problems.
pub(crate) fn load(options: &Common) -> Result<(Policy, Uri), Failure> {
    let given = Uri::given(options);
    let policy = policy(options, given.is_some())?;
    let uri = given.unwrap_or_else(|| Uri::of_policy(&policy.path, &policy.connection));
    Ok((policy, uri))
}

/// Reads and validates the policy for a command that connects to nothing: environment variables in its connection string need not
/// be set.
///
/// Errors: as for [`load`].
pub(crate) fn offline(options: &Common) -> Result<(Policy, Uri), Failure> {
    let policy = policy(options, true)?;
    let uri = Uri::of_policy(&policy.path, &policy.connection);
    Ok((policy, uri))
}

/// Reads and validates the policy. With `uri_given` its connection string is left out.
fn policy(options: &Common, uri_given: bool) -> Result<Policy, Failure> {
    let path = options.policy.display().to_string();
    let text = read(options).map_err(|cause| {
        let hint = match cause.kind() {
            ErrorKind::NotFound => {
                "`sweeper init` writes a first policy, `sweeper import` one from the TTL indexes that are there; \
                 --policy FILE names another file"
            }
            ErrorKind::InvalidData => "save the file as UTF-8, without another encoding such as UTF-16 or Latin-1",
            _ => "name the file with --policy FILE; `-` reads standard input",
        };
        Failure::usage(format!("reading the policy `{path}`: {cause}; nothing was contacted")).hint(hint)
    })?;
    if parse::may_be_cut(&text) && text.len() <= MAX_BYTES {
        let line = text.lines().count();
        let cut = format!(
            "policy `{path}`: line {line}, the last one, has no newline at its end; expected one, without it the rest may be missing"
        );
        let hint = "if the policy is whole, end its last line; write a new policy under another name, then rename it";
        return Err(Failure::usage(cut).also("nothing was contacted").hint(hint));
    }
    let policy = parse::parse(&path, &text, &|name| std::env::var(name).ok(), uri_given)
        .map_err(|invalid| Failure::usage(invalid.head()).details(invalid.lines()))?;
    for variable in policy.rules.iter().flat_map(|rule| &rule.variables) {
        secrets::withhold(&variable.text, &variable.written);
    }
    Ok(policy)
}

/// Returns the connection string and the flavor of a command that needs no policy: from the command line, else from the policy.
pub(crate) fn connection(options: &Common) -> Result<(Uri, Option<Flavor>), Failure> {
    if let Some(uri) = Uri::given(options) {
        uri.require()?;
        return Ok((uri, None));
    }
    if options.policy.as_os_str() != "-" && !options.policy.exists() {
        let missing = "connecting: no connection string, and no policy to take one from; nothing was contacted";
        return Err(Failure::usage(missing).hint("pass --uri or set MONGODB_URI; --uri-file names a file with it"));
    }
    let (policy, uri) = load(options)?;
    uri.require()?;
    Ok((uri, policy.connection.flavor))
}

/// Returns the connection string of a command that writes, the flavor, and the deployments that the policy expects. A policy
/// that is there is read even if the connection string comes from the command line.
pub(crate) fn target(options: &Common) -> Result<(Uri, Option<Flavor>, Expect), Failure> {
    if options.policy.as_os_str() != "-" && !options.policy.exists() {
        return connection(options).map(|(uri, flavor)| (uri, flavor, Expect::default()));
    }
    let (policy, uri) = load(options)?;
    uri.require()?;
    Ok((uri, policy.connection.flavor, policy.connection.expect))
}

/// Reads the text of the policy, but at most one byte more than a policy may have, which is enough to tell that the text is too
/// long.
fn read(options: &Common) -> std::io::Result<String> {
    let limit = MAX_BYTES as u64 + 1;
    let mut bytes = Vec::new();
    if options.policy.as_os_str() == "-" {
        std::io::stdin().lock().take(limit).read_to_end(&mut bytes)?;
    } else {
        std::fs::File::open(&options.policy)?.take(limit).read_to_end(&mut bytes)?;
    }
    if bytes.len() > MAX_BYTES {
        // The cut may go through a character, but a text of this length is refused anyway.
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    String::from_utf8(bytes).map_err(|cause| {
        let valid = &cause.as_bytes()[..cause.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        std::io::Error::new(ErrorKind::InvalidData, format!("line {line} is not UTF-8"))
    })
}

/// Checks the place of archives that the command line names.
///
/// Errors: a URL that is not one of a bucket. The message does not repeat it, because it may hold credentials.
pub(crate) fn check_place(path: &Path) -> Result<(), Failure> {
    match BucketUrl::of(path) {
        Some(Err(why)) => Err(Failure::usage(format!("the place of the archive: {why}; nothing was contacted"))),
        _ => Ok(()),
    }
}
