//! The journal of an archive: one line for each file and each segment, in the order in which they were written. All functions
//! block.
//!
//! It is synced after the line of a file, before the first document of that file is deleted. It is not synced after the line of a
//! segment, which can be recovered from the segment. After a loss of power its end may therefore be missing, or be NULs.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::path::PathBuf;

use super::directory::{JOURNAL, WITHOUT};
use super::disk::{Disk, ReadFile};
use super::manifest::{FORMAT, FileRecord, Line, Segment};
use super::seal::Seal;
use super::tracked::Tracked;

/// Maximum length of a line: names of collections and rules are far shorter.
const MAX_LINE: u64 = 1024 * 1024;

/// A journal that is written.
pub(super) struct ArchiveJournal {
    file: Tracked,
    /// Whether a sync has failed, or the rest of a line could not be removed.
    pub is_broken: bool,
}

impl ArchiveJournal {
    /// Creates the journal, and locks it for as long as it is open.
    pub(super) fn create(disk: &dyn Disk, path: PathBuf) -> io::Result<Self> {
        let file = Tracked::create(disk, path)?;
        // The lock tells other runs that this one was not cut off. Another run holds it only while it checks that.
        file.lock()?;
        Ok(Self { file, is_broken: false })
    }

    pub(super) fn append(&mut self, line: &Line) -> io::Result<()> {
        if self.is_broken {
            return Err(io::Error::other(format!("`{JOURNAL}` could not be written before")));
        }
        let line = Seal::LINE.close(&serde_json::to_string(line)?);
        self.file.append(&line).inspect_err(|_| {
            // The beginning of an unfinished line would damage the next one.
            self.is_broken = self.file.cut().is_err();
        })
    }

    pub(super) fn sync(&mut self) -> io::Result<()> {
        // After a failed sync the next one succeeds, although the lines are lost.
        self.file.sync().inspect_err(|_| self.is_broken = true)
    }
}

/// The contents of a journal.
#[derive(Debug, Default)]
pub(super) struct RecordedJournal {
    /// Id and start of the run.
    pub run: Option<(String, String)>,
    pub files: Vec<(FileRecord, Vec<Segment>)>,
    /// Whether the journal ends with whole lines. If it does not, lines may be missing.
    pub is_whole: bool,
}

/// Reads a journal up to the first line that a crash has not left whole.
///
/// Errors: a line is damaged in a way that no crash explains.
pub(super) fn read(file: &dyn ReadFile) -> Result<RecordedJournal, String> {
    let length = file.length().map_err(|cause| format!("`{JOURNAL}`: {cause}"))?;
    let mut bytes = BufReader::new(Bytes { file, offset: 0, length });
    let mut recorded = RecordedJournal { is_whole: true, ..RecordedJournal::default() };
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for number in 1.. {
        let mut text = Vec::new();
        let read = bytes.by_ref().take(MAX_LINE).read_until(b'\n', &mut text);
        read.map_err(|cause| format!("`{JOURNAL}`: {cause}"))?;
        if text.is_empty() {
            break;
        }
        let damaged = || format!("`{JOURNAL}`: line {number} is damaged{WITHOUT}");
        let Some(json) = Seal::LINE.open(&text) else {
            // A process that is killed leaves a line without an end, and a loss of power leaves NULs.
            if text.contains(&0) || text.last() != Some(&b'\n') && (text.len() as u64) < MAX_LINE {
                recorded.is_whole = false;
                break;
            }
            return Err(other_format(&text).unwrap_or_else(damaged));
        };
        match serde_json::from_slice::<Line>(&json).map_err(|_| damaged())? {
            Line::Run { format, .. } if format != FORMAT => return Err(wrong_format(format)),
            Line::Run { run_id, started_at, .. } if number == 1 => recorded.run = Some((run_id, started_at)),
            Line::Run { .. } => return Err(format!("`{JOURNAL}` begins twice")),
            _ if number == 1 => return Err(format!("`{JOURNAL}` does not begin like a journal")),
            Line::File(record) => {
                if places.insert(record.file.clone(), recorded.files.len()).is_some() {
                    return Err(format!("`{JOURNAL}`: `{}` was begun twice", record.file));
                }
                recorded.files.push((record, Vec::new()));
            }
            Line::Segment(segment) => match places.get(&segment.file) {
                Some(place) => recorded.files[*place].1.push(segment),
                None => return Err(format!("`{JOURNAL}`: a segment of `{}`, which was not begun", segment.file)),
            },
        }
    }
    recorded.is_whole &= recorded.run.is_some();
    Ok(recorded)
}

/// Returns the error of a line of another format, whose lines may have no checksum.
fn other_format(text: &[u8]) -> Option<String> {
    match serde_json::from_slice(text) {
        Ok(Line::Run { format, .. }) if format != FORMAT => Some(wrong_format(format)),
        _ => None,
    }
}

fn wrong_format(format: u32) -> String {
    format!("it has the format {format}; this version reads {FORMAT}")
}

/// The bytes of a file, one after the other.
struct Bytes<'a> {
    file: &'a dyn ReadFile,
    offset: u64,
    length: u64,
}

impl Read for Bytes<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = usize::try_from(self.length - self.offset).unwrap_or(usize::MAX);
        let fitting = left.min(buffer.len());
        self.file.read_at(&mut buffer[..fitting], self.offset)?;
        self.offset += fitting as u64;
        Ok(fitting)
    }
}
