//! The estimate of each rule's sweep, from looks at the oplog, the cache, the members and the history.

use std::collections::BTreeMap;

use bson::Bson;

use crate::commands::session::Session;
use crate::core::facts::OplogLook;
use crate::core::plan::estimate::{self, Estimate, EstimateFacts, RunCaps};
use crate::core::plan::findings::Findings;
use crate::core::plan::guard::{Guard, Refusal};
use crate::core::plan::{Plan, SweepRule};
use crate::core::report::history;
use crate::shell::server::look::id_sample;
use crate::shell::server::watch::{load, oplog};
use crate::shell::server::wire::error::Result;
use crate::shell::server::{self, Deployment};
use crate::shell::sweep;

/// Runs of the history from which the speed of a rule is taken.
const RUNS: usize = 20;

/// Findings that all rules of a run share.
pub(crate) struct Estimates {
    oplog: OplogLook,
    cache: Option<u64>,
    members: Option<Vec<String>>,
    /// Documents per second of earlier sweeps, by the names of rule and namespace.
    speeds: BTreeMap<(String, String), f64>,
    run: RunCaps,
    /// Whether the estimate is shown; otherwise only what the guards need is looked for.
    shows_estimate: bool,
}

impl Estimates {
    /// Looks at what all rules share; `None` if neither the estimate is shown nor a rule guards the oplog.
    ///
    /// Errors: the server does not answer.
    pub(crate) async fn open(
        session: &Session,
        deployment: &Deployment,
        plan: &Plan,
        run: RunCaps,
        shows_estimate: bool,
    ) -> Result<Option<Self>> {
        let guards = plan.rules.iter().filter_map(|planned| planned.decision.countable());
        if !shows_estimate && guards.into_iter().all(|rule| rule.limits.min_oplog_window.is_none()) {
            return Ok(None);
        }
        let oplog = oplog::look(deployment).await?;
        let mut estimates = Self { oplog, cache: None, members: None, speeds: BTreeMap::new(), run, shows_estimate };
        if shows_estimate {
            if deployment.facts.capabilities.record_order {
                estimates.cache = load::figures(deployment).await.and_then(|load| load.cache_size);
            }
            estimates.members = oplog::members(deployment).await;
            // A service that does not sort is read as a whole, and may bill that. The estimate is told without a history as well.
            let sorts = deployment.facts.capabilities.sorts;
            if let Some(namespace) = session.policy.history.as_ref().filter(|_| sorts) {
                let runs = server::own::history::newest(deployment, namespace, RUNS, true).await.unwrap_or_default().0;
                estimates.speeds = history::speeds(&runs);
            }
        }
        Ok(Some(estimates))
    }

    /// Enters the estimate of a rule's sweep into its findings, and refuses a rule whose `minOplogWindow` cannot be kept.
    pub(crate) async fn enter(&self, deployment: &Deployment, rule: &SweepRule, findings: &mut Findings) {
        let has_oplog = self.oplog != OplogLook::None;
        let wire_version = deployment.facts.wire_version;
        let ids: Vec<Bson> = match has_oplog && rule.selection.document_count > 0 {
            true => match id_sample::of(deployment, rule).await {
                Ok(ids) => ids,
                Err(cause) => {
                    findings
                        .told
                        .warnings
                        .push(format!("what the deletes add to the oplog is unknown: looking at some `_id`s: {cause}"));
                    Vec::new()
                }
            },
            false => Vec::new(),
        };
        findings.goes_by.oplog_bytes_per_document =
            estimate::oplog_bytes_per_document(rule, &ids, wire_version).filter(|_| has_oplog);
        findings.decides.oplog_refusal = self.refusal(deployment, rule, findings.goes_by.oplog_bytes_per_document);
        let expired = findings.decides.expired.as_ref().filter(|expired| expired.is_complete && self.shows_estimate);
        findings.told.estimate = expired.map(|expired| {
            let facts = EstimateFacts {
                expired: expired.count,
                ids: &ids,
                oplog: &self.oplog,
                wire_version,
                cache: self.cache,
                measured_speed: self.speeds.get(&(rule.name.clone(), rule.namespace.to_string())).copied(),
                members: self.members.as_deref(),
                run: self.run,
            };
            Estimate::of(rule, &facts)
        });
    }

    fn refusal(&self, deployment: &Deployment, rule: &SweepRule, bytes_per_document: Option<f64>) -> Option<Refusal> {
        let least = rule.limits.min_oplog_window?;
        let refused = |why| Some(Refusal::new(Guard::MinOplogWindow, why));
        match &self.oplog {
            OplogLook::None => None,
            OplogLook::Unknown(why) => {
                refused(format!("the oplog's window is unknown: {why}; `minOplogWindow` cannot be kept without it"))
            }
            OplogLook::Known(oplog) => {
                let batch = sweep::oplog_in_flight(deployment, rule, bytes_per_document);
                oplog.refusal(least, batch).and_then(refused)
            }
        }
    }
}
