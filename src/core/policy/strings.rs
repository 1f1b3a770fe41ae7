//! Parsers of the strings of a policy. Errors: what was found and what was expected.

use std::path::PathBuf;

/// Parses the name of a rule, which reports show and `--only` selects by.
pub(super) fn parse_rule_name(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("an empty name".into()),
        trimmed if trimmed != text || text.chars().any(char::is_control) => {
            Err(format!("{text:?} has blanks at its ends or control characters"))
        }
        _ => Ok(text.to_owned()),
    }
}

/// A field path as a regular expression of a JSON Schema.
pub(super) const FIELD_PATTERN: &str = r"^[^$.\u0000][^.\u0000]*(\.[^$.\u0000][^.\u0000]*)*$";

/// Parses a field path as MongoDB reads it: names joined by dots; a numeric name is also a position in an array.
pub(super) fn parse_field(text: &str) -> Result<String, String> {
    let wrong = |why: &str| Err(format!("{text:?} {why}; expected a field path such as `lastModified` or `meta.createdAt`"));
    if text.split('.').any(str::is_empty) {
        return wrong("has an empty part");
    }
    if text.split('.').any(|part| part.starts_with('$')) {
        return wrong("has a part that starts with `$`");
    }
    if text.contains('\0') {
        return wrong("holds NUL");
    }
    Ok(text.to_owned())
}

/// Parses the name of the field that holds a document's own ttl.
pub(super) fn parse_ttl_field(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(['.', '\0']) || text.starts_with('$') || text == "_id" {
        return Err(format!("{text:?} is not a root-level field name; expected one such as `ttl`, without a dot"));
    }
    Ok(text.to_owned())
}

/// Parses the name of a GridFS bucket.
pub(super) fn parse_bucket(text: &str) -> Result<String, String> {
    if text.is_empty() || text.contains(['$', '*', '\0']) {
        return Err(format!("{text:?} is not the name of a bucket; expected one such as `fs`"));
    }
    Ok(text.to_owned())
}

/// Parses the name of an index.
pub(super) fn parse_hint(text: &str) -> Result<String, String> {
    match text {
        "" => Err("an empty name; expected the name of an index, such as `lastModified_1`".into()),
        "$natural" => {
            Err("`$natural` is not an index; leave `hint` out, and set `allowCollectionScan` to go through the collection".into())
        }
        name => Ok(name.to_owned()),
    }
}

/// Parses a member of a deployment. Returns it in lower case and with a port, as the deployment names its members.
pub(super) fn parse_host(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("an empty host; expected `host:port`".into()),
        host if host.contains("://") || host.contains('@') => Err("a URI; expected `host:port`".into()),
        host if host.contains(':') => Ok(host.to_lowercase()),
        host => Ok(format!("{}:27017", host.to_lowercase())),
    }
}

/// Parses the path of a directory, without a check that it exists.
pub(super) fn parse_directory(text: &str) -> Result<PathBuf, String> {
    match text {
        "" => Err("an empty path; expected a directory that exists, such as `/backups/ttl`".into()),
        text if text.contains("://") => Err("a URL; expected the path of a directory, or `url` for a bucket".into()),
        text if text.contains('\0') => Err("a path cannot hold NUL".into()),
        text => Ok(PathBuf::from(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_paths_are_those_of_mongodb() {
        for text in ["a", "_id", "a.b", "a.0.b", "a b", "ü", "a$", "a.b$c"] {
            assert_eq!(parse_field(text).as_deref(), Ok(text));
        }
        for (text, part) in
            [("", "empty part"), ("a..b", "empty part"), (".a", "empty part"), ("$a", "`$`"), ("a.$b", "`$`"), ("a\0", "NUL")]
        {
            assert!(parse_field(text).unwrap_err().contains(part), "{text:?}");
        }
    }

    #[test]
    fn a_ttl_field_is_at_the_root() {
        for text in ["ttl", "a b", "t$"] {
            assert_eq!(parse_ttl_field(text).as_deref(), Ok(text));
        }
        for text in ["", "a.b", "$ttl", "_id", "a\0"] {
            assert!(parse_ttl_field(text).unwrap_err().contains("root-level"), "{text:?}");
        }
    }

    #[test]
    fn hosts_are_as_the_deployment_names_them() {
        for (text, host) in [("DB1", "db1:27017"), (" db2:27018 ", "db2:27018"), ("[::1]:27017", "[::1]:27017")] {
            assert_eq!(parse_host(text).as_deref(), Ok(host));
        }
        for text in ["", " ", "mongodb://db1", "user@db1"] {
            assert!(parse_host(text).unwrap_err().contains("expected `host:port`"), "{text:?}");
        }
    }

    #[test]
    fn names_hints_and_directories_are_not_empty() {
        assert_eq!(parse_rule_name("old carts").as_deref(), Ok("old carts"));
        for text in ["", " ", " a", "a ", "a\tb", "a\u{85}"] {
            assert!(parse_rule_name(text).is_err(), "{text:?}");
        }
        assert_eq!(parse_hint("at_1").as_deref(), Ok("at_1"));
        for text in ["", "$natural"] {
            assert!(parse_hint(text).unwrap_err().contains("hint") || text.is_empty(), "{text:?}");
        }
        assert_eq!(parse_directory("/backups/ttl"), Ok(PathBuf::from("/backups/ttl")));
        for text in ["", "a\0b"] {
            assert!(parse_directory(text).is_err(), "{text:?}");
        }
    }
}
