//! Namespaces (`database.collection`) and the patterns of a policy that match them.

use std::fmt;

use wildmatch::WildMatchPattern;

/// A database and a collection. The collection may hold dots, blanks and any letter but NUL.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Namespace {
    pub database: String,
    pub collection: String,
}

impl Namespace {
    /// Prefix of the collection that holds the buckets of a time-series collection.
    pub const BUCKETS: &str = "system.buckets.";

    /// Parses `database.collection`, which names one collection that sweeper may write to.
    ///
    /// Errors: as for [`NamespacePattern::parse`], and a `*`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let pattern = NamespacePattern::parse(text)?;
        if pattern.is_glob() {
            return Err(format!("{text:?} has a `*`; expected one collection"));
        }
        Ok(Self { database: pattern.database, collection: pattern.collection })
    }

    /// Returns the collection that holds the buckets of this time-series collection.
    pub fn buckets(&self) -> Self {
        Self { database: self.database.clone(), collection: format!("{}{}", Self::BUCKETS, self.collection) }
    }
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}.{}", self.database, self.collection)
    }
}

/// A namespace of a policy; `*` matches any run of characters, in the part of the database or the part of the collection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespacePattern {
    pub database: String,
    pub collection: String,
}

impl From<&Namespace> for NamespacePattern {
    fn from(Namespace { database, collection }: &Namespace) -> Self {
        Self { database: database.clone(), collection: collection.clone() }
    }
}

impl NamespacePattern {
    /// Parses a pattern; its parts are split at the first dot, as MongoDB does.
    ///
    /// Errors: what was found and what was expected. System databases and collections are refused here, so that no valid policy
    /// names one.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some((database, collection)) = text.split_once('.') else {
            return Err(format!("{text:?} has no collection; expected `database.collection`"));
        };
        if database.is_empty() || collection.is_empty() {
            return Err(format!(
                "{text:?} has an empty {}; expected `database.collection`",
                if database.is_empty() { "database" } else { "collection" }
            ));
        }
        if let Some(bad) = database.chars().find(|c| "/\\ \"$<>:|?\0".contains(*c)) {
            return Err(format!("{text:?}: a database name cannot hold {bad:?}"));
        }
        if collection.contains('\0') || (collection.contains('$') && !collection.starts_with("oplog.$")) {
            return Err(format!("{text:?}: a collection name cannot hold `$` or NUL"));
        }
        if let Some(why) = why_never_swept(database, collection) {
            return Err(format!("{text:?}: {why}"));
        }
        Ok(Self { database: database.to_owned(), collection: collection.to_owned() })
    }

    /// Whether the pattern can match several namespaces.
    pub fn is_glob(&self) -> bool {
        self.database.contains('*') || self.collection.contains('*')
    }

    /// Whether the pattern matches a namespace.
    pub fn matches(&self, namespace: &Namespace) -> bool {
        glob(&self.database, &namespace.database) && glob(&self.collection, &namespace.collection)
    }
}

impl fmt::Display for NamespacePattern {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{}.{}", self.database, self.collection)
    }
}

/// Says why no policy may name a namespace; `None` if one may.
pub fn why_never_swept(database: &str, collection: &str) -> Option<&'static str> {
    if ["admin", "config", "local"].contains(&database) {
        Some("the databases `admin`, `config` and `local` belong to the server and are never swept")
    } else if collection.starts_with("system.") {
        Some("`system.*` collections belong to the server and are never swept")
    } else if collection.starts_with("enxcol_.") {
        Some("`enxcol_.*` collections hold the metadata of Queryable Encryption and are never swept")
    } else {
        None
    }
}

/// Matches `text` against a pattern in which only `*` is special.
pub fn glob(pattern: &str, text: &str) -> bool {
    // The second parameter is the wildcard for one character, which policies do not have: NUL cannot occur in a name.
    WildMatchPattern::<'*', '\0'>::new(pattern).matches(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns() {
        let namespace = |text: &str| {
            let (database, collection) = text.split_once('.').unwrap();
            Namespace { database: database.into(), collection: collection.into() }
        };
        for (pattern, text, expected) in [
            ("app.sessions", "app.sessions", true),
            ("app.sessions", "app.sessions2", false),
            ("tenant_*.sessions", "tenant_1.sessions", true),
            ("tenant_*.sessions", "tenant_.sessions", true),
            ("tenant_*.sessions", "tenant_1.sessions.old", false),
            ("app.*", "app.a.b c", true),
            ("*.s?", "x.s?", true),
            ("*.s?", "x.sx", false),
            ("app.[a]", "app.[a]", true),
            ("app.Ünï*", "app.Ünïcode", true),
        ] {
            assert_eq!(NamespacePattern::parse(pattern).unwrap().matches(&namespace(text)), expected, "{pattern} {text}");
        }
        for (text, part) in [
            ("app", "has no collection"),
            ("app.", "empty collection"),
            (".x", "empty database"),
            ("admin.x", "never swept"),
            ("local.oplog.rs", "never swept"),
            ("app.system.views", "never swept"),
            ("app.enxcol_.people.esc", "Queryable Encryption"),
            ("a b.c", "cannot hold ' '"),
            ("app.a$b", "cannot hold"),
        ] {
            let message = NamespacePattern::parse(text).unwrap_err();
            assert!(message.contains(part), "{text}: {message}");
        }
    }
}
