//! The part of MongoDB's wire protocol that a driver uses without compression: OP_MSG.
//!
//! Source: MongoDB manual, "MongoDB Wire Protocol".

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicI32, Ordering};

use mongodb::bson::{Bson, Document};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const OP_MSG: i32 = 2013;
const CHECKSUM_PRESENT: u32 = 1;
const MORE_TO_COME: u32 = 2;
const HEADER: usize = 16;

/// Larger than any message that mongod accepts: a greater length is invalid.
const MAX_BYTES: usize = 64 * 1024 * 1024;

/// A command or a reply, with document sequences turned into arrays of the body.
pub(super) struct Message {
    pub id: i32,
    pub body: Document,
    pub bytes: usize,
    /// Whether the sender waits for a reply.
    pub answered: bool,
}

/// Reads a message; returns `None` if the other side has closed the connection.
pub(super) async fn read(stream: &mut TcpStream) -> io::Result<Option<Message>> {
    let mut header = [0; HEADER];
    match stream.read_exact(&mut header).await {
        Err(cause) if cause.kind() == ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    };
    let number = |at: usize| i32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let bytes = usize::try_from(number(0)).ok().filter(|bytes| (HEADER..=MAX_BYTES).contains(bytes));
    let bytes = bytes.ok_or_else(|| invalid("the length of a message"))?;
    if number(12) != OP_MSG {
        return Err(invalid(&format!("operation {}", number(12))));
    }
    let mut rest = vec![0; bytes - HEADER];
    stream.read_exact(&mut rest).await?;
    let (flags, body) = body(&rest)?;
    Ok(Some(Message { id: number(4), body, bytes, answered: flags & MORE_TO_COME == 0 }))
}

/// Writes a message in reply to the message `answers`, 0 for none, and returns its own number.
pub(super) async fn write(stream: &mut TcpStream, answers: i32, body: &Document) -> io::Result<i32> {
    static NEXT: AtomicI32 = AtomicI32::new(1);
    let id = NEXT.fetch_add(1, Ordering::Relaxed);
    let body = body.to_vec().map_err(io::Error::other)?;
    let length = HEADER + 5 + body.len();
    let mut message = Vec::with_capacity(length);
    for number in [i32::try_from(length).map_err(io::Error::other)?, id, answers, OP_MSG, 0] {
        message.extend(number.to_le_bytes());
    }
    message.push(0);
    message.extend(body);
    stream.write_all(&message).await?;
    Ok(id)
}

fn body(rest: &[u8]) -> io::Result<(u32, Document)> {
    let mut rest = rest;
    let flags = u32::from_le_bytes(take(&mut rest, 4)?.try_into().map_err(io::Error::other)?);
    if flags & CHECKSUM_PRESENT != 0 {
        rest = rest.split_last_chunk::<4>().ok_or_else(|| invalid("a checksum"))?.0;
    }
    let mut body = Document::new();
    while !rest.is_empty() {
        match take(&mut rest, 1)?[0] {
            0 => body.extend(document(&mut rest)?),
            1 => {
                let length = usize::try_from(length(rest)?).map_err(io::Error::other)?;
                let mut section = take(&mut rest, length)?;
                take(&mut section, 4)?;
                let end = section.iter().position(|byte| *byte == 0).ok_or_else(|| invalid("the name of a sequence"))?;
                let name = String::from_utf8(take(&mut section, end)?.to_vec()).map_err(io::Error::other)?;
                take(&mut section, 1)?;
                let mut documents = Vec::new();
                while !section.is_empty() {
                    documents.push(Bson::Document(document(&mut section)?));
                }
                body.insert(name, documents);
            }
            kind => return Err(invalid(&format!("a section of kind {kind}"))),
        }
    }
    Ok((flags, body))
}

fn document(rest: &mut &[u8]) -> io::Result<Document> {
    let length = usize::try_from(length(rest)?).map_err(io::Error::other)?;
    Document::from_reader(take(rest, length)?).map_err(io::Error::other)
}

fn length(rest: &[u8]) -> io::Result<i32> {
    Ok(i32::from_le_bytes(*rest.first_chunk::<4>().ok_or_else(|| invalid("a length"))?))
}

fn take<'a>(rest: &mut &'a [u8], count: usize) -> io::Result<&'a [u8]> {
    rest.split_off(..count).ok_or_else(|| invalid("the end of a message"))
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("not understood: {what}"))
}
