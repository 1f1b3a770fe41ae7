//! A file that holds the deletes of a run back while it exists.

use std::path::PathBuf;

use tracing::{info, warn};

use crate::base::log::PROGRESS;
use crate::base::machine;
use crate::base::stop::{LOOK_EVERY, find_file};
use crate::base::watch;

/// The pause file of a run, if it has one.
#[derive(Clone, Default)]
pub(crate) struct PauseFile(Option<watch::Receiver<Option<String>>>);

impl PauseFile {
    /// Looks for the file now, and from now on until this is dropped. Needs a tokio runtime.
    pub(crate) fn watch(path: Option<&PathBuf>) -> Self {
        let Some(path) = path.cloned() else { return Self::default() };
        let found = find_file("pause", &path);
        say(None, found.as_deref());
        let (sender, seen) = watch::channel(found);
        tokio::spawn(machine::here(async move {
            while !sender.is_closed() {
                tokio::time::sleep(LOOK_EVERY).await;
                let found = find_file("pause", &path);
                sender.send_if_modified(|known| {
                    say(known.as_deref(), found.as_deref());
                    let is_new = *known != found;
                    *known = found;
                    is_new
                });
            }
        }));
        Self::by(seen)
    }

    /// Creates one from the latest reason why nothing may be deleted.
    pub(crate) fn by(reason: watch::Receiver<Option<String>>) -> Self {
        Self(Some(reason))
    }

    /// Returns the reason why nothing may be deleted; `None` if something may.
    pub(crate) fn reason(&self) -> Option<String> {
        self.0.as_ref()?.borrow().clone()
    }

    /// Returns what resolves once the file is gone; `None` if it is not there.
    pub(crate) fn gone(&self) -> Option<impl Future<Output = ()> + use<>> {
        let mut seen = self.0.as_ref().filter(|seen| seen.borrow().is_some())?.clone();
        Some(async move {
            // An error means that the watch has ended, and the run with it.
            let _ = seen.wait_for(Option::is_none).await;
        })
    }
}

/// Logs the beginning and the end of a pause.
fn say(known: Option<&str>, found: Option<&str>) {
    match (known, found) {
        (None, Some(why)) => warn!("{why}: no batch begins until it is gone"),
        (Some(_), None) => info!(target: PROGRESS, "the pause file is gone: going on"),
        (None, None) | (Some(_), Some(_)) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_file_pauses_from_the_first_moment_until_it_is_gone_and_again() {
        assert_eq!(PauseFile::watch(None).reason(), None);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("pause");
        std::fs::write(&path, "").unwrap();
        let pause = PauseFile::watch(Some(&path));
        let why = format!("the pause file `{}` exists", path.display());
        assert_eq!(pause.reason().as_ref(), Some(&why));
        for exists in [false, true, false] {
            match exists {
                true => std::fs::write(&path, "").unwrap(),
                false => std::fs::remove_file(&path).unwrap(),
            }
            let mut seen = pause.0.clone().unwrap();
            seen.wait_for(|found| found.is_some() == exists).await.unwrap();
            assert_eq!(pause.reason().as_ref(), Some(&why).filter(|_| exists));
        }
    }
}
