//! SIGINT and SIGTERM: the first asks the run to end after the batch in flight, the second ends it at once.

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing::warn;

use crate::exit;

/// Whether, and by which signal, the run was asked to stop.
#[derive(Clone)]
pub struct Stop(watch::Receiver<Option<u8>>);

impl Stop {
    /// Takes the signals over for the rest of the process. Needs a tokio runtime.
    ///
    /// Errors: the operating system refuses the handlers.
    pub fn listen() -> std::io::Result<Self> {
        let (sender, receiver) = watch::channel(None);
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
        Ok(Self(receiver))
    }

    pub fn is_asked(&self) -> bool {
        self.exit_code().is_some()
    }

    /// The exit code of the signal that came, if one did.
    pub fn exit_code(&self) -> Option<u8> {
        *self.0.borrow()
    }

    /// Ends when the first signal comes.
    pub async fn asked(&self) {
        let mut receiver = self.0.clone();
        if receiver.wait_for(Option::is_some).await.is_err() {
            // The listener lives as long as the runtime; without it no signal can come.
            std::future::pending::<()>().await;
        }
    }
}
