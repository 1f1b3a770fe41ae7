//! Forged files: whatever is in them, the bytes that are read grow with the bytes of the file, and no faster.

use super::super::manifest::{FORMAT, FileRecord, Line};
use super::super::reader;
use super::super::seal::Seal;
use super::*;
use crate::testing::disk::SimulatedDisk;

const RUN: &str = "/20260131T020000Z-1a2b3c4d";

/// Returns a disk with the directory of a run.
fn disk() -> SimulatedDisk {
    let disk = SimulatedDisk::with_directory(Path::new("/"));
    disk.create_directory(Path::new(RUN)).unwrap();
    disk.create_directory(&Path::new(RUN).join("a")).unwrap();
    disk
}

fn path(compression: Compression) -> PathBuf {
    Path::new(RUN).join(if compression == Compression::Zstd { "a/c.bson.zst" } else { "a/c.bson.gz" })
}

/// Returns a segment with the documents of these `_id`s.
fn segment(ids: std::ops::Range<i32>, compression: Compression) -> Vec<u8> {
    let documents: Vec<u8> =
        ids.flat_map(|id| RawDocumentBuf::try_from(&bson::doc! { "_id": id, "p": "x" }).unwrap().into_bytes()).collect();
    frame::compress(&documents, compression).unwrap()
}

/// Verifies the only file of the run. Returns the result, the files that were opened for it, and the bytes that were read.
fn verified(disk: &SimulatedDisk) -> (Result<Verified, String>, usize, usize) {
    let mut stored = reader::open(Arc::new(disk.clone()), Path::new(RUN)).unwrap();
    let (opened, read) = disk.reads();
    let verified = stored.files.remove(0).verify();
    let after = disk.reads();
    (verified, after.0 - opened, after.1 - read)
}

#[test]
fn segments_that_the_journal_has_lost_are_all_found_up_to_the_end_that_was_seen() {
    for compression in [Compression::Zstd, Compression::Gzip] {
        let (disk, path) = (disk(), path(compression));
        let written = disk.create(&path).unwrap();
        let mut ends = vec![0];
        for id in 0..50 {
            let segment = segment(id..id + 1, compression);
            written.append(&segment).unwrap();
            ends.push(ends[ends.len() - 1] + segment.len() as u64);
        }
        let namespace = Namespace { database: "a".into(), collection: "c".into() };
        let mut verified = Verified::new(namespace, Arc::new(disk.clone()), path.clone(), compression);
        let mut opened = Opened::open(&disk, &path, compression).unwrap();
        let end = verified.take_rest(&mut opened, ends[2], ends[49] + 3, 200, &mut Sha256::new()).unwrap();
        assert_eq!((verified.documents, end), (47, ends[49]));
        assert_eq!(verified.segments.iter().map(|place| place.offset).collect::<Vec<_>>(), ends[2..49]);
    }
}

#[test]
fn a_file_of_many_small_segments_is_opened_once_and_read_once() {
    for compression in [Compression::Zstd, Compression::Gzip] {
        let disk = disk();
        let bytes = segment(0..1, compression).repeat(5000);
        disk.write(&path(compression), bytes.clone());
        let (verified, opened, read) = verified(&disk);
        let verified = verified.unwrap();
        assert_eq!((verified.documents, verified.segments.len(), verified.is_damaged), (5000, 5000, false));
        assert_eq!((opened, read), (1, bytes.len()));
        let before = disk.reads();
        for place in &verified.segments {
            assert_eq!(verified.read(place).unwrap().len(), 1);
        }
        let after = disk.reads();
        assert_eq!((after.0 - before.0, after.1 - before.1), (1, bytes.len()));
    }
}

#[test]
fn segments_without_documents_are_damage_and_are_not_gone_through() {
    let skippable = [&0x184d_2a50_u32.to_le_bytes()[..], &0_u32.to_le_bytes()].concat();
    for (compression, empty) in [
        (Compression::Zstd, frame::compress(&[], Compression::Zstd).unwrap()),
        (Compression::Gzip, frame::compress(&[], Compression::Gzip).unwrap()),
        (Compression::Zstd, skippable),
    ] {
        let disk = disk();
        let first = segment(0..3, compression);
        let bytes = [first.clone(), empty.repeat(5000)].concat();
        disk.write(&path(compression), bytes.clone());
        let (verified, opened, read) = verified(&disk);
        let verified = verified.unwrap();
        assert_eq!((verified.documents, verified.segments.len(), verified.is_damaged), (3, 1, true), "{compression:?}");
        assert_eq!(verified.cut, (bytes.len() - first.len()) as u64);
        assert!(opened == 1 && read <= 2 * bytes.len(), "{opened} {read}");
    }
}

#[test]
fn segments_that_leave_most_of_what_is_read_for_the_next_time_are_read_twice_at_most() {
    for compression in [Compression::Zstd, Compression::Gzip] {
        let (small, large) = (segment(0..1, compression), segment(0..60, compression));
        for shape in [vec![&small, &large], vec![&large], vec![&large, &small, &small]] {
            let (disk, path) = (disk(), path(compression));
            let bytes: Vec<u8> = shape.iter().cycle().take(600).flat_map(|segment| segment.iter().copied()).collect();
            disk.write(&path, bytes.clone());
            for at_once in [large.len(), large.len() + 1, 2 * large.len() - 1] {
                let namespace = Namespace { database: "a".into(), collection: "c".into() };
                let mut verified = Verified::new(namespace, Arc::new(disk.clone()), path.clone(), compression);
                let mut opened = Opened::open(&disk, &path, compression).unwrap();
                let before = disk.reads().1;
                let (end, at_once) = (bytes.len() as u64, at_once as u64);
                assert_eq!(verified.take_rest(&mut opened, 0, end, at_once, &mut Sha256::new()).unwrap(), end);
                let read = disk.reads().1 - before;
                assert!(verified.segments.len() == 600 && read <= 2 * bytes.len() + large.len(), "{read} of {}", bytes.len());
            }
        }
    }
}

/// Writes a journal that lists segments at these offsets and with these lengths, all with as many bytes of documents and one
/// checksum.
fn list(disk: &SimulatedDisk, segments: impl Iterator<Item = (u64, u64)>, bytes: u64, sha256: &str) {
    let record = FileRecord {
        file: "a/c.bson.zst".into(),
        metadata: "a/c.metadata.json".into(),
        metadata_sha256: text::sha256(b"{}"),
        database: "a".into(),
        collection: "c".into(),
        compression: "zstd".into(),
        of_children: false,
    };
    let run = Line::Run { format: FORMAT, run_id: "1a2b3c4d".into(), started_at: "2026-01-31T02:00:00Z".into() };
    let segments = segments.map(|(offset, length)| {
        let (file, rule, sha256) = (record.file.clone(), "rule".into(), sha256.to_owned());
        Line::Segment(Segment { file, rule, offset, length, documents: 3, bytes, sha256 })
    });
    let lines = [run, Line::File(record.clone())].into_iter().chain(segments);
    let journal = lines.flat_map(|line| Seal::LINE.close(&serde_json::to_string(&line).unwrap())).collect();
    disk.write(&Path::new(RUN).join("journal.jsonl"), journal);
    disk.write(&Path::new(RUN).join("a/c.metadata.json"), b"{}".to_vec());
}

#[test]
fn a_journal_that_lists_one_segment_again_and_again_or_overlapping_ones_is_refused_at_the_first() {
    let whole = segment(0..3, Compression::Zstd);
    let (length, sha256) = (whole.len() as u64, text::sha256(&whole));
    let bytes = frame::first(&whole, Compression::Zstd).unwrap().1.len() as u64;
    let empty = text::sha256(&[]);
    for (what, segments, sha256) in [
        ("one segment", vec![(0, length); 1000], &sha256),
        ("overlapping segments", (0..1000).map(|at| (at, length)).collect(), &sha256),
        ("segments without bytes", vec![(0, 0); 1000], &empty),
        ("a length beyond all", vec![(0, u64::MAX), (u64::MAX, 1)], &sha256),
    ] {
        let disk = disk();
        disk.write(&path(Compression::Zstd), whole.clone());
        list(&disk, segments.into_iter(), bytes, sha256);
        let (verified, opened, read) = verified(&disk);
        let why = verified.err().unwrap();
        assert!(why.contains("is damaged"), "{what}: {why}");
        assert!(opened == 2 && read <= whole.len() + 2, "{what}: {opened} {read}");
    }
}
