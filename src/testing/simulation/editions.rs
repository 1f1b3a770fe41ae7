//! The policies of the runs. In most seeds all runs have one policy. In others several rules of the parents' collection have
//! different children, and some runs have an older policy, or only one of the rules.

use super::choices::Edition;
use super::relations::{Holds, JOURNAL, Periods};
use super::scenario::{ARCHIVES, LAST, Scenario};

/// One in so many simulations with children has rules with different ones.
const ONE_IN: u8 = 2;

impl Edition {
    /// Returns the newest policy of a scenario.
    pub(super) fn whole(scenario: &Scenario) -> Self {
        let children = |rule: usize| scenario.family_of_rule(rule).map(|family| family.of_rule(rule)).unwrap_or_default();
        Self { rules: (0..scenario.rules.len()).map(|rule| Some(children(rule))).collect(), only: None }
    }

    /// Whether a run sweeps a rule.
    pub(super) fn has(&self, rule: usize) -> bool {
        self.rules[rule].is_some() && self.only.is_none_or(|only| only == rule)
    }

    /// Returns the numbers of the collections whose documents go with the documents of a rule.
    pub(super) fn children(&self, rule: usize) -> &[usize] {
        self.rules[rule].as_deref().unwrap_or_default()
    }

    /// Whether a rule of the policy has children, and so a lease in the journal.
    pub(super) fn has_children(&self) -> bool {
        self.rules.iter().flatten().any(|children| !children.is_empty())
    }

    /// Returns an older policy of these rules, or this one for a part of them.
    fn reduced(&self, of_parents: &[usize], random: &mut fastrand::Rng) -> Self {
        let mut reduced = self.clone();
        let rule = of_parents[random.usize(..of_parents.len())];
        match random.u8(..6) {
            0..3 => reduced.only = Some(rule),
            3 => reduced.rules[rule] = None,
            // Without any children at times.
            _ => drop(reduced.rules[rule].as_mut().and_then(Vec::pop)),
        }
        reduced
    }
}

impl Scenario {
    /// Gives the rules of the parents' collection different children, if the seed says so, and some runs a part of the policy.
    pub(super) fn tell_apart(&mut self, seed: u64) {
        let mut random = fastrand::Rng::with_seed(seed ^ 0x6564_6974_696f_6e73);
        let Some(family) = self.family.as_mut().filter(|_| random.u8(..ONE_IN) == 0) else { return };
        family.need_two(&mut random);
        let first = self.rules[0].clone();
        if !self.rules[1..].iter().any(|swept| swept.rule.namespace == first.rule.namespace) {
            self.rules.push(first.beside(&mut random));
        }
        let of_parents: Vec<usize> =
            (0..self.rules.len()).filter(|rule| self.rules[*rule].rule.namespace == first.rule.namespace).collect();
        let mut shares =
            [vec![vec![0], vec![1]], vec![vec![0, 1], vec![1]], vec![vec![0], vec![0, 1]]][random.usize(..3)].clone();
        if random.bool() {
            shares.reverse();
        }
        family.of_rules = of_parents.iter().copied().zip(shares).collect();
        let whole = Edition::whole(self);
        for run in (0..self.sweepers.len()).flat_map(|number| [format!("run{number}a"), format!("run{number}b")]) {
            if random.bool() {
                self.editions.insert(run, whole.reduced(&of_parents, &mut random));
            }
        }
        if random.u8(..4) == 0 {
            self.editions.insert(LAST.to_owned(), whole.reduced(&of_parents, &mut random));
        }
    }

    /// Returns the policy of a run.
    pub(super) fn edition(&self, run: &str) -> Edition {
        self.editions.get(run).cloned().unwrap_or_else(|| Edition::whole(self))
    }

    /// Returns the text of a policy.
    pub(super) fn policy(&self, edition: &Edition) -> String {
        let mut text = String::from("version: 1\n");
        let mut run = Vec::new();
        run.extend(self.run_rate.map(|rate| format!("rate: {rate}")));
        run.extend(self.run_concurrency.map(|most| format!("concurrency: {most}")));
        if !run.is_empty() {
            text += &format!("run: {{{}}}\n", run.join(", "));
        }
        if self.has_lease {
            text += "lock: {collection: ops.locks}\n";
        }
        if self.family.is_some() {
            text += &format!("journal: {{collection: {JOURNAL}}}\n");
        }
        text += "collections:\n";
        for (number, swept) in self.rules.iter().enumerate().filter(|(number, _)| edition.rules[*number].is_some()) {
            text += &format!("  - name: {}\n", name(number));
            let of_children = self.family.as_ref().map(|family| family.lines(edition.children(number))).unwrap_or_default();
            let of_holds = self.holds.as_ref().map(Holds::line);
            let of_periods = self.periods.as_ref().map(Periods::line);
            for line in swept.lines().into_iter().chain(of_children).chain(of_holds).chain(of_periods) {
                text += &format!("    {line}\n");
            }
            if self.archives {
                text += &format!("    archive: {{directory: {ARCHIVES}}}\n");
            }
        }
        text
    }
}

/// Returns the name of a rule.
pub(super) fn name(rule: usize) -> String {
    format!("rule{rule}")
}
