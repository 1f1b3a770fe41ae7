//! Judges periods. A document lives at least as long as every period of it that a majority has known for 20 s when a delete
//! begins. It goes once it has expired by all that were there while a run lasted.

use bson::{Bson, Document};
use server_model::View;

use super::NOW;
use super::settings::{Settings, State};
use crate::testing::simulation::oracle::Rule;
use crate::testing::simulation::relations::{Period, Periods, TENANT, TENANTS, is_same, values};

/// Time for which a run may go by what was there before it began, in milliseconds.
const LAG: i64 = 25_000;

/// The periods of a simulation, in all their states.
pub(super) struct PeriodsJudge {
    periods: Periods,
    pub settings: Settings,
}

impl PeriodsJudge {
    pub(super) fn new(periods: &Periods) -> Self {
        Self { periods: periods.clone(), settings: Settings::new(TENANTS, TENANT) }
    }

    /// Returns a setting whose key names no tenant, under which no document may be deleted; `None` if each key names one.
    pub(super) fn forbids(&self, begun: i64, server: &View<'_>) -> Option<String> {
        let found = self.settings.promised(begun, server).into_iter().find(|state| !state.has_proper_key())?;
        Some(format!("the setting {}, whose key is {:?}", found.id, found.key))
    }

    /// Returns a rule with the shortest time by which a delete that began then may judge a document.
    pub(super) fn at_least(&self, rule: &Rule, document: &Document, begun: i64, server: &View<'_>) -> Rule {
        let promised = self.settings.promised(begun, server);
        let shortest = |key: &Bson| match self.said(promised.iter().copied(), key) {
            Some(said) => Time::of(said, rule),
            None => {
                let ever = self.settings.ever().filter(|state| is_of(state, key)).map(|state| self.periods.read(&state.document));
                ever.map(|period| Time::of(period, rule)).chain([Time::own(rule)]).min().unwrap_or(Time::Never)
            }
        };
        self.longest(rule, document, shortest)
    }

    /// Returns a rule with the longest time by which a run that began then may judge a document.
    pub(super) fn at_most(&self, rule: &Rule, document: &Document, since: i64) -> Rule {
        let from = if since == NOW { NOW } else { since - LAG };
        let longest = |key: &Bson| {
            let is_always_there = self.settings.since(from).any(|state| is_of(state, key) && state.is_there_since(from));
            match self.said(self.settings.since(from), key).map(|said| Time::of(said, rule)) {
                None => Time::own(rule),
                Some(time) if is_always_there => time,
                Some(time) => time.max(Time::own(rule)),
            }
        };
        self.longest(rule, document, longest)
    }

    /// Returns what settings say of a key. If they differ, its documents stay.
    fn said<'a>(&self, settings: impl Iterator<Item = &'a State>, key: &Bson) -> Option<Period> {
        let of_key = settings.filter(|state| is_of(state, key)).map(|state| self.periods.read(&state.document));
        of_key.reduce(|said, period| if said == period { said } else { Period::Keeps })
    }

    /// Returns a rule with the longest of the times of the keys of a document.
    fn longest(&self, rule: &Rule, document: &Document, of_key: impl Fn(&Bson) -> Time) -> Rule {
        let times = values(document, self.periods.path).into_iter().map(of_key);
        // The tool does not tell whether every element of a list before the end of the path has a period.
        let outer = self.periods.path.split_once('.').and_then(|(outer, _)| document.get_array(outer).ok());
        let expire_after = match times.chain(outer.map(|_| Time::own(rule))).max().unwrap_or(Time::own(rule)) {
            Time::Seconds(seconds) => Some(seconds),
            Time::Never => None,
        };
        Rule { expire_after, ..rule.clone() }
    }
}

/// The time for which a document is kept after its date.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Time {
    Seconds(i64),
    Never,
}

impl Time {
    /// Returns the time that a period gives the documents of a rule.
    fn of(period: Period, rule: &Rule) -> Self {
        match period {
            Period::Seconds(seconds) => Self::Seconds(seconds),
            Period::Keeps => Self::Never,
            Period::Missing => Self::own(rule),
        }
    }

    /// Returns the time of documents without a period.
    fn own(rule: &Rule) -> Self {
        rule.expire_after.map_or(Self::Never, Self::Seconds)
    }
}

fn is_of(state: &State, key: &Bson) -> bool {
    state.has_proper_key() && state.key.as_ref().is_some_and(|own| is_same(own, key))
}
