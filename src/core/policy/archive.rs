//! The archive of a rule: its place, a directory or a bucket, and its compression.

use std::fmt;
use std::path::{Path, PathBuf};

/// Place and format in which a rule writes out the documents that it deletes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveTo {
    pub place: ArchivePlace,
    pub compression: Compression,
}

/// The place of archives, in which each run creates a directory of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum ArchivePlace {
    /// An existing directory. A relative path is relative to the working directory.
    Directory(PathBuf),
    Bucket(BucketUrl),
}

impl ArchivePlace {
    /// Returns the path that the paths of archives begin with; for a bucket it is its URL.
    pub fn path(&self) -> PathBuf {
        match self {
            Self::Directory(path) => path.clone(),
            Self::Bucket(url) => PathBuf::from(url.to_string()),
        }
    }
}

/// The URL of a place in object storage, without credentials.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct BucketUrl {
    pub service: StorageService,
    /// Name of the bucket, or of the container.
    pub bucket: String,
    /// Beginning of the names of all objects, without a slash at its end; may be empty.
    pub prefix: String,
}

/// A service for object storage, by its protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum StorageService {
    S3,
    AzureBlob,
    GoogleCloudStorage,
}

impl StorageService {
    const ALL: [Self; 3] = [Self::S3, Self::AzureBlob, Self::GoogleCloudStorage];

    /// Returns the scheme of its URLs.
    fn scheme(self) -> &'static str {
        match self {
            Self::S3 => "s3",
            Self::AzureBlob => "az",
            Self::GoogleCloudStorage => "gs",
        }
    }
}

/// URLs that are accepted.
const EXPECTED: &str = "expected `s3://BUCKET/PREFIX`, `az://CONTAINER/PREFIX` or `gs://BUCKET/PREFIX`";

impl BucketUrl {
    /// Parses a URL.
    ///
    /// Errors: it is not one of a bucket, or has more in it. The message does not repeat the text, which may hold credentials.
    pub fn parse(text: &str) -> Result<Self, String> {
        let expected = |found: &str| format!("{found}; {EXPECTED}");
        let (scheme, rest) = text.split_once("://").ok_or_else(|| expected("found no URL"))?;
        let service = StorageService::ALL.into_iter().find(|service| service.scheme() == scheme);
        let service = service.ok_or_else(|| expected("found the URL of something else"))?;
        if rest.contains(['@', '?', '#']) {
            let why = "found credentials or parameters in the URL; credentials are taken from the environment only";
            return Err(format!("{why}, and {EXPECTED}"));
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if bucket.is_empty() || bucket.starts_with('.') || !bucket.bytes().all(is_of_name) {
            return Err(expected("found no name of a bucket"));
        }
        let is_plain = |part: &str| !["", ".", ".."].contains(&part) && !part.contains(char::is_control);
        let whole = prefix.strip_suffix('/').unwrap_or(prefix);
        if !prefix.is_empty() && !whole.split('/').all(is_plain) {
            return Err(expected("found a prefix with an empty part, `.`, `..` or a control character"));
        }
        Ok(Self { service, bucket: bucket.to_owned(), prefix: whole.to_owned() })
    }

    /// Returns the URL that a path is, if it is one: paths of archives in a bucket begin with its URL.
    ///
    /// Errors: as for [`BucketUrl::parse`].
    pub fn of(path: &Path) -> Option<Result<Self, String>> {
        path.to_str().filter(|text| text.contains("://")).map(Self::parse)
    }
}

impl fmt::Display for BucketUrl {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let slash = if self.prefix.is_empty() { "" } else { "/" };
        write!(f, "{}://{}{slash}{}", self.service.scheme(), self.bucket, self.prefix)
    }
}

/// Compression of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    Zstd,
    /// The compression that `mongorestore --gzip` reads.
    Gzip,
}

impl Compression {
    /// Returns the name of the compression in the policy and in the archive's own records.
    pub fn name(self) -> &'static str {
        match self {
            Compression::Zstd => "zstd",
            Compression::Gzip => "gzip",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_bucket_and_a_prefix() {
        for (text, service, bucket, prefix, shown) in [
            ("s3://b", StorageService::S3, "b", "", "s3://b"),
            ("s3://my.bucket-1/a/b c/", StorageService::S3, "my.bucket-1", "a/b c", "s3://my.bucket-1/a/b c"),
            ("az://c/ttl", StorageService::AzureBlob, "c", "ttl", "az://c/ttl"),
            ("gs://b_1/é%20", StorageService::GoogleCloudStorage, "b_1", "é%20", "gs://b_1/é%20"),
        ] {
            let url = BucketUrl::parse(text).unwrap();
            assert_eq!((url.service, url.bucket.as_str(), url.prefix.as_str()), (service, bucket, prefix));
            assert_eq!(url.to_string(), shown);
            assert_eq!(BucketUrl::of(&ArchivePlace::Bucket(url.clone()).path()), Some(Ok(url)));
        }
        assert_eq!(BucketUrl::of(Path::new("/a/s3:/b")), None);
    }

    #[test]
    fn a_url_with_anything_else_is_refused_and_not_repeated() {
        for text in [
            "",
            "/backups",
            "https://b.s3.amazonaws.com/a",
            "S3://b/a",
            "s3://",
            "s3:///a",
            "s3://../a",
            "s3://secret:key@b/a",
            "s3://b/a?secret=1",
            "s3://b/a#secret",
            "s3://b:9000/a",
            "s3://b/a//c",
            "s3://b//",
            "s3://b/../a",
            "s3://b/./a",
            "s3://b/a\nc",
        ] {
            let why = BucketUrl::parse(text).unwrap_err();
            assert!(why.contains(EXPECTED) && !why.contains("secret"), "{text:?}: {why}");
        }
    }
}
