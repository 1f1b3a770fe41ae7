//! Native TTL settings that are set and do not do their work: what was counted, in words.

use super::figures::NativeTrouble;
use crate::core::facts::{IdleReason, IdleTtl, NativeTtl};

/// The documents that a setting should have deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OverdueCount {
    pub count: u64,
    /// Seconds since the first of them expired by the setting; `None` if no document is overdue.
    pub behind_seconds: Option<u64>,
    /// Whether a document of the setting has a date at all.
    pub has_date: bool,
}

/// Returns the reason that the documents themselves show, in a collection of so many documents; `None` if the setting does its
/// work.
pub(crate) fn of_count(found: &OverdueCount, ttl: &NativeTtl, documents: u64) -> Option<IdleTtl> {
    let (reason, detail) = if found.count > 0 {
        let why = "the server deletes late or not at all; see its log for `TTL`, and whether a primary is up and accepts writes";
        (IdleReason::Overdue, why.to_owned())
    } else if documents > 0 && !found.has_date {
        let of_filter = if ttl.partial.is_some() { " that its filter selects" } else { "" };
        (IdleReason::NoDate, format!("no document{of_filter} has a date in `{}`", ttl.shown_field()))
    } else {
        return None;
    };
    Some(IdleTtl { reason, detail })
}

/// Makes the entry of the report.
pub(crate) fn trouble(ttl: &NativeTtl, idle: IdleTtl, found: Option<&OverdueCount>) -> NativeTrouble {
    NativeTrouble {
        index: ttl.index.clone(),
        field: ttl.field_names(),
        reason: idle.reason,
        detail: idle.detail,
        overdue_count: found.map(|found| found.count),
        behind_seconds: found.and_then(|found| found.behind_seconds),
    }
}

#[cfg(test)]
mod tests {
    use bson::Bson;

    use super::*;
    use crate::core::facts::Scope;

    #[test]
    fn documents_show_what_the_settings_do_not() {
        let ttl = NativeTtl {
            scope: Scope::Index,
            index: Some("at_1".into()),
            key: vec![("at".into(), Bson::Int32(1))],
            expire_after_seconds: Bson::Int32(60),
            partial: None,
            collation: None,
            hidden: true,
        };
        let reason = |count, has_date, documents| {
            let found = OverdueCount { count, behind_seconds: Some(count), has_date };
            of_count(&found, &ttl, documents).map(|idle| idle.reason)
        };
        let found = [reason(0, true, 5), reason(0, false, 5), reason(0, false, 0), reason(3, true, 5)];
        assert_eq!(found, [None, Some(IdleReason::NoDate), None, Some(IdleReason::Overdue)]);

        let idle = IdleTtl { reason: IdleReason::MonitorOff, detail: "off".into() };
        let words = |count, behind_seconds| {
            let found = OverdueCount { count, behind_seconds, has_date: true };
            trouble(&ttl, idle.clone(), Some(&found)).words()
        };
        assert_eq!(words(0, None), "index at_1 (at): off; 0 documents overdue");
        assert_eq!(words(1, Some(7200)), "index at_1 (at): off; 1 document overdue, the first by 2h 00m");
        assert_eq!(words(2000, Some(864_000)), "index at_1 (at): off; 2,000 documents overdue, the first by 10 days");
        assert_eq!(trouble(&ttl, idle.clone(), None).words(), "index at_1 (at): off");
    }
}
