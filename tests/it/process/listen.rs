//! `--listen`: metrics and state over HTTP, asked for by `curl`.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command};
use std::time::Duration;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

use crate::support::exposition::Scrape;
use crate::support::faults::{alone, dated, days, end, signal, start};
use crate::support::said::Said;
use crate::support::sweeper::{Case, id_set, run};

const RULE: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d}\n";

/// A process that listens.
struct Listening {
    child: Child,
    said: Said,
    url: String,
}

impl Listening {
    /// Starts a process that sweeps every second and listens at a free port.
    async fn start(case: &Case) -> Self {
        Self::start_with(case, &[]).await
    }

    async fn start_with(case: &Case, more: &[&str]) -> Self {
        Self::start_by(case, RULE, more).await
    }

    async fn start_by(case: &Case, rule: &str, more: &[&str]) -> Self {
        let mut child = start(case.command(rule, &[&["sweep", "--every", "1s", "--listen", "127.0.0.1:0"], more].concat()));
        let said = Said::by(&mut child);
        said.until("info: listening at http://127.0.0.1:").await;
        let lines = said.lines();
        let url = lines.iter().find_map(|line| line.split_once("listening at ")).expect("the address").1.to_owned();
        Self { child, said, url }
    }

    /// Returns status, type and body of an answer.
    async fn get(&self, path: &str, more: &[&str]) -> (u16, String, String) {
        let mut curl = Command::new("curl");
        curl.args([
            "--silent",
            "--show-error",
            "--max-time",
            "60",
            "--noproxy",
            "*",
            "--write-out",
            "\n%{http_code} %{content_type}",
        ]);
        curl.args(more).arg(format!("{}{path}", self.url));
        let ran = run(curl).await;
        assert_eq!(ran.code, Some(0), "the command curl is installed, and gets an answer: {ran:?}");
        let (body, last) = ran.stdout.rsplit_once('\n').expect("the last line is curl's");
        let (status, kind) = last.split_once(' ').expect("status and type");
        (status.parse().expect("a status"), kind.to_owned(), body.to_owned())
    }

    async fn until(&self, path: &str, status: u16) {
        for _ in 0..3000 {
            if self.get(path, &[]).await.0 == status {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("{path} is not {status}");
    }
}

#[tokio::test]
async fn a_process_that_stays_shows_its_metrics_and_whether_it_is_alive_and_ready() {
    let (mut mongod, mut case) = alone().await;
    case.uri = format!("{}&serverSelectionTimeoutMS=300", case.uri);
    case.fill("c", dated(0..5, days(-3)).chain(dated(5..7, days(3)))).await;
    let listening = Listening::start(&case).await;
    listening.until("/readyz", 200).await;
    let (status, kind, body) = listening.get("/metrics", &[]).await;
    assert_eq!((status, kind.as_str()), (200, "text/plain; version=0.0.4; charset=utf-8"));
    let scrape = Scrape::read(&body);
    assert_eq!((scrape.run("last_run_success"), scrape.run("last_run_exit_code")), (Some(1.0), Some(0.0)), "{body}");
    assert_eq!(scrape.rules("expired_documents_remaining").into_values().collect::<Vec<_>>(), [0.0], "{body}");
    assert!(scrape.run("last_success_timestamp_seconds").is_some(), "{body}");
    assert_eq!(case.ids("c").await, id_set(5..7));

    for (path, more, status) in [
        ("/healthz", &[][..], 200),
        ("/healthz", &["--head"], 200),
        ("/", &[], 404),
        ("/metrics/x", &[], 404),
        ("/metrics", &["--data", "x"], 405),
    ] {
        assert_eq!(listening.get(path, more).await.0, status, "{path} {more:?}");
    }
    // Neither a client that says nothing nor one that speaks another language keeps others from an answer.
    let address = listening.url.trim_start_matches("http://").to_owned();
    let silent: Vec<TcpStream> = (0..5).map(|_| TcpStream::connect(&address).expect("a connection")).collect();
    TcpStream::connect(&address).expect("a connection").write_all(b"\0\xff\r\n\r\nno HTTP").expect("bytes");
    assert_eq!(listening.get("/healthz", &[]).await.0, 200);
    drop(silent);

    mongod.kill();
    listening.until("/readyz", 503).await;
    assert!(listening.get("/readyz", &[]).await.2.starts_with("not ready: the last run could not be carried out"));
    assert_eq!(listening.get("/healthz", &[]).await.0, 200);
    let scrape = Scrape::read(&listening.get("/metrics", &[]).await.2);
    assert_eq!((scrape.run("last_run_success"), scrape.run("last_run_exit_code")), (Some(0.0), Some(1.0)));
    assert!(scrape.run("last_success_timestamp_seconds").is_some(), "that of an earlier run");
    mongod.restart();
    listening.until("/readyz", 200).await;
    signal(&listening.child, "TERM");
    assert_eq!(end(listening.child).await.code, Some(143));
    drop(listening.said);
}

#[tokio::test]
async fn a_run_in_progress_is_shown_with_what_it_waits_for_until_it_ends() {
    let case = Case::new().await;
    case.fill("c", dated(0..360, days(-3))).await;
    let rule = "  - {namespace: DB.c, field: at, expireAfter: 1d, maxDeletePercent: 100}\n";
    let pause = case.file("pause", "");
    let listening = Listening::start_by(&case, rule, &["--pause-file", pause.to_str().unwrap()]).await;
    let waits = format!("sweeper_run_waiting{{namespace=\"{}.c\",reason=\"pauseFile\"}} 1\n", case.db.name());
    let begun = std::time::Instant::now();
    let mut body = String::new();
    // A sample is taken every ten seconds.
    while !body.contains(&waits) {
        assert!(begun.elapsed() < Duration::from_secs(60), "{body}");
        tokio::time::sleep(Duration::from_millis(300)).await;
        body = listening.get("/metrics", &[]).await.2;
    }
    let scrape = Scrape::read(&body);
    let numbers = ["in_progress", "expected_documents", "deleted_documents", "deleted_documents_per_second", "remaining_seconds"];
    let numbers = numbers.map(|name| scrape.run(&format!("run_{name}")));
    assert_eq!(numbers, [Some(1.0), Some(360.0), Some(0.0), Some(0.0), None], "{body}");

    std::fs::remove_file(pause).unwrap();
    listening.until("/readyz", 200).await;
    let body = listening.get("/metrics", &[]).await.2;
    assert!(!body.contains("sweeper_run_waiting") && body.contains("sweeper_run_in_progress "), "{body}");
    assert_eq!(Scrape::read(&body).rules("deleted_documents").len(), 1, "{body}");
    assert_eq!(case.ids("c").await, id_set::<i32>([]));
    signal(&listening.child, "TERM");
    assert_eq!(end(listening.child).await.code, Some(143));
    drop(listening.said);
}

/// Opens slow connections: every second one sends the first byte of a request.
fn slow(address: &str, count: usize) -> Vec<TcpStream> {
    let connect = |number: usize| {
        let mut stream = TcpStream::connect(address).expect("a connection");
        stream.write_all(&b"G"[..number % 2]).expect("a byte");
        stream
    };
    (0..count).map(connect).collect()
}

#[tokio::test]
async fn a_probe_is_answered_under_a_thousand_slow_connections_of_which_few_stay_open() {
    let case = Case::new().await;
    let listening = Listening::start(&case).await;
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).expect("as many descriptors as the test may have");
    let address = listening.url.trim_start_matches("http://").to_owned();
    let mut streams = slow(&address, 1000);
    for path in ["/healthz", "/metrics"] {
        assert_eq!(listening.get(path, &[]).await.0, 200, "{path}: before the slow connections have ended by themselves");
        streams.extend(slow(&address, 10));
    }
    // The memory for them is bounded: the oldest were ended. Each read waits until that is so.
    for stream in &mut streams[..900] {
        let ended = stream.read(&mut [0; 1]);
        assert!(
            matches!(&ended, Ok(0)) || ended.as_ref().is_err_and(|cause| cause.kind() == ErrorKind::ConnectionReset),
            "{ended:?}"
        );
    }
    signal(&listening.child, "TERM");
    assert_eq!(end(listening.child).await.code, Some(143));
    assert!(!listening.said.into_text().contains("other machines may reach it"));
}

#[tokio::test]
async fn an_address_that_others_may_reach_is_said_once() {
    let case = Case::new().await;
    let mut child = start(case.command(RULE, &["sweep", "--every", "1s", "--listen", "0.0.0.0:0"]));
    let said = Said::by(&mut child);
    said.until("warning: --listen 0.0.0.0:").await;
    said.until_times("the next run begins at", 2).await;
    signal(&child, "TERM");
    assert_eq!(end(child).await.code, Some(143));
    assert_eq!(said.into_text().matches("other machines may reach it").count(), 1);
}

#[tokio::test]
async fn an_address_that_is_taken_ends_the_process_before_it_contacts_anything() {
    let case = Case::new().await;
    case.fill("c", dated(0..3, days(-3))).await;
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = taken.local_addr().expect("an address").to_string();
    let ran = case.run(RULE, &["sweep", "--every", "1h", "--listen", &address]).await;
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{ran:?}");
    assert!(ran.stderr.contains(&format!("--listen {address}: ")) && ran.stderr.contains("nothing was contacted"), "{ran:?}");
    for args in [&["sweep", "--listen", "9216"][..], &["sweep", "--every", "1h", "--listen", ":9216"]] {
        assert_eq!(case.run(RULE, args).await.code, Some(2), "{args:?}");
    }
    assert_eq!(case.ids("c").await, id_set(0..3));
}

#[tokio::test]
async fn each_run_that_went_well_is_one_line_of_the_log() {
    let case = Case::new().await;
    case.fill("c", dated(0..3, days(-3))).await;
    let report = case.dir.path().join("report.json");
    let mut command = case.command(RULE, &["sweep", "--every", "1s"]);
    command.arg("-o").arg(&report);
    let mut child = start(command);
    let said = Said::by(&mut child);
    said.until("info: complete: deleted 3 documents by 1 rule").await;
    said.until("info: complete: deleted 0 documents by 1 rule").await;
    signal(&child, "TERM");
    assert_eq!(end(child).await.code, Some(143));
    let text = said.into_text();
    assert_eq!(text.matches("deleted 3 documents").count(), 1, "{text}");
    let of_runs = text.lines().filter(|line| line.contains("; the next run begins at ")).count();
    assert_eq!(of_runs, text.matches("complete: ").count(), "{text}");
}

#[tokio::test]
async fn the_health_check_of_the_image_says_what_healthz_says() {
    let dockerfile = include_str!("../../../packaging/Dockerfile");
    let line = dockerfile.lines().find(|line| line.starts_with("HEALTHCHECK")).expect("a health check");
    let check: Vec<String> = serde_json::from_str(&line[line.find("[\"").unwrap()..]).unwrap();
    assert!(check[2].contains("/9216 "), "{check:?}");
    let asked = async |port: &str| {
        let mut command = Command::new(&check[0]);
        command.args([&check[1], &check[2].replace("9216", port)]);
        run(command).await.code
    };
    let case = Case::new().await;
    let listening = Listening::start(&case).await;
    let (_, port) = listening.url.rsplit_once(':').unwrap();
    assert_eq!(asked(port).await, Some(0));
    let port = port.to_owned();
    signal(&listening.child, "TERM");
    end(listening.child).await;
    assert_eq!(asked(&port).await, Some(0), "a run that does not listen");

    let stuck = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = stuck.local_addr().unwrap().port().to_string();
    let answers = std::thread::spawn(move || {
        let (mut asks, _) = stuck.accept().unwrap();
        let _ = asks.read(&mut [0; 100]).unwrap();
        asks.write_all(b"HTTP/1.0 503 Service Unavailable\r\n\r\n").unwrap();
    });
    assert_eq!(asked(&port).await, Some(1));
    answers.join().unwrap();
}

#[tokio::test]
async fn a_run_that_cannot_even_begin_is_a_run_that_failed() {
    let case = Case::new().await;
    case.fill("c", dated(0..3, days(-3))).await;
    let place = case.dir.path().join("metrics");
    std::fs::create_dir(&place).unwrap();
    let file = place.join("a.prom");
    let listening = Listening::start_with(&case, &["--metrics-file", file.to_str().unwrap()]).await;
    listening.until("/readyz", 200).await;
    std::fs::remove_dir_all(&place).unwrap();
    listening.until("/readyz", 503).await;
    case.fill("c", dated(3..6, days(-3))).await;
    listening.said.until("creating the metrics file").await;
    // The directory may have gone while a run was going on, which then could not write there.
    listening.said.until_times("nothing was deleted", 2).await;
    let scrape = Scrape::read(&listening.get("/metrics", &[]).await.2);
    assert_eq!((scrape.run("last_run_success"), scrape.run("last_run_exit_code")), (Some(0.0), Some(1.0)));
    assert!(scrape.run("last_success_timestamp_seconds").is_some(), "that of an earlier run");
    std::fs::create_dir(&place).unwrap();
    listening.until("/readyz", 200).await;
    let scrape = Scrape::read(&std::fs::read_to_string(&file).unwrap());
    assert_eq!((scrape.run("last_run_success"), scrape.run("last_run_exit_code")), (Some(1.0), Some(0.0)));
    assert_eq!(case.ids("c").await, id_set::<i32>([]));
    signal(&listening.child, "TERM");
    assert_eq!(end(listening.child).await.code, Some(143));
}
