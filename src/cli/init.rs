//! Options of `init`.

use clap::Args;

#[derive(Debug, Args)]
pub struct InitArgs {
    /// database.collection; `*` stands for anything
    #[arg(long, value_name = "NAMESPACE")]
    pub namespace: Option<String>,
    /// The field that holds the date, such as lastModified or meta.createdAt
    #[arg(long, value_name = "PATH")]
    pub field: Option<String>,
    /// How long after that date a document expires, such as 90d
    #[arg(long, value_name = "DUR")]
    pub expire_after: Option<String>,
    /// A field that overrides it for its document, in seconds
    #[arg(long, value_name = "NAME")]
    pub ttl_field: Option<String>,
    /// How the date is stored: date, epochSeconds, epochMillis or objectId
    #[arg(long, value_name = "FORMAT")]
    pub date_format: Option<String>,
    /// Refuse to delete more than this share of the collection, in percent [default: 50]
    #[arg(long, value_name = "PERCENT")]
    pub max_delete_percent: Option<f64>,
    /// Replace the file where there is one
    #[arg(long)]
    pub force: bool,
}
