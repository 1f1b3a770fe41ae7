//! Tables that grow on stdout while the benchmark runs.

/// The goal of a figure.
#[derive(Clone, Copy)]
pub(crate) enum Goal {
    AtMost(f64),
    AtLeast(f64),
}

/// Maximum of sweeper's resident memory in megabytes, for any sweep.
pub(crate) const MEMORY: Goal = Goal::AtMost(40.0);

/// A heading, and the widths of the columns in characters.
pub(crate) struct Table(Vec<usize>);

impl Table {
    /// Prints the title and the heading. Columns are names and widths; the first is aligned to the left, the others to the right.
    pub(crate) fn begin(title: &str, columns: &[(&str, usize)]) -> Self {
        println!("\n{title}");
        let table = Self(columns.iter().map(|(_, width)| *width).collect());
        table.row(columns.iter().map(|(name, _)| (*name).to_owned()));
        table
    }

    pub(crate) fn row(&self, cells: impl IntoIterator<Item = String>) {
        let cells = cells.into_iter().zip(&self.0).enumerate();
        let set = cells.map(|(n, (cell, width))| if n == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") });
        println!("{}", set.collect::<Vec<_>>().join("  ").trim_end());
    }
}

/// Returns a figure with this many decimals; `-` if it was not measured.
pub(crate) fn figure(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}

/// Returns a figure with its goal.
pub(crate) fn against(value: Option<f64>, goal: Goal, decimals: usize) -> String {
    let Some(measured) = value else { return figure(None, decimals) };
    let (sign, bound, reached) = match goal {
        Goal::AtMost(bound) => ("<=", bound, measured <= bound),
        Goal::AtLeast(bound) => (">=", bound, measured >= bound),
    };
    let mark = if reached { ' ' } else { '!' };
    format!("{} ({sign} {bound:.decimals$}){mark}", figure(value, decimals))
}

/// Returns a figure, with its goal if it has one.
pub(crate) fn maybe_against(value: Option<f64>, goal: Option<Goal>, decimals: usize) -> String {
    goal.map_or_else(|| figure(value, decimals), |goal| against(value, goal, decimals))
}
