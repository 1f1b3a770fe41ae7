//! The time and the cost of deleting: sweeper compared with what people use otherwise, as ratios within one run.
//!
//! `cargo bench --bench sweep` runs every section; `-- --only layouts --case random --documents 100000 --rounds 1` a part of one.
//! Each section has a fresh mongod of its own. Figures are reported but not asserted; every run asserts that it left exactly the
//! right documents.

#![allow(clippy::print_stdout)]

#[path = "../../tests/it/support/mongod/mod.rs"]
mod mongod;
// It plays more services than the benchmark needs.
#[allow(dead_code)]
#[path = "../../tests/it/support/proxy/mod.rs"]
mod proxy;
#[path = "../../tests/it/support/replica_set.rs"]
mod replica_set;

mod archive;
mod beyond;
mod children;
mod collections;
mod count;
mod deletion;
mod felt;
mod fill;
mod forecast;
mod foreground;
mod head;
mod holds;
mod latency;
mod layout;
mod layouts;
mod left;
mod load;
mod nice;
mod nothing;
mod oplog;
mod peer;
mod pressure;
mod process;
mod runs;
mod scale;
mod server;
mod sharded;
mod spread;
mod storage;
mod sweeper;
mod table;

use clap::{Parser, ValueEnum};

#[derive(Parser)]
struct Args {
    /// Only these sections; repeatable, or separated by commas [default: all]
    #[arg(long, value_name = "SECTION", value_delimiter = ',')]
    only: Vec<Section>,
    /// Only layouts whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    case: String,
    /// Documents in a collection of the sections layouts, count, beyond-cache and forecast; in most layouts about half of them
    /// have expired
    #[arg(long, value_name = "N", default_value_t = 400_000, value_parser = clap::value_parser!(i64).range(1..))]
    documents: i64,
    /// Rounds of which the median is taken; sweeps in the section oplog
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Documents in the largest of the four collections of the section scale; each of them is a quarter of the next
    #[arg(long, value_name = "N", default_value_t = 6_400_000, value_parser = clap::value_parser!(i64).range(64..))]
    largest: i64,
    /// Documents to delete in the section foreground, of twice as many
    #[arg(long, value_name = "N", default_value_t = 500_000, value_parser = clap::value_parser!(i64).range(1..))]
    foreground_documents: i64,
    /// Operations of the foreground per second
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(1..))]
    foreground_rate: u32,
    /// The server's cache in megabytes. It moves times and ratios: compare only runs with the same [default: 10000, which holds
    /// every collection, as a server's own default does; 256, where eviction is what is measured, in the sections beyond-cache
    /// and pressure]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(256..))]
    cache: Option<u32>,
    /// Documents of 1 kB to archive and delete in the section archive, of twice as many
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(i64).range(1..))]
    archive_documents: i64,
    /// Files of three chunks to delete in the section children, of twice as many
    #[arg(long, value_name = "N", default_value_t = 20_000, value_parser = clap::value_parser!(i64).range(1..))]
    files: i64,
    /// Sizes of the documents in bytes in the section beyond-cache, whose cases are all combinations
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "400", value_parser = clap::value_parser!(u32).range(100..))]
    bytes: Vec<u32>,
    /// Numbers of indexes in the section beyond-cache, besides that on the `_id`
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(u8).range(1..=3))]
    indexes: Vec<u8>,
    /// Percentages of expired documents in the section beyond-cache
    #[arg(long, value_name = "N", value_delimiter = ',', default_value = "20,50", value_parser = clap::value_parser!(u8).range(1..=99))]
    percent: Vec<u8>,
    /// Documents of 1 kB to delete in the section pressure, of twice as many
    #[arg(long, value_name = "N", default_value_t = 200_000, value_parser = clap::value_parser!(i64).range(1..))]
    pressure_documents: i64,
    /// Documents to delete in the section latency, of twice as many
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(i64).range(1..))]
    latency_documents: i64,
    /// Documents to delete in the section sharded, of twice as many
    #[arg(long, value_name = "N", default_value_t = 300_000, value_parser = clap::value_parser!(i64).range(1..))]
    sharded_documents: i64,
    /// Accepted because `cargo bench` passes it to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
}

impl Args {
    /// Returns the size of the cache in megabytes for the sections whose collections it is to hold.
    fn ample_cache(&self) -> u32 {
        self.cache.unwrap_or(10_000)
    }

    /// Returns the size of the cache in megabytes for the sections whose collections it is not to hold.
    fn small_cache(&self) -> u32 {
        self.cache.unwrap_or(256)
    }
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Section {
    /// Wall time over the layouts of a collection
    Layouts,
    /// A dry run compared with one count
    Count,
    /// Wall time over the size of the collection
    Scale,
    /// Many empty collections behind a glob
    Collections,
    /// Sweeps that find nothing compared with one find in each collection
    Nothing,
    /// The latency of others while documents are being deleted
    Foreground,
    /// Archiving and deleting compared with a dump and one delete
    Archive,
    /// Sweeps with many holds compared with the same without
    Holds,
    /// Files and their chunks compared with a script that deletes them by lists of `_id`s
    Children,
    /// Wall time and written pages in collections that the cache does not hold
    BeyondCache,
    /// The latency of others in a collection that the cache does not hold
    Pressure,
    /// Estimates of dry runs, and of the time left during a sweep, compared with what came
    Forecast,
    /// The window of the oplog next to a writer, with `minOplogWindow`
    Oplog,
    /// Deletes with a fixed latency, and the latency of the oldest document for others
    Latency,
    /// Wall time behind a router, with a latency to each of its shards
    Sharded,
}

#[tokio::main]
async fn main() {
    let args = Args::parse();
    println!(
        "One-node replica set, write concern majority, server and clients on {} cores; medians of {} rounds.",
        std::thread::available_parallelism().map_or(0, usize::from),
        args.rounds
    );
    println!("In brackets: the figure to reach, and `!` where it was missed.");
    println!("sweeper is the whole process, from start to exit; peak is what it had resident at its most, in any round.");
    for section in Section::value_variants() {
        if !args.only.is_empty() && !args.only.contains(section) {
            continue;
        }
        match section {
            Section::Layouts => layouts::run(&args).await,
            Section::Count => count::run(&args).await,
            Section::Scale => scale::run(&args).await,
            Section::Collections => collections::run(&args).await,
            Section::Nothing => nothing::run(&args).await,
            Section::Foreground => foreground::run(&args).await,
            Section::Archive => archive::run(&args).await,
            Section::Holds => holds::run(&args).await,
            Section::Children => children::run(&args).await,
            Section::BeyondCache => beyond::run(&args).await,
            Section::Pressure => pressure::run(&args).await,
            Section::Forecast => {
                forecast::run(&args).await;
                left::run(&args).await;
            }
            Section::Oplog => oplog::run(&args).await,
            Section::Latency => {
                latency::run(&args).await;
                head::run(&args).await;
            }
            Section::Sharded => sharded::run(&args).await,
        }
    }
}
