//! Segments: groups of documents, each compressed as a zstd frame or gzip member of its own, so that a file that is cut off loses
//! only its last segment.

use std::io::{self, Read, Write};

use bson::raw::RawBsonRef;
use bson::{RawDocument, RawDocumentBuf};
use flate2::Compression as Level;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use zstd::bulk::Decompressor;
use zstd::zstd_safe;

use crate::core::policy::Compression;

/// The fastest level: archives are rarely read, and a sweep waits for their compression.
const ZSTD_LEVEL: i32 = 1;

/// Maximum size of a segment in bytes, compressed or not. A writer stays below it: a segment is one document of at most 16 MB, or
/// several smaller ones.
pub const MAX_SEGMENT: usize = 32 * 1024 * 1024;

/// Maximum nesting of a document: no server can be told to take more (MongoDB's `maxBSONDepth`, 200 unless set).
const MAX_LEVELS: usize = 250;

/// Compresses one segment, with the checksum of the format, into a writer. Large documents are not copied.
///
/// Errors: as for the writer, or the compressor is out of memory.
pub fn compress_into(documents: &[&[u8]], compression: Compression, writer: impl Write) -> io::Result<()> {
    let all = |encoder: &mut dyn Write| documents.iter().try_for_each(|document| encoder.write_all(document));
    match compression {
        Compression::Zstd => {
            let mut encoder = zstd::stream::write::Encoder::new(writer, ZSTD_LEVEL)?;
            encoder.include_checksum(true)?;
            // The reader takes no segment that does not say its size.
            encoder.set_pledged_src_size(Some(documents.iter().map(|document| document.len() as u64).sum()))?;
            all(&mut encoder)?;
            encoder.finish().map(drop)
        }
        Compression::Gzip => {
            let mut encoder = GzEncoder::new(writer, Level::fast());
            all(&mut encoder)?;
            encoder.finish().map(drop)
        }
    }
}

/// Compresses one segment.
///
/// Errors: the compressor is out of memory.
pub fn compress(documents: &[u8], compression: Compression) -> io::Result<Vec<u8>> {
    let mut segment = Vec::new();
    compress_into(&[documents], compression, &mut segment)?;
    Ok(segment)
}

/// Decompresses the segments of one file. A file may have millions, and what zstd needs for each takes far longer to create than
/// to use.
pub enum Decoder {
    Zstd(Decompressor<'static>),
    Gzip,
}

impl Decoder {
    pub fn new(compression: Compression) -> Self {
        match compression {
            Compression::Zstd => Self::Zstd(Decompressor::default()),
            Compression::Gzip => Self::Gzip,
        }
    }

    /// Decompresses the first segment of `bytes`. Returns its compressed length and its content, or `None` if it is cut off or
    /// damaged.
    pub fn first(&mut self, bytes: &[u8]) -> Option<(usize, Vec<u8>)> {
        match self {
            Self::Zstd(decompressor) => {
                let length = zstd_safe::find_frame_compressed_size(bytes).ok()?;
                let frame = bytes.get(..length)?;
                let size = usize::try_from(zstd_safe::get_frame_content_size(frame).ok()??).ok()?;
                // The content size is what the frame says; a frame with more content fails.
                let content = if size <= MAX_SEGMENT { decompressor.decompress(frame, size).ok()? } else { return None };
                (content.len() == size).then_some((length, content))
            }
            Self::Gzip => {
                let mut decoder = GzDecoder::new(bytes);
                let mut content = Vec::new();
                decoder.by_ref().take(MAX_SEGMENT as u64 + 1).read_to_end(&mut content).ok()?;
                let rest = decoder.into_inner().len();
                (content.len() <= MAX_SEGMENT).then(|| (bytes.len() - rest, content))
            }
        }
    }
}

/// Decompresses the first segment of `bytes`, as [`Decoder::first`] does.
pub fn first(bytes: &[u8], compression: Compression) -> Option<(usize, Vec<u8>)> {
    Decoder::new(compression).first(bytes)
}

/// Whether these bytes are the beginning of a segment that was not written to its end.
pub fn is_begun(bytes: &[u8], compression: Compression) -> bool {
    fn is_cut_off(decoder: io::Result<impl Read>) -> bool {
        let content = decoder.and_then(|decoder| io::copy(&mut decoder.take(MAX_SEGMENT as u64), &mut io::sink()));
        content.is_err_and(|cause| cause.kind() == io::ErrorKind::UnexpectedEof)
    }
    match compression {
        Compression::Zstd => is_cut_off(zstd::stream::read::Decoder::with_buffer(bytes).and_then(|mut decoder| {
            // Memory for a window that is as large as a segment.
            decoder.window_log_max(MAX_SEGMENT.ilog2())?;
            Ok(decoder)
        })),
        Compression::Gzip => is_cut_off(Ok(GzDecoder::new(bytes))),
    }
}

/// Returns the documents in the content of a segment.
///
/// Errors: as for [`count`].
pub fn documents(content: &[u8]) -> Result<Vec<RawDocumentBuf>, String> {
    let mut documents = Vec::new();
    each(content, |document| documents.push(document.to_owned()))?;
    Ok(documents)
}

/// Checks the documents in the content of a segment, without copies of them, and returns their number.
///
/// Errors: no document, which no sweep writes; an impossible length; or a document that is not valid BSON or nested deeper than a
/// server takes it.
pub fn count(content: &[u8]) -> Result<u64, String> {
    let mut count = 0;
    each(content, |_| count += 1)?;
    Ok(count)
}

/// Checks the documents in the content of a segment, and passes each of them on.
fn each(mut content: &[u8], mut take: impl FnMut(&RawDocument)) -> Result<(), String> {
    if content.is_empty() {
        return Err("it has no documents".into());
    }
    for number in 1_u64.. {
        let length = content.first_chunk::<4>().map(|bytes| i32::from_le_bytes(*bytes));
        let length = length.and_then(|length| usize::try_from(length).ok()).filter(|length| *length <= content.len());
        let Some(length) = length else { return Err(format!("document {number} has an impossible length")) };
        let (document, rest) = content.split_at(length);
        let document = RawDocument::from_bytes(document).map_err(|_| format!("document {number} is not valid BSON"))?;
        check(document).map_err(|why| format!("document {number} {why}"))?;
        take(document);
        content = rest;
        if content.is_empty() {
            break;
        }
    }
    Ok(())
}

/// Checks every value of a document, without recursion: a forged document may have any number of levels.
fn check(document: &RawDocument) -> Result<(), &'static str> {
    // A sweep archives code whatever its scope holds.
    let mut open = vec![(document.iter(), false)];
    while let Some((values, is_scope)) = open.last_mut() {
        let is_scope = *is_scope;
        let (inner, is_scope) = match values.next() {
            None => {
                open.pop();
                continue;
            }
            Some(Err(_)) if is_scope => {
                open.pop();
                continue;
            }
            Some(Err(_)) => return Err("is not valid BSON"),
            Some(Ok((_, RawBsonRef::Document(inner)))) => (inner, is_scope),
            // An array has the bytes of a document.
            Some(Ok((_, RawBsonRef::Array(inner)))) => {
                (RawDocument::from_bytes(inner.as_bytes()).map_err(|_| "is not valid BSON")?, is_scope)
            }
            Some(Ok((_, RawBsonRef::JavaScriptCodeWithScope(code)))) => (code.scope, true),
            Some(Ok(_)) => continue,
        };
        if open.len() == MAX_LEVELS {
            return Err("has more levels than a server takes");
        }
        open.push((inner.iter(), is_scope));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn segments_come_back_one_by_one_and_never_in_part() {
        let content: Vec<u8> = (0..9)
            .flat_map(|n| RawDocumentBuf::try_from(&doc! { "_id": n, "p": "x".repeat(50) }).unwrap().into_bytes())
            .collect();
        for compression in [Compression::Zstd, Compression::Gzip] {
            let one = compress(&content, compression).unwrap();
            let two = [one.clone(), one.clone()].concat();
            assert_eq!(first(&two, compression), Some((one.len(), content.clone())));
            assert_eq!((documents(&content).unwrap().len(), count(&content)), (9, Ok(9)));
            for cut in 0..one.len() {
                assert_eq!(first(&one[..cut], compression), None, "{compression:?} cut at {cut}");
                assert!(cut == 0 || is_begun(&one[..cut], compression), "{compression:?} cut at {cut}");
            }
            for whole_or_other in [&one[..], b"no segment", &[0; 100]] {
                assert!(!is_begun(whole_or_other, compression), "{compression:?} {whole_or_other:?}");
            }
            for at in one.len() - 6..one.len() - 4 {
                let mut flipped = one.clone();
                flipped[at] ^= 1;
                assert_eq!(first(&flipped, compression), None, "{compression:?} flipped at {at}");
            }
        }
    }

    /// Returns a document with so many levels, inside of each other in turn as documents, arrays and scopes of code.
    fn nested(levels: usize) -> Vec<u8> {
        let mut document = vec![5, 0, 0, 0, 0];
        for level in 1..levels {
            let (kind, value) = match level % 3 {
                0 => (3, document),
                1 => (4, document),
                _ => {
                    let length = i32::try_from(4 + 5 + document.len()).unwrap();
                    (15, [&length.to_le_bytes()[..], &[1, 0, 0, 0, 0], &document].concat())
                }
            };
            let length = i32::try_from(4 + 3 + value.len() + 1).unwrap();
            document = [&length.to_le_bytes()[..], &[kind, b'0', 0], &value, &[0]].concat();
        }
        document
    }

    #[test]
    fn documents_deeper_than_a_server_takes_are_refused_without_recursion() {
        assert_eq!(documents(&nested(MAX_LEVELS)).unwrap().len(), 1);
        for levels in [MAX_LEVELS + 1, 5000] {
            let why = documents(&nested(levels)).unwrap_err();
            assert_eq!(why, "document 1 has more levels than a server takes");
        }
    }

    #[test]
    fn segments_with_more_content_than_they_say_or_than_any_has_are_refused() {
        let large = vec![0; MAX_SEGMENT + 1];
        for compression in [Compression::Zstd, Compression::Gzip] {
            assert_eq!(first(&compress(&large, compression).unwrap(), compression), None, "{compression:?}");
            assert!(first(&compress(&large[1..], compression).unwrap(), compression).is_some(), "{compression:?}");
        }
        let mut frame = compress(&[7; 1000], Compression::Zstd).unwrap();
        // Magic number, descriptor, and two bytes of the content size less 256.
        assert_eq!(frame[5..7], (1000_u16 - 256).to_le_bytes());
        frame[5..7].copy_from_slice(&0_u16.to_le_bytes());
        assert_eq!(first(&frame, Compression::Zstd), None);
        // 2^60 bytes.
        let endless = [&frame[..4], &[0xe4], &(1_u64 << 60).to_le_bytes(), &frame[7..]].concat();
        assert_eq!(first(&endless, Compression::Zstd), None);
    }

    #[test]
    fn what_is_no_bson_is_said() {
        for bad in [
            &[][..],
            &[5, 0, 0][..],
            &[4, 0, 0, 0][..],
            &[255, 255, 255, 255, 0][..],
            &[6, 0, 0, 0, 0][..],
            &[7, 0, 0, 0, 9, 9, 0][..],
        ] {
            assert!(documents(bad).is_err() && count(bad).is_err(), "{bad:?}");
        }
    }
}
