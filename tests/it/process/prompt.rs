//! The confirmation before the first delete: asked only if standard input is a terminal, and only `yes` confirms.

use crate::support::faults::{dated, days};
use crate::support::sweeper::{Case, id_set};
use crate::support::terminal::Terminal;

const RULES: &str = "  - {namespace: DB.c, field: at, expireAfter: 1d}
  - {namespace: DB.d, field: at, expireAfter: 1d}
  - {namespace: DB.live, field: at, expireAfter: 1d}\n";

async fn case() -> Case {
    let case = Case::new().await;
    for name in ["c", "d"] {
        case.fill(name, dated(0..3, days(-3)).chain(dated(3..5, days(3)))).await;
    }
    case.fill("live", dated(0..2, days(3))).await;
    case
}

#[tokio::test]
async fn counts_are_shown_and_yes_deletes() {
    let case = case().await;
    let terminal = Terminal::open(&case.command(RULES, &["sweep"])).until_asked().await;
    let name = case.db.name();
    for part in [&format!("{name}.c"), &format!("{name}.d"), "delete 6 documents from 2 collections?"] {
        assert!(terminal.shown.contains(part), "{part}: {}", terminal.shown);
    }
    assert!(!terminal.shown.contains(".live"), "nothing is deleted there: {}", terminal.shown);
    assert_eq!(case.ids("c").await, id_set(0..5), "nothing is deleted before the answer");
    let ran = terminal.types("yes\n").end().await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("deleted 6 documents"), "{ran:?}");
    for name in ["c", "d"] {
        assert_eq!(case.ids(name).await, id_set([3, 4]));
    }
}

#[tokio::test]
async fn any_other_answer_deletes_nothing() {
    let case = case().await;
    for answer in ["no\n", "\n", "y\n", "YES\n", "yes please\n", "\u{4}"] {
        let terminal = Terminal::open(&case.command(RULES, &["sweep"])).until_asked().await;
        let ran = terminal.types(answer).end().await;
        assert_eq!(ran.code, Some(1), "{answer:?} {ran:?}");
        assert!(ran.stdout.contains("nothing was deleted"), "{ran:?}");
        for name in ["c", "d"] {
            assert_eq!(case.ids(name).await, id_set(0..5), "{answer:?}");
        }
    }
}

#[tokio::test]
async fn an_interrupt_at_the_question_ends_the_run_without_a_delete() {
    let case = case().await;
    let terminal = Terminal::open(&case.command(RULES, &["sweep"])).until_asked().await;
    let mut terminal = terminal.types("\u{3}");
    let mut heard = false;
    for _ in 0..500 {
        heard = terminal.child.try_wait().unwrap().is_some();
        if heard {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    if !heard {
        // Otherwise the run would wait forever.
        terminal = terminal.types("yes\n");
    }
    let ran = terminal.end().await;
    assert_eq!(case.ids("c").await, id_set(0..5));
    assert!(heard, "the interrupt was not noticed before the question was answered: {ran:?}");
    assert_eq!(ran.code, Some(130), "{ran:?}");
}

#[tokio::test]
async fn nobody_is_asked_with_yes_or_a_dry_run_or_nothing_to_delete() {
    let case = case().await;
    let live = "  - {namespace: DB.live, field: at, expireAfter: 1d}\n";
    for (rules, args, left) in [
        (RULES, &["sweep", "--dry-run"][..], 0..5),
        (live, &["sweep"], 0..5),
        (RULES, &["sweep", "--yes"], 3..5),
        (RULES, &["sweep"], 3..5),
    ] {
        let ran = Terminal::open(&case.command(rules, args)).end().await;
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(!ran.stdout.contains("[yes/no]"), "{ran:?}");
        assert_eq!(case.ids("c").await, id_set(left));
    }
}

#[tokio::test]
async fn the_question_does_not_mix_with_a_report_that_goes_elsewhere() {
    let case = case().await;
    let report = case.dir.path().join("report.json");
    let mut command = case.command(RULES, &["sweep", "--format", "json"]);
    command.arg("-o").arg(&report);
    let ran = Terminal::open(&command).until_asked().await.types("yes\n").end().await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let json: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(report).unwrap()).unwrap();
    assert_eq!(json["totals"]["deletedCount"], 6);
    assert_eq!(json["totals"]["expiredCount"], 6);
}
