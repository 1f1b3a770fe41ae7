//! A terminal for `sweeper`.

use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};

use super::sweeper::Ran;

/// `sweeper` on a new terminal, made by `script`.
pub(crate) struct Terminal {
    pub child: Child,
    pub shown: String,
}

impl Terminal {
    pub(crate) fn open(command: &Command) -> Self {
        let quote = |part: &std::ffi::OsStr| format!("'{}'", part.to_string_lossy());
        let line: Vec<String> = std::iter::once(command.get_program()).chain(command.get_args()).map(quote).collect();
        // Processes started by tests in the background would ignore Ctrl-C, so `env` restores the default. `timeout` lets a test
        // fail if its program hangs.
        let child = Command::new("timeout")
            .args(["120", "env", "--default-signal=HUP,INT,QUIT", "script", "-qec", &line.join(" "), "/dev/null"])
            .env_remove("MONGODB_URI")
            .env_remove("SWEEPER_POLICY")
            .env("TERM", "xterm")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("`timeout` and `env` of coreutils, `script` of util-linux");
        Self { child, shown: String::new() }
    }

    /// Reads the output up to the question of a sweep.
    pub(crate) async fn until_asked(self) -> Self {
        self.until_shown("[yes/no] ").await
    }

    /// Reads the output until it ends with this text.
    pub(crate) async fn until_shown(mut self, text: &'static str) -> Self {
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
        .expect("reading the terminal")
    }

    pub(crate) fn types(mut self, keys: &str) -> Self {
        let stdin = self.child.stdin.as_mut().expect("a pipe");
        stdin.write_all(keys.as_bytes()).expect("the terminal accepts keys");
        self
    }

    /// Waits for the end; `stdout` is the output after the question.
    pub(crate) async fn end(mut self) -> Ran {
        tokio::task::spawn_blocking(move || {
            // Keep stdin open: `script` would pass on its end as a key.
            let _stdin = self.child.stdin.take();
            self.child.wait_with_output().expect("script ends").into()
        })
        .await
        .expect("waiting for the process")
    }
}
