//! The time and the cost of deleting: sweeper compared with what people use otherwise, as ratios within one run.
//!
//! `cargo bench --bench sweep` runs every section; `-- --only layouts --case random --documents 100000 --rounds 1` a part of one. Each
//! section has a fresh mongod of its own. Figures are reported but not asserted; every run asserts that it left exactly the right documents.

#![allow(clippy::print_stdout)]

#[path = "../../tests/it/support/mongod/mod.rs"]
mod mongod;
#[path = "../../tests/it/support/replica_set.rs"]
mod replica_set;

mod archive;
mod collections;
mod count;
mod deletion;
mod fill;
mod foreground;
mod layout;
mod layouts;
mod load;
mod peer;
mod process;
mod runs;
mod scale;
mod server;
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
    /// Documents in a collection of the sections layouts and count; in most layouts about half of them have expired
    #[arg(long, value_name = "N", default_value_t = 400_000, value_parser = clap::value_parser!(i64).range(1..))]
    documents: i64,
    /// Rounds of which the median is taken
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
    /// The server's cache in megabytes. It moves times and ratios: compare only runs with the same. By default it holds every collection, as a
    /// server's own default does; with less, eviction is what is measured
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(256..))]
    cache: u32,
    /// Documents of 1 kB to archive and delete in the section archive, of twice as many
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(i64).range(1..))]
    archive_documents: i64,
    /// Accepted because `cargo bench` passes it to every benchmark
    #[arg(long, hide = true)]
    bench: bool,
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
    /// The latency of others while documents are being deleted
    Foreground,
    /// Archiving and deleting compared with a dump and one delete
    Archive,
}

#[tokio::main]
async fn main() {
    let args = Args::parse();
    println!(
        "One-node replica set with {} MB of cache, write concern majority, server and clients on {} cores; medians of {} rounds.",
        args.cache,
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
            Section::Foreground => foreground::run(&args).await,
            Section::Archive => archive::run(&args).await,
        }
    }
}
