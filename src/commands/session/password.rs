//! The question for the password of a connection string. What is typed is not shown.

use std::io;

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::base::failure::Failure;
use crate::base::stop::Stop;
use crate::base::text::clean;
use crate::commands::confirm::answer_to;

/// The state of a terminal that does not show what is typed. Dropped, it shows it again.
struct Hidden(Termios);

impl Hidden {
    fn new() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut hidden = before.clone();
        hidden.local_modes.remove(LocalModes::ECHO);
        // The end of the line is shown, so that the next output begins on a line of its own.
        hidden.local_modes.insert(LocalModes::ECHONL);
        tcsetattr(io::stdin(), OptionalActions::Flush, &hidden)?;
        Ok(Self(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}

/// Asks for the password of a connection string, of which `shown` may be shown. Dropped, it shows again what is typed.
///
/// Errors: the terminal cannot hide what is typed, or no answer.
pub(crate) async fn ask(stop: &Stop, shown: &str) -> Result<String, Failure> {
    let answer = stop.idle(read(shown)).await;
    let failed = |why: String| Failure::cannot_run(format!("asking for the password of `{shown}`: {why}; nothing was contacted"));
    match answer.map_err(|cause| failed(cause.to_string()))?.trim_end_matches(['\r', '\n']) {
        "" => Err(failed("no password was typed".into())),
        password => Ok(password.to_owned()),
    }
}

async fn read(shown: &str) -> io::Result<String> {
    let _hidden = Hidden::new()?;
    answer_to(format!("password for `{}`: ", clean(shown))).await
}
