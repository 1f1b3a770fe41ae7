//! The watches over a deployment while a run deletes.

pub(crate) mod head;
pub(crate) mod holds;
pub(crate) mod lag;
pub(crate) mod load;
pub(crate) mod oplog;

use super::Deployment;
use crate::base::pause_file::PauseFile;
use crate::core::pace::pressure::UNWATCHED;
use crate::core::plan::holds::HeldBack;
use crate::core::policy::limits::Limits;
use holds::{HoldsWatches, ReadHolds};
use lag::LagSource;
use load::LoadSource;
use oplog::OplogWatch;

/// The watches of a run, which all of its rules share.
pub(crate) struct Watches {
    pub lag: LagSource,
    /// `None` if no rule has a `minOplogWindow`, or the deployment has no oplog.
    pub oplog: Option<OplogWatch>,
    pub load: LoadSource,
    pub pause: PauseFile,
    /// The holds of all rules that have some, read while one of these rules is swept.
    pub holds: HoldsWatches,
}

impl Watches {
    /// Watches nothing.
    pub(crate) fn none() -> Self {
        let (load, pause) = (LoadSource::Unknown(None), PauseFile::default());
        Self { lag: LagSource::NoSecondary, oplog: None, load, pause, holds: HoldsWatches::default() }
    }

    /// Begins to watch what the limits of any rule ask for; `held` are the holds that were read before.
    pub(crate) async fn open<'a>(
        deployment: &Deployment,
        pause: &PauseFile,
        limits: impl Iterator<Item = &'a Limits> + Clone,
        held: Vec<(HeldBack, ReadHolds)>,
    ) -> Self {
        let mut watches = Self { pause: pause.clone(), holds: HoldsWatches::new(deployment, held), ..Self::none() };
        if limits.clone().any(|limits| limits.max_lag.is_some()) {
            watches.lag = LagSource::open(deployment).await;
        }
        if limits.clone().any(|limits| limits.min_oplog_window.is_some()) {
            watches.oplog = OplogWatch::open(deployment).await;
        }
        if limits.clone().any(|limits| limits.max_dirty != Some(UNWATCHED)) {
            watches.load = LoadSource::open(deployment).await;
        }
        watches
    }
}
