//! The look for documents that have the fields that the policy names, with the types that it compares them with, before anything
//! is counted.

use std::cell::RefCell;
use std::collections::BTreeSet;

use futures_util::{StreamExt, stream};
use tokio::time::Instant;

use crate::base::instant::millis;
use crate::commands::session::Session;
use crate::core::plan::fields::{DATES, NamedField, UnknownField, judged, named};
use crate::core::plan::findings::{CountObstacle, Decides, Findings};
use crate::core::plan::verdict::not_begun;
use crate::core::plan::{Plan, PlannedRule, SweepRule};
use crate::shell::server::Deployment;
use crate::shell::server::look::fields::{self, FieldPresence, SearchTime};
use crate::shell::server::wire::error::Result;
use crate::shell::sweep::asked_reason;

/// Namespaces that are looked at at the same time.
const LOOKED_AT_ONCE: usize = 4;

/// The look at the namespaces of a run, which goes over all of them several times.
struct FieldSearch<'a> {
    session: &'a Session,
    deployment: &'a Deployment,
    /// Whether the report names the namespaces that lack what documents in others have.
    for_all: bool,
    /// Findings in any namespace of a rule: the name of the rule, and the field or type that documents have.
    found: RefCell<BTreeSet<(String, String)>>,
    /// Time for the fields that may get a rule refused, which others must not use up: the judgement is the same however many are
    /// looked for.
    time: SearchTime,
    /// Time for the other fields.
    time_for_others: SearchTime,
    /// Set when the deployment turns out to be unreachable.
    gone: RefCell<Option<String>>,
}

/// One turn of the look.
#[derive(Debug, Clone, Copy)]
enum FieldTurn {
    /// Looks at the first documents.
    Sample,
    /// Searches for the names that no sample had.
    Search,
    /// Looks for names that are nearly the same as those that were not found.
    Names,
}

/// Looks for the fields that the rules name, and returns the beginning of their findings, in the order of the plan. `of_rule`
/// returns the rule of a namespace that is to be looked at. A rule that a guard refuses in one namespace is looked at as well,
/// or the others would be judged in another way than by a dry run. With `for_all`, and in a strict run, all fields are looked
/// for; otherwise those that a sweep depends on.
///
/// A name that documents in one namespace of a rule have is right, and not searched for in the others. With hundreds of tenants
/// some have no document with a rare field such as a legal hold. A rule that is refused there would have to do without the guard
/// everywhere.
pub(crate) async fn look<'a>(
    session: &Session,
    deployment: &Deployment,
    plan: &'a Plan,
    for_all: bool,
    of_rule: impl Fn(&'a PlannedRule) -> Option<&'a SweepRule>,
) -> Vec<Findings> {
    let looking = &FieldSearch {
        session,
        deployment,
        for_all,
        found: RefCell::default(),
        time: SearchTime::new(),
        time_for_others: SearchTime::new(),
        gone: RefCell::default(),
    };
    let rules: Vec<Option<&SweepRule>> = plan.rules.iter().map(of_rule).collect();
    let begin = |(planned, rule): (&PlannedRule, &Option<&SweepRule>)| {
        let mut findings = Findings::default();
        if rule.is_some() {
            findings.decides.unknown_fields = asked(deployment, planned, for_all || plan.strict, plan.strict);
        }
        findings
    };
    let mut looked: Vec<Findings> = plan.rules.iter().zip(&rules).map(begin).collect();
    for turn in [FieldTurn::Sample, FieldTurn::Search, FieldTurn::Names] {
        let looks = stream::iter(rules.iter().zip(looked)).map(|(rule, findings)| async move {
            match rule {
                Some(rule) => looking.one(rule, findings, turn).await,
                None => findings,
            }
        });
        looked = looks.buffered(LOOKED_AT_ONCE).collect().await;
    }
    for (planned, findings) in plan.rules.iter().zip(&mut looked) {
        findings.decides.unknown_fields = judged(std::mem::take(&mut findings.decides.unknown_fields));
        for unknown in &mut findings.decides.unknown_fields {
            unknown.is_elsewhere = looking.is_known(&planned.rule.name, &unknown.field);
        }
        // In the report of a sweep it is of no interest which tenants have no document with a rare field.
        findings.decides.unknown_fields.retain(|unknown| for_all || !unknown.is_elsewhere);
    }
    looked
}

/// Returns the fields to look for, as if none were found.
fn asked(deployment: &Deployment, planned: &PlannedRule, for_all: bool, is_strict: bool) -> Vec<UnknownField> {
    // Without its date nothing is deleted: not worth a look where an index shows that the name is right, and none for which a
    // service bills every document.
    let is_indexed =
        planned.decision.countable().and_then(|rule| rule.selection.index.as_ref()).is_some_and(|index| index.bounded);
    let looks_for_date = !(is_indexed || deployment.facts.capabilities.request_charge);
    let is_asked =
        |field: &NamedField| for_all || field.is_guarded || (field.key == DATES && !field.is_of_dates() && looks_for_date);
    let unknown = |field: NamedField| {
        // A wrong type of the dates deletes nothing, and is no unknown field.
        let is_strict = is_strict && !field.is_of_dates();
        UnknownField { field, is_known: false, similar: None, is_elsewhere: false, is_strict }
    };
    named(planned).into_iter().filter(is_asked).map(unknown).collect()
}

impl FieldSearch<'_> {
    fn is_known(&self, rule: &str, field: &NamedField) -> bool {
        self.found.borrow().contains(&(rule.to_owned(), field.identity().to_owned()))
    }

    /// Takes one turn at a namespace, and returns its findings without the fields that were found.
    async fn one(&self, rule: &SweepRule, mut findings: Findings, turn: FieldTurn) -> Findings {
        if findings.decides.unknown_fields.is_empty() || findings.decides.obstacle.is_some() {
            return findings;
        }
        if let Some(why) = self.gone.borrow().as_ref() {
            findings.decides.obstacle = Some(CountObstacle::Failed(not_begun(why)));
            return findings;
        }
        let begun = Instant::now();
        let deployment = self.deployment.of_rule(rule);
        let stop = &self.session.stop;
        let looked = tokio::select! {
            biased;
            looked = self.unknown(&deployment, rule, &findings.decides.unknown_fields, turn) => looked,
            () = stop.asked() => {
                findings.decides.obstacle = Some(CountObstacle::Stopped(asked_reason(stop)));
                return findings;
            }
        };
        findings.told.duration_ms += millis(begun.elapsed());
        match looked {
            Ok(unknown_fields) => findings.decides.unknown_fields = unknown_fields,
            Err(cause) => {
                if cause.is_unreachable() {
                    self.gone.replace(Some(cause.to_string()));
                }
                let obstacle = CountObstacle::Failed(format!("looking for the fields that the policy names: {cause}"));
                findings.decides = Decides { obstacle: Some(obstacle), ..Decides::default() };
            }
        }
        findings
    }

    /// Returns the fields that are still not found; none where there are no documents.
    ///
    /// Errors: a look fails, and the field is one for the lack of which documents may be deleted.
    async fn unknown(
        &self,
        deployment: &Deployment,
        rule: &SweepRule,
        fields: &[UnknownField],
        turn: FieldTurn,
    ) -> Result<Vec<UnknownField>> {
        if !self.for_all && fields.iter().all(|field| self.is_known(&rule.name, &field.field)) {
            return Ok(Vec::new());
        }
        let sampled = match turn {
            FieldTurn::Sample => match self.sampled(deployment, rule, fields).await? {
                Some(sampled) => sampled,
                None => return Ok(Vec::new()),
            },
            FieldTurn::Search | FieldTurn::Names => Vec::new(),
        };
        let mut unknown = Vec::new();
        for (number, field) in fields.iter().enumerate() {
            let mut field = field.clone();
            let looked = match turn {
                FieldTurn::Sample => Ok(sampled[number]),
                _ if self.is_known(&rule.name, &field.field) => Ok(FieldPresence::default()),
                FieldTurn::Search => {
                    let time = if is_needed(&field) { &self.time } else { &self.time_for_others };
                    fields::search(deployment, rule, &field.field, field.is_known, time).await
                }
                FieldTurn::Names => {
                    // Without such a name the finding is the same.
                    field.similar = fields::similar(deployment, rule, &field.field).await.unwrap_or_default();
                    Ok(FieldPresence::default())
                }
            };
            match looked {
                Ok(FieldPresence { is_found: true, .. }) => {
                    self.found.borrow_mut().insert((rule.name.clone(), field.field.identity().to_owned()));
                }
                Ok(FieldPresence { is_known, .. }) => {
                    field.is_known |= is_known;
                    unknown.push(field);
                }
                Err(cause) if is_needed(&field) => return Err(cause),
                // The sweep has more patience with a server that does not answer.
                Err(_) => {}
            }
        }
        Ok(unknown)
    }

    /// Returns what the first documents say of each field; `None` if there are no documents.
    ///
    /// Errors: a look fails, and the field is one for the lack of which documents may be deleted.
    async fn sampled(
        &self,
        deployment: &Deployment,
        rule: &SweepRule,
        fields: &[UnknownField],
    ) -> Result<Option<Vec<FieldPresence>>> {
        let named: Vec<&NamedField> = fields.iter().map(|field| &field.field).collect();
        let all = fields::look(deployment, rule, &named).await;
        let cause = match all {
            Err(cause) if !cause.is_unreachable() => cause,
            all => return all,
        };
        // One of them may be what the server does not answer.
        let mut sampled = Vec::new();
        for field in fields {
            let looked = match fields.len() {
                1 => Err(cause.clone()),
                _ => fields::look(deployment, rule, &[&field.field]).await,
            };
            match looked {
                Ok(Some(seen)) => sampled.extend(seen),
                Ok(None) => return Ok(None),
                Err(cause) if is_needed(field) => return Err(cause),
                // It is left out.
                Err(_) => sampled.push(FieldPresence { is_found: true, is_known: true }),
            }
        }
        Ok(Some(sampled))
    }
}

/// Whether the rule is not run if the look for a field fails.
fn is_needed(unknown: &UnknownField) -> bool {
    unknown.field.is_guarded || unknown.is_strict
}
