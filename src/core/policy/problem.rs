//! The problems of a policy, collected so that a person sees all of them at once.

use std::fmt;

use super::place::{PathStep, Place, locate};

/// One problem, at one place of the policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// Path of the node, for finding its line; the last step may be the key rather than its value.
    pub path: Vec<PathStep>,
    /// The rule that it belongs to, as messages name it: ``collections[2] `sessions` ``.
    pub rule: Option<String>,
    /// Says what was found and what was expected; never the value of an environment variable.
    pub message: String,
}

/// Problems of one value, each with the path from the value to its place.
pub(super) type Problems = Vec<(Vec<PathStep>, String)>;

/// All problems of one policy with their places, in the order of the text; shown one per line.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyError {
    pub path: String,
    pub problems: Vec<(Option<Place>, String)>,
}

/// Maximum number of problems that are shown: more are not worth reading, and each takes a pass over the text to be located.
const MAX_SHOWN: usize = 25;

impl PolicyError {
    /// Makes the error of a text that could not be parsed at all.
    pub fn single(path: &str, place: Option<Place>, message: String) -> Self {
        Self { path: path.to_owned(), problems: vec![(place, message)] }
    }

    /// Makes the error of a text with these problems.
    pub fn new(path: &str, text: &str, problems: &[Problem]) -> Self {
        let mut located: Vec<_> = problems
            .iter()
            .take(MAX_SHOWN)
            .map(|problem| {
                let message = match &problem.rule {
                    Some(rule) => format!("{rule}: {}", problem.message),
                    None => problem.message.clone(),
                };
                (locate(text, &problem.path), message)
            })
            .collect();
        located.sort_by_key(|(place, _)| *place);
        if problems.len() > MAX_SHOWN {
            located.push((None, format!("and {} more problems", problems.len() - MAX_SHOWN)));
        }
        Self { path: path.to_owned(), problems: located }
    }
}

impl std::error::Error for PolicyError {}

impl PolicyError {
    /// Returns the number of problems in words.
    pub fn head(&self) -> String {
        let count = self.problems.len();
        format!("invalid policy `{}`: {count} problem{}; nothing was contacted", self.path, if count == 1 { "" } else { "s" })
    }

    /// Returns the problems with their places, one per line.
    pub fn lines(&self) -> Vec<String> {
        let lines = self.problems.iter().map(|(place, message)| match place {
            Some(Place { line, column }) => format!("{}:{line}:{column}: {message}", self.path),
            None => format!("{}: {message}", self.path),
        });
        lines.collect()
    }
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str(&self.head())?;
        self.lines().iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

/// Returns the candidate that a text was most likely meant to be; `None` if none is near.
pub fn nearest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let text = text.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&text, &candidate.to_lowercase()), candidate))
        .min()
        .filter(|(distance, candidate)| *distance <= 2.max(candidate.len() / 4) && *distance < candidate.chars().count())
        .map(|(_, candidate)| candidate)
}

/// Returns the complaint about a key that a mapping does not have.
///
/// A known name before a colon is a key whose space is missing: what follows is not shown, because it may be a password.
pub(super) fn unknown_key(key: &str, known: &[&str]) -> String {
    if let Some((name, _)) = key.split_once(':').filter(|(name, _)| known.contains(name)) {
        return no_space(name);
    }
    let shown = if key.contains("://") { "..." } else { key };
    match nearest(key, known.iter().copied()) {
        Some(candidate) => format!("unknown key `{shown}`; expected `{candidate}`?"),
        None => format!("unknown key `{shown}`; expected one of {}", known.join(", ")),
    }
}

/// Returns the complaint about a key that its value follows without a space.
pub(super) fn no_space(name: &str) -> String {
    let name = name.trim();
    format!("no space after the colon of `{name}`; expected `{name}: ...`")
}

/// Returns the known key that an unknown one was most likely meant to be.
pub(super) fn meant<'a>(key: &str, known: &[&'a str]) -> Option<&'a str> {
    let written = key.split_once(':').and_then(|(name, _)| known.iter().copied().find(|known| *known == name));
    written.or_else(|| nearest(key, known.iter().copied()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_keyboard_is_near_and_another_word_is_not() {
        let keys = ["expireAfter", "expireAfterSeconds", "rate", "run"];
        for (text, near) in [
            ("expireAfterr", Some("expireAfter")),
            ("expireafterseconds", Some("expireAfterSeconds")),
            ("expire_after", Some("expireAfter")),
            ("rtae", Some("rate")),
            ("rnu", Some("run")),
            ("x", None),
            ("timeToLive", None),
            ("", None),
        ] {
            assert_eq!(nearest(text, keys), near, "{text}");
        }
    }

    #[test]
    fn problems_are_shown_in_the_order_of_the_text_and_not_without_end() {
        let text = "a: 1\nb: 2\n";
        let problem = |key, message: &str| Problem { path: vec![PathStep::Key(key)], rule: None, message: message.into() };
        let shown = PolicyError::new("p", text, &[problem(1, "second"), problem(0, "first")]).to_string();
        assert_eq!(shown, "invalid policy `p`: 2 problems; nothing was contacted\n  p:1:1: first\n  p:2:1: second");
        let many: Vec<Problem> = (0..MAX_SHOWN + 3).map(|_| problem(0, "again")).collect();
        let shown = PolicyError::new("p", text, &many).to_string();
        assert!(shown.ends_with("\n  p: and 3 more problems") && shown.lines().count() == MAX_SHOWN + 2, "{shown}");
    }
}
