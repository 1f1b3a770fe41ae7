//! Reads the policy and finds the connection string.

use std::io::{ErrorKind, Read};

use crate::cli::Common;
use crate::failure::Failure;
use crate::flavor::Flavor;
use crate::policy::parse::MAX_BYTES;
use crate::policy::{Expect, Policy, parse};
use crate::secrets;

/// The connection string of a command, if there is one.
#[derive(Clone)]
pub(super) struct Uri {
    given: Option<String>,
    policy: String,
}

impl Uri {
    /// The connection string of a run that is connected to a model.
    #[cfg(test)]
    pub(super) fn none() -> Self {
        Self { given: None, policy: String::new() }
    }

    /// Returns the connection string.
    ///
    /// Errors: neither the command line nor the environment nor the policy has one.
    pub(super) fn require(&self) -> Result<&str, Failure> {
        self.given.as_deref().ok_or_else(|| {
            Failure::usage(format!("connecting: policy `{}` has no `connection.uri`; nothing was contacted", self.policy))
                .hint("pass --uri, set MONGODB_URI, or write `connection: {uri: ...}` into the policy")
        })
    }
}

/// Reads and validates the policy. `--uri` and `MONGODB_URI` override its connection string.
///
/// Errors: it cannot be read, or it is invalid; the message lists all of its problems.
pub(super) fn load(options: &Common) -> Result<(Policy, Uri), Failure> {
    let path = options.policy.display().to_string();
    let text = read(options).map_err(|cause| {
        let hint = match cause.kind() {
            ErrorKind::NotFound => {
                "`sweeper init` writes a first policy, `sweeper import` one from the TTL indexes that are there; \
                 --policy FILE names another file"
            }
            _ => "name the file with --policy FILE; `-` reads standard input",
        };
        Failure::usage(format!("reading the policy `{path}`: {cause}; nothing was contacted")).hint(hint)
    })?;
    let given = options.uri.clone().filter(|uri| !uri.is_empty());
    let policy = parse::parse(&path, &text, &|name| std::env::var(name).ok(), given.is_some())
        .map_err(|invalid| Failure::usage(invalid.head()).details(invalid.lines()))?;
    for variable in policy.rules.iter().flat_map(|rule| &rule.variables) {
        secrets::withhold(&variable.text, &variable.written);
    }
    let given = given.or_else(|| policy.connection.uri.clone()).filter(|uri| !uri.is_empty());
    Ok((policy, Uri { given, policy: path }))
}

/// Returns the connection string and the flavor of a command that needs no policy: from the command line, else from the policy.
pub(super) fn connection(options: &Common) -> Result<(String, Option<Flavor>), Failure> {
    if let Some(uri) = options.uri.clone().filter(|uri| !uri.is_empty()) {
        return Ok((uri, None));
    }
    if options.policy.as_os_str() != "-" && !options.policy.exists() {
        let missing = "connecting: no connection string, and no policy to take one from; nothing was contacted";
        return Err(Failure::usage(missing).hint("pass --uri or set MONGODB_URI"));
    }
    let (policy, uri) = load(options)?;
    Ok((uri.require()?.to_owned(), policy.connection.flavor))
}

/// Does the same as [`connection`] for a command that writes, and also returns the deployments that the policy expects: a policy that is there is read
/// even if the connection string comes from the command line.
pub(super) fn target(options: &Common) -> Result<(String, Option<Flavor>, Expect), Failure> {
    if options.policy.as_os_str() != "-" && !options.policy.exists() {
        return connection(options).map(|(uri, flavor)| (uri, flavor, Expect::default()));
    }
    let (policy, uri) = load(options)?;
    Ok((uri.require()?.to_owned(), policy.connection.flavor, policy.connection.expect))
}

/// Reads the text of the policy, but at most one byte more than a policy may have, which is enough to tell that the text is too long.
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
        let at = cause.utf8_error().valid_up_to();
        std::io::Error::other(format!("not UTF-8 from byte {at} on"))
    })
}
