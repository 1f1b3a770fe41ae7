//! A stream that a thread writes, so that no reader who has stopped reading holds up a run.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Write};
use std::mem;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::fd::AsFd;
use tracing::error;

use super::{Screen, size};

/// Bytes that wait to be written; a text that does not fit is dropped.
const MAX_BYTES: usize = 1 << 20;

/// Maximum time for one write to a reader that is waited for.
const MAX_STALL: Duration = Duration::from_secs(1);

/// Maximum time to wait for a reader that reads.
const MAX_WAIT: Duration = Duration::from_secs(2);

/// Pause before another write to a stream of another process that does not block, and is full.
const PAUSE: Duration = Duration::from_millis(20);

/// Stack of the thread; it formats one line of the log.
const STACK_BYTES: usize = 256 * 1024;

/// The stream and the texts that wait for it.
#[derive(Debug)]
pub(super) struct Queue<S>(Arc<Shared<S>>);

#[derive(Debug)]
struct Shared<S> {
    stream: S,
    waiting: Mutex<QueuedTexts>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueuedTexts {
    texts: VecDeque<QueuedText>,
    bytes: usize,
    /// Number of texts that were accepted.
    accepted: u64,
    /// Number of texts that were written, or failed.
    written: u64,
    /// Beginning of the write that is going on.
    since: Option<Instant>,
    /// Number of the last text that could not be written, and why.
    failed: Option<(u64, ErrorKind)>,
    /// Lines that did not fit, of which nothing has been said yet.
    dropped: u64,
}

#[derive(Debug)]
struct QueuedText {
    bytes: Vec<u8>,
    /// Whether it replaces the lines that change, and nothing else.
    is_frame: bool,
}

impl QueuedTexts {
    fn push(&mut self, bytes: Vec<u8>, is_frame: bool) {
        self.bytes += bytes.len();
        self.accepted += 1;
        self.texts.push_back(QueuedText { bytes, is_frame });
    }

    fn is_done(&self) -> bool {
        self.written == self.accepted && self.dropped == 0
    }
}

impl<S> Clone for Queue<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S: AsFd + Send + Sync + 'static> Queue<S> {
    /// Starts the thread that writes to a stream.
    ///
    /// Errors: the operating system has no thread left.
    pub(super) fn start(stream: S) -> io::Result<Self> {
        let queue = Self(Arc::new(Shared { stream, waiting: Mutex::default(), changed: Condvar::new() }));
        let writer = queue.clone();
        thread::Builder::new().name("stderr".into()).stack_size(STACK_BYTES).spawn(move || writer.write_all_the_time())?;
        Ok(queue)
    }

    fn write_all_the_time(&self) {
        loop {
            let text = self.next();
            let written = write(&self.0.stream, &text);
            let mut waiting = self.0.waiting.lock();
            waiting.since = None;
            waiting.written += 1;
            if let Err(cause) = written {
                waiting.failed = Some((waiting.written, cause.kind()));
            }
            self.0.changed.notify_all();
        }
    }

    /// Waits for the next text. Lines that were dropped are said in the log once there is room for it.
    fn next(&self) -> Vec<u8> {
        let mut waiting = self.0.waiting.lock();
        loop {
            if let Some(text) = waiting.texts.pop_front() {
                waiting.bytes -= text.bytes.len();
                waiting.since = Some(Instant::now());
                return text.bytes;
            }
            match mem::take(&mut waiting.dropped) {
                0 => self.0.changed.wait(&mut waiting),
                lines => {
                    drop(waiting);
                    error!(
                        droppedLines = lines,
                        "{lines} lines of the log were dropped: standard error was not read; the run went on"
                    );
                    waiting = self.0.waiting.lock();
                }
            }
        }
    }

    /// Waits until everything is written, but not for a reader that does not read.
    pub(super) fn settle(&self) {
        let end = Instant::now() + MAX_WAIT;
        let mut waiting = self.0.waiting.lock();
        while !waiting.is_done() {
            let stalled = waiting.since.map_or(end, |since| since + MAX_STALL);
            if self.0.changed.wait_until(&mut waiting, end.min(stalled)).timed_out() {
                return;
            }
        }
    }

    /// Writes a text that a person has to see, and waits until it is written, however long that takes.
    ///
    /// Errors: it cannot be written.
    pub(super) fn show(&self, text: &[u8]) -> io::Result<()> {
        let mut waiting = self.0.waiting.lock();
        waiting.push(text.to_vec(), false);
        let number = waiting.accepted;
        self.0.changed.notify_all();
        while waiting.written < number {
            self.0.changed.wait(&mut waiting);
        }
        match waiting.failed {
            Some((failed, kind)) if failed == number => Err(kind.into()),
            _ => Ok(()),
        }
    }
}

/// Drops a text for which there is no room.
impl<S> Write for Queue<S> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let mut waiting = self.0.waiting.lock();
        if waiting.bytes > 0 && waiting.bytes + text.len() > MAX_BYTES {
            waiting.dropped += text.iter().filter(|byte| **byte == b'\n').count().max(1) as u64;
        } else {
            waiting.push(text.to_vec(), false);
        }
        self.0.changed.notify_all();
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<S: AsFd + std::fmt::Debug + Send + Sync> Screen for Queue<S> {
    fn size(&self) -> (u16, u16) {
        size(&self.0.stream)
    }

    /// Takes the place of a frame that was not written yet: whatever is dropped, the last frame is the one that stays.
    fn draw(&mut self, frame: &[u8]) -> io::Result<()> {
        let mut waiting = self.0.waiting.lock();
        match waiting.texts.back_mut().filter(|text| text.is_frame) {
            Some(last) => {
                let before = mem::replace(&mut last.bytes, frame.to_vec()).len();
                waiting.bytes = waiting.bytes - before + frame.len();
            }
            None => waiting.push(frame.to_vec(), true),
        }
        self.0.changed.notify_all();
        Ok(())
    }
}

/// Writes to a stream without the lock of the standard library, which others would wait for.
fn write(stream: impl AsFd, mut text: &[u8]) -> io::Result<()> {
    while !text.is_empty() {
        match rustix::io::write(&stream, text).map_err(io::Error::from) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => text = &text[written..],
            Err(cause) if cause.kind() == ErrorKind::Interrupted => {}
            Err(cause) if cause.kind() == ErrorKind::WouldBlock => thread::sleep(PAUSE),
            Err(cause) => return Err(cause),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{PipeReader, PipeWriter, Read};

    use super::*;

    fn start() -> (PipeReader, Queue<PipeWriter>) {
        let (reader, writer) = io::pipe().unwrap();
        (reader, Queue::start(writer).unwrap())
    }

    /// Returns what is read until a text comes.
    fn until(reader: &mut PipeReader, end: &str) -> String {
        let mut read = Vec::new();
        let mut byte = [0];
        while !read.ends_with(end.as_bytes()) {
            assert_eq!(reader.read(&mut byte).unwrap(), 1);
            read.push(byte[0]);
        }
        String::from_utf8(read).unwrap()
    }

    #[test]
    fn a_stream_that_is_not_read_holds_up_no_writer_and_loses_whole_lines_only() {
        let (mut reader, mut queue) = start();
        let line = format!("{}\n", "x".repeat(999));
        for number in 0..5000 {
            queue.write_all(format!("{number} {line}").as_bytes()).unwrap();
            queue.draw(format!("[frame {number}]").as_bytes()).unwrap();
        }
        queue.settle();
        let dropped = queue.0.waiting.lock().dropped;
        assert!((3000..4500).contains(&dropped), "{dropped}");
        let read = until(&mut reader, "[frame 4999]");
        let kept: Vec<usize> = read
            .lines()
            .filter_map(|line| line.strip_suffix('x')?.trim_end_matches('x').rsplit([']', ' ']).nth(1)?.parse().ok())
            .collect();
        assert_eq!(kept.len() as u64, 5000 - dropped);
        assert!(kept.is_sorted_by(|before, after| before < after) && kept.starts_with(&(0..900).collect::<Vec<_>>()));
        assert!(read.lines().all(|line| line.ends_with("xxx") || line.ends_with("4999]")));
        queue.settle();
        assert!(queue.0.waiting.lock().is_done());
    }

    #[test]
    fn a_question_is_written_after_what_was_logged_before_it_or_fails() {
        let (mut reader, mut queue) = start();
        queue.write_all(b"warning: a\n").unwrap();
        queue.show(b"delete? ").unwrap();
        assert_eq!(until(&mut reader, "delete? "), "warning: a\ndelete? ");
        drop(reader);
        assert_eq!(queue.show(b"delete? ").map_err(|cause| cause.kind()), Err(ErrorKind::BrokenPipe));
    }
}
