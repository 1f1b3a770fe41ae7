//! Object storage that archives are written to and read from: a bucket, or in tests one in memory that can fail.

#[cfg(feature = "bucket")]
mod aws;
#[cfg(feature = "bucket")]
mod remote;

use std::io;
use std::sync::Arc;

use bytes::Bytes;

use crate::core::policy::BucketUrl;

/// Object storage, as far as archives need it. An object is there as a whole or not at all. All functions block.
pub trait Objects: Send + Sync {
    /// Puts an object, and replaces the one that has its name.
    ///
    /// Errors: the store did not acknowledge it. It may be there nevertheless, or appear later.
    fn put(&self, name: &str, bytes: Bytes) -> io::Result<()>;

    /// Reads whole objects, several at the same time.
    fn get(&self, names: &[&str]) -> io::Result<Vec<Bytes>>;

    /// Reads a part of an object that is not empty.
    fn get_range(&self, name: &str, offset: u64, length: u64) -> io::Result<Bytes>;

    /// Returns the size of an object in bytes.
    fn size(&self, name: &str) -> io::Result<u64>;

    /// Returns the objects in a folder and in all folders inside, in the order of their names.
    fn list(&self, folder: &str) -> io::Result<Vec<ObjectEntry>>;

    /// Returns the names directly in a folder, in any order. The empty name is that of the folder with all objects.
    fn names(&self, folder: &str) -> io::Result<Vec<ObjectName>>;
}

/// An object in a listing.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectEntry {
    /// The whole name.
    pub name: String,
    /// In bytes.
    pub size: u64,
}

/// A name directly in a folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectName {
    /// Without the folder.
    pub name: String,
    /// Whether it is a folder, which has objects in it.
    pub is_folder: bool,
}

/// Returns the objects of a bucket. Nothing is contacted yet.
///
/// Errors: this build has no support for it.
#[cfg(feature = "bucket")]
pub(super) fn open(url: &BucketUrl) -> Result<Arc<dyn Objects>, String> {
    Ok(Arc::new(remote::RemoteObjects::new(url.clone())))
}

#[cfg(not(feature = "bucket"))]
pub(super) fn open(_: &BucketUrl) -> Result<Arc<dyn Objects>, String> {
    Err("this build of sweeper has no support for buckets (the cargo feature `bucket`)".into())
}
