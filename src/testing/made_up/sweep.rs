//! Sweeps of servers that answer from a list, for unit tests.

use std::sync::Arc;

use bson::RawDocumentBuf;

use crate::base::values::raw::{RawList, RawValue};
use crate::core::pace::pressure::Looks;
use crate::core::plan::findings::GoesBy;
use crate::shell::lock::lease::Leases;
use crate::shell::server::delete::grant::{Consent, DeleteGrant};
use crate::shell::server::delete::restriction::Restriction;
use crate::shell::server::watch::Watches;
use crate::shell::server::watch::load::LoadFindings;
use crate::shell::sweep::{RuleArchive, RuleSweep};
use crate::testing::made_up::planned;
use crate::testing::scripted::Script;

/// Returns the sweep of a rule for `app.c`, whose documents have this average size.
pub(crate) fn sweep(script: &Arc<Script>, average_bytes: usize, leases: &Leases, archive: Option<RuleArchive>) -> RuleSweep {
    let mut rule = planned("", 4).decision.countable().unwrap().clone();
    rule.selection.size.average_bytes = Some(average_bytes as f64);
    let grant = Arc::new(DeleteGrant::new(false, Consent::NotAsked).unwrap());
    RuleSweep::new(&script.deployment(), &rule, &GoesBy::default(), &grant, &Watches::none(), leases, archive.map(Arc::new))
}

impl Restriction {
    /// Creates a restriction to one document with this `_id`.
    pub(crate) fn one(id: RawValue) -> Self {
        Self::One { condition: RawDocumentBuf::new(), id }
    }
}

impl LoadFindings {
    /// Makes up the state after so many looks that succeeded.
    pub(crate) fn made_up(succeeded: u64, looks: Option<Looks>) -> Self {
        let mut findings = Self::default();
        (findings.succeeded, findings.looks) = (succeeded, looks);
        findings
    }
}

/// Returns the restriction to the documents with these numbers as their `_id`s.
pub(crate) fn ids_of(numbers: impl IntoIterator<Item = i32>) -> Restriction {
    let mut ids = RawList::default();
    numbers.into_iter().for_each(|number| ids.push(&RawValue::of(number).expect("a number")));
    Restriction::of_ids(RawDocumentBuf::new(), ids)
}
