//! A saved audit as the approval of a sweep: what it allows, and what has changed since that takes it away.

use std::time::Duration;

use bson::DateTime;

use crate::facts::ServerFacts;
use crate::instant::{self, rfc3339};
use crate::plan::guard::CLOCK_SKEW_GUARD_MS;
use crate::plan::{Approved, Decision, Plan, Refusal, SkipReason, SweepRule};
use crate::policy::Policy;
use crate::report::{Command, PlanReport, Report, RuleReport, SCHEMA_VERSION, ServerReport, Status, predicate_json};
use crate::text::count;

/// More documents than were approved may be expired by so much, in percent of the approved ones, rounded up: at a fixed asOf only documents
/// that were inserted or changed since, with dates in the past, can be more.
pub const TOLERANCE_PERCENT: u64 = 1;

/// The guard that a refusal by this module names.
const GUARD: &str = "plan";

/// A report that says what would be deleted, taken as the word of somebody who has read it.
#[derive(Debug, Clone, PartialEq)]
pub struct Approval {
    report: Report,
    as_of: DateTime,
    saved_at: DateTime,
}

impl Approved {
    fn of(count: u64) -> Self {
        Self { count, most: count.saturating_add(count.saturating_mul(TOLERANCE_PERCENT).div_ceil(100)) }
    }

    /// Refuses a rule of which more has expired than was approved.
    pub fn guard(self, expired_count: u64) -> Option<Refusal> {
        (expired_count > self.most).then(|| {
            refusal(format!(
                "{} documents have expired, {} were approved, and {TOLERANCE_PERCENT} % more may be; {AGAIN}",
                count(expired_count),
                count(self.count),
            ))
        })
    }
}

const AGAIN: &str = "look at a new audit, and save it as the plan";

impl Approval {
    /// Reads a saved report.
    ///
    /// Errors: it is no report of an audit or a dry run, or one of another schema; says what was expected.
    pub fn read(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "expected the JSON report of `sweeper audit`";
        let report: Report = serde_json::from_str(text).map_err(|cause| format!("{cause}; {EXPECTED}"))?;
        if report.schema_version != SCHEMA_VERSION {
            return Err(format!("a report of schema {}; {EXPECTED} of schema {SCHEMA_VERSION}", report.schema_version));
        }
        if !report.dry_run || !matches!(report.command, Command::Audit | Command::Sweep) {
            return Err(format!("the report of a run that was no dry run; {EXPECTED}"));
        }
        let as_of = report.as_of.as_deref().and_then(instant::parse).ok_or_else(|| format!("no `asOf`; {EXPECTED}"))?;
        let saved_at = instant::parse(&report.started_at).ok_or_else(|| format!("no `startedAt`; {EXPECTED}"))?;
        Ok(Self { report, as_of, saved_at })
    }

    /// The instant that the plan calls now.
    pub fn as_of(&self) -> DateTime {
        self.as_of
    }

    /// What the sweep's own report says of it.
    pub fn reported(&self, path: String) -> PlanReport {
        PlanReport { path, run_id: self.report.run_id.clone() }
    }

    /// Leaves in a plan what was approved, and no more than that. `most_age` is how old the approval may be, inclusively.
    ///
    /// Rules that were not in it are skipped; where it does not hold any more, all are refused.
    pub fn hold_against(&self, policy: &Policy, server: &ServerFacts, most_age: Duration, plan: &mut Plan) {
        let drift = self.drift(policy, server, most_age);
        for planned in &mut plan.rules {
            let (Decision::Sweep(sweep) | Decision::Refuse { countable: Some(sweep), .. }) = &mut planned.decision else {
                continue;
            };
            let answer = match &drift {
                Some(reason) => Answer::Refused(reason.clone()),
                None => self.answer(sweep),
            };
            match answer {
                Answer::Approved(approved) => {
                    let of_rule = sweep.limits.max_deletes;
                    sweep.limits.max_deletes = Some(of_rule.map_or(approved.most, |most| most.min(approved.most)));
                    sweep.approved = Some(approved);
                }
                Answer::NotAsked => planned.decision = Decision::Skip(SkipReason::NotInPlan),
                Answer::Refused(reason) => {
                    planned.decision = Decision::Refuse { refusal: refusal(reason), countable: None };
                }
            }
        }
    }

    /// Why nothing of the plan holds any more.
    fn drift(&self, policy: &Policy, server: &ServerFacts, most_age: Duration) -> Option<String> {
        if self.report.policy.sha256 != policy.sha256 {
            return Some(format!(
                "the policy is not the one of the plan (sha256 {:.12}, the plan's is {:.12}); {AGAIN}",
                policy.sha256, self.report.policy.sha256
            ));
        }
        let now = ServerReport::from(server);
        let then = self.report.server.as_ref();
        if let Some((what, then, now)) =
            then.map_or(Some(("deployment", String::new(), String::new())), |then| differs(then, &now))
        {
            return Some(format!("the {what} is not the one of the plan (`{now}`, the plan's is `{then}`); {AGAIN}"));
        }
        let age = server.local_time.timestamp_millis() - self.saved_at.timestamp_millis();
        if age > i64::try_from(most_age.as_millis()).unwrap_or(i64::MAX) {
            return Some(format!(
                "the plan was saved at {}, {} s ago; at most {} s are allowed (`--max-plan-age`); {AGAIN}",
                rfc3339(self.saved_at),
                age / 1000,
                most_age.as_secs()
            ));
        }
        if age < -CLOCK_SKEW_GUARD_MS {
            let saved_at = rfc3339(self.saved_at);
            return Some(format!("the plan was saved at {saved_at}, which is later than the server's clock; {AGAIN}"));
        }
        None
    }

    /// What the plan says of a rule that could be swept.
    fn answer(&self, sweep: &SweepRule) -> Answer {
        let namespace = sweep.namespace.to_string();
        let is_meant = |rule: &&RuleReport| rule.name == sweep.name && rule.namespace == namespace;
        let Some(rule) = self.report.rules.iter().find(is_meant) else { return Answer::NotAsked };
        if rule.status != Status::Complete {
            let reason = rule.reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
            return Answer::Refused(format!("the plan has this rule as {}{reason}; {AGAIN}", rule.status.word()));
        }
        // What a variable stands for is not part of the policy's hash.
        if rule.predicate != Some(predicate_json(&sweep.selection)) {
            return Answer::Refused(format!("the rule means other documents than in the plan; {AGAIN}"));
        }
        match rule.expired_count {
            Some(count) => Answer::Approved(Approved::of(count)),
            None => Answer::Refused(format!("the plan does not say how many documents have expired; {AGAIN}")),
        }
    }
}

/// What a plan says of a rule.
enum Answer {
    Approved(Approved),
    /// The rule was not there.
    NotAsked,
    /// Says why.
    Refused(String),
}

fn refusal(detail: String) -> Refusal {
    Refusal { guard: GUARD, detail }
}

/// What about a deployment is not as it was, with the value of then and of now.
fn differs(then: &ServerReport, now: &ServerReport) -> Option<(&'static str, String, String)> {
    let name = |server: &ServerReport| server.name.clone().unwrap_or_else(|| "none".into());
    let pairs = [
        ("flavor", then.flavor.clone(), now.flavor.clone()),
        ("topology", then.topology.clone(), now.topology.clone()),
        ("replica set", name(then), name(now)),
        ("server's version", then.version.clone(), now.version.clone()),
    ];
    let hosts =
        (!then.hosts.iter().any(|host| now.hosts.contains(host))).then(|| ("host", then.hosts.join(", "), now.hosts.join(", ")));
    pairs.into_iter().find(|(_, then, now)| then != now).or(hosts)
}
