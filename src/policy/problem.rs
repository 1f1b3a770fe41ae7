//! What is wrong with a policy, collected so that a person sees all of it at once.

use std::fmt;

use super::place::{Place, Step, locate};

/// One thing that is wrong, at one place of the policy.
#[derive(Debug, Clone, PartialEq)]
pub struct Problem {
    /// Path of the node, for finding its line; the last step may be the key rather than its value.
    pub path: Vec<Step>,
    /// The rule it belongs to, as a person would call it: ``collections[2] `sessions` ``.
    pub rule: Option<String>,
    /// What was found and what was expected. Never the value of an environment variable.
    pub message: String,
}

/// All problems of one policy, with their places. Shown one a line, in the order of the text.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyError {
    pub path: String,
    pub problems: Vec<(Option<Place>, String)>,
}

/// More than this many are not worth reading, and each needs a pass over the text to be located.
const MAX_SHOWN: usize = 25;

impl PolicyError {
    /// The error of a text that could not be parsed at all.
    pub fn single(path: &str, place: Option<Place>, message: String) -> Self {
        Self { path: path.to_owned(), problems: vec![(place, message)] }
    }

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

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let count = self.problems.len();
        write!(f, "invalid policy `{}`: {count} problem{}; nothing was contacted", self.path, if count == 1 { "" } else { "s" })?;
        for (place, message) in &self.problems {
            match place {
                Some(Place { line, column }) => write!(f, "\n  {}:{line}:{column}: {message}", self.path)?,
                None => write!(f, "\n  {}: {message}", self.path)?,
            }
        }
        Ok(())
    }
}

/// The candidate that a text was most likely meant to be; `None` where none is near.
pub fn nearest<'a>(text: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let text = text.to_lowercase();
    candidates
        .into_iter()
        .map(|candidate| (strsim::damerau_levenshtein(&text, &candidate.to_lowercase()), candidate))
        .min()
        .filter(|(distance, candidate)| *distance <= 2.max(candidate.len() / 4) && *distance < candidate.chars().count())
        .map(|(_, candidate)| candidate)
}
