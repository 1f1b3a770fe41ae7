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
    for part in [
        &format!("{name}.c"),
        &format!("{name}.d"),
        "delete at most 6 documents from 2 collections?",
        "1 more rule with nothing expired",
        "server mongodb ",
    ] {
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
    assert!(ran.stdout.contains("interrupted; nothing was deleted"), "{ran:?}");
    assert!(!ran.stdout.contains("in flight"), "nothing was in flight: {ran:?}");
}

#[tokio::test]
async fn the_question_is_about_what_goes_under_the_limits_and_everything_can_be_seen() {
    let case = case().await;
    for tenant in 0..30 {
        case.fill(&format!("t_{tenant}"), dated(0..2, days(-3)).chain(dated(2..3, days(3)))).await;
    }
    let rules = "  - {namespace: DB.c, field: at, expireAfter: 1d, maxDeletes: 2}
  - {namespace: DB.d, field: at, expireAfter: 1d, maxDeletePercent: 10}
  - {name: tenants, namespace: DB.t_*, field: at, expireAfter: 1d}
  - {namespace: DB.nowhere, field: at, expireAfter: 1d}\n";
    let terminal = Terminal::open(&case.command(rules, &["sweep", "--max-deletes", "40"])).until_asked().await;
    let name = case.db.name();
    for part in [
        "delete at most 40 documents from 31 collections? `?` shows everything [yes/no] ",
        "tenants (30 namespaces)",
        "d: refused: maxDeletePercent: 3 of 5 documents",
        "no such namespace",
        "the run: at most 40 documents (--max-deletes)",
    ] {
        assert!(terminal.shown.contains(part), "{part}: {}", terminal.shown);
    }
    assert!(terminal.shown.lines().count() <= 20, "{}", terminal.shown);
    assert!(!terminal.shown.contains(&format!("{name}.t_17")), "{}", terminal.shown);
    let terminal = terminal.types("?\n").until_asked().await;
    for tenant in 0..30 {
        assert!(terminal.shown.contains(&format!("tenants {name}.t_{tenant} ")), "{tenant}: {}", terminal.shown);
    }
    let ran = terminal.types("yes\n").end().await;
    assert_eq!(ran.code, Some(5), "{ran:?}");
    assert_eq!(case.ids("d").await, id_set(0..5), "refused");
    let mut gone = 5 - case.ids("c").await.len();
    for tenant in 0..30 {
        gone += 3 - case.ids(&format!("t_{tenant}")).await.len();
    }
    assert_eq!(gone, 40, "no more than the question was about: {ran:?}");
}

#[tokio::test]
async fn a_closed_window_is_no_question_and_no_delete() {
    let case = case().await;
    let time = |hours: i64| (chrono::Utc::now() + chrono::TimeDelta::hours(hours)).format("%H:%M").to_string();
    let rules = format!(
        "  - {{namespace: DB.c, field: at, expireAfter: 1d, window: {{start: '{}', end: '{}', timezone: UTC}}}}\n",
        time(6),
        time(12)
    );
    let ran = Terminal::open(&case.command(&rules, &["sweep"])).end().await;
    assert_eq!(ran.code, Some(4), "{ran:?}");
    assert!(!ran.stdout.contains("[yes/no]") && ran.stdout.contains("left: 3 documents"), "{ran:?}");
    assert_eq!(case.ids("c").await, id_set(0..5));
}

#[tokio::test]
async fn a_plan_shows_what_it_approved() {
    let case = case().await;
    let plan = case.dir.path().join("plan.json");
    let plan = plan.to_str().unwrap();
    let only = format!("{}.c", case.db.name());
    let saved = case.run(RULES, &["sweep", "--dry-run", "--only", &only, "-o", plan]).await;
    assert_eq!(saved.code, Some(0), "{saved:?}");
    let terminal = Terminal::open(&case.command(RULES, &["sweep", "--plan", plan])).until_asked().await;
    for part in ["approved 3 by 1 rule", "not in the plan", "delete at most 3 documents from 1 collection?"] {
        assert!(terminal.shown.contains(part), "{part}: {}", terminal.shown);
    }
    let ran = terminal.types("yes\n").end().await;
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(case.ids("c").await, id_set([3, 4]));
    assert_eq!(case.ids("d").await, id_set(0..5));
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
