//! Segments: groups of documents, each compressed as a zstd frame or gzip member of its own, so that a file that is cut off loses
//! only its last segment.

use std::io::{self, Read, Write};

use bson::RawDocumentBuf;
use flate2::Compression as Level;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use zstd::zstd_safe;

use crate::policy::Compression;

/// The fastest level: archives are rarely read, and a sweep waits for their compression.
const ZSTD_LEVEL: i32 = 1;

/// Maximum decompressed size of a segment in bytes. A writer stays below it: a segment is one document of at most 16 MB, or
/// several smaller ones.
const MAX_SEGMENT: usize = 64 * 1024 * 1024;

/// Compresses one segment, with the checksum of the format.
///
/// Errors: the compressor is out of memory.
pub fn compress(documents: &[u8], compression: Compression) -> io::Result<Vec<u8>> {
    match compression {
        Compression::Zstd => {
            let mut compressor = zstd::bulk::Compressor::new(ZSTD_LEVEL)?;
            compressor.include_checksum(true)?;
            compressor.compress(documents)
        }
        Compression::Gzip => {
            let mut encoder = GzEncoder::new(Vec::new(), Level::fast());
            encoder.write_all(documents)?;
            encoder.finish()
        }
    }
}

/// Decompresses the first segment of `bytes`. Returns its compressed length and its content, or `None` if it is cut off or
/// damaged.
pub fn first(bytes: &[u8], compression: Compression) -> Option<(usize, Vec<u8>)> {
    match compression {
        Compression::Zstd => {
            let length = zstd_safe::find_frame_compressed_size(bytes).ok()?;
            let frame = bytes.get(..length)?;
            let size = usize::try_from(zstd_safe::get_frame_content_size(frame).ok()??).ok()?;
            let content = zstd::bulk::decompress(frame, size.min(MAX_SEGMENT)).ok()?;
            Some((length, content))
        }
        Compression::Gzip => {
            let mut decoder = GzDecoder::new(bytes);
            let mut content = Vec::new();
            decoder.by_ref().take(MAX_SEGMENT as u64 + 1).read_to_end(&mut content).ok()?;
            let rest = decoder.into_inner().len();
            (content.len() <= MAX_SEGMENT).then(|| (bytes.len() - rest, content))
        }
    }
}

/// Splits the content of a segment into its documents.
///
/// Errors: an impossible length, or a document that is not valid BSON.
pub fn documents(mut content: &[u8]) -> Result<Vec<RawDocumentBuf>, String> {
    let mut documents = Vec::new();
    while !content.is_empty() {
        let length = content.first_chunk::<4>().map(|bytes| i32::from_le_bytes(*bytes));
        let length = length.and_then(|length| usize::try_from(length).ok()).filter(|length| *length <= content.len());
        let number = documents.len() + 1;
        let Some(length) = length else { return Err(format!("document {number} has an impossible length")) };
        let (document, rest) = content.split_at(length);
        let document =
            RawDocumentBuf::from_bytes(document.to_vec()).map_err(|_| format!("document {number} is not valid BSON"))?;
        if document.iter().any(|element| element.is_err()) {
            return Err(format!("document {number} is not valid BSON"));
        }
        documents.push(document);
        content = rest;
    }
    Ok(documents)
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
            assert_eq!(documents(&content).unwrap().len(), 9);
            for cut in 0..one.len() {
                assert_eq!(first(&one[..cut], compression), None, "{compression:?} cut at {cut}");
            }
            for at in one.len() - 6..one.len() - 4 {
                let mut flipped = one.clone();
                flipped[at] ^= 1;
                assert_eq!(first(&flipped, compression), None, "{compression:?} flipped at {at}");
            }
        }
    }

    #[test]
    fn what_is_no_bson_is_said() {
        assert_eq!(documents(&[]), Ok(Vec::new()));
        for bad in
            [&[5, 0, 0][..], &[4, 0, 0, 0][..], &[255, 255, 255, 255, 0][..], &[6, 0, 0, 0, 0][..], &[7, 0, 0, 0, 9, 9, 0][..]]
        {
            assert!(documents(bad).is_err(), "{bad:?}");
        }
    }
}
