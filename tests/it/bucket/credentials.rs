//! Credentials of AWS from profiles and from the services that issue them, and errors that say what is wrong with them.

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use chrono::{DateTime, SecondsFormat, Utc};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use mongodb::bson::doc;
use serde_json::json;
use tempfile::TempDir;
use tokio::net::TcpListener;

use super::sweeps::rules;
use crate::support::archives::raw;
use crate::support::faults::{dated, days};
use crate::support::s3::{KEY, S3, SECRET};
use crate::support::site::assert_silent_about;
use crate::support::sweeper::{Case, Ran, id_set, run};

/// Services that hand out the credentials of the bucket: the Security Token Service, and that of containers. Sources: AWS STS API
/// Reference, "AssumeRole", "AssumeRoleWithWebIdentity"; Amazon ECS, "Task IAM role".
struct Issuer {
    address: String,
    /// Number of credentials handed out.
    issued: Arc<AtomicU32>,
}

impl Issuer {
    /// Starts services whose credentials end after a time.
    async fn start(ends_after: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = format!("http://{}", listener.local_addr().expect("an address"));
        let issued = Arc::new(AtomicU32::new(0));
        let of_tasks = issued.clone();
        tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let issued = of_tasks.clone();
                let answers = service_fn(move |request| answer(request, issued.clone(), ends_after));
                tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(connection), answers));
            }
        });
        Self { address, issued }
    }
}

/// Hands out credentials.
async fn answer(
    request: Request<Incoming>,
    issued: Arc<AtomicU32>,
    ends_after: Duration,
) -> Result<Response<String>, hyper::Error> {
    issued.fetch_add(1, Ordering::Relaxed);
    let end = DateTime::<Utc>::from(SystemTime::now() + ends_after).to_rfc3339_opts(SecondsFormat::Secs, true);
    if request.method() == "GET" {
        let keys = json!({"AccessKeyId": KEY, "SecretAccessKey": SECRET, "Token": "t", "Expiration": end});
        return Ok(Response::new(keys.to_string()));
    }
    let body = request.into_body().collect().await?.to_bytes();
    let body = String::from_utf8_lossy(&body);
    let action = body.split('&').find_map(|field| field.strip_prefix("Action=")).unwrap_or_default();
    Ok(Response::new(format!(
        "<{action}Response><{action}Result><Credentials><AccessKeyId>{KEY}</AccessKeyId><SecretAccessKey>{SECRET}</SecretAccessKey>\
         <SessionToken>t</SessionToken><Expiration>{end}</Expiration></Credentials></{action}Result></{action}Response>"
    )))
}

/// Returns a command whose environment has no credentials, and profiles in a directory.
fn without_keys(case: &Case, s3: &S3, profiles: &TempDir, config: &str) -> Command {
    let mut command = case.command(&rules(", batchSize: 10"), &["sweep", "-vv", "--format", "json"]);
    s3.reach(&mut command);
    for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"] {
        command.env_remove(name);
    }
    let path = profiles.path().join("config");
    fs::write(&path, config).unwrap();
    command.env("AWS_CONFIG_FILE", path).env("AWS_EC2_METADATA_DISABLED", "true").env("HOME", profiles.path());
    command
}

/// Asserts that a sweep failed before its first delete; returns its error.
async fn refused(case: &Case, ran: &Ran) -> String {
    let report: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap_or_else(|cause| panic!("{cause}: {ran:?}"));
    assert_eq!((ran.code, case.ids("c").await.len()), (Some(3), 30), "{ran:?}");
    report["rules"][0]["error"].as_str().unwrap_or_else(|| panic!("{ran:?}")).to_owned()
}

#[tokio::test]
async fn credentials_of_profiles_roles_and_containers_are_taken() {
    let (s3, issuer) = (S3::start().await, Issuer::start(Duration::from_secs(3600)).await);
    let keys = format!("aws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n");
    let process = json!({"Version": 1, "AccessKeyId": KEY, "SecretAccessKey": SECRET});
    let profiles = tempfile::tempdir().unwrap();
    let (token, answer) = (profiles.path().join("token"), profiles.path().join("answer.json"));
    fs::write(&token, "a-token").unwrap();
    fs::write(&answer, process.to_string()).unwrap();
    let role = "role_arn = arn:aws:iam::123456789012:role/ttl";
    let profile = ("AWS_PROFILE", "ttl");
    let cases = [
        ("default", format!("[default]\n{keys}"), vec![]),
        ("named", format!("[profile ttl]\n{keys}"), vec![profile]),
        ("process", format!("[profile ttl]\ncredential_process = cat {}\n", answer.display()), vec![profile]),
        (
            "role",
            format!("[profile ttl]\n{role}\nsource_profile = base\n[profile base]\n{keys}"),
            vec![profile, ("AWS_ENDPOINT_URL_STS", &issuer.address)],
        ),
        (
            "web identity",
            String::new(),
            vec![
                ("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/ttl"),
                ("AWS_WEB_IDENTITY_TOKEN_FILE", token.to_str().unwrap()),
                ("AWS_ENDPOINT_URL_STS", &issuer.address),
            ],
        ),
        ("container", String::new(), vec![("AWS_CONTAINER_CREDENTIALS_FULL_URI", &issuer.address)]),
    ];
    for (name, config, variables) in cases {
        let case = Case::new().await;
        case.fill("c", dated(0..30, days(-3)).chain([doc! { "_id": 99, "at": days(0) }])).await;
        let before = issuer.issued.load(Ordering::Relaxed);
        let mut command = without_keys(&case, &s3, &profiles, &config);
        command.envs(variables);
        let ran = run(command).await;
        assert_eq!((ran.code, case.ids("c").await), (Some(0), id_set([99])), "{name}: {ran:?}");
        assert_silent_about(&ran, &[SECRET, "a-token"]);
        let issued = issuer.issued.load(Ordering::Relaxed) - before;
        // One for the look before the run, and one for the archive.
        assert_eq!(issued, if ["role", "web identity", "container"].contains(&name) { 2 } else { 0 }, "{name}");
    }
}

#[tokio::test]
async fn credentials_are_asked_for_again_before_they_end() {
    let (case, s3, issuer) = (Case::new().await, S3::start().await, Issuer::start(Duration::from_secs(200)).await);
    case.fill("c", dated(0..30, days(-3))).await;
    let profiles = tempfile::tempdir().unwrap();
    let mut command = without_keys(&case, &s3, &profiles, "");
    command.env("AWS_CONTAINER_CREDENTIALS_FULL_URI", &issuer.address);
    let ran = run(command).await;
    assert_eq!((ran.code, case.ids("c").await.len()), (Some(0), 0), "{ran:?}");
    let (issued, asked) = (issuer.issued.load(Ordering::Relaxed), s3.asked().len());
    assert!(issued as usize >= asked && asked > 10, "{issued} for {asked} requests");
}

#[tokio::test]
async fn it_is_said_what_is_wrong_with_a_profile() {
    let (case, s3) = (Case::new().await, S3::start().await);
    case.fill("c", dated(0..30, days(-3))).await;
    let profiles = tempfile::tempdir().unwrap();
    for (config, why) in [
        ("", "neither the environment nor a profile has credentials, and this machine gives none"),
        ("[profile ttl]\naws_access_key_id = hidden-key\n", "profile missing aws_secret_access_key"),
        ("[profile ttl]\nrole_arn = arn:aws:iam::1:role/x\nsource_profile = nowhere\n", "could not find source profile nowhere"),
        ("[profile ttl]\ncredential_process = false\n", "external process exited with code"),
        ("[profile ttl]\ncredential_process = echo {hidden-key\n", "invalid JSON in response"),
        (
            "[profile ttl]\nsso_session = s\nsso_account_id = 1\nsso_role_name = r\n[sso-session s]\nsso_start_url = https://a\n\
             sso_region = us-east-1\n",
            "the profile signs in by IAM Identity Center, which sweeper cannot; `eval \"$(aws configure export-credentials",
        ),
        ("[profile ttl\n", "could not parse profile file"),
    ] {
        let mut command = without_keys(&case, &s3, &profiles, config);
        command.env("AWS_PROFILE", "ttl");
        let ran = run(command).await;
        let error = refused(&case, &ran).await;
        assert!(error.starts_with("`archive`: listing `s3://bucket/ttl`: ") && error.contains(why), "{error}");
        assert!(error.contains("nothing was deleted"), "{error}");
        assert_silent_about(&ran, &["hidden-key"]);
    }
}

#[tokio::test]
async fn credentials_are_never_taken_from_a_url() {
    let (case, s3) = (Case::new().await, S3::start().await);
    case.fill("c", dated(0..30, days(-3))).await;
    let before = raw(&case, "c").await;
    let mut command = case.command(&rules(""), &["sweep", "--format", "json"]);
    s3.reach(&mut command);
    command.env("AWS_SECRET_ACCESS_KEY", "wrong-secret");
    let ran = run(command).await;
    assert!(ran.stdout.contains("SignatureDoesNotMatch"), "{ran:?}");
    assert_silent_about(&ran, &["wrong-secret"]);
    let with_key = rules("").replace("s3://bucket", "s3://AKID:hidden-secret@bucket");
    let ran = run(case.command(&with_key, &["sweep"])).await;
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("credentials are taken from the environment only"), "{ran:?}");
    assert_silent_about(&ran, &["hidden-secret"]);
    for args in [&["archive", "list"][..], &["archive", "verify"], &["restore"]] {
        let ran = run(s3.sweeper(&[args, &["s3://AKID:hidden-secret@bucket/ttl"]].concat())).await;
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(ran.stderr.contains("credentials are taken from the environment only"), "{ran:?}");
        assert_silent_about(&ran, &["hidden-secret"]);
    }
    assert_eq!(raw(&case, "c").await, before);
}
