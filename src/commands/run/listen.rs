//! `--listen`: answers HTTP requests about a process that stays: the metrics of the last run, and whether it is alive and ready.
//! Read-only.
//!
//! Alive is what the loop of the runs says of itself, not that a request is answered: both are tasks of their own, and one may
//! stall without the other.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use bson::DateTime;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::RwLock;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::base::failure::Failure;
use crate::base::progress::LastSample;
use crate::base::{exit, log};
use crate::core::report::metrics::{self, Earlier};

/// Maximum number of connections at a time. A further one ends the oldest, so that slow ones keep no probe waiting.
const MAX_CONNECTIONS: usize = 64;

/// Maximum time of a connection, from its beginning to the end of its only answer.
const MAX_TIME: Duration = Duration::from_secs(10);

/// Bytes that the head of a request may have; hyper takes no smaller limit.
const MAX_HEAD: usize = 8192;

/// Pause after a connection that could not be accepted, such as for lack of file descriptors.
const PAUSE: Duration = Duration::from_millis(200);

/// Interval at which the loop of the runs says that it moves.
const MOVES_EVERY: Duration = Duration::from_secs(1);

/// Time without such a word after which the process is no longer alive.
static MAX_STALL: LazyLock<Duration> = LazyLock::new(|| Duration::from_secs(stall_seconds()));

/// Returns the seconds of a stall: a minute or, in debug builds, a value set by a test that waits for one.
fn stall_seconds() -> u64 {
    #[cfg(debug_assertions)]
    if let Some(seconds) = std::env::var("SWEEPER_TEST_STALL_SECONDS").ok().and_then(|seconds| seconds.parse().ok()) {
        return seconds;
    }
    60
}

/// Type of Prometheus' text format.
const METRICS_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// The state of the process that is shown.
pub(crate) struct StatusPage {
    shown: RwLock<Shown>,
    /// The last sample of the run in progress.
    pub running: LastSample,
    /// The last time at which the loop of the runs said that it moves.
    moved: RwLock<Instant>,
}

struct Shown {
    /// The part of `/metrics` about the last run that has ended.
    metrics: Bytes,
    /// The reason why the process is not ready; `None` if it is.
    unready: Option<&'static str>,
}

impl StatusPage {
    /// Creates the page of a process whose first run has not ended. `earlier` holds the values of an earlier process.
    pub(crate) fn new(earlier: &Earlier) -> Self {
        let metrics = metrics::before_the_first_run(earlier).into();
        let shown = RwLock::new(Shown { metrics, unready: Some("no run has ended yet") });
        Self { shown, running: LastSample::default(), moved: RwLock::new(Instant::now()) }
    }

    /// Does the work of the loop of the runs, and says again and again that it moves. Work that holds its thread, such as a write
    /// that is not read, is silent.
    pub(crate) async fn moving<T>(&self, work: impl Future<Output = T>) -> T {
        tokio::select! {
            biased;
            done = work => done,
            never = self.say_that_it_moves() => match never {},
        }
    }

    async fn say_that_it_moves(&self) -> Infallible {
        loop {
            *self.moved.write() = Instant::now();
            tokio::time::sleep(MOVES_EVERY).await;
        }
    }

    /// Shows the metrics of a run that has ended.
    pub(crate) fn ended(&self, metrics: String, exit_code: u8) {
        let could_not_run = matches!(exit_code, exit::CANNOT_RUN | exit::USAGE);
        *self.shown.write() = Shown {
            metrics: metrics.into(),
            unready: could_not_run.then_some("the last run could not be carried out; the log says why"),
        };
    }

    /// Returns what is shown that the next run may have to take over.
    pub(crate) fn earlier(&self, now: DateTime) -> Earlier {
        let mut earlier = Earlier::default();
        String::from_utf8_lossy(&self.shown.read().metrics).lines().for_each(|line| earlier.take(line, now));
        earlier
    }

    /// Answers a request. `/healthz` says that the loop of the runs moves, `/readyz` whether its last run could be carried out.
    fn answer(&self, method: &Method, path: &str) -> (StatusCode, &'static str, Bytes) {
        const TEXT: &str = "text/plain; charset=utf-8";
        if !matches!(*method, Method::GET | Method::HEAD) {
            return (StatusCode::METHOD_NOT_ALLOWED, TEXT, "expected GET or HEAD\n".into());
        }
        let shown = self.shown.read();
        match (path, shown.unready) {
            ("/metrics", _) => {
                let running = metrics::in_progress(self.running.lock().as_ref());
                (StatusCode::OK, METRICS_TYPE, [shown.metrics.as_ref(), running.as_bytes()].concat().into())
            }
            ("/healthz", _) => match self.moved.read().elapsed() {
                still if still > *MAX_STALL => (
                    StatusCode::SERVICE_UNAVAILABLE,
                    TEXT,
                    format!("stalled: the runs have not moved for {} s\n", still.as_secs()).into(),
                ),
                _ => (StatusCode::OK, TEXT, "alive\n".into()),
            },
            ("/readyz", None) => (StatusCode::OK, TEXT, "ready\n".into()),
            ("/readyz", Some(why)) => (StatusCode::SERVICE_UNAVAILABLE, TEXT, format!("not ready: {why}\n").into()),
            _ => (StatusCode::NOT_FOUND, TEXT, "expected /metrics, /healthz or /readyz\n".into()),
        }
    }
}

/// Listens at an address, and answers until the process ends.
///
/// Errors: the address cannot be listened at.
pub(crate) async fn listen(address: SocketAddr, page: Arc<StatusPage>) -> Result<(), Failure> {
    let failed = |cause: std::io::Error| Failure::cannot_run(format!("--listen {address}: {cause}; nothing was contacted"));
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    // The port of the address may be 0, for any that is free.
    let address = listener.local_addr().map_err(failed)?;
    info!(target: log::PROGRESS, "listening at http://{address}");
    if !address.ip().to_canonical().is_loopback() {
        warn!(
            "--listen {address}: other machines may reach it, and see names of rules and namespaces, and counts; there is neither a password nor TLS"
        );
    }
    tokio::spawn(accept(listener, page));
    Ok(())
}

async fn accept(listener: TcpListener, page: Arc<StatusPage>) {
    let mut open: VecDeque<AbortHandle> = VecDeque::new();
    loop {
        let accepted = listener.accept().await;
        open.retain(|connection| !connection.is_finished());
        if (accepted.is_err() || open.len() == MAX_CONNECTIONS)
            && let Some(oldest) = open.pop_front()
        {
            oldest.abort();
        }
        match accepted {
            Ok((stream, _)) => {
                let page = page.clone();
                let answered = async move { tokio::time::timeout(MAX_TIME, serve(stream, &page)).await };
                open.push_back(tokio::spawn(answered).abort_handle());
            }
            Err(cause) => {
                debug!("--listen: accepting a connection: {cause}");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Answers one request and closes the connection.
async fn serve(stream: TcpStream, page: &StatusPage) {
    let answer = async |request: Request<Incoming>| Ok::<_, Infallible>(respond(page, request.method(), request.uri().path()));
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(MAX_TIME).keep_alive(false).max_buf_size(MAX_HEAD);
    if let Err(cause) = server.serve_connection(TokioIo::new(stream), service_fn(answer)).await {
        debug!("--listen: answering a request: {cause}");
    }
}

fn respond(page: &StatusPage, method: &Method, path: &str) -> Response<Full<Bytes>> {
    let (status, kind, body) = page.answer(method, path);
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_ready_once_a_run_was_carried_out_and_until_one_was_not() {
        let page = StatusPage::new(&Earlier::default());
        let of = |path: &str| page.answer(&Method::GET, path);
        assert_eq!((of("/healthz").0, of("/readyz").0), (StatusCode::OK, StatusCode::SERVICE_UNAVAILABLE));
        for (exit_code, status) in [
            (exit::DONE, StatusCode::OK),
            (exit::CANNOT_RUN, StatusCode::SERVICE_UNAVAILABLE),
            (exit::RULE_FAILED, StatusCode::OK),
            (exit::USAGE, StatusCode::SERVICE_UNAVAILABLE),
            (exit::LOCKED, StatusCode::OK),
        ] {
            page.ended("a 1\n".into(), exit_code);
            assert_eq!((of("/healthz").0, of("/readyz").0), (StatusCode::OK, status), "{exit_code}");
        }
        let (status, kind, text) = of("/metrics");
        assert_eq!((status, kind), (StatusCode::OK, METRICS_TYPE));
        assert!(text.starts_with(b"a 1\n") && text.ends_with(b"sweeper_run_in_progress 0\n"), "{text:?}");
        assert_eq!(of("/").0, StatusCode::NOT_FOUND);
        assert_eq!(page.answer(&Method::POST, "/metrics").0, StatusCode::METHOD_NOT_ALLOWED);
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_is_alive_while_its_runs_move_and_no_longer() {
        let page = StatusPage::new(&Earlier::default());
        let status = || page.answer(&Method::GET, "/healthz").0;
        page.moving(tokio::time::sleep(*MAX_STALL * 10)).await;
        assert_eq!(status(), StatusCode::OK);
        tokio::time::advance(*MAX_STALL + MOVES_EVERY).await;
        assert_eq!(status(), StatusCode::SERVICE_UNAVAILABLE);
        page.moving(tokio::time::sleep(MOVES_EVERY)).await;
        assert_eq!(status(), StatusCode::OK);
    }

    #[test]
    fn the_last_success_and_the_states_of_an_earlier_process_are_kept() {
        let now = DateTime::from_millis(9_000_000);
        let mut earlier = Earlier::default();
        assert_eq!(StatusPage::new(&earlier).earlier(now), earlier);
        for line in
            ["sweeper_last_success_timestamp_seconds 7", "# TYPE sweeper_rule_status gauge", "sweeper_rule_status{rule=\"a\"} 1"]
        {
            earlier.take(line, now);
        }
        assert_eq!((StatusPage::new(&earlier).earlier(now), earlier.last_success), (earlier.clone(), Some(7.0)));
        for line in
            ["sweeper_deleted_documents{rule=\"a\"} 1", "sweeper_rule_status{rule=\"a\"", "sweeper_rule_status{rule=\"b\"} "]
        {
            earlier.take(line, now);
        }
        assert_eq!(StatusPage::new(&earlier).earlier(now), earlier);
    }
}
