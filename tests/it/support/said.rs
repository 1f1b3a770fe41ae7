//! Collects the lines that a process writes to stderr as they arrive.

use std::io::{BufRead, BufReader};
use std::process::Child;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The stderr of a process so far.
pub(crate) struct Said {
    lines: Arc<Mutex<Vec<String>>>,
    reader: JoinHandle<()>,
}

impl Said {
    /// Takes the stderr of a process and starts reading it.
    pub(crate) fn by(child: &mut Child) -> Self {
        let (stderr, lines) = (child.stderr.take().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let heard = lines.clone();
        let reader = std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines() {
                heard.lock().unwrap().push(line.unwrap());
            }
        });
        Self { lines, reader }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }

    /// Waits until a line contains this text.
    pub(crate) async fn until(&self, part: &str) {
        self.until_times(part, 1).await;
    }

    /// Waits until this many lines contain this text.
    pub(crate) async fn until_times(&self, part: &str, times: usize) {
        let begun = Instant::now();
        while self.lines().iter().filter(|line| line.contains(part)).count() < times {
            assert!(begun.elapsed() < Duration::from_secs(60), "no line with `{part}` within 60 s: {:#?}", self.lines());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Returns all lines of a process that has ended.
    pub(crate) fn into_text(self) -> String {
        self.reader.join().expect("the reading thread");
        let lines = self.lines.lock().unwrap();
        lines.join("\n")
    }
}
