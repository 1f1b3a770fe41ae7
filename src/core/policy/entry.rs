//! A value of a policy with its place, and the problems that its readers report.

use std::cell::RefCell;

use super::env::expand;
use super::place::PathStep;
use super::problem::{Problem, Problems};
use super::yaml::Node;

/// State shared by all readers of one policy.
pub(super) struct Context<'a> {
    /// Looks up an environment variable.
    pub env: &'a dyn Fn(&str) -> Option<String>,
    /// Whether a connection string was given outside of the policy, so that the policy's own is not read.
    pub uri_given: bool,
    problems: RefCell<Vec<Problem>>,
}

impl<'a> Context<'a> {
    /// Makes a context without problems.
    pub(super) fn new(env: &'a dyn Fn(&str) -> Option<String>, uri_given: bool) -> Self {
        Self { env, uri_given, problems: RefCell::default() }
    }

    /// Returns how many problems were reported until now.
    pub(super) fn count(&self) -> usize {
        self.problems.borrow().len()
    }

    /// Returns all problems, in the order in which they were found.
    pub(super) fn into_problems(self) -> Vec<Problem> {
        self.problems.into_inner()
    }
}

/// A value and its place.
#[derive(Clone)]
pub(super) struct Entry<'a> {
    pub context: &'a Context<'a>,
    /// Key whose value it is; empty for the policy as a whole and for a rule.
    pub key: &'static str,
    pub node: &'a Node,
    pub path: Vec<PathStep>,
    /// The rule that it belongs to, as messages name it.
    pub rule: Option<String>,
    /// Whether problems are reported. Every value is checked once, when its mapping is opened, and may be read again after that.
    pub reports: bool,
}

impl<'a> Entry<'a> {
    /// Returns the entry of a node inside this one.
    pub(super) fn inner(&self, key: &'static str, node: &'a Node, step: PathStep) -> Self {
        Self { key, node, path: self.step(step), ..self.clone() }
    }

    /// Returns the path of a node inside this one.
    pub(super) fn step(&self, step: PathStep) -> Vec<PathStep> {
        [self.path.as_slice(), &[step]].concat()
    }

    /// Returns the step to the value of a key, if the node is a mapping that has it.
    pub(super) fn value_at(&self, key: &str) -> Option<PathStep> {
        let Node::Map(entries) = self.node else { return None };
        entries.iter().position(|(written, _)| matches!(written, Node::Str(written) if written == key)).map(PathStep::Value)
    }

    /// Reports a problem at a path.
    pub(super) fn problem_at(&self, path: Vec<PathStep>, message: impl Into<String>) {
        if self.reports {
            self.context.problems.borrow_mut().push(Problem { path, rule: self.rule.clone(), message: message.into() });
        }
    }

    /// Reports a problem of the value, and returns `None`.
    pub(super) fn problem<T>(&self, message: impl AsRef<str>) -> Option<T> {
        self.problem_at(self.path.clone(), format!("`{}`: {}", self.key, message.as_ref()));
        None
    }

    /// Reports that the value is not as expected, and returns `None`.
    pub(super) fn unexpected<T>(&self, expected: &str) -> Option<T> {
        self.problem(format!("found {}; expected {expected}", self.node.describe()))
    }

    /// Unwraps the result of a parser, or reports its message.
    pub(super) fn accept<T>(&self, result: Result<T, String>) -> Option<T> {
        result
            .map_err(|message| match self.node {
                // A parser quotes its input, and the value of an environment variable may be secret.
                Node::Str(raw) if raw.contains("${") => format!("what `{raw}` stands for is not valid here"),
                _ => message,
            })
            .map_or_else(|message: String| self.problem(message), Some)
    }

    /// Unwraps the result of a parser that knows the places of its problems, or reports them all.
    pub(super) fn accept_all<T>(&self, result: Result<T, Problems>) -> Option<T> {
        let report = |(path, message): (Vec<PathStep>, String)| {
            self.problem_at([self.path.as_slice(), &path].concat(), format!("`{}`: {message}", self.key));
        };
        result.map_err(|problems| problems.into_iter().for_each(report)).ok()
    }

    /// Returns the string with its environment variables replaced; reports any other kind of value.
    pub(super) fn text(&self, expected: &str) -> Option<String> {
        let Node::Str(raw) = self.node else {
            return self.unexpected(expected);
        };
        if raw.ends_with('\n') {
            return self.problem("ends in a line break, as a block of lines (`|` or `>`) does; expected the value in one line");
        }
        // Not through `accept`, because this message names the variable and quotes no value.
        expand(raw, self.context.env).map_or_else(|message| self.problem(message), Some)
    }
}
