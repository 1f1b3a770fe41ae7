//! Approval of a sweep by a saved audit: the deletes that it allows, and the changes that end it.

use std::time::Duration;

use bson::DateTime;

use crate::base::instant::{Instant, millis};
use crate::base::text::duration;
use crate::core::facts::ServerFacts;
use crate::core::plan::Status;
use crate::core::plan::guard::{AGAIN, CLOCK_SKEW_GUARD_MS};
use crate::core::plan::{Approved, Decision, Guard, Plan, Refusal, SkipReason, SweepRule};
use crate::core::policy::Policy;
use crate::core::policy::namespace::Namespace;
use crate::core::report::json::unread;
use crate::core::report::{PlanReport, Report, ReportCommand, RuleReport, SCHEMA_VERSION, ServerReport, predicate_json};

/// A saved report of an audit or a dry run. The person who passes it to a sweep has read the report and approves of its deletes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Approval {
    report: Report,
    as_of: DateTime,
}

impl Approval {
    /// Reads a saved report.
    ///
    /// Errors: the text is not the report of an audit or a dry run, or has another schema; the message says what was expected.
    pub(crate) fn read(text: &str) -> Result<Self, String> {
        const EXPECTED: &str = "expected the JSON report of `sweeper audit`";
        let report: Report = serde_json::from_str(text).map_err(|cause| format!("{}; {EXPECTED}", unread(&cause)))?;
        if report.schema_version != SCHEMA_VERSION {
            return Err(format!("a report of schema {}; {EXPECTED} of schema {SCHEMA_VERSION}", report.schema_version));
        }
        if !report.dry_run || !matches!(report.command, ReportCommand::Audit | ReportCommand::Sweep) {
            return Err(format!("the report of a run that was no dry run; {EXPECTED}"));
        }
        let Instant(as_of) = report.as_of.ok_or_else(|| format!("no `asOf`; {EXPECTED}"))?;
        Ok(Self { report, as_of })
    }

    /// Returns the instant that the plan took for now.
    pub(crate) fn as_of(&self) -> DateTime {
        self.as_of
    }

    /// Returns the entry of the plan in the report of the sweep.
    pub(crate) fn reported(&self, path: String) -> PlanReport {
        PlanReport { path, run_id: self.report.run_id.clone() }
    }

    /// Limits a plan to what was approved. `most_age` is the maximum age of the approval, inclusive.
    ///
    /// Rules that the approval does not contain are skipped. If the approval no longer holds, all rules are refused.
    pub(crate) fn hold_against(&self, policy: &Policy, server: &ServerFacts, most_age: Duration, plan: &mut Plan) {
        let drift = self.drift(policy, server, most_age);
        for planned in &mut plan.rules {
            let is_skipped = matches!(planned.decision, Decision::Skip(_));
            if drift.is_none() && !is_skipped && self.approved(&planned.rule.name, &planned.namespace).is_none() {
                planned.decision = Decision::Skip(SkipReason::NotInPlan);
                continue;
            }
            let (Decision::Sweep(sweep) | Decision::Refuse { countable: Some(sweep), .. }) = &mut planned.decision else {
                continue;
            };
            let answer = match &drift {
                Some(reason) => PlanAnswer::Refused(reason.clone()),
                None => self.answer(sweep),
            };
            match answer {
                PlanAnswer::Approved(approved, orphans) => {
                    let of_rule = sweep.limits.max_deletes;
                    sweep.limits.max_deletes = Some(of_rule.map_or(approved.most, |most| most.min(approved.most)));
                    sweep.approved = Some(approved);
                    if let Some(limits) = sweep.family.as_mut().and_then(|family| family.orphans.as_mut()) {
                        limits.approved = orphans;
                    }
                }
                PlanAnswer::Refused(reason) => {
                    let countable = Some(sweep.clone());
                    planned.decision = Decision::Refuse { refusal: refusal(reason), countable };
                }
            }
        }
    }

    /// Returns the reason why the approval as a whole no longer holds; `None` if it does.
    fn drift(&self, policy: &Policy, server: &ServerFacts, most_age: Duration) -> Option<String> {
        if self.report.policy.sha256 != policy.sha256 {
            return Some(format!(
                "the policy differs from the plan's (sha256 {:.12}, the plan's is {:.12}); {AGAIN}",
                policy.sha256, self.report.policy.sha256
            ));
        }
        let now = ServerReport::from(server);
        let then = self.report.server.as_ref();
        if let Some((what, then, now)) =
            then.map_or(Some(("deployment", String::new(), String::new())), |then| differs(then, &now))
        {
            return Some(format!("the {what} differs from the plan's (`{now}`, the plan's is `{then}`); {AGAIN}"));
        }
        let age = server.local_time.timestamp_millis() - self.report.started_at.millis();
        if age > i64::try_from(most_age.as_millis()).unwrap_or(i64::MAX) {
            return Some(format!(
                "the plan was saved at {}, {} ago; at most {} are allowed (`--max-plan-age`); {AGAIN}",
                self.report.started_at,
                duration(age.unsigned_abs()),
                duration(millis(most_age))
            ));
        }
        if age < -CLOCK_SKEW_GUARD_MS {
            let saved_at = self.report.started_at;
            return Some(format!("the plan was saved at {saved_at}, which is later than the server's clock; {AGAIN}"));
        }
        None
    }

    /// Returns what the plan has of a rule in a namespace.
    fn approved(&self, name: &str, namespace: &Namespace) -> Option<&RuleReport> {
        let namespace = namespace.to_string();
        self.report.rules.iter().find(|rule| rule.name == name && rule.namespace == namespace)
    }

    /// Returns the plan's answer for a rule that could be swept.
    fn answer(&self, sweep: &SweepRule) -> PlanAnswer {
        let Some(rule) = self.approved(&sweep.name, &sweep.namespace) else {
            return PlanAnswer::Refused(format!("the plan does not have this rule; {AGAIN}"));
        };
        if rule.status != Status::Complete {
            let reason = rule.reason.as_ref().map_or_else(String::new, |reason| format!(" ({reason})"));
            return PlanAnswer::Refused(format!("the plan has this rule as {}{reason}; {AGAIN}", rule.status));
        }
        // The values of environment variables are not part of the policy's hash.
        if rule.predicate != Some(predicate_json(&sweep.selection)) {
            return PlanAnswer::Refused(format!("the rule now selects other documents than the saved plan; {AGAIN}"));
        }
        let deletes_orphans = sweep.family.as_ref().is_some_and(|family| family.orphans.is_some());
        if deletes_orphans && rule.old_orphan_count.is_none() {
            return PlanAnswer::Refused(format!("the plan does not say how many orphans there are; {AGAIN}"));
        }
        match rule.expired_count {
            Some(count) => PlanAnswer::Approved(Approved::of(count), rule.old_orphan_count.map(Approved::of)),
            None => PlanAnswer::Refused(format!("the plan does not say how many documents have expired; {AGAIN}")),
        }
    }
}

/// Answer of a saved plan for one rule.
enum PlanAnswer {
    /// The documents of the rule, and its orphans.
    Approved(Approved, Option<Approved>),
    /// The plan does not allow the rule, for this reason.
    Refused(String),
}

fn refusal(detail: String) -> Refusal {
    Refusal::new(Guard::Plan, detail)
}

/// Returns the first difference between two deployments: its name, the value then and the value now.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::facts::Topology;
    use crate::core::flavor::Flavor;
    use crate::core::plan::PlannedRule;
    use crate::core::plan::findings::Remaining;
    use crate::core::plan::verdict::Verdict;
    use crate::core::policy::RunLimits;
    use crate::core::policy::parse::parse;
    use crate::core::report::RunRecord;
    use crate::testing::made_up::{NOW, counted, not_swept, planned};

    const DAY: Duration = Duration::from_secs(86_400);

    fn policy(extra: &str) -> Policy {
        let text = format!("version: 1\ncollections: [{{namespace: app.c, field: at, expireAfter: 1h{extra}}}]\n");
        parse("p", &text, &|_| None, true).unwrap()
    }

    fn server(version: &str, local_time: i64) -> ServerFacts {
        ServerFacts {
            topology: Topology::Standalone,
            hosts: vec!["h:27017".into()],
            local_time: DateTime::from_millis(local_time),
            ..ServerFacts::made_up(Flavor::MongoDb, version, 17)
        }
    }

    /// Saves an audit of one rule with this many expired documents, started at [`NOW`].
    fn saved(rule: &PlannedRule, expired: u64) -> Approval {
        let record = RunRecord {
            command: ReportCommand::Audit,
            dry_run: true,
            run_id: "r".into(),
            as_of: Some(DateTime::from_millis(NOW)),
            started_at: DateTime::from_millis(NOW),
            duration_ms: 1,
            signal_exit: None,
            policy: &policy(""),
            server: Some(&server("6.0.5", NOW)),
            plan: None,
            limits: RunLimits::default(),
            pacing_changes: Vec::new(),
        };
        let rules = vec![RuleReport::of(rule, &counted(expired), &not_swept(), &Remaining::Unknown)];
        Approval::read(&serde_json::to_string(&Report::new(record, rules)).unwrap()).unwrap()
    }

    fn held(approval: &Approval, policy: &Policy, server: &ServerFacts, rule: PlannedRule) -> PlannedRule {
        let mut plan = Plan { as_of: approval.as_of(), rules: vec![rule], strict: false };
        approval.hold_against(policy, server, DAY, &mut plan);
        plan.rules.remove(0)
    }

    fn refused(planned: &PlannedRule) -> &str {
        match &planned.decision {
            Decision::Refuse { refusal: Refusal { guard: Guard::Plan, detail }, countable: Some(_) } => detail,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_was_approved_may_be_deleted_with_the_tolerance_and_within_the_limit_of_the_rule() {
        for (keys, most) in [("", 101), ("    maxDeletes: 70\n", 70), ("    maxDeletes: 500\n", 101)] {
            let rule = planned(keys, 1000);
            let kept = held(&saved(&rule, 100), &policy(""), &server("6.0.5", NOW), rule);
            let Decision::Sweep(sweep) = &kept.decision else { panic!("{kept:?}") };
            assert_eq!((sweep.approved, sweep.limits.max_deletes), (Some(Approved { count: 100, most: 101 }), Some(most)));
            for (expired, is_ready) in [(101, true), (102, false)] {
                assert_eq!(Verdict::before(&kept, &counted(expired).decides).is_none(), is_ready, "{expired}");
            }
        }
    }

    #[test]
    fn an_approval_does_not_outlive_its_policy_deployment_or_day() {
        let rule = planned("", 1000);
        let approval = saved(&rule, 100);
        let day = 86_400_000;
        for (policy, server, why) in [
            (policy(", batchSize: 7"), server("6.0.5", NOW), "the policy differs from the plan's"),
            (policy(""), server("7.0.0", NOW), "the server's version differs from the plan's (`7.0.0`, the plan's is `6.0.5`)"),
            (policy(""), server("6.0.5", NOW + day + 1), "24h 00m ago; at most 24h 00m are allowed"),
            (policy(""), server("6.0.5", NOW - CLOCK_SKEW_GUARD_MS - 1), "which is later than the server's clock"),
        ] {
            let held = held(&approval, &policy, &server, rule.clone());
            assert!(refused(&held).contains(why), "{why}: {held:?}");
        }
        for local_time in [NOW + day, NOW - CLOCK_SKEW_GUARD_MS] {
            let held = held(&approval, &policy(""), &server("6.0.5", local_time), rule.clone());
            assert!(matches!(held.decision, Decision::Sweep(_)), "{held:?}");
        }
    }

    #[test]
    fn a_rule_that_was_not_approved_is_not_swept() {
        let (server, policy) = (server("6.0.5", NOW), policy(""));
        let rule = planned("", 1000);
        let mut other = rule.clone();
        let Decision::Sweep(sweep) = &mut other.decision else { panic!("{other:?}") };
        sweep.name = "other".into();
        other.rule.name = "other".into();
        let held_other = held(&saved(&rule, 100), &policy, &server, other.clone());
        assert_eq!(held_other.decision, Decision::Skip(SkipReason::NotInPlan));
        // Nor is one that a guard refuses, or that cannot be read: the plan says nothing of it.
        let view = Decision::Refuse { refusal: Refusal::new(Guard::View, "a view"), countable: None };
        for decision in [view, Decision::Fail("no".into())] {
            let other = PlannedRule { decision, ..other.clone() };
            let held = held(&saved(&rule, 100), &policy, &server, other);
            assert_eq!(held.decision, Decision::Skip(SkipReason::NotInPlan));
        }
        let guarded = planned("    maxDeletePercent: 5\n", 1000);
        let guarded = held(&saved(&guarded, 100), &policy, &server, guarded);
        assert!(refused(&guarded).contains("the plan has this rule as refused (maxDeletePercent)"), "{guarded:?}");
        let mut changed = rule.clone();
        let Decision::Sweep(sweep) = &mut changed.decision else { panic!("{changed:?}") };
        sweep.selection.predicate.insert("x", 1);
        let changed = held(&saved(&rule, 100), &policy, &server, changed);
        assert!(refused(&changed).contains("the rule now selects other documents than the saved plan"), "{changed:?}");
    }

    #[test]
    fn only_the_report_of_a_run_that_deleted_nothing_is_an_approval() {
        let text = serde_json::to_string(&saved(&planned("", 1000), 1).report).unwrap();
        for (from, to, why) in [
            ("\"schemaVersion\":1", "\"schemaVersion\":2", "a report of schema 2; expected"),
            ("\"dryRun\":true", "\"dryRun\":false", "the report of a run that was no dry run; expected"),
            ("\"command\":\"audit\"", "\"command\":\"check\"", "the report of a run that was no dry run; expected"),
            ("\"asOf\":\"2", "\"asOf\":\"x2", "JSON, but no report of this program"),
        ] {
            assert!(text.contains(from), "{text}");
            let error = Approval::read(&text.replace(from, to)).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }
}
