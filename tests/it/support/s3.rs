//! A server that speaks the protocol of S3 and checks signatures and checksums (the crate `s3s`), and that fails as it is told.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use s3s::auth::SimpleAuth;
use s3s::service::{S3Service, S3ServiceBuilder};
use s3s_fs::FileSystem;
use tempfile::TempDir;
use tokio::net::TcpListener;

use super::sweeper::sweeper;

pub(crate) const BUCKET: &str = "bucket";
pub(crate) const KEY: &str = "AKIDTEST";
pub(crate) const SECRET: &str = "test-secret-key";

/// A server with one bucket.
pub(crate) struct S3 {
    port: u16,
    served: Arc<Served>,
}

struct Served {
    /// Whether signatures are left aside.
    is_unsigned: bool,
    service: S3Service,
    /// The bucket is a directory in it.
    directory: TempDir,
    /// Decides of each request how it fails.
    fails: Mutex<Fails>,
    asked: Mutex<Vec<Asked>>,
}

type Fails = Box<dyn FnMut(&Asked) -> Option<Fault> + Send>;

/// A request.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub method: String,
    /// Name of the object; empty for a listing.
    pub name: String,
    /// Whether the request has a checksum of the object.
    pub has_checksum: bool,
}

/// The failure of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    /// An error with this status and code, as Amazon documents them ("Error responses").
    Answer(u16, &'static str),
    /// The connection is closed once half of the object was received.
    Half,
    /// The request is carried out, and the connection closed without an answer.
    Unacknowledged,
    /// There is no answer.
    Silent,
    /// The object is stored with a flipped bit, and acknowledged.
    Damaged,
}

impl S3 {
    pub(crate) async fn start() -> Self {
        Self::start_with(Some(SimpleAuth::from_single(KEY, SECRET))).await
    }

    /// Starts a server that asks for no signature, as the protocol of Google Cloud Storage ("XML API") is that of S3 but for it.
    pub(crate) async fn unsigned() -> Self {
        Self::start_with(None).await
    }

    async fn start_with(auth: Option<SimpleAuth>) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(directory.path().join(BUCKET)).expect("a bucket");
        let mut builder = S3ServiceBuilder::new(FileSystem::new(directory.path()).expect("a file system"));
        let is_unsigned = auth.is_none();
        if let Some(auth) = auth {
            builder.set_auth(auth);
        }
        let fails = Mutex::new(Box::new(|_: &Asked| None) as Fails);
        let served = Arc::new(Served { is_unsigned, service: builder.build(), directory, fails, asked: Mutex::default() });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        let of_tasks = served.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                connection.set_nodelay(true).expect("a connection");
                let served = of_tasks.clone();
                let answers = service_fn(move |request| serve(served.clone(), request));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(connection), answers));
            }
        });
        Self { port, served }
    }

    /// Lets requests fail.
    pub(crate) fn fail(&self, fails: impl FnMut(&Asked) -> Option<Fault> + Send + 'static) {
        *self.served.fails.lock() = Box::new(fails);
    }

    /// Returns the requests so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.served.asked.lock().clone()
    }

    /// Returns the directory that has the objects below a prefix.
    pub(crate) fn objects(&self, prefix: &str) -> PathBuf {
        self.served.directory.path().join(BUCKET).join(prefix)
    }

    /// Adds the environment that leads to the server.
    pub(crate) fn reach(&self, command: &mut Command) {
        for (name, value) in [
            ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.port).as_str()),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_REGION", "us-east-1"),
            ("AWS_ACCESS_KEY_ID", KEY),
            ("AWS_SECRET_ACCESS_KEY", SECRET),
            // None but those that a test writes.
            ("AWS_CONFIG_FILE", "/dev/null"),
            ("AWS_SHARED_CREDENTIALS_FILE", "/dev/null"),
        ] {
            command.env(name, value);
        }
    }

    /// Adds the environment of Google Cloud Storage that leads to the server.
    pub(crate) fn reach_as_google(&self, command: &mut Command) {
        // The key of an account as the library reads it for emulators.
        let key = serde_json::json!({
            "gcs_base_url": format!("http://127.0.0.1:{}", self.port),
            "disable_oauth": true,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        });
        command.env("GOOGLE_SERVICE_ACCOUNT_KEY", key.to_string()).env("GOOGLE_ALLOW_HTTP", "true");
    }

    /// Returns `sweeper` with arguments and the environment that leads to the server.
    pub(crate) fn sweeper(&self, args: &[&str]) -> Command {
        let mut command = sweeper(args);
        self.reach(&mut command);
        command
    }
}

/// Answers a request, or fails.
async fn serve(served: Arc<Served>, mut request: Request<Incoming>) -> Result<Response<s3s::Body>, std::io::Error> {
    let asked = Asked {
        method: request.method().to_string(),
        name: request.uri().path().trim_start_matches(&format!("/{BUCKET}")).trim_start_matches('/').to_owned(),
        has_checksum: ["x-amz-checksum-sha256", "content-md5"].iter().any(|name| request.headers().contains_key(*name)),
    };
    served.asked.lock().push(asked.clone());
    let fault = (served.fails.lock())(&asked);
    let closed = || std::io::Error::other("closed by the test");
    match fault {
        Some(Fault::Answer(status, code)) => return Ok(answer(status, code)),
        Some(Fault::Half) => {
            let mut body = request.into_body();
            let _ = body.frame().await;
            return Err(closed());
        }
        Some(Fault::Silent) => {
            tokio::time::sleep(Duration::from_secs(600)).await;
            return Err(closed());
        }
        _ => {}
    }
    if served.is_unsigned {
        request.headers_mut().remove("authorization");
    }
    let answered = served.service.call(request.map(s3s::Body::from)).await;
    let answered = answered.map_err(|cause| std::io::Error::other(format!("{cause:?}")))?;
    match fault {
        Some(Fault::Unacknowledged) => Err(closed()),
        Some(Fault::Damaged) => {
            let path = served.directory.path().join(BUCKET).join(asked.name);
            let mut bytes = fs::read(&path).expect("the object");
            if let Some(last) = bytes.last_mut() {
                *last ^= 1;
            }
            fs::write(&path, bytes).expect("the object");
            Ok(answered)
        }
        _ => Ok(answered),
    }
}

/// Returns an error of the service.
fn answer(status: u16, code: &str) -> Response<s3s::Body> {
    let text = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>Said by the test.</Message></Error>");
    let mut answer = Response::new(s3s::Body::from(text));
    *answer.status_mut() = StatusCode::from_u16(status).expect("a status");
    answer
}
