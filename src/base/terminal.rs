//! Standard error: lines that change, such as bars, below those that stay, such as warnings. A reader that stops reading holds
//! nothing up.

mod queue;

use std::fmt::Debug;
use std::io::{self, IsTerminal, Stderr, Write};
use std::sync::{Arc, LazyLock};
use std::{env, mem};

use indicatif::{ProgressDrawTarget, TermLike};
use parking_lot::Mutex;
use queue::Queue;
use rustix::fd::AsFd;
use rustix::termios::tcgetwinsize;
use textwrap::core::display_width;

/// Maximum number of frames per second.
const MAX_FRAMES: u8 = 20;

/// Maximum width of a line that is as wide as its bar makes it.
const MAX_BAR: u16 = 80;

/// Columns and rows of a terminal that does not tell its own.
const USUAL_SIZE: (u16, u16) = (80, 24);

/// Removes the line of the cursor and those below it.
const CLEAR: &str = "\r\x1b[J";

/// The texts that wait for standard error; `None` if there is no thread for it, so that each is written at once.
static QUEUE: LazyLock<Option<Queue<Stderr>>> = LazyLock::new(|| Queue::start(io::stderr()).ok());

static STDERR: LazyLock<Terminal> = LazyLock::new(|| match &*QUEUE {
    Some(queue) => Terminal::new(queue.clone()),
    None => Terminal::new(io::stderr()),
});

/// Returns the standard error of this process.
pub(crate) fn stderr() -> Terminal {
    STDERR.clone()
}

/// Waits until standard error has everything that was written to it, but at most a second for a reader that does not read.
pub(crate) fn settle() {
    if let Some(queue) = &*QUEUE {
        queue.settle();
    }
}

/// Writes a text that a person has to see, such as a question, after everything that was logged before, and waits until it is
/// shown.
///
/// Errors: standard error cannot be written.
pub(crate) fn show(text: &str) -> io::Result<()> {
    match &*QUEUE {
        Some(queue) => queue.show(text.as_bytes()),
        None => io::stderr().write_all(text.as_bytes()),
    }
}

/// Whether standard error is a terminal that can draw lines again.
pub(crate) fn can_redraw() -> bool {
    io::stderr().is_terminal() && env::var_os("TERM").is_some_and(|name| name != "dumb")
}

/// A screen that shows what is written to it.
pub(crate) trait Screen: Write + Debug + Send {
    /// Returns the number of columns and of rows.
    fn size(&self) -> (u16, u16);

    /// Writes a text that replaces the lines that change.
    fn draw(&mut self, frame: &[u8]) -> io::Result<()> {
        self.write_all(frame)
    }
}

impl Screen for Stderr {
    fn size(&self) -> (u16, u16) {
        size(self)
    }
}

/// Returns the number of columns and of rows of the terminal behind a stream.
fn size(stream: impl AsFd) -> (u16, u16) {
    tcgetwinsize(stream).ok().map(|size| (size.ws_col, size.ws_row)).filter(|(columns, _)| *columns > 0).unwrap_or(USUAL_SIZE)
}

/// A terminal whose last lines may change. What is written to it comes above them.
#[derive(Debug, Clone)]
pub(crate) struct Terminal(Arc<Mutex<State>>);

#[derive(Debug)]
struct State {
    screen: Box<dyn Screen>,
    /// The text that has drawn the lines that change; empty if there are none.
    frame: String,
    /// Lines of the next frame.
    lines: Vec<String>,
}

impl Terminal {
    pub(crate) fn new(screen: impl Screen + 'static) -> Self {
        Self(Arc::new(Mutex::new(State { screen: Box::new(screen), frame: String::new(), lines: Vec::new() })))
    }

    /// Returns the target for bars that are drawn here.
    pub(crate) fn target(&self) -> ProgressDrawTarget {
        ProgressDrawTarget::term_like_with_hz(Box::new(self.clone()), MAX_FRAMES)
    }

    /// Removes the lines that change.
    pub(crate) fn clear(&self) -> io::Result<()> {
        self.0.lock().draw()
    }
}

impl State {
    /// Draws the lines of the next frame in the place of the last.
    fn draw(&mut self) -> io::Result<()> {
        let (columns, rows) = self.screen.size();
        self.lines.truncate(rows.into());
        let next = frame(&mem::take(&mut self.lines), columns.into());
        let last = mem::replace(&mut self.frame, next);
        if last.is_empty() && self.frame.is_empty() {
            return Ok(());
        }
        self.screen.draw(format!("{CLEAR}{}", self.frame).as_bytes())?;
        self.screen.flush()
    }
}

/// Each write is one of whole lines, as the writes of the log are.
impl Write for Terminal {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        let State { screen, frame, .. } = &mut *self.0.lock();
        match frame.is_empty() {
            true => screen.write_all(text)?,
            false => screen.write_all(&[CLEAR.as_bytes(), text, frame.as_bytes()].concat())?,
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.lock().screen.flush()
    }
}

/// Takes the lines of each frame from the bars, and none of the moves by which they would remove the last one: [`frame`] says
/// why.
impl TermLike for Terminal {
    fn width(&self) -> u16 {
        // A bar no longer than it needs to be: a terminal that is made narrower scrolls by the rows of the lines that it breaks.
        self.0.lock().screen.size().0.min(MAX_BAR)
    }

    fn height(&self) -> u16 {
        // Bars that a narrow terminal would break count as several rows there, but are cut here.
        u16::MAX
    }

    fn move_cursor_up(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_down(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_right(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn move_cursor_left(&self, _: usize) -> io::Result<()> {
        Ok(())
    }

    fn write_line(&self, line: &str) -> io::Result<()> {
        self.write_str(line)
    }

    fn write_str(&self, line: &str) -> io::Result<()> {
        // After each line come spaces up to the width.
        if !line.trim_start_matches(' ').is_empty() {
            self.0.lock().lines.push(line.to_owned());
        }
        Ok(())
    }

    fn clear_line(&self) -> io::Result<()> {
        Ok(())
    }

    fn flush(&self) -> io::Result<()> {
        self.0.lock().draw()
    }
}

/// Returns the text that draws lines and leaves the cursor at the beginning of the first, so that [`CLEAR`] removes them.
///
/// Most terminals break their lines when they are made narrower, and some do not. From below the lines, their rows could then no
/// longer be counted; the cursor stays with the text at which it is. While the lines are drawn, the terminal breaks none,
/// whatever it takes for the width of a character.
fn frame(lines: &[String], width: usize) -> String {
    let up = match lines.len() {
        0 => return String::new(),
        1 => String::new(),
        several => format!("\x1b[{}A", several - 1),
    };
    let lines: Vec<String> = lines.iter().map(|line| cut(line, width)).collect();
    format!("\x1b[?7l{}\x1b[?7h\r{up}", lines.join("\r\n"))
}

/// Returns as much of a line as has room in a width.
fn cut(line: &str, width: usize) -> String {
    let mut used = 0;
    let has_room = |c: &char| {
        used += display_width(c.encode_utf8(&mut [0; 4]));
        used <= width
    };
    line.chars().take_while(has_room).collect()
}
