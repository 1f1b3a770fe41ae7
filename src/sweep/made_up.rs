//! Sweeps of servers that answer from a list, for unit tests.

use std::sync::Arc;

use super::{RuleArchive, RuleSweep};
use crate::lock::lease::Leases;
use crate::report::counts::Counts;
use crate::report::made_up::planned;
use crate::server::grant::{Consent, DeleteGrant};
use crate::server::scripted::Script;
use crate::server::watches::Watches;

/// Returns the sweep of a rule for `app.c`, whose documents have this average size.
pub(super) fn sweep(script: &Arc<Script>, average_bytes: usize, leases: &Leases, archive: Option<RuleArchive>) -> RuleSweep {
    let mut rule = planned("", 4).decision.countable().unwrap().clone();
    rule.selection.average_bytes = Some(average_bytes as f64);
    let grant = Arc::new(DeleteGrant::new(false, Consent::NotAsked).unwrap());
    RuleSweep::new(&script.deployment(), &rule, &Counts::default(), &grant, &Watches::none(), leases, archive.map(Arc::new))
}
