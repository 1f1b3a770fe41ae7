//! A bucket of S3, Azure Blob Storage or Google Cloud Storage.

use std::error::Error;
use std::io::{self, ErrorKind};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, TryStreamExt, stream};
use object_store::aws::Checksum;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::path::Path;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt, RetryConfig};
use tokio::runtime::Handle;
use tokio::sync::OnceCell;

use super::{ObjectEntry, ObjectName, Objects, aws};
use crate::core::policy::{BucketUrl, StorageService};

/// Number of objects that are read at the same time.
const AT_ONCE: usize = 16;

/// Time within which a request that failed is sent again.
const MAX_RETRY_TIME: Duration = Duration::from_secs(60);

/// A bucket, as its service's interface over HTTP shows it.
pub(super) struct RemoteObjects {
    bucket: Arc<Bucket>,
    runtime: Handle,
}

struct Bucket {
    url: BucketUrl,
    /// Made by the first request.
    store: OnceCell<Arc<dyn ObjectStore>>,
}

impl RemoteObjects {
    /// Returns a bucket. Its credentials come from the environment, under the names that the tools of the service use.
    pub(super) fn new(url: BucketUrl) -> Self {
        Self { bucket: Arc::new(Bucket { url, store: OnceCell::new() }), runtime: Handle::current() }
    }

    /// Sends a request to the store, and waits for its end.
    fn ask<T, F>(&self, request: impl FnOnce(Arc<dyn ObjectStore>) -> F + Send + 'static) -> io::Result<T>
    where
        T: Send + 'static,
        F: Future<Output = object_store::Result<T>> + Send + 'static,
    {
        let bucket = self.bucket.clone();
        let (sender, answer) = mpsc::sync_channel(1);
        // A request of its own thread would find the runtime gone when the process ends.
        self.runtime.spawn(async move {
            let answer = match bucket.store.get_or_try_init(|| store(&bucket.url)).await {
                Ok(store) => request(store.clone()).await,
                Err(cause) => Err(cause),
            };
            sender.send(answer)
        });
        let answer = answer.recv().map_err(|_| io::Error::other("the process ended before the store answered"))?;
        answer.map_err(|cause| {
            let kind = match cause {
                object_store::Error::NotFound { .. } if !has_no_bucket(&deepest(&cause)) => ErrorKind::NotFound,
                _ => ErrorKind::Other,
            };
            io::Error::new(kind, why(&cause))
        })
    }
}

/// Returns a store.
///
/// Errors: the environment lacks something, or has something that is not understood.
async fn store(url: &BucketUrl) -> object_store::Result<Arc<dyn ObjectStore>> {
    // The library of TLS asks for one implementation of cryptography for all; the driver's is taken, unless there is one.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let retry = RetryConfig { retry_timeout: MAX_RETRY_TIME, ..RetryConfig::default() };
    match url.service {
        StorageService::S3 => aws::builder()
            .await
            .with_bucket_name(&url.bucket)
            // The service compares it, and a bucket with object lock takes no object without one (arrow-rs#3725).
            .with_checksum_algorithm(Checksum::SHA256)
            .with_retry(retry)
            .build()
            .map(|store| Arc::new(store) as _),
        StorageService::AzureBlob => MicrosoftAzureBuilder::from_env()
            .with_container_name(&url.bucket)
            .with_retry(retry)
            .build()
            .map(|store| Arc::new(store) as _),
        StorageService::GoogleCloudStorage => GoogleCloudStorageBuilder::from_env()
            .with_bucket_name(&url.bucket)
            .with_retry(retry)
            .build()
            .map(|store| Arc::new(store) as _),
    }
}

impl Objects for RemoteObjects {
    fn put(&self, name: &str, bytes: Bytes) -> io::Result<()> {
        let name = path(name)?;
        self.ask(move |store| async move { store.put(&name, bytes.into()).await }).map(drop)
    }

    fn get(&self, names: &[&str]) -> io::Result<Vec<Bytes>> {
        let names: Vec<Path> = names.iter().map(|name| path(name)).collect::<io::Result<_>>()?;
        self.ask(move |store| {
            let got = names.into_iter().map(move |name| {
                let store = store.clone();
                async move { store.get(&name).await?.bytes().await }
            });
            stream::iter(got).buffered(AT_ONCE).try_collect()
        })
    }

    fn get_range(&self, name: &str, offset: u64, length: u64) -> io::Result<Bytes> {
        let name = path(name)?;
        self.ask(move |store| async move { store.get_range(&name, offset..offset + length).await })
    }

    fn size(&self, name: &str) -> io::Result<u64> {
        let name = path(name)?;
        Ok(self.ask(move |store| async move { store.head(&name).await })?.size)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<ObjectEntry>> {
        let folder = path(folder)?;
        let objects: Vec<ObjectMeta> = self.ask(move |store| store.list(Some(&folder)).try_collect())?;
        let entry = |object: ObjectMeta| ObjectEntry { name: object.location.into(), size: object.size };
        let mut entries: Vec<ObjectEntry> = objects.into_iter().map(entry).collect();
        entries.sort();
        Ok(entries)
    }

    fn names(&self, folder: &str) -> io::Result<Vec<ObjectName>> {
        let folder = path(folder)?;
        let listed = self.ask(move |store| async move { store.list_with_delimiter(Some(&folder)).await })?;
        let folders = listed.common_prefixes.iter().map(|path| (path, true));
        let all = folders.chain(listed.objects.iter().map(|object| (&object.location, false)));
        let name = |(path, is_folder): (&Path, bool)| Some(ObjectName { name: path.filename()?.to_owned(), is_folder });
        Ok(all.filter_map(name).collect())
    }
}

/// Returns the path of an object or a folder, without changing a character.
fn path(name: &str) -> io::Result<Path> {
    Path::parse(name).map_err(|cause| io::Error::other(format!("no object can have this name: {cause}")))
}

/// Whether a request for the credentials of the machine failed, which is sent where the environment has none.
fn asks_the_machine(text: &str) -> bool {
    ["http://169.254.169.254", "http://metadata"].iter().any(|address| text.contains(address))
}

/// Whether a store says that it has no bucket of the name.
///
/// Source: Amazon S3, "Error responses"; Azure, "Blob Storage error codes"; Google, "HTTP status and error codes for XML".
fn has_no_bucket(text: &str) -> bool {
    ["NoSuchBucket", "ContainerNotFound"].iter().any(|code| text.contains(code))
}

/// Whether a store says that the credentials do not suffice, which the library does not tell of a listing. Sources: the same.
fn is_denied(text: &str) -> bool {
    ["<Code>AccessDenied<", "<Code>AuthorizationPermissionMismatch<", "<Code>AuthorizationFailure<"]
        .iter()
        .any(|code| text.contains(code))
}

/// Returns an error in words.
fn why(cause: &object_store::Error) -> String {
    use object_store::Error as E;
    let text = deepest(cause);
    let said = said(&text);
    match cause {
        _ if asks_the_machine(&cause.to_string()) => {
            format!("the environment has no credentials, and this machine gives none ({said})")
        }
        _ if has_no_bucket(&text) => format!("the bucket does not exist ({said})"),
        E::NotFound { .. } => format!("the store has no such object ({said})"),
        E::Unauthenticated { .. } => format!("the store does not accept the credentials of the environment ({said})"),
        _ if is_denied(&text) || matches!(cause, E::PermissionDenied { .. }) => {
            format!(
                "the store does not allow it ({said}); the credentials need to list, read and write the objects below the prefix"
            )
        }
        _ => said,
    }
}

/// Returns the text of the cause of an error that has no other cause.
fn deepest(cause: &object_store::Error) -> String {
    let mut cause: &dyn Error = cause;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

/// Returns what a store said: code and message of an answer in XML, or its text in one line. Without the parameters of URLs,
/// which may be signatures.
fn said(text: &str) -> String {
    let element = |name: &str| {
        let (_, rest) = text.split_once(&format!("<{name}>"))?;
        Some(rest.split_once(&format!("</{name}>"))?.0.split_whitespace().collect::<Vec<_>>().join(" "))
    };
    let Some(code) = element("Code") else {
        let words = text.split_whitespace().map(|word| match word.split_once('?') {
            Some((url, _)) if url.contains("://") => url,
            _ => word,
        });
        return words.collect::<Vec<_>>().join(" ");
    };
    match element("Message") {
        Some(message) => format!("{code}: {}", message.trim_end_matches('.')),
        None => code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_said_where_there_are_no_credentials() {
        let source = "Error performing GET http://169.254.169.254/metadata/identity/oauth2/token in 3 s - timed out".into();
        let cause = object_store::Error::Generic { store: "MicrosoftAzure", source };
        assert!(why(&cause).starts_with("the environment has no credentials, and this machine gives none ("), "{}", why(&cause));
    }

    #[test]
    fn an_answer_is_said_by_its_code_and_message_and_without_signatures() {
        let xml = "<?xml version=\"1.0\"?>\n<Error><Code>SlowDown</Code><Message>Please reduce\n your rate.</Message></Error>";
        assert_eq!(said(xml), "SlowDown: Please reduce your rate");
        assert_eq!(said("<Error><Code>Busy</Code></Error>"), "Busy");
        assert_eq!(said("error for url (https://a/b?sig=secret) in\n2 s"), "error for url (https://a/b in 2 s");
        assert_eq!(said("what? nothing"), "what? nothing");
    }
}
