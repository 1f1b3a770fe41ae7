//! Files of a GridFS bucket with their chunks, compared with a script that deletes files and chunks by lists of 1,000 `_id`s.
//!
//! The script keeps no journal: what it leaves when it ends between the two deletes stays for ever.

use std::time::Instant;

use futures_util::TryStreamExt;
use mongodb::Collection;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, Document, doc};
use mongodb::options::WriteConcern;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

use crate::Args;
use crate::deletion::{Deletion, Usage};
use crate::peer::delete_many;
use crate::runs::{median, most, rotated};
use crate::server::{Server, date};
use crate::sweeper;
use crate::table::{Goal, MEMORY, Table, against, figure};

/// Wall time divided by the wall time of the script.
const TIME: Goal = Goal::AtMost(1.2);

/// Chunks of each file.
const CHUNKS: i32 = 3;

/// Bytes of the chunks of one insert.
const BATCH_BYTES: usize = 20_000_000;

const RULE: &str = "namespace: bench.fs.files, gridfs: fs, expireAfter: 30d";

/// A bucket, in which the files of even numbers have expired.
struct Bucket {
    files: Collection<Document>,
    chunks: Collection<Document>,
    expired: i64,
}

impl Bucket {
    /// Drops the bucket and fills it again, with the indexes that drivers create and one on the dates.
    async fn fill(server: &Server, expired: i64, chunk_bytes: usize) -> Self {
        let [files, chunks] = ["fs.files", "fs.chunks"].map(|name| server.database().collection::<Document>(name));
        files.drop().await.expect("a drop");
        chunks.drop().await.expect("a drop");
        let mut numbers: Vec<i64> = (0..expired * 2).collect();
        // Dates in no order of the files.
        numbers.shuffle(&mut StdRng::seed_from_u64(1));
        for batch in numbers.chunks((BATCH_BYTES / chunk_bytes / CHUNKS as usize).clamp(1, 2000)) {
            let ids: Vec<(ObjectId, i64)> = batch.iter().map(|number| (ObjectId::new(), *number)).collect();
            let of_files = ids.iter().map(|(id, number)| {
                let days = if number % 2 == 0 { -40 } else { -1 };
                let length = i64::from(CHUNKS) * chunk_bytes as i64;
                doc! { "_id": id, "length": length, "chunkSize": chunk_bytes as i32, "uploadDate": date(days * 86_400 - number) }
            });
            let of_chunks = ids.iter().flat_map(|(id, _)| (0..CHUNKS).map(move |n| chunk(*id, n, chunk_bytes)));
            chunks.insert_many(of_chunks).write_concern(WriteConcern::nodes(1)).await.expect("chunks go in");
            files.insert_many(of_files).write_concern(WriteConcern::nodes(1)).await.expect("files go in");
        }
        for (collection, index) in [
            ("fs.files", doc! { "key": { "uploadDate": 1 }, "name": "uploadDate" }),
            ("fs.chunks", doc! { "key": { "files_id": 1, "n": 1 }, "name": "files_id", "unique": true }),
        ] {
            server.database().run_command(doc! { "createIndexes": collection, "indexes": [index] }).await.expect("an index");
        }
        // As an earlier run has left it: a run that has to create its lease waits for some seconds.
        let free = doc! { "$setOnInsert": { "runId": Bson::Null, "expiresAt": date(-86_400) } };
        let journal = server.client.database("ops").collection::<Document>("journal");
        journal.update_one(doc! { "_id": "bench.fs.files" }, free).upsert(true).await.expect("a lease");
        server.checkpoint().await;
        Self { files, chunks, expired }
    }

    async fn script(&self) {
        let expired = doc! { "uploadDate": { "$lte": date(-30 * 86_400) } };
        loop {
            let found = self.files.find(expired.clone()).projection(doc! { "_id": 1 }).limit(1000).await.expect("a cursor");
            let ids: Vec<Bson> = found.map_ok(|file| file["_id"].clone()).try_collect().await.expect("ids");
            if ids.is_empty() {
                break;
            }
            let mut files = expired.clone();
            files.insert("_id", doc! { "$in": &ids });
            delete_many(&self.files, files).await;
            delete_many(&self.chunks, doc! { "files_id": { "$in": ids } }).await;
        }
    }

    /// Asserts that exactly the files that have not expired are left, each with its chunks.
    async fn assert_left(&self) {
        let left = self.files.find(doc! {}).await.expect("a cursor");
        let left: Vec<Document> = left.try_collect().await.expect("files");
        let threshold = date(-30 * 86_400);
        assert!(left.iter().all(|file| file.get_datetime("uploadDate").expect("a date") > &threshold));
        let ids: Vec<Bson> = left.iter().map(|file| file["_id"].clone()).collect();
        let of_left = self.chunks.count_documents(doc! { "files_id": { "$in": &ids } }).await.expect("a count");
        let all = self.chunks.count_documents(doc! {}).await.expect("a count");
        let chunks = self.expired as u64 * CHUNKS as u64;
        assert_eq!((ids.len() as u64, of_left, all), (self.expired as u64, chunks, chunks));
    }
}

fn chunk(file: ObjectId, n: i32, bytes: usize) -> Document {
    let data = Binary { subtype: BinarySubtype::Generic, bytes: vec![n as u8; bytes] };
    doc! { "_id": ObjectId::new(), "files_id": file, "n": n, "data": data }
}

pub(crate) async fn run(args: &Args) {
    let server = Server::start(args.ample_cache()).await;
    let title = format!("children: {} files of {CHUNKS} chunks are deleted, of twice as many", args.files);
    let columns = [("", 16), ("script s", 8), ("sweeper s", 9), ("time / script", 14), ("peak MB", 14), ("batches", 8)];
    let table = Table::begin(&title, &columns);
    for (name, chunk_bytes, files) in
        [("chunks of 1 kB", 1000, args.files), ("chunks of 100 kB", 100_000, (args.files / 10).max(1))]
    {
        let (mut scripts, mut sweeps) = (Vec::new(), Vec::new());
        for round in 0..args.rounds {
            for is_script in rotated(&[true, false], round) {
                let bucket = Bucket::fill(&server, files, chunk_bytes).await;
                if is_script {
                    let begun = Instant::now();
                    bucket.script().await;
                    scripts.push(Deletion::since(begun));
                } else {
                    sweeps.push(sweeper::sweep(&server, RULE, &[]).await);
                }
                bucket.assert_left().await;
            }
        }
        let seconds = |runs: &[Deletion]| median(runs.iter().map(|run| run.wall().as_secs_f64()));
        let times = seconds(&sweeps).zip(seconds(&scripts)).map(|(sweep, script)| sweep / script);
        let peak = most(sweeps.iter().filter_map(|run| run.usage.as_ref()).map(Usage::megabytes));
        let batches = median(sweeps.iter().filter_map(|run| run.report["rules"][0]["batches"].as_f64()));
        table.row([
            name.to_owned(),
            figure(seconds(&scripts), 2),
            figure(seconds(&sweeps), 2),
            against(times, TIME, 2),
            against(peak, MEMORY, 1),
            figure(batches, 0),
        ]);
    }
}
