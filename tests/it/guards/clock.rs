//! The guard against clock skew, with a real process whose clock is wrong.

use crate::support::server::{Server, on_servers};
use crate::support::shim::Shim;
use crate::support::sweeper::{Case, Report, id_set, run};
use mongodb::bson::{DateTime, doc};

async fn a_client_whose_clock_is_wrong_deletes_nothing_unless_told_and_then_by_the_clock_of_the_server(server: &Server) {
    let case = server.case().await;
    let shim = Shim::clock(&case);
    let now = DateTime::now().timestamp_millis();
    let at = |id: i32, seconds: i64| doc! { "_id": id, "at": DateTime::from_millis(now + seconds * 1000) };
    // By the clock of the client, ten minutes ahead, the second one would have expired too.
    case.fill("c", [at(0, -10), at(1, 300), at(2, 900)]).await;
    let rules = "  - {namespace: DB.c, field: at, expireAfterSeconds: 0}\n";
    for (shift, args, code, left) in [
        ("600", &["--dry-run"][..], 0, 0..3),
        ("600", &[], 5, 0..3),
        ("-600", &[], 5, 0..3),
        ("200", &[], 0, 1..3),
        ("600", &["--allow-clock-skew"], 0, 1..3),
    ] {
        let mut command = case.command(rules, &[&["sweep", "--format", "json"], args].concat());
        shim.shift(&mut command, shift);
        let ran = run(command).await;
        let report = Report { json: serde_json::from_str(&ran.stdout).unwrap(), ran };
        assert_eq!(report.ran.code, Some(code), "{report:?}");
        if left.start == 0 {
            assert_eq!(report.rule(0, "reason"), "clock", "{report:?}");
            let error = report.rule(0, "error").as_str().unwrap();
            assert!(error.contains("--allow-clock-skew") && error.contains(" s apart"), "{error}");
        }
        assert_eq!(case.ids("c").await, id_set(left), "{shift} {args:?}");
    }
}

on_servers!(a_client_whose_clock_is_wrong_deletes_nothing_unless_told_and_then_by_the_clock_of_the_server);

#[tokio::test]
async fn a_clock_that_the_driver_cannot_work_with_is_an_error_before_anything_is_contacted() {
    let case = Case::new().await;
    let shim = Shim::clock(&case);
    case.fill("c", [doc! { "_id": 1, "at": DateTime::from_millis(0) }]).await;
    for shift in ["-3000000000", "3000000000"] {
        let mut command = case.command("  - {namespace: DB.c, field: at, expireAfter: 1d}\n", &["sweep"]);
        shim.shift(&mut command, shift);
        let ran = run(command).await;
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stderr.contains("expected a time from 1970 to 2106, as ObjectIds have; nothing was contacted"), "{ran:?}");
        assert_eq!(case.ids("c").await, id_set([1]));
    }
}
