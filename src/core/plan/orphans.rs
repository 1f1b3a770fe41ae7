//! The limits of orphans: children that were without a parent before the sweep, which a rule with `orphans: true` deletes.

use super::guard::{AGAIN, Approved, TOLERANCE_PERCENT};
use super::{Guard, Refusal};
use crate::base::text::{count, percent, plural};
use crate::core::policy::limits::Limits;
use crate::core::policy::namespace::Namespace;

/// The limits of a rule as they apply to orphans; `None` means no limit.
#[derive(Debug, Clone, PartialEq)]
pub struct OrphanLimits {
    /// Maximum number of parents and orphans together.
    pub max_deletes: Option<u64>,
    /// The share of a collection of children in percent above which the rule is refused.
    pub max_percent: Option<f64>,
    /// The approval of a saved plan; `None` if the run does not follow one.
    pub approved: Option<Approved>,
}

/// Orphans of one collection that a sweep deletes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OldOrphans {
    pub namespace: Namespace,
    pub count: u64,
    /// Documents of the collection, as far as they were counted.
    pub documents: u64,
}

impl OrphanLimits {
    pub(super) fn of(limits: &Limits) -> Self {
        Self { max_deletes: limits.max_deletes, max_percent: limits.max_delete_percent, approved: None }
    }

    /// Returns the maximum number of orphans after so many parents.
    pub fn after(&self, parents: u64) -> Option<u64> {
        let rest = self.max_deletes.map(|most| most.saturating_sub(parents));
        [rest, self.approved.map(|approved| approved.most)].into_iter().flatten().min()
    }

    /// Whether a limit compares the number of orphans, so that they have to be counted.
    pub fn compares(&self) -> bool {
        self.max_percent.is_some() || self.approved.is_some()
    }

    /// Refuses a rule with too many orphans: a larger share of one collection than `maxDeletePercent`, or more in all than were
    /// approved.
    pub fn refusal(&self, found: &[OldOrphans]) -> Option<Refusal> {
        found.iter().find_map(|orphans| self.share(orphans)).or_else(|| self.not_approved(sum(found)))
    }

    fn share(&self, OldOrphans { namespace, count: orphans, documents }: &OldOrphans) -> Option<Refusal> {
        let limit = self.max_percent?;
        let share = percent(*orphans, *documents)?;
        (share > limit).then(|| {
            let (orphans, documents) = (count(*orphans), count(*documents));
            Refusal::new(
                Guard::MaxDeletePercent,
                format!(
                    "`orphans`: {orphans} of {documents} documents of `{namespace}` have no parent, {share:.2} %, and {limit} % may be \
                     deleted; look whether parents are missing; raise `maxDeletePercent` if that is intended, or leave `orphans` out"
                ),
            )
        })
    }

    fn not_approved(&self, found: u64) -> Option<Refusal> {
        let approved = self.approved.filter(|approved| found > approved.most)?;
        let (found, approved) = (plural(found, "orphan"), count(approved.count));
        let detail = format!("{found}, {approved} were approved, and {TOLERANCE_PERCENT} % more is tolerated; {AGAIN}");
        Some(Refusal::new(Guard::Plan, detail))
    }
}

/// Returns the number of orphans in all collections.
pub fn sum(found: &[OldOrphans]) -> u64 {
    found.iter().map(|orphans| orphans.count).fold(0, u64::saturating_add)
}

/// Refuses to take children for orphans where no parent is there: the parents may have been lost, or not restored yet.
pub fn no_parent(parents: &Namespace, orphans: u64) -> Refusal {
    Refusal::new(
        Guard::Children,
        format!(
            "`orphans`: `{parents}` has no document, and {} would be taken for orphans; restore the parents, or leave `orphans` out",
            crate::base::text::children(orphans)
        ),
    )
}

/// Refuses to take children for orphans where the collection of their parents is missing.
pub(super) fn no_collection(parents: &Namespace) -> Refusal {
    Refusal::new(
        Guard::Children,
        format!(
            "`orphans`: there is no collection `{parents}`, and all children would be taken for orphans; correct the name, restore the \
             parents, or leave `orphans` out"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(max_deletes: Option<u64>, max_percent: Option<f64>, approved: Option<u64>) -> OrphanLimits {
        OrphanLimits { max_deletes, max_percent, approved: approved.map(Approved::of) }
    }

    fn found(counts: &[(u64, u64)]) -> Vec<OldOrphans> {
        let namespace = Namespace { database: "app".into(), collection: "lines".into() };
        counts.iter().map(|&(count, documents)| OldOrphans { namespace: namespace.clone(), count, documents }).collect()
    }

    #[test]
    fn parents_and_orphans_share_the_limit_of_the_rule_and_the_parents_come_first() {
        for (max_deletes, approved, parents, most) in [
            (None, None, 7, None),
            (Some(10), None, 0, Some(10)),
            (Some(10), None, 7, Some(3)),
            (Some(10), None, 10, Some(0)),
            (Some(10), None, 11, Some(0)),
            // The approval of the parents is not part of it.
            (None, Some(100), 7, Some(101)),
            (Some(10), Some(2), 7, Some(3)),
            (Some(10), Some(2), 1, Some(3)),
            (Some(10), Some(0), 1, Some(0)),
        ] {
            assert_eq!(limits(max_deletes, None, approved).after(parents), most, "{max_deletes:?} {approved:?} {parents}");
        }
    }

    #[test]
    fn the_share_is_that_of_each_collection_of_children() {
        let guard = |limits: OrphanLimits, counts: &[(u64, u64)]| limits.refusal(&found(counts)).map(|refusal| refusal.guard);
        let half = || limits(None, Some(50.0), None);
        assert_eq!(guard(half(), &[(5, 10), (0, 0)]), None);
        assert_eq!(guard(half(), &[(6, 10)]), Some(Guard::MaxDeletePercent));
        // Many children elsewhere do not make up for it.
        assert_eq!(guard(half(), &[(0, 1_000), (6, 10)]), Some(Guard::MaxDeletePercent));
        assert_eq!(guard(limits(None, None, None), &[(10, 10)]), None);
        let detail = half().refusal(&found(&[(2_000, 3_000)])).unwrap().detail;
        assert!(
            detail.starts_with("`orphans`: 2,000 of 3,000 documents of `app.lines` have no parent, 66.67 %, and 50 %"),
            "{detail}"
        );
    }

    #[test]
    fn a_plan_approves_the_orphans_of_all_collections_with_its_tolerance() {
        let refusal = |counts: &[(u64, u64)]| limits(None, None, Some(100)).refusal(&found(counts));
        assert_eq!(refusal(&[(51, 99), (50, 99)]), None);
        let refusal = refusal(&[(51, 99), (51, 99)]).unwrap();
        assert_eq!(refusal.guard, Guard::Plan);
        assert!(refusal.detail.starts_with("102 orphans, 100 were approved, and 1 % more is tolerated"), "{refusal:?}");
        assert!(limits(None, None, Some(0)).refusal(&found(&[(1, 9)])).is_some());
    }

    #[test]
    fn only_limits_that_compare_need_a_count() {
        let needs = [limits(Some(5), None, None), limits(None, Some(5.0), None), limits(None, None, Some(5))];
        assert_eq!(needs.map(|limits| limits.compares()), [false, true, true]);
    }
}
