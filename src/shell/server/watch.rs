//! The watches over a deployment while a run deletes.

pub(crate) mod head;
pub(crate) mod holds;
pub(crate) mod lag;
pub(crate) mod load;
pub(crate) mod oplog;

use std::cell::OnceCell;

use super::Deployment;
use crate::base::pause_file::PauseFile;
use crate::core::pace::pressure::UNWATCHED;
use crate::core::plan::holds::HeldBack;
use crate::core::policy::limits::Limits;
use holds::{HoldsWatches, ReadHolds};
use lag::LagSource;
use load::LoadSource;
use oplog::OplogWatch;

/// The watches of a run, which all of its rules share. Each of them begins once a rule asks for it.
pub(crate) struct Watches {
    pub lag: OnceCell<LagSource>,
    /// `None` if the deployment has no oplog.
    pub oplog: OnceCell<Option<OplogWatch>>,
    pub load: OnceCell<LoadSource>,
    pub pause: PauseFile,
    /// The holds of all rules that have some, read while one of these rules is swept.
    pub holds: HoldsWatches,
}

impl Watches {
    /// Watches nothing.
    pub(crate) fn none() -> Self {
        let (pause, holds) = (PauseFile::default(), HoldsWatches::default());
        Self { lag: OnceCell::new(), oplog: OnceCell::new(), load: OnceCell::new(), pause, holds }
    }

    /// Creates the watches of a run; `held` are the holds that were read before.
    pub(crate) fn new(deployment: &Deployment, pause: &PauseFile, held: Vec<(HeldBack, ReadHolds)>) -> Self {
        Self { pause: pause.clone(), holds: HoldsWatches::new(deployment, held), ..Self::none() }
    }

    /// Begins to watch what the limits of any rule ask for and what is not watched yet.
    pub(crate) async fn begin<'a>(&self, deployment: &Deployment, limits: impl Iterator<Item = &'a Limits> + Clone) {
        if self.lag.get().is_none() && limits.clone().any(|limits| limits.max_lag.is_some()) {
            let _ = self.lag.set(LagSource::open(deployment).await);
        }
        if self.oplog.get().is_none() && limits.clone().any(|limits| limits.min_oplog_window.is_some()) {
            let _ = self.oplog.set(OplogWatch::open(deployment).await);
        }
        if self.load.get().is_none() && limits.clone().any(|limits| limits.max_dirty != Some(UNWATCHED)) {
            let _ = self.load.set(LoadSource::open(deployment).await);
        }
    }
}
