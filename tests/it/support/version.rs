//! The version of the server under test, for expectations that differ between versions.

use mongodb::Database;
use mongodb::bson::doc;

/// A version of mongod.
pub(crate) struct Version {
    /// The whole version, such as `6.0.5`.
    pub text: String,
    pub major: u32,
}

/// Asks a server for its version.
pub(crate) async fn version(db: &Database) -> Version {
    let build = db.run_command(doc! { "buildInfo": 1 }).await.expect("buildInfo");
    let text = build.get_str("version").expect("a version").to_owned();
    let major = text.split('.').next().and_then(|major| major.parse().ok()).expect("a major version");
    Version { text, major }
}
