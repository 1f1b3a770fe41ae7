//! `cargo run --example demo`: starts a throwaway mongod with the data of a small shop, shows a dry run and a sweep, and counts
//! what is left.

#![allow(clippy::print_stdout)]

#[path = "mongod/mod.rs"]
mod mongod;

use clap::Parser;
use mongod::Mongod;
use mongodb::Database;
use mongodb::bson::{DateTime, Document, doc};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use ttl_sweeper::base::log;
use ttl_sweeper::commands;
use ttl_sweeper::commands::cli::Cli;

const POLICY: &str = r#"version: 1
defaults: {maxDeletePercent: 90}
collections:
  - name: sessions                # idle for a day; those under legal hold stay
    namespace: shop.sessions
    field: lastActivity
    expireAfter: 1d
    filter: {legalHold: {$ne: true}}
  - name: events                  # an array of dates: the earliest decides
    namespace: shop.events
    field: seenAt
    expireAfter: 30d
  - name: carts                   # 7 days, or the cart's own ttl; -1 is never
    namespace: shop.carts
    field: updatedAt
    expireAfter: 7d
    ttlField: ttl
"#;

const HOUR: i64 = 3_600_000;

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    log::install(log::LogFormat::Text, 0, false, false);
    println!("Starting a throwaway mongod and filling the database `shop` ...");
    let mongod = tokio::task::spawn_blocking(|| Mongod::start(&[])).await?;
    let shop = mongod.client().await.database("shop");
    fill(&shop).await?;
    let policy = mongod.dir.path().join("demo.yaml");
    std::fs::write(&policy, POLICY)?;
    println!("\nThe policy:\n\n{POLICY}");

    for (title, option) in
        [("1. What would be deleted? (sweeper sweep --dry-run)", "--dry-run"), ("2. Delete it. (sweeper sweep --yes)", "--yes")]
    {
        println!("{}\n{title}\n", "-".repeat(80));
        let policy = policy.to_string_lossy();
        let cli = Cli::try_parse_from(["sweeper", "sweep", option, "--policy", &policy, "--uri", &mongod.uri()])?;
        let code = commands::run(cli).await?;
        println!("\nexit code {code}\n");
    }

    println!("{}\n3. What is left?\n", "-".repeat(80));
    let day_ago = DateTime::from_millis(DateTime::now().timestamp_millis() - 24 * HOUR);
    let held = doc! { "lastActivity": { "$lte": day_ago }, "legalHold": true };
    println!(
        "sessions older than a day under a legal hold: {}",
        shop.collection::<Document>("sessions").count_documents(held).await?
    );
    let forever = doc! { "ttl": -1 };
    println!(
        "carts whose own ttl is -1, for never:         {}",
        shop.collection::<Document>("carts").count_documents(forever).await?
    );
    println!("\nThe throwaway mongod and its data are gone.");
    Ok(())
}

async fn fill(shop: &Database) -> mongodb::error::Result<()> {
    let mut random = StdRng::seed_from_u64(1);
    let now = DateTime::now().timestamp_millis();
    let mut hours_ago = |hours: std::ops::Range<i64>| DateTime::from_millis(now - random.random_range(hours) * HOUR - 1);

    let sessions: Vec<Document> = (0..20_000)
        .map(|n| doc! { "user": n % 997, "lastActivity": hours_ago(0..72), "legalHold": n % 500 == 0, "agent": "Mozilla/5.0" })
        .collect();
    let events: Vec<Document> = (0..20_000)
        .map(|n| doc! { "kind": if n % 3 == 0 { "click" } else { "view" }, "seenAt": [hours_ago(0..1000), hours_ago(0..1000)] })
        .collect();
    let carts: Vec<Document> = (0..5_000)
        .map(|n| {
            let mut cart = doc! { "items": n % 7, "updatedAt": hours_ago(0..400) };
            match n % 10 {
                0 => drop(cart.insert("ttl", 3600)),
                1 => drop(cart.insert("ttl", 90 * 86_400)),
                2 => drop(cart.insert("ttl", -1)),
                3 if n % 100 == 3 => drop(cart.insert("ttl", 0)),
                _ => {}
            }
            cart
        })
        .collect();
    for (name, field, documents) in
        [("sessions", "lastActivity", sessions), ("events", "seenAt", events), ("carts", "updatedAt", carts)]
    {
        let collection = shop.collection::<Document>(name);
        collection.insert_many(documents).await?;
        collection.create_index(mongodb::IndexModel::builder().keys(doc! { field: 1 }).build()).await?;
    }
    Ok(())
}
