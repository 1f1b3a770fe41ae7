//! Results of several rounds: medians of times, and peaks.

use std::time::Duration;

use crate::deletion::Deletion;
use crate::peer::Peer;

/// Returns the items in an order that begins with another item each round, so that none always goes first.
pub(crate) fn rotated<T: Copy>(items: &[T], round: u32) -> Vec<T> {
    let mut items = items.to_vec();
    let by = round as usize % items.len();
    items.rotate_left(by);
    items
}

/// Returns the median; `None` if there are no values.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len() % 2 == 1 { upper } else { (values[middle - 1] + upper) / 2.0 })
}

/// Returns the largest value; `None` if there are no values.
pub(crate) fn most(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    values.into_iter().max_by(f64::total_cmp)
}

/// Returns the value that this share of the values does not exceed, by nearest rank; `None` if there are no values. `values` must
/// ascend.
pub(crate) fn percentile(values: &[Duration], share: f64) -> Option<Duration> {
    let rank = (values.len() as f64 * share).ceil() as usize;
    values.get(rank.max(1) - 1).copied()
}

/// The runs of all peers on one layout.
#[derive(Default)]
pub(crate) struct Runs(Vec<(Peer, Deletion)>);

impl Runs {
    pub(crate) fn push(&mut self, peer: Peer, deletion: Deletion) {
        self.0.push((peer, deletion));
    }

    fn of(&self, peer: Peer) -> impl Iterator<Item = &Deletion> {
        self.0.iter().filter(move |(of, _)| *of == peer).map(|(_, deletion)| deletion)
    }

    /// Returns the median wall time in seconds; `None` if the peer did not run.
    pub(crate) fn seconds(&self, peer: Peer) -> Option<f64> {
        median(self.of(peer).map(|deletion| deletion.wall().as_secs_f64()))
    }

    /// Returns sweeper's median wall time divided by the wall time of the peer.
    pub(crate) fn ratio(&self, peer: Peer) -> Option<f64> {
        self.seconds(Peer::Sweeper).zip(self.seconds(peer)).map(|(ours, theirs)| ours / theirs)
    }

    /// Returns the peak of the resident memory in megabytes over all runs of sweeper.
    pub(crate) fn peak(&self) -> Option<f64> {
        most(self.0.iter().filter_map(|(_, deletion)| Some(deletion.usage.as_ref()?.megabytes())))
    }

    /// Returns the median of sweeper's processor time as a percentage of the server's.
    pub(crate) fn client_cpu(&self) -> Option<f64> {
        median(self.of(Peer::Sweeper).filter_map(|deletion| Some(deletion.usage.as_ref()?.client_percent())))
    }
}
