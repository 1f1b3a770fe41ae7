//! What asks a run to stop: SIGINT and SIGTERM, and a file that is there. The first signal lets the batch in flight end, the second ends the
//! run at once.

pub mod file;

use std::path::PathBuf;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::warn;

use crate::exit;

/// Whether, and by what, the run was asked to stop.
#[derive(Clone)]
pub struct Stop {
    signals: watch::Receiver<Option<u8>>,
    file: Option<watch::Receiver<bool>>,
}

impl Stop {
    /// Takes the signals over for the rest of the process. Needs a tokio runtime.
    ///
    /// Errors: the operating system refuses the handlers.
    pub fn listen() -> std::io::Result<Self> {
        let (sender, signals) = watch::channel(None);
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::spawn(async move {
            loop {
                let code = tokio::select! {
                    _ = interrupt.recv() => exit::INTERRUPTED,
                    _ = terminate.recv() => exit::TERMINATED,
                };
                if sender.borrow().is_some() {
                    std::process::exit(i32::from(code));
                }
                warn!("stopping after the batch in flight; a second signal stops at once");
                sender.send_replace(Some(code));
            }
        });
        Ok(Self { signals, file: None })
    }

    /// The same signals, and a file that stops one run as well; once it was there it may go again.
    pub fn with_file(&self, path: Option<&PathBuf>) -> Self {
        Self { signals: self.signals.clone(), file: path.cloned().map(file::watch) }
    }

    pub fn is_asked(&self) -> bool {
        self.exit_code().is_some() || self.file.as_ref().is_some_and(|there| *there.borrow())
    }

    /// The exit code of the signal that came, if one did.
    pub fn exit_code(&self) -> Option<u8> {
        *self.signals.borrow()
    }

    /// Ends when the run is first asked to stop.
    pub async fn asked(&self) {
        let mut signals = self.signals.clone();
        let by_signal = async {
            if signals.wait_for(Option::is_some).await.is_err() {
                // The listener lives as long as the runtime; without it no signal can come.
                std::future::pending::<()>().await;
            }
        };
        let by_file = async {
            let there = match self.file.clone() {
                Some(mut file) => file.wait_for(|there| *there).await.is_ok(),
                None => false,
            };
            if !there {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            () = by_signal => {}
            () = by_file => {}
        }
    }
}
