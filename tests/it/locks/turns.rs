//! Two services that share a lock take turns: to the one that comes second, that is no error.

use std::path::PathBuf;
use std::process::Child;

use crate::support::faults::{dated, days, end, signal, start, until_deleted_from};
use crate::support::said::Said;
use crate::support::sweeper::{Case, run};

const RULES: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d}\n  - {namespace: DB.d, field: at, expireAfter: 1d}\n";

/// Starts a service that writes its reports to a file.
fn service(case: &Case, rules: &str, every: &str, more: &[&str]) -> Child {
    let output: PathBuf = case.dir.path().join(format!("report-{every}.json"));
    let mut command = case.command(rules, &[&["sweep", "--every", every], more].concat());
    command.arg("-o").arg(output);
    start(command)
}

#[tokio::test]
async fn a_turn_that_another_service_has_is_one_warning_that_names_it() {
    let case = Case::new().await;
    let lock = case.dir.path().join("lock");
    let leases = format!("{RULES}lock: {{collection: DB.locks}}\n");
    for (rules, more) in [(RULES, &["--lock", lock.to_str().unwrap()][..]), (&leases, &[])] {
        case.fill("c", dated(0..200, days(-3))).await;
        let first = service(&case, rules, "30d", &[more, &["--rate", "1"]].concat());
        until_deleted_from(&case, "c", 200).await;
        let mut second = service(&case, rules, "1s", more);
        let said = Said::by(&mut second);
        said.until_times("warning: ", 2).await;
        signal(&second, "TERM");
        assert_eq!(end(second).await.code, Some(143));
        let holder = format!("process {}", first.id());
        let lines = said.lines();
        assert!(lines.iter().all(|line| !line.contains("error: ")), "{lines:#?}");
        for line in lines.iter().filter(|line| line.contains("warning: ")) {
            assert!(line.contains(&holder), "{lines:#?}");
        }
        signal(&first, "KILL");
        end(first).await;
        case.collection("c").drop().await.unwrap();
    }
}

#[tokio::test]
async fn rules_behind_the_leases_of_one_run_are_told_in_one_line() {
    let case = Case::new().await;
    let leases = format!("{RULES}lock: {{collection: DB.locks}}\n");
    for name in ["c", "d"] {
        case.fill(name, dated(0..200, days(-3))).await;
    }
    let first = service(&case, &leases, "30d", &["--rate", "1"]);
    until_deleted_from(&case, "c", 200).await;
    let ran = run(case.command(&leases, &["sweep"])).await;
    assert_eq!(ran.code, Some(6), "{ran:?}");
    let name = case.db.name();
    let said = format!("warning: {name}.c, {name}.d: refused: lock: ");
    assert!(ran.stdout.contains(&said), "{ran:?}");
    assert_eq!(ran.stdout.matches("if it is not").count(), 1, "{ran:?}");
    signal(&first, "TERM");
    end(first).await;
}
