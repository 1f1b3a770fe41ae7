//! A terminal to run `sweeper` on.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use super::sweeper::Ran;

/// `sweeper` on a terminal of its own, which `script` makes.
pub struct Terminal {
    pub child: Child,
    pub shown: String,
}

impl Terminal {
    pub fn open(command: &Command) -> Self {
        let quote = |part: &std::ffi::OsStr| format!("'{}'", part.to_string_lossy());
        let line: Vec<String> = std::iter::once(command.get_program()).chain(command.get_args()).map(quote).collect();
        // Whoever starts the tests in the background has them, and all that they start, ignore Ctrl-C. And a program that hangs is to fail its
        // test, not to keep it.
        let child = Command::new("timeout")
            .args(["120", "env", "--default-signal=HUP,INT,QUIT", "script", "-qec", &line.join(" "), "/dev/null"])
            .env_remove("MONGODB_URI")
            .env_remove("SWEEPER_POLICY")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("`timeout` and `env` of coreutils, `script` of util-linux");
        Self { child, shown: String::new() }
    }

    /// Reads what is shown until the question of a sweep stands there.
    pub async fn until_asked(self) -> Self {
        self.until_shown("[yes/no] ").await
    }

    /// Reads what is shown until it ends with a text.
    pub async fn until_shown(mut self, text: &'static str) -> Self {
        tokio::task::spawn_blocking(move || {
            let mut bytes = Vec::new();
            let mut byte = [0];
            let stdout = self.child.stdout.as_mut().expect("a pipe");
            while !bytes.ends_with(text.as_bytes()) {
                let read = stdout.read(&mut byte).expect("the terminal can be read");
                assert!(read == 1, "no question: {}", String::from_utf8_lossy(&bytes));
                bytes.push(byte[0]);
            }
            self.shown = String::from_utf8(bytes).expect("UTF-8");
            self
        })
        .await
        .expect("the terminal is read")
    }

    pub fn types(mut self, keys: &str) -> Self {
        let stdin = self.child.stdin.as_mut().expect("a pipe");
        stdin.write_all(keys.as_bytes()).expect("the terminal takes keys");
        self
    }

    /// Waits for the end; what was shown since the question is `stdout`.
    pub async fn end(mut self) -> Ran {
        tokio::task::spawn_blocking(move || {
            // Without an end of input: `script` would hand it on as a key.
            let _stdin = self.child.stdin.take();
            self.child.wait_with_output().expect("script ends").into()
        })
        .await
        .expect("the process is waited for")
    }
}
