//! The estimate of each rule's sweep, from looks at the oplog, the cache, the members and the history.

use std::collections::BTreeMap;

use bson::Bson;

use crate::commands::session::Session;
use crate::core::facts::OplogLook;
use crate::core::plan::estimate::{self, CountedChildren, Estimate, EstimateFacts};
use crate::core::plan::findings::Findings;
use crate::core::plan::guard::{Guard, Refusal};
use crate::core::plan::{Plan, SweepRule};
use crate::core::policy::RunLimits;
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
    run: RunLimits,
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
        run: RunLimits,
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

    /// Looks at what the deletes of a rule add to the oplog, and refuses the rule if its `minOplogWindow` cannot be kept. Returns
    /// some `_id`s of its documents.
    pub(crate) async fn decide(&self, deployment: &Deployment, rule: &SweepRule, findings: &mut Findings) -> Vec<Bson> {
        let ids = self.ids(deployment, rule, findings).await;
        let wire_version = deployment.facts.wire_version;
        findings.goes_by.oplog_bytes_per_document =
            estimate::oplog_bytes_per_document(rule, &ids, wire_version).filter(|_| self.has_oplog());
        findings.decides.oplog_refusal = self.refusal(deployment, rule, findings.goes_by.oplog_bytes_per_document);
        ids
    }

    /// Enters the estimate of a rule's sweep into its findings. `ids` are some of the rule's documents, `children` the children
    /// of its expired documents by collection, if they were counted.
    pub(crate) async fn enter(
        &self,
        deployment: &Deployment,
        rule: &SweepRule,
        ids: &[Bson],
        children: Option<&[u64]>,
        findings: &mut Findings,
    ) {
        let expired = findings.decides.expired.as_ref().filter(|expired| expired.is_complete && self.shows_estimate);
        let Some(expired) = expired.map(|expired| expired.count) else { return };
        let children = self.children(deployment, rule, children, findings).await;
        let facts = EstimateFacts {
            expired,
            ids,
            children: children.as_deref(),
            oplog: &self.oplog,
            wire_version: deployment.facts.wire_version,
            cache: self.cache,
            measured_speed: self.speeds.get(&(rule.name.clone(), rule.namespace.to_string())).copied(),
            members: self.members.as_deref(),
            run: self.run,
        };
        findings.told.estimate = Some(Estimate::of(rule, &facts));
    }

    /// Returns the children that go; `None` if they were not counted.
    async fn children<'a>(
        &self,
        deployment: &Deployment,
        rule: &'a SweepRule,
        counts: Option<&[u64]>,
        findings: &mut Findings,
    ) -> Option<Vec<CountedChildren<'a>>> {
        let Some(family) = &rule.family else { return Some(Vec::new()) };
        let mut children = Vec::new();
        for (number, (child, of_expired)) in family.children.iter().zip(counts?).enumerate() {
            let orphans =
                findings.decides.orphans.as_ref().and_then(|orphans| orphans.old.as_ref()?.get(number).map(|old| old.count));
            let ids = self.ids(deployment, &child.rule, findings).await;
            children.push(CountedChildren { child, of_expired: *of_expired, orphans: orphans.unwrap_or(0), ids });
        }
        Some(children)
    }

    /// Returns some `_id`s of the documents of a rule; none where there is no oplog.
    async fn ids(&self, deployment: &Deployment, rule: &SweepRule, findings: &mut Findings) -> Vec<Bson> {
        if !self.has_oplog() || rule.selection.document_count == 0 {
            return Vec::new();
        }
        id_sample::of(deployment, rule).await.unwrap_or_else(|cause| {
            let why = format!("what the deletes add to the oplog is unknown: looking at some `_id`s: {cause}");
            findings.told.warnings.push(why);
            Vec::new()
        })
    }

    fn has_oplog(&self) -> bool {
        self.oplog != OplogLook::None
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
