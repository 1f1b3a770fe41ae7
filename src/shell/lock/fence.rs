//! The time on a server within which a delete may take effect.

use std::time::Duration;

use bson::DateTime;

/// The time that one delete command may use, by the server's clock. It is a part of the time of a lease, and of the time of the
/// holds that the command carries.
///
/// A server carries the command out only if it begins before [`Self::begins_before`], and for at most [`Self::max_time`] from
/// then on. Under a lease both together end when the lease, as it was last renewed, can no longer be relied on. This holds
/// however wrong the clocks of this machine are: they only decide how the time is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fence {
    /// Instant at which it is too late to begin.
    pub begins_before: DateTime,
    /// Time that the server may take, never zero, which would mean no limit; `None` if only the beginning matters.
    pub max_time: Option<Duration>,
}

/// Maximum part of a lease's time that a command may be on its way; the rest is for the server.
const MAX_WAY: u32 = 6;

impl Fence {
    /// Divides what is left of a lease: `end` is its end by the server's clock, `left` the time until then by this machine's
    /// clocks. `None` if less than a millisecond is left for the server.
    pub(super) fn new(end: DateTime, left: Duration, lease: Duration) -> Option<Self> {
        let way = (lease / MAX_WAY).min(left / 2);
        let millis = i64::try_from((left - way).as_millis()).ok().filter(|millis| *millis > 0)?;
        let begins_before = DateTime::from_millis(end.timestamp_millis().saturating_sub(millis));
        Some(Self { begins_before, max_time: Some(Duration::from_millis(millis.unsigned_abs())) })
    }

    /// Returns what is left of a fence, if there is one, for a command that has to begin before an instant.
    pub(crate) fn before(fence: Option<Self>, begins_before: DateTime) -> Self {
        match fence {
            Some(fence) => Self { begins_before: fence.begins_before.min(begins_before), ..fence },
            None => Self { begins_before, max_time: None },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_and_the_work_end_with_the_lease() {
        const LEASE: Duration = Duration::from_secs(60);
        let end = DateTime::from_millis(1_000_000);
        let fence = |left| {
            let fence = Fence::new(end, Duration::from_micros(left), LEASE)?;
            let millis = i64::try_from(fence.max_time.unwrap().as_millis()).unwrap();
            assert_eq!(fence.begins_before.timestamp_millis() + millis, 1_000_000);
            Some(millis)
        };
        assert_eq!(fence(50_000_000), Some(40_000));
        assert_eq!(fence(30_000_000), Some(20_000));
        assert_eq!(fence(8_000_000), Some(4_000));
        assert_eq!(fence(2_000), Some(1));
        let at = DateTime::from_millis;
        let under_lease = Fence { begins_before: at(7), max_time: Some(LEASE) };
        assert_eq!(Fence::before(None, at(5)), Fence { begins_before: at(5), max_time: None });
        assert_eq!([5, 9].map(|holds| Fence::before(Some(under_lease), at(holds)).begins_before), [at(5), at(7)]);
        assert_eq!(Fence::before(Some(under_lease), at(5)).max_time, Some(LEASE));
        // A limit of 0 would be none.
        assert_eq!([1_999, 1_000, 0].map(fence), [None; 3]);
    }
}
