//! The stop file: while it is there, nothing new begins.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tracing::warn;

/// How often it is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Says why nothing may begin: the file is there, or nobody can tell.
pub fn found(path: &Path) -> Option<String> {
    match path.symlink_metadata() {
        Ok(_) => Some(format!("the stop file `{}` is there", path.display())),
        Err(cause) if matches!(cause.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => None,
        Err(cause) => Some(format!("whether the stop file `{}` is there cannot be told: {cause}", path.display())),
    }
}

/// Looks for the file until it is there, or nobody waits for it any more. Needs a tokio runtime.
pub fn watch(path: PathBuf) -> watch::Receiver<bool> {
    let (sender, there) = watch::channel(false);
    tokio::spawn(async move {
        while !sender.is_closed() {
            if let Some(why) = found(&path) {
                warn!("{why}: stopping after the batch in flight");
                sender.send_replace(true);
                // A sender that goes away would leave those who begin to wait later without news.
                sender.closed().await;
                return;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    });
    there
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anything_by_that_name_is_there_and_what_cannot_be_told_is_too() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stop");
        assert_eq!(found(&path), None);
        assert_eq!(found(&path.join("below")), None);
        std::os::unix::fs::symlink("nowhere", &path).unwrap();
        assert!(found(&path).unwrap().ends_with("stop` is there"));
        std::fs::write(dir.path().join("plain"), "").unwrap();
        assert_eq!(found(&dir.path().join("plain/below")), None);
        assert!(found(Path::new(&"x".repeat(5000))).unwrap().contains("cannot be told"));
    }
}
